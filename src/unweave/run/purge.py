"""Purge a run that has forgotten: drop what else was made with what was removed, or make it anew without."""

from dataclasses import replace
from typing import Any

from unweave.curvature.prepared import Prepared
from unweave.errors import MethodError
from unweave.receipt.receipt import Receipt
from unweave.receipt.traces import STATES, UNPURGED, fates, trace
from unweave.run.state import State
from unweave.run.verify import prepared_anew, verified

__all__ = ["check_purge", "purge", "with_cost"]


def check_purge(wanted: bool, defer: bool) -> None:
    """A purge looks at the whole graph, and a deferred request does not."""
    if wanted and defer:
        raise MethodError(
            "purge (--purge) computes the prepared state anew, which looks at the whole graph, and a deferred request "
            "does not; leave defer (--defer) out, or purge with a later request, which verifies this one"
        )


def purge(state: State, memory_mib: float | None) -> State:
    """Drop or make anew every part that remembers; see :meth:`unweave.Run.purge`.

    What the last receipt has as rewritten was made on the remaining graph, and stays.
    """
    state = verified(state, memory_mib)
    if not state.receipts:
        return state
    last = state.receipts[-1]
    fresh = {
        part.field: found["why"]
        for part in STATES
        for found in last.remembers
        if found["where"] == part.where and found["state"] == "rewritten"
    }
    stale = [part for part in STATES if getattr(state, part.field) and part.field not in fresh]
    if not stale:
        return state
    none: dict[str, Any] = {part.field: State.__dataclass_fields__[part.field].default for part in stale}
    new = replace(state, **none)
    if any(part.anew for part in stale):
        new = prepared_anew(new, memory_mib)
        assert new.prepared is not None
        fresh["prepared"] = f"computed anew on the remaining graph, {new.prepared.passes} passes"
        last = with_cost(last, "purge", new.prepared)
    told = {found["where"]: found for found in fates(vars(state), vars(new), fresh)}
    remembers = [told.pop(found["where"], found) for found in last.remembers] + list(told.values())
    if state.origin is not None and len(state.receipts) <= state.origin[1]:
        why = "it has what was purged here; delete it, or purge in place (--out RUN --overwrite)"
        remembers.append(trace(UNPURGED, str(state.origin[0]), "kept", why))
    return replace(new, receipts=(*state.receipts[:-1], replace(last, remembers=remembers)))


def with_cost(receipt: Receipt, phase: str, state: Prepared) -> Receipt:
    """The receipt of a request for which the state was computed anew."""
    spent = receipt.seconds.get(phase, 0.0) + state.seconds
    seconds = receipt.seconds | {phase: spent, "total": receipt.seconds["total"] + state.seconds}
    return replace(receipt, seconds=seconds, passes=receipt.passes + state.passes)
