"""Every example and benchmark script runs."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.scripts import SHOWN, Scripts

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module", params=[SHOWN, pytest.param(None, id="whole", marks=pytest.mark.slow)])
def scripts(request: pytest.FixtureRequest, warm: ForkServerContext) -> Scripts:
    """Whoever runs them, on a part of the embedded graph, and, being slow, on all of it."""
    return Scripts(warm, request.param)


SMALLER = {"picture": ("picture.png", "100"), "production": ("production.png", "20")}
"""What has a script do less."""

LONG = {"production"}
"""Scripts that train many models, however small."""


@pytest.mark.parametrize(
    "script", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem in LONG else []) for p in EXAMPLES]
)
def test_example(script: Path, scripts: Scripts, tmp_path: Path) -> None:
    scripts.run(script, *SMALLER.get(script.stem, ()), cwd=tmp_path)


@pytest.mark.parametrize("ends", ["raise SystemExit(3)", "import warnings; warnings.warn('old')"])
def test_a_script_that_fails_is_noticed(ends: str, scripts: Scripts, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(f"print('so far', __name__)\n{ends}\n")
    with pytest.raises(AssertionError, match="so far __main__"):
        scripts.run(tmp_path / "bad.py", cwd=tmp_path)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_the_matrix(scripts: Scripts, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "matrix.py"
    cells = ("--data", "demo", "--models", "sgc", "--forget", "edges:0.05", "--seeds", "1", "--out", "matrix")
    scripts.run(script, *cells, cwd=tmp_path)
    out = tmp_path / "matrix"
    page = (out / "README.md").read_text()
    assert page.count("| sgc demo edges:0.05 |") == 3
    assert "in 1 of 1 cells" in page
    before = (out / "forgettable.jsonl").read_bytes()
    (out / "README.md").unlink()
    scripts.run(ROOT / "benchmarks" / "page.py", "matrix", "--results", ".", cwd=tmp_path)
    assert (out / "README.md").read_text() == page
    assert (out / "forgettable.jsonl").read_bytes() == before
