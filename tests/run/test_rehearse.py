"""A rehearsed deletion tells a model that can forget from one that cannot."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import Linear

import unweave as uw
from unweave.objective.parameters import flatten

pytestmark = pytest.mark.usefixtures("part")
EMBEDDED = 1300


@pytest.fixture(scope="module")
def data() -> Data:
    return uw.load("demo")


def test_a_model_at_a_minimum_can_forget_and_an_ordinary_one_cannot(data: Data) -> None:
    model = uw.models.GCN(data.num_features, data.num_classes)
    run = uw.train(model, data, forgettable=True, weight_decay=1e-2)
    before = flatten(run.model).clone()
    found = run.rehearse("edges:0.05")
    assert found.gap_closed is not None
    assert found.other_seed is not None
    assert min(found.gap_closed, found.other_seed) > 0.9
    assert "can forget" in found.verdict
    assert torch.equal(flatten(run.model), before)
    ordinary = uw.train(uw.models.GCN(data.num_features, data.num_classes), data).rehearse("edges:0.05")
    assert ordinary.gap_closed is not None
    assert ordinary.other_seed is not None
    assert ordinary.gap_closed < 0.9
    assert ordinary.other_seed < found.other_seed
    assert "forgettable=True" in ordinary.verdict


@pytest.mark.parametrize(
    ("closed", "says"), [(None, "larger"), (0.95, "can forget"), (0.6, "in part"), (-3.0, "cannot forget")]
)
def test_the_verdict_says_what_to_do(closed: float | None, says: str) -> None:
    assert says in uw.Rehearsal("edges:0.05", closed, None, 0.1, 1.0).verdict


def test_a_bad_seed_is_refused(data: Data) -> None:
    run = uw.train(uw.models.SGC(data.num_features, data.num_classes), data, epochs=3)
    with pytest.raises(uw.DataError, match="seed"):
        run.rehearse(seed=-1)


def test_what_is_no_class_probability_is_refused(data: Data) -> None:
    regression = data.clone()
    regression.y = data.y.float()[:, None]
    run = uw.train(uw.models.SGC(data.num_features, 1), regression, epochs=3, loss=uw.losses.squared_error)
    with pytest.raises(uw.ModelError, match="class probabilities"):
        run.rehearse()


def test_a_model_trained_by_ones_own_loop(data: Data) -> None:
    def trainer(model: torch.nn.Module, graph: Data) -> None:
        for module in model.modules():
            if isinstance(module, Linear):
                module.reset_parameters()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-2)
        for _ in range(300):
            optimiser.zero_grad()
            out = model(graph.x, graph.edge_index)[graph.train_mask]
            torch.nn.functional.cross_entropy(out, graph.y[graph.train_mask]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    model = uw.models.SGC(data.num_features, data.num_classes)
    trainer(model, data)
    run = uw.Run(model, data, weight_decay=1e-2)
    found = run.rehearse("edges:0.05", trainer=trainer)
    assert found.gap_closed is not None
    assert found.gap_closed > 0.9
