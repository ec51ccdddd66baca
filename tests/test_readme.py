"""The README is true: its commands and its code run, and the files it names exist."""

import json
import re
import shlex
from pathlib import Path

import pytest

import unweave as uw
from tests.cli.test_cli import unweave

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_commands_run(tmp_path: Path) -> None:
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("unweave ")]
    assert len(commands) >= 4
    for command in commands:
        result = unweave(*shlex.split(command)[1:], cwd=tmp_path)
        assert result.exit_code == 0, f"{command}: {result.stderr}"
    assert (tmp_path / "compare.png").exists()


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_code_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks("python")[number]
    exec(compile(code, "README.md", "exec"), {})
    assert "Forgotten" in capsys.readouterr().out
    statements = [line for line in code.splitlines() if line.strip()]
    assert len(statements) <= 10


def test_the_requests_can_be_read() -> None:
    (document,) = blocks("json")
    (table,) = [block for block in blocks("text") if block.startswith("kind,")]
    assert uw.Request.from_json(document).nodes == uw.Request.from_csv(table).nodes == (12,)


def test_the_files_it_names_exist() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
    for name in re.findall(r"^  ([a-z_./ ]+?)  +", README, flags=re.MULTILINE):
        for part in name.split():
            assert (ROOT / "src" / "unweave" / part).exists(), part


def test_the_figures_of_the_benchmark_are_those_of_its_results() -> None:
    def closed(cell: str) -> str:
        rows = json.loads((ROOT / "benchmarks" / "results" / f"{cell}.json").read_text())["rows"]
        return f"{next(row['gap_closed_mean'] for row in rows if row['method'] == 'gif'):.2f}".replace("-", "−")

    for cell in ("cora-gcn", "cora-sgc", "cora-gat", "cora-gin", "pubmed-gcn", "pubmed-sgc"):
        assert closed(cell) in README, cell
