"""The facade: bad input, what is promised about the result, and properties that hold for any graph."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

import unweave as uw
from tests.cases import DECAY, LAYERS, LOSSES, Case, Net
from unweave.objective import flatten
from unweave.testing import small_graph


def trained(data: Data | None = None, **options: Any) -> tuple[nn.Module, Data]:
    data = small_graph() if data is None else data
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=4, **options)
    uw.train(model, data, seed=1, epochs=30)
    return model, data


def forget(model: nn.Module, data: Data, request: uw.Request | None = None, **options: Any) -> uw.Unlearned:
    return uw.unlearn(model, data, request or uw.draw("edges:0.1", data), weight_decay=1e-4, **options)


# --- bad data -----------------------------------------------------------------------------------------------------


def put(key: str, value: Any) -> Callable[[Data], None]:
    return lambda data: data.__setitem__(key, value(data) if callable(value) else value)


def with_nan(key: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data[key] = data[key].clone()
        data[key][7] = float("nan")

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_nan("x"), "data.x is not finite, first at row 7"),
        (put("edge_weight", lambda d: torch.full((d.num_edges,), float("inf"))), "data.edge_weight is not finite"),
        (put("edge_weight", torch.ones(3)), "data.edge_weight has 3 entries"),
        (put("val_mask", lambda d: d.train_mask.clone()), "data.train_mask and data.val_mask overlap in 40 nodes"),
        (put("test_mask", lambda d: d.val_mask.clone()), "data.val_mask and data.test_mask overlap"),
        (put("train_mask", torch.zeros(60, dtype=torch.bool)), "selects no node"),
        (put("train_mask", torch.zeros(60, 10, dtype=torch.bool)), "choose one split"),
        (put("train_mask", torch.arange(60)), "must be a boolean vector"),
        (put("y", lambda d: d.y + 1), "training labels run from 1 to 3, but the model has 3 outputs"),
        (put("y", lambda d: d.y - 1), "training labels run from -1"),
        (put("y", lambda d: d.y.float()), "cross-entropy needs data.y as int64"),
        (put("y", lambda d: d.y[:-1]), "59 rows for 60 nodes"),
        (put("y", None), "no tensor data.y"),
        (put("x", lambda d: d.x.long()), "dense floating-point matrix"),
        (put("x", lambda d: d.x.to_sparse()), "dense floating-point matrix"),
        (put("edge_index", lambda d: d.edge_index.int()), "must be int64"),
        (put("edge_index", lambda d: d.edge_index + 5), "names nodes outside"),
        (put("edge_index", None), "no tensor data.edge_index"),
    ],
)
def test_bad_graphs_are_refused(change: Callable[[Data], None], says: str) -> None:
    model, data = trained()
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    change(data)
    with pytest.raises(uw.DataError, match=says):
        forget(model, data, request)


# --- bad models ---------------------------------------------------------------------------------------------------


class Odd(nn.Module):
    """A GCN whose output is spoiled in some way."""

    def __init__(self, spoil: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)
        self.spoil = spoil

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.spoil(self.conv(x, edge_index))


def frozen() -> nn.Module:
    model = uw.models.GCN(8, 3)
    model.conv1.bias.requires_grad_(False)
    return model


def broken() -> nn.Module:
    model = uw.models.GCN(8, 3)
    nn.init.constant_(model.conv2.bias, float("nan"))
    return model


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Odd(lambda h: h.mean(dim=0)), r"one row for each of 60 nodes, got \(3,\)"),
        (lambda: Odd(lambda h: (h, h)), "got tuple"),
        (lambda: Odd(lambda h: h[:, 0]), r"must give \[nodes, classes\]"),
        (lambda: Odd(lambda h: h * float("nan")), "outputs are not finite"),
        (lambda: Odd(lambda h: F.dropout(h, 0.5)), "changes between two identical calls"),
        (lambda: Odd(lambda h: h + torch.rand(())), "changes between two identical calls"),
        (lambda: Net(GCNConv(8, 3, cached=True)), "has cached=True"),
        (frozen, "'conv1.bias' has requires_grad=False"),
        (broken, "'conv2.bias' is not finite"),
        (lambda: Odd(lambda h: h).double(), "the model is torch.float64 on cpu and data.x is torch.float32"),
        (nn.Identity, "has no parameters"),
        (lambda: Net(SAGEConv(-1, 3)), "not initialised yet"),
        (lambda: Net(GCNConv(8, 3).double(), GCNConv(3, 3)), "must share one type"),
    ],
)
def test_bad_models_are_refused(make: Callable[[], nn.Module], says: str) -> None:
    data = small_graph()
    with pytest.raises(uw.ModelError, match=says):
        forget(make(), data)


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
    with pytest.raises(uw.MethodError):
        forget(model, data, solver="neumann")
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
    with pytest.raises(uw.ModelError, match="hops must be at least 0"):
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


def test_running_statistics_are_named_when_they_still_remember() -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm, self.conv2 = GCNConv(8, 4), nn.BatchNorm1d(4), GCNConv(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(F.relu(self.norm(self.conv1(x, edge_index))), edge_index)  # type: ignore[no-any-return]

    data, model = small_graph(), Normalised()
    uw.train(model, data, epochs=10)
    assert any("norm.running_mean" in w for w in forget(model, data).receipt.warnings)
    retrained = forget(model, data, method="retrain", epochs=10)
    assert not any("running_mean" in w for w in retrained.receipt.warnings)
    assert not torch.equal(retrained.model.norm.running_mean, model.norm.running_mean)


def test_a_step_that_makes_things_worse_says_so() -> None:
    model, data = trained()
    done = forget(model, data, uw.draw("nodes:0.5", data), method="if", damping=1e-6, iterations=2000, tolerance=1e-3)
    assert any("raised the local objective" in w for w in done.receipt.warnings)
    assert "worse than before" in str(done.receipt)


def test_retrain_is_training_on_the_remaining_graph() -> None:
    model, data = trained()
    done = forget(model, data, method="retrain", seed=1, epochs=30)
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
    with pytest.raises(uw.ModelError, match="left the model as it was"):
        forget(model, data, method="retrain", trainer=lambda module, graph: None)


def test_finetune_for_a_time() -> None:
    model, data = trained()
    done = forget(model, data, method="finetune", seconds=0.05)
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
    assert done.receipt.objective["loss"] == LOSSES[loss].__name__


# --- properties ---------------------------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn) -> tuple[Data, uw.Request]:
    """Random graphs, directed or not, with self-loops, parallel edges and isolated nodes, and a request that fits."""
    size = draw(st.integers(8, 16))
    pairs = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=4, max_size=40))
    index = torch.tensor(pairs).t().contiguous()
    if draw(st.booleans()):
        index = torch.cat([index, index.flip(0)], dim=1)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    train = torch.ones(size, dtype=torch.bool)
    for node in draw(st.sets(st.integers(2, size - 1), max_size=size // 3)):
        train[node] = False
    data = Data(
        x=torch.randn(size, 3, generator=generator, dtype=torch.float64),
        edge_index=index,
        y=torch.randint(2, (size,), generator=generator),
        train_mask=train,
        test_mask=~train,
    )
    data.y[:2] = torch.tensor([0, 1])
    edge = draw(st.sampled_from(pairs))
    kinds = draw(st.sets(st.sampled_from(["nodes", "edges", "features", "labels"]), min_size=1))
    others = [n for n in range(2, size) if train[n]] or [2]
    return data, uw.Request(
        nodes=[draw(st.sampled_from(others))] if "nodes" in kinds else (),
        edges=[edge] if "edges" in kinds else (),
        features={draw(st.integers(0, size - 1)): "all"} if "features" in kinds else {},
        labels=[draw(st.sampled_from(others))] if "labels" in kinds else (),
    )


def attempt(model: nn.Module, data: Data, request: uw.Request) -> uw.Unlearned:
    return uw.unlearn(
        model, data, request, weight_decay=DECAY, damping=1.0, tolerance=1e-12, iterations=1000, allow_class_loss=True
    )


def network(layer: str) -> nn.Module:
    torch.manual_seed(3)
    return LAYERS[layer]().double().eval()


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(sorted(LAYERS)))
def test_region_equals_whole_graph_and_nothing_changes_outside(problem: tuple[Data, uw.Request], layer: str) -> None:
    data, request = problem
    model = network(layer)
    done = attempt(model, data, request)
    assert done.receipt.region["steps"] is not None, "the region must hold without being widened"
    whole = uw.unlearn(
        model, data, request, weight_decay=DECAY, damping=1.0, tolerance=1e-12, iterations=1000,
        allow_class_loss=True, hops=99,
    )  # fmt: skip
    torch.testing.assert_close(flatten(done.model), flatten(whole.model), rtol=1e-8, atol=1e-10)
    with torch.no_grad():
        moved = (model(data.x, data.edge_index) - model(done.data.x, done.data.edge_index)).abs().amax(dim=1) > 1e-9
    assert int(moved.sum()) <= done.receipt.region["nodes"]


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(sorted(LAYERS)), st.randoms(use_true_random=False))
def test_relabelling_nodes_relabels_the_result(problem: tuple[Data, uw.Request], layer: str, random: Any) -> None:
    data, request = problem
    order = list(range(data.num_nodes))
    random.shuffle(order)
    place = torch.tensor(order)
    renamed = Data(edge_index=place[data.edge_index])
    for key in ("x", "y", "train_mask", "test_mask"):
        renamed[key] = torch.empty_like(data[key])
        renamed[key][place] = data[key]
    moved = uw.Request(
        nodes=[order[n] for n in request.nodes],
        edges=[(order[u], order[v]) for u, v in request.edges],
        features={order[n]: c for n, c in request.features.items()},
        labels=[order[n] for n in request.labels],
    )
    model = network(layer)
    first, second = attempt(model, data, request), attempt(model, renamed, moved)
    torch.testing.assert_close(flatten(first.model), flatten(second.model), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(first.data.x, second.data.x[place])
    assert first.receipt.region["sizes"] == second.receipt.region["sizes"]


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(["gif", "if", "finetune", "retrain"]))
def test_test_labels_never_matter(problem: tuple[Data, uw.Request], method: str) -> None:
    data, request = problem
    changed = data.clone()
    changed.y[~changed.train_mask] = 1 - changed.y[~changed.train_mask]
    options = {"epochs": 2} if method in ("finetune", "retrain") else {}
    model = network("gcn")
    first, second = (
        uw.unlearn(model, graph, request, method, weight_decay=DECAY, allow_class_loss=True, **options)
        for graph in (data, changed)
    )
    assert torch.equal(flatten(first.model), flatten(second.model))
    assert first.receipt.parameters == second.receipt.parameters
    assert first.receipt.objective == second.receipt.objective
