"""How near an answer is believed to be, with an interval."""

from dataclasses import dataclass

__all__ = ["FEWEST", "LEVEL", "Estimate"]

FEWEST = 9
"""Deletions below which no interval is given."""

LEVEL = 0.9
"""How often an interval is to hold."""


@dataclass(frozen=True)
class Estimate:
    """How much of the gap to retraining a rung is believed to close.

    Attributes:
        closed: As expected.
        low: The interval that holds nine times in ten; ``None`` where there are too few deletions to tell.
        high: Its other end.
        deletions: How many simulated deletions it rests on.
    """

    closed: float
    low: float | None = None
    high: float | None = None
    deletions: int = 0

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            scarce = 0 < self.deletions < FEWEST
            few = (
                f"too few simulated deletions, {self.deletions}, for an interval" if scarce else "no interval is known"
            )
            return f"{self.closed:.2f} ({few})"
        return f"{self.closed:.2f} ({self.low:.2f} … {self.high:.2f}, {LEVEL:.0%})"
