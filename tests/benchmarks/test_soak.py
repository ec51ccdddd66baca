"""The soak, shortened: requests one after another leave no tensor behind, and every receipt verifies."""

import numpy as np
import pytest
import soak

import unweave as uw


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("way", ["forgettable", "ordinary"])
def test_thirty_requests_leave_nothing_behind(way: str) -> None:
    rng = np.random.default_rng(1)
    found = soak.start(way, uw.load("demo"), model="sgc")
    for _ in range(5):
        found.forget(soak.one_request(found.run.data, rng))
    before = soak.live_tensors()
    for _ in range(25):
        found.forget(soak.one_request(found.run.data, rng))
    assert soak.live_tensors() <= before
    assert found.refused == found.faults == []
    assert len(found.run.receipts) == len(found.requests) == 30


def test_a_receipt_that_does_not_fit_is_seen() -> None:
    found = soak.start("ordinary", uw.load("demo"), epochs=20, model="sgc")
    before = found.run
    found.forget(uw.Request(edges=[tuple(before.data.edge_index[:, 0].tolist())]))
    assert soak.faults(before, found.run) == []
    assert "it does not start where the last one ended" in soak.faults(found.run, found.run)


def test_the_kinds_are_mixed() -> None:
    data, rng = uw.load("demo"), np.random.default_rng(0)
    drawn = [soak.one_request(data, rng) for _ in range(60)]
    for kind in ("edges", "features", "labels", "nodes"):
        assert any(getattr(request, kind) for request in drawn), kind
