"""Numbers of an audit, with as many digits as they deserve."""

from collections.abc import Sequence
from math import floor, log10
from statistics import fmean, stdev

from unweave.auditing.evidence import Evidence

__all__ = ["GAP", "duration", "effect", "interval", "noticed", "number", "percent", "spread", "usual_range"]

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


def noticed(entry: Evidence) -> str:
    """How many of the models that saw the data a test notices."""
    return "–" if entry.asks == "else" else f"{round(entry.noticed * len(entry.trained))} of {len(entry.trained)}"


def spread(values: Sequence[float], unit: str = "") -> str:
    """Mean and standard deviation; without a form of their own, to the second digit of the deviation."""
    middle, wide = fmean(values), stdev(values)
    form = DIGITS.get(unit) or (f".{min(9, max(0, 1 - floor(log10(wide))))}f" if wide else ".3g")
    return f"{middle:{form}}{GAP}±{GAP}{wide:{form}}".replace("-", "−")


def percent(share: float, digits: int = 0) -> str:
    """A share in hundredths."""
    return f"{100 * share:.{digits}f}{GAP}%".replace("-", "−")


def effect(value: float | None) -> str:
    """A distance from retrained models in units of the seed floor."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return "over +1000" if value > 0 else "below −1000"
    told = f"{value:+.1f}"
    return "0.0" if float(told) == 0 else told.replace("-", "−")


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
