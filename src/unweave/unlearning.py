"""The main job: given a trained model, its graph and a request, return the model that has forgotten.

One entry for every method: it validates, carries the request out on the graph, finds the influenced
region, lets the method work, checks the result and writes the receipt.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter, peak_memory
from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.certificate.bound import Linear, bound_of, bounded, examine, local, none, uncertified
from unweave.curvature.prepared import Prepared
from unweave.errors import DivergenceError, MethodError, ModelError, NoProgressError
from unweave.graph.removal import Region, Removal
from unweave.graph.view import GraphView
from unweave.methods.base import Method, Outcome
from unweave.methods.deferred import forget_locally
from unweave.methods.problem import Problem, meter_for, pose, pose_bounded
from unweave.methods.registry import make
from unweave.models.reach import describe
from unweave.objective.decay import WeightDecay, decay_to_json
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, Objective, Point, call
from unweave.objective.parameters import load_flat, trained
from unweave.objective.parts.blocks import Blocks
from unweave.objective.running_stats import refresh, running
from unweave.receipt.receipt import Receipt, environment
from unweave.receipt.traces import Trace, trace
from unweave.request import Request
from unweave.training.adam import Recipe
from unweave.training.checkpoints import Checkpoint

__all__ = ["Unlearned", "check_kinds", "graph_of", "options_of", "pose_for", "region_of", "unlearn"]


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
    request: Request,
    method: str | Method = "gif",
    *,
    weight_decay: WeightDecay,
    loss: Loss = cross_entropy,
    forward: Forward = call,
    hops: int | None = None,
    seed: int | None = None,
    allow_class_loss: bool = False,
    recipe: Recipe | None = None,
    defer: bool = False,
    memory_mib: float | None = None,
    **options: Any,
) -> Unlearned:
    """Make a trained model forget.

    Args:
        model: Any module called as ``model(x, edge_index[, edge_weight])`` that gives one row a node.
        data: The graph it was trained on, with ``x``, ``edge_index``, ``y`` and ``train_mask``; or what a deferred
            request left of it, ``graph`` of its result.
        request: What to forget.
        method: Name of a method (``unweave.methods.available()``) or a :class:`~unweave.methods.Method`.
        weight_decay: The ``weight_decay`` the model was trained with (0 for none), as one number or by
            parameter or module name. It is L2 as in Adam and SGD; AdamW's decoupled decay is another objective.
        loss: Per-node loss the model was trained with, ``(outputs, targets) → [n]``.
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
        **options: Options of the method, when it is given by name; ``prepared=`` and what else a run keeps also where
            it is an object that has none of its own.

    Returns:
        The new model, the remaining graph and the receipt.

    Raises:
        UnweaveError: What was given cannot be unlearned, or the solve failed; nothing has changed then.
    """
    how = make(method, options, recipe)
    check_kinds(how, weight_decay, recipe, hops, defer=defer, bounded=memory_mib is not None)
    meter = meter_for(model, data.base if isinstance(data, GraphView) else data, request)
    seed = seed if seed is not None else recipe.seed if recipe is not None else 0
    if defer:
        done = forget_locally(
            model,
            data,
            request,
            how,
            weight_decay=weight_decay,
            loss=loss,
            forward=forward,
            meter=meter,
            seed=seed,
            allow_class_loss=allow_class_loss,
        )
        return Unlearned(done.model, done.graph, done.receipt, done.prepared)
    device = meter.device
    with torch.enable_grad(), peak_memory(device) as peak:
        problem, region, notes = pose_for(
            model,
            data,
            request,
            how,
            hops,
            memory_mib,
            weight_decay=weight_decay,
            loss=loss,
            forward=forward,
            seed=seed,
            allow_class_loss=allow_class_loss,
            meter=meter,
        )
        own, removal, ready = problem.original.model, problem.removal, getattr(how, "prepared", None)
        before = {"original_before": problem.original_value, "remaining_before": problem.remaining_value}
        with meter.phase("forget"):
            outcome = how.forget(problem)
            _check_outcome(outcome, problem, how)
        with meter.phase("verify"):
            digest = problem.digest
            new = _load(own, outcome)
            traces = _refresh_statistics(new, removal, forward, outcome) + _memories(new, region.mask.numel(), outcome)
            with torch.set_grad_enabled(how.local):
                point = _look(problem, outcome, new)
            quality = _quality(problem, outcome, point, local=how.local)
            digests = {
                "digest_before": digest,
                "digest_after": tensor_digest(new.named_parameters()),
            }
        certificate = _certificate(problem.remaining, outcome)
    meter.seconds["total"] = sum(meter.seconds.values())
    receipt = Receipt(
        request=removal.request.to_dict(),
        request_digest=removal.request.digest,
        removed=removal.counts,
        graph=graph_of(region, problem),
        region=region_of(region, problem),
        method={"name": how.name, "options": options_of(how)},
        details=outcome.details | _describe_blocks(problem),
        solve=None if outcome.solve is None else asdict(outcome.solve) | {"warnings": list(outcome.solve.warnings)},
        parameters={
            "count": problem.theta.numel(),
            "norm_before": float(problem.theta.norm()),
            **digests,
        },
        step_norm=float((outcome.theta - problem.theta).norm()),
        seconds=meter.seconds,
        passes=round(meter.passes),
        peak_mib=peak[0],
        seed=seed,
        environment={
            **environment(device),
            "dtype": str(problem.theta.dtype).removeprefix("torch."),
            "tuning": TUNING.used(how.rules),
        },
        warnings=[
            *notes,
            *outcome.warnings,
            *quality.pop("warnings"),
            *_assumed(how, recipe),
        ],
        objective={
            "loss": getattr(loss, "__name__", type(loss).__name__),
            "weight_decay": decay_to_json(weight_decay),
            **before,
            **quality.pop("objective"),
        },
        residual_influence=quality.pop("residual_influence"),
        nearness=outcome.nearness,
        certificate=certificate,
        remembers=traces,
        ladder=outcome.ladder,
    )
    aged = None
    if isinstance(ready, Prepared):
        aged = _aged(ready.moved(digests["digest_after"], point.value, point.gradient()), problem)
    return Unlearned(new, removal.graph, receipt, aged, point.outputs.detach(), outcome.checkpoints, outcome.anew)


def pose_for(
    model: nn.Module,
    data: Data | GraphView,
    request: Request,
    how: Method,
    hops: int | None,
    memory_mib: float | None,
    **given: Any,
) -> tuple[Problem, Region, list[str]]:
    """Pose the problem as a method wants it, with what every receipt needs evaluated."""
    given["prepared"] = getattr(how, "prepared", None)
    meter: Meter = given["meter"]
    with torch.set_grad_enabled(how.local):
        if memory_mib is not None:
            posed = pose_bounded(model, data, request, memory_mib=memory_mib, **given)
        else:
            whole = data.data if isinstance(data, GraphView) else data
            posed = pose(model, whole, request, hops=hops, **given)
    with meter.phase("evaluate"):
        posed[0].release(gradients=how.local)
    return posed


def check_kinds(
    how: Method, weight_decay: WeightDecay, recipe: Recipe | None, hops: int | None, *, defer: bool, bounded: bool
) -> None:
    """What goes together, and what does not."""
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
    if defer and hops is not None:
        raise ModelError("hops does nothing when deferring; the model's reach was found when it was prepared")


def _check_bounded(how: Method, defer: bool, hops: int | None) -> None:
    """What goes with a memory budget, and what does not."""
    if defer:
        raise MethodError(
            "memory_mib (--memory-mib) does nothing when deferring, which never looks at the whole graph; leave it out"
        )
    if hops is not None:
        raise ModelError("hops does nothing with memory_mib, for which the model's reach is tried; leave it out")
    if not how.bounded:
        raise MethodError(
            f"method {how.name!r} calls the model on the whole graph, so memory_mib (--memory-mib) cannot bound it; "
            "leave it out, or use method='gif'"
        )


def _aged(ready: Prepared, problem: Problem) -> Prepared:
    """The state of the new model, told the graph that remains."""
    remaining, removal = problem.remaining, problem.removal
    if isinstance(remaining, Blocks):
        return replace(ready, locality=remaining.locality)
    return ready.on(removal.data, remaining.loss, remaining.forward, recount=removal.labels.numel() > 0)


def _describe_blocks(problem: Problem) -> dict[str, Any]:
    return {"in_blocks": problem.remaining.describe()} if isinstance(problem.remaining, Blocks) else {}


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
    if outcome.point is not None and not running(model):
        return outcome.point
    return problem.remaining.of(model).at(outcome.theta)


def _quality(problem: Problem, outcome: Outcome, point: Point, *, local: bool) -> dict[str, Any]:
    """How well the returned model solves the local problem, where that is asked, and warnings where it does not."""
    objective = {"remaining_after": point.value, "function_change": problem.function_change(point)}
    if not local:
        return {"residual_influence": None, "objective": objective, "warnings": []}
    size = float(problem.forgotten_gradient.norm())
    left, change = float(problem.local_gradient(point).norm()), problem.local_change(point)
    if not math.isfinite(left + change):
        raise DivergenceError("the model's derivatives are not finite at the new parameters; use more damping")
    warnings = []
    worse = change > 0, left > size
    if (outcome.solve is not None and any(worse) and not outcome.checked) or (outcome.checked and all(worse)):
        what = f"changed the local objective by {change:+.3g} and its gradient from {size:.3g} to {left:.3g}"
        warnings.append(
            f"the step did not solve its own problem: it {what}. This request is beyond one influence step on this "
            "model; use more damping, or method='finetune' or 'retrain'"
        )
    return {
        "residual_influence": left / size if size > 0 else None,
        "objective": objective | {"local_change": change},
        "warnings": warnings,
    }


def _certificate(remaining: Objective, outcome: Outcome) -> dict[str, Any]:
    """What is proved about the new model. One that plainly cannot be certified is not looked at again for it."""
    if outcome.certificate is not None:
        return outcome.certificate
    found: Linear | str | None = uncertified(remaining)
    if found is None:
        passes = remaining.meter.passes
        with remaining.meter.phase("certify"):
            found = examine(remaining, outcome.theta)
            if isinstance(found, Linear):
                told = bounded(found, bound_of(found, outcome.theta), float(outcome.theta.norm()))
                return told | {"passes": round(remaining.meter.passes - passes)}
    assert isinstance(found, str)
    return none(found) if outcome.bent is None else local(*outcome.bent, found)


def _load(model: nn.Module, outcome: Outcome) -> nn.Module:
    load_flat(model, outcome.theta)
    if outcome.buffers is not None:
        buffers = dict(model.named_buffers())
        for name, value in outcome.buffers.items():
            buffers[name].copy_(value)
    return model


def _refresh_statistics(model: nn.Module, removal: Removal, forward: Forward, outcome: Outcome) -> list[Trace]:
    """Take running statistics anew on the remaining graph; those of the old one remember what was removed."""
    names = ", ".join(running(model))
    if not names:
        return []
    if outcome.buffers is None and outcome.refresh:
        refresh(model, removal.data, forward)
        return [trace("running statistics", names, "rewritten", "taken anew on the remaining graph")]
    if outcome.buffers is not None and outcome.anew:
        return [trace("running statistics", names, "rewritten", "training began anew")]
    why = "still come from" if outcome.buffers is None else "went on from those of"
    return [trace("running statistics", names, "kept", f"they {why} the old graph")]


def graph_of(region: Region, problem: Problem) -> dict[str, Any]:
    """Size of the graph before and after, for the receipt."""
    removal = problem.removal
    return {
        "nodes": region.mask.numel(),
        "undirected": removal.undirected,
        "stored_edges_before": removal.stored_edges + removal.edges.size(1),
        "stored_edges_after": removal.stored_edges,
        "training_nodes_before": problem.original.nodes.numel(),
        "training_nodes_after": problem.remaining.nodes.numel(),
    }


def region_of(region: Region, problem: Problem) -> dict[str, Any]:
    """The region, for the receipt."""
    return {
        **describe(region.reach),
        "sizes": list(region.sizes),
        "nodes": int(region.mask.sum()),
        "training_nodes": int(region.mask[problem.original.nodes].sum()),
    }


def options_of(method: Method) -> dict[str, Any]:
    """The options of a method, for the receipt."""
    plain = (str, int, float, bool, type(None))
    return {
        key: value if isinstance(value, plain) else getattr(value, "__qualname__", type(value).__name__)
        for key, value in vars(method).items()
    }


def _memories(model: nn.Module, size: int, outcome: Outcome) -> list[Trace]:
    """Weights that belong to single nodes, or were kept as they are, and so may still remember a deleted one."""
    known = trained(model)
    names = [name for name, _ in model.named_parameters() if name not in known]
    some = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    frozen = [trace("frozen parameters", some, "kept", "they are not trained and keep what they learnt")] * bool(names)
    if outcome.anew:
        return frozen
    why = "it has a row for every node; the row of a deleted node is still in it"
    return frozen + [
        trace("a parameter", name, "kept", why)
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and parameter.size(0) == size
    ]


def _assumed(method: Method, recipe: Recipe | None) -> list[str]:
    if not method.retrains or recipe is not None or getattr(method, "trainer", None) is not None:
        return []
    return [
        "the recipe of the first training is not known, so full-batch Adam was assumed; pass recipe= (to retrain also "
        "trainer=) if the model was trained otherwise"
    ]
