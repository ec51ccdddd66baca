"""What an audit found, in plain words: the one source of them for Python, the command line and the page."""

from collections.abc import Sequence

from unweave.auditing.after.carried import Carried
from unweave.auditing.evidence import Evidence
from unweave.auditing.numbers import GAP, number, percent, usual_range
from unweave.auditing.verdict import Verdict

__all__ = ["FINDINGS", "HEADLINES", "answer", "figures", "reason", "remainder", "sentence"]

HEADLINES: dict[Verdict, str] = {
    "remembers": "Not gone",
    "differs": "Not what retraining gives",
    "gone": "Gone, as far as these tests can see",
    "cannot tell": "These tests cannot tell",
}

FINDINGS = {
    "remembers": "still remembers",
    "differs": "differs",
    "as retrained": "as retrained",
    "no power": "cannot tell",
}
"""What a test found, in two words."""

QUICK = "This was a quick audit, which leaves out the strongest tests."


ANSWERS = {
    ("remembers", "able"): "Yes, as with models that saw the data, and not as with retrained ones.",
    ("as retrained", "able"): (
        "No, no more so than with retrained models; had nothing been done, this test would have shown it."
    ),
    ("differs", "able"): (
        "No, but it goes beyond what retrained models do, as if the data had been pushed away rather than left out."
    ),
    ("as retrained", "one-sided"): "No more so than retraining itself does.",
    ("differs", "one-sided"): "Yes, more so than retraining itself does.",
    ("no power", "unable"): "This test cannot tell: it would have found the same had nothing been done.",
    ("differs", "unable"): (
        "This test cannot tell whether the data is gone. But no retrained model would be expected where this one is: "
        "something was done to it that retraining does not do."
    ),
    ("as retrained", "else"): "Yes, as far as retrained models agree among themselves.",
    ("differs", "else"): "No: no retrained model would be expected where this one is.",
}
"""The answer to the question of a test, by what it found and by what it can tell."""


def answer(entry: Evidence) -> str:
    """The answer to the question of a test, in a sentence."""
    able = "able" if entry.powerful else "one-sided" if entry.separates else "unable"
    return ANSWERS[entry.finding, "else" if entry.asks == "else" else able]


def reason(verdict: Verdict, evidence: Sequence[Evidence], carried: Carried, *, quick: bool) -> str:
    """Why a verdict is what it is."""
    found = [_carries(carried)] if carried.old or carried.unseen else []
    asked = [entry for entry in evidence if entry.asks == "gone"]
    able, told = sum(entry.powerful for entry in asked), [entry.finding for entry in evidence]
    differs, seen = told.count("differs"), told.count("remembers")
    if verdict == "remembers" and seen:
        some = (
            f"All {able} tests" if seen == able > 1 else f"{seen} of the {able} tests" if able > 1 else "The one test"
        )
        takes = "takes" if seen == 1 else "take"
        found.append(f"{some} that can tell still {takes} the model for one that saw the deleted data.")
        if differs:
            found.append(f"{differs} more {_find(differs)} it unlike retrained models.")
    elif verdict == "differs":
        where = f"{differs} test{'s' * (differs > 1)} {_find(differs)} the model"
        clear = "No test that can tell finds" if able else "No test here is able to find"
        found.append(
            f"{clear} the deleted data in it, but {where} outside of what retrained models do: too little was done, "
            "too much, or something else."
        )
    elif able:
        found.append(
            f"{able} of the {len(asked)} tests that ask whether the data is gone would have noticed had nothing been "
            "done, and none of them tells this model from retrained ones."
        )
    elif verdict == "cannot tell":
        found.append(
            f"On this request none of the {len(asked)} tests tells models that saw the data from models that did not. "
            "That they find nothing here means nothing: it is no proof that the data is gone."
        )
    weak = sum(entry.finding == "no power" for entry in asked)
    if weak and verdict != "cannot tell":
        some = "1 test cannot tell on this request and counts" if weak == 1 else f"{weak} tests cannot tell and count"
        found.append(f"{some} for nothing.")
    left = remainder(evidence)
    if verdict == "gone" and left is not None:
        found.append(left)
    return " ".join([*found, *([QUICK] if quick and verdict == "gone" else [])])


def remainder(evidence: Sequence[Evidence]) -> str | None:
    """How much of the deleted data a model could remember and still pass."""
    shares = [entry.noticeable for entry in evidence if entry.noticeable is not None]
    if not shares:
        return None
    return f"A model that still remembered up to about {percent(min(shares))} of the deleted data would have passed."


def figures(evidence: Sequence[Evidence]) -> str:
    """The figures of all tests as a table."""
    width = max(len(entry.name) for entry in evidence)
    usual = [usual_range(entry).replace(GAP, " ") for entry in evidence]
    wide = max(map(len, usual))
    lines = [f"{'The figures':<{width}}  {'before':>9}   {'after':>9}  usual if retrained"]
    for entry, told in zip(evidence, usual, strict=True):
        before, after = (number(reading.value, entry.unit) for reading in (entry.before, entry.after))
        lines.append(f"{entry.name:<{width}}  {before:>9} → {after:>9}  {told:<{wide}} {entry.unit}")
    return "\n".join(lines)


def sentence(text: str) -> str:
    """A note as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _carries(carried: Carried) -> str:
    if carried.old:
        return f"The model after holds {'; and '.join(carried.old)}."
    if carried.alike:
        return f"The model after holds something like {'; and '.join(carried.alike)}. No test reaches that."
    told = "; ".join(carried.more)
    return f"The model after is not built as the one before: {told}. No test reaches what that may hold."


def _find(count: int) -> str:
    return "finds" if count == 1 else "find"
