"""Train, prepare and forget on graphs that lie on disk, in bounded memory: seconds, bytes, rows and peak memory.

Usage: python benchmarks/large.py --nodes 1000000 --edges 10000000 --model sign --work /data/large [--retrain]

A graph is drawn on disk (:mod:`generated`, ``onto_disk``), then every phase is a process of its own, so that what each
holds at most is known: opening, propagating, training to a minimum, and requests for a node, an edge, 1,000 of each,
deferred and not. With ``--retrain`` each request for 1,000 is retrained too, and the gap that was closed is measured;
with ``--threads 1,2,4`` only opening and propagating are, on so many. A line is added to
``results/large/cells.jsonl`` after every phase.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from generated import onto_disk
from pages.large import PAGE
from shared import RESULTS, Document, append, made

import unweave as uw
from unweave.graph.view import GraphView
from unweave.models.propagation import propagation_of
from unweave.objective.objective import call
from unweave.objective.parts.propagated import table_of
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.run.forecast import Sizes, forecast, passes_of

MODELS: dict[str, Callable[[int, int, int], torch.nn.Module]] = {
    "sign": lambda width, classes, hidden: uw.models.SIGN(
        width, classes, hidden=hidden, layers=2, dropout=0, unit=True
    ),
    "sgc": lambda width, classes, hidden: uw.models.SGC(width, classes, unit=True),
    "gcn": lambda width, classes, hidden: uw.models.GCN(
        width, classes, hidden=hidden, dropout=0, activation="tanh", unit=True
    ),
}
DECAY = {"sgc": 1e-5, "sign": 1e-3, "gcn": 1e-3}


def status(key: str) -> float:
    """A line of ``/proc/self/status`` in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:"))


def read_bytes() -> int:
    """Bytes that this process had from disk, not from the system's cache of files."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def alone(work: Callable[..., Document], *given: Any, threads: int | None = None) -> Document:
    """Do some work in a new process, on all its cores; what it found, how long it took and what it held at most."""
    threads = len(os.sched_getaffinity(0)) if threads is None else threads
    if given and isinstance(given[0], Path) and given[0].exists():
        forgotten_by_the_system(given[0])
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_answer, args=(there, threads, work, given))
    process.start()
    there.close()
    try:
        found: Document = here.recv()
    except EOFError as error:
        raise RuntimeError(f"{work.__name__} ended without an answer") from error
    process.join()
    if "error" in found:
        raise RuntimeError(found["error"])
    return found


def _answer(out: Any, threads: int, work: Callable[..., Document], given: tuple[Any, ...]) -> None:
    torch.set_num_threads(threads)
    start, read = perf_counter(), read_bytes()
    try:
        found = work(*given)
    except BaseException as error:
        out.send({"error": f"{type(error).__name__}: {error}"})
        raise
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out.send({"seconds": seconds, "peak_mib": peak, "read_bytes": read_bytes() - read, **found})


def forgotten_by_the_system(folder: Path) -> None:
    """Let the system's cache of files hold nothing of a folder, so that what is read comes from disk."""
    for path in folder.rglob("*.npy"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def generate(folder: Path, asked: dict[str, Any]) -> Document:
    """Draw the graph."""
    onto_disk(folder, **asked)
    return {"disk_bytes": sum(path.stat().st_size for path in folder.iterdir())}


def opening(folder: Path) -> Document:
    """Open the folder and check it."""
    start = perf_counter()
    data = uw.load_folder(folder)
    return {"opened": perf_counter() - start, "edges_found": data.num_edges, "anonymous_mib": status("RssAnon")}


def propagate(folder: Path, model: str, hidden: int, memory_mib: float) -> Document:
    """Compute PᵏX for all k."""
    data = uw.load_folder(folder)
    what = propagation_of(MODELS[model](data.num_features, data.num_classes, hidden))
    assert what is not None
    start = perf_counter()
    table_of(GraphView.of(data), what, memory_mib * 2**20)
    derived = sum(path.stat().st_size for path in (folder / "propagated").iterdir())
    return {"propagated": perf_counter() - start, "disk_bytes": derived}


def train(folder: Path, run: Path, model: str, hidden: int, memory_mib: float) -> Document:
    """Train to a minimum, prepared."""
    data = uw.load_folder(folder)
    module, start = MODELS[model](data.num_features, data.num_classes, hidden), perf_counter()
    made_run = uw.train(module, data, weight_decay=DECAY[model], forgettable=True, memory_mib=memory_mib)
    seconds = perf_counter() - start
    made_run.save(run, overwrite=True)
    assert made_run.prepared is not None
    scores = {key: value for key, value in made_run.metrics.items() if not key.endswith("seconds")}
    passes = 2 * made_run.recipe.epochs + made_run.metrics["polish_passes"]
    minimum = made_run.prepared.at_minimum
    nodes = int(data.train_mask.sum())
    return {"trained": seconds, "passes": passes, "metrics": scores, "at_minimum": minimum, "training_nodes": nodes}


def planned(asked: dict[str, Any], training: float, model: str, hidden: int, memory_mib: float) -> Document:
    """What is foretold of all this, by the sizes alone."""
    nodes, masked = asked["nodes"], round(training * asked["nodes"])
    sizes = Sizes(nodes, asked["stored_edges"], asked["features"], asked["classes"], masked, masked)
    module = MODELS[model](asked["features"], asked["classes"], hidden)
    found = forecast(sizes, module, passes_of(asked["classes"]), memory_mib=memory_mib)
    return {"planned": found.to_dict()}


def request_for(data: Any, kind: str, count: int) -> uw.Request:
    """Training nodes, or edges into training nodes, drawn by the seed of their number."""
    rng = np.random.default_rng([count, len(kind)])
    trained = data.train_mask.nonzero().flatten().numpy()
    nodes = np.sort(rng.choice(trained, count, replace=False))
    if kind == "nodes":
        return uw.Request(nodes=nodes.tolist())
    found = set()
    view = GraphView.of(data)
    for node in rng.permutation(trained):
        _, _, others = view.edges_at(torch.tensor([int(node)]), into=True)
        if others.numel():
            other = int(others[rng.integers(others.numel())])
            found.add((min(int(node), other), max(int(node), other)))
        if len(found) == count:
            break
    return uw.Request(edges=sorted(found))


def forget(folder: Path, run: Path, kind: str, count: int, memory_mib: float, defer: bool, retrain: bool) -> Document:
    """Carry out one request; where asked for, beside retraining."""
    start = perf_counter()
    data = uw.load_folder(folder)
    before = uw.Run.open(run, data=data)
    request, opened = request_for(data, kind, count), perf_counter() - start
    start, read = perf_counter(), read_bytes()
    how: dict[str, Any] = {"defer": True} if defer else {"memory_mib": memory_mib}
    after = before.forget(request, **how)
    seconds, receipt = perf_counter() - start, after.receipts[-1]
    found: Document = {
        "opened": opened,
        "forgot": seconds,
        "request_read_bytes": read_bytes() - read,
        "passes": receipt.passes,
        "region": receipt.region["nodes"],
        "rows": receipt.details.get("in_blocks", {}).get("rows")
        or {key: receipt.region[key] for key in ("rows", "rows_recomputed", "halo_nodes") if key in receipt.region},
        "grade": receipt.grade,
        "anonymous_mib": status("RssAnon"),
    }
    if retrain:
        start = perf_counter()
        again = before.forget(request, "retrain", memory_mib=memory_mib)
        found["retrained"] = perf_counter() - start
        seen = torch.stack([data[key] for key in ("val_mask", "test_mask")]).any(dim=0)
        graph = again.state.graph
        left = {
            name: log_probabilities(each.model, graph, call, memory_mib=memory_mib)
            for name, each in (("retrain", again), ("forget", after), ("none", before))
        }
        gaps = {name: gap(left["retrain"], left[name], seen) for name in ("forget", "none")}
        found |= {"gaps": gaps, "gap_closed": closed(gaps["forget"], gaps["none"])}
    return found


def measured(folder: Path, run: Path, given: argparse.Namespace, note: Callable[[str, Document], None]) -> None:
    """Every phase on a graph that is there."""
    size = (given.model, given.hidden, given.memory_mib)
    note("open", alone(opening, folder))
    if given.model != "gcn":
        note("propagate", alone(propagate, folder, *size))
    note("train", alone(train, folder, run, *size))
    for defer in (True, False):
        for kind in ("nodes", "edges"):
            for count in (1, given.requests):
                phase = f"{'defer' if defer else 'forget'} {count} {kind}"
                again = given.retrain and not defer and count > 1
                note(phase, alone(forget, folder, run, kind, count, given.memory_mib, defer, again))


def main() -> None:
    """Measure a graph of one size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--edges", type=int, required=True, help="stored edges, two for each pair")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--training", type=float, default=0.03, help="share of training nodes; as many are held out")
    parser.add_argument("--model", choices=MODELS, default="sign")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--memory-mib", type=float, default=1024.0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS / "large" / "cells.jsonl")
    parser.add_argument("--retrain", action="store_true")
    parser.add_argument("--threads", type=lambda text: tuple(map(int, text.split(","))), default=())
    parser.add_argument("--plan", action="store_true", help="only what is foretold")
    parser.add_argument("--keep", action="store_true", help="leave the graph where it is")
    given = parser.parse_args()
    asked = {"nodes": given.nodes, "stored_edges": given.edges, "features": given.features, "classes": given.classes}
    folder, run = given.work / f"{given.nodes}-{given.edges}", given.work / f"run-{given.nodes}-{given.model}"
    cell = {**asked, "training": given.training, "model": given.model, "hidden": given.hidden}
    cell |= {"memory_mib": given.memory_mib, "cores": len(os.sched_getaffinity(0)), "emptied": True, **made("cpu")}

    def note(phase: str, found: Document) -> None:
        append(given.out, {**cell, "phase": phase, **found})
        print(phase, json.dumps(found), flush=True)

    size = (given.model, given.hidden, given.memory_mib)
    note("plan", alone(planned, asked, given.training, *size))
    if given.plan:
        return
    if not (folder / "graph.json").exists():
        note("generate", alone(generate, folder, {**asked, "training": given.training}))
    for threads in given.threads:
        shutil.rmtree(folder / "propagated", ignore_errors=True)
        note(f"open on {threads} threads", alone(opening, folder, threads=threads))
        note(f"propagate on {threads} threads", alone(propagate, folder, *size, threads=threads))
    if not given.threads:
        measured(folder, run, given, note)
    if not given.keep:
        shutil.rmtree(folder)
        shutil.rmtree(run, ignore_errors=True)
    if given.out.parent == RESULTS / "large":
        PAGE.write(given.out.parent)


if __name__ == "__main__":
    main()
