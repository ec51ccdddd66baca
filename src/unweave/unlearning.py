"""The main job: given a trained model, its graph and a request, return the model that has forgotten.

One entry for every method: it validates, carries the request out on the graph, finds the influenced
region, lets the method work, checks the result and writes the receipt.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter, peak_memory
from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.errors import DivergenceError, EmptyRequestError, MethodError, ModelError, NoProgressError, StrictError
from unweave.graph.alteration import Alteration
from unweave.graph.index import among
from unweave.graph.region import Region
from unweave.graph.view import GraphView
from unweave.methods.account import (
    asked_of,
    blocks_of,
    certificate_of,
    graph_of,
    options_of,
    quality_of,
    region_of,
    types_in,
    untouched,
)
from unweave.methods.base import Method, Outcome
from unweave.methods.changing import Asked, as_asked, check_answers
from unweave.methods.deferred import RULES as DEFERRED, forget_locally
from unweave.methods.growing import new_rows
from unweave.methods.memories import memories
from unweave.methods.posing import meter_for, pose, pose_bounded
from unweave.methods.problem import Problem
from unweave.methods.registry import make
from unweave.methods.rows import without_rows
from unweave.objective.decay import AnyDecay, WeightDecay, as_weight_decay, decay_to_json
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Point, call
from unweave.objective.parameters import duplicate, load_flat, with_history
from unweave.objective.parts.blocks import Blocks
from unweave.objective.running_stats import running
from unweave.receipt.receipt import Receipt
from unweave.receipt.record import environment
from unweave.receipt.words import GRADES, HARMFUL
from unweave.request import Request
from unweave.training.checkpoints import Checkpoint
from unweave.training.recipe import Recipe
from unweave.training.trainer import refuse_bounded

__all__ = ["Unlearned", "check_kinds", "pose_for", "unlearn"]


@dataclass(frozen=True)
class Unlearned:
    """The result of :func:`unlearn`.

    Attributes:
        model: A new model that has forgotten; the caller's is untouched.
        graph: The remaining graph; after a deferred request, or one in bounded memory, a view, which the next one of
            that kind takes as it is.
        receipt: What was done, how well and at what cost.
        prepared: The state that was given, for the new model: give it with the next request.
        outputs: Outputs of the new model for all nodes of the remaining graph; none after a deferred request.
        checkpoints: The states of training that go with the new model, where the method trained it; give them to
            the next ``replay``. ``None`` where it left those there are as they were.
        anew: Whether it was trained from the start on the remaining graph.
    """

    model: nn.Module
    graph: Data | GraphView
    receipt: Receipt
    prepared: Prepared | None = None
    outputs: Tensor | None = None
    checkpoints: tuple[Checkpoint, ...] | None = None
    anew: bool = False

    @property
    def data(self) -> Data:
        """The remaining graph, on which the new model is to be used. Node ids are what they were."""
        return self.graph.data if isinstance(self.graph, GraphView) else self.graph


def unlearn(
    model: nn.Module,
    data: Data | GraphView,
    request: Asked,
    method: str | Method = "gif",
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    hops: int | None = None,
    seed: int | None = None,
    allow_class_loss: bool = False,
    recipe: Recipe | None = None,
    defer: bool = False,
    memory_mib: float | None = None,
    strict: bool = False,
    **options: Any,
) -> Unlearned:
    """Make a trained model forget.

    Args:
        model: Any module called as ``model(x, edge_index[, edge_weight])`` that gives one row a node.
        data: The graph it was trained on, with ``x``, ``edge_index``, ``y`` and ``train_mask``; or what a deferred
            request left of it, ``graph`` of its result.
        request: What to forget; or a :class:`~unweave.Change`, with what is added and corrected too.
        method: Name of a method (``unweave.methods.available()``) or a :class:`~unweave.methods.Method`.
        weight_decay: The ``weight_decay`` the model was trained with (0 for none), as one number, by
            parameter or module name, or as the torch optimiser that trained it: L2 as in Adam and SGD is taken as it
            is, AdamW's decoupled decay is translated (:func:`~unweave.objective.decay.as_weight_decay`).
        loss: Loss the model was trained with: one of ``unweave.losses``, one of torch
            (``nn.CrossEntropyLoss(weight=…)``), or a function ``(outputs, targets) → [n]``
            (:func:`~unweave.objective.losses.as_loss`).
        forward: How to call the model on a graph, when not as above.
        hops: Message-passing steps of the model, when its layers do not tell.
        seed: For methods that use chance: the seed the model was trained with. That of the recipe, or 0, by default.
        allow_class_loss: Allow the request to take the last training node of a class.
        recipe: How the model was trained, when that is known; ``retrain`` and ``finetune`` given by name follow it.
        defer: Take one prepared influence step now, from the region alone, and leave it unverified: ``gif`` with
            ``prepared=`` only. It takes time in proportion to the neighbourhood of what goes, not to the graph.
        memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph; it is then
            done in blocks of nodes, each with the neighbourhood its outputs depend on, and ``data.x`` may be a memory
            map. ``graph`` of the result is then a view. For methods that evaluate and nothing else (``gif``, ``if``).
        strict: Refuse an answer that is worse than doing nothing by its own figures, or that moved nothing though
            there was something to forget.
        **options: Options of the method, when it is given by name; ``prepared=`` and what else a run keeps also where
            it is an object that has none of its own.

    Returns:
        The new model, the remaining graph and the receipt.

    Raises:
        UnweaveError: What was given cannot be unlearned, or the solve failed; nothing has changed then.
    """
    how = make(method, options, recipe)
    memory_mib = memory_mib if defer else ranks.budget(memory_mib)
    meter = meter_for(model, data.base if isinstance(data, GraphView) else data, request)
    request = as_asked(request)
    if not isinstance(request, Request):
        check_answers(how, defer=defer, bounded=memory_mib is not None)
    loss, weight_decay = as_loss(loss), as_weight_decay(weight_decay, model)
    check_kinds(how, weight_decay, recipe, hops, defer=defer, bounded=memory_mib is not None, strict=strict)
    seed = seed if seed is not None else recipe.seed if recipe is not None else 0
    given: dict[str, Any] = {"weight_decay": weight_decay, "loss": loss, "forward": forward, "meter": meter}
    given |= {"allow_class_loss": allow_class_loss}
    try:
        if defer and isinstance(request, Request):
            local = forget_locally(model, data, request, how, **given)
            parts: dict[str, Any] = {"model": local.model, "graph": local.graph, "prepared": local.prepared}
            facts = local.facts
        else:
            parts, facts = _carried_out(model, data, request, how, hops, memory_mib, given | {"seed": seed})
    except EmptyRequestError as error:
        parts = {"model": duplicate(model), "graph": data, "prepared": getattr(how, "prepared", None)}
        facts = {"status": "nothing to do", "reason": str(error), "parameters": untouched(model)}
    meter.seconds["total"] = sum(meter.seconds.values())
    told = {"loss": str(loss), "weight_decay": decay_to_json(weight_decay)}
    receipt = Receipt(
        **asked_of(request),
        **(facts | {"objective": told | facts.get("objective", {})}),
        seconds=meter.seconds,
        seed=seed,
        environment={
            **environment(meter.device),
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "tuning": TUNING.used(DEFERRED if defer else how.rules),
        },
    )
    if strict and receipt.grade in HARMFUL:
        raise StrictError(
            f"strict was asked for, and method {how.name!r} would leave the model {GRADES[receipt.grade]}; nothing was "
            "changed. Use method='retrain', or train with forgettable=True and forget from that run"
        )
    return Unlearned(receipt=receipt, **parts)


def _carried_out(
    model: nn.Module,
    data: Data | GraphView,
    request: Asked,
    how: Method,
    hops: int | None,
    memory_mib: float | None,
    given: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result without its receipt, and what the receipt has of it, each by its names."""
    meter: Meter = given["meter"]
    with torch.enable_grad(), peak_memory(meter.device) as peak:
        problem, region, notes = pose_for(model, data, request, how, hops, memory_mib, **given)
        removal, ready = problem.removal, getattr(how, "prepared", None)
        before = {"original_before": problem.original_value, "remaining_before": problem.remaining_value}
        with meter.phase("forget"):
            outcome = how.forget(problem)
            _check_outcome(outcome, problem, how)
            outcome, rows = (outcome, 0) if how.name == "none" else without_rows(outcome, problem, local=how.local)
        with meter.phase("verify"):
            digest = problem.digest
            new = _load((problem.remaining if outcome.refresh else problem.original).model, outcome)
            traces = memories(new, model, problem, outcome)
            with torch.set_grad_enabled(how.local):
                point = _look(problem, outcome, new)
            quality = quality_of(problem, outcome, point, local=how.local)
            digest_after = tensor_digest(new.named_parameters())
        certificate = certificate_of(problem.remaining, outcome)
    facts: dict[str, Any] = {
        "request": removal.content,
        "removed": removal.counts | types_in(removal) | _rows_of(model, new, rows),
        "graph": graph_of(region, problem),
        "region": region_of(region, problem),
        "method": {"name": how.name, "options": options_of(how)},
        "details": outcome.details | blocks_of(problem),
        "solve": None if outcome.solve is None else asdict(outcome.solve) | {"warnings": list(outcome.solve.warnings)},
        "parameters": {
            "count": problem.theta.numel(),
            "norm_before": float(problem.theta.norm()),
            "digest_before": digest,
            "digest_after": digest_after,
        },
        "step_norm": float((outcome.theta - problem.theta).norm()),
        "anew": outcome.anew,
        "passes": round(meter.passes),
        "peak_mib": peak[0],
        "warnings": [*notes, *outcome.warnings, *quality.pop("warnings")],
        "objective": before | quality.pop("objective"),
        "residual_influence": quality.pop("residual_influence"),
        "nearness": outcome.nearness,
        "certificate": certificate,
        "remembers": traces,
        "ladder": outcome.ladder,
    }
    aged = None
    if isinstance(ready, Prepared):
        ready = ready.enlarged(problem.places, new)
        aged = _aged(ready.moved(digest_after, point.value, point.gradient()), problem)
    parts = {
        "model": duplicate(new) if with_history(new) else new,
        "graph": removal.graph,
        "prepared": aged,
        "outputs": point.outputs.detach(),
        "checkpoints": outcome.checkpoints,
        "anew": outcome.anew,
    }
    return parts, facts


def _rows_of(before: nn.Module, after: nn.Module, removed: int) -> dict[str, int]:
    """Rows of embedding tables that went and came, for the receipt."""
    added = sum(new_rows(before, after).values())
    return ({"rows": removed} if removed else {}) | ({"added_rows": added} if added else {})


def pose_for(
    model: nn.Module,
    data: Data | GraphView,
    request: Asked,
    how: Method,
    hops: int | None,
    memory_mib: float | None,
    **given: Any,
) -> tuple[Problem, Region, list[str]]:
    """Pose the problem as a method wants it, with what every receipt needs evaluated."""
    given["prepared"] = getattr(how, "prepared", None)
    meter: Meter = given["meter"]
    with torch.set_grad_enabled(how.local):
        if memory_mib is not None and isinstance(request, Request):
            posed = pose_bounded(model, data, request, memory_mib=memory_mib, **given)
        else:
            whole = data.data if isinstance(data, GraphView) else data
            posed = pose(model, whole, request, hops=hops, **given)
    with meter.phase("evaluate"):
        posed[0].release(gradients=how.local)
    return posed


def check_kinds(
    how: Method,
    weight_decay: WeightDecay,
    recipe: Recipe | None,
    hops: int | None,
    *,
    defer: bool,
    bounded: bool,
    strict: bool = False,
) -> None:
    """What goes together, and what does not; a method that was not told what it needs refuses."""
    how.check()
    ready = getattr(how, "prepared", None)
    if not defer and isinstance(ready, Prepared) and ready.pending is not None:
        raise MethodError(
            "prepared= has deferred requests that are not verified; verify them first: put model, graph and state into "
            "an unweave.Run and call its verify()"
        )
    if bounded:
        _check_bounded(how, defer, hops)
    if recipe is not None and not isinstance(recipe, Recipe):
        raise ModelError(f"recipe must be an unweave.Recipe, got {type(recipe).__name__}")
    if recipe is not None and weight_decay != recipe.weight_decay:
        raise ModelError(f"weight_decay={weight_decay!r} is not that of the recipe, {recipe.weight_decay!r}")
    if defer and strict:
        raise MethodError(
            "strict judges an answer by its figures, and a deferred one has none until it is verified; leave strict "
            "(--strict) or defer (--defer) out"
        )
    if defer and hops is not None:
        raise ModelError("hops does nothing when deferring; the model's reach was found when it was prepared")


def _check_bounded(how: Method, defer: bool, hops: int | None) -> None:
    """What goes with a memory budget, and what does not."""
    if defer:
        raise MethodError(
            "memory_mib (--memory-mib) does nothing when deferring, which never looks at the whole graph; leave it out"
        )
    if hops is not None:
        raise ModelError(
            "hops does nothing with memory_mib, or among ranks, for which the model's reach is tried; leave it out"
        )
    if not (how.spread if ranks.joined() else how.bounded):
        raise MethodError(
            f"method {how.name!r} calls the model on the whole graph, so it cannot be carried out in parts; "
            f"{ranks.without('memory_mib (--memory-mib)')}, or use method='gif'"
        )
    refuse_bounded(getattr(how, "trainer", None), "bounded")
    if getattr(how, "certify", None) is not None and not ranks.joined():
        raise MethodError("a certified model is trained on the whole graph at once; leave memory_mib out")


def _aged(ready: Prepared, problem: Problem) -> Prepared:
    """The state of the new model, told the graph that remains."""
    remaining, removal = problem.remaining, problem.removal
    if isinstance(remaining, Blocks):
        return replace(ready, locality=remaining.locality)
    if isinstance(removal, Alteration):
        here = problem.original.nodes
        joined = remaining.nodes[~among(remaining.nodes, here)].numel()
        ready = ready.grown(removal.came.size(1) + removal.weighed.size(1), joined)
    return ready.on(removal.data, remaining.loss, remaining.forward, recount=removal.labels.numel() > 0)


def _check_outcome(outcome: Outcome, problem: Problem, method: Method) -> None:
    """New parameters are numbers, and a solved system has moved them."""
    still = outcome.solve is not None and torch.equal(outcome.theta, problem.theta)
    if still and bool(problem.forgotten_gradient.any()):
        raise NoProgressError(
            f"the step of method {method.name!r} is too short to change any parameter, so nothing would be forgotten; "
            "use less damping or a smaller scale"
        )
    if not bool(torch.isfinite(outcome.theta).all()):
        raise DivergenceError(
            f"method {method.name!r} gave parameters that are not finite; nothing was changed. "
            "Try more damping, a larger scale, or method='retrain'"
        )


def _look(problem: Problem, outcome: Outcome, model: nn.Module) -> Point:
    """L' at the new parameters, with the buffers of the new model."""
    if outcome.point is not None and (outcome.buffers is None or not running(model)):
        return outcome.point
    return problem.remaining.of(model).at(outcome.theta)


def _load(model: nn.Module, outcome: Outcome) -> nn.Module:
    load_flat(model, outcome.theta)
    if outcome.buffers is not None:
        buffers = dict(model.named_buffers())
        for name, value in outcome.buffers.items():
            buffers[name].copy_(value)
    return model
