"""The page of the ladder is made from its result files, which say where they come from."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import ladder
import ladder_page


def test_the_committed_page_is_made_from_the_committed_files() -> None:
    found = ladder.documents(ladder.RESULTS)
    assert found
    assert (ladder.RESULTS / "README.md").read_text(encoding="utf-8") == ladder_page.page(found)
    assert all(document["environment"]["torch"] and document["commit"] for document in found)


def test_streams_keep_what_is_wanted_of_models_at_a_minimum() -> None:
    streams = [document for document in ladder.documents(ladder.RESULTS) if document["part"] == "stream"]
    kept = [d for d in streams if d["forgettable"] and d["model"] in ("gcn", "sgc")]
    assert kept
    for document in kept:
        assert [look["requests"] for look in document["looks"]] == [10, 50, 100]
        assert all(look["ladder"] >= document["at_least"] for look in document["looks"])
