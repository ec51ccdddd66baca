"""Outputs after removals, found side by side, are those of the graph without the item."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv, GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

import unweave as uw
from tests.inspection.graphs import graph, look
from unweave.graph.removal import remove
from unweave.inspection.copies import Copies
from unweave.inspection.forms import form_of
from unweave.inspection.removals import Removals, edges_apart, label_removals, node_removals, row_removals
from unweave.inspection.ripples import Ripples
from unweave.inspection.scoring import Engine
from unweave.models.reach import find_reach
from unweave.testing import small_graph

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("gcn", {}),
    ("gcn", {"layers": 3}),
    ("gcn", {"layers": 3, "beside": True}),
    ("sage", {}),
    ("sage", {"layers": 3}),
    ("gcn", {"direct": 3.0}),
    ("sage", {"direct": 3.0}),
    ("sage", {"layers": 4, "direct": 3.0}),
    ("sign", {"direct": 3.0}),
    ("sgc", {}),
    ("sign", {}),
    ("gat", {}),
    ("gin", {}),
]


class Own(nn.Module):
    """A module of nobody's catalogue: attention, then a convolution, and a way around both."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GATv2Conv(features, 5), GCNConv(5, classes)
        self.around = nn.Linear(features, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x, edge_index)), edge_index) + self.around(x)  # type: ignore[no-any-return]


def cases(data: Data) -> dict[str, tuple[Removals, list[uw.Request]]]:
    nodes = torch.arange(0, data.num_nodes, 3)
    pairs, edges = edges_apart(data)
    return {
        "nodes": (node_removals(data, nodes), [uw.Request(nodes=[i]) for i in nodes.tolist()]),
        "rows": (row_removals(data, nodes), [uw.Request(features={i: "all"}) for i in nodes.tolist()]),
        "edges": (edges, [uw.Request(edges=[(a, b)]) for a, b in pairs.t().tolist()]),
    }


def check(engine: Engine, model: nn.Module, other: nn.Module, data: Data, most: float = 1e9) -> None:
    """Outputs and derivatives are those of the graph without the item, where its parts are looked at alone too."""
    towards = {name: value - dict(model.named_parameters())[name] for name, value in other.named_parameters()}
    for removals, requests in cases(data).values():
        assert removals.count == len(requests)
        rest = torch.zeros(removals.count, dtype=torch.float64)
        parts = zip(*engine.changed(removals, rest, most), strict=True)
        which, nodes, rows, derivatives = (torch.cat(part) for part in parts)
        assert not rest.any()
        some = torch.arange(which.numel()) % 3 == 0
        chosen, number = torch.unique(which[some], return_inverse=True)
        alone = engine.at(removals.some(chosen), number * data.num_nodes + nodes[some], most)
        torch.testing.assert_close(alone, derivatives[some])
        for number, request in list(enumerate(requests))[:: max(1, len(requests) // 8)]:
            left, mine = remove(data, request).data, which == number
            found, moved = (part.clone() for part in engine.whole)
            found[nodes[mine]], moved[nodes[mine]] = rows[mine], derivatives[mine]
            torch.testing.assert_close(found, called(model, left).detach())
            torch.testing.assert_close(moved[:, 0], along(model, towards, left), rtol=1e-5, atol=1e-6)


def along(model: nn.Module, direction: dict[str, Tensor], data: Data, h: float = 1e-6) -> Tensor:
    """How outputs move with the parameters along a direction: a difference."""
    at = dict(model.named_parameters())
    ends = [{name: at[name].detach() + sign * h * step for name, step in direction.items()} for sign in (1, -1)]
    weight = data.get("edge_weight")
    given = (data.x, data.edge_index) if weight is None else (data.x, data.edge_index, weight)
    after, before = (torch.func.functional_call(model, end, given).detach() for end in ends)
    return (after - before) / (2 * h)


def weights_of(model: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """The parameters of a model, and the way to those of another."""
    ends = dict(other.named_parameters())
    return {name: torch.stack([p.detach(), (ends[name] - p).detach()]) for name, p in model.named_parameters()}


def copies(model: nn.Module, other: nn.Module, data: Data, *, shared: bool = True) -> Copies:
    towards = {name: value - dict(model.named_parameters())[name] for name, value in other.named_parameters()}
    reach = find_reach(model, lambda: model(data.x, data.edge_index))

    def outputs(part: Data) -> tuple[Tensor, Tensor]:
        return called(model, part).detach(), along(model, towards, part)[:, None]

    return Copies(data, reach, outputs, 16, shared=shared)


def called(model: nn.Module, data: Data) -> Tensor:
    weight = data.get("edge_weight")
    found: Tensor = model(data.x, data.edge_index) if weight is None else model(data.x, data.edge_index, weight)
    return found


def two_of(model: nn.Module, build: Any) -> list[nn.Module]:
    other = build()
    other.load_state_dict({name: 1.1 * value for name, value in model.state_dict().items()})
    return [model.double().eval(), other.double().eval()]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("name", "how"), MODELS)
def test_each_removal_on_its_own(name: str, how: dict[str, Any], directed: bool) -> None:
    data = graph(16, directed=directed)
    for unit in (False, True):

        def build(unit: bool = unit) -> nn.Module:
            return uw.models.build(name, data.num_features, data.num_classes, unit=unit, **how)  # type: ignore[no-any-return]

        model, other = two_of(build(), build)
        form = form_of(model, data, weights_of(model, other))
        assert (form is None) == (name in ("gat", "gin") or "beside" in how)
        if form is not None:
            with torch.no_grad():
                check(Ripples(data, form), model, other, data, most=2000 if unit else 1e9)
    check(copies(model, other, data), model, other, data)


@pytest.mark.parametrize("name", ["gcn", "sgc", "sign"])
def test_weighted_edges(name: str) -> None:
    data = graph(24)
    low, high = data.edge_index.min(dim=0).values, data.edge_index.max(dim=0).values
    data.edge_weight = 0.5 + ((7 * low + high) % 5).double()  # the same both ways

    def build() -> nn.Module:
        return uw.models.build(name, data.num_features, data.num_classes)  # type: ignore[no-any-return]

    model, other = two_of(build(), build)
    form = form_of(model, data, weights_of(model, other))
    assert form is not None
    with torch.no_grad():
        check(Ripples(data, form), model, other, data)


def test_a_module_of_ones_own() -> None:
    data = graph(16)
    data.edge_index = torch.cat([data.edge_index, torch.arange(0, 16, 3).expand(2, -1)], dim=1)  # loops are known

    def build() -> nn.Module:
        return Own(data.num_features, data.num_classes)

    model, other = two_of(build(), build)
    assert form_of(model, data, weights_of(model, other)) is None
    assert find_reach(model, lambda: model(data.x, data.edge_index)).steps == 2
    check(copies(model, other, data, shared=False), model, other, data)
    check(copies(model, other, data), model, other, data, most=1.0)  # one at a time


class Layers(nn.Module):
    """Two layers of a kind."""

    def __init__(self, layer: Any, features: int, classes: int, **how: Any) -> None:
        super().__init__()
        self.first, self.second = layer(features, 32, **how), layer(32, classes, **how)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x, edge_index)), edge_index)  # type: ignore[no-any-return]


@pytest.mark.parametrize("layer", [GATConv, SAGEConv, TransformerConv, GCNConv])
def test_scores_are_those_of_removals_that_share_nothing(layer: Any) -> None:
    data = graph(16)
    torch.manual_seed(0)
    model = Layers(layer, data.num_features, data.num_classes).double()
    together, apart = look(model, data), look(model, data)
    assert together.subject.engine.shared  # type: ignore[attr-defined]
    apart.subject.engine.shared = False  # type: ignore[attr-defined]
    vars(apart.subject)["leverage"] = together.subject.leverage
    torch.testing.assert_close(together.nodes, apart.nodes)
    torch.testing.assert_close(together.edges, apart.edges)


def test_a_module_that_counts_edges_away_from_nodes_shares_nothing() -> None:
    data = graph(24)
    torch.manual_seed(0)
    model = Layers(ChebConv, data.num_features, data.num_classes, K=2).double()
    found, whole = (look(model, data, hops=hops) for hops in (3, 9))
    assert not found.subject.engine.shared  # type: ignore[attr-defined]
    torch.testing.assert_close(found.edges, whole.edges)


def test_chunks_are_the_removals_in_order() -> None:
    data = graph(24)
    _, edges = edges_apart(data)
    sizes = torch.arange(edges.count) % 7
    chunks = list(edges.chunks(sizes, 12.0))
    assert len(chunks) > 3
    assert sum(chunk.count for _, chunk in chunks) == edges.count
    back = torch.cat([chunk.edges + torch.tensor([[first], [0]]) for first, chunk in chunks], dim=1)
    assert torch.equal(back, edges.edges)
    assert label_removals(data, torch.arange(5)).part(2, 4).labels.tolist() == [[0, 1], [2, 3]]


def test_a_built_in_model_that_somebody_changed_is_served_as_any_other() -> None:
    data = graph(16)

    def tied(model: Any) -> None:
        model.deeper[1].lin.weight = model.deeper[0].lin.weight

    def mixing(model: Any) -> None:
        model.activation = lambda h: h.softmax(dim=-1)

    def normed(model: Any) -> None:
        weight_norm(model.conv2.lin)

    def served_fast(change: Any) -> bool:
        model = uw.models.build("gcn", data.num_features, data.num_classes, layers=4, hidden=4).double().eval()
        change(model)
        return (
            form_of(model, data, {name: value.detach()[None] for name, value in model.named_parameters()}) is not None
        )

    assert served_fast(lambda _: None)
    assert not any(map(served_fast, (tied, mixing, normed)))


class Deep(nn.Module):
    """Four layers of one's own: every removal changes most of a small graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(8, 8), GCNConv(8, 3)
        self.inner = nn.ModuleList(GCNConv(8, 8) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index).tanh()
        for layer in self.inner:
            x = layer(x, edge_index).tanh()
        return self.last(x, edge_index)  # type: ignore[no-any-return]


def test_long_work_tells_how_far_it_is_and_smaller_parts_of_it_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data, told = small_graph(nodes=40), list[tuple[int, int]]()
    run = uw.train(Deep(), data, epochs=20, weight_decay=1e-2)
    whole = run.inspect("node:3")
    monkeypatch.setattr("unweave.inspection.subject.COPIED", 0.5)
    found = run.inspect("node:3", progress=lambda done, total: told.append((done, total)))
    assert not told, "nothing was asked for so far"
    assert torch.allclose(found.nodes, whole.nodes, atol=1e-8)
    assert told == sorted(told)
    assert told[-1] == (data.num_nodes, data.num_nodes)
    assert len(told) > 3
    told.clear()
    assert torch.allclose(found.edges, whole.edges, atol=1e-8)
    assert told[-1] == (found.edges.numel(), found.edges.numel())
