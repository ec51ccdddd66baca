"""What the tests share: the real graphs where they are at hand, and a strict torch (see conftest.py)."""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from multiprocessing.context import BaseContext, ForkServerContext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer import testing
from typer.main import get_command

from tests.scripts import PART, WARM_UP, small_demo
from unweave._core.tuning import TUNING, tuned
from unweave.experiments.trial import Setting
from unweave.training import agreement

torch.set_num_threads(1)
ASKING = {name: getattr(agreement, name) for name in ("another", "agreement_of")}
agreement.another = lambda objective, **_: objective  # see the fixture examined
agreement.agreement_of = lambda *_: None
Setting.warm_up = lambda self: None  # type: ignore[method-assign] # see the fixture warmed_up
testing._get_command = cache(get_command)  # type: ignore[attr-defined] # of one application, for all who call it
object.__setattr__(TUNING, "polish", replace(TUNING.polish, evaluations=60, usual=60))  # enough on small graphs
object.__setattr__(TUNING, "ending", replace(TUNING.ending, most=150))


FIRST = (
    "test_docs_commands.py",
    "test_blocks.py",
    "test_guide.py",
    "test_kills.py",
    "test_docs.py",
    "test_examples.py",
    "test_inspect.py",
    "test_ranks.py",
    "test_kill.py",
    "test_ranks_faults.py",
    "test_polish.py",
    "test_watch.py",
    "test_audit.py",
    "test_reproduce.py",
    "test_ledger.py",
    "test_as_pyg.py",
    "test_gif.py",
    "test_bench.py",
    "test_agreement.py",
    "test_engines.py",
    "test_rows.py",
    "test_certified.py",
    "test_contract.py",
    "test_compare.py",
    "test_products.py",
)
"""Files that take longest; whoever begins with them does not wait for one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file at a time is handed out in this order."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


def pytest_collection_finish() -> None:
    """Look for garbage from here on, and among what tests make alone."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A model that no test seeded is the same whichever tests ran before: here for the fixtures, below for the test."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """The same draws whether a shared fixture was made for this test or for an earlier one."""
    _seed()


def _seed() -> None:
    """As ``torch.manual_seed``, which notes down who called it once for every kind of device that is not there."""
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture
def one_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train forgettable models once, and not for every weight decay that validation may prefer (see test_polishing)."""
    monkeypatch.setattr("unweave.training.fit._chosen_decays", lambda *_: [1e-2])


@pytest.fixture
def brief(one_decay: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Train as briefly as serves who only shows it, and inspect; forgettable ones come to a minimum all the same."""
    for module in ("fit", "polish"):
        monkeypatch.setattr(f"unweave.training.{module}.FIRST_PHASE", 30)
    with tuned(polish={"evaluations": 30}, ending={"most": 50}, inspection={"samples": 8}):
        yield


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask of forgettable models whether another seed agrees, as everybody does; elsewhere no test pays for that."""
    for name, asks in ASKING.items():
        monkeypatch.setattr(agreement, name, asks)


@pytest.fixture
def warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every method once before any is measured, as everybody does; elsewhere no test reads how long one took."""
    monkeypatch.setattr(Setting, "warm_up", WARM_UP)


@pytest.fixture
def embedded(request: pytest.FixtureRequest) -> Iterator[None]:
    """As many nodes of the embedded graph as the parameter says, for what is shown on it; all of them for None."""
    with small_demo(getattr(request, "param", PART)):
        yield


@pytest.fixture(scope="module")
def part(request: pytest.FixtureRequest) -> Iterator[None]:
    """A part of the embedded graph is all of it, of so many nodes as the file says."""
    with small_demo(getattr(request.module, "EMBEDDED", PART)):
        yield


@pytest.fixture
def few_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit with few models, here and not in other processes; tests/cli/test_audit.py has as many as everybody."""
    from unweave.auditing.case import Size  # noqa: PLC0415 (not needed by most)

    monkeypatch.setattr("unweave.auditing.audit.QUICK", Size(references=2, shadows=0))
    monkeypatch.setattr("unweave.cli.audit._cores", lambda device: 1)


@pytest.fixture(scope="session")
def warm() -> ForkServerContext:
    """Processes as new as those of spawn, which know nothing of this one, and need not import torch again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm"])
    return context


@pytest.fixture(params=["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def workers(request: pytest.FixtureRequest, warm: ForkServerContext, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Whoever asks for spawned processes gets warm ones, and, being slow, new ones; how much of the graph they have."""
    really = multiprocessing.get_context

    def given(method: str | None = None) -> BaseContext:
        assert method == "spawn", "a fork of this process knows what a worker cannot know"
        return warm if request.param == "forkserver" else really(method)

    monkeypatch.setattr("unweave.auditing.population.get_context", given)
    monkeypatch.setattr("unweave.experiments.paper.reproduce.multiprocessing", SimpleNamespace(get_context=given))
    return PART if request.param == "forkserver" else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real graphs; tests that need it are skipped where it is absent."""
    folder = os.environ.get("UNWEAVE_DATA")
    if not folder or not (Path(folder) / "Cora" / "raw").is_dir():
        pytest.skip("set UNWEAVE_DATA to a folder with the real graphs to run this test")
    return Path(folder)
