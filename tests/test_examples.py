"""Every example and benchmark script runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts import Scripts

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    found = Scripts()
    yield found
    found.close()


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_example(script: Path, scripts: Scripts, tmp_path: Path) -> None:
    scripts.run(script, cwd=tmp_path)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_the_matrix(scripts: Scripts, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "matrix.py"
    cells = ("--data", "demo", "--models", "sgc", "--forget", "edges:0.05", "--seeds", "1", "--out", "r")
    scripts.run(script, *cells, cwd=tmp_path)
    page = (tmp_path / "r" / "README.md").read_text()
    assert page.count("| sgc demo edges:0.05 |") == 3
    assert "in 1 of 1 cells" in page
    before = (tmp_path / "r" / "forgettable.jsonl").read_bytes()
    scripts.run(script, *cells, "--page", cwd=tmp_path)
    assert (tmp_path / "r" / "README.md").read_text() == page
    assert (tmp_path / "r" / "forgettable.jsonl").read_bytes() == before


def test_the_page_of_the_matrix_is_that_of_its_results(scripts: Scripts, tmp_path: Path) -> None:
    results = ROOT / "benchmarks" / "results" / "matrix"
    for way in ("ordinary", "forgettable"):
        (tmp_path / f"{way}.jsonl").write_bytes((results / f"{way}.jsonl").read_bytes())
    scripts.run(ROOT / "benchmarks" / "matrix.py", "--page", "--out", ".", cwd=tmp_path)
    assert (tmp_path / "README.md").read_text() == (results / "README.md").read_text()
