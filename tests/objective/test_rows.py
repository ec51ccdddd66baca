"""Rows of PᵏX of a folder: exactly those of the whole graph, before and after every kind of request."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from tests.folders import graph
from unweave._core.cost import Meter
from unweave.curvature.products import products
from unweave.errors import DataError
from unweave.graph.removal import remove, take
from unweave.graph.view import GraphView
from unweave.models.propagation import by_rows, propagation_of
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.parts import propagating
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.parts.propagated import Table, table_of
from unweave.objective.parts.rows import Rows

EVERYONE = torch.arange(60)
COLUMN = 60 * 8.0
"""Bytes for a column at a time."""


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few at a time as makes every loop go round."""
    monkeypatch.setattr("unweave._core.mapped.WINDOW", 100)
    monkeypatch.setattr("unweave._core.mapped.GATHERED", 10)
    monkeypatch.setattr("unweave.datasets.edges.PART", 50)
    monkeypatch.setattr("unweave.objective.parts.propagated.EDGES", 60)
    monkeypatch.setattr("unweave.objective.parts.propagated.HELD", 4000)
    monkeypatch.setattr(propagating, "EDGES", 60)
    monkeypatch.setattr(propagating, "ROWS", 40)
    monkeypatch.setattr("unweave.objective.parts.rows.TOGETHER", 20)


def models(unit: bool) -> list[nn.Module]:
    made = uw.models.SGC(5, 3, unit=unit), uw.models.SIGN(5, 3, hidden=4, unit=unit, dropout=0.0)
    return [model.double().eval() for model in made]


def whole(model: nn.Module, data: Data) -> Tensor:
    with torch.no_grad():
        return call(model, data)


def requests(data: Data, loops: bool) -> list[uw.Request]:
    edges = [(int(u), int(v)) for u, v in data.edge_index[:, [3, 40]].t()]
    found = [
        uw.Request(nodes=[7]),
        uw.Request(edges=edges),
        uw.Request(features={9: [1], 0: [0, 1]}),
        uw.Request(nodes=[0, 58], features={9: [2]}),
    ]
    return [*found, uw.Request(edges=[(3, 3)])] if loops else found


@pytest.mark.parametrize(("directed", "weighted", "loops"), list(product((False, True), repeat=3)))
def test_rows_are_those_of_the_whole_graph_after_every_request(
    tmp_path: Path, directed: bool, weighted: bool, loops: bool
) -> None:
    data = graph(directed=directed, weighted=weighted, loops=loops)
    folder = uw.load_folder(uw.save_folder(data, tmp_path / "g"))
    for model in (*models(False), *models(True)):
        what = propagation_of(model)
        assert what is not None
        view, left = GraphView.of(folder), data
        table = table_of(view, what, COLUMN)
        assert torch.allclose(by_rows(model, Data(x=table.rows(EVERYONE))), whole(model, data), rtol=0, atol=1e-10)
        for request in requests(data, loops):
            before = view
            view, left = take(view, request)[0], remove(left, request).data
            assert before.notes[what] is table
            table = table_of(view, what, COLUMN)
            found = by_rows(model, Data(x=table.rows(EVERYONE)))
            assert torch.allclose(found, whole(model, left), rtol=0, atol=1e-10), request
            assert 0 < table.recomputed <= table.differing
        assert torch.allclose(  # at once, as when a run is opened
            table_of(take(GraphView.of(folder), _all(data, loops))[0], what, COLUMN).rows(EVERYONE),
            table.rows(EVERYONE),
            rtol=0,
            atol=1e-10,
        )


def _all(data: Data, loops: bool) -> uw.Request:
    return uw.Request.merged(requests(data, loops), undirected=GraphView.of(data).undirected)


def test_only_rows_within_reach_are_computed_anew_and_only_where_asked_for(tmp_path: Path) -> None:
    """A path of 60 nodes: an edge in the middle changes what is at most two steps from it."""
    ends = torch.stack([torch.arange(59), torch.arange(1, 60)])
    data = graph()
    data.edge_index = torch.cat([ends, ends.flip(0)], dim=1)
    folder = uw.load_folder(uw.save_folder(data, tmp_path / "g"))
    model = uw.models.SIGN(5, 3, hidden=4, layers=2)
    what = propagation_of(model)
    assert what is not None
    view = GraphView.of(folder)
    table_of(view, what, COLUMN)
    after, _ = take(view, uw.Request(edges=[(29, 30)]))
    table: Table = table_of(after, what, COLUMN)
    assert table.differing == 2 + 4
    table.rows(torch.tensor([5, 50]))
    assert table.recomputed == 0
    table.rows(torch.tensor([28]))
    assert table.recomputed == 1 + 1  # its own row of P²X, and that of PX of its neighbour 29
    table.rows(EVERYONE)
    assert table.recomputed == 6


def test_the_files_are_computed_once_and_appear_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = uw.load_folder(uw.save_folder(graph(), tmp_path / "g"))
    what = propagation_of(uw.models.SGC(5, 3))
    assert what is not None

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(propagating, "_step", fail)
        with pytest.raises(DataError, match="no space left"):
            table_of(GraphView.of(folder), what, COLUMN)
    assert not list((tmp_path / "g" / "propagated").iterdir())
    wanted = table_of(GraphView.of(folder), what, COLUMN).rows(EVERYONE)
    assert len(list((tmp_path / "g" / "propagated").glob("*.npy"))) == 2
    monkeypatch.setattr(propagating, "_step", fail)
    again = uw.load_folder(tmp_path / "g")
    assert torch.equal(table_of(GraphView.of(again), what, COLUMN).rows(EVERYONE), wanted)


@pytest.mark.parametrize("memory_mib", [1.0, 0.02])
def test_objective_and_curvature_on_rows_are_those_of_the_whole_graph(tmp_path: Path, memory_mib: float) -> None:
    data = graph(weighted=True)
    folder = uw.load_folder(uw.save_folder(data, tmp_path / "g"))
    for model in models(False):
        decay = decay_vector(model, 1e-2)
        rows = bounded_objective(model, folder, 1e-2, cross_entropy, call, Meter(torch.device("cpu")), memory_mib)
        assert isinstance(rows, Rows)
        ordinary = Objective(model, data, cross_entropy, decay, call, Meter(torch.device("cpu")))
        theta = flatten(model)
        mine, theirs = rows.evaluate(theta), ordinary.evaluate(theta)
        assert mine[0] == pytest.approx(theirs[0], abs=1e-10)
        assert torch.allclose(mine[1], theirs[1], rtol=0, atol=1e-10)
        v = torch.randn_like(theta)
        for kind in ("gauss-newton", "hessian"):
            one, other = (products(kind, objective.at(theta))(v) for objective in (rows, ordinary))
            assert torch.allclose(one, other, rtol=0, atol=1e-10)
        seen = data.train_mask | data.val_mask | data.test_mask
        assert torch.allclose(rows.outputs(theta)[seen], whole(model, data)[seen], rtol=0, atol=1e-10)
        with pytest.raises(uw.UnweaveError, match="serve that folder alone"):
            rows.anew(model, data)


def test_without_a_budget_a_folder_is_taken_as_any_graph_is(tmp_path: Path) -> None:
    data = graph()
    folder = uw.load_folder(uw.save_folder(data, tmp_path / "g"))
    requests = [uw.Request(nodes=[3], features={9: [0]}), uw.Request(edges=[(0, 7)])]
    models = []
    for here in (folder, data):
        torch.manual_seed(0)
        model = uw.models.SGC(5, 3).double()
        run = uw.train(model, here, weight_decay=1e-2, epochs=20).prepare().forget(requests)
        models.append(parameters(run))
        run.save(tmp_path / f"run{len(models)}")
    assert torch.allclose(*models, rtol=0, atol=1e-10)
    again = uw.Run.open(tmp_path / "run1", data=uw.load_folder(tmp_path / "g")).verify()
    again = again.forget(uw.Request(nodes=[8]), memory_mib=64.0, out=tmp_path / "run3")
    uw.Run.open(tmp_path / "run3", data=uw.load_folder(tmp_path / "g")).verify(memory_mib=64.0)
    assert bool(folder.x[3].any())
    uw.Run.open(tmp_path / "run2", data=folder).verify()  # what is left of both is the same


def parameters(run: uw.Run) -> Tensor:
    return flatten(run.model).detach()


@pytest.mark.parametrize("name", ["sgc", "sign", pytest.param("gcn", marks=pytest.mark.slow)])
def test_a_run_on_a_folder_does_what_one_in_memory_does(tmp_path: Path, name: str) -> None:
    """Train, forget, save, open, defer, verify, prepare, a stream, retrain: nothing of the graph is copied."""
    data, some = graph(weighted=True), {"memory_mib": 64.0}
    uw.save_folder(data, tmp_path / "g")
    files = {path.name: path.read_bytes() for path in (tmp_path / "g").iterdir()}
    how = {"sgc": {}, "sign": {"hidden": 4, "dropout": 0.0, "direct": 3.0}, "gcn": {"hidden": 4, "dropout": 0.0}}[name]
    runs = []
    for here, bound in ((uw.load_folder(tmp_path / "g"), some), (data, {})):
        torch.manual_seed(0)
        model = uw.models.MODELS[name](5, 3, **how).double()
        runs.append(uw.train(model, here, forgettable=True, weight_decay=1e-2, epochs=10, **bound))  # type: ignore[arg-type]
    mine, theirs = runs
    assert torch.allclose(parameters(mine), parameters(theirs), rtol=0, atol=1e-8)
    edge = (int(data.edge_index[0, 70]), int(data.edge_index[1, 70]))
    request = uw.Request(nodes=[5], edges=[edge], features={9: [1]}, labels=[1])
    mine, theirs = mine.forget(request, out=tmp_path / "run", memory_mib=64.0), theirs.forget(request)
    assert torch.allclose(parameters(mine), parameters(theirs), rtol=0, atol=1e-8)
    assert mine.metrics["test_loss"] == pytest.approx(theirs.metrics["test_loss"], abs=1e-8)
    rows = mine.receipts[-1].details["in_blocks"].get("rows")
    assert (rows is None) == (name == "gcn")
    if rows is not None:
        assert 0 < rows["recomputed"] <= rows["differing"] <= 3 * 60
        assert any(trace["where"].endswith("propagated") for trace in mine.receipts[-1].remembers)
    mine = uw.Run.open(tmp_path / "run", data=uw.load_folder(tmp_path / "g"))
    assert isinstance(mine.state.graph, GraphView)
    mine.verify(memory_mib=64.0)
    hub = uw.Request(nodes=[0])
    mine, theirs = mine.forget(hub, defer=True), theirs.forget(hub, defer=True)
    assert torch.allclose(parameters(mine), parameters(theirs), rtol=0, atol=1e-7)
    if name != "gcn":
        assert mine.receipts[-1].region["rows"] == theirs.receipts[-1].region["training_nodes"]
        assert mine.receipts[-1].region["rows_recomputed"] > 0
    mine, theirs = mine.verify(memory_mib=64.0), theirs.verify()
    left = [run.receipts[-1].residual_influence for run in (mine, theirs)]
    assert left[0] == pytest.approx(left[1], rel=1e-5)
    stream = [uw.Request(nodes=[11]), uw.Request(nodes=[12])]
    method = "gif" if name == "gcn" else "retrain"  # what is rehearsed for a damping is another on rows
    mine = mine.prepare(memory_mib=64.0).forget(stream, method, memory_mib=64.0, out=tmp_path / "run2")
    theirs = theirs.prepare().forget(stream, method)
    assert torch.allclose(parameters(mine), parameters(theirs), rtol=0, atol=1e-6)
    mine.preview(uw.Request(nodes=[13]), memory_mib=64.0)
    assert isinstance(mine.state.graph, GraphView)
    assert "data" not in vars(mine.state.graph) or name == "gcn"
    assert {path.name: path.read_bytes() for path in (tmp_path / "g").iterdir() if path.is_file()} == files
