"""States, times, policies and entries of the ledger in plain words."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from unweave._core.text import printable
from unweave.receipt.words import GRADES
from unweave.serve.ledger import Entry
from unweave.serve.ledger.entries import CHANGED, DESTROYED, OPENED
from unweave.serve.policy import Policy

__all__ = ["FILTERS", "SHORT", "amount", "due", "duration", "moment", "named", "policy_words", "sentence", "told"]

SHORT = {
    "received": "to be screened",
    "waiting": "needs approval",
    "queued": "to be carried out",
    "applied": "carried out, to be checked",
    "verified": "checked, to be audited",
    "audited": "audited, who asked is to be erased",
    "erased": "nearly done",
    "done": "done",
    "refused": "refused",
    "aside": "set aside, needs a decision",
}
"""A state in a few words."""

UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))


def amount(count: int, noun: str, nouns: str | None = None) -> str:
    """A number of things."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def duration(seconds: float) -> str:
    """A time in the largest unit of which there are two or more, or just one."""
    for name, unit in UNITS:
        if seconds == unit or seconds >= 2 * unit:
            return amount(round(seconds / unit), name)
    return "1 minute" if seconds >= 60 else "less than a minute"


def due(at: float, deadline: float, now: float) -> tuple[bool, str]:
    """Whether an open request is late, and how old it is against its deadline."""
    age = max(0.0, now - at)
    if age > deadline:
        return True, f"late by {duration(age - deadline)}; it is {duration(age)} old"
    return False, f"{duration(age)} old; {duration(deadline - age)} left"


def moment(at: float | str) -> Markup:
    """A time, in UTC."""
    time = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else datetime.fromisoformat(at)
    time = time.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        time.isoformat(timespec="seconds"), time.strftime("%Y-%m-%d %H:%M:%S")
    )


def named(counts: Mapping[str, int], gone: int = 0) -> str:
    """What a request names, as far as that is told to anybody."""
    parts = [
        (counts.get("subjects", 0), "everything of {}", "subject"),
        (counts.get("edges", 0), "{}", "edge"),
        (counts.get("features", 0), "features of {}", "subject"),
        (counts.get("labels", 0), "{}", "label"),
        (counts.get("add_nodes", 0), "{} to add", "subject"),
        (counts.get("add_edges", 0), "{} to add", "edge"),
        (counts.get("correct_features", 0), "features of {} to correct", "subject"),
        (counts.get("correct_labels", 0), "{} to correct", "label"),
        (counts.get("correct_edge_weights", 0), "{} to correct", "edge weight"),
    ]
    text = ", ".join(form.format(amount(count, noun)) for count, form, noun in parts if count)
    earlier = f"{amount(gone, 'id')} had been taken by earlier requests already" if gone else ""
    return "; ".join(filter(None, [text or "nothing new", earlier]))


def sentence(text: str) -> str:
    """Words as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def policy_words(policy: Policy) -> list[str]:
    """What a model's owner decided, in sentences."""
    how = f"Requests are carried out by the method {policy.method}"
    if policy.method == "auto":
        how += ", the cheapest way that serves"
    how += f", at no more than {policy.budget} of the cost of a retraining" if policy.budget else ""
    how += f", closing at least {policy.at_least:.0%} of the gap to a retrained model" if policy.at_least else ""
    several = "One at a time." if policy.batch == 1 else f"Up to {policy.batch:,} requests are carried out as one"
    if policy.batch > 1:
        several += (
            f"; a request waits up to {duration(policy.within)} for others." if policy.within else ", without waiting."
        )
    audits = {"off": "New versions are not audited.", "quick": "Each new version is audited quickly."}
    kept = f"The newest {amount(policy.keep, 'version')} that remember what was deleted stay; older ones are deleted."
    return [
        how + ".",
        several,
        f"A request has to be done within {duration(policy.deadline)}.",
        "Requests that would do more damage than random ones like them wait for an approval."
        if policy.screen
        else "Requests are not screened: none waits for an approval.",
        audits.get(policy.audit, "Each new version is audited in full."),
        kept if policy.keep else "Versions that remember what was deleted are deleted at once.",
    ]


def told(entry: Entry, names: Mapping[str, str] | None = None) -> tuple[str, str]:
    """An entry in plain words: what happened, and more of it.

    Args:
        entry: Of the ledger.
        names: Of tokens, for those who may know them.
    """
    said = SAID.get(entry.kind)
    if said is None:
        return sentence(entry.kind), ", ".join(f"{key}: {value}" for key, value in entry.body.items())
    head, more = said
    return head, more(_Body(entry.body, names or {}))


class _Body(dict[str, Any]):
    """Facts of an entry, some of which may be missing."""

    def __init__(self, body: Mapping[str, Any], names: Mapping[str, str]) -> None:
        super().__init__(body)
        self.names = names

    def __missing__(self, key: str) -> str:
        return "not known"

    @property
    def by(self) -> str:
        """Who did it."""
        who = str(self["by"])
        if who in self.names:
            return f"by {self.names[who]} (token {who[:8]}…)"
        return f"by token {who[:8]}…" if len(who) == 32 else f"by {who}"


def _received(body: _Body) -> str:
    counts = body.get("counts")
    return sentence(named(counts if isinstance(counts, dict) else {}, int(body.get("gone", 0))))


def _applied(body: _Body) -> str:
    grade = GRADES.get(body["grade"], body["grade"])
    return f"Version {body['version']} of the model is current; it is {grade}."


def _verified(body: _Body) -> str:
    return ("It did not pass: " if body.get("passed") is False else "") + sentence(str(body["outcome"]))


SAID: Mapping[str, tuple[str, Callable[[_Body], str]]] = {
    "request received": ("Received", _received),
    "request screened": ("Screened", lambda b: ("Flagged: " if b.get("flagged") else "") + sentence(b["statement"])),
    "request approved": ("Approved", lambda b: sentence(b.by)),
    "request refused": ("Refused", lambda b: f"{sentence(b.by)} Reason: {sentence(b['reason'])}"),
    "request retried": ("To be tried again", lambda b: sentence(b.by)),
    "request set aside": ("Set aside", lambda b: sentence(b["reason"])),
    "request applied": ("Carried out", _applied),
    "request verified": ("Checked", _verified),
    "request audited": ("Audited", lambda b: sentence(b["outcome"])),
    "request done": ("Done", lambda b: sentence(b["outcome"])),
    DESTROYED: ("Who asked was erased", lambda b: "The key of what was personal in it was destroyed."),
    OPENED: ("Ledger opened", lambda b: f"With the public key {b['public_key']}."),
    CHANGED: ("Signing key changed", lambda b: f"The public key is {b['public_key']} from now on."),
    "model registered": ("Model registered", lambda b: f"With {b['subjects']} subjects; weights {b['weights'][:12]}."),
    "policy changed": ("Policy changed", lambda b: " ".join(policy_words(Policy.of(b["policy"])))),
    "current moved": ("Another version made current", lambda b: f"Version {b['version']}."),
    "versions purged": ("Versions purged", lambda b: f"Deleted: {', '.join(map(str, b['versions']))}."),
    "token made": ("Token made", lambda b: f"Token {b['token'][:8]}… may {', '.join(b['scopes'])}."),
    "token revoked": ("Token revoked", lambda b: f"Token {b['token'][:8]}… serves no more."),
    "hook added": ("Hook added", lambda b: f"Hook {b['hook'][:8]}… is told of new versions."),
    "hook removed": ("Hook removed", lambda b: f"Hook {b['hook'][:8]}… is told no more."),
    "hook not heard": ("Hook not heard", lambda b: f"Hook {b['hook'][:8]}… did not answer, and was given up."),
}
"""Kinds of entries: a few words, and what more there is to say."""

FILTERS = {
    "moment": moment,
    "duration": duration,
    "sentence": sentence,
    "shown": lambda text: printable(str(text)),
    "lines": lambda text: printable(str(text), lines=True),
}
"""For templates; ``shown`` and ``lines`` leave nothing that turns the direction of writing."""
