"""Graphs of several types: the user's own calls, before and after a deletion, and what a request takes along."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, HeteroConv

import unweave as uw
from tests.tasks.literature import CITES, IN, WRITES, Layered, heterogeneous, literature, started
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.curvature.products import GaussNewton, Hessian
from unweave.graph.removal import remove
from unweave.models.reach import find_reach
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.tasks import Relations

MODELS: dict[str, Callable[[HeteroData], nn.Module]] = {
    "to_hetero": heterogeneous,
    "HeteroConv": lambda data: started(Layered(data), data),
}


def own_outputs(model: nn.Module, data: HeteroData) -> Tensor:
    with torch.no_grad():
        found = model(data.x_dict, data.edge_index_dict)
    return found["paper"] if isinstance(found, dict) else found  # type: ignore[no-any-return]


def by_hand(data: HeteroData, *, author: int, paper: int, edge: tuple[int, int]) -> HeteroData:
    """Without an author, the features of a paper, and one authorship."""
    left = data.clone()
    left["author"].x[author], left["paper"].x[paper] = 0, 0
    for relation, back in ((WRITES, False), (("paper", "rev_writes", "author"), True)):
        ends = left[relation].edge_index.flip(0) if back else left[relation].edge_index
        gone = (ends[0] == author) | ((ends[0] == edge[0]) & (ends[1] == edge[1]))
        left[relation].edge_index = left[relation].edge_index[:, ~gone]
    return left


def an_edge(data: HeteroData, relation: tuple[str, str, str] = WRITES, number: int = 11) -> tuple[int, int]:
    u, v = data[relation].edge_index[:, number].tolist()
    return u, v


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_users_own_call(name: str) -> None:
    data = literature()
    model, graph = MODELS[name](data), Relations.of(data)
    outputs = graph.call(model)
    assert torch.equal(outputs[graph.ids("paper")], own_outputs(model, data))
    assert not outputs[graph.node_type != 2].any() or graph.types[1] != "paper"
    edge = an_edge(data)
    asked = graph.request(nodes={"author": [5]}, edges={WRITES: [edge]}, features={"paper": {7: "all"}})
    left = remove(graph, asked).data
    assert isinstance(left, Relations)
    wanted = by_hand(data, author=5, paper=7, edge=edge)
    assert torch.equal(left.call(model)[left.ids("paper")], own_outputs(model, wanted))
    back = left.to_hetero_data()
    assert back.metadata() == data.metadata()
    assert all(torch.equal(back[kind].x, wanted[kind].x) for kind in data.node_types)
    assert all(torch.equal(back[kind].edge_index, wanted[kind].edge_index) for kind in data.edge_types)
    assert torch.equal(back["paper"].y, data["paper"].y)
    assert torch.equal(back["paper"].train_mask, data["paper"].train_mask)


@pytest.mark.parametrize("name", MODELS)
def test_layers_side_by_side_are_one_step(name: str) -> None:
    data = literature()
    model, graph = MODELS[name](data), Relations.of(data)
    reach = find_reach(model, lambda: graph.call(model))
    assert reach.steps == {"to_hetero": 2, "HeteroConv": 1}[name]
    run = uw.Run(model, graph, weight_decay=0.01)
    receipt = uw.unlearn(model, graph, graph.request(nodes={"author": [5]}), weight_decay=0.01).receipt
    assert receipt.region["steps"] == reach.steps
    assert not any("beyond its message-passing layers" in warning for warning in receipt.warnings)
    assert receipt.graph["types"]["nodes"] == {"paper": 120, "author": 60, "venue": 9}
    assert run.data is graph


def test_derivatives_match_a_dense_reference() -> None:
    data = literature(24, classes=2, dtype=torch.float64)
    model = started(Layered(data, hidden=1, classes=2), data)
    before = Relations.of(data)
    asked = before.request(nodes={"author": [1], "paper": [3]}, edges={IN: [an_edge(data, IN, 5)]}, labels=[0])
    theta = flatten(model)
    assert theta.numel() <= 90
    for graph in (before, remove(before, asked).data):
        decay = decay_vector(model, 0.01)
        objective = Objective(model, graph, cross_entropy, decay, call, Meter(torch.device("cpu")))
        hetero = graph.to_hetero_data()
        mask, y = hetero["paper"].train_mask, hetero["paper"].y

        def outputs(flat: Tensor, hetero: HeteroData = hetero, mask: Tensor = mask) -> Tensor:
            pieces, at = {}, 0
            for name, p in model.named_parameters():
                pieces[name] = flat[at : at + p.numel()].reshape(p.shape)
                at += p.numel()
            return functional_call(model, pieces, (hetero.x_dict, hetero.edge_index_dict))[mask]  # type: ignore[no-any-return]

        def loss(flat: Tensor, mask: Tensor = mask, y: Tensor = y, outputs: Any = outputs) -> Tensor:
            decays = 0.005 * mask.sum() * flat.square().sum()
            return nn.functional.cross_entropy(outputs(flat), y[mask], reduction="sum") + decays

        point = objective.at(theta)
        v = torch.randn(theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(point.gradient(), grad(loss)(theta))
        torch.testing.assert_close(Hessian(point)(v), hessian(loss)(theta) @ v)
        z = outputs(theta)
        jacobian = jacrev(outputs)(theta).reshape(z.numel(), -1)
        bend = hessian(
            lambda flat, z=z, mask=mask, y=y: nn.functional.cross_entropy(flat.view_as(z), y[mask], reduction="sum")
        )(z.reshape(-1))
        dense = jacobian.T @ bend @ jacobian + torch.diag(objective.mu)
        torch.testing.assert_close(GaussNewton(point)(v), dense @ v)


@pytest.mark.slow
def test_a_wide_model_forgets_almost_as_if_retrained(tmp_path: Path) -> None:
    data = literature()
    model, graph = heterogeneous(data, hidden=64), Relations.of(data)
    with tuned(polish={"evaluations": 240}):
        run = uw.train(model, graph, forgettable=True, weight_decay=0.1)
    assert run.prepared is not None
    assert run.prepared.at_minimum
    papers = uw.draw("nodes:0.05", graph, seed=1)
    assert all(graph.node_type[node] == 1 for node in papers.nodes)
    for asked in (papers, graph.request(nodes={"author": [2, 9]})):
        with tuned(polish={"evaluations": 240}):
            after, retrained = run.forget(asked), run.forget(asked, "retrain")
        left, kept = after.data, after.data.node_type == 1
        target, *others = (log_probabilities(m, left) for m in (retrained.model, after.model, run.model))
        found, none = (gap(target, other, kept) for other in others)
        assert (closed(found, none) or 0) > 0.9
        assert after.receipts[-1].passes < 0.3 * retrained.receipts[-1].passes
    after.save(tmp_path / "run")
    opened = uw.Run.open(tmp_path / "run", model=heterogeneous(data, hidden=64), data=graph)
    assert isinstance(opened.data, Relations)
    assert torch.equal(opened.data.edge_index, left.edge_index)
    assert torch.equal(opened.data.call(opened.model), left.call(after.model))
    again = opened.forget(asked)
    assert again.receipts[-1].status == "nothing to do"


def test_reverses_go_along_and_are_drawn_once() -> None:
    data = literature()
    graph = Relations.of(data)
    names = [name for _, name, _ in graph.relations]
    assert [names[k] for k in graph.spec["reverse"]] == ["rev_writes", "rev_in", "cites", "writes", "in"]
    own = graph.own_edges()
    assert (
        int(own.sum())
        == sum(data[kind].edge_index.size(1) for kind in (WRITES, IN)) + data[CITES].edge_index.size(1) // 2
    )
    drawn = uw.draw("edges:0.3", graph)
    assert not {(v, u) for u, v in drawn.edges} & set(drawn.edges)
    counts = remove(graph, drawn).counts
    assert counts["stored_edges"] == 2 * len(drawn.edges)


def test_relations_by_other_names_are_reverses_where_their_edges_are() -> None:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(3, 2), torch.ones(2, 2)
    data["b"].y, data["b"].train_mask = torch.tensor([0, 1]), torch.tensor([True, True])
    ends = torch.tensor([[0, 1, 2], [0, 1, 1]])
    data["a", "owns", "b"].edge_index, data["b", "owned_by", "a"].edge_index = ends, ends.flip(0)
    data["a", "likes", "b"].edge_index = ends[:, :1]
    graph = Relations.of(data)
    assert graph.spec["reverse"] == [1, 0, None]
    with pytest.raises(uw.RequestError, match="joined by a likes b as well"):
        graph.request(edges={("a", "owns", "b"): [(0, 0)]})
    both = graph.request(edges={("a", "owns", "b"): [(0, 0)], ("a", "likes", "b"): [(0, 0)]})
    assert remove(graph, both).counts["stored_edges"] == 3
    one = graph.request(edges={("b", "owned_by", "a"): [(1, 2)]})
    left = remove(graph, one).data.to_hetero_data()
    assert left["a", "owns", "b"].edge_index.tolist() == [[0, 1], [0, 1]]


class Weighted(nn.Module):
    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.conv = HeteroConv({relation: GraphConv((-1, -1), 3) for relation in data.edge_types})

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:
        return self.conv(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)


def test_weights_and_attributes_of_edges() -> None:
    data = literature()
    for kind in (WRITES, ("paper", "rev_writes", "author")):
        data[kind].edge_weight = torch.rand(data[kind].edge_index.size(1))
    model, graph = Weighted(data), Relations.of(data)
    with torch.no_grad():
        own = model(data.x_dict, data.edge_index_dict, data.edge_weight_dict)["paper"]
        assert torch.equal(graph.call(model)[graph.ids("paper")], own)
    assert torch.equal(graph.to_hetero_data()[WRITES].edge_weight, data[WRITES].edge_weight)
    assert "edge_weight" not in graph.to_hetero_data()[IN]
    with pytest.raises(uw.ModelError, match=r"data has edge_weight, but Layered.forward.*edge_weight_dict"):
        graph.call(started(Layered(data), data))
    data[IN].edge_attr, data[CITES].edge_attr = torch.rand(120, 2), torch.rand(data[CITES].edge_index.size(1), 3)
    back = Relations.of(data).to_hetero_data()
    assert torch.equal(back[IN].edge_attr, data[IN].edge_attr)
    assert torch.equal(back[CITES].edge_attr, data[CITES].edge_attr)


def changed(how: Callable[[HeteroData], object]) -> HeteroData:
    data = literature()
    how(data)
    return data


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda d: d["venue"].__delattr__("x"), r"'venue' have no x; give them one, e.g. .*torch\.ones"),
        (lambda d: d["venue"].__setattr__("x", torch.ones(9, 1, dtype=torch.long)), "dense floating-point"),
        (lambda d: d["venue"].__setattr__("x", torch.ones(9, 1, dtype=torch.float64)), "one dtype and on one device"),
        (lambda d: d["paper"].__delattr__("train_mask"), "no type of nodes has y and train_mask"),
        (
            lambda d: d["venue"].update({"y": torch.zeros(9).long(), "train_mask": torch.ones(9).bool()}),
            "paper, venue have y and train_mask; .*name it",
        ),
        (lambda d: d["paper"].__setattr__("y", torch.zeros(7).long()), "row for each of 120 nodes"),
        (lambda d: d["paper"].__setattr__("test_mask", torch.zeros(120, 3).bool()), "choose one split"),
        (lambda d: d[IN].__setattr__("edge_index", d[IN].edge_index + 100), "outside 0 … "),
        (lambda d: d[IN].__delattr__("edge_index"), "has no edge_index"),
        (lambda d: d[IN].__setattr__("edge_weight", torch.ones(3)), "row for each of 120 edges"),
        (lambda d: d["x", "y", "paper"].__setattr__("edge_index", torch.zeros(2, 1).long()), "'x'"),
    ],
)
def test_data_that_cannot_be_taken_is_refused(how: Callable[[HeteroData], object], says: str) -> None:
    with pytest.raises(uw.DataError, match=says):
        Relations.of(changed(how))


def test_targets_and_kinds_that_are_not_there_are_refused() -> None:
    with pytest.raises(uw.DataError, match="target 'venue' must be"):
        Relations.of(literature(), target="venue")
    with pytest.raises(uw.DataError, match=r"takes a torch_geometric.data.HeteroData, got Data"):
        Relations.of(uw.load("demo"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"nodes": [3]}, r"nodes must be a mapping, e.g. nodes=\{'author'"),
        ({"nodes": {"editor": [3]}}, "no type of nodes 'editor'; there are paper, author, venue"),
        ({"nodes": {"author": [60]}}, "author 60 is not there, whose numbers are 0 … 59"),
        ({"nodes": {"author": [-1, 1]}}, "author -1 is not there"),
        ({"nodes": {"author": ["3"]}}, "'3' is not a whole number"),
        ({"nodes": {"author": torch.ones(60).bool()}}, "boolean mask"),
        ({"nodes": {"author": [3, 3]}}, "named more than once"),
        ({"nodes": {"author": 3}}, "must be a list of numbers"),
        ({"edges": {("author", "reads", "paper"): [(0, 1)]}}, "no relation .*reads"),
        ({"edges": {WRITES: [(0, 1, 2)]}}, "not a pair"),
        ({"edges": {WRITES: [(0, 119)]}}, "author 0, paper 119 is not among those of author writes paper"),
        ({"features": {"paper": {7: [6]}}}, "column of paper 6 is not there, whose numbers are 0 … 5"),
        ({"features": {"paper": [7]}}, "must be a mapping"),
        ({"labels": [120]}, "labels: paper 120 is not there"),
        ({}, "the request is empty"),
    ],
)
def test_requests_that_make_no_sense_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(uw.RequestError, match=says):
        Relations.of(literature()).request(**asked)


class Other(nn.Module):
    def __init__(self, give: Callable[[Any], object]) -> None:
        super().__init__()
        self.linear, self.give = nn.Linear(6, 3), give

    def forward(self, x_dict: Any, edge_index_dict: Any) -> object:
        return self.give(self.linear(x_dict["paper"]))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Other(lambda z: {"author": z}), "gives outputs of author, and the labels are those of paper"),
        (Other(lambda z: z[:5]), r"one row for each of 120 nodes of paper, got \(5, 3\)"),
        (Other(lambda z: None), "got NoneType"),
        (nn.Linear(6, 3), r"cannot be called as model\(x_dict, edge_index_dict\)"),
    ],
)
def test_models_that_give_something_else_are_refused(model: nn.Module, says: str) -> None:
    graph = Relations.of(literature())
    with pytest.raises(uw.ModelError, match=says):
        graph.call(model)


def test_built_in_models_are_of_one_type() -> None:
    graph = Relations.of(literature())
    with pytest.raises(uw.ModelError, match="GCN takes nodes of one type"):
        uw.train(uw.models.GCN(graph.num_features, 3), graph, epochs=1)


def test_masks_are_not_drawn_over_all_types() -> None:
    with pytest.raises(uw.DataError, match="not all nodes of a Relations are examples"):
        uw.split(Relations.of(literature()))
