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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_commands_run(page: Path, tmp_path: Path) -> None:
    shell = blocks("bash", page.read_text(encoding="utf-8"))
    commands = [line for block in shell for line in block.splitlines() if line.startswith("unweave ")]
    assert len(commands) >= 3
    for command in commands:
        result = unweave(*shlex.split(command)[1:], cwd=tmp_path)
        assert result.exit_code == 0, f"{command}: {result.stderr}"


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_code_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python", page.read_text(encoding="utf-8"))
    exec(compile(code, page.name, "exec"), {})
    assert "Forgotten" in capsys.readouterr().out
    statements = [line for line in code.splitlines() if line.strip()]
    assert len(statements) <= 10


def test_the_requests_can_be_read() -> None:
    (document,) = blocks("json")
    (table,) = [block for block in blocks("text") if block.startswith("kind,")]
    assert uw.Request.from_json(document).nodes == uw.Request.from_csv(table).nodes == (12,)


def test_the_files_it_names_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), target
    for name in re.findall(r"^  ([a-z_./ ]+?)  +", README, flags=re.MULTILINE):
        for part in name.split():
            assert (ROOT / "src" / "unweave" / part).exists(), part


def figure(kind: str, cell: str, method: str = "gif", key: str = "gap_closed_mean") -> float:
    rows = json.loads((ROOT / "benchmarks" / "results" / kind / f"{cell}.json").read_text())["rows"]
    return float(next(row[key] for row in rows if row["method"] == method))


def test_the_figures_of_the_benchmark_are_those_of_its_results() -> None:
    for cell in ("cora-gcn", "cora-sgc", "cora-gat", "cora-gin", "pubmed-gcn", "pubmed-sgc"):
        assert f"{figure('ordinary', cell):.2f}".replace("-", "−") in README, cell
    for cell in ("cora-gcn", "citeseer-gcn", "pubmed-gcn"):
        assert f"{figure('forgettable', cell):.3f}" in README, cell


def test_the_table_of_forgettable_models_is_that_of_its_results() -> None:
    page = (ROOT / "docs" / "forgettable.md").read_text(encoding="utf-8")
    cells = sorted(p.stem for p in (ROOT / "benchmarks" / "results" / "forgettable").glob("*.json"))
    assert len(cells) == 8
    names = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
    for cell in cells:
        data, model = cell.split("-")
        row = next(line for line in page.splitlines() if line.startswith(f"| {model.upper()} {names[data]} |"))
        assert f"{figure('ordinary', cell):+.2f}" in row
        assert f"{figure('forgettable', cell):+.3f}" in row
        assert f"{figure('forgettable', cell, 'none', 'f1_mean'):.3f}" in row
        assert f"{figure('forgettable', cell, 'gif', 'cost_median'):.1%}" in row
