"""Simulate deletions on a run, retrain without each, and measure what every rung of the ladder closes."""

import math
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.errors import MethodError, ModelError, SolverError
from unweave.graph.index import distinct_edges, is_undirected
from unweave.methods.ladder.calibration import Calibration, Deletion, Figures
from unweave.methods.ladder.rung import RETRAIN, Rung
from unweave.methods.ladder.rungs import Kept, rungs_of
from unweave.methods.ladder.size import shape_of
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.request import ALL, KINDS, Request
from unweave.run.state import State, unlearn_state
from unweave.run.verify import prepared_anew, served_best, verified
from unweave.run.wish import check_trainer
from unweave.training.adam import Progress
from unweave.training.recipe import AnyTrainer
from unweave.training.trainer import refuse_bounded
from unweave.unlearning import Unlearned

__all__ = ["DELETIONS", "LARGEST", "calibrate", "simulate"]

DELETIONS = 24
LARGEST = 0.2
"""The largest share of its candidates that a simulated deletion takes; the smallest is one of them."""

STREAM = 0x1ADDE2
"""Sets the random numbers of simulated deletions apart from those of every drawn request."""


def simulate(data: Data, number: int, *, seed: int = 0) -> Request:
    """The request of one simulated deletion: one kind, in turn, of a size between one item and a fifth of them all.

    Args:
        data: The graph as it is.
        number: Which.
        seed: Another seed gives other deletions.
    """
    kind = KINDS[number % len(KINDS)]
    candidates = (distinct_edges(data) if kind == "edges" else data.train_mask.nonzero()).cpu()
    rng = np.random.default_rng([STREAM, seed, number])
    count = round(math.exp(rng.uniform(0, math.log(max(1, LARGEST * candidates.size(0))))))
    chosen = candidates[torch.from_numpy(rng.choice(candidates.size(0), size=count, replace=False))].tolist()
    if kind == "edges":
        return Request(edges=[(u, v) for u, v in chosen])
    ids = [row[0] for row in chosen]
    if kind == "features":
        return Request(features=dict.fromkeys(ids, ALL))
    return Request(nodes=ids) if kind == "nodes" else Request(labels=ids)


def calibrate(
    state: State,
    deletions: int = DELETIONS,
    seed: int | None = None,
    trainer: AnyTrainer | str | None = None,
    *,
    memory_mib: float | None = None,
    progress: Progress | None = None,
    keep: Callable[[State], None] | None = None,
) -> State:
    """Measure every rung on simulated deletions; see :meth:`unweave.Run.calibrate`."""
    if trainer is None:
        state.training.require("a calibration, which compares with retrained models,")
        trainer = state.training.resolve_trainer()
    refuse_bounded(trainer, memory_mib)
    state = verified(state, memory_mib) if state.prepared is not None else prepared_anew(state, memory_mib)
    parameters = tensor_digest(state.model.named_parameters())
    found = state.calibration if state.calibration is not None and state.calibration.parameters == parameters else None
    seed = seed if seed is not None else 0 if found is None else found.seed
    _check(state, deletions, seed)
    check_trainer(state, trainer)
    assert state.prepared is not None
    if found is not None and found.seed != seed:
        raise MethodError(
            f"this run has {len(found.deletions)} simulated deletions of seed {found.seed}, which another seed would "
            "throw away; leave the seed out to go on with those"
        )
    if found is None:
        usual = state.prepared
        found = Calibration(parameters, seed, (), usual.damping, usual.raised, requests=len(state.receipts))
    ready = replace(state.prepared, damping=found.damping)
    for number in range(len(found.deletions), deletions):
        request = simulate(state.data, number, seed=seed)
        found = found.with_deletion(_measure(state, ready, request, trainer, memory_mib))
        if keep is not None:
            keep(_with(state, found))
        if progress is not None:
            progress(number + 1, deletions)
    return _with(state, found)


def _with(state: State, found: Calibration) -> State:
    """The run with what was measured, and with the damping that served best."""
    assert state.prepared is not None
    usual = replace(state.prepared, damping=found.damping, raised=found.raised)
    return replace(state, calibration=found, prepared=served_best(usual, found))


def _check(state: State, deletions: int, seed: int) -> None:
    if not (type(deletions) is int and deletions >= 1 and type(seed) is int and seed >= 0):
        raise ModelError(f"deletions must be at least 1 and seed at least 0, got {deletions!r} and {seed!r}")
    if state.training.recipe is not None and state.training.recipe.certify is not None:
        raise MethodError("a certified model forgets by method='certified' alone, which needs no calibration")
    if not state.loss.classes:
        raise ModelError("only class probabilities can be compared with a retrained model's; calibrate needs those")


def _measure(
    state: State, ready: Prepared, request: Request, trainer: AnyTrainer | str | None, memory_mib: float | None
) -> Deletion:
    """Retrain without a request, then let every rung forget it."""
    start, data = perf_counter(), state.data
    shape = shape_of(
        request,
        stored_edges=int(data.edge_index.size(1)),
        undirected=is_undirected(data),
        training_nodes=int(data.train_mask.sum()),
    )
    reference = _forget(state, request, RETRAIN, ready, trainer, memory_mib)
    if not reference.receipt.carried_out:  # features that are zero already
        return Deletion(shape, {}, 0.0, 0.0, 0.0, perf_counter() - start)
    kept = torch.ones(data.num_nodes, dtype=torch.bool, device=data.x.device)
    kept[list(request.nodes)] = False

    def outputs(model: nn.Module) -> Tensor:
        return log_probabilities(model, reference.data, state.forward, memory_mib=memory_mib)

    target, nothing = outputs(reference.model), outputs(state.model)
    distance = gap(target, nothing, kept)
    seconds, passes = reference.receipt.seconds["forget"], reference.receipt.passes

    def figures(rung: Rung, factor: float) -> Figures | None:
        damped = replace(ready, damping=factor * ready.damping)
        try:
            done = _forget(state, request, rung, damped, trainer, memory_mib)
        except SolverError:
            return None
        share = closed(gap(target, outputs(done.model), kept), distance)
        spent = done.receipt.seconds["total"] / seconds, done.receipt.passes / passes
        return None if share is None else Figures(share, *spent, residual=done.receipt.residual_influence)

    how = Kept(ready, state.checkpoints, state.training.recipe, trainer)
    rungs = [rung for rung in rungs_of(how)[:-1] if memory_mib is None or how.way(rung).method.bounded]
    tried = [(rung, f) for rung in rungs for f in (TUNING.ladder.factors if ready.damping and rung.damped else (1.0,))]
    found = {rung.at(factor): figures(rung, factor) for rung, factor in tried if distance > 0}
    told = {rung: result for rung, result in found.items() if result is not None}
    return Deletion(shape, told, distance, seconds, float(passes), perf_counter() - start)


def _forget(
    state: State,
    request: Request,
    rung: Rung,
    ready: Prepared,
    trainer: AnyTrainer | str | None,
    memory_mib: float | None,
) -> Unlearned:
    # The yardstick is training alone, without what it costs to keep its states.
    states = () if rung == RETRAIN else state.checkpoints
    how = Kept(ready, states, state.training.recipe, trainer).way(rung)
    return unlearn_state(state, request, how, allow_class_loss=True, memory_mib=memory_mib)
