"""What else remembers: all that was made with what a request removed, beside the parameters, and what becomes of it.

A receipt lists every such trace with its state: ``purged`` (it is gone), ``rewritten`` (it was made anew without the
removed data) or ``kept``, with the place and the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "BEFORE",
    "OF_MODEL",
    "STATES",
    "UNPURGED",
    "Part",
    "Trace",
    "before",
    "fates",
    "outside",
    "trace",
]

Trace = dict[str, str]
NEW = "the folder of the run does not hold it: keep the graph as it is now (Run.data), with which the run is opened"
BEFORE = "the run before"
UNPURGED = "the run before the purge"
OF_MODEL = ("running statistics", "frozen parameters", "a parameter", "a buffer", "a tensor")
"""What of the model itself can remember beside the parameters that a method changes."""


@dataclass(frozen=True)
class Part:
    """A part of a run that was made with the graph as it was, and that the run can do without.

    Attributes:
        field: Its name in :class:`~unweave.Run`.
        files: Its names in the folder.
        what: What it is called.
        kept: Why it remembers.
        anew: Whether a purge computes it anew; otherwise it is removed.
    """

    field: str
    files: tuple[str, ...]
    what: str
    kept: str
    anew: bool = False

    @property
    def where(self) -> str:
        """Its place, as a receipt names it."""
        return ", ".join(self.files)


STATES = (
    Part(
        field="prepared",
        files=("prepared.safetensors", "prepared.json"),
        what="the prepared state",
        kept="its curvature was computed on the graph with what was removed",
        anew=True,
    ),
    Part(
        field="checkpoints",
        files=("checkpoints.safetensors", "checkpoints.json"),
        what="the checkpoints",
        kept="weights, optimiser and random numbers, trained on what was removed; replay resumes them",
    ),
    Part(
        field="calibration",
        files=("calibration.json",),
        what="the calibration",
        kept="gaps and costs, measured with models that were trained on what was removed; it names no node",
    ),
)
"""Every file of a run is one of the model's own, a receipt, or listed here."""


def trace(what: str, where: str, state: Literal["purged", "rewritten", "kept"], why: str) -> Trace:
    """An entry of a receipt."""
    return {"what": what, "where": where, "state": state, "why": why}


def fates(before: Mapping[str, Any], after: Mapping[str, Any], fresh: Mapping[str, str]) -> list[Trace]:
    """What became of each part that a run had or has.

    Args:
        before: The parts by field, ``None`` or empty where there was none.
        after: The same now.
        fresh: Fields that were made anew on the remaining graph alone, and how.
    """
    found = []
    for part in STATES:
        had, has = bool(before.get(part.field)), bool(after.get(part.field))
        what = part.what + _epochs((after if has else before).get(part.field))
        if has and part.field in fresh:
            found.append(trace(what, part.where, "rewritten", fresh[part.field]))
        elif has:
            found.append(trace(what, part.where, "kept", part.kept))
        elif had:
            found.append(trace(what, part.where, "purged", "removed"))
    return found


DERIVED = (
    "computed from the graph as it was; rows that differ now are computed anew, in memory; delete it with the graph"
)


def outside(
    name: str | None,
    receipt: int,
    run: str | None,
    *,
    replaced: bool = False,
    change: bool = False,
    folder: str | None = None,
    derived: str | None = None,
) -> list[Trace]:
    """What lies beyond the parts of a run, and is named, not touched.

    Args:
        name: Of the data set, where it has one.
        receipt: Number of the receipt.
        run: The folder the run was opened from, if it was.
        replaced: Whether the new run takes its place.
        change: Whether data was added or corrected too.
        folder: Where the graph lies, if it lies in a folder of its own.
        derived: What was computed from it there, if there is such.
    """
    data = "the graph as it was, outside of the run: it is read, and never changed"
    line, why = f"receipts.jsonl, line {receipt}", "the record of what went, by its ids"
    record = trace("the request", line, "kept", why)
    if change:
        why = "the record of what came, became other and went, by its ids; of the values it has a digest alone"
        record = trace("the change", line, "kept", why)
    return [
        before(BEFORE, run, "it has the old model and all that belongs to it; delete it, or forget", replaced=replaced),
        trace(f"the data set {name}" if name else "the graph", folder or "where it is stored", "kept", data),
        *([trace("propagated features", derived, "kept", DERIVED)] if derived else []),
        record,
        *(
            [trace("what was added or corrected", "your graph, and the file of the change", "kept", NEW)]
            if change
            else []
        ),
    ]


def before(what: str, run: str | None, why: str, *, replaced: bool) -> Trace:
    """The run before, which the new one replaces or leaves where it is."""
    if replaced:
        return trace(what, run or "wherever it was saved", "purged", "replaced by this one")
    return trace(what, run or "wherever it was saved", "kept", f"{why} in place (--out RUN --overwrite)")


def _epochs(value: object) -> str:
    """The epochs of checkpoints."""
    epochs = [str(state.epoch) for state in value if hasattr(state, "epoch")] if isinstance(value, tuple) else []
    return f" of epoch {', '.join(epochs)}" if epochs else ""
