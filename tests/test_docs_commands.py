"""Every command that the README and the site show runs."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unweave as uw
from tests.cli.test_cli import unweave
from tests.test_docs import blocks, marked
from unweave.cli.audit import CODES
from unweave.serve.ledger import Ledger

ELSEWHERE = re.compile(r"--device cuda|--data cora")
"""Commands that need a GPU or a download."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Any]:
    """Train as a command says, once for all the pages that say the same; the run is copied to where each wants it."""
    kept: dict[tuple[str, int], tuple[Any, Path]] = {}

    def train(command: str, cwd: Path) -> Any:
        how, out = command.split(" --out ")
        key = how, int(uw.load("demo").num_nodes)
        if key not in kept:
            place = tmp_path_factory.mktemp("trained") / "run"
            kept[key] = unweave(*shlex.split(how)[1:], "--out", place, cwd=cwd), place
            ready = uw.Run.open(place).prepared if "--forgettable" in how else None
            assert ready is None or ready.at_minimum, "however briefly it was trained"
        result, place = kept[key]
        if result.exit_code == 0:
            shutil.copytree(place, cwd / shlex.split(out, comments=True)[0])
        return result

    return train


@pytest.mark.usefixtures("embedded", "few_references", "brief")
@pytest.mark.parametrize(("page", "embedded"), marked("bash"), indirect=["embedded"])
def test_the_commands_run(page: Path, tmp_path: Path, trained: Callable[[str, Path], Any]) -> None:
    text = next((block for block in blocks("text", page) if block.startswith("{")), '{"edges": [[2, 146]]}\n')
    for name in ("requests.jsonl", "changes.jsonl"):
        (tmp_path / name).write_text(text)
    commands = [line for block in blocks("bash", page) for line in block.splitlines() if line.startswith("unweave ")]
    if any(command.startswith("unweave ledger ") for command in commands):
        Ledger.at(tmp_path / "service")
    for command in (line for line in commands if not ELSEWHERE.search(line)):
        if command.startswith("unweave train "):
            result = trained(command, tmp_path)
        else:
            result = unweave(*shlex.split(command, comments=True)[1:], cwd=tmp_path)
        done = set(CODES.values()) if command.startswith("unweave audit ") else {0}
        assert result.exit_code in done, f"{command}: {result.stderr}"
