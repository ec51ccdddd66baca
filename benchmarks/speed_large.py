"""The measurements behind the table of targets on generated graphs: one edge as a graph grows, and two large graphs."""

import gc
import json
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from generated import planted
from shared import Document, Gap, resident_mib
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import Meter, peak_memory

DECAY = 1e-4
DEFERRED: dict[str, Any] = {"defer": True}
EPOCHS = 100
REPEATS = 5
THREADS = 2


class Deep(nn.Module):
    """A user's network: graph convolutions of one width, with the layer that the built-in GCN is made of."""

    def __init__(self, features: int, classes: int, *, width: int, layers: int) -> None:
        super().__init__()
        layer = type(uw.models.GCN(1, 1).conv1)
        sizes = [features, *[width] * (layers - 1), classes]
        self.layers = nn.ModuleList(layer(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        for layer in self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return self.layers[-1](x, edge_index)  # type: ignore[no-any-return]


def _some_edges(data: Data, count: int, seed: int) -> uw.Request:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(data.edge_index.size(1), (2 * count + 100,), generator=generator)
    pairs = {(min(u, v), max(u, v)) for u, v in data.edge_index[:, chosen.to(data.edge_index.device)].t().tolist()}
    return uw.Request(edges=sorted(pairs)[:count])


def edge(cell: str, device: str) -> Document:
    """One edge on a graph of so many nodes: deferred, and checked on the whole graph, beside the training."""
    nodes, meter = int(cell), Meter(torch.device(device))
    data = planted(nodes, 10 * nodes, features=64, classes=10, device=device)
    model = uw.models.GCN(64, 10).to(device)
    run = uw.train(model, data, epochs=EPOCHS, weight_decay=DECAY)
    ready = uw.prepare(model, data, weight_decay=DECAY)
    found: Document = {
        "nodes": nodes,
        "stored_edges": data.edge_index.size(1),
        "train_seconds": run.metrics["train_seconds"],
        "epochs": EPOCHS,
        "prepare_seconds": ready.seconds,
    }
    for name, options in (("deferred", DEFERRED), ("whole", {})):
        seconds, passes = [], 0.0
        try:
            for number in range(REPEATS + 1):
                request = _some_edges(data, 1, number)
                start = meter.now()
                done = uw.unlearn(model, data, request, weight_decay=DECAY, prepared=ready, **options)
                seconds.append(meter.now() - start)
                passes = done.receipt.passes
        except uw.UnweaveError as error:
            found[name] = {"failure": str(error)}
        else:
            found[name] = {"seconds": median(seconds[1:]), "passes": passes}
    return found


def products(cell: str, device: str) -> Document:
    """1,000 edges of a graph of the size of ogbn-products, with a network of three layers of 256."""
    nodes, stored = (int(float(part)) for part in cell.split())
    where = torch.device(device)
    data = planted(nodes, stored, features=100, classes=47, device=device)
    model = Deep(100, 47, width=256, layers=3).to(where)
    with peak_memory(where) as train_peak:
        run = uw.train(model, data, epochs=EPOCHS, weight_decay=DECAY)
    with peak_memory(where) as prepare_peak:
        ready = uw.prepare(model, data, weight_decay=DECAY)
    request, meter = _some_edges(data, 1000, 0), Meter(where)

    def forget(method: str = "gif", **options: Any) -> tuple[uw.Unlearned, float]:
        gc.collect()
        start = meter.now()
        done = uw.unlearn(model, data, request, method, weight_decay=DECAY, recipe=run.recipe, **options)
        return done, meter.now() - start

    reference, _ = forget("retrain")
    retrain = reference.receipt.seconds["forget"]
    gap = Gap(reference.model, reference.data, model)
    found: Document = {
        "nodes": nodes,
        "stored_edges": data.edge_index.size(1),
        "epochs": EPOCHS,
        "retrain_seconds": retrain,
        "train_gib": train_peak[0] / 1024,
        "prepare_seconds": ready.seconds,
        "prepare_gib": prepare_peak[0] / 1024,
        "test_f1": run.metrics["test_f1"],
    }
    for name, options in (("whole", {}), ("deferred", DEFERRED)):
        spent, peaks = [], []
        try:
            for _ in range(REPEATS + 1):
                done, seconds = forget(prepared=ready, **options)
                spent.append(seconds)
                peaks.append(done.receipt.peak_mib)
        except (uw.UnweaveError, torch.OutOfMemoryError) as error:
            found[name] = {"failure": str(error)}
            continue
        found[name] = {
            "seconds": median(spent[1:]),
            "cost": median(spent[1:]) / retrain,
            "passes": done.receipt.passes,
            "gib": max(peaks) / 1024,
            "gap_closed": gap.closed(done.model),
        }
    return found


def million(cell: str, device: str) -> Document:
    """Train, prepare and forget 1,000 edges in a process of its own, whose resident memory is watched from outside."""
    command = [sys.executable, str(Path(__file__)), *cell.split(), device]
    peak, start = 0.0, time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, resident_mib(process.pid) / 1024)
            time.sleep(0.02)
        output = process.stdout.read() if process.stdout else ""
    peak = max(peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20)  # what fell between two looks
    if process.returncode:
        return {"failure": f"the process ended with {process.returncode}", "peak_gib": peak}
    steps = json.loads(output.splitlines()[-1])
    return {"peak_gib": peak, "seconds": time.perf_counter() - start, "threads": THREADS, **steps}


def _million(nodes: int, stored: int, device: str) -> Document:
    """What the process of :func:`million` does."""
    torch.set_num_threads(THREADS)
    data = planted(nodes, stored, features=128, classes=10, device=device)
    model = uw.models.GCN(128, 10).to(device)
    run = uw.train(model, data, epochs=EPOCHS, weight_decay=DECAY)
    ready = uw.prepare(model, data, weight_decay=DECAY)
    request = _some_edges(data, 1000, 0)
    done = uw.unlearn(model, data, request, weight_decay=DECAY, prepared=ready, recipe=run.recipe)
    return {
        "nodes": nodes,
        "stored_edges": data.edge_index.size(1),
        "epochs": EPOCHS,
        "train_seconds": run.metrics["train_seconds"],
        "prepare_of_training": ready.seconds / run.metrics["train_seconds"],
        "request_of_training": done.receipt.seconds["total"] / run.metrics["train_seconds"],
        "passes": done.receipt.passes,
        "residual": done.receipt.residual_influence,
        "test_f1": run.metrics["test_f1"],
    }


if __name__ == "__main__":
    print(json.dumps(_million(int(float(sys.argv[1])), int(float(sys.argv[2])), sys.argv[3])))
