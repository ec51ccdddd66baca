"""Loading: the right numbers, nothing read unchecked, nothing written, and clear words when files are missing."""

import pickle
import shutil
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch_geometric.utils import is_undirected

import unweave as uw
from unweave.datasets import files, readers
from unweave.datasets.files import find_root

FACTS = {
    "cora": (2708, 10556, 1433, 7),
    "citeseer": (3327, 9104, 3703, 6),
    "pubmed": (19717, 88648, 500, 3),
    "cs": (18333, 163788, 6805, 15),
    "physics": (34493, 495924, 8415, 5),
    "photo": (7650, 238162, 745, 8),
    "computers": (13752, 491722, 767, 10),
    "dblp": (17716, 105734, 1639, 4),
    "wordnet": (117659, 367578, 2000, 45),
}


@pytest.mark.parametrize("name", FACTS)
def test_known_numbers(name: str, real_data: Path) -> None:
    data = uw.load(name)
    assert (data.num_nodes, data.num_edges, data.num_features, data.num_classes) == FACTS[name]
    assert is_undirected(data.edge_index)
    assert data.name == name
    assert not (real_data / "CS" / "processed").exists()


def test_loading_writes_nothing(real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "CS", tmp_path / "CS")
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    uw.load("cs", root=tmp_path)
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before


def test_split_is_of_the_paper_and_by_seed() -> None:
    data, again, other = uw.load("demo", seed=0), uw.load("demo", seed=0), uw.load("demo", seed=1)
    assert [int(data[m].sum()) for m in ("train_mask", "val_mask", "test_mask")] == [1620, 180, 200]
    assert (data.train_mask.int() + data.val_mask.int() + data.test_mask.int() == 1).all()
    assert torch.equal(data.test_mask, again.test_mask)
    assert not torch.equal(data.test_mask, other.test_mask)
    assert torch.equal(data.x, other.x)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(uw.DataError, match="unknown data set 'korra'; known: demo, cora"):
        uw.load("korra")


def test_missing_and_offline_names_files_folder_and_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(files, "download_url", offline)
    with pytest.raises(uw.DataUnavailableError) as caught:
        uw.load("cora", root=tmp_path)
    for part in ("ind.cora.x", "ind.cora.test.index", str(tmp_path / "Cora" / "raw"), "UNWEAVE_DATA"):
        assert part in str(caught.value)


def test_a_download_is_checked_like_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    content = b"not the file"

    def fake(url: str, folder: str, log: bool) -> None:
        asked.append(url)
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / url.rsplit("/", 1)[1]).write_bytes(content)

    monkeypatch.setattr(files, "download_url", fake)
    for name, count in (("cora", 8), ("cs", 1), ("dblp", 1)):
        asked.clear()
        with pytest.raises(uw.IntegrityError, match="not the known file"):
            uw.load(name, root=tmp_path)
        assert len(asked) == count
    content = b"PK\x03\x04 a truncated archive"
    with pytest.raises(uw.IntegrityError, match="not the known file"):
        uw.load("photo", root=tmp_path)


class Bomb:
    """Unpickling this would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (Path.touch, (self.path,))


def test_no_pickle_is_read_before_its_sum_is_known(real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "Cora", tmp_path / "Cora")
    mark = tmp_path / "executed"
    (tmp_path / "Cora" / "raw" / "ind.cora.x").chmod(0o644)
    (tmp_path / "Cora" / "raw" / "ind.cora.x").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(uw.IntegrityError):
        uw.load("cora", root=tmp_path)
    assert not mark.exists()


def test_npz_is_taken_by_content_when_packed_another_way(real_data: Path, tmp_path: Path) -> None:
    raw = tmp_path / "dblp" / "raw"
    raw.mkdir(parents=True)
    with np.load(real_data / "dblp" / "raw" / "dblp.npz") as archive:
        parts = {key: archive[key] for key in archive.files}
    np.savez_compressed(raw / "dblp.npz", **parts)
    assert uw.load("dblp", root=tmp_path).num_edges == FACTS["dblp"][1]
    parts["labels"] = parts["labels"][::-1]
    np.savez_compressed(raw / "dblp.npz", **parts)
    with pytest.raises(uw.IntegrityError):
        uw.load("dblp", root=tmp_path)
    parts["labels"] = np.array([Bomb(tmp_path / "executed")], dtype=object)
    np.savez_compressed(raw / "dblp.npz", **parts)
    with pytest.raises(uw.IntegrityError):
        uw.load("dblp", root=tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_file_that_would_unfold_beyond_any_known_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 MB of zeros packed again and again took 4 GB of memory before the sum was looked at."""
    raw = tmp_path / "dblp" / "raw"
    raw.mkdir(parents=True)
    np.savez_compressed(raw / "dblp.npz", labels=np.zeros(2**16, dtype=np.int64))
    unpacked: list[str] = []
    monkeypatch.setattr(readers, "_matrix", lambda _, part: unpacked.append(part))
    monkeypatch.setattr(readers, "LARGEST", 2**18)
    with pytest.raises(uw.UnweaveError, match="not the known file"):
        uw.load("dblp", root=tmp_path)
    assert not unpacked
    (raw / "dblp.npz").write_bytes(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i8', 'fortran_order': False, 'shape': ")
    with pytest.raises(uw.IntegrityError, match="not the known file"):
        uw.load("dblp", root=tmp_path)


def test_root_is_argument_then_variable_then_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNWEAVE_DATA", "/somewhere")
    assert find_root(tmp_path) == tmp_path
    assert find_root(None) == Path("/somewhere")
    monkeypatch.delenv("UNWEAVE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_root(None) == tmp_path / "unweave"
