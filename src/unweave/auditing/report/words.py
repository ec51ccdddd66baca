"""What an audit found, in plain words and in numbers with as many digits as they deserve."""

from collections.abc import Sequence
from math import floor, log10
from statistics import fmean, stdev

from unweave.auditing.audit import Audit
from unweave.auditing.evidence import MATERIAL, POWER, Evidence
from unweave.auditing.limits import limits_of

__all__ = [
    "FINDINGS",
    "GAP",
    "GROUPS",
    "READING",
    "distance",
    "duration",
    "effect",
    "explain_finding",
    "explain_power",
    "explain_recovery",
    "explain_verdict",
    "interval",
    "list_limits",
    "number",
    "sentence",
    "spread",
    "usual_range",
]

GROUPS = {
    "membership": ("Deleted nodes", "Does the model treat them as nodes that it was trained on?"),
    "links": ("Deleted edges", "Does the model give away which edges there were?"),
    "exposure": (
        "Both models side by side",
        "What does the change from one model to the other give away? A retrained model gives something away too, so "
        "the question is whether this one gives away more. To give away less is no fault.",
    ),
    "relearning": ("Learning it back", "A model that only hides what it knows learns it back sooner."),
    "hard cases": ("Hard cases", "An average over a request can hide that a few of its nodes are still known."),
    "collateral": (
        "What else changed",
        "Predictions, certainty and accuracy on what was to stay, as retraining has it.",
    ),
}
"""Title and introduction of every group of tests."""

FINDINGS = {
    "remembers": "still remembers",
    "differs": "differs",
    "as retrained": "as retrained",
    "no power": "no power",
}

READING = (
    "AUC is the chance that a test ranks a deleted item above one that it is compared with: 0.5 is a coin, 1 tells "
    "them all apart. A retrained model need not be at 0.5, because some items stand out without having been seen. TPR "
    "at 1 % FPR is the share of deleted items that the test names while it wrongly names one in a hundred others.",
    "Seed floor: the standard deviation among models that were retrained from different seeds. Luck alone carries a "
    "retrained model about that far from their mean; an effect is given in these units.",
    "Usual range: where one more retrained model would be expected. A model outside of it, on the side of models that "
    "saw the data, still remembers; outside of it on any other side, it differs from what retraining gives.",
    "Power: a test that would not have noticed that nothing was done has no power here, and is not counted as passed.",
)
"""What the reader of a figure should know."""

DIGITS = {"AUC": ".3f", "ECE": ".3f", "1 − F1": ".3f", "F1": ".3f", "epochs": ".1f"}


GAP = "\N{NO-BREAK SPACE}"


def number(value: float, unit: str = "") -> str:
    """A number of a test."""
    return format(value, DIGITS.get(unit, ".3g")).replace("-", "−")


def interval(low: float | None, high: float | None, unit: str = "") -> str:
    """A range; an end that is open is not named."""
    if high is None:
        return "–"
    return f"up to{GAP}{number(high, unit)}" if low is None else f"{number(low, unit)}{GAP}…{GAP}{number(high, unit)}"


def usual_range(entry: Evidence) -> str:
    """Where a retrained model is expected."""
    low, high = entry.usual
    return interval(low if entry.side == "both" else None, high, entry.unit)


def spread(values: Sequence[float], unit: str = "") -> str:
    """Mean and standard deviation; without a form of their own, to the second digit of the deviation."""
    middle, wide = fmean(values), stdev(values)
    form = DIGITS.get(unit) or (f".{min(9, max(0, 1 - floor(log10(wide))))}f" if wide else ".3g")
    return f"{middle:{form}}{GAP}±{GAP}{wide:{form}}".replace("-", "−")


def percent(share: float, digits: int = 0) -> str:
    """A share in hundredths."""
    return f"{100 * share:.{digits}f}{GAP}%".replace("-", "−")


def sentence(text: str) -> str:
    """A note as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def effect(value: float | None) -> str:
    """A distance from retrained models in units of the seed floor."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return "over +1000" if value > 0 else "below −1000"
    told = f"{value:+.1f}"
    return "0.0" if float(told) == 0 else told.replace("-", "−")


def distance(value: float | None) -> str:
    """The same in a sentence, whichever side it is on."""
    return "far" if value is None else f"{effect(abs(value)).lstrip('+')} seed floors"


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def explain_verdict(audit: Audit) -> tuple[str, str]:
    """The conclusion as a headline, and the reason for it."""
    headline = audit.sentence.partition(". ")[0].rstrip(".")
    asked = [entry for entry in audit.evidence if entry.asks == "gone"]
    able, weak = sum(entry.powerful for entry in asked), sum(entry.finding == "no power" for entry in asked)
    found = [entry.finding for entry in audit.evidence]
    have = (
        "1 has no power on this request and counts" if weak == 1 else f"{weak} have no power on this request and count"
    )
    silent = f" {have} for nothing." if weak else ""
    if audit.verdict == "remembers":
        differs = found.count("differs")
        more = f" {differs} more {_find(differs)} it unlike retrained models." if differs else ""
        seen = found.count("remembers")
        some = (
            f"All {able} tests" if seen == able > 1 else f"{seen} of the {able} tests" if able > 1 else "The one test"
        )
        takes = "takes" if seen == 1 else "take"
        return headline, (
            f"{some} that can tell still {takes} the model for one that saw the deleted data.{more}{silent}"
        )
    if audit.verdict == "differs":
        count = found.count("differs")
        where = "1 test finds the model" if count == 1 else f"{count} tests find the model"
        clear = "No test that can tell finds" if able else "No test here is able to find"
        return headline, (
            f"{clear} the deleted data in it, but {where} outside of what retrained models do: too little was "
            f"done, too much, or something else.{silent}"
        )
    if audit.verdict == "gone":
        return headline, (
            f"{able} of the {len(asked)} tests that ask whether the data is gone would have noticed had nothing been "
            f"done, and none of them tells this model from retrained ones.{silent}"
        )
    return headline, (
        f"On this request none of the {len(asked)} tests tells models that saw the data from models that did not. That "
        "they find nothing here means nothing: it is no proof that the data is gone."
    )


def _find(count: int) -> str:
    return "finds" if count == 1 else "find"


def explain_power(entry: Evidence) -> str:
    """Whether a test could have noticed anything."""
    if entry.asks == "else":
        return "This test asks what else the model does, not whether the data is gone."
    seen, count = round(entry.noticed * len(entry.trained)), len(entry.trained)
    if entry.powerful:
        return f"Would have noticed {seen} of {count} models that saw the data."
    if entry.separates:
        return (
            "It notices what gives away more than retraining does. That nothing was done gives away less, which is no "
            "fault here and is for other tests to notice."
        )
    return f"This test has no power here: it would have noticed {seen} of {count} models that saw the data."


def explain_finding(entry: Evidence) -> str:
    """What a test found, in a sentence."""
    far = "" if entry.effect is None else f", {distance(entry.effect)} from their mean"
    if entry.finding == "remembers":
        return f"The model lies outside of what retrained models do{far}, on the side of models that saw the data."
    if entry.finding == "differs":
        return _explain_difference(entry, far)
    if entry.finding == "no power":
        return "It finds nothing, and would find nothing in most models that saw the data: this counts for nothing."
    if entry.asks == "gone" and not entry.powerful:
        return "The model gives away no more than retrained models do."
    return "The model is where retrained models are" + (
        ", and models that saw the data are not." if entry.asks == "gone" else "."
    )


def _explain_difference(entry: Evidence, far: str) -> str:
    if entry.asks == "else":
        return f"No retrained model is expected here{far}: this is not what retraining gives."
    if entry.powerful:
        return (
            f"No retrained model is expected here{far}, and no model that saw the data either: it lies beyond, as if "
            "the data had been pushed away rather than left out."
        )
    if entry.separates:
        return f"The model gives away more than retrained models do{far}."
    return (
        f"No retrained model is expected here{far}, though on this request the test does not tell models that saw the "
        "data from others: something was done to it that retraining does not do."
    )


def explain_recovery(audit: Audit) -> str | None:
    """Whether forgetting should have raised the score, and how much of that came."""
    scores = audit.recovery
    if not scores.get("retrained"):
        return None
    (before,), (after,), retrained = scores["before"], scores["after"], scores["retrained"]
    low, _ = limits_of(retrained, "plain").range(audit.config["alarm"])
    told = (
        f"On the test nodes of the remaining graph the model before has an F1 of {number(before, 'F1')}, the model "
        f"after {number(after, 'F1')}, and retrained models {spread(retrained, 'F1')}. "
    )
    if before >= low:
        return told + "Retrained models are not clearly better than the model before: there was no score to win back."
    share = (after - before) / (fmean(retrained) - before)
    return told + f"The deleted data did harm, and {percent(share)} of what it cost came back."


def list_limits(audit: Audit, models: str | None = None) -> list[str]:
    """What the audit cannot say.

    Args:
        audit: The audit.
        models: Where the models are kept that it trained.
    """
    config = audit.config
    alarm, share = percent(config["alarm"]), percent(audit.evidence[0].alarm, 1)
    found = [
        f"These {len(audit.evidence)} tests only. A better attack, or someone who knows more than is assumed of them, "
        "may find what they do not.",
        "Power is measured against doing nothing: a test that notices models that saw all of the data may miss a model "
        f"that remembers a little of it. A test is said to have power when it notices {percent(POWER)} of them.",
        f"These seeds only. What is usual for a retrained model is estimated from {config['retrained']} of them, which "
        "were trained the same way as the model; another architecture or training has its own.",
        f"False alarms: a model that really was retrained raises any alarm in about {alarm} of audits. The tests share "
        f"that rate, so each allows {share}, as far as the numbers of retrained models are normally distributed. "
        f"Differences below {percent(MATERIAL)} of the distance between models with and without the data do not count.",
        "This model only. Copies of the model from before, of its outputs and of the data that others made are not "
        "reached by it, nor by this audit.",
    ]
    if config.get("left_out"):
        found.insert(0, f"This was a quick audit. It left out {config['left_out']}.")
    if models is not None:
        found.append(
            f"The audit itself made models that remember: {config['trained'] + config['shadows']} of those in {models} "
            "were trained with deleted data. Delete that folder when the audit is done."
        )
    return [*found, *map(sentence, audit.notes)]
