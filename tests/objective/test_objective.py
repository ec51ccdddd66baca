"""The objective: weight decay by name, calls with and without edge weights, per-node losses."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.cases import Case
from unweave._core.cost import Meter
from unweave.models import GAT, GCN
from unweave.objective.decay import decay_vector
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten, load_flat
from unweave.testing import small_graph


def test_weight_decay_by_module_and_by_parameter() -> None:
    model = GCN(8, 3, hidden=4)
    load_flat(model, decay_vector(model, {"conv1": 0.5, "conv1.bias": 0.0}))
    values = {name: set(parameter.flatten().tolist()) for name, parameter in model.named_parameters()}
    assert values == {
        "conv1.lin.weight": {0.5},
        "conv1.bias": {0.0},
        "conv2.lin.weight": {0.0},
        "conv2.bias": {0.0},
    }
    assert set(decay_vector(model, 0.25).tolist()) == {0.25}


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), {"conv3": 1.0}])
def test_bad_weight_decay_is_refused(bad: object) -> None:
    with pytest.raises(uw.ModelError):
        decay_vector(GCN(8, 3), bad)  # type: ignore[arg-type]


def test_flatten_and_load_are_inverse() -> None:
    a, b = GCN(8, 3), GCN(8, 3)
    load_flat(b, flatten(a))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_edge_weights_reach_the_model_or_are_refused() -> None:
    data = small_graph()
    model = GCN(8, 3).eval()
    plain = call(model, data)
    data.edge_weight = torch.rand(data.num_edges)
    assert not torch.allclose(call(model, data), plain)
    with pytest.raises(uw.ModelError, match="takes none"):
        call(GAT(8, 3), data)


def test_the_objective_is_the_trained_one_times_the_number_of_nodes() -> None:
    """Adam's weight decay on a mean loss is μ = w·|D| on the sum: gradients agree."""
    data = small_graph()
    model = GCN(8, 3, dropout=0.0)
    loss = torch.nn.functional.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
    (loss + 0.01 / 2 * sum(p.square().sum() for p in model.parameters())).backward()
    trained = torch.cat([p.grad.reshape(-1) for p in model.parameters()])  # type: ignore[union-attr]
    objective = Objective(
        model, data, uw.losses.cross_entropy, decay_vector(model, 0.01), call, Meter(torch.device("cpu"))
    )
    torch.testing.assert_close(objective.at(flatten(model)).gradient() / int(data.train_mask.sum()), trained)


def test_a_loss_that_reduces_is_refused() -> None:
    built = Case("gcn", "cross-entropy", "edges", False).build()
    built.before.loss = uw.Loss(torch.nn.functional.cross_entropy)
    with pytest.raises(uw.ModelError, match="one number for each"):
        built.before.at(built.theta)


def test_tied_parameters_move_together() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GCNConv(3, 3)
            self.second = GCNConv(3, 3)
            self.second.lin.weight = self.first.lin.weight

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(torch.tanh(self.first(x, edge_index)), edge_index)  # type: ignore[no-any-return]

    data = small_graph(features=3)
    model = Tied()
    uw.train(model, data, epochs=20)
    done = uw.unlearn(model, data, uw.draw("edges:0.1", data), weight_decay=1e-4)
    assert done.model.first.lin.weight is done.model.second.lin.weight
    assert done.receipt.parameters["count"] == 9 + 3 + 3
    twice, decay = 2 * flatten(model), decay_vector(model, 1e-4)
    there = Objective(model, data, uw.losses.cross_entropy, decay, call, Meter(torch.device("cpu")))
    found = there.outputs(twice)
    load_flat(model, twice)
    torch.testing.assert_close(found, there.predict(model))
