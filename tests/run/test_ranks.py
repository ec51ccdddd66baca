"""What several ranks do together is what one process does."""

from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from tests.spread import spread
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.curvature.products import products
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.parts.bounded import objective_within

DECAY = 1e-2
FEW = {"rank": 4, "per_class": 1.0, "spare": 2, "bend_products": 4}
"""Every product takes all ranks, and whether they give the same is seen from few of them."""


def graph(kind: str, nodes: int = 120) -> Data:
    """A graph on which halos are less than all of it: near a ring, with a hub and isolated nodes."""
    generator = torch.Generator().manual_seed(0)
    near = torch.arange(nodes - 4)  # the last four have no edges
    pairs = torch.stack([near.repeat(2), torch.cat([near + 1, near + 3]) % (nodes - 4)])
    hub = torch.stack([torch.full((30,), 7), torch.arange(20, 50)])
    forth = torch.cat([pairs, hub], dim=1)
    directed = kind != "plain"
    edges = forth if directed else torch.cat([forth, forth.flip(0)], dim=1)
    y = torch.randint(3, (nodes,), generator=generator)
    x = torch.randn(nodes, 5, generator=generator, dtype=torch.float64) + torch.eye(3, 5, dtype=torch.float64)[y]
    data = Data(x=x, edge_index=edges, y=y, num_nodes=nodes)
    if kind == "weighted":
        data.edge_weight = torch.rand(edges.size(1), generator=generator, dtype=torch.float64) + 0.5
    data.num_classes = 3
    return uw.split(data, seed=0)


def model(kind: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    if kind == "sage":
        return uw.models.SAGE(5, 3, hidden=6, dropout=0.0).to(dtype)
    return uw.models.GCN(5, 3, hidden=6, dropout=0.0, activation="tanh").to(dtype)


def everything(kind: str, layer: str, dtype: torch.dtype, memory_mib: float | None = None) -> dict[str, Tensor]:
    """All that evaluates the objective, as tensors to compare."""
    data = graph(kind)
    data.x = data.x.to(dtype)
    if "edge_weight" in data:
        data.edge_weight = data.edge_weight.to(dtype)
    found: dict[str, Any] = {}
    with tuned(spectrum=FEW, polish={"evaluations": 40}):
        net = model(layer, dtype)
        meter = Meter(data.x.device)
        objective = objective_within(net, data, DECAY, cross_entropy, call, meter, memory_mib)
        theta = flatten(net)
        point = objective.at(theta)
        v = torch.linspace(-1, 1, theta.numel(), dtype=dtype)
        found |= {"losses": point.losses, "gradient": point.gradient(), "outputs": point.outputs}
        found |= {kind: products(kind, point)(v) for kind in ("gauss-newton", "hessian")}
        found["some"] = point.loss_gradient(torch.arange(data.num_nodes) % 2 == 0)
        run = uw.train(net, data, epochs=8, weight_decay=DECAY, examine=False, memory_mib=memory_mib)
        found |= {"trained": flatten(run.model), "scores": _numbers(run.metrics)}
        run = run.prepare(memory_mib=memory_mib)
        ready = run.prepared
        assert ready is not None
        found |= {"values": ready.curvature.values, "slope": ready.gradient, "damping": torch.tensor(ready.damping)}
        for method in ("gif", "retrain"):
            after = run.forget(uw.Request(nodes=[40], edges=[(7, 21)], labels=[3]), method, memory_mib=memory_mib)
            told = after.receipts[-1]
            found |= {method: flatten(after.model), f"{method} scores": _numbers(after.metrics)}
            found[f"{method} receipt"] = torch.tensor([told.objective["remaining_after"], told.step_norm])
        one = int(data.train_mask.nonzero()[9])
        later = run.forget(uw.Request(labels=[one]), defer=True).verify(memory_mib=memory_mib)
        found["verified"] = torch.tensor([later.receipts[-1].residual_influence, *flatten(later.model).tolist()])
    return {key: value.detach().clone() for key, value in found.items()}


def _numbers(metrics: Any) -> Tensor:
    return torch.tensor([value for key, value in sorted(metrics.items()) if "seconds" not in key])


CASES = [("plain", "gcn", torch.float64), ("directed", "sage", torch.float64), ("weighted", "gcn", torch.float32)]
QUICK = [(0, 2), (1, 3), (2, 2)]
TABLE = [
    pytest.param(*case, count, marks=[] if (number, count) in QUICK else [pytest.mark.slow])
    for number, case in enumerate(CASES)
    for count in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("kind", "layer", "dtype", "count"), TABLE)
def test_ranks_agree_with_one_process(
    kind: str, layer: str, dtype: torch.dtype, count: int, warm: ForkServerContext, tmp_path: Path
) -> None:
    wanted = everything(kind, layer, dtype)
    answers = spread(warm, count, tmp_path, everything, kind, layer, dtype)
    near = 1e-10 if dtype == torch.float64 else 1e-5
    for rank, answer in enumerate(answers):
        assert "found" in answer, answer
        for key, value in wanted.items():
            own = answer["found"][key]
            torch.testing.assert_close(own, value, rtol=near, atol=near, msg=lambda m, k=key: f"{k}: {m}")
            assert torch.equal(own, answers[0]["found"][key]), f"{key} of rank {rank} is not that of the first"
