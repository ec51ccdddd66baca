"""Many receipts in a few lines: how many requests were done, what became of the model, and every warning once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unweave.receipt.receipt import Receipt
from unweave.receipt.words import GRADES, HARMFUL

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True)
class Summary:
    """What some receipts say together.

    Attributes:
        requests: How many requests there were.
        statuses: How many of them had each status.
        grades: How often a receipt said each thing of the model (:data:`unweave.receipt.words.GRADES`), from exact to
            useless.
        warnings: Every warning, and how often it was given.
        refusals: The requests that were refused, by their own id or digest, and why.
    """

    requests: int
    statuses: Mapping[str, int]
    grades: Mapping[str, int]
    warnings: Mapping[str, int]
    refusals: Mapping[str, str]

    @property
    def relied_on(self) -> bool:
        """Whether none of the answers is worse than doing nothing, as good as nothing, or without sign of use."""
        return not any(self.grades.get(name) for name in HARMFUL)

    def to_dict(self) -> dict[str, Any]:
        """For scripts."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Titles and texts, as those of a receipt."""
        counts = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        told = [("Requests", f"{self.requests}: {counts}" if counts else "none")]
        model = [f"{_times(count)} {GRADES[name]}" for name, count in self.grades.items()]
        refusals = [f"{name}: {why}" for name, why in self.refusals.items()]
        warnings = [f"{_times(count)}: {text}" for text, count in self.warnings.items()]
        for title, texts in (("Model", model), ("Refused", refusals), ("Warning", warnings)):
            told += [(title if i == 0 else "", text) for i, text in enumerate(texts)]
        return told

    def __str__(self) -> str:
        return "\n".join(f"{title:<11}{text}" for title, text in self.lines())


def summarise(receipts: Iterable[Receipt]) -> Summary:
    """What some receipts say together."""
    statuses, grades, warnings = Counter[str](), Counter[str](), Counter[str]()
    refusals = {}
    for receipt in receipts:
        warnings.update(receipt.warnings)
        if receipt.kind in ("request", "change"):
            statuses[receipt.status] += 1
        if receipt.status == "refused":
            refusals[receipt.id or str(receipt.request_digest)[:12]] = str(receipt.reason)
        elif receipt.kind == "verification" or receipt.carried_out:
            grades[receipt.grade] += 1
    ordered = {name: grades[name] for name in GRADES if grades[name]}
    return Summary(statuses.total(), dict(statuses), ordered, dict(warnings), refusals)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
