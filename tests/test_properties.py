"""What holds for any graph, any layer and any request: region, relabelling, test labels."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch_geometric.data import Data

import unweave as uw
from tests.cases import DECAY, LAYERS
from unweave.objective.parameters import flatten

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


@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_region_equals_whole_graph_and_nothing_changes_outside(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(problems(), st.sampled_from(sorted(LAYERS)))
    def holds(problem: tuple[Data, uw.Request], layer: str) -> None:
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

    holds()


@pytest.mark.parametrize("examples", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_relabelling_nodes_relabels_the_result(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(problems(), st.sampled_from(sorted(LAYERS)), st.randoms(use_true_random=False))
    def holds(problem: tuple[Data, uw.Request], layer: str, random: Any) -> None:
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

    holds()


@pytest.mark.parametrize("examples", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_test_labels_never_matter(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(problems(), st.sampled_from(["gif", "if", "finetune", "retrain"]))
    def holds(problem: tuple[Data, uw.Request], method: str) -> None:
        data, request = problem
        changed = data.clone()
        changed.y[~changed.train_mask] = 1 - changed.y[~changed.train_mask]
        recipe = uw.Recipe(epochs=2, weight_decay=DECAY)
        model = network("gcn")

        def solve(graph: Data) -> uw.Unlearned | str:
            try:
                return uw.unlearn(
                    model, graph, request, method, weight_decay=DECAY, allow_class_loss=True, recipe=recipe
                )
            except uw.SolverError as error:  # nobody trained this model, so a step may well be refused
                return str(error)

        first, second = solve(data), solve(changed)
        if isinstance(first, str) or isinstance(second, str):
            assert first == second
            return
        assert torch.equal(flatten(first.model), flatten(second.model))
        assert first.receipt.parameters == second.receipt.parameters
        assert first.receipt.objective == second.receipt.objective

    holds()
