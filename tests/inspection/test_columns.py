"""Scores of columns beside what removal does, and what they are made of beside dense matrices."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.inspection.graphs import DECAY, Plain, graph, look, minimum, trained, validation
from unweave._core.tuning import tuned
from unweave.curvature.products import GaussNewton
from unweave.inspection import bends, columns
from unweave.inspection.quantity import Gap
from unweave.inspection.solves import Solves
from unweave.inspection.subject import Subject

COLUMNS, READ = 40, ["linear.weight"]


def test_columns_of_a_convex_model() -> None:
    data = graph(80, 12)
    model = trained("sgc", data)
    found, now = look(model, data), validation(model, data, data)
    actual = []
    for column in range(data.num_features):
        left = data.clone()
        left.x = left.x.clone()
        left.x[:, column] = 0
        actual.append(validation(minimum(model, left), left, data) - now)
    both = torch.stack([found.features, torch.tensor(actual)])
    assert torch.corrcoef(both)[0, 1] > 0.9
    assert float((both[0] - both[1]).abs().sum()) < 0.3 * float(both[1].abs().sum())  # a slope alone is off by 0.38


def whole(of: str | Gap) -> tuple[Subject, Tensor, Tensor]:
    """An SGC with 40 columns, M^½ w_j and M^½ s_j of length 1, and H⁻¹ M^½."""
    data = graph(80, COLUMNS)
    subject = look(trained("sgc", data), data, of).subject
    unit = torch.eye(subject.theta.numel(), dtype=torch.float64)
    curvature = torch.stack([GaussNewton(subject.objective.at(subject.theta))(row) for row in unit])
    plane = torch.stack([subject.theta, subject.direction.s]).reshape(2, -1, COLUMNS)
    moves = torch.linalg.inv(curvature) * subject.objective.mu.sqrt()
    return subject, plane / plane.norm(dim=1, keepdim=True), moves


def blocks(matrix: Tensor, plane: Tensor) -> Tensor:
    """A matrix in the plane of each column."""
    parts = matrix.reshape(plane.size(1), COLUMNS, plane.size(1), COLUMNS).diagonal(dim1=1, dim2=3)
    return torch.einsum("iwc,wvc,jvc->cij", plane, parts, plane)


@pytest.mark.parametrize("groups", [4, COLUMNS])
def test_columns_that_share_solves_are_told_apart(groups: int) -> None:
    """With no more columns than groups there is nothing to tell apart."""
    subject, plane, moves = whole("validation")
    root = subject.objective.mu.sqrt().expand_as(subject.theta)
    exact = blocks(torch.eye(root.numel(), dtype=torch.float64) - root[:, None] * moves, plane)
    with tuned(inspection={"tolerance": 1e-9}):
        solves = Solves(subject.objective, subject.theta, subject.prepared, 0.0)
        held, unsure = columns._held(subject, READ, plane, solves, groups)
    apart = float((exact - held).square().mean()) ** 0.5
    assert max(apart, unsure) < 1e-6 if groups == COLUMNS else 0.01 < apart < 2 * unsure < 0.2


def test_what_bends_is_the_curvature_of_the_quantity(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, plane, moves = whole("validation")
    theta = subject.theta.clone().requires_grad_()
    value = subject.quantity.value(subject.objective.outputs(theta), subject.objective.data)
    (slope,) = torch.autograd.grad(value, theta, create_graph=True)
    unit = torch.eye(theta.numel(), dtype=torch.float64)
    curved = torch.stack([torch.autograd.grad(slope, theta, row, retain_graph=True)[0] for row in unit])
    exact = blocks(moves.T @ curved @ moves, plane)[:, 0, 0]
    monkeypatch.setattr(columns, "SAMPLES", 600)
    with tuned(inspection={"tolerance": 1e-9}):
        solves = Solves(subject.objective, subject.theta, subject.prepared, 0.0)
        bent = columns._bent(subject, READ, plane[0], solves)
    assert float((bent - exact).norm()) < 0.15 * float(exact.norm())


def test_a_gap_bends_both_ways_and_is_left_alone() -> None:
    first = torch.arange(80) < 40
    subject, plane, _ = whole(Gap(first, ~first, of=0))
    assert subject.counted.bends()[2] == 0
    solves = Solves(subject.objective, subject.theta, subject.prepared, 0.0)
    assert not bool(columns._bent(subject, READ, plane[0], solves).any())


def test_without_room_columns_are_scored_by_their_slopes() -> None:
    data = graph(80, 12)
    found = look(trained("sgc", data), data, memory_mib=1e-4)
    assert torch.equal(found.features, columns._slopes(found.subject))
    assert any("give memory_mib=" in warning for warning in found.warnings)


def test_a_frequent_column_bends_the_quantity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a column that nearly every node has, outputs move far: the loss grows by more than its slope says."""
    data = graph(80, 12)
    data.x = data.x.clone()
    data.x[:, 0] = 2 + torch.nn.functional.one_hot(data.y, int(data.num_classes)).double()[:, 0]
    model = trained("sgc", data)
    left = data.clone()
    left.x = left.x.clone()
    left.x[:, 0] = 0
    actual = validation(minimum(model, left), left, data) - validation(model, data, data)
    told = float(look(model, data).features[0])
    monkeypatch.setattr(columns, "_bent", lambda subject, names, w, solves: w.new_zeros(w.size(1)))
    straight = float(look(model, data).features[0])
    assert abs(told - actual) < 0.6 * abs(straight - actual)


@pytest.mark.parametrize("many", [1, 7])
def test_eigenvalues_of_many_small_matrices_are_found_part_by_part(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph(80, 12)
    model = trained("sgc", data)
    whole = look(model, data).features
    monkeypatch.setattr(bends, "AT_ONCE", many)
    torch.testing.assert_close(look(model, data).features, whole)


def test_kinks_of_a_relu_are_no_slopes() -> None:
    """A minimum lies on kinks, and the same model scores the same whether its layers are known or not."""
    data = graph(80, 12)
    model = trained("gcn", data, activation="relu")
    whole = look(model, data)
    plain = look(model, data, forward=lambda module, given: module(given.x, given.edge_index))
    assert whole.subject.followed
    assert not plain.subject.followed
    torch.testing.assert_close(plain.features, whole.features, rtol=1e-4, atol=1e-8)


def test_columns_do_not_depend_on_memory() -> None:
    data = graph(80, 12)
    ways = [look(trained("gcn", data), data, memory_mib=memory) for memory in (512, 0.1)]
    assert ways[0].subject.solved_at_once > columns.SAMPLES > ways[1].subject.solved_at_once
    torch.testing.assert_close(ways[1].features, ways[0].features)


class Reader(nn.Module):
    """A convolution that reads features once they were changed, beside weights of the same shape that read others."""

    def __init__(self, features: int, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, features), GCNConv(features, 3)
        self.beside, self.change = nn.Linear(features, 3), change

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        place = torch.linspace(-1, 1, x.size(0), dtype=x.dtype)[:, None] ** torch.arange(x.size(1))
        place = place * (torch.arange(x.size(1)) > x.size(1) // 3)
        seen = self.second(torch.tanh(self.first(self.change(x), edge_index)), edge_index)
        return seen + self.beside(place)  # type: ignore[no-any-return]


def read_by(change: Callable[[Tensor], Tensor]) -> uw.Inspection:
    data = graph(80, 12)
    torch.manual_seed(0)
    return look(minimum(Reader(12, change), data), data)


def test_weights_that_read_columns_are_told_from_others() -> None:
    found = read_by(lambda x: x)
    assert columns._reading(found.subject) == ["first.lin.weight"]
    assert not any("slopes alone" in warning for warning in found.warnings)
    assert found.trusted is False  # trained on few nodes


def test_columns_that_are_changed_before_they_are_read() -> None:
    found = read_by(lambda x: 2 * x - 1)
    assert torch.equal(found.features, columns._slopes(found.subject))
    assert any("by their slopes alone" in warning for warning in found.warnings)


def test_columns_that_are_read_without_decay() -> None:
    data = graph(80, 12)
    torch.manual_seed(0)
    found = uw.inspect(minimum(Plain(12, 3), data), data, weight_decay={"second": DECAY})
    assert not any("without weight decay" in warning for warning in found.warnings)
    assert bool(torch.isfinite(found.features).all())
    assert any("first.lin.weight read the columns without weight decay" in warning for warning in found.warnings)


@pytest.mark.parametrize("many", [columns.FEW - 1, columns.FEW])
def test_few_columns_are_doubted(many: int) -> None:
    data = graph(40, many)
    found = look(trained("sgc", data), data)
    assert found.features.numel() == many
    assert any(f"{many} columns only" in warning for warning in found.warnings) == (many < columns.FEW)


def test_of_a_function_that_reads_features() -> None:
    """What the function itself reads is not what is removed, as when it is confirmed."""
    data = graph(80, 12)
    model = trained("gcn", data)
    kept = data.x[:, 3].clone()

    def reads(outputs: Tensor, given: Data) -> Tensor:
        return (torch.softmax(outputs, dim=-1)[:, 0] * given.x[:, 3]).mean()

    def knows(outputs: Tensor, given: Data) -> Tensor:
        return (torch.softmax(outputs, dim=-1)[:, 0] * kept).mean()

    torch.testing.assert_close(look(model, data, reads).features, look(model, data, knows).features)
