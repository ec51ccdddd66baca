"""Forget one request on a run: what is checked first, and what becomes of the rest of the run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.certificate.bound import in_sequence
from unweave.curvature.prepared import Prepared
from unweave.errors import MethodError
from unweave.graph.view import GraphView
from unweave.methods import Method
from unweave.objective.objective import Objective, decay_vector, flatten
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.scores import score_outputs
from unweave.request import Request
from unweave.run.gone import outstanding, refuse_gone
from unweave.run.purge import check_purge, purge as purge_state, with_cost
from unweave.run.screen import checked, with_screening
from unweave.run.state import State, ready_for, traces, unlearn_state, worn
from unweave.run.verify import prepared_anew, verified
from unweave.unlearning import Unlearned

__all__ = ["asked", "check_trainer", "forget", "noted"]

REPEATS = ("auto", "replay", "retrace", "retrain")
"""Methods that repeat the training, or some of it."""


def asked(
    state: State, request: Request, method: str | Method | None, options: Mapping[str, Any], *, defer: bool, purge: bool
) -> tuple[Request, str | Method, str]:
    """What is to be done about a request, for :func:`forget` and for a plan of it.

    Returns:
        What earlier requests left of it; the method, where none is named the usual one; and a note of what was left
        out, empty where nothing was.
    """
    method = _usual(state, defer) if method is None else method
    check_purge(purge, defer)
    if method in REPEATS:
        check_trainer(state, options.get("trainer"))
    if not isinstance(request, Request) or not state.receipts:
        return request, method, ""
    left, note = outstanding(request, state.receipts)
    if left is None:
        raise refuse_gone(request, note, purge=purge)
    return left, method, note


def forget(
    state: State,
    request: Request,
    method: str | Method | None,
    *,
    allow_class_loss: bool,
    defer: bool,
    memory_mib: float | None,
    purge: bool,
    screen: bool,
    options: Mapping[str, Any],
) -> State:
    """Carry out a request; see :meth:`unweave.Run.forget`."""
    found = checked(state, request, memory_mib) if screen else None
    left, method, note = asked(state, request, method, options, defer=defer, purge=purge)
    here = state if defer else verified(state, memory_mib)
    how = {"allow_class_loss": allow_class_loss, "memory_mib": memory_mib, **options}
    if (
        here.prepared is not None
        and not defer
        and "prepared" in ready_for(here, method)
        and worn(here) > TUNING.minimum.worn
    ):
        here = prepared_anew(here, memory_mib)
        told = here.prepared
        assert told is not None
        new = _carried_out(here, left, method, defer, how)
        last = with_cost(new.receipts[-1], "prepare", told)
        last = replace(last, details=last.details | {"prepared": f"anew for this request, {told.passes} passes"})
        new = replace(new, receipts=(*new.receipts[:-1], last))
    else:
        new = _carried_out(here, left, method, defer, how)
    new = purge_state(new, memory_mib) if purge else new
    new = noted(new, note) if note else new
    if found is not None:
        new = replace(new, receipts=(*new.receipts[:-1], with_screening(new.receipts[-1], found)))
    return new


def _carried_out(state: State, request: Request, method: str | Method, defer: bool, how: Mapping[str, Any]) -> State:
    """A run that is ready for a request, after it."""
    done = unlearn_state(state, request, method, defer=defer, **(ready_for(state, method) | dict(how)))
    new = replace(
        state,
        model=done.model,
        graph=done.graph,
        metrics=_scores(state, done),
        checkpoints=state.checkpoints if done.checkpoints is None else done.checkpoints,
    )
    new = replace(new, prepared=done.prepared if defer else _aged(state, done, how["memory_mib"]))
    fresh = {"checkpoints": "training began anew on the remaining graph"} if done.anew else {}
    receipt = replace(done.receipt, remembers=[*done.receipt.remembers, *traces(state, vars(new), fresh)])
    return replace(new, receipts=(*state.receipts, in_sequence(receipt, state.receipts)))


def _usual(state: State, defer: bool) -> str:
    """The method that is taken where none is named."""
    certified = state.training.recipe is not None and state.training.recipe.certify is not None
    if certified and defer:
        raise MethodError(
            "a deferred request cannot be certified, which this run was trained for; leave defer (--defer) out, or "
            "name method='gif' (--method gif) for a model that is not certified"
        )
    return "certified" if certified else "gif"


def check_trainer(state: State, trainer: object) -> None:
    """A recipe is that of Adam; a training whose states are those of another loop is not repeated by it."""
    others = {name for kept in state.checkpoints for name, _ in kept.parts} - {"Adam"}
    if others and trainer is None and state.training.trainer is None:
        raise MethodError(
            f"this run was trained by a loop of its own: its checkpoints were taken with {', '.join(sorted(others))}, "
            "so that its recipe would train another model. In Python pass the trainer= that made it, to Run.forget or "
            "Run.calibrate; the command line cannot call it, and has methods that do not train (--method gif)"
        )


def _scores(state: State, done: Unlearned) -> dict[str, float]:
    if done.outputs is None:
        return {}
    labels = done.graph.labels if isinstance(done.graph, GraphView) else done.graph
    return score_outputs(done.outputs, labels, state.loss)


def _aged(state: State, done: Unlearned, memory_mib: float | None) -> Prepared | None:
    """The prepared state for the new model: its curvature one request older, its gradient new."""
    if state.prepared is None or done.prepared is not None:
        return done.prepared
    decay = decay_vector(done.model, state.training.weight_decay)
    digest = done.receipt.parameters["digest_after"]
    if memory_mib is not None:
        rest = (state.training.weight_decay, state.loss, state.forward, Meter(decay.device), memory_mib)
        blocks = bounded_objective(done.model, done.graph, *rest)
        moved = state.prepared.moved(digest, *blocks.evaluate(flatten(done.model)))
        return replace(moved, locality=blocks.locality)
    objective = Objective(done.model, done.data, state.loss, decay, state.forward, Meter(done.data.x.device))
    moved = state.prepared.moved(digest, *objective.evaluate(flatten(done.model)))
    return moved.on(done.data, state.loss, state.forward)


def noted(state: State, note: str) -> State:
    """A run whose last receipt has a note; one that it has already is not said twice."""
    last = state.receipts[-1]
    if note in last.warnings:
        return state
    return replace(state, receipts=(*state.receipts[:-1], replace(last, warnings=[*last.warnings, note])))
