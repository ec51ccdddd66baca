"""Why the parameters move: the forces behind an influence step, node by node (Wu et al., WWW'23, for any model).

The step x solves (H + δI) x = v, with H the Gauss-Newton matrix on the remaining graph and v = ∇ΔL(θ0), which is

    v = Σ_touched (∇ℓ_i − ∇ℓ'_i)  +  Σ_others (∇ℓ_i − ∇ℓ'_i)  +  (μ − μ') θ0

with ℓ_i the loss of node i on the graph, ℓ'_i on what remains of it (none for a node that leaves the training set).
Touched are the nodes that the request names; the others feel it through the graph. Multiplied by x the equation is a
balance of forces, each the work it does along the step, in units of the summed loss:

    v_touched·x + v_neighbourhood·x + v_decay·x  =  Σ_i (J x)_iᵀ ∇²ℓ'_i (J x)_i  +  Σ_k μ'_k x_k²  +  δ‖x‖²

On the left what pulls, on the right what resists: the training nodes that remain, their weight decay, the damping.
Since ⟨∇ℓ_i, x⟩ = ⟨∂ℓ_i/∂outputs, (J x)_i⟩, one product J x on each graph gives the share of every node.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.curvature.products import GaussNewton
from unweave.curvature.solvers import conjugate_gradients
from unweave.errors import NoProgressError, RequestError, UnweaveError
from unweave.graph.region import hops_from
from unweave.inspection.felt import NodeChange, changed_by
from unweave.methods.gif import GIF
from unweave.methods.posing import meter_for, pose
from unweave.methods.problem import Problem
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.parameters import trained, unflatten
from unweave.request import Request

__all__ = ["PULLS", "RESISTANCES", "Explanation", "NodeForce", "explain"]

PULLS = {"touched": "removed data", "neighbourhood": "its neighbourhood", "decay": "weight decay"}
RESISTANCES = {"nodes": "training nodes", "decay": "weight decay", "damping": "damping"}
"""The forces of the two sides, and what they are called."""

ITERATIONS = 500


@dataclass(frozen=True)
class NodeForce:
    """What one training node contributes to a force.

    Attributes:
        node: Its id.
        work: Its part, negative where it works against the others.
        share: Of all work done along the step.
        hops: Steps from the nearest node that the request names, along the flow of messages; ``None`` out of reach.
        label: Its class, where the loss is cross-entropy.
    """

    node: int
    work: float
    share: float
    hops: int | None
    label: int | None


@dataclass(frozen=True)
class Explanation:
    """The forces behind one influence step. ``str(explanation)`` is for people, :meth:`to_dict` for machines.

    Attributes:
        request: The request in canonical form.
        pulls: What pulls: ``touched``, the nodes that the request names; ``neighbourhood``, every other training node;
            ``decay``, weight decay, which goes with the number of training nodes.
        resistances: What resists: the training ``nodes`` that remain, their weight ``decay``, the ``damping``. Both
            sides have the same sum, up to the residual.
        hardest: The hardest-pulling nodes of ``touched`` and of the ``neighbourhood``, and those that resist most
            (``nodes``), each list by size.
        changed: The nodes that remain whose predictions move most, predicted and, where a model was given
            that has forgotten, actual.
        parameters: For each parameter its name, count and norm, how far it moves, and how far each pull alone would
            move it.
        damping: δ.
        residual: ‖v − (H + δI) x‖ / ‖v‖.
        unit: Of the work: nats for cross-entropy, otherwise whatever the loss is in.
        node_pulls: The pull of each node, zero outside the training set.
        node_resistances: The resistance of each node.
        warnings: What the reader should know.
    """

    request: dict[str, Any]
    pulls: dict[str, float]
    resistances: dict[str, float]
    hardest: dict[str, list[NodeForce]]
    changed: list[NodeChange]
    parameters: list[dict[str, Any]]
    damping: float
    residual: float
    unit: str
    node_pulls: Tensor
    node_resistances: Tensor
    warnings: tuple[str, ...] = ()

    @property
    def work(self) -> float:
        """What all pulls do together along the step."""
        return sum(self.pulls.values())

    @property
    def title(self) -> str:
        """What was asked, in a few words."""
        return Request.from_dict(self.request).describe()

    def to_dict(self) -> dict[str, Any]:
        """The explanation as a JSON document, without the figures of every single node."""
        names = ("request", "pulls", "resistances", "work", "unit", "parameters", "damping", "residual")
        return {
            "format": "unweave-explanation-1",
            **{name: getattr(self, name) for name in names},
            "hardest": {side: [asdict(node) for node in nodes] for side, nodes in self.hardest.items()},
            "changed": [asdict(node) for node in self.changed],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        lines = [("Asked", self.title), ("Work", f"{self.work:.4g} {self.unit} along the step")]
        for title, forces, names in (("Pull", self.pulls, PULLS), ("Resistance", self.resistances, RESISTANCES)):
            rows = [f"{names[key]:<18}{value:>+10.4g}{value / self.work:>8.1%}" for key, value in forces.items()]
            lines += [(title if i == 0 else "", row) for i, row in enumerate(rows)]
        for title, side in (("Nodes", "touched"), ("", "neighbourhood"), ("", "nodes")):
            names = RESISTANCES if side == "nodes" else PULLS
            lines.append((title, f"{names[side]:<18}" + ("; ".join(map(_describe, self.hardest[side])) or "none")))
        lines += [("Felt by" if i == 0 else "", str(node)) for i, node in enumerate(self.changed)]
        for i, row in enumerate(self.parameters):
            parts = ", ".join(f"{name} {row[key]:.3g}" for key, name in PULLS.items())
            share = row["moves"] / max(row["norm"], 1e-30)
            lines.append(
                ("Moves" if i == 0 else "", f"{row['name']} by {row['moves']:.3g} ({share:.1%}); alone: {parts}")
            )
        lines.append(("Solved", f"with damping {self.damping:.4g}, to a relative residual of {self.residual:.2g}"))
        lines += [("Warning" if i == 0 else "", text) for i, text in enumerate(self.warnings)]
        return "\n".join(f"{title:<12}{text}" for title, text in lines)


def explain(
    model: nn.Module,
    data: Data,
    request: Request,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    damping: float | None = None,
    top: int = 5,
    after: nn.Module | None = None,
) -> Explanation:
    """Say which forces, and which nodes, would move a model's parameters if a request were carried out. Nothing is.

    What is explained is the influence step of the paper on the remaining graph, the first step of ``gif``. Where
    training nodes go and training did not end at a minimum, ``gif`` also lets the slope there shrink less than v says.

    Args:
        model: The trained module, as for :func:`unweave.unlearn`.
        data: The graph it was trained on.
        request: What would be forgotten.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call the model on a graph.
        damping: δ; by default what ``gif`` chooses for one step.
        top: How many nodes to name for each force.
        after: The model that has forgotten, so that what it did to whom stands beside what was predicted.

    Raises:
        UnweaveError: What was given cannot be explained, or no training node feels the request.
    """
    how = GIF(steps=1) if damping is None else GIF(damping=damping)
    if not (isinstance(top, int) and top >= 1):
        raise UnweaveError(f"top must be a whole number of at least 1, got {top!r}")
    meter = meter_for(model, data, request)
    loss, decay = as_loss(loss), as_weight_decay(weight_decay, model)
    with torch.enable_grad():
        problem, region, notes = pose(
            model, data, request, weight_decay=decay, loss=loss, forward=forward, meter=meter,
            allow_class_loss=True,
        )  # fmt: skip
        v = problem.forgotten_gradient
        if not bool(v.any()):
            raise RequestError("no training node's loss changes beyond rounding, so nothing pulls at the parameters")
        H = GaussNewton(problem.at_remaining)
        if damping is None:
            own = how.vector(problem)
            damping = how.choose(problem, own, how.space(problem, H, own)).damping
        damping = float(damping)
        x, steps, residual = _solve(problem, H, v, damping)
        node_pulls, node_resistances = _by_node(problem, H, x)
    touched, squared = problem.removal.touched, x.double().square()
    pulls = {
        "touched": float(node_pulls[touched].sum()),
        "neighbourhood": float(node_pulls[~touched].sum()),
        "decay": float(((problem.original.mu - problem.remaining.mu) * problem.theta).double() @ x.double()),
    }
    resistances = {
        "nodes": float(node_resistances.sum()),
        "decay": float(problem.remaining.mu.double() @ squared),
        "damping": damping * float(squared.sum()),
    }
    if not sum(pulls.values()) > 0:
        raise NoProgressError(
            f"with damping {damping:.3g} no step is found, as the curvature is flat; give more damping"
        )
    hops = hops_from(data, touched, region.reach.flow)
    labels = data.y if loss.classes else None
    sides = {"touched": node_pulls * touched, "neighbourhood": node_pulls * ~touched, "nodes": node_resistances}
    warning = f"the step was solved only to a relative residual of {residual:.2g}; give more damping than {damping:.3g}"
    return Explanation(
        request=problem.removal.request.to_dict(),
        pulls=pulls,
        resistances=resistances,
        hardest={side: _hardest(values, sum(pulls.values()), hops, labels, top) for side, values in sides.items()},
        changed=changed_by(problem, x, after, hops, top),
        parameters=_by_parameter(problem, x, steps),
        damping=damping,
        residual=residual,
        unit=loss.unit,
        node_pulls=node_pulls,
        node_resistances=node_resistances,
        warnings=(*notes, *([warning] if residual > 100 * _tolerance(v) else [])),
    )


def _hardest(values: Tensor, work: float, hops: Tensor, labels: Tensor | None, top: int) -> list[NodeForce]:
    """The nodes of largest size. Only training nodes have any, so no other label is read."""
    order = values.abs().argsort(descending=True, stable=True)[:top]
    return [
        NodeForce(
            node=node,
            work=float(values[node]),
            share=float(values[node]) / work,
            hops=int(hops[node]) if hops[node] >= 0 else None,
            label=None if labels is None else int(labels[node]),
        )
        for node in order.tolist()
        if values[node] != 0
    ]


def _tolerance(v: Tensor) -> float:
    """As far as rounding lets conjugate gradients come with ease: 7e-5 in float32, 4e-10 in float64."""
    return float(torch.finfo(v.dtype).eps ** 0.6)


def _solve(problem: Problem, H: GaussNewton, v: Tensor, damping: float) -> tuple[Tensor, dict[str, Tensor], float]:
    """The step, the step of each pull alone, and the residual.

    The whole is solved for, and the largest part takes what the others leave: conjugate gradients balance the forces
    of the system they solve even where they stop early, and a part that is zero stays zero.
    """
    touched = problem.removal.touched
    before, after = problem.at_original, problem.at_remaining
    parts = {
        "touched": before.loss_gradient(touched) - after.loss_gradient(touched),
        "neighbourhood": before.loss_gradient(~touched) - after.loss_gradient(~touched),
        "decay": (problem.original.mu - problem.remaining.mu) * problem.theta,
    }

    def solve(u: Tensor) -> Tensor:
        if not bool(u.any()):
            return torch.zeros_like(u)
        return conjugate_gradients(H, u, damping=damping, tolerance=_tolerance(u), iterations=ITERATIONS)[0]

    x = solve(v)
    largest = max(parts, key=lambda name: float(parts[name].norm()))
    steps = {name: solve(part) for name, part in parts.items() if name != largest}
    steps[largest] = x - sum(steps.values(), torch.zeros_like(x))
    return x, steps, float((v - H(x) - damping * x).norm() / v.norm())


def _by_node(problem: Problem, remaining: GaussNewton, x: Tensor) -> tuple[Tensor, Tensor]:
    """⟨∇ℓ_i − ∇ℓ'_i, x⟩ and (J x)_iᵀ ∇²ℓ'_i (J x)_i of every node, in float64."""
    pulls = torch.zeros(problem.original.data.num_nodes, dtype=torch.float64, device=x.device)
    resistances = torch.zeros_like(pulls)
    original = GaussNewton(problem.at_original)
    before, after = original.push(x), remaining.push(x)
    pulls[problem.original.nodes] += _rows(before, original.slope)
    pulls[problem.remaining.nodes] -= _rows(after, remaining.slope)
    resistances[problem.remaining.nodes] = _rows(after, remaining.bend(after))
    return pulls, resistances


def _rows(a: Tensor, b: Tensor) -> Tensor:
    """⟨a_i, b_i⟩."""
    return (a.double() * b.double()).reshape(a.size(0), -1).sum(dim=1)


def _by_parameter(problem: Problem, x: Tensor, steps: dict[str, Tensor]) -> list[dict[str, Any]]:
    """How far each parameter moves, and how far each pull alone would move it."""
    model = problem.original.model
    moved = {"norm": problem.theta, "moves": x, **{name: steps[name] for name in PULLS}}
    pieces = {key: unflatten(model, vector) for key, vector in moved.items()}
    return [
        {"name": name, "count": p.numel(), **{key: float(pieces[key][name].norm()) for key in moved}}
        for name, p in trained(model).items()
    ]


def _describe(node: NodeForce) -> str:
    """One node in a few words."""
    facts = [f"class {node.label}"] * (node.label is not None)
    facts += [f"{node.hops} hop{'s' * (node.hops != 1)}"] * bool(node.hops)
    return f"{node.node}" + (f" ({', '.join(facts)})" if facts else "") + f" {node.share:+.1%}"
