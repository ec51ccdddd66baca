"""Every page of results is what the committed files say, and no more."""

import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import speed
from page import PAGES
from pages import ladder_matrix, poison, screening
from pages.speed import WHOLE
from shared import RESULTS, cell_of, write_lines

DOCS = " ".join((Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_what_is_made_of_the_committed_files(name: str) -> None:
    page, folder = PAGES[name], RESULTS / name
    text = page.text(page.read(folder))
    assert (folder / "README.md").read_text(encoding="utf-8") == text
    assert all((folder / figure).exists() for figure in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text))
    assert page.text({}) == f"# {page.title}\n\nNothing has been measured yet.\n"


def test_every_folder_of_results_has_its_page() -> None:
    recorded = {"answers"}  # what a version answered, to compare the next with; nothing to read
    assert {path.name for path in RESULTS.iterdir()} - recorded == set(PAGES)


def test_what_the_ladder_measured_says_where_and_streams_keep_what_is_wanted_of_models_at_a_minimum() -> None:
    found = PAGES["ladder"].read(RESULTS / "ladder")
    assert all(document["environment"]["torch"] and document["commit"] for document in found)
    streams = [d for d in found if d["part"] == "stream" and d["forgettable"] and d["model"] in ("gcn", "sgc")]
    assert streams
    for document in streams:
        assert [look["requests"] for look in document["looks"]] == [10, 50, 100]
        assert all(look["ladder"] >= document["at_least"] for look in document["looks"])


def trial(closed: dict[str, float], cost: dict[str, float], seed: int = 0) -> dict[str, Any]:
    """A line of the matrix of the ladder."""
    cell = {"way": "ordinary", "device": "cpu", "data": "cora", "model": "gcn", "forget": "edges:0.05"}
    return cell | {
        "split": seed,
        "seed": seed,
        "calibration": {"deletions": 3},
        "believed": {"gif": {"closed": 0.5, "low": 0.4, "high": 0.6, "cost": 0.06}},
        "methods": {m: {"gap_closed": closed[m], "cost": cost[m]} for m in closed},
        "auto": {m: {"rung": "gif"} for m in closed if m.startswith("auto")},
        "commit": "0" * 40,
        "environment": {"device_name": "x", "torch": "2"},
    }


def test_a_better_rung_at_the_same_cost_is_counted() -> None:
    closed = {"gif": 0.7, "replay(share=0.1)": 0.8, "auto(budget=0.1)": 0.4, "auto(budget=0.2)": 0.78, "retrain": 1.0}
    cost = {"gif": 0.06, "replay(share=0.1)": 0.15, "auto(budget=0.1)": 0.07, "auto(budget=0.2)": 0.16, "retrain": 1.0}
    found = {ladder_matrix.key_of(line): line for line in (trial(closed, cost), trial(closed, cost, seed=1))}
    (cell,) = ladder_matrix.cells_of(found)
    assert cell.best_fixed(0.1, within=False) == ("gif", pytest.approx(0.7))
    assert cell.best_fixed(0.2, within=True) == ("replay(share=0.1)", pytest.approx(0.8))
    text = ladder_matrix.PAGE.text(found)
    assert "closes 0.05 more (cell × budget) | 1 | 2 | 50% | 90%" in text
    assert "20 %: gap closed ≥ 0.5 | 1 | 1 | 100% | 80%" in text
    assert "the rung that `auto` chose | 0 | 2 | 0%" in text


def poisoned(forget: str, attack: float, f1: float) -> dict[str, Any]:
    """A cell in which every method but retraining leaves an attack and an F1."""
    rows = [
        {"method": name, "attack": attack, "attack_std": 0.01, "attack_before": 0.9, "f1_mean": f1 + 0.02 * place}
        for place, name in enumerate(poison.METHODS)
    ]
    rows[-1] |= {"attack": 0.03, "f1_mean": 0.85}
    config = {"data": "demo", "model": "gcn", "forget": forget, "seeds": 2, "epochs": 60, "forgettable": False}
    return {
        "config": config | {"finetune": "as long as gif"},
        "environment": {"device_name": "a machine", "torch": "2", "torch_geometric": "2"},
        "rows": rows,
        "commit": "c" * 40,
    }


def test_a_page_and_its_figure_are_written_beside_the_results(tmp_path: Path) -> None:
    documents = [poisoned("triggered:0.1", 0.71, 0.75), poisoned("triggered:0.1@0.5", 0.82, 0.845)]
    write_lines(tmp_path / "poison.jsonl", documents)
    assert poison.read(tmp_path) == {cell_of(document): document for document in documents}
    poison.PAGE.write(tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| 0.1 | all | 0.90 | 0.71 | 0.71 | 0.71 | 0.71 | 0.03 | +0.20 | +0.40 | +0.60 |" in page
    assert "| 0.1 | half | 0.90 | 0.82 | 0.82 | 0.82 | 0.82 | 0.03 | – | – | – |" in page, "too little F1 was lost"
    assert "0.71 ± 0.01" in page
    assert (tmp_path / "attack.png").stat().st_size > 10_000


def test_the_documentation_says_what_screening_found() -> None:
    found = screening.read(RESULTS / "screening")
    rates = screening.rates(found)
    assert f"{fmean(rates.values()):.1%}"[:-1] + " % are flagged" in DOCS
    assert f"({min(rates.values()):.1%}"[:-1] + f" to {max(rates.values()):.1%}"[:-1] + " % by kind and size)" in DOCS
    rows = [row for seed in found["seeds"] for row in seed["chosen"]]
    aimed = [row for row in rows if row["attacker"] in ("validation", "elsewhere")]
    assert all(row["flagged"] for row in aimed)
    assert f"All {len(aimed)} of their requests are flagged" in DOCS
    for key, words in (("real", "raise the loss of the nodes they aim at by"), ("predicted", "was predicted")):
        damages = []
        for attacker, group in (("validation", "validation"), ("elsewhere", "other")):
            some = [r for r in aimed if (r["attacker"], r["kind"], r["size"]) == (attacker, "nodes", 50)]
            damages.append(fmean(r["real"][group] if key == "real" else r[group]["damage"] for r in some))
        told = f"{damages[0]:.2f} and {damages[1]:.2f}"
        assert (f"{words} {told}" if key == "real" else f"{told} {words}") in DOCS
    hubs = [r["flagged"] for r in rows if (r["attacker"], r["kind"], r["size"]) == ("hubs", "nodes", 50)]
    assert f"in {sum(hubs)} of {len(hubs)} cases" in DOCS
    rest = [r for r in rows if r["attacker"] == "one class" or (r["attacker"], r["kind"]) == ("hubs", "edges")]
    assert sum(row["flagged"] for row in rest) == 1
    assert f"flagged once in {len(rest)} cases" in DOCS


def bench_cell(**figures: float) -> dict[str, Any]:
    """A cell of the bench that reaches every target, but for what is given."""
    own = {"method": "gif, prepared", "seconds": 0.004, "cost": 0.02, "faster_than_published": 40.0, "passes": 9}
    own |= {"faster_than_sped_up": 12.0, "peak_mib": 100.0, "gap_closed": 0.9, "times_the_floor": 30.0}
    others = [{"method": name, "gap_closed": 0.1, "peak_mib": 2048.0} for name in ("gif", "finetune", "gif-published")]
    return {
        "rows": [own | figures, *others],
        "once": {"prepare_of_training": 0.5, "polish_of_adam": 2.5, "stationarity": 1e-5},
        "environment": {"device_name": "here", "threads": 1, "torch": "2", "torch_geometric": "2"},
        "command": "python benchmarks/speed.py",
        "commit": "abc",
    }


def reached(page: str, what: str) -> list[str]:
    return [line.split("|")[-2].strip() for line in page.splitlines() if line.startswith("| ") and what in line]


def test_the_page_of_speed_says_what_is_reached_and_what_is_not() -> None:
    text = PAGES["speed"].text
    good = {cell: bench_cell() for cell in speed.MEASUREMENTS["request"].cells}
    slow = good | {"ordinary gcn cora": bench_cell(cost=0.4, seconds=0.007)}
    page = text({"gpu": {"request": good}, "other": {"request": slow}})
    assert reached(page, "GCN and SGC") == ["yes", "no"]
    assert reached(page, "GAT and GIN") == ["yes", "yes"]
    assert reached(page, "absolute") == ["yes", "no"]
    assert reached(page, "one edge") == ["–"]
    assert "ordinary gcn cora (40%)" in page
    part = text({"gpu": {"request": {"ordinary gcn cora": bench_cell()}}})
    assert reached(part, "GCN and SGC") == ["31 cells are not measured"]
    assert {name: len(m.cells) for name, m in speed.MEASUREMENTS.items()} == WHOLE
    broken = text({"cpu": {"edge": {"10000": bench_cell() | {"error": "it broke"}}}})
    assert "Error: it broke" in broken
    assert reached(broken, "one edge") == ["no"]
