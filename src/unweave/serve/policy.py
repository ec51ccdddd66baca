"""How requests to a model are carried out: what its owner decided beforehand, and what every receipt is held to."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from unweave._core.document import canonical_json
from unweave.errors import ServiceError

__all__ = ["Policy", "seconds"]

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
AUDITS = ("off", "quick", "full")
METHODS = ("auto", "certified", "gif", "replay", "retrace", "retrain")


@dataclass(frozen=True)
class Policy:
    """What a model's owner decided.

    Attributes:
        method: ``auto``, which takes the cheapest way that keeps the two promises below, or any other method.
        budget: For ``auto``: at most this share of the cost of a retraining, e.g. ``"5%"``.
        at_least: For ``auto``: at least this share of the gap to a retrained model, from 0 to 1.
        within: Seconds that a request waits for others to be carried out with.
        batch: So many requests at most are carried out as one.
        deadline: Seconds in which a request has to be done; the page shows what is late.
        screen: Whether requests that would do more damage than random ones like them wait for an approval.
        audit: ``off``, ``quick`` or ``full``: whether each new version is audited, which trains models.
        purge: Whether all else that was made with what goes (checkpoints, calibration, a prepared state) is deleted or
            made anew with each request. A calibration goes then, and with it what ``auto`` believes of its answers.
        keep: How many superseded versions stay; they remember what was deleted since.
        memory_mib: MiB that evaluating the model may hold at a time.
    """

    method: str = "auto"
    budget: str | None = None
    at_least: float | None = None
    within: float = 0.0
    batch: int = 50
    deadline: float = 30 * 86400.0
    screen: bool = True
    audit: str = "off"
    purge: bool = True
    keep: int = 0
    memory_mib: float | None = None

    def __post_init__(self) -> None:
        for name in self._wrong():
            raise ServiceError(
                f"this is no policy: {name} must be {WORDS[name]}, got {getattr(self, name)!r}", status=422
            )

    def _wrong(self) -> list[str]:
        share = self.at_least is None or (_number(self.at_least) and 0 <= self.at_least <= 1)
        budget = self.budget is None or (
            isinstance(self.budget, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?%?", self.budget)
        )
        checks = {
            "method": self.method in METHODS,
            "budget": bool(budget) and (self.budget is None or self.method == "auto"),
            "at_least": share and (self.at_least is None or self.method == "auto"),
            "within": _number(self.within) and 0 <= self.within <= 366 * 86400,
            "batch": type(self.batch) is int and 1 <= self.batch <= 10_000,
            "deadline": _number(self.deadline) and 0 < self.deadline <= 10 * 366 * 86400,
            "screen": isinstance(self.screen, bool),
            "audit": self.audit in AUDITS,
            "purge": isinstance(self.purge, bool),
            "keep": type(self.keep) is int and 0 <= self.keep <= 1000,
            "memory_mib": self.memory_mib is None or (_number(self.memory_mib) and self.memory_mib > 0),
        }
        return [name for name, fine in checks.items() if not fine]

    @property
    def text(self) -> str:
        """As it is stored."""
        return canonical_json(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """What :attr:`text` wrote."""
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """A policy from a document; times may be written as ``"24h"``.

        Raises:
            ServiceError: It says what a policy does not know, or what it cannot be.
        """
        strange = sorted(set(document) - {field.name for field in fields(cls)})
        if strange:
            known = ", ".join(field.name for field in fields(cls))
            raise ServiceError(f"a policy has no {strange[0]!r}; it has {known}", status=422)
        times = {key: seconds(document[key]) for key in ("within", "deadline") if key in document}
        return cls(**{**document, **times})

    def how(self) -> dict[str, Any]:
        """What :meth:`unweave.Run.forget` takes."""
        wishes = {"budget": self.budget, "at_least": self.at_least}
        given = {key: value for key, value in wishes.items() if value is not None}
        return given | {"purge": self.purge, "memory_mib": self.memory_mib}

    def for_changes(self) -> str:
        """The method by which data that is added or corrected is followed.

        ``auto`` knows deletions alone; without a promise to keep it is ``gif``, with one, and where states of the
        training would be trained on from, it is a retraining.

        Raises:
            ServiceError: There is none.
        """
        if self.method == "certified" or self.memory_mib is not None:
            what = "a certified model" if self.method == "certified" else "a model in bounded memory"
            raise ServiceError(f"{what} answers deletions alone, not data that is added or corrected", status=422)
        return "gif" if self.method == "gif" or (self.method == "auto" and self.at_least is None) else "retrain"


WORDS = {
    "method": f"one of {', '.join(METHODS)}",
    "budget": "a share such as '5%', with the method auto",
    "at_least": "a share from 0 to 1, with the method auto",
    "within": "a time of up to a year, such as '24h'",
    "batch": "a number of requests from 1 to 10000",
    "deadline": "a time of up to ten years, such as '30d'",
    "screen": "true or false",
    "audit": f"one of {', '.join(AUDITS)}",
    "purge": "true or false",
    "keep": "a number of versions from 0 to 1000",
    "memory_mib": "a number of MiB, or null",
}


def seconds(time: Any) -> float:
    """A time as seconds: a number, or a text such as ``"90s"``, ``"15m"``, ``"24h"``, ``"30d"``."""
    if _number(time):
        return float(time)
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", time) if isinstance(time, str) else None
    if found is None:
        raise ServiceError(f"a time is a number of seconds or like 90s, 15m, 24h, 30d; got {time!r}", status=422)
    return float(found[1]) * UNITS[found[2]]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
