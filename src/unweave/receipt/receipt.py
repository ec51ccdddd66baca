"""What was done, how well and at what cost: a record for people and for machines."""

from dataclasses import dataclass
from typing import Any

from unweave.receipt.lines import DETAILS, lines
from unweave.receipt.record import Record
from unweave.receipt.words import grade, grounds, verdict

__all__ = ["Receipt"]


@dataclass(frozen=True)
class Receipt(Record):
    """The record of a request, a verification or a purge; once issued it never changes.

    ``print(receipt)`` is for people, with the verdict on top and what only an expert needs under *Details*;
    ``receipt.to_json()`` is for machines. The attributes are those of :class:`~unweave.receipt.record.Record`.
    """

    @property
    def verdict(self) -> str:
        """What became of the data and of the model, in one plain line."""
        return verdict(self)

    @property
    def grade(self) -> str:
        """What became of the model, in a word: one of :data:`unweave.receipt.words.GRADES`."""
        return grade(self)

    @property
    def grounds(self) -> list[str]:
        """What the verdict of ``auto`` rests on, in sentences; none for other methods."""
        return [] if self.ladder is None else grounds(self.ladder, self.remembers, self.certificate)

    def to_dict(self) -> dict[str, Any]:
        """The receipt as a JSON document, with its verdict and grade."""
        return {**super().to_dict(), "verdict": self.verdict, "grade": self.grade}

    def lines(self) -> list[tuple[str, str]]:
        """Titles and texts as people read them; a line without a title goes on the one before."""
        return lines(self)

    def __str__(self) -> str:
        told, indent = [], ""
        for title, text in self.lines():
            told.append(f"{indent}{title:<11}{text}".rstrip())
            indent = "  " if title == DETAILS else indent
        return "\n".join(told)
