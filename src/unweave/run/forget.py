"""Forget one request on a run: what is checked first, and what becomes of the rest of the run."""

from dataclasses import replace
from typing import Any

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.certificate.bound import in_sequence
from unweave.changes import Change
from unweave.curvature.prepared import Prepared
from unweave.graph.view import GraphView
from unweave.methods.account import asked_of, untouched
from unweave.methods.changing import Asked, check_answers
from unweave.methods.registry import make
from unweave.objective.decay import decay_vector
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten, places_in
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.scores import score_outputs, task_scores
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.gone import outstanding
from unweave.run.purge import with_cost
from unweave.run.screen import screen_state, with_screening
from unweave.run.state import State, ready_for, traces, unlearn_state, with_receipt, worn
from unweave.run.verify import prepared_anew, verified
from unweave.run.wish import Wish
from unweave.unlearning import Unlearned

__all__ = ["forget", "refused"]


def forget(state: State, request: Asked, wish: Wish) -> State:
    """Carry out a request or a change, and issue its receipt; see :meth:`unweave.Run.forget`. A purge comes last."""
    method = wish.method_for(state)
    left, reason = outstanding(request, state.receipts)
    if left is None:
        return _idle(state, request, reason)
    if isinstance(left, Change):
        given, recipe = ready_for(state, method) | dict(wish.options), state.training.recipe
        check_answers(make(method, given, recipe), defer=wish.defer, bounded=ranks.budget(wish.memory_mib) is not None)
    screened = screen_state(state, left) if wish.screen and isinstance(left, Request) else None
    if screened is not None:
        screened.refuse()
    here = state if wish.defer else verified(state, wish.memory_mib)
    told: Prepared | None = None
    if (
        here.prepared is not None
        and not wish.defer
        and "prepared" in ready_for(here, method)
        and worn(here) > TUNING.minimum.worn
    ):
        here = prepared_anew(here, wish.memory_mib)
        told = here.prepared
    how: dict[str, Any] = {
        "allow_class_loss": wish.allow_class_loss,
        "defer": wish.defer,
        "memory_mib": wish.memory_mib,
        "strict": wish.strict,
    }
    done = unlearn_state(here, left, method, **(ready_for(here, method) | how | dict(wish.options)))
    if not done.receipt.carried_out:
        return _idle(here, request, done.receipt.reason or reason)
    receipt = replace(done.receipt, **asked_of(request), reason=reason or None)
    if reason and receipt.status == "done":
        receipt = replace(receipt, status="partly gone already")
    if told is not None:
        receipt = with_cost(receipt, "prepare", told)
        receipt = replace(
            receipt, details=receipt.details | {"prepared": f"anew for this request, {told.passes} passes"}
        )
    if screened is not None:
        receipt = with_screening(receipt, screened)
    return _after(here, done, receipt, wish)


def refused(state: State, request: Asked, why: str) -> State:
    """The same run, with the receipt of a request that was not carried out."""
    return with_receipt(state, _still(state, request, "refused", why))


def _idle(state: State, request: Asked, why: str) -> State:
    """The same run, with the receipt of a request of which nothing is left to do."""
    return with_receipt(state, _still(state, request, "nothing to do", why))


def _still(state: State, request: Asked, status: str, why: str) -> Receipt:
    return Receipt(status=status, reason=why, **asked_of(request), parameters=untouched(state.model), seed=state.seed)


def _after(state: State, done: Unlearned, receipt: Receipt, wish: Wish) -> State:
    """A run that was ready for a request, after it."""
    grown = places_in(state.model, done.model) is not None  # states of training are those of a smaller model then
    kept = () if grown else state.checkpoints
    new = replace(
        state,
        model=done.model,
        graph=done.graph,
        metrics=_scores(state, done),
        checkpoints=kept if done.checkpoints is None else done.checkpoints,
        prepared=done.prepared if wish.defer else _aged(state, done, wish.memory_mib),
    )
    fresh = {"checkpoints": "training began anew on the remaining graph"} if done.anew else {}
    remembers = [
        *receipt.remembers,
        *traces(state, vars(new), fresh, in_place=wish.in_place, change=receipt.kind == "change"),
    ]
    return with_receipt(new, in_sequence(replace(receipt, remembers=remembers), state.receipts))


def _scores(state: State, done: Unlearned) -> dict[str, float]:
    if done.outputs is None:
        return {}
    labels = done.graph.labels if isinstance(done.graph, GraphView) else done.graph
    return score_outputs(done.outputs, labels, state.loss) | task_scores(done.model, done.graph)


def _aged(state: State, done: Unlearned, memory_mib: float | None) -> Prepared | None:
    """The prepared state for the new model: its curvature one request older, its gradient new."""
    if state.prepared is None or done.prepared is not None:
        return done.prepared
    decay = decay_vector(done.model, state.training.weight_decay)
    digest = done.receipt.parameters["digest_after"]
    memory_mib = ranks.budget(memory_mib)
    if memory_mib is not None:
        rest = (state.training.weight_decay, state.loss, state.forward, Meter(decay.device), memory_mib)
        blocks = bounded_objective(done.model, done.graph, *rest)
        ended = blocks.evaluate(flatten(done.model))
        moved = state.prepared.moved(digest, *ended, anew=blocks.mass if done.anew else 0.0)
        return replace(moved, locality=blocks.locality)
    objective = Objective(done.model, done.data, state.loss, decay, state.forward, Meter(done.data.x.device))
    known = state.prepared.enlarged(places_in(state.model, done.model), done.model)
    ended = objective.evaluate(flatten(done.model))
    moved = known.moved(digest, *ended, anew=objective.mass if done.anew else 0.0)
    if (told := done.receipt).kind == "change":
        joined = told.graph["training_nodes_after"] - told.graph["training_nodes_before"]
        moved = moved.grown(told.removed["added_stored_edges"], max(0, joined))
    return moved.on(done.data, state.loss, state.forward)
