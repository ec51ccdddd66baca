"""Does a Kronecker-factored preconditioner, from products with random vectors, shorten polishes and restarts?

python benchmarks/preconditioned.py --device cuda --data wordnet --model gcn --decay 3e-5 --passes 3000
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from minima import SMALL, curvature_at, objective_of
from shared import append, arguments, made
from torch import Tensor
from wide import GENERATED

import unweave as uw
from unweave.curvature.preparation import rank_for
from unweave.curvature.products import products
from unweave.curvature.solvers import krylov, minimise, random_like
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten, trained


class Kronecker:
    """P with P ≈ H, of one Kronecker product for each weight matrix; of random products alone."""

    def __init__(self, operator: Callable[[Tensor], Tensor], objective: Objective, theta: Tensor, probes: int) -> None:
        self.shapes = [p.shape for p in trained(objective.model).values()]
        sizes = [s.numel() for s in self.shapes]
        self.sizes = sizes
        generator = torch.Generator().manual_seed(1)
        left: list[Any] = [0.0] * len(sizes)
        right: list[Any] = [0.0] * len(sizes)
        trace = [0.0] * len(sizes)
        for _ in range(probes):
            z = torch.randn(theta.numel(), generator=generator, dtype=torch.float64).to(theta)
            h = operator(z) - objective.mu * z
            for j, (a, b) in enumerate(zip(self.parts(h), self.parts(z), strict=True)):
                trace[j] += float((a * b).sum()) / probes
                if a.dim() == 2:
                    left[j], right[j] = left[j] + a @ a.T / probes, right[j] + a.T @ a / probes
        self.factors: list[tuple[Tensor | None, Tensor | None, Tensor]] = []
        for j, (shape, mu) in enumerate(zip(self.shapes, self.parts(objective.mu), strict=True)):
            total = max(trace[j], 1e-30)
            if len(shape) == 2:
                el, ul = torch.linalg.eigh(left[j].double())
                er, ur = torch.linalg.eigh(right[j].double())
                d = el.clamp(min=0).sqrt()[:, None] * er.clamp(min=0).sqrt()[None, :]
                d = d * (total / float(d.sum())) + mu.double()
                self.factors.append((ul.to(theta), ur.to(theta), d.to(theta)))
            else:
                self.factors.append((None, None, mu + total / shape.numel()))

    def parts(self, v: Tensor) -> list[Tensor]:
        return [x.view(s) for x, s in zip(torch.split(v, self.sizes), self.shapes, strict=True)]

    def half(self, v: Tensor) -> Tensor:
        """P^(-1/2) v."""
        out = []
        for x, (ul, ur, d) in zip(self.parts(v), self.factors, strict=True):
            out.append(x / d.sqrt() if ul is None or ur is None else ul @ ((ul.T @ x @ ur) / d.sqrt()) @ ur.T)
        return torch.cat([x.reshape(-1) for x in out])


def kronecker(objective: Objective, theta: Tensor, rank: int, probes: int) -> Callable[[Tensor], Tensor]:
    operator = products("gauss-newton", objective.at(theta))
    operator.record()
    k = Kronecker(operator, objective, theta, probes)
    top = krylov(lambda q: k.half(operator(k.half(q))), random_like(theta), products=rank + 8).low_rank(rank)
    return lambda g: k.half(top.solve(k.half(g)))


def main() -> None:
    parser = arguments(
        __doc__, "preconditioned", data="wordnet", model="gcn", hidden=0, decay=3e-5, passes=3000, device="cpu",
        request="nodes:0.05",
    )  # fmt: skip
    asked = parser.parse_args()
    torch.set_num_threads(1)
    drawn = GENERATED | SMALL
    graph = (drawn[asked.data](seed=0) if asked.data in drawn else uw.load(asked.data, seed=0)).to(asked.device)
    own = objective_of(graph, asked.model, asked.hidden, asked.decay, 0)
    cell = {key: getattr(asked, key) for key in ("data", "model", "hidden", "decay", "request")}
    begin, meter, rank = flatten(own.model).clone(), own.meter, rank_for(own)
    own.record(begin)
    ways: dict[str, tuple[int, Callable[[Objective, Tensor], Callable[[Tensor], Tensor]]]] = {
        "kronecker 16, 120": (120, lambda o, t: kronecker(o, t, 16, 16)),
        "low rank": (60, lambda o, t: curvature_at(o, t, rank).solve),
        "kronecker 32, 60": (60, lambda o, t: kronecker(o, t, rank, 16)),
    }
    end = begin
    for name, (refresh, inverse) in ways.items():
        theta, (value, gradient) = begin, own.evaluate(begin)
        first, clock, rows = meter.passes, time.time(), []
        while meter.passes - first < asked.passes:
            theta, found = minimise(
                own.evaluate, theta, value, gradient, inverse(own, theta), evaluations=refresh, tolerance=0.0
            )
            value, gradient = own.evaluate(theta)
            rows.append([meter.passes - first, value, float(gradient.norm()), found.steps, time.time() - clock])
            if not found.steps:
                break
        append(asked.out / "polish.jsonl", cell | {"way": name, "rows": rows} | made(asked.device))
        end = theta if end is begin else end
    remaining = own.without(uw.draw(asked.request, graph, seed=0))
    for name, (_, inverse) in ways.items():
        solve, values = inverse(own, end), []

        def look(there: Tensor, values: list[float] = values) -> tuple[float, Tensor]:
            found = remaining.evaluate(there)
            values.append(found[0])
            return found

        value, gradient = look(end)
        minimise(look, end, value, gradient, solve, evaluations=240, tolerance=0.0)
        append(asked.out / "restarts.jsonl", cell | {"way": name, "values": values} | made(asked.device))


if __name__ == "__main__":
    main()
