"""The cells of the record of answers, in groups."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from answers_asked import questions, refusals
from answers_given import (
    DECAY,
    EPOCHS,
    NAMES,
    SHARES,
    Headed,
    Linear,
    Loss,
    Own,
    fitted,
    huber,
    little,
    loop,
    requests,
    single,
)
from answers_interface import (
    CROSS_ENTROPY,
    MULTI_LABEL,
    SQUARED,
    Cells,
    Figures,
    Model,
    Request,
    Run,
    after,
    answer,
    built,
    calibrated,
    calibration,
    demo,
    drawn,
    first,
    forget,
    forget_all,
    forgotten,
    planned,
    polished,
    prepared,
    purged,
    receipt,
    receipts_of,
    recipe,
    reopened,
    result,
    run_of,
    sharded,
    standing,
    state_of,
    streamed,
    told_of_state,
    trained,
    unlearn,
    unlearned,
    verified,
)
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv


def matrix(name: str) -> Cells:
    """Every kind of request by every method, on the embedded graph."""
    data = demo()
    run = trained(name, data, seed=1, epochs=EPOCHS, weight_decay=DECAY, checkpoints=SHARES)
    ready = prepared(run)
    yield "trained", partial(first, ready)
    methods: dict[str, tuple[Run, str, Figures]] = {
        "gif": (run, "gif", {}),
        "gif/prepared": (ready, "gif", {}),
        "gif-published": (run, "gif-published", {"scale": 2000.0, "iterations": 40}),
        "if": (run, "if", {}),
        "finetune": (run, "finetune", {"epochs": 5}),
        "retrain": (run, "retrain", {}),
        "none": (run, "none", {}),
        "lbfgs": (run, "lbfgs", {}),
        "replay": (run, "replay", {"share": 0.2}),
        "retrace": (ready, "retrace", {"share": 0.8, "end": 0.1}),
    }
    for kind, request in requests(data).items():
        for label, (start, method, options) in methods.items():
            yield f"{kind}/{label}", partial(forgotten, start, request, method, **options)


def forgettable() -> Cells:
    """Models trained to a minimum."""
    data, whole = little(), demo()
    asked = requests(data)
    more: dict[str, Figures] = {"gif": {"steps": 40}, "retrain": {}, "lbfgs": {}, "finetune": {"epochs": 3}}
    for name in NAMES:
        run = trained(name, data, seed=2, epochs=EPOCHS, weight_decay=1e-2, forgettable=True)
        yield f"{name}/trained", partial(first, run)
        for kind, request in asked.items():
            yield f"{name}/{kind}/gif", partial(forgotten, run, request, "gif")
        for method, options in more.items():
            yield f"{name}/mixed/{method}/more", partial(forgotten, run, asked["mixed"], method, **options)
    run = trained("gcn", whole, seed=0, epochs=EPOCHS, weight_decay=1e-2, forgettable=True)
    for kind in ("edges", "nodes"):
        yield f"demo/gcn/{kind}/gif", partial(forgotten, run, requests(whole)[kind], "gif")
    yield "chosen-decay", lambda: first(trained("sgc", data, seed=0, epochs=20, forgettable=True))


def linear() -> Cells:
    """What only models that are linear in their parameters can do: closed forms, and certificates."""
    data = little()
    asked = requests(data)
    run = trained("sgc", data, seed=3, epochs=EPOCHS, weight_decay=1e-3)
    for kind, request in asked.items():
        for hessian in ("exact", "block-diagonal"):
            for graph in ("remaining", "original"):
                how = {"hessian": hessian, "graph": graph}
                yield f"closed-form/{kind}/{hessian}/{graph}", partial(forgotten, run, request, "closed-form", **how)
        seeded = {"epsilon": 1.0, "delta": 1e-5, "noise_seed": 4}
        yield f"certified/{kind}/seeded", partial(forgotten, run, request, "certified", **seeded)
    released = trained("sgc", data, seed=3, certify=(1.0, 1e-5))
    yield "certified/stream", lambda: _noisy(forget_all(released, [asked["nodes"], asked["labels"]], None))
    yield "certified/run", lambda: _noisy(forget(released, asked["mixed"]))
    yield "certified/retrain", lambda: _noisy(forget(released, asked["edges"], "retrain"))
    curved = trained("gcn", data, seed=3, epochs=10)
    yield "certified/refused", partial(forgotten, curved, asked["nodes"], "certified", epsilon=1.0, delta=1e-5)


def _noisy(done: Run) -> Figures:
    """Its noise is the system's, so that only what that does not touch is kept."""
    names = ("epsilon", "delta", "tolerance", "objective_noise", "release_noise", "mu", "kind", "together")
    told = [receipt(r) for r in receipts_of(done)]
    return {
        "certificates": [{k: v for k, v in r["certificate"].items() if k in names} for r in told],
        "removed": [[r["removed"], r["graph"], r["region"]] for r in told],
    }


def shards() -> Cells:
    """GraphEraser."""
    data = little()
    run = trained("gcn", data, seed=4, epochs=20, weight_decay=DECAY)

    def cell(kind: str, method: str, **how: Any) -> Figures:
        model, done = sharded(run, requests(data)[kind], method, **how)
        return {"before": answer(model, data), **result(done)}

    for method in ("eraser-blpa", "eraser-bekm"):
        for way in ("mean", "majority", "learned"):
            for kind in ("edges", "nodes", "mixed"):
                yield f"{method}/{way}/{kind}", partial(cell, kind, method, shards=4, aggregation=way)
    yield "unsharded", partial(forgotten, run, requests(data)["nodes"], "eraser-blpa")


def ladder() -> Cells:
    """``auto``, with and without a calibration."""
    data = little()
    asked = requests(data)
    walked = trained("gcn", data, seed=5, epochs=EPOCHS, weight_decay=DECAY, checkpoints=SHARES)
    flat = trained("sgc", data, forgettable=True, weight_decay=1e-2, epochs=30)
    wishes: dict[str, Figures] = {
        **{f"budget-{share}": {"budget": share} for share in (0.02, 0.1, "30%")},
        **{f"at-least-{share}": {"at_least": share} for share in (0.3, 0.8)},
        "both": {"budget": 0.5, "at_least": 0.9},
        "neither": {},
    }

    def stream(run: Run) -> Figures:
        done = forget_all(run, single(data, 6), "auto", at_least=0.6)
        return {**after(done, 6), "standing": standing(done)}

    for name, run in (("path", prepared(walked)), ("minimum", flat)):
        known = calibrated(run, 12, seed=1)
        yield f"{name}/calibration", partial(calibration, known)
        for start, which in ((run, "uncalibrated"), (known, "calibrated")):
            for wish, how in wishes.items():
                for kind in ("edges", "nodes"):
                    yield f"{name}/{which}/{wish}/{kind}", partial(forgotten, start, asked[kind], "auto", **how)
        yield f"{name}/plan", partial(planned, known, asked["labels"], "auto", budget=0.3)
        yield f"{name}/stream", partial(stream, known)


def own() -> Cells:
    """Models of one's own, through :func:`unlearn`."""
    data, directed, weighted, tagged, measured = (little(directed=number == 1) for number in range(5))
    ends = weighted.edge_index.double()
    weighted.edge_weight = 0.5 + torch.sin(ends[0] * ends[1]).abs()
    tagged.y = (tagged.x[:, :4] > 0.5).double()
    measured.y = tagged.x[:, 4:6] + 0.3 * tagged.x[:, :2]
    width = data.num_features
    cases: dict[str, tuple[Data, Callable[[], Model], Loss]] = {
        "gcn": (data, lambda: Own(GCNConv, (width, 12, 3)), CROSS_ENTROPY),
        "sage-norm": (data, lambda: Own(SAGEConv, (width, 12, 3), norm=True), CROSS_ENTROPY),
        "weighted": (weighted, lambda: Own(GCNConv, (width, 12, 3)), CROSS_ENTROPY),
        "directed": (directed, lambda: Own(GCNConv, (width, 12, 3)), CROSS_ENTROPY),
        "multi-label": (tagged, lambda: Own(SAGEConv, (width, 12, 4)), MULTI_LABEL),
        "regression": (measured, lambda: Linear(width, 2), SQUARED),
        "own-loss": (measured, lambda: Own(GCNConv, (width, 12, 2)), huber),
        "frozen": (data, lambda: Headed(width, 3), CROSS_ENTROPY),
    }
    for name, (graph, make, loss) in cases.items():
        model = fitted(make, graph, loss)
        methods: dict[str, Figures] = {
            "gif": {},
            "gif/prepared": {"prepared": state_of(model, graph, weight_decay=DECAY, loss=loss)},
            "if": {},
            "finetune": {"epochs": 4},
            "retrain": {"recipe": recipe(seed=6, epochs=20, lr=0.02, weight_decay=DECAY)},
        }
        for kind in ("edges", "nodes", "mixed"):
            for label, given in methods.items():
                asked, how = requests(graph)[kind], {"weight_decay": DECAY, "loss": loss, **given}
                yield f"{name}/{kind}/{label}", partial(unlearned, model, graph, asked, label.partition("/")[0], **how)
    yield from _variants(data, fitted(cases["gcn"][1], data, CROSS_ENTROPY))
    yield from _looped(data)


def _variants(data: Data, model: Model) -> Cells:
    """Other ways to say how one's own model was trained, and several requests to it."""
    request = requests(data)["mixed"]
    variants: dict[str, Figures] = {
        "decay-by-module": {"weight_decay": {"conv1": 1e-3, "conv2": 0.0}},
        "hops": {"weight_decay": DECAY, "hops": 1},
        "forward": {"weight_decay": DECAY, "forward": lambda m, d: 0.5 * m(d.x, d.edge_index)},
        "steps": {"weight_decay": DECAY, "steps": 3},
        "damping": {"weight_decay": DECAY, "damping": 5.0},
    }
    for name, given in variants.items():
        yield f"variant/{name}", partial(unlearned, model, data, request, "gif", **given)

    def polish() -> Figures:
        better, state, report = polished(model, data, weight_decay=1e-2)
        return {**unlearned(better, data, request, weight_decay=1e-2, prepared=state), "report": report}

    def sequence(**how: Any) -> Figures:
        at, graph, state, told = model, data, state_of(model, data, weight_decay=DECAY), []
        for small in single(data, 5):
            done = unlearn(at, graph, small, weight_decay=DECAY, prepared=state, **how)
            at, graph, state = done.model, done.graph, done.prepared
            told.append(result(done))
        return {"requests": told}

    yield "polished", polish
    yield "sequence", sequence
    yield "sequence/deferred", partial(sequence, defer=True)
    yield "sequence/bounded", partial(sequence, memory_mib=0.5)


def _looped(data: Data) -> Cells:
    """A training loop of one's own that can be resumed."""
    torch.manual_seed(9)
    model = built("gcn", data)
    states = [loop(model, data, until=8)]
    for epoch in (16, 24, 32):
        states.append(loop(model, data, states[-1], epoch))
    loop(model, data, states[-1])
    run = prepared(run_of(model.eval(), data, seed=9, epochs=EPOCHS, decay=DECAY, path=states))
    walks: dict[str, Figures] = {"replay": {"share": 0.2}, "retrace": {"share": 0.8, "end": 0.2}, "retrain": {}}
    for method, how in walks.items():
        yield f"trainer/{method}", partial(forgotten, run, requests(data)["mixed"], method, trainer=loop, **how)


def later() -> Cells:
    """Deferred, bounded, purged, streamed, saved."""
    data, whole = little(), demo()
    asked = requests(data)
    gcn = prepared(trained("gcn", data, seed=7, epochs=EPOCHS, weight_decay=DECAY, checkpoints=(0.2,)))
    sgc = trained("sgc", data, seed=7, epochs=EPOCHS, weight_decay=1e-2, forgettable=True)
    gat = prepared(trained("gat", data, seed=7, epochs=EPOCHS, weight_decay=DECAY))
    large = prepared(trained("gcn", whole, seed=7, epochs=EPOCHS, weight_decay=DECAY))

    def deferred(run: Run, few: list[Request]) -> Figures:
        for small in few:
            run = forget(run, small, defer=True)
        done = verified(run)
        told = [receipt(r) for r in receipts_of(run)]
        return {"deferred": told, **after(done, len(few)), "state": told_of_state(done.prepared)}

    def saved(run: Run, name: str, method: str) -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            begun = forget(run, asked["edges"], method)
            again = reopened(begun, Path(folder) / "run", built(name, data), data)
            return after(forget(again, asked["nodes"], method), 2)

    for name, run in {"gcn": gcn, "sgc": sgc, "gat": gat, "demo": large}.items():
        few = single(run.data, 5)
        yield f"deferred/{name}", partial(deferred, run, few)
        yield f"deferred-then-gif/{name}", lambda a=run, b=few: after(forget(forget(a, b[1], defer=True), b[0]), 2)  # type: ignore[misc]
        yield f"stream/{name}", partial(streamed, run, [*few, few[1]], 5)
        yield f"batch/{name}", partial(streamed, run, few, 1, batch=True)
    for name, run in {"gcn": gcn, "sgc": sgc, "gat": gat}.items():
        for mib in (0.1, 0.5, 5.0):
            for kind in ("edges", "nodes", "mixed"):
                yield f"bounded/{name}/{mib}/{kind}", partial(forgotten, run, asked[kind], "gif", memory_mib=mib)
        yield f"purged/{name}", partial(forgotten, run, asked["nodes"], "gif", purge=True)
        yield f"purged-later/{name}", lambda a=run: after(purged(forget(a, asked["edges"], "gif")))  # type: ignore[misc]
        yield f"screened/{name}", partial(forgotten, run, asked["labels"], "gif", screen=True)
        yield f"worn/{name}", partial(streamed, run, [drawn("nodes:0.25", data, 1), asked["edges"]], 2)
        yield f"saved/{name}", partial(saved, run, name, "gif")
    yield "saved/replay", partial(saved, gcn, "gcn", "replay")


GROUPS: dict[str, Callable[[], Cells]] = {
    **{name: partial(matrix, name) for name in NAMES},
    **{g.__name__: g for g in (forgettable, linear, shards, ladder, own, later, questions, refusals)},
}
