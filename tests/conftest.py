"""Who runs tests needs torch and what tests share; the process that only hands them out to others begins without."""

import gc
import os

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # small graphs are faster so, and a core that is busy does no harm


def pytest_collection(session: pytest.Session) -> None:
    """Begin with what tests share; where processes share the tests, xdist has only these collect them."""
    gc.disable()  # until all is imported: of so many objects that stay, none is garbage
    session.config.pluginmanager.import_plugin("tests.fixtures")
