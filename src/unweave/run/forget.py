"""Forget one request on a run: what is checked first, and what becomes of the rest of the run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unweave._core.cost import Meter
from unweave.certificate.bound import in_sequence
from unweave.curvature.prepared import WORN, Prepared
from unweave.errors import MethodError
from unweave.graph.view import GraphView
from unweave.methods import Method
from unweave.methods.registry import ready_for
from unweave.objective.objective import Objective, decay_vector, flatten
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.scores import score_outputs
from unweave.request import Request
from unweave.run.purge import check_purge, with_cost
from unweave.run.stream import noted, outstanding, refuse_gone
from unweave.unlearning import Unlearned

if TYPE_CHECKING:
    from unweave.run.run import Run

__all__ = ["asked", "check_trainer", "forget"]

REPEATS = ("auto", "replay", "retrace", "retrain")
"""Methods that repeat the training, or some of it."""


def asked(
    run: "Run", request: Request, method: str | Method | None, options: Mapping[str, Any], *, defer: bool, purge: bool
) -> tuple[Request, str | Method, str]:
    """What is to be done about a request, for :func:`forget` and for a plan of it.

    Returns:
        What earlier requests left of it; the method, where none is named the usual one; and a note of what was left
        out, empty where nothing was.
    """
    method = _usual(run, defer) if method is None else method
    check_purge(purge, defer)
    if method in REPEATS:
        check_trainer(run, options.get("trainer"))
    if not isinstance(request, Request) or not run.receipts:
        return request, method, ""
    left, note = outstanding(request, run.receipts)
    if left is None:
        raise refuse_gone(request, note, purge=purge)
    return left, method, note


def forget(
    run: "Run",
    request: Request,
    method: str | Method | None,
    *,
    allow_class_loss: bool,
    defer: bool,
    memory_mib: float | None,
    purge: bool,
    options: Mapping[str, Any],
) -> "Run":
    """Carry out a request; see :meth:`unweave.Run.forget`."""
    left, method, note = asked(run, request, method, options, defer=defer, purge=purge)
    here = run if defer else run._verified(memory_mib)
    how = {"allow_class_loss": allow_class_loss, "memory_mib": memory_mib, **options}
    if here.prepared is not None and not defer and ready_for(method, prepared=here.prepared) and here._worn > WORN:
        here = here.prepare(memory_mib=memory_mib)
        told = here.prepared
        assert told is not None
        new = _carried_out(here, left, method, defer, how)
        last = with_cost(new.receipts[-1], "prepare", told)
        last = replace(last, details=last.details | {"prepared": f"anew for this request, {told.passes} passes"})
        new = replace(new, receipts=(*new.receipts[:-1], last))
    else:
        new = _carried_out(here, left, method, defer, how)
    new = new.purge(memory_mib=memory_mib) if purge else new
    return noted(new, note) if note else new


def _carried_out(run: "Run", request: Request, method: str | Method, defer: bool, how: Mapping[str, Any]) -> "Run":
    """A run that is ready for a request, after it."""
    done = run._unlearn(request, method, defer=defer, **(run._ready_for(method) | dict(how)))
    new = replace(
        run,
        model=done.model,
        graph=done.graph,
        metrics=_scores(run, done),
        checkpoints=run.checkpoints if done.checkpoints is None else done.checkpoints,
    )
    new = replace(new, prepared=done.prepared if defer else _aged(run, done, how["memory_mib"]))
    fresh = {"checkpoints": "training began anew on the remaining graph"} if done.anew else {}
    receipt = replace(done.receipt, remembers=[*done.receipt.remembers, *run._traces(vars(new), fresh)])
    return replace(new, receipts=(*run.receipts, in_sequence(receipt, run.receipts)))


def _usual(run: "Run", defer: bool) -> str:
    """The method that is taken where none is named."""
    if run.recipe.certify is not None and defer:
        raise MethodError(
            "a deferred request cannot be certified, which this run was trained for; leave defer (--defer) out, or "
            "name method='gif' (--method gif) for a model that is not certified"
        )
    return "gif" if run.recipe.certify is None else "certified"


def check_trainer(run: "Run", trainer: object) -> None:
    """A recipe is that of Adam; a training whose states are those of another loop is not repeated by it."""
    others = {name for state in run.checkpoints for name, _ in state.parts} - {"Adam"}
    if others and trainer is None:
        raise MethodError(
            f"this run was trained by a loop of its own: its checkpoints were taken with {', '.join(sorted(others))}, "
            "so that its recipe would train another model. In Python pass the trainer= that made it, to Run.forget or "
            "Run.calibrate; the command line cannot call it, and has methods that do not train (--method gif)"
        )


def _scores(run: "Run", done: Unlearned) -> dict[str, float]:
    if done.outputs is None:
        return {}
    labels = done.graph.labels if isinstance(done.graph, GraphView) else done.graph
    return score_outputs(done.outputs, labels, run.loss)


def _aged(run: "Run", done: Unlearned, memory_mib: float | None) -> Prepared | None:
    """The prepared state for the new model: its curvature one request older, its gradient new."""
    if run.prepared is None or done.prepared is not None:
        return done.prepared
    decay = decay_vector(done.model, run.recipe.weight_decay)
    digest = done.receipt.parameters["digest_after"]
    if memory_mib is not None:
        rest = (run.recipe.weight_decay, run.loss, run.forward, Meter(decay.device), memory_mib)
        blocks = bounded_objective(done.model, done.graph, *rest)
        state = run.prepared.moved(digest, *blocks.evaluate(flatten(done.model)))
        return replace(state, locality=blocks.locality)
    objective = Objective(done.model, done.data, run.loss, decay, run.forward, Meter(done.data.x.device))
    moved = run.prepared.moved(digest, *objective.evaluate(flatten(done.model)))
    return moved.on(done.data, run.loss, run.forward)
