"""GraphEraser: exact for its partition, for every kind of request, and honest about the rest."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from unweave.methods import EraserBEKM, EraserBLPA
from unweave.methods.baselines.eraser import Eraser, _derived, _learn
from unweave.models import GCN, Shards
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten
from unweave.receipt.receipt import Receipt
from unweave.testing import small_graph

RECIPE = uw.Recipe(seed=3, epochs=12, lr=0.02, weight_decay=1e-3)
K = 4


def options(**given: Any) -> dict[str, Any]:
    return {"shards": K, "epochs": RECIPE.epochs, "lr": RECIPE.lr, **given}


def deploy(data: Data, method: Eraser | None = None, model: nn.Module | None = None, **named: Any) -> Shards:
    torch.manual_seed(0)
    return (method or EraserBLPA(**options())).setup(model or GCN(8, 3, hidden=4), data, RECIPE, **named)


def forget(model: nn.Module, data: Data, request: uw.Request, **named: Any) -> uw.Unlearned:
    named = {"method": EraserBLPA(**options()), "recipe": RECIPE, "allow_class_loss": True, **named}
    return uw.unlearn(model, data, request, weight_decay=RECIPE.weight_decay, **named)


def same(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(value, states[1][key]) for key, value in states[0].items())


def edges(data: Data, members: Tensor, *, within: bool) -> list[tuple[int, int]]:
    """Edges with both ends in one shard, or with ends in two of them."""
    u, v = data.edge_index
    held = (members[u] >= 0) & (members[v] >= 0) & (u < v)
    chosen = held & ((members[u] == members[v]) if within else (members[u] != members[v]))
    return [tuple(e) for e in data.edge_index[:, chosen].t().tolist()]


def one_request(kind: str, data: Data, members: Tensor) -> tuple[uw.Request, int]:
    """A request that touches one shard, and that shard."""
    node = int(data.train_mask.nonzero()[5])
    if kind == "edges":
        edge = edges(data, members, within=True)[0]
        return uw.Request(edges=[edge]), int(members[edge[0]])
    request = {
        "nodes": uw.Request(nodes=[node]),
        "features": uw.Request(features={node: (1, 2)}),
        "labels": uw.Request(labels=[node]),
    }[kind]
    return request, int(members[node])


@pytest.mark.parametrize("kind", ["nodes", "edges", "features", "labels"])
def test_touched_shards_are_trained_without_the_data_and_others_keep_every_bit(kind: str) -> None:
    data = small_graph()
    model = deploy(data)
    request, touched = one_request(kind, data, model.members)
    done = forget(model, data, request)
    assert not same(done.model.models[touched], model.models[touched])
    assert all(same(done.model.models[s], model.models[s]) for s in range(K) if s != touched)

    fresh = GCN(8, 3, hidden=4)
    ids = [n for n in range(60) if int(model.members[n]) == touched and n not in request.nodes]
    part = done.data.subgraph(torch.tensor(ids))
    seed = _derived(RECIPE.seed, touched)
    uw.train(fresh, part, seed=seed, epochs=RECIPE.epochs, lr=RECIPE.lr, weight_decay=RECIPE.weight_decay)
    assert torch.equal(flatten(done.model.models[touched]), flatten(fresh))
    assert done.receipt.details["shards_retrained"] == 1
    assert done.receipt.details["nodes_in_them"] == len(ids)


@dataclass(frozen=True)
class Given(Eraser):
    """A partition that is given."""

    name: ClassVar[str] = "given"
    given: tuple[int, ...] = ()

    def partition(self, whole: Objective, seed: int) -> NDArray[np.int64]:
        return np.array(self.given)[whole.nodes]


@pytest.mark.parametrize("aggregation", ["mean", "majority", "learned"])
def test_a_mixed_request_gives_what_a_new_setup_with_that_partition_gives(aggregation: Any) -> None:
    data = small_graph()
    method = EraserBLPA(**options(aggregation=aggregation))
    model = deploy(data, method)
    train_nodes = data.train_mask.nonzero().flatten().tolist()
    request = uw.Request(nodes=train_nodes[:3], edges=[tuple(data.edge_index[:, 9].tolist())], features={7: "all"})
    done = forget(model, data, request, method=method)
    again = deploy(done.data, Given(**options(aggregation=aggregation), given=tuple(model.members.tolist())))
    assert same(done.model, again)
    assert (done.model.members[train_nodes[:3]] == -1).all()


def test_an_edge_between_shards_retrains_nothing() -> None:
    data = small_graph()
    model = deploy(data)
    between = edges(data, model.members, within=False)[:3]
    test_node = int(data.test_mask.nonzero()[0])
    done = forget(model, data, uw.Request(edges=between, features={test_node: "all"}, labels=[test_node]))
    assert same(done.model, model)
    assert done.receipt.details["shards_retrained"] == done.receipt.details["nodes_in_them"] == 0
    assert done.receipt.step_norm == 0


def test_requests_can_follow_each_other() -> None:
    """Two requests end where both at once do."""
    data = small_graph()
    model = deploy(data)
    a, b = data.train_mask.nonzero().flatten().tolist()[:2]
    first = forget(model, data, uw.Request(nodes=[a]))
    second = forget(first.model, first.data, uw.Request(features={b: "all"}))
    assert same(second.model, forget(model, data, uw.Request(nodes=[a], features={b: "all"})).model)


@pytest.mark.parametrize("aggregation", ["mean", "majority", "learned"])
@pytest.mark.parametrize("kind", ["nodes", "labels"])
def test_a_shard_that_loses_all_its_labels_has_no_say(aggregation: Any, kind: str) -> None:
    data = small_graph()
    method = EraserBLPA(**options(aggregation=aggregation))
    model = deploy(data, method)
    everyone = (model.members == 2).nonzero().flatten().tolist()
    done = forget(model, data, uw.Request(**{kind: everyone}), method=method)
    assert float(done.model.weights[2]) == 0
    assert float(done.model.weights.sum()) == pytest.approx(1)
    # What is left there is drawn from the seed alone.
    other = deploy(small_graph(seed=5), Given(**options(), given=(0,) * 60))
    assert torch.equal(flatten(done.model.models[2]), flatten(other.models[2]))
    outputs = done.model(done.data.x, done.data.edge_index)
    with torch.no_grad():
        for parameter in done.model.models[2].parameters():
            parameter.add_(5.0)
    assert torch.equal(outputs, done.model(done.data.x, done.data.edge_index))


def test_learned_weights_are_the_best_there_are() -> None:
    """Never worse than the mean in cross-entropy, and against a fine grid in the plane as good as any."""
    generator = torch.Generator().manual_seed(0)
    for sharpness in (0.3, 3.0, 300.0):
        log_p = F.logsigmoid(sharpness * torch.randn(3, 50, generator=generator, dtype=torch.float64) - 1)
        found = _learn(log_p, torch.full((3,), 1 / 3, dtype=torch.float64))

        def loss(w: Tensor, log_p: Tensor = log_p) -> float:
            return -float((w.log()[:, None] + log_p).logsumexp(dim=0).mean())

        grid = [torch.tensor([a, b, 100 - a - b]).double() / 100 for a in range(101) for b in range(101 - a)]
        assert loss(found) <= loss(torch.full((3,), 1 / 3, dtype=torch.float64))
        assert loss(found) <= min(map(loss, grid)) + 1e-4
        assert float(found.sum()) == pytest.approx(1)


def test_a_learned_aggregate_fits_the_training_nodes_better_than_the_mean() -> None:
    data = small_graph()
    losses = []
    for aggregation in ("mean", "learned"):
        model = deploy(data, EraserBEKM(**options(aggregation=aggregation)))
        outputs = model(data.x, data.edge_index)[data.train_mask].detach()
        losses.append(float(F.cross_entropy(outputs, data.y[data.train_mask])))
    assert losses[1] <= losses[0]


@pytest.mark.parametrize("kind", [EraserBLPA, EraserBEKM])
def test_setup_leaves_model_graph_and_chance_as_they_were(kind: type[Eraser]) -> None:
    data = small_graph()
    changed = data.clone()
    changed.y[~changed.train_mask] = 0
    run = uw.train(GCN(8, 3, hidden=4), data, epochs=5)
    run.model.train()
    state, random = copy.deepcopy(run.model.state_dict()), torch.random.get_rng_state()
    one, other = (kind(**options()).setup(run.model, graph, RECIPE) for graph in (data, changed))
    assert same(one, other), "labels outside the training set matter"
    assert all(torch.equal(value, state[key]) for key, value in run.model.state_dict().items())
    assert run.model.training
    assert torch.equal(torch.random.get_rng_state(), random)
    sizes = torch.bincount(one.members[data.train_mask], minlength=K)
    assert int(sizes.max()) <= 10
    assert (one.members[~data.train_mask] == -1).all()


def test_it_says_what_it_needs() -> None:
    data = small_graph()
    model = deploy(data)
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    with pytest.raises(uw.MethodError, match=r"got GCN; make one: model = .*EraserBLPA.from_recipe\(recipe\).setup"):
        forget(GCN(8, 3), data, request)
    with pytest.raises(uw.MethodError, match=r"has 4 shards and aggregation 'mean'.*given 5 and 'mean'"):
        forget(model, data, request, method=EraserBLPA(**options(shards=5)))
    with pytest.raises(uw.MethodError, match=r"cannot be retrained for 100 at lr=0\.01"):
        deploy(data, EraserBLPA(shards=K, epochs=100, lr=0.01))
    with pytest.raises(uw.MethodError, match="40 training nodes cannot be divided into 41 shards"):
        deploy(data, EraserBLPA(**options(shards=41)))
    with pytest.raises(uw.MethodError, match="takes cross-entropy only"):
        deploy(data, loss=uw.losses.squared_error)
    more = data.clone()
    more.train_mask, more.val_mask = more.train_mask | more.val_mask, torch.zeros_like(more.val_mask)
    with pytest.raises(uw.MethodError, match="training nodes in no shard"):
        forget(model, more, request)
    with pytest.raises(uw.MethodError, match="retrain them by the method that set them up"):
        forget(model, data, request, method="retrain")
    for wrong in ({"shards": 0}, {"shards": 2.5}, {"aggregation": "median"}, {"epochs": 0}, {"lr": -1.0}):
        with pytest.raises(uw.MethodError):
            EraserBEKM(**wrong)


def test_a_model_that_needs_the_whole_graph_is_refused() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.conv = nn.Embedding(60, 8), GCNConv(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x + self.rows.weight, edge_index)  # type: ignore[no-any-return]

    with pytest.raises(uw.ModelError, match="cannot be trained on shard 0 alone, a graph of 10 nodes"):
        deploy(small_graph(), model=Table())


def test_any_module_and_any_way_to_call_it() -> None:
    """BatchNorm, edge weights and a call of one's own: forgetting is exact for parameters and for buffers."""

    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm, self.conv2 = GCNConv(8, 4), nn.BatchNorm1d(4), GCNConv(4, 3)

        def forward(self, data: Data) -> dict[str, Tensor]:
            h = F.dropout(self.norm(self.conv1(data.x, data.edge_index, data.edge_weight)), 0.5, self.training)
            return {"logits": self.conv2(h, data.edge_index)}

    def how(model: nn.Module, graph: Data) -> Tensor:
        return model(graph)["logits"]  # type: ignore[no-any-return]

    data = small_graph()
    data.edge_weight = torch.ones(data.num_edges)
    model = deploy(data, model=Mine(), forward=how)
    request = uw.Request(nodes=data.train_mask.nonzero().flatten().tolist()[:2])
    done = forget(model, data, request, forward=how)
    again = deploy(done.data, Given(**options(), given=tuple(model.members.tolist())), Mine(), forward=how)
    assert same(done.model, again)


def test_the_receipt_tells_the_truth() -> None:
    data = small_graph()
    model = deploy(data)
    request, _ = one_request("nodes", data, model.members)
    receipt = forget(model, data, request).receipt
    assert receipt.residual_influence is None
    assert "local_change" not in receipt.objective
    text = str(receipt)
    assert "1 of 4 shards were retrained" in text
    assert "for the same partition, this is the sharded model retrained" in text
    assert any("partition into shards was computed with the removed data" in w for w in receipt.warnings)
    # Three evaluations and the first look, and 12 epochs over the 9 of 60 nodes that are left in the shard.
    assert receipt.passes == round(4 + 2 * 12 * 9 / 60)
    assert Receipt.from_json(receipt.to_json()) == receipt


def test_a_run_of_shards_forgets_and_is_kept_on_disk(tmp_path: Any) -> None:
    data = small_graph()
    run = uw.Run(deploy(data), data, recipe=RECIPE)
    done = run.forget(uw.Request(nodes=[int(data.train_mask.nonzero()[0])]), "eraser-blpa", shards=K)
    done.save(tmp_path / "run")
    empty = Shards([GCN(8, 3, hidden=4) for _ in range(K)], torch.full((60,), -1))
    assert same(uw.Run.open(tmp_path / "run", model=empty, data=data).model, done.model)
