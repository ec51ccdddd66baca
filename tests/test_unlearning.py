"""The facade: what it promises about the result, and what it refuses."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GraphNorm, MeanSubtractionNorm, MessagePassing, PairNorm

import unweave as uw
from tests.cases import DECAY, LOSSES, Case, Net
from unweave.methods import Method, Outcome, Problem
from unweave.objective.parameters import flatten
from unweave.testing import small_graph


def trained(data: Data | None = None, **options: Any) -> tuple[nn.Module, Data]:
    data = small_graph() if data is None else data
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=4, **options)
    uw.train(model, data, seed=1, epochs=30)
    return model, data


def forget(model: nn.Module, data: Data, request: uw.Request | None = None, **options: Any) -> uw.Unlearned:
    return uw.unlearn(model, data, request or uw.draw("edges:0.1", data), weight_decay=1e-4, **options)


# --- requests that go too far -------------------------------------------------------------------------------------


def test_the_last_training_node_of_a_class_goes_only_when_asked_for() -> None:
    model, data = trained()
    members = (data.train_mask & (data.y == 1)).nonzero().flatten().tolist()
    for request in (uw.Request(nodes=members), uw.Request(labels=members)):
        with pytest.raises(uw.ClassLossError, match="last training node of class 1"):
            forget(model, data, request)
        done = forget(model, data, request, allow_class_loss=True)
        assert torch.isfinite(flatten(done.model)).all()


def test_every_training_node_cannot_go() -> None:
    model, data = trained()
    everyone = uw.Request(nodes=data.train_mask.nonzero().flatten().tolist())
    with pytest.raises(uw.RequestError, match="every training node"):
        forget(model, data, everyone, allow_class_loss=True)


# --- what is promised ---------------------------------------------------------------------------------------------


def test_nothing_is_changed_when_something_fails() -> None:
    model, data = trained()
    state, graph = copy.deepcopy(model.state_dict()), copy.deepcopy(data.to_dict())
    model.train()
    with pytest.raises(uw.DivergenceError):
        forget(model, data, method="gif-published", scale=1e-3)
    with pytest.raises(uw.RequestError):
        forget(model, data, uw.Request(nodes=[999]))
    assert model.training
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(value.equal(graph[key]) for key, value in data.to_dict().items() if isinstance(value, Tensor))


def test_a_module_that_mixes_nodes_gets_the_whole_graph_and_the_right_answer() -> None:
    """A layer the hop count does not see: the mean of all nodes. The region is widened, and v is still exact."""

    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(3, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv(x, edge_index)
            return h - h.mean(dim=0)

    data = Case("gcn", "cross-entropy", "edges", False).graph()
    torch.manual_seed(0)
    model = Mixing().double()
    request = Case("gcn", "cross-entropy", "edges", False).forget(data)
    options: dict[str, Any] = {"damping": 1.0, "tolerance": 1e-12}
    done = uw.unlearn(model, data, request, weight_decay=DECAY, **options)
    assert done.receipt.region["steps"] is None
    assert any("whole graph" in w for w in done.receipt.warnings)
    assert done.receipt.region["nodes"] == data.num_nodes
    with pytest.raises(uw.ModelError, match="outside the 1 hops given"):
        uw.unlearn(model, data, request, weight_decay=DECAY, hops=1, **options)


def test_given_hops_are_used_and_named() -> None:
    model, data = trained()
    usual, given_ = forget(model, data), forget(model, data, hops=2)
    assert given_.receipt.region["source"] == "2 hops given"
    torch.testing.assert_close(flatten(usual.model), flatten(given_.model))
    with pytest.raises(uw.ModelError, match="hops must be a whole number of at least 0"):
        forget(model, data, hops=-1)


def test_another_way_to_call_the_model() -> None:
    class TakesData(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, data: Data) -> dict[str, Tensor]:
            return {"logits": self.net(data.x, data.edge_index)}

    model, data = trained()
    usual = forget(model, data)
    other = forget(TakesData(model), data, forward=lambda module, graph: module(graph)["logits"])
    assert torch.equal(flatten(usual.model), flatten(other.model))


class Normalised(nn.Module):
    """A GCN with BatchNorm, whose running statistics remember the data they were taken on."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2 = GCNConv(8, 4), nn.BatchNorm1d(4), GCNConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(self.norm(self.conv1(x, edge_index)), 0.5, training=self.training)
        return self.conv2(F.relu(h), edge_index)  # type: ignore[no-any-return]


def test_running_statistics_are_carried_over_to_the_remaining_graph() -> None:
    data, model = small_graph(), Normalised()
    uw.train(model, data, epochs=60)
    done = forget(model, data)
    with torch.no_grad():
        before, after = (model.conv1(graph.x, graph.edge_index) for graph in (data, done.data))
    moved = after.mean(dim=0) - before.mean(dim=0)
    torch.testing.assert_close(done.model.norm.running_mean, model.norm.running_mean + moved)
    assert not torch.equal(done.model.norm.running_var, model.norm.running_var)
    assert done.model.norm.momentum == 0.1
    assert not done.model.training
    assert [(t["where"], t["state"]) for t in done.receipt.remembers] == [("norm", "rewritten")]
    kept = forget(model, data, method="none")
    assert torch.equal(kept.model.norm.running_mean, model.norm.running_mean)
    assert "Remembers  running statistics (norm): they still come from the old graph" in str(kept.receipt)
    retrained = forget(model, data, method="retrain", epochs=10, lr=0.01)
    assert "Rewritten  running statistics (norm): training began anew" in str(retrained.receipt)
    tuned = forget(model, data, method="finetune", epochs=1, lr=0.01)
    assert "Remembers  running statistics (norm): they went on from" in str(tuned.receipt)


@pytest.mark.parametrize("norm", [GraphNorm, PairNorm, MeanSubtractionNorm])
def test_v_is_exact_for_layers_that_mix_all_nodes_faintly(norm: type[nn.Module]) -> None:
    """In float32, on many nodes, each prediction moves too little to be seen; summed up it is as large as v itself."""

    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(600, 8), GCNConv(8, 6)
            self.norm = norm(8) if norm is GraphNorm else norm()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(F.relu(self.norm(self.conv1(x, edge_index))), edge_index)  # type: ignore[no-any-return]

    data = uw.load("demo")
    torch.manual_seed(0)
    model = Mixing()
    uw.train(model, data, epochs=20)
    request = uw.Request(edges=[tuple(data.edge_index[:, 100].tolist())])
    seen: list[Tensor] = []

    class Look(Method):
        name = "look"

        def forget(self, problem: Problem) -> Outcome:
            seen.append(problem.forgotten_gradient)
            return Outcome(problem.theta)

    done = uw.unlearn(model, data, request, Look(), weight_decay=0.0)
    exact = []
    for graph in (data, done.data):
        precise, double = copy.deepcopy(model).double(), graph.clone()
        double.x = double.x.double()
        out = precise(double.x, double.edge_index)[double.train_mask]
        loss = F.cross_entropy(out, double.y[double.train_mask], reduction="sum")
        exact.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(precise.parameters()))]))
    v = exact[0] - exact[1]
    assert float((seen[0].double() - v).norm() / v.norm()) < 0.01


def test_a_step_that_makes_things_worse_says_so() -> None:
    model, data = trained()
    done = forget(model, data, uw.draw("nodes:0.5", data), method="if", damping=1e-6, iterations=2000, tolerance=1e-3)
    assert any("did not solve its own problem" in w for w in done.receipt.warnings)
    assert "larger than before" in str(done.receipt)


def test_retrain_is_training_on_the_remaining_graph() -> None:
    model, data = trained()
    done = forget(model, data, method="retrain", seed=1, epochs=30, lr=0.01)
    fresh = uw.models.GCN(8, 3, hidden=4)
    uw.train(fresh, done.data, seed=1, epochs=30)
    assert torch.equal(flatten(done.model), flatten(fresh))


def test_retrain_by_a_trainer_of_ones_own() -> None:
    model, data = trained()

    def mine(module: nn.Module, graph: Data) -> None:
        assert graph.num_edges < data.num_edges
        uw.train(module, graph, seed=7, epochs=3)

    done = forget(model, data, method="retrain", trainer=mine)
    assert done.receipt.details["trainer"].endswith("mine")

    def only_a_bias(module: nn.Module, graph: Data) -> None:
        nn.init.zeros_(module.conv1.bias)

    for lazy in (lambda module, graph: None, only_a_bias):
        with pytest.raises(uw.ModelError, match="must draw them anew"):
            forget(model, data, method="retrain", trainer=lazy)


def test_a_layer_that_inherits_an_empty_reset_is_not_taken_for_retrained() -> None:
    class Mine(MessagePassing):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(8, 3))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x @ self.weight)

    data = small_graph()
    model = Net(Mine())
    with pytest.raises(uw.ModelError, match=r"'layers.0.weight' was not drawn anew"):
        forget(model, data, method="retrain", recipe=uw.Recipe())
    with pytest.raises(uw.ModelError):
        uw.train(model, data)
    assert torch.isfinite(flatten(model)).all(), "a refused training leaves the model as it was"


def test_the_recipe_is_followed() -> None:
    model, data = trained()
    recipe = uw.Recipe(seed=1, epochs=30)
    by_recipe = forget(model, data, method="retrain", recipe=recipe)
    fresh = uw.models.GCN(8, 3, hidden=4)
    uw.train(fresh, by_recipe.data, seed=1, epochs=30)
    assert torch.equal(flatten(by_recipe.model), flatten(fresh))
    assert not by_recipe.receipt.warnings
    with pytest.raises(uw.ModelError, match="not that of the recipe"):
        uw.unlearn(model, data, uw.draw("edges:0.1", data), weight_decay=0.5, recipe=recipe)


def test_the_change_of_the_local_objective_is_exact() -> None:
    """Q(θ̂) − Q(θ0) from scratch in float64, also for a step so bold that the slopes at its ends would mislead."""
    data = uw.load("demo")
    data.x = data.x.double()
    model = uw.models.GCN(data.num_features, data.num_classes).double()
    uw.train(model, data, epochs=60)
    for damping in (0.3, 5.0):
        done = forget(model, data, uw.draw("edges:0.05", data), damping=damping)

        def objective(module: nn.Module, graph: Data) -> Tensor:
            mask = graph.train_mask
            loss = F.cross_entropy(module.eval()(graph.x, graph.edge_index)[mask], graph.y[mask], reduction="sum")
            return loss + 1e-4 * int(mask.sum()) / 2 * sum(p.square().sum() for p in module.parameters())

        slope = torch.cat(
            [g.reshape(-1) for g in torch.autograd.grad(objective(model, data), list(model.parameters()))]
        )
        step = flatten(done.model) - flatten(model)
        change = float((objective(done.model, done.data) - objective(model, done.data)).detach() - slope @ step)
        assert done.receipt.objective["local_change"] == pytest.approx(change, rel=1e-6)
        if change > 0:
            assert any("did not solve its own problem" in w for w in done.receipt.warnings)


def test_it_works_where_gradients_are_switched_off() -> None:
    model, data = trained()
    with torch.no_grad():
        off = forget(model, data)
    assert torch.equal(flatten(off.model), flatten(forget(model, data).model))
    with torch.inference_mode(), pytest.raises(uw.ModelError, match="inference_mode"):
        forget(model, data)


def test_a_step_too_short_to_matter_is_refused() -> None:
    model, data = trained()
    with pytest.raises(uw.NoProgressError, match="nothing would be forgotten"):
        forget(model, data, damping=1e12)
    with pytest.raises(uw.MethodError, match="tolerance must be below 1"):
        forget(model, data, tolerance=10.0)


def test_a_forward_that_ignores_the_graph_it_is_given_is_refused() -> None:
    model, data = trained()
    with pytest.raises(uw.ModelError, match="does forward= use the graph"):
        forget(model, data, forward=lambda m, _: m(data.x, data.edge_index))
    with pytest.raises(uw.ModelError, match="does forward= use the model"):
        forget(copy.deepcopy(model), data, forward=lambda _, d: model(d.x, d.edge_index))


def test_arguments_of_the_wrong_kind_are_refused() -> None:
    model, data = trained()
    request = uw.draw("edges:0.1", data)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((model, data, {"nodes": [1]}), {"weight_decay": 0.0}),
        ((None, data, request), {"weight_decay": 0.0}),
        ((model, None, request), {"weight_decay": 0.0}),
        ((model, data, request), {"weight_decay": "much"}),
        ((model, data, request), {"weight_decay": 0.0, "hops": "2"}),
        ((model, data, request), {"weight_decay": 0.0, "damping": "abc"}),
        ((model, data, request), {"weight_decay": 0.0, "iterations": 2.5}),
        ((model, data, request, "retrain"), {"weight_decay": 0.0, "epochs": 0}),
        ((model, data, request, "retrain"), {"weight_decay": 0.0, "lr": -1.0}),
        ((model, data, request, "finetune"), {"weight_decay": 0.0, "lr": -1.0}),
    ]
    for arguments, named in wrong:
        with pytest.raises(uw.UnweaveError):
            uw.unlearn(*arguments, **named)
    uw.unlearn(model, data, request, weight_decay=np.float32(1e-4))


def test_labels_in_a_column_and_a_graph_without_edges() -> None:
    model, data = trained()
    column = data.clone()
    column.y = data.y.view(-1, 1)
    with pytest.raises(uw.DataError, match="int64 class numbers"):
        forget(model, column, uw.Request(nodes=[int(data.train_mask.nonzero()[0])]))
    bare = data.clone()
    bare.edge_index, bare.edge_weight = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
    done = forget(model, bare, uw.Request(nodes=[int(data.train_mask.nonzero()[0])]))
    assert done.data.num_edges == 0


def test_what_else_remembers_a_node_is_named() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.conv = nn.Embedding(60, 8), GCNConv(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x + self.rows.weight, edge_index)  # type: ignore[no-any-return]

    data, model = small_graph(), Table()
    uw.train(model, data, epochs=5)
    assert "Remembers  a parameter (rows.weight): it has a row for every node" in str(forget(model, data).receipt)
    assert not forget(model, data, method="retrain", epochs=5, lr=0.01).receipt.remembers


def test_edge_attributes_reach_the_model_or_are_refused() -> None:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GATConv(8, 3, edge_dim=2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
            return self.conv(x, edge_index, edge_attr)  # type: ignore[no-any-return]

    data = small_graph()
    data.edge_attr = torch.randn(data.num_edges, 2, generator=torch.Generator().manual_seed(0))
    model = Attentive()
    uw.train(model, data, epochs=5)
    explicit = forget(model, data, forward=lambda m, d: m(d.x, d.edge_index, d.edge_attr))
    assert torch.equal(flatten(forget(model, data).model), flatten(explicit.model))
    assert explicit.data.edge_attr.size(0) == explicit.data.num_edges
    with pytest.raises(uw.ModelError, match="edge_attr but GCN"):
        forget(uw.models.GCN(8, 3), data)


def test_finetune_for_a_time() -> None:
    model, data = trained()
    done = forget(model, data, method="finetune", seconds=0.05, lr=0.01)
    assert done.receipt.details["epochs"] >= 1
    with pytest.raises(uw.MethodError, match="not both"):
        forget(model, data, method="finetune", seconds=1.0, epochs=3)
    with pytest.raises(uw.MethodError, match="must be positive"):
        forget(model, data, method="finetune", epochs=0)


def test_requests_can_follow_each_other() -> None:
    model, data = trained()
    first = forget(model, data, uw.draw("nodes:0.1", data))
    second = forget(first.model, first.data, uw.draw("edges:0.1", first.data))
    assert second.data.num_edges < first.data.num_edges < data.num_edges
    assert second.receipt.parameters["digest_before"] == first.receipt.parameters["digest_after"]


@pytest.mark.parametrize("loss", LOSSES)
def test_other_losses_work_from_end_to_end(loss: str) -> None:
    case = Case("gcn", loss, "mixed", False)
    data, model = case.graph(), case.model()
    uw.train(model, data, loss=LOSSES[loss], epochs=20)
    done = uw.unlearn(model, data, case.forget(data), weight_decay=1e-4, loss=LOSSES[loss], damping=10.0)
    assert torch.isfinite(flatten(done.model)).all()
    assert done.receipt.residual_influence < 1
    assert done.receipt.objective["loss"] == str(LOSSES[loss])
