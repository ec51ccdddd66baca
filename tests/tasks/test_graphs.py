"""Whole graphs as examples: the user's own calls on a batch, before and after a deletion, and what a request means."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, SAGEConv, global_add_pool, global_mean_pool
from torch_geometric.utils import to_undirected

import unweave as uw
from unweave._core.cost import Meter
from unweave._core.memo import clear_memory
from unweave._core.tuning import tuned
from unweave.curvature.products import GaussNewton, Hessian
from unweave.graph.removal import remove
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.tasks import Graphs


def rings_and_stars(count: int = 60, *, dtype: torch.dtype = torch.float32) -> list[Data]:
    """Graphs with a label that tells rings from stars, most of the time, and nodes of three kinds."""
    rng, found = torch.Generator().manual_seed(7), []
    for number in range(count):
        size, star = int(torch.randint(4, 9, (1,), generator=rng)), number % 2
        order = torch.arange(size)
        ends = torch.stack([torch.zeros(size - 1).long(), order[1:]]) if star else torch.stack([order, order.roll(1)])
        kinds = torch.randint(3, (size,), generator=rng)
        label = star if float(torch.rand(1, generator=rng)) < 0.9 else 1 - star
        x = nn.functional.one_hot(kinds, 3).to(dtype)
        found.append(Data(x=x, edge_index=to_undirected(ends), y=torch.tensor([label])))
    return found


class Pooled(nn.Module):
    def __init__(self, hidden: int = 4, pool: Callable[..., Tensor] = global_mean_pool) -> None:
        super().__init__()
        self.conv, self.last, self.pool = SAGEConv(3, hidden), nn.Linear(hidden, 2), pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.last(self.pool(self.conv(x, edge_index).tanh(), batch))  # type: ignore[no-any-return]


def on_batch(model: nn.Module, graphs: list[Data]) -> Tensor:
    batch = Batch.from_data_list(graphs)
    with torch.no_grad():
        return model(batch.x, batch.edge_index, batch.batch)  # type: ignore[no-any-return]


def rows(data: Graphs, numbers: list[int]) -> Tensor:
    return (data.node_type == 2).nonzero().flatten()[numbers]


def by_hand(graphs: list[Data]) -> list[Data]:
    """Without graph 3, node 2 of graph 4, the edge (0, 1) of graph 5 and the features of node 1 of graph 6."""
    left = [graph.clone() for graph in graphs]
    left[4] = left[4].subgraph(torch.tensor([n for n in range(left[4].num_nodes) if n != 2]))
    ends = left[5].edge_index
    left[5].edge_index = ends[:, ~((ends == 0).any(dim=0) & (ends == 1).any(dim=0))]
    left[6].x[1] = 0
    del left[3]
    return left


def test_outputs_are_those_of_the_users_own_call() -> None:
    graphs, model = rings_and_stars(), Pooled().eval()
    data = Graphs.of(graphs)
    outputs = data.call(model)
    assert torch.equal(outputs[data.node_type == 2], on_batch(model, graphs))
    assert not outputs[data.node_type == 1].any()
    asked = data.request(graphs=[3], nodes=[(4, 2)], edges=[(5, 0, 1)], features={(6, 1): "all"})
    removal = remove(data, asked)
    left, wanted = removal.data, by_hand(graphs)
    assert isinstance(left, Graphs)
    kept = rows(left, [n for n in range(60) if n != 3])
    assert torch.equal(left.call(model)[kept], on_batch(model, wanted))
    assert not left.call(model)[rows(left, [3])].any()
    back = left.graphs()
    assert [graph.number for graph in back] == [n for n in range(60) if n != 3]
    for one, other in zip(back, wanted, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.edge_index, other.edge_index)
        assert torch.equal(one.y, other.y)
    assert left.describe() == {
        "graphs": 59,
        "nodes": sum(graph.num_nodes for graph in wanted),
        "edges": sum(graph.num_edges for graph in wanted),
    }
    everyone = data.request(nodes=[(3, n) for n in range(graphs[3].num_nodes)]).nodes
    assert {*everyone} <= {*removal.nodes.tolist()}


def test_numbers_never_shift() -> None:
    data = Graphs.of(rings_and_stars())
    left = remove(data, data.request(graphs=[0, 7], nodes=[(9, 1)])).data
    assert left.request(graphs=[8]) == data.request(graphs=[8])
    assert left.request(nodes=[(9, 3), (59, 0)]) == data.request(nodes=[(9, 3), (59, 0)])


def test_derivatives_match_a_dense_reference() -> None:
    graphs, model = rings_and_stars(14, dtype=torch.float64), Pooled(3).double().eval()
    before = Graphs.of(graphs, train=list(range(12)), test=[12, 13])
    theta = flatten(model)
    assert theta.numel() <= 60
    asked = before.request(graphs=[3], nodes=[(4, 2)], edges=[(5, 0, 1)], labels=[6])
    for data, numbers in ((before, range(12)), (remove(before, asked).data, [n for n in range(12) if n not in (3, 6)])):
        objective = Objective(model, data, cross_entropy, decay_vector(model, 0.01), call, Meter(torch.device("cpu")))
        some = [graph for graph in data.graphs() if graph.number in numbers]
        batch = Batch.from_data_list(some)

        def outputs(flat: Tensor, batch: Any = batch) -> Tensor:
            pieces, at = {}, 0
            for name, p in model.named_parameters():
                pieces[name] = flat[at : at + p.numel()].reshape(p.shape)
                at += p.numel()
            return functional_call(model, pieces, (batch.x, batch.edge_index, batch.batch))  # type: ignore[no-any-return]

        def loss(flat: Tensor, batch: Any = batch, outputs: Any = outputs) -> Tensor:
            decays = 0.005 * batch.num_graphs * flat.square().sum()
            return nn.functional.cross_entropy(outputs(flat), batch.y, reduction="sum") + decays

        point = objective.at(theta)
        v = torch.randn(theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(point.gradient(), grad(loss)(theta))
        torch.testing.assert_close(Hessian(point)(v), hessian(loss)(theta) @ v)
        z = outputs(theta)
        jacobian = jacrev(outputs)(theta).reshape(z.numel(), -1)
        bend = hessian(lambda f, z=z, y=batch.y: nn.functional.cross_entropy(f.view_as(z), y, reduction="sum"))(
            z.reshape(-1)
        )
        torch.testing.assert_close(GaussNewton(point)(v), jacobian.T @ bend @ jacobian @ v + objective.mu * v)


def test_a_wide_model_forgets_almost_as_if_retrained(tmp_path: Path) -> None:
    data = Graphs.of(rings_and_stars(100))
    model = uw.models.build("pooled-sign", 3, 2, forgettable=True, nodes=81)
    with tuned(polish={"evaluations": 240}):
        run = uw.train(model, data, forgettable=True, weight_decay=0.1)
    assert run.prepared is not None
    assert run.prepared.at_minimum
    drawn = uw.draw("nodes:0.1", data)
    assert all(data.node_type[node] == 2 and data.train_mask[node] for node in drawn.nodes)
    edges = uw.draw("edges:0.05", data)
    assert all(data.node_type[node] == 1 for edge in edges.edges for node in edge)
    for asked in (drawn, edges, data.request(nodes=[(n, 1) for n in range(9)])):
        with tuned(polish={"evaluations": 240}):
            after, retrained = run.forget(asked), run.forget(asked, "retrain")
        left = after.data
        kept = rows(left, [graph.number for graph in left.graphs()])
        target, *others = (log_probabilities(m, left)[kept] for m in (retrained.model, after.model, run.model))
        found, none = (gap(target, other, torch.ones(len(kept), dtype=torch.bool)) for other in others)
        assert (closed(found, none) or 0) > 0.9
    receipt = after.receipts[-1]
    assert receipt.graph["types"]["graphs"] == 100
    assert receipt.region["training_nodes"] <= 9
    after = run.forget(drawn)
    after.save(tmp_path / "run")
    opened = uw.Run.open(tmp_path / "run", data=data)
    assert isinstance(opened.data, Graphs)
    assert torch.equal(opened.data.call(opened.model), after.data.call(after.model))
    assert opened.forget(drawn).receipts[-1].status == "nothing to do"


def test_deferred_and_bounded_requests_take_the_same_graphs(one_decay: None) -> None:
    data = Graphs.of(rings_and_stars())
    run = uw.train(uw.models.PooledSIGN(3, 2, hidden=16), data, forgettable=True)
    asked = data.request(graphs=[3], nodes=[(4, 2)])
    at_once, later = run.forget(asked), run.forget(asked, defer=True).verify()
    assert torch.equal(at_once.data.edge_index, later.data.edge_index)
    assert torch.equal(at_once.data.train_mask, later.data.train_mask)
    bounded = run.forget(asked, memory_mib=64)
    assert torch.equal(bounded.data.edge_index, at_once.data.edge_index)
    torch.testing.assert_close(flatten(bounded.model), flatten(at_once.model), rtol=1e-2, atol=1e-3)


def test_edges_with_attributes() -> None:
    graphs = rings_and_stars(8)
    for graph in graphs:
        graph.edge_attr = torch.rand(graph.num_edges, 3)

    class WithAttributes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GINEConv(nn.Linear(3, 2))

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
            return global_add_pool(self.conv(x, edge_index, edge_attr), batch)

    data, model, batch = Graphs.of(graphs), WithAttributes(), Batch.from_data_list(graphs)
    with torch.no_grad():
        own = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
        assert torch.equal(data.call(model)[data.node_type == 2], own)
    assert torch.equal(data.graphs()[5].edge_attr, graphs[5].edge_attr)
    with pytest.raises(uw.ModelError, match=r"data has edge_attr, but Pooled.forward\(x, edge_index, batch\)"):
        data.call(Pooled())


def test_regression() -> None:
    graphs = rings_and_stars(30)
    for graph in graphs:
        graph.y = torch.tensor([[float(graph.num_nodes), 1.0]])
    data = Graphs.of(graphs)
    run = uw.train(Pooled(8, global_add_pool), data, epochs=60, loss=uw.losses.squared_error)
    after = run.forget(data.request(graphs=[int(data.graph[data.train_mask][0])]))
    assert after.receipts[-1].status == "done"
    assert after.data.describe()["graphs"] == 29


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"graphs": [60]}, "graphs: graph 60 is not there, whose numbers are 0 … 59"),
        ({"graphs": 3}, "graphs must be a list of numbers"),
        ({"graphs": [1.5]}, r"1\.5 is not a whole number"),
        ({"graphs": [True]}, "True is not a whole number"),
        ({"nodes": [3]}, r"3 is not \(graph, node\)"),
        ({"nodes": [(3, 40)]}, "node of graph 3 40 is not there"),
        ({"nodes": [(99, 0)]}, "nodes: graph 99 is not there"),
        ({"edges": [(3, 0)]}, r"\(3, 0\) is not \(graph, u, v\)"),
        ({"features": [(3, 0)]}, "features must be a mapping"),
        ({"features": {(3, 0): [3]}}, "column of node 0 of graph 3 3 is not there"),
        ({"features": {(3, 0): "some"}}, "must be 'all' or a list"),
        ({"labels": [-1]}, "labels: graph -1"),
        ({"nodes": [(3, 0), (3, 0)]}, "named more than once"),
        ({}, "the request is empty"),
    ],
)
def test_requests_that_make_no_sense_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(uw.RequestError, match=says):
        Graphs.of(rings_and_stars()).request(**asked)


def test_what_a_plain_request_may_not_name() -> None:
    graphs = rings_and_stars()
    data = Graphs.of(graphs)
    (row,) = rows(data, [3]).tolist()
    everyone = data.request(nodes=[(3, n) for n in range(graphs[3].num_nodes)])
    with pytest.raises(uw.RequestError, match=r"no node is left of graph 3, .*request\(graphs=\[3\]\)"):
        remove(data, everyone)
    member = everyone.nodes[0]
    with pytest.raises(uw.RequestError, match="tells that a node belongs to a graph"):
        remove(data, uw.Request(edges=[(member, row)]))
    whole = remove(data, uw.Request(nodes=[row]))
    assert whole.request.nodes == (row,)
    assert set(whole.nodes.tolist()) == {row, *everyone.nodes}
    assert torch.equal(remove(data, uw.Request(nodes=[row, member])).nodes, whole.nodes)
    with pytest.raises(uw.RequestError, match="not in the graph"):
        remove(data, data.request(edges=[(0, 0, 2)]))


def test_directed_edges_go_one_way() -> None:
    graphs = [
        Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([n % 2])) for n in range(9)
    ]
    graphs[8].edge_index = torch.tensor([[0, 1], [1, 2]])
    data = Graphs.of(graphs)
    assert remove(data, data.request(edges=[(0, 0, 1)])).data.graphs()[0].edge_index.tolist() == [[1], [0]]


def changed(**parts: Any) -> list[Data]:
    graphs = rings_and_stars(6)
    for key, value in parts.items():
        graphs[2][key] = value
    return graphs


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (lambda: [], "has no graph"),
        (lambda: rings_and_stars(1)[0], "takes a list of graphs or a data set, got Data"),
        (lambda: [3], "graph 0 .* must be a torch_geometric.data.Data, got int"),
        (lambda: changed(x=None), "graph 2 has no x, .*OneHotDegree"),
        (lambda: changed(x=torch.ones(0, 3)), "graph 2 has no nodes"),
        (lambda: changed(x=torch.ones(9, 4)), "x of graph 2 is not of the same kind"),
        (lambda: changed(y=torch.tensor([1, 0])), "graph 2 must have one label y"),
        (lambda: changed(y=None), "graph 2 must have one label y"),
        (lambda: changed(y=torch.tensor([0.5])), "y of graph 2 is not of the same kind"),
        (lambda: changed(edge_index=torch.tensor([[0], [99]])), "edge_index of graph 2 names nodes outside"),
        (lambda: changed(edge_index=None), "graph 2 has no edge_index"),
        (lambda: changed(edge_weight=torch.ones(2)), "edge_weight of graph 2 is not of the same kind"),
    ],
)
def test_data_that_cannot_be_taken_is_refused(dataset: Callable[[], Any], says: str) -> None:
    with pytest.raises(uw.DataError, match=says):
        Graphs.of(dataset())


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"test": [1]}, "say which graphs to train on"),
        ({"train": [9]}, "train names graphs outside 0 … 5"),
        ({"train": [0.5]}, "train must be numbers of graphs"),
        ({"train": torch.ones(4).bool()}, "a boolean mask of 6"),
    ],
)
def test_splits_that_make_no_sense_are_refused(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(uw.DataError, match=says):
        Graphs.of(rings_and_stars(6), **parts)


def test_splits() -> None:
    graphs = rings_and_stars(50)
    drawn, again = Graphs.of(graphs), Graphs.of(graphs, seed=1)
    assert [int(drawn[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [41, 4, 5]
    assert not torch.equal(drawn.test_mask, again.test_mask)
    given = Graphs.of(graphs, train=torch.arange(50) < 30, test=[40, 41])
    assert given.graph[given.test_mask].tolist() == [40, 41]
    assert int(given.train_mask.sum()) == 30


def test_models_of_nodes_are_refused() -> None:
    data = Graphs.of(rings_and_stars(6))
    with pytest.raises(uw.ModelError, match=r"SGC.forward takes no batch"):
        data.call(uw.models.SGC(3, 2))
    with pytest.raises(uw.ModelError, match=r"SAGE cannot be called as model\(x, edge_index, batch\)"):
        data.call(uw.models.SAGE(3, 2))
    with pytest.raises(uw.ModelError, match=r"unweave\.tasks\.Graphs"):
        uw.train(uw.models.PooledSIGN(600, 6), uw.load("demo"), epochs=1)


def test_mutag(real_data: Path) -> None:
    data = uw.load("mutag")
    assert isinstance(data, Graphs)
    assert data.describe() == {"graphs": 188, "nodes": 3371, "edges": 7442}
    assert data.x.sum(dim=0).tolist() == [2, 23, 2395, 12, 1, 345, 593]
    assert (data.name, data.split_seed, data.num_classes) == ("mutag", 0, 2)
    assert uw.load("proteins").describe() == {"graphs": 1113, "nodes": 43471, "edges": 162088}


@pytest.mark.slow
def test_an_audit_deletes_some_of_the_graphs_and_asks_about_them() -> None:
    """Its shadow models are trained without a part of the deleted graphs, each with its nodes."""
    data = Graphs.of(rings_and_stars(200), train=list(range(140)), test=list(range(140, 200)))
    run = uw.train(Pooled(), data, epochs=5, seed=0)
    done = run.forget(uw.draw("nodes:0.2", data), "none")
    found = uw.audit(run, done, seed=0)
    assert found.evidence
    assert any("likelihood ratio" in entry.name for entry in found.evidence)


def test_hidden_units_that_are_kept_follow_what_they_are_computed_from() -> None:
    data, model = Graphs.of(rings_and_stars(12)), uw.models.PooledSIGN(3, 2, hidden=8)
    other = uw.models.PooledSIGN(3, 2, hidden=8, pooling="mean")
    other.load_state_dict(model.state_dict())

    def fresh(one: nn.Module) -> Tensor:
        clear_memory()
        return data.call(one)

    first = data.call(model)
    assert not torch.equal(data.call(other), first)
    assert torch.equal(data.call(model), first)
    model.weights.mul_(2)
    doubled = data.call(model)
    assert not torch.equal(doubled, first)
    assert torch.equal(doubled, fresh(model))
    data.x.mul_(3)
    assert not torch.equal(data.call(model), doubled)
    assert torch.equal(data.call(model), fresh(model))
