"""Forget now, verify later: one influence step from the region alone, in time proportional to its halo.

With B the prepared curvature, v the gradient of the forgotten loss and g the gradient that training left, the step is

    θ̂ = θ0 + (B + δI)⁻¹(v − (1 − m'/m) g)

with m what the mean loss divides by (the training nodes, or their weights), and with the smallest kept eigenvalue of B
as δ, and without g, where training ended at a minimum. It solves the local problem of the request and leaves g alone: a
single edge pulls far less than what the best training leaves, and a step that also follows g says more about the
training than about the edge.

Nothing here looks at the whole graph, so nobody knows yet how well the step solved its problem. One evaluation on the
remaining graph tells (:func:`settle`), for all the requests since the last one.
"""

import copy
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter, peak_memory
from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.certificate.bound import none
from unweave.curvature.damping import least_damping
from unweave.curvature.local import LocalProblem
from unweave.curvature.prepared import Pending, Prepared
from unweave.errors import DivergenceError, MethodError, ModelError, NoProgressError, RunError
from unweave.graph.removal import Removal, take
from unweave.graph.view import GraphView
from unweave.methods import GIF, Method
from unweave.methods.account import types_in
from unweave.methods.rows import embedded_rows
from unweave.models.reach import describe
from unweave.objective.checks import check_model
from unweave.objective.decay import WeightDecay, decay_vector
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.parts.bounded import objective_within
from unweave.objective.parts.locality import Locality, Pull, local_pull
from unweave.objective.parts.propagated import table_of
from unweave.objective.parts.rows import rows_for, slope_by_rows
from unweave.request import Request

__all__ = ["BEYOND", "RULES", "Deferred", "Settled", "cautious_damping", "forget_locally", "settle"]

RULES = ("minimum", "damping")
"""Groups of the tuning that decide about a deferred step."""


@dataclass(frozen=True)
class Deferred:
    """What a deferred request gives.

    Attributes:
        model: The new model.
        graph: The remaining graph.
        facts: What the receipt has of it, by the receipt's names.
        prepared: The state for the next request.
    """

    model: nn.Module
    graph: GraphView
    facts: dict[str, Any]
    prepared: Prepared


@dataclass(frozen=True)
class Settled:
    """What looking at deferred requests on the whole graph tells.

    Attributes:
        prepared: The state for the next request, with nothing pending.
        facts: What the receipt has of it, by the receipt's names.
    """

    prepared: Prepared
    facts: dict[str, Any]


def forget_locally(
    model: nn.Module,
    graph: Data | GraphView,
    request: Request,
    method: Method,
    *,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    allow_class_loss: bool,
) -> Deferred:
    """Carry out a request without looking at the whole graph; the arguments are those of :func:`unweave.unlearn`."""
    with torch.enable_grad(), peak_memory(meter.device) as peak:
        with meter.phase("validate"):
            ready, here = _check_method(method)
            before = here.view_of(graph)
            check_model(model, before.base)
            own = copy.deepcopy(model).eval()
            decay, theta = decay_vector(own, weight_decay), flatten(own)
            here.check_setting(own, loss, decay, forward)
            digest = tensor_digest(own.named_parameters())
            if ready.parameters != digest:
                raise MethodError("prepared= belongs to other parameters; call unweave.prepare on this model")
        with meter.phase("graph"):
            after, taken = take(before, request)
            there = here.without(taken, after, loss, allow_class_loss=allow_class_loss)
        with meter.phase("evaluate"):
            what = rows_for(own, before, forward)
            how: dict[str, Any] = {"loss": loss, "decay": decay, "forward": forward}
            slope = None if what is None else slope_by_rows
            pull = local_pull(own, theta, taken, here, there, meter=meter, slope=slope, **how)
            told = {} if what is None else {"rows_recomputed": table_of(after, what, 0).recomputed}
        with meter.phase("forget"):
            x, details, warnings = _step(ready, theta, pull.v, there.mass / here.mass)
            new = copy.deepcopy(own)
            empty, rows = embedded_rows(new, taken)
            x[empty] = -theta[empty]
            load_flat(new, theta + x)
            _check_step(new, x, pull.v)
            now = _aged(ready, new, there, pull.v, x)
    facts: dict[str, Any] = {
        "status": "unverified",
        "request": taken.request.content(),
        "removed": taken.counts | types_in(taken) | ({"rows": rows} if rows else {}),
        "graph": _describe_graph(before, after, taken, here, there),
        "region": _describe_region(pull, here) | told,
        "method": {"name": method.name, "options": {"defer": True, "prepared": "Prepared"}},
        "details": details,
        "step_norm": float(x.norm()),
        "parameters": {
            "count": theta.numel(),
            "norm_before": float(theta.norm()),
            "digest_before": digest,
            "digest_after": now.parameters,
        },
        "passes": meter.passes,
        "peak_mib": peak[0],
        "warnings": warnings,
        "certificate": none("a deferred step is not looked at on the whole graph"),
    }
    return Deferred(new, after, facts, now)


def settle(
    model: nn.Module,
    graph: Data | GraphView,
    ready: Prepared,
    *,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    memory_mib: float | None = None,
) -> Settled:
    """Evaluate the objective on the remaining graph: what became of the requests that are pending.

    For n of them together the residual is ‖∇L'(θ̂) − ∇L0(θ0)‖ / ‖v₁ + … + vₙ‖ and the local change that of
    L'(θ) − ⟨∇L0(θ0), θ⟩, with θ0 where the last evaluation was. For a single one it is what every receipt has.

    Args:
        model: The model after them.
        graph: The remaining graph.
        ready: The state after them.
        weight_decay: What the model was trained with.
        loss: Per-node loss.
        forward: How to call the model.
        memory_mib: What evaluating the model may hold at a time.
    """
    pending = ready.pending
    assert pending is not None
    if ready.parameters != tensor_digest(model.named_parameters()):
        raise RunError("the model is not the one that the deferred requests left; give that one, or forget them anew")
    theta = flatten(model)
    meter, ready = Meter(theta.device), ready.to(theta.device)
    with torch.enable_grad(), meter.phase("verify"):
        objective = objective_within(model, graph, weight_decay, loss, forward, meter, memory_mib)
        end = objective.at(theta)
        gradient = end.gradient()
        with torch.no_grad():
            start = objective.at(theta - pending.step.to(theta))
    if not bool(torch.isfinite(gradient).all()):
        raise DivergenceError(
            "the gradient of the objective is not finite at the new parameters; go back to the run before the deferred "
            "requests, and forget without deferring"
        )
    size = float(pending.pull.norm())
    change = LocalProblem(start.theta.detach(), start.losses, objective.mu, ready.gradient).change(end)
    residual = float((gradient - ready.gradient).norm()) / size if size else None
    worse = residual is not None and residual >= 1 and change > 0
    settled = replace(ready.moved(ready.parameters, end.value, gradient), age=ready.age).on(graph, loss, forward)
    return Settled(
        settled,
        {
            "objective": {"remaining_before": start.value, "remaining_after": end.value, "local_change": change},
            "residual_influence": residual,
            "step_norm": float(pending.step.norm()),
            "seconds": {**meter.seconds, "total": meter.seconds["verify"]},
            "passes": meter.passes,
            "warnings": [BEYOND] if worse else [],
        },
    )


BEYOND = (
    "the deferred step is worse than nothing: it raised its own objective and left a larger gradient. Go back to the "
    "run before it and forget without deferring, or use method='retrain'"
)


def _check_method(method: Method) -> tuple[Prepared, Locality]:
    """The prepared state of a method that can be deferred."""
    if not isinstance(method, GIF):
        raise MethodError(f"only method 'gif' can be deferred, got {method.name!r}; leave defer (--defer) out")
    given = [f.name for f in fields(GIF) if f.name != "prepared" and getattr(method, f.name) != f.default]
    if given:
        raise MethodError(f"{given[0]} does nothing when deferring, which takes one prepared step; leave it out")
    if method.prepared is None:
        raise MethodError(
            "deferring needs prepared=: call unweave.prepare once after training, or train with forgettable=True "
            "(--forgettable), and forget from that run"
        )
    if method.prepared.locality is None:
        raise MethodError("prepared= is from before requests could be deferred; call unweave.prepare anew")
    if method.prepared.locality.refusal is not None:
        raise ModelError(
            f"requests to this model cannot be deferred: {method.prepared.locality.refusal}; leave defer (--defer) out"
        )
    return method.prepared, method.prepared.locality


def _step(ready: Prepared, theta: Tensor, v: Tensor, share: float) -> tuple[Tensor, dict[str, Any], list[str]]:
    """θ̂ − θ0, how it was found, and what to warn of."""
    ready = ready.to(theta.device)
    pending = ready.pending
    details: dict[str, Any] = {
        "deferred": True,
        "prepared": ready.when,
        "steps": 1,
    }
    here = ready.locality
    worn = 0.0
    if here is not None and here.graph is not None:
        worn = ready.worn(here.graph.stored_edges, here.training_nodes)
    warnings = [f"{worn:.0%} of the graph went since the curvature was computed; call unweave.prepare anew"]
    warnings = warnings if worn > TUNING.minimum.worn else []
    if not bool(v.any()):
        return torch.zeros_like(theta), details, [*warnings, GIF.at_rest]
    details["damping"] = damping = cautious_damping(ready, theta)
    if ready.at_minimum:
        return ready.curvature.solve(v, damping), details, warnings
    kept = 1.0 if pending is None else pending.kept
    return ready.curvature.solve(v - (1 - share) * kept * ready.gradient, damping), details, warnings


def cautious_damping(ready: Prepared, theta: Tensor) -> float:
    """δ of a step that nobody checks, by the rule of one that is, from what was prepared."""
    values = ready.curvature.values
    if ready.at_minimum:
        return TUNING.damping.floor * float(values[-1])
    return TUNING.damping.caution * least_damping(values, theta, ready.gradient)


def _check_step(model: nn.Module, x: Tensor, v: Tensor) -> None:
    if not bool(torch.isfinite(flatten(model)).all()):
        raise DivergenceError("the deferred step is not finite; nothing was changed. Leave defer (--defer) out")
    if bool(v.any()) and not bool(x.any()):
        raise NoProgressError(
            "the deferred step is too short to change any parameter, so nothing would be forgotten; leave defer "
            "(--defer) out"
        )


def _aged(ready: Prepared, model: nn.Module, there: Locality, v: Tensor, x: Tensor) -> Prepared:
    """The state after a deferred request: what was last evaluated, what has pulled since, one request older."""
    pending = ready.pending or Pending(0, torch.zeros_like(v), torch.zeros_like(v), 1.0)
    share = there.mass / (ready.locality.mass if ready.locality else there.mass)
    return replace(
        ready,
        parameters=tensor_digest(model.named_parameters()),
        age=ready.age + 1,
        locality=there,
        pending=Pending(pending.requests + 1, pending.pull.to(v) + v, pending.step.to(x) + x, pending.kept * share),
    )


def _describe_graph(
    before: GraphView, after: GraphView, taken: Removal, here: Locality, there: Locality
) -> dict[str, Any]:
    return {
        "nodes": before.size,
        "undirected": taken.undirected,
        "stored_edges_before": before.stored_edges,
        "stored_edges_after": after.stored_edges,
        "training_nodes_before": here.training_nodes,
        "training_nodes_after": there.training_nodes,
    }


def _describe_region(pull: Pull, here: Locality) -> dict[str, Any]:
    return {
        **describe(here.reach),
        "sizes": list(pull.sizes),
        "nodes": pull.region.numel(),
        "training_nodes": pull.trained,
        **pull.looked,
    }
