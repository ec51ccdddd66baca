"""How training nodes answer a removal, and what is not looked at closely."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

import unweave as uw
from tests.inspection.graphs import graph, look, minimum, trained
from unweave._core.tuning import tuned
from unweave.graph.removal import remove
from unweave.inspection import leverage, ripples
from unweave.inspection.removals import edges_apart
from unweave.objective.losses import cross_entropy, squared_error


def test_samples_estimate_what_a_small_model_knows_exactly() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    exact = look(model, data).subject.leverage
    with tuned(inspection={"samples": 600, "small": 0, "tolerance": 1e-8}):
        found = look(model, data).subject.leverage
    assert exact is not None
    assert found is not None
    for one, other in ((found.spread, exact.spread), (found.inner, exact.inner)):
        apart = (one - other).flatten(1).norm(dim=1) / other.flatten(1).norm(dim=1)
        assert float(apart.mean()) < 0.1
    with tuned(inspection={"small": 0}):
        few = look(model, data)
    assert torch.corrcoef(torch.stack([few.edges, look(model, data).edges]))[0, 1] > 0.98


def test_a_label_of_a_quadratic_model_is_told_as_retraining_does() -> None:
    """Where outputs are linear in the parameters and the loss is quadratic, leave-one-out is exact."""
    data = graph(30)
    data.y = (data.x @ torch.linspace(-1, 1, data.num_features, dtype=torch.float64))[:, None]
    model = minimum(uw.models.SGC(data.num_features, 1), data, squared_error)
    node = int(data.val_mask.nonzero()[0])
    found = look(model, data, f"node:{node}", loss=squared_error)
    label = int(data.train_mask.nonzero()[2])
    left = remove(data, uw.Request(labels=[label])).data
    after = float(minimum(model, left, squared_error)(data.x, data.edge_index)[node].detach())
    # Weight decay goes with the number of nodes, and moves a little too.
    assert float(found.labels[label]) == pytest.approx(after - found.value, rel=0.02)
    vars(found.subject)["leverage"] = None
    vars(found.subject).pop("scorer")
    vars(found).pop("labels")
    linear = float(found.labels[label])
    assert abs(linear - (after - found.value)) > 0.1 * abs(after - found.value)


def test_a_loss_that_nothing_is_known_of_is_served_by_its_derivatives() -> None:
    data = graph(30)
    model = trained("gcn", data, hidden=4, activation="tanh")
    own = uw.Loss(lambda z, y: F.cross_entropy(z, y, reduction="none"), classes=True, convex=True)
    one, two = look(model, data), look(model, data, loss=own)
    for kind in ("edges", "labels"):
        assert torch.allclose(one.scores(kind), two.scores(kind), atol=1e-6)


def test_a_slope_is_settled_where_the_equation_says() -> None:
    generator = torch.Generator().manual_seed(0)
    z, away = (4 * torch.randn(50, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    labels = torch.randint(3, (50,), generator=generator)
    root = torch.randn(50, 3, 3, generator=generator, dtype=torch.float64)
    blocks = 5 * root @ root.mT
    r = torch.softmax(z, dim=-1) - F.one_hot(labels, 3)
    pull = (blocks @ r[:, :, None])[:, :, 0]
    found = leverage.settled(cross_entropy, away, labels, pull, blocks)
    end = away + pull - (blocks @ found[:, :, None])[:, :, 0]
    assert torch.allclose(torch.softmax(end, dim=-1) - F.one_hot(labels, 3), found, atol=1e-2)
    same = leverage.settled(cross_entropy, z, labels, pull, blocks)
    assert torch.allclose(same, r)


def test_what_hardly_changes_is_taken_by_its_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph(120, 8)
    for name, how in (("gcn", {"hidden": 4, "activation": "tanh"}), ("sign", {"hidden": 4, "activation": "tanh"})):
        model = trained(name, data, **how)
        monkeypatch.setattr(ripples, "QUIET", 0.05)
        near = look(model, data)
        before = {"nodes": near.nodes, "edges": near.edges}
        rows = [changed(near, data)]
        monkeypatch.setattr(ripples, "QUIET", -1.0)
        exact = look(model, data)
        rows.append(changed(exact, data))
        assert rows[0] < 0.9 * rows[1]
        for kind, was in before.items():
            apart = (was - exact.scores(kind)).abs().max()
            assert float(apart) < 0.1 * float(exact.scores(kind).abs().max())


def changed(found: uw.Inspection, data: Data) -> int:
    """Rows that the removals of all edges change."""
    removals = edges_apart(data)[1]
    rest = torch.zeros(removals.count, dtype=torch.float64)
    return sum(part[0].numel() for part in found.subject.engine.changed(removals, rest, 1e9))


def test_too_much_memory_is_said() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    found = look(model, data, memory_mib=0.0001)
    assert not found.trusted
    assert "give memory_mib=" in str(found)
    assert found.subject.leverage is None
    assert bool(found.edges.any())
    with tuned(inspection={"samples": 10}):
        whole = look(model, data).subject
        less = look(model, data, memory_mib=0.9 * whole.leverage_mib)
        assert whole.leverage is not None
        assert whole.leverage.exact
        assert less.subject.leverage is not None
        assert not less.subject.leverage.exact  # samples fit where all parameters do not
        assert not any("give memory_mib=" in warning for warning in less.warnings)


def test_as_many_samples_are_taken_as_fit() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    with tuned(inspection={"copied": 8, "small": 0, "precision": 1e-6}):
        room = look(model, data).subject._mib_of(20) + 1e-6
        found = look(model, data, memory_mib=room).subject.leverage
        assert found is not None
        assert found.directions.size(0) == 20
    with tuned(inspection={"copied": 32, "small": 0, "precision": 1e-6}):
        less = look(model, data, memory_mib=room)
        assert less.subject.leverage is None
        assert any("give memory_mib=" in warning for warning in less.warnings)


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_a_model_of_zeros_has_numbers_for_scores(name: str) -> None:
    data = graph(20)
    model = uw.models.build(name, data.num_features, data.num_classes, hidden=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = look(model, data)
    assert all(torch.isfinite(found.scores(kind)).all() for kind in ("nodes", "edges", "labels"))


def test_a_parameter_of_one_number_does_no_harm() -> None:
    data = graph()

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = uw.models.GCN(data.num_features, int(data.num_classes), hidden=3, dropout=0.0)
            self.scale = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.scale * self.inner(x, edge_index)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = Scaled().to(data.x.dtype)
    adam = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(20):
        adam.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        adam.step()
    found = uw.inspect(model, data, weight_decay=1e-2, hops=2).nodes
    assert torch.isfinite(found).all()
