"""Halos give the outputs of the whole graph, and v from the region is v."""

from itertools import product

import pytest
import torch
from torch import nn
from torch_geometric.nn import ChebConv, GCNConv, GINEConv, GraphConv, MessagePassing

import unweave as uw
from tests.cases import LAYERS, LOSSES, REQUESTS, Case, Net, pairwise
from tests.graph.test_view import multigraph
from unweave.graph.neighbourhood import Border, halo
from unweave.graph.region import influenced_region
from unweave.graph.removal import take
from unweave.graph.view import GraphView
from unweave.methods import Problem
from unweave.models.reach import Reach, find_reach
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.parts.localising import find_locality
from unweave.objective.parts.locality import Locality, local_pull

FLOWS = ("source_to_target", "target_to_source")


def borders(reach: Reach) -> tuple[Border, ...]:
    return ("into", "both") if reach.normalised else ("none",)


def turned(model: nn.Module, flow: str) -> nn.Module:
    for layer in model.modules():
        if isinstance(layer, MessagePassing):
            layer.flow = flow
    return model


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_halos_are_exact(layer: str, directed: bool, flow: str) -> None:
    data = multigraph(directed=directed, weighted=False)
    data.x = data.x[:, :3].double()
    model = turned(LAYERS[layer]().double().eval(), flow)
    seen: list[torch.Tensor] = []
    reach = find_reach(model, lambda: seen.append(call(model, data)))
    assert reach.flow == flow
    view = GraphView.of(data)
    after, _ = take(view, uw.Request(nodes=[4], features={6: "all"}, edges=[tuple(data.edge_index[:, 5].tolist())]))
    for border, roots in product(borders(reach), ([0], [3, 5], [39, 7, 21, 4])):
        part = halo(view, torch.tensor(roots), reach, border)
        for graph in (view, after):
            whole, found = call(model, graph.data), call(model, part.data(graph))
            assert torch.allclose(found[: len(roots)], whole[roots], rtol=1e-12, atol=1e-12)
            small = part.data(graph)
            assert small.names[0] == graph.data.names[roots[0]]
            assert torch.equal(small.age[: len(roots)], graph.data.age[roots])
            assert not small.train_mask[len(roots) :].any()


class Weighted(nn.Module):
    """Layers that read weights or attributes of edges."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        make = {
            "gcn": GCNConv,
            "cheb": lambda i, o: ChebConv(i, o, K=2),
            "graph": GraphConv,
            "gine": lambda i, o: GINEConv(nn.Linear(i, o), edge_dim=2),
        }[kind]
        self.first, self.second, self.kind = make(3, 4), make(4, 2), kind

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor, edge_attr: torch.Tensor
    ) -> torch.Tensor:
        extra = edge_attr if self.kind == "gine" else edge_weight
        return self.second(torch.tanh(self.first(x, edge_index, extra)), edge_index, extra)  # type: ignore[no-any-return]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["gcn", "cheb", "graph", "gine"])
def test_halos_with_weights_and_attributes_of_edges(kind: str, directed: bool) -> None:
    data = multigraph(directed=directed, weighted=True)
    data.x = data.x[:, :3]
    data = data.apply(lambda t: t.double() if t.is_floating_point() else t)
    torch.manual_seed(0)
    model = Weighted(kind).double().eval()
    reach = find_reach(model, lambda: call(model, data))
    whole, view = call(model, data), GraphView.of(data)
    wanted: tuple[Border, ...] = ("both",) if kind == "cheb" else borders(reach)
    for border, node in product(wanted, range(0, 40, 7)):
        part = halo(view, torch.tensor([node]), reach, border)
        assert torch.allclose(call(model, part.data(view))[0], whole[node], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_a_rim_drawn_together_is_exact_too(directed: bool, weighted: bool) -> None:
    data = multigraph(directed=directed, weighted=weighted)
    data.x = data.x.double()
    if weighted:
        data.edge_weight = data.edge_weight.double()
        del data.edge_attr
    model = uw.models.GCN(8, 3, hidden=4).double().eval()
    reach = find_reach(model, lambda: call(model, data))
    view = GraphView.of(data)
    after, _ = take(view, uw.Request(nodes=[4, 8]))
    for node in range(0, 40, 3):
        part = halo(view, torch.tensor([node]), reach, "merged")
        first = part.data(view)
        for graph, known in product((view, after), (None, first)):
            small, whole = part.data(graph, known), call(model, graph.data)
            assert torch.allclose(call(model, small)[0], whole[node], rtol=1e-12, atol=1e-12)
        again = part.data(after, first)
        assert (again.x is first.x) == (not bool(torch.isin(part.nodes, after.rows).any()))
        assert (again.edge_index is first.edge_index) == (again.num_edges == first.num_edges)
        assert part.data(view).num_edges <= halo(view, torch.tensor([node]), reach, "into").data(view).num_edges


SETTINGS = [
    {"layer": layer, "request_": request, "directed": directed, "loss": loss, "flow": flow}
    for layer, request, directed, loss, flow in product(LAYERS, REQUESTS, (False, True), LOSSES, FLOWS)
]


@pytest.mark.parametrize(
    ("layer", "request_", "directed", "loss", "flow"),
    [
        pytest.param(*settings.values(), marks=[] if needed else [pytest.mark.slow])
        for settings, needed in zip(SETTINGS, pairwise(SETTINGS), strict=True)
    ],
)
def test_v_from_the_region_is_v(layer: str, request_: str, directed: bool, loss: str, flow: str) -> None:
    case = Case(layer, loss, request_, directed)
    built = case.build()
    turned(built.model, flow)
    problem = Problem(built.before, built.after, built.theta, built.removal, 0, built.before.meter)
    reach = find_reach(built.model, lambda: call(built.model, built.data))
    region = influenced_region(built.data, built.removal, reach)
    for border in borders(reach):
        before = Locality(
            reach, border, built.before.nodes.numel(), built.before.mass, {}, {}, graph=GraphView.of(built.data)
        )
        assert before.graph is not None
        view, taken = take(before.graph, case.forget(built.data))
        after = before.without(taken, view, LOSSES[loss], allow_class_loss=True)
        assert after.training_nodes == built.after.nodes.numel()
        pull = local_pull(
            built.model, built.theta, taken, before, after,
            loss=LOSSES[loss], decay=built.before.decay, forward=call, meter=built.before.meter,
        )  # fmt: skip
        assert torch.equal(pull.region, region.mask.nonzero().flatten())
        assert pull.sizes == region.sizes
        assert pull.trained == int(region.mask[built.before.nodes].sum())
        assert torch.allclose(pull.v, problem.forgotten_gradient, rtol=1e-10, atol=1e-12)


def locality_of(model: nn.Module, data: object) -> Locality:
    ready = Case("gcn", "cross-entropy", "edges", False).build().before
    decay = torch.full_like(flatten(model), 1e-2)
    return find_locality(Objective(model.eval(), data, ready.loss, decay, ready.forward, ready.meter))  # type: ignore[arg-type]


class Mixing(nn.Module):
    """A GCN that looks at the mean of all nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x - x.mean(dim=0), edge_index)  # type: ignore[no-any-return]


class Rows(nn.Module):
    """A GCN with a row of its own for every node."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.table = GCNConv(8, 3), nn.Parameter(torch.ones(40, 8))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x + self.table, edge_index)  # type: ignore[no-any-return]


def test_a_model_is_tried_before_it_is_believed() -> None:
    data = multigraph(directed=False, weighted=False)
    assert locality_of(uw.models.GCN(8, 3), data).border == "merged"
    plain = locality_of(Net(GCNConv(8, 3)), data)
    assert (plain.border, plain.refusal) == ("into", None), "its forward takes no weights"
    assert locality_of(Net(ChebConv(8, 3, K=2)), data).border == "both"
    assert locality_of(uw.models.GIN(8, 3), data).border == "none"
    for model, says in ((Mixing(), "depends on more than"), (Rows(), "cannot be called on a part")):
        assert says in str(locality_of(model, data).refusal)
    normed = Net(GCNConv(8, 3))
    normed.norm = nn.BatchNorm1d(3)
    assert "statistics of the whole graph" in str(locality_of(normed, data).refusal)
