"""The README and the site are true: every block of code runs, and what they name exists."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import unweave as uw
from tests.scripts import SHOWN
from unweave.experiments.paper.experiment import behind, best_published
from unweave.experiments.paper.results import Results
from unweave.methods import registry

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
SLOW = {"ladder.md", "speed.md"}
"""Pages whose commands take minutes: ``make test-slow`` runs them."""

OPTIONAL = ("lightning",)
"""Packages of extras that a developer need not have: blocks that import one are left out where it is missing."""

ALONE = {"service.md"}
"""Pages whose code needs a service that runs: ``tests/serve/test_guide.py`` has one."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(language: str, page: Path) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def marked(language: str) -> list[object]:
    """The pages that have such blocks, and nodes of the embedded graph: a part, and, being slow, all of them."""
    found = [page for page in PAGES if blocks(language, page) and page.name not in ALONE]
    part = [pytest.param(p, SHOWN, id=p.stem) for p in found if p.name not in SLOW]
    return part + [pytest.param(p, None, id=f"{p.stem}-whole", marks=pytest.mark.slow) for p in found]


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*", "ignore:.*does not have many workers.*")
@pytest.mark.usefixtures("embedded", "few_references", "brief")
@pytest.mark.parametrize(("page", "embedded"), marked("python"), indirect=["embedded"])
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))  # a page's own method is not there for others
    names: dict[str, object] = {"__name__": page.stem}
    for number, code in enumerate(blocks("python", page), start=1):
        if any(f"import {name}" in code and find_spec(name) is None for name in OPTIONAL):
            continue
        exec(compile(code, f"{page.name}, block {number}", "exec"), names)


def test_the_make_targets_exist() -> None:
    makefile, pages = text_of(ROOT / "Makefile"), text_of(ROOT / "README.md") + text_of(ROOT / "CONTRIBUTING.md")
    for target in re.findall(r"^make ([a-z-]+)", pages, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_requests_can_be_read() -> None:
    (document,) = blocks("json", DOCS / "command-line.md")
    (table,) = blocks("csv", DOCS / "command-line.md")
    assert uw.Request.from_json(document).nodes == uw.Request.from_csv(table).nodes == (12,)


def test_the_files_that_pages_name_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)]+)\)", text_of(page)):
            assert target.startswith(("http", "#")) or (page.parent / target.partition("#")[0]).exists(), target
    for room in re.findall(r"^\| `([a-z_]+/|[a-z_]+\.py)`", text_of(DOCS / "design.md"), flags=re.MULTILINE):
        assert (ROOT / "src" / "unweave" / room).exists(), room
    for path in re.findall(r"`((?:_core|[a-z]+)/[a-z_/]+\.py)`", "".join(map(text_of, DOCS.glob("*.md")))):
        assert any((ROOT / base / path).exists() for base in ("src/unweave", ".")), path


def test_every_page_is_in_the_site() -> None:
    listed = set(re.findall(r"([a-z-]+\.md)$", text_of(ROOT / "mkdocs.yml"), flags=re.MULTILINE))
    assert listed == {page.name for page in DOCS.glob("*.md")}


def test_the_readme_is_one_screen_and_a_half() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) < 150


def cells(way: str) -> dict[str, dict[str, dict[str, float]]]:
    """Rows of the matrix by cell and method."""
    lines = (ROOT / "benchmarks" / "results" / "matrix" / f"{way}.jsonl").read_text(encoding="utf-8").splitlines()
    found = {}
    for document in map(json.loads, lines):
        config = document["config"]
        rows = {row["method"]: row for row in document["rows"]}
        found[f"{config['data']}-{config['model']}-{config['forget']}"] = rows
    return found


def test_the_matrix_is_whole() -> None:
    for way in ("ordinary", "forgettable"):
        found = cells(way)
        assert len(found) == 48
        assert {len(row["gap_closed"]) for rows in found.values() for row in [rows["gif"]]} == {5}  # type: ignore[arg-type]


def test_the_figures_of_the_methods_are_those_of_the_matrix() -> None:
    ordinary, forgettable = cells("ordinary"), cells("forgettable")
    page = text_of(DOCS / "methods.md")
    for cell in ("cora-gcn", "cora-sgc", "cora-gat", "cora-gin", "pubmed-gcn", "pubmed-sgc"):
        assert f"{ordinary[f'{cell}-edges:0.05']['gif']['gap_closed_mean']:.2f}" in page, cell
    for model in ("gcn", "gat", "sgc", "gin"):
        for data in ("cora", "citeseer", "pubmed"):
            assert f"{forgettable[f'{data}-{model}-edges:0.05']['gif']['gap_closed_mean']:.3f}" in page, (data, model)
    closed = [rows["gif"]["gap_closed_mean"] for rows in ordinary.values()]
    assert min(closed) >= 0
    best = [max(r["gap_closed_mean"] or -9 for m, r in rows.items() if "damping=" in m) for rows in ordinary.values()]
    costs = [rows["gif"]["cost_median"] for rows in ordinary.values()]
    text = " ".join(page.split())
    assert f"it closes {sum(closed) / len(closed):.2f} on average, at {min(costs):.0%}"[:-1] in text
    assert f"–{max(costs):.0%}"[:-1] in text
    assert f"dampings chosen in hindsight, closes {sum(best) / len(best):.2f}" in text
    pairs = [(ordinary[cell], forgettable[cell]) for cell in ordinary if "flipped" not in cell]
    gains = [after["none"]["f1_mean"] - before["none"]["f1_mean"] for before, after in pairs]
    assert f"F1 is {sum(gains) / len(gains):.3f} higher" in text
    ahead = [rows for rows in ordinary.values() if rows["finetune"]["gap_closed_mean"] > rows["gif"]["gap_closed_mean"]]
    assert f"closes more in {len(ahead)} cells" in text


def test_the_tables_of_forgettable_models_are_those_of_the_matrix() -> None:
    page = (ROOT / "docs" / "forgettable.md").read_text(encoding="utf-8")
    names = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
    ordinary, forgettable = cells("ordinary"), cells("forgettable")
    for data, name in names.items():
        for model in ("gcn", "gat", "sgc", "gin"):
            before, after = ordinary[f"{data}-{model}-edges:0.05"], forgettable[f"{data}-{model}-edges:0.05"]
            row = next(line for line in page.splitlines() if line.startswith(f"| {model.upper()} {name} |"))
            assert f"{before['gif']['gap_closed_mean']:+.2f}" in row
            assert f"{after['gif']['gap_closed_mean']:+.3f}" in row
            assert f"{after['none']['f1_mean']:.3f}" in row
            assert f"{after['gif']['cost_median']:.1%}" in row
            others = next(line for line in page.splitlines() if re.match(rf"\| {model.upper()} \| [+-]", line))
            for request in ("nodes:0.1", "features:0.1", "flipped:0.2"):
                assert f"{forgettable[f'{data}-{model}-{request}']['gif']['gap_closed_mean']:+.3f}" in others


def test_the_figures_of_the_reproduction_are_those_of_its_results() -> None:
    table, text = Results(ROOT / "results", "table2"), " ".join(text_of(DOCS / "paper.md").split())
    ordinary = [name for name in table if not name.endswith("forgettable")]
    apart = [table.mean(n, "none", "f1") - table.mean(n, "retrain", "f1") for n in ordinary]  # type: ignore[operator]
    assert (
        f"over the {len(apart)} cells, doing nothing differs from retraining by at most {max(map(abs, apart)):.3f}"
        in text
    )
    published = {name: best_published(table, name) for name in ordinary}
    closed = [table.mean(n, m, "gap_closed") or 0 for n, m in published.items() if m]
    costs = [table.median(n, m, "cost") or 0 for n, m in published.items() if m]
    assert f"closes {min(closed):.2f} to {max(closed):.2f} of the gap at {min(costs):.0%}"[:-1] in text
    assert f"–{max(costs):.0%}"[:-1] in text
    assert [name.split()[:2] for name, method in published.items() if not method] == [
        ["gin", "citeseer"],
        ["gin", "cs"],
    ]
    ahead = [
        name for name, method in published.items()
        if method and (table.mean(name, method, "gap_closed") or 0) > (table.mean(name, "gif", "gap_closed") or 0)
    ]  # fmt: skip
    assert [name.split()[:2] for name in ahead] == [["gat", "cs"]]
    for model, shown in (("gat", "−0.39"), ("gin", "−0.03")):
        assert f"{table.mean(f'{model} cs edges:0.05', 'gif', 'gap_closed'):.2f}".replace("-", "−") == shown
        assert f"({shown})" in text
    for models, form in ((("gcn", "gat", "sgc"), ".3f"), (("gin",), ".2f")):
        found = [
            table.mean(f"{model} {data} edges:0.05 forgettable", "gif", "gap_closed") or 0
            for model in models for data in ("cora", "citeseer", "cs")
        ]  # fmt: skip
        assert f"{min(found):{form}} to {max(found):{form}}" in text
    for models, before in ((("gcn", "gat"), "at "), (("sgc",), "(SGC ")):
        after = [n for n in table if n.endswith("forgettable") and n.split()[0] in models]
        costs = [table.median(name, "gif", "cost") or 0 for name in after]
        assert f"{before}{min(costs):.0%}"[:-1] + f"–{max(costs):.0%}"[:-1] in text
    for experiment, total in (("ratio", 80), ("efficacy", 20)):
        cells_there = Results(ROOT / "results", experiment)
        told = " ".join(behind(cells_there, list(cells_there)))
        (count,) = re.findall(rf"Fine-tuning closes more of the gap than gif in (\d+) of {total} cells", told)
        assert f"in {count} of the {total}" in text
