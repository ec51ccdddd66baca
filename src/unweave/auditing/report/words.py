"""What only the page says: its titles, how to read its figures, and what an audit cannot say."""

from statistics import fmean

from unweave.auditing.audit import Audit
from unweave.auditing.evidence import MATERIAL, POWER, Evidence
from unweave.auditing.limits import limits_of
from unweave.auditing.numbers import number, percent, spread
from unweave.auditing.words import remainder, sentence

__all__ = ["GROUPS", "READING", "explain_power", "explain_recovery", "list_limits"]

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

READING = (
    "AUC is the chance that a test ranks a deleted item above one that it is compared with: 0.5 is a coin, 1 tells "
    "them all apart. A retrained model need not be at 0.5, because some items stand out without having been seen. TPR "
    "at 1 % FPR is the share of deleted items that the test names while it wrongly names one in a hundred others.",
    "Seed floor: the standard deviation among models that were retrained from different seeds. Luck alone carries a "
    "retrained model about that far from their mean; an effect is given in these units.",
    "Usual range: where one more retrained model would be expected. A model outside of it, on the side of models that "
    "saw the data, still remembers; outside of it on any other side, it differs from what retraining gives.",
    "Noticed: a test that would not have noticed that nothing was done cannot tell, and is not counted as passed.",
)
"""What the reader of a figure should know."""


def explain_power(entry: Evidence) -> str:
    """Whether a test could have noticed anything."""
    if entry.asks == "else":
        return "This test asks what else the model does, not whether the data is gone."
    seen, count = round(entry.noticed * len(entry.trained)), len(entry.trained)
    if entry.powerful:
        least = percent(entry.noticeable or 0.0)
        return f"Would have noticed {seen} of {count} models that saw the data, and most that remember {least} of it."
    if entry.separates:
        return (
            "It notices what gives away more than retraining does. That nothing was done gives away less, which is no "
            "fault here and is for other tests to notice."
        )
    return f"No: it would have noticed {seen} of {count} models that saw the data."


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
        _little(audit),
        "What the model answers to these tests, and what hangs on it as a tensor, only. What is hidden in the "
        "parameters themselves, or shows only on inputs that no test gives, is not seen.",
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


def _little(audit: Audit) -> str:
    """What a model could remember without being noticed."""
    told = (
        "Whether a little is left. A test counts when it notices "
        f"{percent(POWER)} of the models that saw all of the data, and may miss one that remembers some of it."
    )
    left = remainder(audit.evidence)
    if left is None:
        return told
    return (
        f"{told} {left} That is the least share at which the sharpest test would have noticed {percent(POWER)} of such "
        "models, if its number follows the share of the deleted items that are remembered. Old weights that are mixed "
        "into retrained ones may be noticed later still."
    )
