"""A graph of one's own is read as tensors; what would have to be executed is refused."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import HeteroData

import unweave as uw
from unweave.datasets.own import read_graph
from unweave.testing import small_graph


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("executed",)


def test_the_three_forms_of_a_graph(tmp_path: Path) -> None:
    data = small_graph()
    tensors = {key: value for key, value in data.to_dict().items() if isinstance(value, torch.Tensor)}
    torch.save(data, tmp_path / "data.pt")
    torch.save(data.to_dict(), tmp_path / "dict.pt")
    save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / "graph.safetensors")
    for name in ("data.pt", "dict.pt", "graph.safetensors"):
        found = read_graph(tmp_path / name)
        assert all(torch.equal(found[key], value) for key, value in tensors.items())
        assert found.num_nodes == data.num_nodes


def test_a_file_says_which_task_its_graph_is_of(tmp_path: Path) -> None:
    task = uw.tasks.Links.of(small_graph())
    torch.save(task, tmp_path / "task.pt")
    found = read_graph(tmp_path / "task.pt")
    assert isinstance(found, uw.tasks.Links)
    assert found.spec == task.spec
    assert torch.equal(found.edge_index, task.edge_index)
    torch.save(task.to_dict(), tmp_path / "dict.pt")
    torch.save(HeteroData({"paper": {"x": torch.ones(2, 1)}}), tmp_path / "hetero.pt")
    for name, says in (("dict.pt", "does not say which task"), ("hetero.pt", "Relations.of")):
        with pytest.raises(uw.DataError, match=says):
            read_graph(tmp_path / name)


def test_nothing_in_a_file_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Evil()}, "evil.pt")
    with pytest.raises(uw.DataError, match="without executing"):
        read_graph("evil.pt")
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"x": torch.ones(2, 1)}, "has no edge_index, y, train_mask"),
        ([torch.ones(2)], "holds a list"),
        ({3: torch.ones(2)}, "keys are not names"),
    ],
)
def test_what_is_no_graph(tmp_path: Path, content: object, reason: str) -> None:
    torch.save(content, tmp_path / "g.pt")
    with pytest.raises(uw.DataError, match=reason):
        read_graph(tmp_path / "g.pt")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.pt").write_bytes(b"not a graph")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    for name in ("broken.pt", "broken.safetensors"):
        with pytest.raises(uw.DataError, match="write it anew"):
            read_graph(tmp_path / name)
    with pytest.raises(uw.DataError, match="cannot read"):
        read_graph(tmp_path / "absent.pt")
    with pytest.raises(uw.DataError, match="or a file that ends in"):
        read_graph(tmp_path / "graph.csv")
