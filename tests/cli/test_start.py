"""Help, version and the commonest refusal come without torch, and the names in the help are those of the library."""

import subprocess
import sys
from pathlib import Path

import pytest

import unweave
from unweave.cli import names
from unweave.datasets import NAMES
from unweave.experiments.bench import LEAST_ROUNDS
from unweave.experiments.paper.reproduce import EXPERIMENTS
from unweave.methods import available
from unweave.models import MODELS
from unweave.run.calibrate import DELETIONS

SCRIPT = """
import sys
sys.argv = ["unweave", {arguments}]
from unweave.cli import main
try:
    main()
finally:
    heavy = sorted({{"torch", "torch_geometric", "numpy", "scipy", "matplotlib"}} & set(sys.modules))
    assert not heavy, heavy
"""


@pytest.mark.parametrize("arguments", ['"--version"', '"--help"', '"forget", "--help"', '"reproduce", "--help"'])
def test_help_and_version_need_no_torch(arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (f"unweave {unweave.__version__}" if "version" in arguments else "Usage") in done.stdout


@pytest.mark.parametrize("command", [["show"], ["forget", "--forget", "edges:0.1", "--out", "b"]])
def test_a_folder_that_is_no_run_is_refused_at_once_and_without_a_traceback(command: list[str], tmp_path: Path) -> None:
    arguments = ", ".join(map(repr, [command[0], str(tmp_path), *command[1:]]))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"unweave: {tmp_path} is not a run: it has no manifest.json\n"


def test_importing_the_package_needs_no_torch() -> None:
    script = "import sys, unweave; dir(unweave); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_names_in_the_help_are_those_of_the_library() -> None:
    assert names.DATA == NAMES
    assert tuple(MODELS) == names.MODELS
    assert set(names.METHODS) <= set(available())
    assert tuple(EXPERIMENTS) == names.EXPERIMENTS
    assert (names.DELETIONS, names.LEAST_ROUNDS) == (DELETIONS, LEAST_ROUNDS)
