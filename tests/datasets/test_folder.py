"""Graphs in folders: what is written is what is mapped, nothing is written to, and what is wrong is refused."""

import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import unweave as uw
from tests.folders import graph
from unweave._core.mapped import blank, mapped, rows_of, sha_of, stamp_of, structure_of
from unweave.datasets.folder import read_sizes, renew_seal, seal_folder
from unweave.errors import DataError, IntegrityError
from unweave.graph.index import graph_index, is_undirected, symmetric, uneven_pairs
from unweave.graph.removal import check_request, remove, take
from unweave.graph.view import GraphView, digest_of
from unweave.objective.parameters import flatten

KINDS = list(product((False, True), (False, True), (False, True)))


@pytest.mark.parametrize(("directed", "weighted", "loops"), KINDS)
def test_a_graph_comes_back_as_it_was_and_is_indexed_off_its_files(
    tmp_path: Path, directed: bool, weighted: bool, loops: bool
) -> None:
    data = graph(directed=directed, weighted=weighted, loops=loops)
    found = uw.load_folder(uw.save_folder(data, tmp_path / "g"), verify=True)
    assert set(found.to_dict()) == set(data.to_dict()) - {"split_seed"}
    for key in (key for key, value in data.to_dict().items() if isinstance(value, torch.Tensor)):
        assert torch.equal(found[key], data[key]), key
        assert mapped(found[key]) is not None
    values = (data.edge_weight,) if weighted else ()
    assert is_undirected(found) is symmetric(data.edge_index, 60, *values) is not directed
    assert uneven_pairs(found.edge_index, 60) == uneven_pairs(data.edge_index, 60, *values)
    here, there = (graph_index(g.edge_index, g.get("edge_weight"), 60) for g in (found, data))
    nodes = torch.tensor([0, 59, 3, 7, 8])
    for mine, theirs in ((here.out, there.out), (here.into, there.into)):
        assert torch.equal(mine.degree, theirs.degree)
        assert torch.allclose(mine.weight, theirs.weight, rtol=1e-12)
        got, wanted = ({tuple(row) for row in torch.stack(side.at(nodes)).t().tolist()} for side in (mine, theirs))
        assert got == wanted
    assert torch.equal(here.loop_nodes, there.loop_nodes)
    assert structure_of(data.edge_index) is None


def test_the_same_request_is_drawn_from_a_folder(tmp_path: Path) -> None:
    for directed in (False, True):
        data = graph(directed=directed)
        found = uw.load_folder(uw.save_folder(data, tmp_path / f"g{directed}"))
        assert uw.draw("edges:0.1,nodes:0.1", found, seed=3) == uw.draw("edges:0.1,nodes:0.1", data, seed=3)


def test_a_request_leaves_the_same_graph_and_a_digest_that_knows_it(tmp_path: Path) -> None:
    data = graph(weighted=True)
    found = uw.load_folder(uw.save_folder(data, tmp_path / "g"))
    before = (tmp_path / "g" / "x.npy").read_bytes()
    edge = tuple(data.edge_index[:, 5].tolist())
    request = uw.Request(nodes=[4], edges=[edge], features={9: [1, 2]}, labels=[1])
    view, _ = take(GraphView.of(found), request)
    left = remove(data, request).data
    for key in ("x", "edge_index", "edge_weight", "y", "train_mask"):
        assert torch.equal(torch.nan_to_num(view.data[key]), torch.nan_to_num(left[key])), key
    assert (tmp_path / "g" / "x.npy").read_bytes() == before
    assert bool(found.x[4].any())
    again, _ = take(GraphView.of(uw.load_folder(tmp_path / "g")), request)
    other, _ = take(GraphView.of(found), uw.Request(nodes=[4]))
    assert digest_of(view) == digest_of(again) != digest_of(other)
    with pytest.raises(uw.RequestError, match="not in the graph"):
        check_request(found, uw.Request(edges=[(58, 59)]))


def test_writing_to_a_mapped_tensor_leaves_the_file_and_is_noticed(tmp_path: Path) -> None:
    found = uw.load_folder(uw.save_folder(graph(), tmp_path / "g"))
    view, digest = GraphView.of(found), digest_of(found)
    before = (tmp_path / "g" / "x.npy").read_bytes()
    found.x[0] = 7.0
    assert (tmp_path / "g" / "x.npy").read_bytes() == before
    assert mapped(found.x) is None
    assert not view.untouched
    assert digest_of(found) != digest


def test_arrays_that_somebody_wrote_are_sealed(tmp_path: Path) -> None:
    data = graph(directed=True)
    uw.save_folder(data, tmp_path / "whole")
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("x", "y", "train_mask", "indptr"):
        (folder / f"{name}.npy").write_bytes((tmp_path / "whole" / f"{name}.npy").read_bytes())
    np.save(folder / "indices.npy", data.edge_index[0].numpy().astype(np.int32))
    found = uw.load_folder(seal_folder(folder))
    assert torch.equal(found.edge_index, data.edge_index)
    assert found.get("val_mask") is None


def cut(folder: Path) -> None:
    with (folder / "x.npy").open("r+b") as stream:
        stream.truncate(1000)


def other_bytes(folder: Path) -> None:
    x = np.load(folder / "x.npy")
    np.save(folder / "x.npy", x + 1)


def out_of_range(folder: Path) -> None:
    edges = np.load(folder / "edge_index.npy")
    edges[0, -1] = 60
    np.save(folder / "edge_index.npy", edges)


def unsorted(folder: Path) -> None:
    edges = np.load(folder / "edge_index.npy")
    edges[:, [4, 5]] = edges[:, [5, 4]]
    np.save(folder / "edge_index.npy", edges)


def one_way(folder: Path) -> None:
    edges = np.load(folder / "edge_index.npy")
    last = edges[0][edges[1] == edges[1, -1]]
    edges[0, -1] = last[-2] + 1 if last[-2] + 1 < last[-1] else last[-1] + 1
    np.save(folder / "edge_index.npy", edges)


def wrong_start(folder: Path) -> None:
    start = np.load(folder / "indptr.npy")
    start[5] += 1
    np.save(folder / "indptr.npy", start)


def pickled(folder: Path) -> None:
    np.save(folder / "y.npy", np.array([{}] * 60, dtype=object), allow_pickle=True)
    document = json.loads((folder / "graph.json").read_text())
    document["files"]["y.npy"]["bytes"] = (folder / "y.npy").stat().st_size
    (folder / "graph.json").write_text(json.dumps(document))


def gone(folder: Path) -> None:
    (folder / "train_mask.npy").unlink()


def elsewhere(folder: Path) -> None:
    document = json.loads((folder / "graph.json").read_text())
    document["files"]["../x.npy"] = document["files"].pop("x.npy")
    (folder / "graph.json").write_text(json.dumps(document))


def other_format(folder: Path) -> None:
    document = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(document | {"format": "unweave-graph-9"}))


def no_json(folder: Path) -> None:
    (folder / "graph.json").write_text("{")


def forge(folder: Path) -> None:
    """Let ``graph.json`` say that files are as they were sealed."""
    try:
        document = json.loads((folder / "graph.json").read_text())
    except ValueError:
        return
    for name, file in document["files"].items():
        if (folder / name).exists() and (folder / name).stat().st_size == file["bytes"]:
            file |= {"sha256": sha_of(folder / name), **stamp_of(folder / name)}
    (folder / "graph.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, "cut off"),
        (out_of_range, "outside 0 … 59"),
        (unsorted, "sorted by target"),
        (one_way, "undirected=True"),
        (wrong_start, "indptr"),
        (pickled, "cannot be mapped"),
        (gone, "train_mask"),
        (elsewhere, "x.npy"),
        (other_format, "unweave-graph-9"),
        (no_json, "does not describe a graph"),
    ],
)
def test_what_is_wrong_with_a_folder_is_refused(tmp_path: Path, spoil: object, message: str) -> None:
    folder = uw.save_folder(graph(), tmp_path / "g")
    assert callable(spoil)
    spoil(folder)
    forge(folder)
    with pytest.raises(DataError, match=message):
        uw.load_folder(folder)


def test_other_bytes_are_noticed_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = uw.save_folder(graph(), tmp_path / "g")
    then = (folder / "x.npy").stat().st_mtime_ns
    other_bytes(folder)
    os.utime(folder / "x.npy", ns=(then, then))  # as if nobody had been there
    uw.load_folder(folder)
    with pytest.raises(IntegrityError, match=r"x\.npy is not the file"):
        uw.load_folder(folder, verify=True)


def test_what_a_folder_cannot_hold_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    data = graph()
    data.edge_attr = torch.zeros(data.num_edges, 2)
    with pytest.raises(DataError, match=r"cannot hold data\.edge_attr"):
        uw.save_folder(data, tmp_path / "g")
    twice = graph()
    twice.edge_index = torch.cat([twice.edge_index, twice.edge_index[:, :1]], dim=1)
    with pytest.raises(DataError, match="more than once"):
        uw.save_folder(twice, tmp_path / "g")
    bad = graph()
    bad.x[7, 1] = torch.nan
    with pytest.raises(DataError, match="not finite"):
        uw.save_folder(bad, tmp_path / "g")
    assert not list(tmp_path.iterdir())
    uw.save_folder(graph(), tmp_path / "g")
    with pytest.raises(DataError, match="exists already"):
        uw.save_folder(graph(), tmp_path / "g")
    with pytest.raises(DataError, match="no folder of a graph"):
        uw.load_folder(tmp_path / "nothing")


def test_a_file_that_was_written_to_is_read_and_refused(tmp_path: Path) -> None:
    folder = uw.save_folder(graph(), tmp_path / "graph")
    x = np.load(folder / "x.npy")
    x[3] += 1
    np.save(folder / "x.npy", x)
    with pytest.raises(IntegrityError, match=r"x\.npy is not the file that was sealed"):
        uw.load_folder(folder)


def test_a_copy_is_compared_with_its_digests_once_it_is_verified_no_more(tmp_path: Path) -> None:
    folder = uw.save_folder(graph(), tmp_path / "graph")
    for file in folder.glob("*.npy"):
        os.utime(file, ns=(1, 1))
    assert uw.load_folder(folder).num_nodes == 60
    renew_seal(folder)
    known = read_sizes(folder)["files"]
    assert {file["mtime_ns"] for file in known.values()} == {1}
    assert uw.load_folder(folder, verify=True).num_nodes == 60


def test_what_is_propagated_is_made_anew_where_it_is_not_as_it_was_written(tmp_path: Path) -> None:
    folder = uw.save_folder(graph(), tmp_path / "graph")

    def trained() -> Tensor:
        torch.manual_seed(0)
        model = uw.models.SGC(5, 3).double()
        run = uw.train(model, uw.load_folder(folder), epochs=3, weight_decay=1e-2, examine=False, memory_mib=16)
        return flatten(run.model)

    wanted = trained()
    files = sorted((folder / "propagated").glob("*.npy"))
    assert files
    array = np.load(files[0])
    np.save(files[0], np.full_like(array, 7))
    assert torch.equal(trained(), wanted)
    assert np.array_equal(np.load(files[0]), array)
    files[-1].write_bytes(b"cut off")
    assert torch.equal(trained(), wanted)


def test_features_that_cannot_be_mapped_are_refused(tmp_path: Path) -> None:
    for x in (graph().x.half(), graph().x.to_sparse()):
        data = graph()
        data.x = x
        with pytest.raises(DataError, match="dense features of float32 or float64"):
            uw.save_folder(data, tmp_path / "graph")
    assert not list(tmp_path.iterdir())


def test_rows_are_read_in_any_order_and_blank_rows_take_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unweave._core.mapped.WINDOW", 100)
    monkeypatch.setattr("unweave._core.mapped.GATHERED", 2)
    found = uw.load_folder(uw.save_folder(graph(), tmp_path / "g"))
    for ids in ([], [5], [59, 3, 3, 0, 17], list(range(60))):
        assert torch.equal(rows_of(found.x, torch.tensor(ids, dtype=torch.long)), found.x[ids])
    row = found.edge_index[1]
    assert torch.equal(rows_of(row, torch.tensor([4, 1]), found.edge_index), row[[4, 1]])
    before = _anonymous()
    made = blank(torch.zeros(1, 1000), 10**6)
    made[7] = 1.0
    assert made.shape == (10**6, 1000)
    assert float(made[6:9].sum()) == 1000.0
    assert _anonymous() - before < 2**20


def _anonymous() -> int:
    """KiB of this process that are no files, where the system says so."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
