"""What a model remembers beside its parameters: running statistics, and tensors with a row for every node."""

import copy
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, DiffGroupNorm, GCNConv, InstanceNorm, SAGEConv

import unweave as uw
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.running_stats import carry, refresh
from unweave.testing import small_graph

# --- running statistics -------------------------------------------------------------------------------------------


class Sage(nn.Module):
    """GraphSAGE with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2 = SAGEConv(8, 16), nn.BatchNorm1d(16), SAGEConv(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.conv1(x, edge_index)))
        return self.conv2(F.dropout(hidden, 0.3, training=self.training), edge_index)  # type: ignore[no-any-return]


@cache
def hubs() -> Data:
    """A graph in which a node's features depend on its degree, so that sampled neighbours are not like all of them."""
    data = small_graph(nodes=200)
    generator = torch.Generator().manual_seed(1)
    crowd = torch.randint(200, (2, 4000), generator=generator)
    crowd[0] %= 20  # twenty nodes are everybody's neighbours
    crowd = crowd[:, crowd[0] != crowd[1]]
    data.edge_index = torch.unique(torch.cat([data.edge_index, crowd, crowd.flip(0)], dim=1), dim=1)
    data.x[:20] += 6
    return data


def batch(data: Data, roots: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The features and edges of two hops around some nodes, three neighbours each: a sampler in plain torch."""
    (source, target), nodes, kept = data.edge_index, roots, []
    for _ in range(2):
        edges = torch.isin(target, nodes).nonzero().flatten()
        edges = edges[torch.randperm(edges.numel(), generator=generator)]
        edges = edges[target[edges].argsort(stable=True)]
        rank = torch.arange(edges.numel()) - torch.searchsorted(target[edges], target[edges])
        kept.append(edges[rank < 3])
        nodes = torch.cat([nodes, torch.unique(source[kept[-1]][~torch.isin(source[kept[-1]], nodes)])])
    places = torch.full((data.num_nodes,), -1)
    places[nodes] = torch.arange(nodes.numel())
    return data.x[nodes], places[data.edge_index[:, torch.unique(torch.cat(kept))]]


@cache
def sampled() -> nn.Module:
    data, model, generator = hubs(), Sage(), torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for module in (model.conv1, model.conv2):
            module.reset_parameters()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(15):
            for roots in data.train_mask.nonzero().flatten().split(16):
                optimiser.zero_grad()
                outputs = model.train()(*batch(data, roots, generator))[: roots.numel()]
                F.cross_entropy(outputs, data.y[roots]).backward()
                optimiser.step()
    return model.eval()


def accuracy(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return float((model(data.x, data.edge_index).argmax(dim=-1) == data.y).double().mean())


def share(after: Tensor, before: Tensor) -> float:
    """How far outputs moved, as a share of their variance."""
    return float((after - before).square().sum() / (before - before.mean(dim=0)).square().sum())


def test_a_model_trained_on_sampled_batches_keeps_what_it_was_trained_with() -> None:
    """Taken anew full-batch its statistics would be others; what the request changes in them is carried over."""
    data, model = hubs(), sampled()
    with torch.no_grad():
        before, anew = call(model, data), copy.deepcopy(model)
        refresh(anew, data, call)
        assert share(call(anew, data), before) > 0.05, "the graph must be one where it matters"
    nodes = tuple(data.train_mask.nonzero().flatten().tolist()[5:8])
    done = uw.unlearn(model, data, uw.Request(nodes=nodes), weight_decay=5e-4)
    assert not torch.equal(done.model.norm.running_mean, model.norm.running_mean)
    assert torch.equal(done.model.norm.num_batches_tracked, model.norm.num_batches_tracked)
    assert accuracy(done.model, data) >= accuracy(model, data) - 0.01
    with torch.no_grad():
        assert share(call(done.model, data), before) < 0.01
    assert [(t["where"], t["state"]) for t in done.receipt.remembers] == [("norm", "rewritten")]
    assert "running statistics moved for every node" in str(done.receipt)


@pytest.mark.parametrize("epochs", [5, 60])
def test_statistics_move_as_those_of_a_retraining_would(epochs: int) -> None:
    """A moving average that lags behind, as after five epochs, is no reason against it."""
    data, model = hubs(), Sage()
    recipe = uw.train(model, data, epochs=epochs, weight_decay=5e-4).recipe
    many = uw.draw("features:0.3", data)
    told = {
        method: uw.unlearn(model, data, many, method, weight_decay=5e-4, recipe=recipe).model.norm.running_var
        for method in ("gif", "retrain")
    }
    kept = (model.norm.running_var - told["retrain"]).norm()
    assert (told["gif"] - told["retrain"]).norm() < 0.7 * kept


@pytest.mark.parametrize("forget", ["nodes:0.1", "edges:0.1", "features:0.2"])
def test_a_step_is_solved_for_the_statistics_that_are_returned(forget: str) -> None:
    """With those of the old graph it ended at a minimum of another model, and the receipt told of a gradient left."""
    data = small_graph()
    data.x, model = data.x.double(), Sage().double()
    with tuned(polish={"evaluations": 300}):
        run = uw.train(model, data, epochs=30, weight_decay=3e-2, forgettable=True, examine=False)
    after = run.forget(uw.draw(forget, data))
    assert not torch.equal(after.model.norm.running_mean, run.model.norm.running_mean)
    decay, meter = decay_vector(after.model, 3e-2), Meter(torch.device("cpu"))
    there = Objective(after.model, after.data, cross_entropy, decay, call, meter)
    value, gradient = there.evaluate(flatten(after.model))
    receipt = after.receipts[-1]
    assert receipt.objective["remaining_after"] == pytest.approx(value)
    assert value < receipt.objective["remaining_before"]
    assert receipt.certificate is not None
    assert float(gradient.norm()) == pytest.approx(receipt.certificate["gradient_norm"], rel=1e-2)
    begun, ended = (float(norm) for norm in receipt.details["gradient"].split(" → "))
    assert ended < begun / 2
    assert not receipt.warnings


class Foreign(nn.Module):
    """A norm of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.running_mean.mul_(0.9).add_(0.1 * x.detach().mean(dim=0))
        return x - (x.mean(dim=0) if self.training else self.running_mean)


@pytest.mark.parametrize(
    ("norm", "state"),
    [
        (lambda: BatchNorm(16), "rewritten"),
        (lambda: InstanceNorm(16, track_running_stats=True), "rewritten"),
        (lambda: DiffGroupNorm(16, 2), "rewritten"),
        (Foreign, "kept"),
    ],
)
def test_every_layer_with_statistics_is_carried_over_or_named(norm: Callable[[], nn.Module], state: str) -> None:
    data, model = small_graph(), Sage()
    model.norm = norm()
    run = uw.train(model, data, epochs=10, weight_decay=1e-2)
    after = run.forget(uw.draw("nodes:0.1", data))
    found = [t["state"] for t in after.receipts[-1].remembers if t["what"] == "running statistics"]
    assert found == [state]
    was, now = (dict(each.model.named_buffers()) for each in (run, after))
    same = [torch.equal(was[name], now[name]) for name in was if name.endswith("running_mean")]
    assert same == [state == "kept"]
    assert ("running statistics in it may still hold" in after.receipts[-1].verdict) == (state == "kept")


def test_variances_never_go_below_zero() -> None:
    data, model = hubs(), Sage()
    model.norm.running_var.fill_(1e-3)  # far below what any pass gives
    less = copy.deepcopy(data)
    less.x = 0.5 * data.x
    carry(model, copy.deepcopy(model), data, less, call)
    assert bool((model.norm.running_var >= 0).all())
    assert float(model.norm.running_var.max()) < 1e-3


# --- rows of nodes ------------------------------------------------------------------------------------------------


class Remembering(nn.Module):
    """A GCN that mixes what it said of each node before into what it says."""

    def __init__(self, nodes: int, *, how: str) -> None:
        super().__init__()
        self.conv, self.how = GCNConv(8, 3), how
        if how == "attribute":
            self.said = torch.randn(nodes, 3)
        else:
            self.register_buffer("said", torch.randn(nodes, 3), persistent=how == "persistent")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index) + 0.1 * self.said  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["persistent", "transient", "attribute"])
@pytest.mark.parametrize("method", ["gif", "retrain"])
def test_what_keeps_a_row_for_a_deleted_node_is_named(how: str, method: str) -> None:
    """Also after retraining, which draws parameters anew and nothing else."""
    data, model = small_graph(), Remembering(60, how=how)
    recipe = uw.train(model, data, epochs=5).recipe
    node = int(data.train_mask.nonzero()[0])
    done = uw.unlearn(model, data, uw.Request(nodes=[node]), method, weight_decay=1e-4, recipe=recipe)
    (found,) = done.receipt.remembers
    assert (found["where"], found["state"]) == ("said", "kept")
    assert "keeps that of a deleted node as it was" in found["why"]
    assert ("a tensor" if how == "attribute" else "a buffer") in done.receipt.verdict
    edges = uw.unlearn(model, data, uw.draw("edges:0.1", data), method, weight_decay=1e-4, recipe=recipe)
    assert "may come from what was removed" in edges.receipt.remembers[0]["why"]


class Noting(nn.Module):
    """A GCN that leaves its hidden layer on itself, with its history."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.seen = GCNConv(8, 4), GCNConv(4, 3), {"hidden": torch.zeros(1)}

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.seen["hidden"] = self.conv1(x, edge_index)
        return self.conv2(torch.relu(self.seen["hidden"]), edge_index)  # type: ignore[no-any-return]


def test_a_tensor_with_a_history_on_the_model_does_no_harm_and_is_named() -> None:
    data, model = small_graph(), Noting()
    recipe = uw.train(model, data, epochs=5).recipe
    model(data.x, data.edge_index)
    assert not model.seen["hidden"].is_leaf, "copy.deepcopy refuses it"
    for method in ("gif", "retrain"):
        done = uw.unlearn(model, data, uw.draw("edges:0.1", data), method, weight_decay=1e-4, recipe=recipe)
        assert [t["where"] for t in done.receipt.remembers] == ["seen.hidden"]
        copy.deepcopy(done.model)


def test_a_model_that_cannot_be_copied_says_so() -> None:
    class Locked(uw.models.GCN):
        def __deepcopy__(self, memo: object) -> "Locked":
            raise ValueError("one of a kind")

    with pytest.raises(uw.ModelError, match=r"Locked cannot be copied \(ValueError: one of a kind\)"):
        uw.unlearn(Locked(8, 3), small_graph(), uw.Request(nodes=[1]), weight_decay=0.0)
