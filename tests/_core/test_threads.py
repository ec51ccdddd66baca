"""Work side by side: what is found is what one thread finds, in the same order."""

from collections.abc import Iterator
from pathlib import Path
from threading import current_thread

import numpy as np
import pytest
import torch

import unweave as uw
from tests.folders import graph
from unweave._core.threads import side_by_side
from unweave.datasets import sorting
from unweave.graph.view import GraphView
from unweave.models.propagation import propagation_of
from unweave.objective.parts import propagating
from unweave.objective.parts.propagated import table_of


@pytest.fixture
def threads() -> Iterator[None]:
    """More than one thread for a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_order_is_kept_and_an_error_comes_through(threads: None) -> None:
    found = list(side_by_side(lambda n: (n * n, current_thread().name), range(50)))
    assert [number for number, _ in found] == [n * n for n in range(50)]
    assert len({name for _, name in found}) > 1
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda n: 1 // (n - 7), range(50)))


def test_edges_and_rows_are_those_of_one_thread(tmp_path: Path, threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "BITS", 2)
    monkeypatch.setattr(propagating, "ROWS", 7)
    data = graph(directed=True, loops=True)
    what = propagation_of(uw.models.SGC(5, 3, unit=True))
    assert what is not None
    found = []
    for name, some in (("many", 3), ("one", 1)):
        torch.set_num_threads(some)
        (tmp_path / name).mkdir()
        parts = np.array_split(data.edge_index.numpy()[:, ::-1], 9, axis=1)
        assert sorting.write_sorted(parts, 60, tmp_path / name, both_ways=True) > 0
        folder = uw.load_folder(uw.save_folder(data, tmp_path / name / "g"))
        rows = table_of(GraphView.of(folder), what, 60 * 8.0).rows(torch.arange(60))
        found.append(((tmp_path / name / "edge_index.npy").read_bytes(), rows))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
