"""A run of a model of one's own: what nobody said about its training is not known, and nothing is made up."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from unweave.objective.parameters import flatten
from unweave.testing import small_graph
from unweave.training.adam import reinitialise

DECAY = 1e-2


def train(model: torch.nn.Module, data: Data) -> None:
    """A training of one's own, that can be imported."""
    reinitialise(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=DECAY)
    for _ in range(30):
        optimiser.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        torch.nn.functional.cross_entropy(out, data.y[data.train_mask]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def model(data: Data) -> torch.nn.Module:
    torch.manual_seed(0)
    built = uw.models.SGC(data.num_features, int(data.num_classes))
    train(built, data)
    return built.eval()


def test_no_recipe_is_invented(model: torch.nn.Module, data: Data, tmp_path: Path) -> None:
    run = uw.Run(model, data, weight_decay=DECAY)
    assert not run.training.known
    path = run.forget(uw.Request(nodes=[3])).save(tmp_path / "run")
    stored = json.loads((path / "config.json").read_text())["training"]
    assert stored["recipe"] is None
    assert stored["trainer"] is None
    again = uw.Run.open(path, model=uw.models.SGC(data.num_features, int(data.num_classes)), data=data)
    assert again.training == run.training
    with pytest.raises(uw.ModelError, match="not trained by a recipe of unweave"):
        _ = again.recipe


def test_ones_own_trainer_is_kept_by_its_path_and_used(model: torch.nn.Module, data: Data, tmp_path: Path) -> None:
    run = uw.Run(model, data, weight_decay=DECAY, trainer=f"{__name__}:train", seed=3)
    path = run.save(tmp_path / "run")
    again = uw.Run.open(path, model=uw.models.SGC(data.num_features, int(data.num_classes)), data=data)
    request = uw.Request(nodes=[3])
    wanted = uw.Run(model, data, weight_decay=DECAY, seed=3).forget(request, "retrain", trainer=train)
    assert torch.equal(flatten(again.forget(request, "retrain").model), flatten(wanted.model))


def test_the_optimiser_tells_the_weight_decay(model: torch.nn.Module, data: Data) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=DECAY)
    run = uw.Run(model, data, weight_decay=optimiser)
    plain = uw.Run(model, data, weight_decay=DECAY)
    request = uw.Request(nodes=[3])
    assert torch.equal(flatten(run.forget(request).model), flatten(plain.forget(request).model))


def test_what_cannot_be_a_run_is_refused(model: torch.nn.Module, data: Data) -> None:
    with pytest.raises(uw.ModelError, match="say what the model was trained with"):
        uw.Run(model, data)
    with pytest.raises(uw.ModelError, match=r"torch\.nn\.Module"):
        uw.Run("model", data, weight_decay=0)  # type: ignore[arg-type]
    with pytest.raises(uw.DataError, match=r"torch_geometric\.data\.Data"):
        uw.Run(model, "graph", weight_decay=0)  # type: ignore[arg-type]


class Stored(torch.nn.Module):
    """A model that computes with an adjacency of its own."""

    def __init__(self, data: Data, *, sparse: bool, persistent: bool = True) -> None:
        super().__init__()
        size = data.num_nodes
        whole = torch.zeros(size, size)
        whole[data.edge_index[1], data.edge_index[0]] = 0.2
        self.register_buffer("adjacency", whole.to_sparse() if sparse else whole, persistent=persistent)
        self.linear = torch.nn.Linear(data.num_features, int(data.num_classes))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.adjacency @ self.linear(x)  # type: ignore[operator]


def test_a_model_with_a_graph_of_its_own_is_not_called_clean(data: Data) -> None:
    model = Stored(data, sparse=False).eval()
    run = uw.Run(model, data, weight_decay=DECAY)
    request = uw.draw("edges:0.1", data)
    done = run.forget(request)
    assert done.receipts[-1].grade == "doubtful"
    assert "may compute with what it keeps itself" in done.receipts[-1].verdict
    assert any("an adjacency of its own" in warning for warning in done.receipts[-1].warnings)
    with pytest.raises(uw.StrictError, match="do not rely on it"):
        run.forget(request, strict=True)


class Keeping(torch.nn.Module):
    """A model that passes messages along edges that it keeps; ``half`` of its layers take those that they are given."""

    def __init__(self, data: Data, where: str, *, half: bool = False) -> None:
        super().__init__()
        edges, self.where, self.half = data.edge_index.flip(1).clone(), where, half
        if where == "buffer":
            self.register_buffer("edges", edges)
        elif where == "attribute":
            self.edges = [edges]
        else:
            EDGES["of"] = edges
        self.first, self.second = GCNConv(data.num_features, 8), GCNConv(8, int(data.num_classes))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        own = {"buffer": lambda: self.edges, "attribute": lambda: self.edges[0], "elsewhere": lambda: EDGES["of"]}
        kept = own[self.where]()
        h: torch.Tensor = self.second(self.first(x, kept).tanh(), edge_index if self.half else kept)
        return h


EDGES: dict[str, torch.Tensor] = {}
"""Edges that no module holds."""


@pytest.mark.parametrize(
    "make",
    [
        lambda data: Keeping(data, "buffer"),
        lambda data: Keeping(data, "buffer", half=True),
        lambda data: Keeping(data, "attribute", half=True),
        lambda data: Stored(data, sparse=True),
    ],
)
def test_a_model_that_holds_the_edges_is_refused(data: Data, make: Callable[[Data], torch.nn.Module]) -> None:
    model, says = make(data), "holds edges of the graph itself, in '(edges|edges.0|adjacency)'"
    for request in (uw.draw("edges:0.1", data), uw.draw("nodes:0.1", data)):
        with pytest.raises(uw.ModelError, match=says):
            uw.unlearn(model, data, request, weight_decay=DECAY)
    for refused in (uw.polish, uw.prepare):
        with pytest.raises(uw.ModelError, match=says):
            refused(model, data, weight_decay=DECAY)
    with pytest.raises(uw.ModelError, match=says):
        uw.train(model, data, epochs=1)


def test_a_model_whose_edges_nobody_can_see_is_not_called_clean(data: Data) -> None:
    done = uw.unlearn(Keeping(data, "elsewhere"), data, uw.draw("edges:0.1", data), weight_decay=DECAY)
    assert done.receipt.grade == "doubtful"
    assert "do not rely on it" in done.receipt.verdict


def test_tensors_of_pairs_that_are_not_the_edges_are_no_graph(data: Data) -> None:
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=4)
    model.register_buffer("pairs", torch.randint(data.num_nodes, (2, 50), generator=torch.Generator().manual_seed(0)))
    uw.train(model, data, epochs=2)
    assert uw.unlearn(model, data, uw.draw("edges:0.1", data), weight_decay=DECAY).receipt.grade != "doubtful"


def test_a_sparse_table_of_the_nodes_is_named_and_not_stored(data: Data, tmp_path: Path) -> None:
    """Some of a row that is left of a deleted node is told; a run has dense tensors alone."""
    table = torch.zeros(data.num_nodes, 3)
    table[:, 0] = torch.arange(data.num_nodes)
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=4)
    model.register_buffer("table", table.to_sparse())
    uw.train(model, data, epochs=2)
    node = int(data.train_mask.nonzero()[3])
    done = uw.Run(model, data, weight_decay=DECAY).forget(uw.Request(nodes=[node]))
    (found,) = (trace for trace in done.receipts[-1].remembers if trace["where"] == "table")
    assert found["state"] == "kept"
    assert "keeps that of a deleted node as it was" in " ".join(found.values())
    with pytest.raises(uw.ModelError, match="table of the model is sparse"):
        done.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_rehearsal_leaves_the_model_in_the_mode_it_was_in(data: Data, model: torch.nn.Module) -> None:
    model.train()
    try:
        uw.Run(model, data, weight_decay=DECAY, trainer=train).rehearse("nodes:0.1")
        assert model.training
    finally:
        model.eval()
