"""Pose the problem of a request: all that is checked and found before anybody moves θ."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave._core.memory import check_memory
from unweave.changes import Change
from unweave.curvature.prepared import Prepared
from unweave.errors import MethodError, ModelError, RequestError
from unweave.graph.alteration import Alteration
from unweave.graph.region import Region, influenced_region
from unweave.graph.removal import Removal, take
from unweave.graph.view import GraphView, look_at
from unweave.methods.changing import Asked, carried_out, spread_along
from unweave.methods.growing import grown_model
from unweave.methods.problem import Problem
from unweave.models import Shards
from unweave.models.reach import Reach, find_reach
from unweave.objective.checks import (
    changed_outside,
    check_classes,
    check_data,
    check_deterministic,
    check_finite,
    check_kind,
    check_labels,
    check_logits,
    check_model,
    check_outputs,
    check_scores,
)
from unweave.objective.decay import WeightDecay, decay_vector
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import duplicate, flatten, places_in
from unweave.objective.parts.bounded import blocks_on, bounded_objective
from unweave.objective.running_stats import carry, running
from unweave.receipt.words import SILENT
from unweave.request import Request
from unweave.tasks.task import Task

__all__ = ["meter_for", "pose", "pose_bounded"]


def meter_for(model: object, data: object, request: object) -> Meter:
    """A meter for the graph's device, once model, graph and request are of the right kind."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"a model is a torch.nn.Module, got {type(model).__name__}")
    graph = check_kind(data)
    if not isinstance(request, Request | Change):
        raise RequestError(
            f"request must be an unweave.Request, or an unweave.Change, got {type(request).__name__}; see "
            "Request.from_dict and unweave.draw"
        )
    return Meter(graph.x.device if isinstance(graph.get("x"), Tensor) else torch.device("cpu"))


def pose(
    model: nn.Module,
    data: Data,
    request: Asked,
    *,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    hops: int | None = None,
    seed: int = 0,
    allow_class_loss: bool = False,
    prepared: Prepared | None = None,
) -> tuple[Problem, Region, list[str]]:
    """Validate, carry the request out on the graph, find the influenced region and check it.

    The arguments are those of :func:`unweave.unlearn`. The caller's model and graph are left as they are: the problem
    has a copy of the model, in eval mode. What a prepared state has checked of this very model and graph, and what it
    has computed, is not done again.

    Returns:
        The problem, the region, and what the user should know about it.
    """
    look_at(data)
    _check_size(prepared, data)
    if prepared is not None and hops is None and prepared.serves(model, data, weight_decay, loss, forward):
        given = (weight_decay, loss, forward, meter, seed, allow_class_loss)
        posed = _pose_prepared(model, data, request, prepared, *given)
        if bool(posed[0].forgotten_gradient.any()):
            return posed  # otherwise a closer look must tell why nothing changes
    with meter.phase("validate"):
        check_data(data)
        check_model(model, data)
        own = duplicate(model).eval()
        decay_vector(own, weight_decay)
    with meter.phase("graph"):
        before, removal = carried_out(data, request)
    with meter.phase("region"):
        first, reach = _first_look(own, data, forward, loss, hops)
        own, looked = grown_model(own, data, removal, forward, first)
        decay = decay_vector(own, weight_decay)
        meter.passes += 1 + looked
        check_classes(before, removal.data, loss, allow_class_loss)
        region = influenced_region(spread_along(before, removal), removal, reach)
    with meter.phase("evaluate"):
        problem = _problem(model, own, before, removal, decay, loss, forward, meter, seed)
        check_deterministic(first, problem.at_original.outputs.detach()[: first.size(0)])
        region, notes = _check_region(problem, region, given=hops is not None)
        _carry_statistics(problem)
    return problem, region, notes


def _carry_statistics(problem: Problem) -> None:
    """Have what remains evaluated with the running statistics that go with it, as every retraining would.

    Steps are then solved for the model that is returned. With the old statistics they are solved for another one, and
    what the statistics move afterwards nobody makes up for.
    """
    original, removal = problem.original, problem.removal
    if not running(original.model):
        return
    own = duplicate(original.model)
    old = removal.old if isinstance(removal, Alteration) else original.data  # blank nodes would count
    carry(own, original.model, old, removal.data, original.forward)
    problem.meter.passes += 2
    problem.remaining = problem.remaining.of(own)
    problem.__dict__.pop("at_remaining", None)


def _problem(
    model: nn.Module,
    own: nn.Module,
    data: Data,
    removal: Removal,
    decay: Tensor,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    seed: int,
    known: tuple[float, Tensor] | None = None,
) -> Problem:
    original, remaining = (Objective(own, graph, loss, decay, forward, meter) for graph in (data, removal.data))
    theta, places = flatten(own), places_in(model, own)
    if places is not None and known is not None:
        known = known[0], torch.zeros_like(theta).index_copy(0, places, known[1].to(theta))
    problem = Problem(original, remaining, theta, removal, seed, meter, known, places)
    if places is not None:
        problem.digest = tensor_digest(model.named_parameters())
    return problem


def _pose_prepared(
    model: nn.Module,
    data: Data,
    request: Asked,
    prepared: Prepared,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    seed: int,
    allow_class_loss: bool,
) -> tuple[Problem, Region, list[str]]:
    """Pose the problem of a model and a graph that were seen before, without another look at the old graph."""
    here = prepared.locality
    assert here is not None
    reach = here.reach if here.refusal is None else Reach(None, source=here.refusal)
    with meter.phase("graph"):
        own = duplicate(model).eval()
        before, removal = carried_out(data, request)
    with meter.phase("region"):
        if removal.labels.numel():
            check_classes(before, removal.data, loss, allow_class_loss)
        region = influenced_region(spread_along(before, removal), removal, reach)
    with meter.phase("evaluate"):
        # Where outputs come from a part of a plain graph, a node apart from it is no part.
        if here.refusal is not None or isinstance(data, Task):
            own, looked = grown_model(own, data, removal, forward)
            meter.passes += looked
        known, decay = (prepared.objective, prepared.gradient), decay_vector(own, weight_decay)
        problem = _problem(model, own, before, removal, decay, loss, forward, meter, seed, known)
        problem.digest = prepared.parameters
        problem.at_remaining = problem.remaining.look(problem.theta)
        check_outputs(problem.at_remaining.outputs.detach(), removal.data)
    return problem, region, []


def pose_bounded(
    model: nn.Module,
    graph: Data | GraphView,
    request: Request,
    *,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    memory_mib: float,
    seed: int,
    allow_class_loss: bool,
    prepared: Prepared | None,
) -> tuple[Problem, Region, list[str]]:
    """Pose the problem of a request (:func:`pose`) in blocks; nothing of the graph is copied."""
    with meter.phase("validate"):
        check_memory(memory_mib)
        _check_size(prepared, graph)
        own = duplicate(model).eval()
        known = None
        if prepared is not None and prepared.serves(model, graph, weight_decay, loss, forward):
            assert prepared.locality is not None
            decay = decay_vector(own, weight_decay)
            original = blocks_on(own, prepared.locality, loss, decay, forward, meter, memory_mib)
            known = (prepared.objective, prepared.gradient)
        else:
            original = bounded_objective(own, graph, weight_decay, loss, forward, meter, memory_mib)
    with meter.phase("graph"):
        after, taken = take(original.view, request)
        there = original.locality.without(taken, after, loss, allow_class_loss=allow_class_loss)
    with meter.phase("region"):
        reach = original.locality.reach
        region = influenced_region(original.view, taken, reach)
    with meter.phase("evaluate"):
        problem = Problem(
            original=original,
            remaining=original.on(there),
            theta=flatten(own),
            removal=taken,
            seed=seed,
            meter=meter,
            known=known,
        )
        held = problem.at_remaining.held()
        with ranks.together("looking at outputs"):
            check_finite(held.outputs)
    return problem, region, []


def _check_size(prepared: Prepared | None, graph: Data | GraphView) -> None:
    """A prepared state serves the graph that it was made for and what is left of it, none that has grown."""
    known = None if prepared is None or prepared.locality is None else prepared.locality.graph
    if known is None or (isinstance(graph, Data) and not isinstance(graph.get("x"), Tensor)):
        return
    base = graph.base if isinstance(graph, GraphView) else graph
    edges = graph.stored_edges if isinstance(graph, GraphView) else int(graph.edge_index.size(1))
    if base.x.size(0) != known.size or edges > known.stored_edges:
        raise MethodError(
            f"prepared= belongs to a graph of {known.size} nodes and {known.stored_edges} stored edges, this one has "
            f"{base.x.size(0)} and {edges}: it has grown since; call unweave.prepare on it"
        )


def _first_look(model: nn.Module, data: Data, forward: Forward, loss: Loss, hops: int | None) -> tuple[Tensor, Reach]:
    """Call the model once: its outputs, checked, and how far it passes messages."""
    seen: list[Tensor] = []
    with torch.no_grad():
        reach = find_reach(model, lambda: seen.append(forward(model, data)), getattr(data, "readout", 0))
    outputs = check_outputs(seen[0], data)
    check_labels(data, loss, outputs)
    check_scores(data, loss, outputs)
    check_logits(model, data, loss, forward, outputs)
    if hops is not None:
        if not isinstance(hops, int) or hops < 0:
            raise ModelError(f"hops must be a whole number of at least 0, got {hops!r}")
        reach = Reach(hops, flow=reach.flow, source=f"{hops} hops given")
    return outputs, reach


def _check_region(problem: Problem, region: Region, given: bool) -> tuple[Region, list[str]]:
    """The region must hold every prediction that changes; otherwise refuse, or take the whole graph."""
    before, after = problem.at_original.outputs.detach(), problem.at_remaining.outputs.detach()
    check_outputs(after, problem.removal.data)
    outside = changed_outside(region, before, after)
    if not outside.numel():
        return region, _check_graph_is_used(problem, region, before, after)
    if given:
        raise ModelError(
            f"the prediction of node {int(outside[0])} changes although it lies outside the {region.reach.steps} "
            "hops given; give the true number of message-passing steps, or leave hops out"
        )
    change = f"the change at node {int(outside[0])}"
    reason = f"{region.reach.source} do not explain {change}"
    if not region.reach.steps:
        reason = f"no layer that is known to pass messages explains {change}; say how far they go by hops="
    whole = influenced_region(problem.original.data, problem.removal, Reach(None, source=reason))
    return whole, [f"the model mixes nodes beyond its message-passing layers, so the whole graph is affected: {reason}"]


def _check_graph_is_used(problem: Problem, region: Region, before: Tensor, after: Tensor) -> list[str]:
    """A model whose every output survives a removal bit by bit may not be looking at the graph it is given."""
    if not torch.equal(before, after):
        return []
    if region.reach.steps == 0 and problem.removal.request.edges:
        return [
            "no output depends on the edges that the model is given, and it has no layer that passes messages; if it "
            "computes with an adjacency of its own, what was removed is still in there: build that in forward, from "
            "data.edge_index"
        ]
    listens = region.reach.steps is None or int(region.mask.sum()) > 0
    if not listens:
        return []
    # A vote of shards is a step function: it may well survive.
    if problem.original.forward is not call and not isinstance(problem.original.model, Shards):
        raise ModelError(
            "no output changes although edges or features were removed; does forward= use the graph it is given?"
        )
    return [SILENT]
