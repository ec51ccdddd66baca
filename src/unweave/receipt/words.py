"""A receipt in plain words: what became of the data and of the model, for somebody who has to rely on it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unweave._core.tuning import TUNING
from unweave.receipt.changed import MODEL_CHANGED, changed_data
from unweave.receipt.estimate import Estimate
from unweave.receipt.record import Record
from unweave.receipt.traces import OF_MODEL, Trace

__all__ = ["GRADES", "HARMFUL", "SILENT", "grade", "grounds", "in_time", "verdict"]

GRADES = {
    "retrained": "trained anew without it, which is exact",
    "certified": "certified, which is exact within the stated chance",
    "not needed": "unaffected, as nothing it was trained on depended on it",
    "bounded": "proved to be near where retraining leads",
    "believed": "believed to be near a retrained one, by simulated deletions",
    "at a minimum": "at a minimum again without it",
    "influence": "corrected by an influence step, nearness not measured",
    "trained on": "trained on without it, nearness not measured",
    "told": "partly trained anew, nearness as the receipt says",
    "unverified": "moved by a step that nobody has checked",
    "doubtful": "moved, without sign that it came nearer: do not rely on it",
    "unchanged": "practically unchanged: do not rely on it",
    "worse": "worse than doing nothing: do not use it",
    "nothing to do": "not touched, as there was nothing to do",
    "refused": "not touched, as the request was refused",
    "purged": "not touched by a purge",
}
"""What a receipt can say of the model, from exact to useless."""

HARMFUL = ("doubtful", "unchanged", "worse")
"""What is not to be relied on, and ``strict`` refuses."""

SILENT = "no prediction changes although edges or features were removed"
"""Warning of a model that listens to neighbours, and whose outputs do not tell that some are gone."""

UNDONE = 0.9
"""Of the pull of what was removed: where a step leaves more, nothing shows that it came nearer."""

UNMOVED = 0.01
"""Of the parameters' length: a step up to which a model is called practically unchanged."""

SAME = 1e-6
"""Relative difference up to which two values of an objective are the same but for rounding."""

NEAR = 0.05
"""Of the parameters' length: a proved distance up to which it says something."""


def grade(record: Record) -> str:
    """What a receipt says of the model, as one of :data:`GRADES`."""
    if record.status in ("refused", "nothing to do", "unverified"):
        return record.status
    if record.kind == "purge":
        return "purged"
    return next((name for name, holds in RULES if holds(record)), "influence")


def verdict(record: Record) -> str:
    """The receipt in one line."""
    if record.kind == "verification":
        some = _requests(len(record.speaks_of))
        return f"Checked on the whole graph: {some} that had been deferred. Model: {_model(record)}."
    if record.kind == "purge":
        gone = [found["what"] for found in record.remembers if found["state"] == "purged"]
        anew = [found["what"] for found in record.remembers if found["state"] == "rewritten"]
        return _sentence(
            "Purged of what else was made with the data of earlier requests",
            f"removed: {', '.join(gone)}" if gone else "",
            f"made anew without it: {', '.join(anew)}" if anew else "",
        )
    done = "changed in" if record.kind == "change" else "removed from"
    if record.status == "refused":
        return f"Data {done} the graph: no. Model: not touched. The {record.kind} was refused: {record.reason}"
    if record.status == "nothing to do":
        why = str(record.reason)
        return f"Nothing to do: {why}. Model: not touched."
    partly = record.reason is not None and record.carried_out
    data = "yes, what earlier requests had left of it" if partly else "yes"
    kept = _kept(record)
    but = f"; but {' and '.join(dict.fromkeys(kept))} in it may still hold some of it" if kept else ""
    data = changed_data(record) if record.kind == "change" else data
    return f"Data {done} the graph: {data}. Model: {_model(record)}{but}."


def _model(record: Record) -> str:
    """What became of the model, to go on with after that word."""
    found = grade(record)
    return MODEL_CHANGED[found] if record.kind == "change" and found in MODEL_CHANGED else MODEL[found](record)


def _certified(record: Record) -> str:
    proof = record.certificate or {}
    chance = f"ε = {proof['epsilon']:g}, δ = {proof['delta']:g}"
    return f"certified; no test tells it from a retrained one better than {chance} allow"


def _bounded(record: Record) -> str:
    share = (record.certificate or {})["distance"] / max(record.parameters["norm_before"], 1e-30)
    return f"proved to be within {share:.2g} of its length of where retraining to the end leads"


def _believed(record: Record) -> str:
    assert record.ladder is not None
    known = record.ladder["calibration"] or {}
    rests = f", by {known['deletions']} simulated deletions" if known else ""
    text = f"believed to have come {Estimate(**record.ladder['estimate'])} of the way to a retrained one{rests}"
    text += ", less than was asked for" if record.ladder["short"] else ""
    return text + ("; its own figures speak against that" if record.ladder["doubt"] else "")


def _corrected(record: Record) -> str:
    what = "was changed" if record.kind == "change" else "was removed"
    undone = (
        "" if record.residual_influence is None else f" that took back {_undone(record)} of the pull of what {what}"
    )
    doubt = "" if record.details.get("confirmed", True) else ", and on a model that fits so closely a pull says little"
    known = "" if record.ladder is None else ", as this run has no calibration"
    same = record.details.get("agreement", 1.0)
    luck = "" if same >= TUNING.polish.agreement else f"; {_apart(same)}, so that retraining may differ by more than it"
    return (
        f"corrected by an influence step{undone}; how near to a retrained one that is was not measured{known}{doubt}"
        f"{luck}"
    )


def _at_minimum(record: Record) -> str:
    same = record.details.get("agreement")
    leads = "which is where retraining leads if it has no other; nobody looked for one, and how near was not measured"
    if same is not None and same >= TUNING.polish.agreement:
        leads = "which is where every training leads, as far as another seed shows; how near to that was not measured"
        luck, moved = record.details.get("luck"), record.objective.get("function_change")
        if luck is not None and moved is not None and luck > (1 - TUNING.polish.agreement) * moved:
            leads = (
                f"which is where every training leads to within {luck:.1g} nats, as far as another seed shows; it "
                f"moved by {moved:.1g}, so how near it is to a retrained one cannot be told from the luck of a seed"
            )
    elif same is not None:
        leads = f"but {_apart(same)}: retraining may differ"
    there, early = "at a minimum again", ""
    if record.details.get("ended"):
        there, early = "on its way to a minimum again", " (it ended early, see the warnings)"
    return f"{there} {'with it' if record.kind == 'change' else 'without it'}{early}, {leads}"


def _doubtful(record: Record) -> str:
    if _not_needed(record):
        return (
            "not touched: its outputs do not depend on what was removed from the graph that it is given, but it may "
            "compute with what it keeps itself; do not rely on it"
        )
    if _by_luck(record):
        return (
            f"at a minimum again, but {_apart(record.details['agreement'])}, as far from each other as a deletion "
            "moves it; do not rely on it"
        )
    return "moved, but its own figures show no sign that it came nearer to one without it; do not rely on it"


def _by_luck(record: Record) -> bool:
    """Whether seeds were found to differ by as much as a deletion changes, so that a minimum tells nothing."""
    return _by_itself(record) and record.details.get("agreement", 1.0) <= 0


def _apart(agreement: float) -> str:
    return f"trainings of this model end at different ones (agreement {agreement:.2f} of 1)"


def _undone(record: Record) -> str:
    assert record.residual_influence is not None
    return f"{max(0.0, 1 - record.residual_influence):.0%}"


def _name(record: Record) -> str:
    """The method, or the rung that ``auto`` took."""
    rung = record.details.get("rung", record.method.get("name", ""))
    return str(rung).partition("(")[0]


def _rose(record: Record) -> bool:
    """Whether the objective on the remaining graph, less a gradient that was kept, is higher than before."""
    before, after = (record.objective.get(f"remaining_{when}") for when in ("before", "after"))
    gained = record.details.get("gained_by_it", 0.0)
    return before is not None and after is not None and after - before - gained > SAME * abs(before)


def _by_itself(record: Record) -> bool:
    """Whether a method went down the objective of the remaining graph itself, so that Q tells nothing of it."""
    return record.details.get("objective") == "L'" or _name(record) == "finetune"


def _is_bounded(record: Record) -> bool:
    proof = record.certificate or {}
    return proof.get("kind") == "bound" and bool(proof["distance"] <= NEAR * record.parameters["norm_before"])


def _not_needed(record: Record) -> bool:
    """Whether nothing that was trained on changed with the graph."""
    return record.residual_influence is None and record.objective.get("local_change") is not None


def _kept(record: Record) -> list[str]:
    """What in the model may still hold some of what was removed."""
    return [found["what"] for found in record.remembers if found["what"] in OF_MODEL and found["state"] == "kept"]


def _has_its_own_graph(record: Record) -> bool:
    """Whether a model passes no messages along the edges it is given, and keeps tensors that may be edges."""
    return record.region.get("steps") == 0 and any(what in ("a buffer", "a tensor") for what in _kept(record))


def _is_undone(record: Record) -> bool:
    """Whether as good as all of the pull of what was removed is left."""
    return record.residual_influence is not None and record.residual_influence >= UNDONE


def _is_worse(record: Record) -> bool:
    """By the receipt's own figures: the objective that the method is judged by rose, and so did its gradient."""
    if _by_itself(record):
        return _rose(record)
    residual, change = record.residual_influence, record.objective.get("local_change")
    return residual is not None and residual >= 1 and change is not None and change > 0


RULES: tuple[tuple[str, Callable[[Record], bool]], ...] = (
    ("certified", lambda r: (r.certificate or {}).get("kind") == "removal"),
    ("retrained", lambda r: r.anew),
    ("believed", lambda r: r.ladder is not None and r.ladder.get("estimate") is not None),
    ("doubtful", lambda r: _not_needed(r) and (_has_its_own_graph(r) or SILENT in r.warnings)),
    ("not needed", _not_needed),
    ("unchanged", lambda r: r.kind in ("request", "change") and r.step_norm == 0),
    ("bounded", _is_bounded),
    ("worse", _is_worse),
    ("trained on", lambda r: _name(r) == "finetune"),
    ("doubtful", _by_luck),
    ("at a minimum", _by_itself),
    ("told", lambda r: r.residual_influence is None and bool(r.nearness)),
    ("doubtful", lambda r: bool(r.details.get("restless")) or (r.residual_influence or 0.0) > 1),
    ("unchanged", lambda r: _is_undone(r) and r.step_norm <= UNMOVED * r.parameters["norm_before"]),
    ("doubtful", _is_undone),
)
"""What a receipt says of the model: the first that holds, and otherwise ``"influence"``."""

MODEL: dict[str, Callable[[Record], str]] = {
    "retrained": lambda r: "trained anew without it; this is exact, it never saw what was removed",
    "certified": _certified,
    "not needed": lambda r: "need not change; nothing it was trained on depended on what was removed",
    "bounded": _bounded,
    "believed": _believed,
    "at a minimum": _at_minimum,
    "influence": _corrected,
    "trained on": lambda r: "trained on for a while without it; how near to a retrained one that is was not measured",
    "told": lambda r: str(r.nearness),
    "unverified": lambda r: "moved by one step that nobody has checked; verify the run before you rely on it",
    "doubtful": _doubtful,
    "unchanged": lambda r: "practically unchanged; do not rely on it",
    "worse": lambda r: "worse than doing nothing, by the receipt's own figures; do not use it",
}


def _sentence(*parts: str) -> str:
    return "; ".join(filter(None, parts)) + "."


def grounds(
    ladder: dict[str, Any], remembers: Sequence[Trace], certificate: Mapping[str, Any] | None = None
) -> list[str]:
    """What ``auto`` did, how near it is believed to be, on what evidence, and what still remembers.

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
