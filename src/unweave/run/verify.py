"""Look at a run's deferred requests on the whole graph, check its last receipt, and compute its prepared state."""

from dataclasses import replace

from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave.curvature.preparation import prepare
from unweave.curvature.prepared import Prepared
from unweave.errors import RunError
from unweave.methods.account import untouched
from unweave.methods.deferred import settle
from unweave.methods.ladder.calibration import Calibration
from unweave.objective.parameters import flatten
from unweave.objective.parts.bounded import objective_within
from unweave.objective.scores import score
from unweave.receipt.receipt import Receipt
from unweave.run.state import State, with_receipt

__all__ = ["prepared_anew", "served_best", "verified", "verify"]

SAME = 1e-3
"""Relative difference up to which two values of an objective, perhaps from two devices, are the same."""


def verify(state: State, memory_mib: float | None = None) -> State:
    """Verify deferred requests, or check the last receipt; see :meth:`unweave.Run.verify`."""
    if not state.pending or state.prepared is None:
        _recheck(state, memory_mib)
        return state
    settled = settle(
        state.model,
        state.whole,
        state.prepared,
        weight_decay=state.training.weight_decay,
        loss=state.loss,
        forward=state.forward,
        memory_mib=memory_mib,
    )
    count = state.pending
    waiting = [r for r in state.receipts[-2 * count :] if r.status == "unverified"][-count:]
    receipt = Receipt(
        kind="verification",
        speaks_of=[receipt.digest for receipt in waiting],
        parameters=untouched(state.model) | {"norm_before": float(flatten(state.model).norm())},
        seed=state.seed,
        **settled.facts,
    )
    metrics = score(state.model, state.whole, state.loss, state.forward, memory_mib=memory_mib)
    return with_receipt(replace(state, graph=state.whole, metrics=metrics, prepared=settled.prepared), receipt)


def verified(state: State, memory_mib: float | None) -> State:
    """A run without pending requests."""
    return verify(state, memory_mib) if state.pending else state


def prepared_anew(state: State, memory_mib: float | None) -> State:
    """Compute the prepared state on the graph as it is now; see :meth:`unweave.Run.prepare`."""
    here = verified(state, memory_mib)
    found = prepare(
        here.model,
        here.whole,
        weight_decay=here.training.weight_decay,
        loss=here.loss,
        forward=here.forward,
        memory_mib=memory_mib,
    )
    if here.prepared is not None:  # these are of the training, not of the curvature
        known = here.prepared
        found = found.examined(known.agreement, known.whole, known.luck)
    return replace(here, prepared=served_best(found, state.calibration))


def served_best(prepared: Prepared, calibration: Calibration | None) -> Prepared:
    """A prepared state with the damping that served best, where that was measured."""
    factor = 1.0 if calibration is None else calibration.factor
    return replace(prepared, damping=factor * prepared.damping, raised=factor * prepared.raised)


def _recheck(state: State, memory_mib: float | None) -> None:
    """The last receipt's parameters are those of the model, and its objective is what the model has on the graph."""
    if not state.receipts:
        return
    if state.receipts[-1].parameters["digest_after"] != tensor_digest(state.model.named_parameters()):
        raise RunError("the parameters of the model are not those that the last receipt tells of")
    told = (receipt.objective.get("remaining_after") for receipt in reversed(state.receipts))
    known = next((value for value in told if value is not None), None)
    decay, meter = state.training.weight_decay, Meter(state.base.x.device)
    objective = objective_within(state.model, state.whole, decay, state.loss, state.forward, meter, memory_mib)
    now = objective.at(flatten(state.model)).value
    if known is not None and abs(known - now) > SAME * abs(known):
        raise RunError(f"the objective is {now:.6g} on the remaining graph, and {known:.6g} in the last receipt")
