"""Purge a run that has forgotten: drop what else was made with what was removed, or make it anew without."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unweave.curvature.prepared import Prepared
from unweave.methods.account import untouched
from unweave.receipt.receipt import Receipt
from unweave.receipt.traces import STATES, UNPURGED, before, fates
from unweave.run.state import State, with_receipt
from unweave.run.verify import prepared_anew, verified

__all__ = ["purge", "with_cost"]


def purge(state: State, memory_mib: float | None, *, in_place: bool = False) -> State:
    """Drop or make anew every part that remembers, and issue a receipt of that; see :meth:`unweave.Run.purge`.

    What the receipts have as rewritten since the last request was made on the remaining graph, and stays.
    """
    state = verified(state, memory_mib)
    last, fresh = _since_the_last(state.receipts)
    stale = [part for part in STATES if getattr(state, part.field) and part.field not in fresh]
    if last is None or not stale:
        return state
    none: dict[str, Any] = {part.field: State.__dataclass_fields__[part.field].default for part in stale}
    new = replace(state, **none)
    receipt = Receipt(kind="purge", speaks_of=[last.digest], parameters=untouched(state.model), seed=state.seed)
    if any(part.anew for part in stale):
        new = prepared_anew(new, memory_mib)
        assert new.prepared is not None
        fresh["prepared"] = f"computed anew on the remaining graph, {new.prepared.passes} passes"
        receipt = with_cost(receipt, "purge", new.prepared)
    remembers = fates(vars(state), vars(new), fresh)
    if state.origin is not None and not any(r.carried_out for r in state.receipts[state.origin.receipts :]):
        why = "it has what was purged here; delete it, or purge"
        remembers.append(before(UNPURGED, str(state.origin.path), why, replaced=in_place))
    return with_receipt(new, replace(receipt, remembers=remembers))


def with_cost(receipt: Receipt, phase: str, state: Prepared) -> Receipt:
    """A receipt with what it cost to compute the prepared state anew."""
    spent = receipt.seconds.get(phase, 0.0) + state.seconds
    seconds = receipt.seconds | {phase: spent, "total": receipt.seconds["total"] + state.seconds}
    return replace(receipt, seconds=seconds, passes=receipt.passes + state.passes)


def _since_the_last(receipts: Sequence[Receipt]) -> tuple[Receipt | None, dict[str, str]]:
    """The last request that took something, and the parts that were made anew with it or since, with how."""
    fresh: dict[str, str] = {}
    for receipt in reversed(receipts):
        for part in STATES:
            for found in receipt.remembers:
                if found["where"] == part.where and found["state"] == "rewritten":
                    fresh.setdefault(part.field, found["why"])
        if receipt.carried_out:
            return receipt, fresh
    return None, fresh
