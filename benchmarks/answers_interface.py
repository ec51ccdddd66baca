"""What the answers of unweave are read with: all that knows its interface, and figures made of what it gives.

Another version that gives the same answers by other names needs changes here alone; beyond this file only the
attributes ``model``, ``data``, ``metrics``, ``receipts``, ``prepared`` and ``recipe`` of a run, ``model``, ``data``,
``graph``, ``receipt`` and ``prepared`` of a result, and the constructor of a request and of a checkpoint are used.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave.experiments.poison import attack_success, poison
from unweave.methods.ladder.calibration import Calibration
from unweave.models import build

Figures = dict[str, Any]
Cells = Iterator[tuple[str, Callable[[], Figures]]]
Model = nn.Module
Run = uw.Run
Request = uw.Request
Checkpoint = uw.Checkpoint
Refused = uw.UnweaveError
CROSS_ENTROPY, MULTI_LABEL, SQUARED = uw.losses.cross_entropy, uw.losses.binary_cross_entropy, uw.losses.squared_error

answered: list[str | None] = []
"""A digest for each receipt that was read."""

SEED = 20260101
CLOCK = ("seconds", "spent", "peak_mib", "largest_mib")


def doubled(data: Data) -> Data:
    """A graph in double precision."""
    return data.apply(lambda value: value.double() if value.is_floating_point() else value)


@cache
def _directions(size: int, count: int) -> np.ndarray:
    return np.random.default_rng([SEED, size]).standard_normal((count, size))


def projected(values: Tensor, count: int = 6) -> list[float]:
    """Norm, sum and products with fixed vectors, each summed exactly."""
    flat = values.detach().reshape(-1).double().numpy()
    products = [math.fsum(direction * flat) for direction in _directions(flat.size, count)]
    return [math.sqrt(math.fsum(flat * flat)), math.fsum(flat), *products]


# ---------------------------------------------------------------- the interface of unweave


def demo(seed: int = 0) -> Data:
    """The embedded graph in double precision."""
    return doubled(uw.load("demo", seed=seed))


def built(name: str, data: Data, *, forgettable: bool = False) -> Model:
    """A built-in model in double precision."""
    return build(name, data.num_features, int(data.num_classes), forgettable=forgettable).double()


def trained(name: str, data: Data, *, forgettable: bool = False, **how: Any) -> Run:
    """A built-in model, trained."""
    return uw.train(built(name, data, forgettable=forgettable), data, forgettable=forgettable, **how)


def run_of(model: Model, data: Data, *, seed: int, epochs: int, decay: float, path: Sequence[Checkpoint] = ()) -> Run:
    """A run of a model that was trained elsewhere."""
    states = uw.trace_path(path, model, data, weight_decay=decay) if path else ()
    recipe = uw.Recipe(seed=seed, epochs=epochs, weight_decay=decay)
    return uw.Run(model, data, weight_decay=decay, recipe=recipe, checkpoints=states)


def prepared(run: Run) -> Run:
    """The same run with the state that makes requests cheap."""
    return run.prepare()


def forget(run: Run, request: Request, method: str | None = None, **options: Any) -> Run:
    """A run after a request; deferred, bounded, purged or screened by options."""
    return run.forget(request, method, **options)


def forget_all(run: Run, requests: Sequence[Request], method: str | None, **options: Any) -> Run:
    """A run after a stream."""
    return run.forget(requests, method, **options)


def verified(run: Run) -> Run:
    """A run without pending requests."""
    return run.verify()


def purged(run: Run) -> Run:
    """A run that keeps nothing else of what it has forgotten."""
    return run.purge()


def reopened(run: Run, folder: Path, model: Model, data: Data) -> Run:
    """A run that was on disk in between."""
    return uw.Run.open(run.save(folder), model=model, data=data)


def planned(run: Run, request: Request, method: str | None = None, **options: Any) -> Figures:
    """What a run would do."""
    plan = run.preview(request, method, **options)
    told = {k: v for k, v in plan.to_dict().items() if k not in ("status", "request", "method", "how", "format")}
    return told | {"remembers": [trace["state"] for trace in plan.remembers]}


def screened(run: Run, request: Request, **how: Any) -> Figures:
    """What screening finds."""
    found = run.screen(request, **how)
    effects = {name: asdict(effect) for name, effect in found.effects.items()}
    return {"effects": effects, "flagged": found.flagged, "passes": found.passes}


def standing(run: Run) -> Figures:
    """What is believed left of all requests."""
    return asdict(run.standing)


def calibrated(run: Run, deletions: int, **how: Any) -> Run:
    """A calibrated run. What rungs cost is set to their passes, as seconds would make another choice every time."""
    run = run.calibrate(deletions, **how)
    assert run.calibration is not None
    known = [
        replace(d, rungs={k: replace(f, cost=f.passes) for k, f in d.rungs.items()}, seconds=d.passes, spent=0.0)
        for d in run.calibration.deletions
    ]
    return run.replace(calibration=replace(run.calibration, deletions=tuple(known)))


def calibration(run: Run) -> Figures:
    """What a calibration found."""
    found = run.calibration
    assert isinstance(found, Calibration)
    rungs = [{k: [f.closed, f.passes, f.residual] for k, f in d.rungs.items()} for d in found.deletions]
    gaps = [[d.gap, d.passes, d.shape.size] for d in found.deletions]
    return {"rungs": rungs, "gaps": gaps, "factor": found.factor, "floor": found.floor, "held_back": found.held_back}


def unlearn(model: Model, data: Data, request: Request, method: str = "gif", **how: Any) -> Any:
    """Let a model of one's own forget: its result has ``model``, ``data``, ``receipt`` and ``prepared``."""
    if method == "finetune":  # version 0.1 trained by the default recipe where nobody said how
        how = {"recipe": recipe(weight_decay=how["weight_decay"]), **how}
    return uw.unlearn(model, data, request, method, **how)


def recipe(**how: Any) -> Any:
    """How a model of one's own was trained."""
    return uw.Recipe(**how)


def state_of(model: Model, data: Data, **how: Any) -> Any:
    """The prepared state of a model of one's own."""
    return uw.prepare(model, data, **how)


def polished(model: Model, data: Data, **how: Any) -> tuple[Model, Any, Figures]:
    """A model at a minimum, its prepared state and the report."""
    found = uw.polish(model, data, **how)
    return found.model, found.prepared, found.report


def sharded(run: Run, request: Request, method: str, **options: Any) -> tuple[Model, Any]:
    """A model in shards as it was set up, and the result of a request to it."""
    how = {"eraser-blpa": uw.methods.EraserBLPA, "eraser-bekm": uw.methods.EraserBEKM}[method]
    eraser = how.from_recipe(run.recipe, **options)
    model = eraser.setup(run.model, run.data, run.recipe)
    known: Figures = {"weight_decay": run.recipe.weight_decay, "recipe": run.recipe}
    return model, uw.unlearn(model, run.data, request, eraser, **known)


def explained(model: Model, data: Data, request: Request, **how: Any) -> tuple[Figures, list[Tensor]]:
    """The forces behind a request, and those of every node."""
    found = uw.explain(model, data, request, **how)
    told = {key: value for key, value in found.to_dict().items() if key not in ("request", "format")}
    told["hardest"] = {k: [[n.node, n.work] for n in nodes] for k, nodes in found.hardest.items()}
    return told, [found.node_pulls, found.node_resistances]


def rehearsed(run: Run, spec: str, **how: Any) -> Figures:
    """What a rehearsal shows."""
    found = run.rehearse(spec, **how) if hasattr(run, "rehearse") else uw.rehearse(run, spec, **how)
    return {"gap_closed": found.gap_closed, "other_seed": found.other_seed, "verdict": found.verdict}


def audited(before: Run, after: Run, **how: Any) -> Figures:
    """The figures of an audit."""
    found = uw.audit(before, after, **how)
    tests = {
        e.name: [
            *[[r.value, r.low, r.high, *r.more.values()] for r in (e.before, e.after)],
            *[[fn(r.value for r in group) for fn in (math.fsum, min, max)] for group in (e.retrained, e.trained)],
            *[list(e.usual), e.floor, e.effect, e.noticed, e.finding],
        ]
        for e in found.evidence
    }
    counts = {k: v for k, v in found.config.items() if isinstance(v, int)}
    rest = {"classes": found.classes["after"], "recovery": found.recovery, "notes": list(found.notes)}
    return {"tests": tests, "verdict": found.verdict, "config": counts, **rest}


def compared(make: Callable[[int], Data], name: str, spec: str, methods: Sequence[str], **how: Any) -> Figures:
    """The rows of a comparison; fine-tuning gets seconds there, so it is left out."""
    model = cache(lambda features, classes: build(name, features, classes).double())
    found = uw.compare(make, lambda *size: copy.deepcopy(model(*size)), spec, methods=methods, **how)
    timed = ("seconds_mean", "prepare_seconds_mean", "cost_mean", "cost_median", "peak_mib_mean", "over_finetune")
    rows = [row for row in found.rows if row["method"] != "finetune"]
    return {row["method"]: {k: v for k, v in row.items() if k not in (*timed, "method")} for row in rows}


def drawn(spec: str, data: Data, seed: int) -> Request:
    """A random request."""
    return uw.draw(spec, data, seed=seed)


def poisoned(spec: str, data: Data, seed: int) -> tuple[Data, Request, Callable[[Model, Data], float]]:
    """A poisoned graph, the request to forget the poison, and how often the attack succeeds."""
    found = poison(spec, data, seed=seed)
    return found.data, found.request, lambda model, graph: attack_success(model, graph, found)


def receipts_of(run: Run) -> list[Any]:
    """The receipts of requests that took something, with what verifications and purges told of them later."""
    found: dict[str, Any] = {}
    for receipt in run.receipts:
        if receipt.carried_out:
            found[receipt.digest] = receipt
        for digest in receipt.speaks_of:
            found[digest] = _with(found[digest], receipt)
    return list(found.values())


def _with(told: Any, later: Any) -> Any:
    """A receipt with its part of what a later one tells."""
    count = len(later.speaks_of)
    fates = {trace["where"]: trace for trace in later.remembers}
    known = {
        "passes": told.passes + later.passes / count,
        "remembers": [fates.pop(trace["where"], trace) for trace in told.remembers] + list(fates.values()),
    }
    if later.kind == "verification":
        together = {"verified_together": count} if count > 1 else {}
        known |= {
            "status": "done",
            "residual_influence": later.residual_influence,
            "objective": told.objective | later.objective,
            "details": told.details | together,
            "warnings": [*told.warnings, *later.warnings],
        }
    return replace(told, **known)


def told_of(receipt: Any) -> Figures:
    """The figures of a receipt, without those of the clock and of memory, and without digests.

    Lists are in the order of the receipt: ``graph`` edges and training nodes before and after, ``region`` the nodes,
    those in training, the hops and the sizes by hop, ``remembers`` how much was purged and rewritten. Of a warning it
    is the beginning that counts.
    """
    objective, region, traces = receipt.objective, receipt.region, [trace["state"] for trace in receipt.remembers]
    parts = ("nodes", "training_nodes", "steps", "halo_nodes", "halo_edges")
    values = ("remaining_before", "remaining_after", "function_change", "local_change")
    proof, solve, ladder = receipt.certificate or {}, receipt.solve or {}, receipt.ladder or {}
    certified = {k: v for k, v in proof.items() if k != "rounding" and (k == "kind" or not isinstance(v, str | list))}
    return {
        "removed": list(receipt.removed.values()),
        "graph": list(receipt.graph.values())[2:],
        "region": [*(region[k] for k in parts if k in region), *region["sizes"]],
        "details": {k: v for k, v in receipt.details.items() if k == "rung" or not isinstance(v, str)},
        "solve": {k: v for k, v in solve.items() if k not in ("warnings", "solver", "settings")},
        "objective": [objective[k] for k in values if k in objective],
        "residual": receipt.residual_influence,
        "step": receipt.step_norm,
        "passes": receipt.passes,
        "unverified": receipt.status == "unverified" or None,
        "certificate": None if proof.get("kind") == "none" else certified,
        "remembers": [n for n in [[traces.count(state) for state in ("purged", "rewritten")]] if any(n)],
        "ladder": {k: v for k, v in ladder.items() if k not in ("rung", "asked", "calibration")},
        "screening": receipt.screening and {"flagged": receipt.screening["flagged"]},
        "warnings": [text[:60] for text in receipt.warnings],
    }


def told_of_state(state: Any) -> Figures:
    """The figures of a prepared state."""
    names = ("objective", "stationarity", "bend", "damping", "raised", "left", "age", "passes")
    values, gradient = state.curvature.values, state.gradient
    return {**{k: getattr(state, k) for k in names}, "values": projected(values, 2), "gradient": projected(gradient, 2)}


# ---------------------------------------------------------------- what is kept of it


def answer(model: Model, data: Data) -> Figures:
    """Parameters, buffers where there are some, and outputs of a model."""
    model = copy.deepcopy(model).eval()
    weight = data.get("edge_weight")
    with torch.no_grad():
        outputs = model(data.x, data.edge_index, *([] if weight is None else [weight]))
    outputs = F.log_softmax(outputs, dim=-1) if outputs.size(-1) > 1 else outputs
    buffers = [b.reshape(-1).double() for b in model.buffers()]
    return {
        "parameters": projected(torch.cat([p.reshape(-1) for p in model.parameters()])),
        "outputs": projected(outputs, 4)[1:],
        **({"buffers": projected(torch.cat(buffers), 2)} if buffers else {}),
    }


def receipt(told: Any) -> Figures:
    """The figures of a receipt, counted."""
    answered.append(told.request_digest)
    return {key: value for key, value in told_of(told).items() if value not in (None, [], {})}


def after(run: Run, receipts: int = 1) -> Figures:
    """What a run is after requests, and the last receipts."""
    scores = [value for key, value in run.metrics.items() if key in ("test_loss", "test_f1")]
    told = [receipt(each) for each in receipts_of(run)[-receipts:]]
    return {**answer(run.model, run.data), "scores": scores, "receipts": told}


def forgotten(run: Run, request: Request, method: str | None = None, **options: Any) -> Figures:
    """What a run is after one request."""
    return after(forget(run, request, method, **options))


def streamed(run: Run, stream: Sequence[Request], receipts: int, **options: Any) -> Figures:
    """What a run is after several."""
    return after(forget_all(run, stream, "gif", **options), receipts)


def result(done: Any) -> Figures:
    """What :func:`unlearn` gave."""
    state = {} if done.prepared is None else {"state": told_of_state(done.prepared)}
    return {**answer(done.model, done.data), "receipts": [receipt(done.receipt)], **state}


def unlearned(model: Model, data: Data, request: Request, method: str = "gif", **how: Any) -> Figures:
    """What a model of one's own is after one request."""
    return result(unlearn(model, data, request, method, **how))


def first(run: Run) -> Figures:
    """What a run is after training."""
    scores = [value for key, value in run.metrics.items() if "seconds" not in key]
    state = {} if run.prepared is None else {"state": told_of_state(run.prepared)}
    return {**answer(run.model, run.data), "metrics": scores, **state}


def plain(value: Any) -> Any:
    """A figure as JSON has it, without what depends on the clock."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if k not in CLOCK}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic | Tensor):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
