"""The benchmark of screening: its page is made from its file, and the documentation says what it found."""

import json
import sys
from pathlib import Path
from statistics import fmean

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import screening
import screening_page

DOCUMENT = json.loads((screening.RESULTS / "screening.json").read_text(encoding="utf-8"))
DOCS = " ".join((Path(__file__).parent.parent / "docs" / "audit.md").read_text(encoding="utf-8").split())


def test_the_committed_page_is_made_from_the_committed_file() -> None:
    assert (screening.RESULTS / "README.md").read_text(encoding="utf-8") == screening_page.page(DOCUMENT)
    assert "Nothing has been run" in screening_page.page({"setting": {}, "seeds": []})


def test_the_documentation_says_what_was_found() -> None:
    rates = screening_page.rates(DOCUMENT)
    assert f"{fmean(rates.values()):.1%}"[:-1] + " % are flagged" in DOCS
    assert f"({min(rates.values()):.1%}"[:-1] + f" to {max(rates.values()):.1%}"[:-1] + " % by kind and size)" in DOCS
    rows = [row for seed in DOCUMENT["seeds"] for row in seed["chosen"]]
    aimed = [row for row in rows if row["attacker"] in ("validation", "elsewhere")]
    assert all(row["flagged"] for row in aimed)
    assert f"All {len(aimed)} of their requests are flagged" in DOCS
    for key, words in (("real", "raise the loss of the nodes they aim at by"), ("predicted", "was predicted")):
        found = []
        for attacker, group in (("validation", "validation"), ("elsewhere", "other")):
            some = [r for r in aimed if (r["attacker"], r["kind"], r["size"]) == (attacker, "nodes", 50)]
            found.append(fmean(r["real"][group] if key == "real" else r[group]["damage"] for r in some))
        told = f"{found[0]:.2f} and {found[1]:.2f}"
        assert (f"{words} {told}" if key == "real" else f"{told} {words}") in DOCS
    hubs = [r["flagged"] for r in rows if (r["attacker"], r["kind"], r["size"]) == ("hubs", "nodes", 50)]
    assert f"in {sum(hubs)} of {len(hubs)} cases" in DOCS
    rest = [r for r in rows if r["attacker"] == "one class" or (r["attacker"], r["kind"]) == ("hubs", "edges")]
    assert sum(row["flagged"] for row in rest) == 1
    assert f"flagged once in {len(rest)} cases" in DOCS
