"""Every example and benchmark script runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(script: Path, *arguments: str, cwd: Path) -> str:
    environment = os.environ | {"PYTHONWARNINGS": "error,ignore::DeprecationWarning", "MPLBACKEND": "agg"}
    result = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_example(script: Path, tmp_path: Path) -> None:
    run(script, cwd=tmp_path)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_benchmark_of_the_backbones(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "backbones.py"
    run(script, "--data", "demo", "--models", "sgc", "--seeds", "1", "--epochs", "3", "--out", "r", cwd=tmp_path)
    assert (tmp_path / "r" / "demo-sgc.json").exists()
    assert "| gif |" in (tmp_path / "r" / "README.md").read_text()
