"""The verdict of the ladder in plain words: what was done, how near it is believed to be, and what is not known."""

from collections.abc import Mapping, Sequence
from typing import Any

from unweave.receipt.estimate import Estimate
from unweave.receipt.traces import Trace

__all__ = ["in_time", "in_words"]


def in_words(
    ladder: dict[str, Any], remembers: Sequence[Trace], certificate: Mapping[str, Any] | None = None
) -> list[str]:
    """Sentences for people.

    Args:
        ladder: What :class:`unweave.methods.Auto` notes in a receipt.
        remembers: Of the receipt.
        certificate: What was proved, or why nothing was.
    """
    kept = [f"{found['what']} ({found['where']})" for found in remembers if found["state"] == "kept"]
    return [
        *_done(ladder),
        *_near(ladder),
        *_evidence(ladder),
        "It is not certified." if certificate is None else _proved(certificate),
        "What still remembers: " + "; ".join(kept) + "."
        if kept
        else "Nothing that was trained on the removed data is known to be left beside the model.",
    ]


def _proved(certificate: Mapping[str, Any]) -> str:
    """What a certificate states, as a sentence."""
    text = str(certificate["statement"]).rstrip(".") + "."
    return text[0].upper() + text[1:]


def _done(ladder: dict[str, Any]) -> list[str]:
    asked, rung, cost = ladder["asked"], ladder["rung"], ladder["expected_cost"]
    wishes = [
        f"at most {asked['budget']:.3g} of a retraining" if asked["budget"] is not None else "",
        f"at least {asked['at_least']:.3g} of the gap closed" if asked["at_least"] is not None else "",
    ]
    wish = " and ".join(filter(None, wishes)) or "nothing in particular (a fifth of a retraining is then allowed)"
    share = "an unknown share" if cost is None else f"about {cost:.1%}"
    lines = [f"Asked for {wish}; done by {rung}, which costs {share} of a retraining."]
    for tried in ladder["tried"][:-1]:
        lines.append(f"{tried['rung']} was tried first ({tried['passes']} passes) and given up: {tried['given_up']}.")
    if ladder["short"]:
        lines.append("No rung within the budget is believed to close as much as was wanted: this is the best of them.")
    return lines


def _near(ladder: dict[str, Any]) -> list[str]:
    if ladder["rung"] == "retrain":
        return ["It is the retrained model itself: the whole gap is closed."]
    standing, before = ladder["standing"], ladder["requests_before"]
    if ladder["estimate"] is None:
        what = (
            "It is not known how much of the gap to a retrained model this closes: nothing was measured on this model."
        )
        return [what + " `unweave calibrate` (Run.calibrate) measures it."]
    own = Estimate(**ladder["estimate"])
    lines = [f"Believed to close {own} of the gap to a model retrained without it."]
    if before:
        size = sum(standing["shape"].values())
        low, high = (None if standing[key] is None else 1 - standing[key] / size for key in ("most", "least"))
        together = Estimate(1 - standing["left"] / size, low, high, own.deletions)
        lines.append(f"With {_requests(before)} before it since training, {together} of the gap of all together.")
    if ladder["floor"]:
        lines.append(
            f"What is left is expected to be below {ladder['floor']:.1g} nats a node, by which even two minimisations "
            "of the same objective differ."
        )
    if standing["unknown"]:
        lines.append(
            f"{standing['unknown']} of these were carried out in ways that nothing is known of; they count as not "
            "forgotten."
        )
    return lines


def _evidence(ladder: dict[str, Any]) -> list[str]:
    lines, evidence, known = [], ladder["evidence"], ladder["calibration"]
    if ladder["rung"] == "retrain":
        return []
    if known is not None:
        held = known["held_back"]
        lines.append(
            f"That rests on {known['deletions']} simulated deletions{in_time(known)}"
            + (
                f"; held back in turn, they were off by {held['error']:.2f} (median) and within their interval in "
                f"{held['coverage']:.0%}."
                if held
                else ", too few to hold any back."
            )
        )
        if sum(ladder["standing"]["shape"].values()) > known["largest"]:
            lines.append("What was asked is larger than any of them, so that the estimate is an extrapolation.")
    if "stationarity" in evidence:
        lines.append(
            f"On the remaining graph the objective would still fall by {evidence['stationarity']:.2g} of itself; at a "
            "minimum it would not."
        )
    if ladder["doubt"]:
        lines.append(f"Against it speaks that {ladder['doubt']}.")
    return lines


def in_time(age: Mapping[str, Any]) -> str:
    """How old a calibration is (:func:`unweave.methods.ladder.debt.age_of`), to go on with after what it is."""
    if not age["requests_ago"]:
        return ""
    before = ", on the model before it was retrained by the same recipe" if age.get("retrained_since") else ""
    return f", {_requests(age['requests_ago'])} ago{before}"


def _requests(count: int) -> str:
    return f"{count} request{'s' * (count != 1)}"
