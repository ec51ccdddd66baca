"""Evaluation in blocks: the same numbers as on the whole graph, in bounded memory."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GCNConv, SAGEConv

import unweave as uw
from tests.cases import LAYERS, LOSSES, Built, Case, Net, pairwise
from tests.graph.test_neighbourhood import Mixing, Rows
from tests.graph.test_view import multigraph
from unweave._core.cost import Meter
from unweave._core.memory import MIB, TensorBytes
from unweave._core.tuning import tuned
from unweave.curvature.products import products
from unweave.graph.view import GraphView
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.parts.localising import find_locality, find_locality_in_parts

pytestmark = pytest.mark.usefixtures("part")

AMPLE = 1024.0
DECAY = 1e-3


def blocks_of(case: Case, size: int) -> tuple[Blocks, Built]:
    built = case.build()
    whole = built.after
    locality = find_locality(whole)
    assert locality.refusal is None
    kinds = ("gradient", "losses", "outputs", "gauss-newton", "hessian", "gradient of some")
    sizes = dict.fromkeys(kinds, size)
    return Blocks(whole.model, locality, whole.loss, whole.decay, call, whole.meter, AMPLE, sizes), built


SETTINGS = [
    {"layer": layer, "loss": loss, "directed": directed, "size": size}
    for layer, loss, directed, size in product(LAYERS, LOSSES, (False, True), (100, 7, 1))
]
"""Large blocks first, of which there are few to evaluate: of two rows that add as much, the first is chosen."""


@pytest.mark.parametrize(
    ("layer", "loss", "directed", "size"),
    [
        pytest.param(*settings.values(), marks=[] if needed else [pytest.mark.slow])
        for settings, needed in zip(SETTINGS, pairwise(SETTINGS), strict=True)
    ],
)
def test_blocks_of_any_size_agree_with_the_whole_graph(layer: str, loss: str, directed: bool, size: int) -> None:
    blocks, built = blocks_of(Case(layer, loss, "mixed", directed), size)
    whole = built.after
    here, there = blocks.at(built.theta), whole.at(built.theta)
    assert torch.equal(blocks.nodes, whole.nodes)
    assert here.value == pytest.approx(there.value, rel=1e-12)
    v = torch.linspace(-1, 1, built.theta.numel(), dtype=torch.float64)
    mask = torch.arange(built.data.num_nodes) % 2 == 0
    pairs = [
        (here.losses, there.losses),
        (here.outputs, there.outputs),
        (here.gradient(), there.gradient()),
        (here.loss_gradient(mask), there.loss_gradient(mask)),
        *((products(kind, here)(v), products(kind, there)(v)) for kind in ("gauss-newton", "hessian")),
    ]
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        assert blocks.at(built.theta).value == pytest.approx(there.value, rel=1e-12)
    assert len(blocks.found["gradient"]) == -(-blocks.nodes.numel() // size)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_border_is_found_without_the_whole_graph(layer: str, directed: bool) -> None:
    built = Case(layer, "cross-entropy", "edges", directed).build()
    wanted = find_locality(built.before)
    assert wanted.graph is not None
    found = find_locality_in_parts(
        built.model, wanted.graph, built.before.loss, built.before.decay, call, AMPLE * 2**20
    )
    assert (found.border, found.reach, found.refusal) == (wanted.border, wanted.reach, wanted.refusal)
    assert (found.training_nodes, found.classes) == (wanted.training_nodes, wanted.classes)


def generated(nodes: int = 20_000, *, width: int = 32, train: float = 0.1, degree: int = 10) -> Data:
    """A graph of that average degree whose edges join nodes of nearby ids."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randint(nodes, (degree * nodes // 2,), generator=generator)
    v = (u + torch.randint(1, nodes // 100, u.shape, generator=generator)) % nodes
    pairs = torch.stack([torch.cat([u, v]), torch.cat([v, u])])
    return Data(
        x=torch.randn(nodes, width, generator=generator),
        edge_index=torch.unique(pairs, dim=1),
        y=torch.randint(8, (nodes,), generator=generator),
        train_mask=torch.rand(nodes, generator=generator) < train,
    )


def two_layers(kind: type[nn.Module], width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return Net(kind(width, 64), kind(64, 8))


@pytest.mark.parametrize("kind", [GCNConv, SAGEConv])
@pytest.mark.slow
def test_the_budget_is_kept_where_the_whole_graph_exceeds_it(kind: type[nn.Module]) -> None:
    data, model, budget = generated(), two_layers(kind), 32.0
    _ = GraphView.of(data).index  # it is remembered with the graph
    request = uw.draw("edges:0.01", data)
    peaks, models = {}, {}
    for memory in (None, budget):
        with TensorBytes() as preparing:
            ready = uw.prepare(model, data, weight_decay=DECAY, rank=4, memory_mib=memory)
        with TensorBytes() as forgetting:
            done = uw.unlearn(model, data, request, weight_decay=DECAY, prepared=ready, memory_mib=memory)
        peaks[memory], models[memory] = (preparing.peak / MIB, forgetting.peak / MIB), flatten(done.model)
    beside = 4 * (3 * 8 * data.num_nodes + 40 * models[None].numel()) / MIB  # outputs, and vectors as long as θ
    assert max(peaks[budget]) <= budget + beside < 2 * budget < min(peaks[None])
    moved = (models[None] - flatten(model)).norm()
    assert float((models[budget] - models[None]).norm() / moved) < 1e-3
    told = done.receipt.details["in_blocks"]
    assert told["largest_mib"] <= told["memory_mib"] == budget
    assert told["blocks"]["gradient"] > 1


@pytest.mark.parametrize(("memory", "most"), [(24.0, 1), (15.0, 8)])
def test_finding_the_size_of_blocks_costs_less_than_two_evaluations(memory: float, most: int) -> None:
    """Of a graph where a few hundred nodes hear of all: a block of twice as many takes hardly more."""
    data, model = generated(4000, train=0.8), two_layers(SAGEConv)
    data.edge_index = torch.randint(4000, (2, 40_000), generator=torch.Generator().manual_seed(0))
    blocks = bounded_objective(model, data, DECAY, as_loss(cross_entropy), call, Meter(torch.device("cpu")), memory)
    theta, passes = flatten(model), []
    for _ in range(2):
        before = blocks.meter.passes
        blocks.evaluate(theta)
        passes.append(blocks.meter.passes - before)
    assert passes[0] - passes[1] < 4, "an evaluation of the graph is two passes"
    assert (len(blocks.found["gradient"]) == 1) == (most == 1)
    assert len(blocks.found["gradient"]) <= most
    assert blocks.peak <= memory * MIB


def test_a_budget_too_small_for_one_node_says_what_it_takes() -> None:
    data, model = generated(2000), two_layers(GCNConv)
    ready = uw.prepare(model, data, weight_decay=DECAY, rank=4)
    request = uw.draw("edges:0.01", data)
    with pytest.raises(uw.BudgetError, match=r"too little: node \d+ alone, .* takes .* MiB"):
        uw.unlearn(model, data, request, weight_decay=DECAY, prepared=ready, memory_mib=0.05)
    with pytest.raises(uw.BudgetError, match=r"too little to call the model .* takes .* MiB"):
        uw.prepare(model, data, weight_decay=DECAY, memory_mib=0.05)


LITTLE = 0.3
"""MiB in which a part of the demo graph, with a twentieth of its features, has to be evaluated in several blocks."""


@pytest.fixture(scope="module")
def demo() -> Data:
    data = uw.load("demo")
    data.x = data.x[:, ::20].double()
    return data


@pytest.fixture(scope="module", params=[False, True], ids=["ordinary", "forgettable"])
def run(request: pytest.FixtureRequest, demo: Data) -> uw.Run:
    torch.manual_seed(0)
    return uw.train(
        Net(GCNConv(demo.num_features, demo.num_classes)).double(), demo, forgettable=request.param, weight_decay=1e-2
    )


@pytest.mark.parametrize(
    ("what", "method"),
    [
        *(("edges:0.05", method) for method in ("gif", "if", "lbfgs", "none")),
        *((what, "gif") for what in ("nodes:0.05,labels:0.02", "features:0.1")),
    ],
)
def test_a_request_in_bounded_memory_gives_the_same_model(run: uw.Run, demo: Data, what: str, method: str) -> None:
    request = uw.draw(what, demo)
    whole, bounded = (run.forget(request, method, memory_mib=memory) for memory in (None, LITTLE))
    torch.testing.assert_close(flatten(bounded.model), flatten(whole.model), rtol=1e-6, atol=1e-8)
    assert bounded.metrics == pytest.approx(whole.metrics)
    one, other = bounded.receipts[-1], whole.receipts[-1]
    assert one.residual_influence == pytest.approx(other.residual_influence, rel=1e-6)
    for key in one.objective.keys() - {"loss"}:
        assert one.objective[key] == pytest.approx(other.objective[key], rel=1e-6, abs=1e-9)
    assert (one.removed, one.graph, one.region) == (other.removed, other.graph, other.region)
    proof = (other.certificate or {}).get("passes", 0)  # only the whole graph is looked at for a certificate
    assert one.passes > other.passes - proof, "halos overlap"
    assert one.details["in_blocks"]["blocks"]["gradient"] > 1
    assert (bounded.prepared is None) == (whole.prepared is None)


def test_prepared_in_bounded_memory_and_a_second_request(run: uw.Run, demo: Data, tmp_path: Path) -> None:
    with tuned(spectrum={"rank": 8, "spare": 4, "bend_products": 8}):  # a product takes every block
        whole, bounded = run.prepare(), run.prepare(memory_mib=LITTLE)
    assert whole.prepared is not None
    assert bounded.prepared is not None
    torch.testing.assert_close(bounded.prepared.curvature.values, whole.prepared.curvature.values)
    assert bounded.prepared.damping == pytest.approx(whole.prepared.damping)
    assert bounded.prepared.at_minimum == whole.prepared.at_minimum
    first = bounded.forget(uw.draw("nodes:0.02", demo), memory_mib=LITTLE)
    assert isinstance(first.state.graph, GraphView)
    second = first.forget(uw.draw("edges:0.02", first.data, seed=1), memory_mib=LITTLE)
    wanted = whole.forget(uw.draw("nodes:0.02", demo))
    wanted = wanted.forget(uw.draw("edges:0.02", wanted.data, seed=1))
    torch.testing.assert_close(flatten(second.model), flatten(wanted.model), rtol=1e-6, atol=1e-8)
    second.save(tmp_path / "run")
    assert uw.Run.open(tmp_path / "run", model=second.model, data=demo).metrics == second.metrics


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation that returns something as large as a matrix that is not the matrix."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most, self.own, self.met = x.numel(), x.untyped_storage().data_ptr(), list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            large = isinstance(made, Tensor) and made.numel() >= self.most
            if large and made.untyped_storage().data_ptr() != self.own:
                self.met.append(str(func))
        return result


def test_features_in_a_memory_map_are_never_read_whole(tmp_path: Path) -> None:
    data = generated(20_000, width=128, train=0.004, degree=4)
    size = data.x.numel()
    data.x.numpy().tofile(tmp_path / "x.bin")
    data.x = torch.from_file(str(tmp_path / "x.bin"), shared=True, size=size).view(data.x.shape)
    model = two_layers(SAGEConv, 128)
    _ = GraphView.of(data).index
    request = uw.Request(nodes=[5, 9], features={77: "all"}, edges=[tuple(data.edge_index[:, 1000].tolist())])
    with Copies(data.x) as copies:
        ready = uw.prepare(model, data, weight_decay=DECAY, rank=4, memory_mib=2)
        done = uw.unlearn(model, data, request, weight_decay=DECAY, prepared=ready, memory_mib=2)
    assert copies.met == []
    assert done.receipt.details["in_blocks"]["blocks"]["gradient"] > 1
    assert done.data.x[77].abs().sum() == 0
    assert data.x[77].abs().sum() > 0


def test_models_that_need_the_whole_graph_are_refused() -> None:
    data = multigraph(directed=False, weighted=False)
    normed = Net(GCNConv(8, 3), BatchNorm(3))
    normed.forward = lambda x, edge_index: normed.layers[1](normed.layers[0](x, edge_index))  # type: ignore[method-assign]
    for model, says in (
        (Mixing(), "cannot be bounded: the output of node"),
        (Rows(), "cannot be called on a part"),
        (normed, "statistics of the whole graph"),
    ):
        with pytest.raises(uw.ModelError, match=says):
            uw.prepare(model, data, weight_decay=DECAY, memory_mib=64)
        request = uw.Request(nodes=[1])
        with pytest.raises(uw.ModelError, match=says):
            uw.unlearn(model, data, request, weight_decay=DECAY, memory_mib=64)


def test_options_that_clash_are_refused(run: uw.Run, demo: Data) -> None:
    request = uw.draw("edges:0.01", demo)
    for memory in (0, -1, True, "64", float("nan")):
        with pytest.raises(uw.MethodError, match="positive number of MiB"):
            run.forget(request, memory_mib=memory)  # type: ignore[arg-type]
    for method in ("gif-published", "closed-form"):
        with pytest.raises(uw.MethodError, match="calls the model on the whole graph"):
            run.forget(request, method, memory_mib=64)
    ready = run.prepare()
    with pytest.raises(uw.MethodError, match="does nothing when deferring"):
        ready.forget(request, defer=True, memory_mib=64)
    with pytest.raises(uw.ModelError, match="hops does nothing with memory_mib"):
        uw.unlearn(run.model, demo, request, weight_decay=DECAY, hops=1, memory_mib=64)
