"""Dimensions that are born: found as the dense Hessian finds them, and only where pairs are scored by dot products."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import hessian
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.tasks.pairs import graph, linked, objective, recommender
from unweave._core.tuning import tuned
from unweave.curvature.birth import Born, born
from unweave.curvature.local import LocalProblem
from unweave.models import LightGCN, Linker
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten, split, trained
from unweave.tasks import Links

WIDTH = 24
"""More dimensions to spare than entries in one, so that all curvature is seen."""


def flattened(model: nn.Module, axis: int) -> nn.Module:
    """With two dimensions in use, and traces of the others."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in trained(model).values():
            if value.dim() == 2:
                value.copy_(torch.randn(value.shape, generator=generator, dtype=value.dtype))
                value.movedim(axis, 0)[2:] *= 1e-6
    return model.double()


def found(here: Objective, task: Links) -> Born | None:
    point = here.at(flatten(here.model))
    local = LocalProblem(point.theta.detach(), point.losses.detach(), here.mu, torch.zeros_like(here.mu))
    return born(here, local, point.gradient(), task.dimensions(here.model))


@pytest.mark.parametrize("kind", ["linker", "lightgcn"])
def test_the_curvature_is_that_of_the_dense_hessian_and_the_objective_falls(kind: str) -> None:
    task, axis = (linked(), 0) if kind == "linker" else (recommender(), 1)
    model = flattened((Linker(4, WIDTH) if kind == "linker" else LightGCN(21, WIDTH)).double(), axis)
    here, theta = objective(model, task, 1e-3), flatten(model)

    def dense(flat: Tensor) -> Tensor:
        return here.node_losses(here.outputs(flat)).sum() + (here.mu * flat.square()).sum() / 2

    def rows(flat: Tensor) -> Tensor:
        pieces = split({name: value.shape for name, value in trained(model).items()}, flat)
        return torch.cat([piece.movedim(axis, 0) for piece in pieces.values() if piece.dim() == 2], dim=1)

    one = rows(torch.arange(theta.numel()))[5]  # a dimension that is not in use
    used = torch.linalg.qr(rows(theta)[:2].t()).Q
    off = torch.eye(one.numel(), dtype=torch.float64) - used @ used.t()
    values = torch.linalg.eigvalsh(off @ hessian(dense)(theta)[one][:, one] @ off)
    below = values[values < -1e-3 * values.abs().max()]
    assert below.numel() >= 2
    new = found(here, task)
    assert new is not None
    torch.testing.assert_close(torch.tensor(new.bends, dtype=torch.float64), below, rtol=0.02, atol=1e-3)
    assert here.evaluate(new.theta)[0] < here.evaluate(theta)[0] - 0.1


class Weighted(Linker):
    """A dot product that weighs every dimension by itself."""

    def decode(self, z: Tensor, pairs: Tensor) -> Tensor:
        return (torch.arange(WIDTH) * z[pairs[0]] * z[pairs[1]]).sum(dim=1)


def test_nothing_is_born_without_dot_products_or_without_room() -> None:
    task = linked()
    for model in (flattened(Weighted(4, WIDTH), 0), Linker(4, 3).double(), Linker(4, WIDTH).double()):
        assert found(objective(model, task, 1e-3), task) is None


def test_a_restart_begins_with_what_is_born() -> None:
    data = graph(1, 40)
    data.x = data.x.float()
    task = Links.of(data, val=0.1, test=0.1, seed=1)
    run = uw.train(uw.models.Linker(4, 16), task, forgettable=True, weight_decay=0.01, examine=False, seed=1)
    request = uw.draw("edges:0.1", task, seed=1)
    after = run.forget(request)
    with tuned(minimum={"born": 2.0}):
        without = run.forget(request)
    assert (after.receipts[-1].details["born"], without.receipts[-1].details.get("born")) == (1, None)


class Heard(nn.Module):
    """An encoder that must be given weights of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.conv(x, edge_index, edge_weight)  # type: ignore[no-any-return]


def test_weights_of_edges_are_passed_on_and_a_model_that_cannot_be_asked_has_none() -> None:
    data = graph(1, 20)
    data.edge_weight = torch.ones(data.edge_index.size(1), dtype=data.x.dtype)
    weighted, plain = Links.of(data), linked()
    assert weighted.dimensions(Heard().double())
    assert plain.dimensions(Heard().double()) == {}
