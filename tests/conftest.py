"""Who runs tests needs torch and what tests share; the process that only hands them out to others begins without."""

import gc
import os
import shutil
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # small graphs are faster so, and a core that is busy does no harm

MEMORY, ENOUGH = Path("/dev/shm"), 4 * 2**30
"""Where files are in memory, and bytes that must be free there, several times what the tests have at once."""

if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
    # Runs and databases wait for the disk after every write, for when power fails, which it does in no test.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection(session: pytest.Session) -> None:
    """Begin with what tests share; where processes share the tests, xdist has only these collect them."""
    gc.disable()  # until all is imported: of so many objects that stay, none is garbage
    session.config.pluginmanager.import_plugin("tests.fixtures")
