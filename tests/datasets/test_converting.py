"""Folders of graphs that come in other forms: OGB's, PyG's stores, files."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

import unweave as uw
from tests.cli.test_cli import unweave
from tests.folders import graph
from unweave.datasets import sorting
from unweave.datasets.folder import written
from unweave.datasets.ogb import is_ogb, write_ogb
from unweave.errors import DataError
from unweave.graph.view import GraphView


def csv(path: Path, rows: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        np.savetxt(stream, rows.reshape(len(rows), -1).numpy(), fmt="%.9g", delimiter=",")


def ogb(folder: Path, data: Data, *, binary: bool) -> Path:
    """A graph as OGB has it, its edges in no order, one of them twice."""
    order = torch.randperm(data.num_edges)
    edges = torch.cat([data.edge_index[:, order], data.edge_index[:, :1]], dim=1)
    if binary:
        (folder / "raw").mkdir(parents=True)
        np.savez_compressed(folder / "raw" / "data.npz", edge_index=edges.numpy(), node_feat=data.x.numpy())
        np.savez_compressed(folder / "raw" / "node-label.npz", node_label=data.y.numpy().reshape(-1, 1).astype(float))
    else:
        csv(folder / "raw" / "edge.csv.gz", edges.t())
        csv(folder / "raw" / "node-feat.csv.gz", data.x)
        csv(folder / "raw" / "node-label.csv.gz", data.y)
        csv(folder / "raw" / "num-node-list.csv.gz", torch.tensor([data.num_nodes]))
    for name, mask in (("train", data.train_mask), ("valid", data.val_mask), ("test", data.test_mask)):
        csv(folder / "split" / "time" / f"{name}.csv.gz", mask.nonzero().flatten())
    return folder


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("both_ways", [False, True])
def test_graphs_of_ogb_are_written_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binary: bool, both_ways: bool
) -> None:
    monkeypatch.setattr("unweave.datasets.ogb.LINES", 7)
    monkeypatch.setattr("unweave.datasets.ogb.ROWS", 7)
    monkeypatch.setattr("unweave.datasets.ogb.EDGES", 11)
    monkeypatch.setattr(sorting, "BITS", 2)
    monkeypatch.setattr(sorting, "NODES", 7)
    data = graph(directed=True, loops=True, dtype=torch.float32)
    source = ogb(tmp_path / "ogb", data, binary=binary)
    assert is_ogb(source)
    arguments = ["convert", source, tmp_path / "g", *(["--both-ways"] if both_ways else [])]
    result = unweave(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "more than once" in result.output
    found = uw.load_folder(tmp_path / "g", verify=True)
    wanted = to_undirected(data.edge_index) if both_ways else data.edge_index
    assert torch.equal(found.edge_index, coalesce(wanted, sort_by_row=False))
    for key in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(found[key], data[key]), key


def test_a_folder_of_ogb_that_lacks_something_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    source = ogb(tmp_path / "ogb", graph(dtype=torch.float32), binary=True)
    (source / "raw" / "node-label.npz").unlink()
    with pytest.raises(DataError, match="not laid out as OGB"):
        written(tmp_path / "g", lambda work: write_ogb(source, work, both_ways=False))
    assert [path.name for path in tmp_path.iterdir()] == ["ogb"]


def test_stores_of_pyg_are_written_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.datasets.stores.ROWS", 13)
    data = graph(directed=True)  # a Data is both of the stores
    found = uw.load_folder(uw.save_folder((data, data), tmp_path / "g"))
    for key in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(found[key], data[key]), key
    del data.y
    with pytest.raises(DataError, match="x, y and train_mask"):
        uw.save_folder((data, data), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_the_command_line_converts_seals_trains_and_forgets_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph(dtype=torch.float32)
    torch.save(data.to_dict(), tmp_path / "graph.pt")
    folder, bound = tmp_path / "g", ("--memory-mib", "64", "--json")
    assert unweave("convert", tmp_path / "graph.pt", folder).exit_code == 0
    assert unweave("convert", folder).exit_code == 0, "verified"
    (folder / "graph.json").unlink()
    assert unweave("convert", folder).exit_code == 0, "sealed anew"
    how = ("--model", "sign", "--hidden", "4", "--epochs", "20", "--out", tmp_path / "a", *bound)
    assert unweave("train", "--data", folder, *how).exit_code == 0
    result = unweave("prepare", tmp_path / "a", "--data", folder, "--memory-mib", "64")
    assert result.exit_code == 0, result.stderr
    asked = ("--forget", "nodes:0.05", "--data", folder, "--out", tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(GraphView, "built", lambda self: pytest.fail("what is left of a folder is not copied"))
        result = unweave("forget", tmp_path / "a", *asked, "--memory-mib", "64")
    assert result.exit_code == 0, result.stderr
    assert "Test F1" in result.stdout
    assert unweave("verify", tmp_path / "b", "--data", folder, "--memory-mib", "64").exit_code == 0
    result = unweave("convert", tmp_path / "graph.pt", "--both-ways")
    assert result.exit_code == 1
    assert "--both-ways" in result.stderr
