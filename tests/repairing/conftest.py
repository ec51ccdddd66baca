"""One attacked graph, one run and one repair for all tests that only look at them."""

import pytest

import unweave as uw
from tests.repairing.planted import Planted, planted, trained


@pytest.fixture(scope="package")
def graph() -> Planted:
    """A graph with wrong labels and chance edges."""
    return planted(size=260, flipped=0.4, chance=40, noise=2.0)


@pytest.fixture(scope="package")
def run(graph: Planted) -> uw.Run:
    """A model that was trained on it."""
    return trained(graph)


@pytest.fixture(scope="package")
def repaired(run: uw.Run) -> uw.Repair:
    """And repaired."""
    return uw.repair(run, rounds=1, folds=4)
