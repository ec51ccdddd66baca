"""The main job: given a trained model, its graph and a request, return the model that has forgotten.

One entry for every method: it validates, carries the request out on the graph, finds the influenced
region, lets the method work, checks the result and writes the receipt.
"""

import copy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._digest import tensor_digest
from unweave.errors import DivergenceError, ModelError
from unweave.fitting import Recipe
from unweave.graph import Region, influenced_region, remove
from unweave.losses import Loss, cross_entropy
from unweave.meter import Meter, peak_memory
from unweave.methods.base import Method, Outcome, Problem
from unweave.methods.registry import make
from unweave.objective import Forward, Objective, WeightDecay, call, decay_vector, flatten, load_flat
from unweave.reach import Reach, find_reach
from unweave.receipt import Receipt, environment
from unweave.request import Request
from unweave.validation import (
    changed_outside,
    check_classes,
    check_data,
    check_deterministic,
    check_labels,
    check_model,
    check_outputs,
)

__all__ = ["Unlearned", "unlearn"]


@dataclass(frozen=True)
class Unlearned:
    """The result of :func:`unlearn`.

    Attributes:
        model: A new model that has forgotten; the caller's is untouched.
        data: The remaining graph, on which the new model is to be used. Node ids are what they were.
        receipt: What was done, how well and at what cost.
    """

    model: nn.Module
    data: Data
    receipt: Receipt


def unlearn(
    model: nn.Module,
    data: Data,
    request: Request,
    method: str | Method = "gif",
    *,
    weight_decay: WeightDecay,
    loss: Loss = cross_entropy,
    forward: Forward = call,
    hops: int | None = None,
    seed: int = 0,
    allow_class_loss: bool = False,
    recipe: Recipe | None = None,
    **options: Any,
) -> Unlearned:
    """Make a trained model forget.

    Args:
        model: Any module called as ``model(x, edge_index[, edge_weight])`` that gives one row a node.
        data: The graph it was trained on, with ``x``, ``edge_index``, ``y`` and ``train_mask``.
        request: What to forget.
        method: Name of a method (``unweave.methods.available()``) or a :class:`~unweave.methods.Method`.
        weight_decay: The ``weight_decay`` the model was trained with (0 for none), as one number or by
            parameter or module name.
        loss: Per-node loss the model was trained with, ``(outputs, targets) → [n]``.
        forward: How to call the model on a graph, when not as above.
        hops: Message-passing steps of the model, when its layers do not tell.
        seed: For methods that use chance: the seed the model was trained with.
        allow_class_loss: Allow the request to take the last training node of a class.
        recipe: How the model was trained, when that is known; ``retrain`` and ``finetune`` then follow it.
        **options: Options of the method, when it is given by name.

    Returns:
        The new model, the remaining graph and the receipt.

    Raises:
        UnweaveError: What was given cannot be unlearned, or the solve failed; nothing has changed then.
    """
    how = make(method, options, recipe)
    device = data.x.device if isinstance(data.get("x"), Tensor) else torch.device("cpu")
    meter = Meter(device)
    with peak_memory(device) as peak:
        with meter.phase("validate"):
            check_data(data)
            check_model(model, data)
            own = copy.deepcopy(model).eval()
            decay = decay_vector(own, weight_decay)
        with meter.phase("graph"):
            removal = remove(data, request)
            check_classes(data, removal.data, loss, allow_class_loss)
        with meter.phase("region"):
            first, reach = _first_look(own, data, forward, loss, hops)
            meter.passes += 1
            region = influenced_region(data, removal, reach)
        with meter.phase("evaluate"):
            problem = Problem(
                original=Objective(own, data, loss, decay, forward, meter),
                remaining=Objective(own, removal.data, loss, decay, forward, meter),
                theta=flatten(own),
                removal=removal,
                region=region,
                seed=seed,
                meter=meter,
            )
            check_deterministic(first, problem.at_original.outputs.detach())
            notes = _check_region(problem, given=hops is not None)
        with meter.phase("forget"):
            outcome = how.forget(problem)
            _check_finite(outcome, how)
        with meter.phase("verify"):
            quality = _quality(problem, outcome)
            new = _build(own, outcome)
            digests = {
                "digest_before": tensor_digest(own.named_parameters()),
                "digest_after": tensor_digest(new.named_parameters()),
            }
    meter.seconds["total"] = sum(meter.seconds.values())
    receipt = Receipt(
        request=removal.request.to_dict(),
        request_digest=removal.request.digest,
        removed=removal.counts,
        graph={
            "nodes": int(data.num_nodes),
            "undirected": removal.undirected,
            "stored_edges_before": data.edge_index.size(1),
            "stored_edges_after": removal.data.edge_index.size(1),
            "training_nodes_before": problem.original.nodes.numel(),
            "training_nodes_after": problem.remaining.nodes.numel(),
        },
        region=_describe_region(problem),
        method={"name": how.name, "options": _options(how)},
        details=outcome.details,
        solve=None if outcome.solve is None else asdict(outcome.solve) | {"warnings": list(outcome.solve.warnings)},
        parameters={
            "count": problem.theta.numel(),
            "norm_before": float(problem.theta.norm()),
            **digests,
        },
        step_norm=float((outcome.theta - problem.theta).norm()),
        seconds=meter.seconds,
        passes=meter.passes,
        peak_mib=peak[0],
        seed=seed,
        environment=environment(device) | {"dtype": str(problem.theta.dtype).removeprefix("torch.")},
        warnings=[*notes, *outcome.warnings, *quality.pop("warnings"), *_memories(own, outcome)],
        objective={
            "loss": getattr(loss, "__name__", repr(loss)),
            "weight_decay": dict(weight_decay) if not isinstance(weight_decay, float | int) else float(weight_decay),
            **quality.pop("objective"),
        },
        residual_influence=quality.pop("residual_influence"),
    )
    return Unlearned(new, removal.data, receipt)


def _first_look(model: nn.Module, data: Data, forward: Forward, loss: Loss, hops: int | None) -> tuple[Tensor, Reach]:
    """Call the model once: its outputs, checked, and how far it passes messages."""
    seen: list[Tensor] = []
    with torch.no_grad():
        reach = find_reach(model, lambda: seen.append(forward(model, data)))
    outputs = check_outputs(seen[0], data)
    check_labels(data, loss, outputs)
    if hops is not None:
        if hops < 0:
            raise ModelError(f"hops must be at least 0, got {hops}")
        reach = Reach(hops, flow=reach.flow, source=f"{hops} hops given")
    return outputs, reach


def _check_region(problem: Problem, given: bool) -> list[str]:
    """The region must hold every prediction that changes; otherwise refuse, or take the whole graph."""
    before, after = problem.at_original.outputs.detach(), problem.at_remaining.outputs.detach()
    check_outputs(after, problem.removal.data)
    outside = changed_outside(problem.region, before, after)
    if not outside.numel():
        return []
    if given:
        raise ModelError(
            f"the prediction of node {int(outside[0])} changes although it lies outside the "
            f"{problem.region.reach.steps} hops given; give the true number of message-passing steps, or leave hops out"
        )
    reason = f"{problem.region.reach.source} do not explain the change at node {int(outside[0])}"
    whole = Reach(None, source=reason)
    problem.region = influenced_region(problem.original.data, problem.removal, whole)
    return [f"the model mixes nodes beyond its message-passing layers, so the whole graph was used: {reason}"]


def _check_finite(outcome: Outcome, method: Method) -> None:
    if not bool(torch.isfinite(outcome.theta).all()):
        raise DivergenceError(
            f"method {method.name!r} gave parameters that are not finite; nothing was changed. "
            "Try more damping, a larger scale, or method='retrain'"
        )


def _quality(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    """How well the local problem was solved, and warnings where it was not."""
    point = problem.remaining.at(outcome.theta)
    size = float(problem.forgotten_gradient.norm())
    gradient = problem.local_gradient(point)
    left, change = float(gradient.norm()), problem.local_change(point, gradient)
    warnings = []
    if outcome.solve is not None and change > 0:
        warnings.append(
            f"the step raised the local objective by {change:.3g} instead of lowering it: this request is beyond one "
            "influence step on this model; use more damping, or method='finetune' or 'retrain'"
        )
    return {
        "residual_influence": left / size if size > 0 else 0.0,
        "objective": {
            "original_before": problem.at_original.value,
            "remaining_before": problem.at_remaining.value,
            "remaining_after": point.value,
            "local_change": change,
        },
        "warnings": warnings,
    }


def _build(own: nn.Module, outcome: Outcome) -> nn.Module:
    new = copy.deepcopy(own)
    load_flat(new, outcome.theta)
    if outcome.buffers is not None:
        buffers = dict(new.named_buffers())
        for name, value in outcome.buffers.items():
            buffers[name].copy_(value)
    return new


def _describe_region(problem: Problem) -> dict[str, Any]:
    region: Region = problem.region
    return {
        "steps": region.reach.steps,
        "degree_normalised": region.reach.normalised,
        "flow": region.reach.flow,
        "source": region.reach.source,
        "sizes": list(region.sizes),
        "nodes": int(region.mask.sum()),
        "training_nodes": int(region.mask[problem.original.nodes].sum()),
    }


def _options(method: Method) -> dict[str, Any]:
    plain = (str, int, float, bool, type(None))
    return {key: value if isinstance(value, plain) else repr(value) for key, value in vars(method).items()}


def _memories(model: nn.Module, outcome: Outcome) -> list[str]:
    """What else in the model still remembers the removed data."""
    statistics = [n for n, b in model.named_buffers() if n.endswith(("running_mean", "running_var"))]
    if not statistics or outcome.buffers is not None:
        return []
    return [f"running statistics still come from the old graph: {', '.join(statistics)}"]
