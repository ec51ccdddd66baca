"""ScaleGUN (Yi & Wei, ICLR'25) and ours beside it: the same graph, edges to remove, linear model and machine.

Usage: python benchmarks/scalegun.py --code /path/to/ScaleGUN --library /path/to/library.so --work /data/scalegun

Both train one-vs-rest logistic regression on P²X, X with rows of length 1, without noise, and forget batches of edges,
one after the other. ScaleGUN is run as its authors publish it (https://github.com/luyi256/ScaleGUN): its C++ keeps P²X
up to date within ``rmax``, and its own functions take the Newton step. It is neither held nor built here: ``--library``
is its propagation, with two functions of C for its graph and for taking edges from that (:class:`Theirs` calls them).
After each batch the minimum on the remaining graph is found in double precision: how far each model is from it is what
is compared, and processor seconds, so that other work on the machine does not count. A line is added to
``results/large/scalegun.jsonl`` after every batch.
"""

import argparse
import ctypes
import importlib
import json
import sys
import types
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from generated import hard
from scipy.sparse import coo_matrix
from shared import RESULTS, Document, append, made
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave.objective.losses import binary_cross_entropy
from unweave.objective.parameters import flatten

Array = np.ndarray[Any, Any]

LAYERS, RMAX, DECAY = 3, 1e-7, 1e-4
"""X, PX, P²X; the precision that the authors' README has for small graphs; a decay that is small enough for F1."""


class Theirs:
    """ScaleGUN's propagation of a graph, and its functions for linear models.

    Attributes:
        seconds: Of the first propagation.
        x: P²X as it keeps it.
    """

    def __init__(self, code: Path, library: Path, work: Path, data: Data) -> None:
        self._engine = ctypes.CDLL(str(library))
        self._engine.begin.restype, self._engine.without.restype = ctypes.c_void_p, ctypes.c_double
        sys.path.insert(0, str(code))
        sys.modules.setdefault("sklearn", types.ModuleType("sklearn")).preprocessing = None  # type: ignore[attr-defined]
        self.linear = importlib.import_module("linear_unlearn_utils")
        self.x = np.ascontiguousarray(unit(data), np.float64)
        self._shape = [ctypes.c_long(n) for n in self.x.shape]
        self.rmax = RMAX * float(np.abs(self.x).sum(0).mean())
        loops = np.arange(len(self.x))
        edges = np.ascontiguousarray(np.c_[data.edge_index.numpy(), [loops, loops]], np.int32)
        (work / "g").mkdir(exist_ok=True)
        (work / "g" / "g.attr").write_text(f"{len(self.x)} {edges.shape[1]} {self.x.shape[1]}")
        seconds = ctypes.c_double()
        ends = edges.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(edges.shape[1])
        how = ctypes.c_uint(LAYERS), ctypes.c_uint(torch.get_num_threads()), ctypes.c_double(self.rmax)
        where = f"{work}/".encode(), b"g"
        begin = self._engine.begin(*where, self._rows, *self._shape, *ends, *how, ctypes.byref(seconds))
        self._graph, self.seconds = ctypes.c_void_p(begin), seconds.value

    @property
    def _rows(self) -> Any:
        return self.x.ctypes.data_as(ctypes.c_void_p)

    def without(self, pairs: Array) -> None:
        """Take edges from the graph."""
        pairs = np.ascontiguousarray(pairs, np.uint32)
        given = pairs.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(len(pairs))
        how = ctypes.c_uint(torch.get_num_threads()), ctypes.c_double(self.rmax)
        self._engine.without(self._graph, *given, self._rows, *self._shape, *how)

    def step(self, w: Tensor, before: Tensor, after: Tensor, signs: Tensor) -> Tensor:
        """Its Newton step of all classes, from the rows of training nodes before and after."""
        new = w.clone()
        for k in range(signs.size(1)):
            inverse = self.linear.lr_hessian_inv(w[:, k], after, signs[:, k], DECAY)
            slopes = [self.linear.lr_grad(w[:, k], rows, signs[:, k], DECAY) for rows in (before, after)]
            new[:, k] += inverse.mv(slopes[0] - slopes[1])
        return new


def unit(data: Data) -> Array:
    """Features with rows of length 1."""
    x: Array = torch.nn.functional.normalize(data.x.double(), dim=-1).numpy()
    return x


def exact(data: Data, gone: Array) -> Tensor:
    """P²X of the graph without some edges, in double precision."""
    size, (source, target) = data.num_nodes, data.edge_index.numpy()
    dropped = np.r_[gone[:, 0] * size + gone[:, 1], gone[:, 1] * size + gone[:, 0]]
    kept = ~np.isin(source.astype(np.int64) * size + target, dropped)
    loops = np.arange(size)
    ends = np.r_[target[kept], loops], np.r_[source[kept], loops]
    scale = np.bincount(ends[0], minlength=size) ** -0.5
    matrix = coo_matrix((scale[ends[0]] * scale[ends[1]], ends), (size, size)).tocsr()
    return torch.from_numpy(matrix @ (matrix @ unit(data)))


def minimum(x: Tensor, signs: Tensor, start: Tensor) -> Tensor:
    """The minimiser of each class's mean logistic loss with decay, by Newton's method in double precision."""
    w, eye = start.double().clone(), torch.eye(x.size(1), dtype=torch.float64)
    for k in range(signs.size(1)):
        y = signs[:, k].double()
        for _ in range(50):
            z = torch.sigmoid(y * (x @ w[:, k]))
            slope = x.t() @ ((z - 1) * y) / len(x) + DECAY * w[:, k]
            if float(slope.norm()) < 1e-12:
                break
            w[:, k] -= torch.linalg.solve(x.t() @ ((z * (1 - z))[:, None] * x) / len(x) + DECAY * eye, slope)
    return w


def pairs_of(data: Data, count: int) -> Array:
    """Edges to remove, each once, at random."""
    ends = data.edge_index.numpy()
    ends = ends[:, ends[0] < ends[1]]
    chosen = np.random.default_rng(0).choice(ends.shape[1], count, replace=False)
    pairs: Array = ends[:, chosen].T
    return pairs


def compare(name: str, data: Data, batches: int, size: int, given: argparse.Namespace, cell: Document) -> None:
    """Remove batches of edges by either."""
    pairs, train, test = pairs_of(data, batches * size), data.train_mask, data.test_mask
    signs = torch.nn.functional.one_hot(data.y[train], data.num_classes).float() * 2 - 1
    first = exact(data, pairs[:0])
    before = minimum(first[train], signs, torch.zeros(first.size(1), signs.size(1)))

    folder = given.work / name
    own = Data(x=data.x, edge_index=data.edge_index, train_mask=train, val_mask=data.val_mask, test_mask=test)
    own.y = torch.nn.functional.one_hot(data.y, data.num_classes).float()
    graph = uw.load_folder(folder if folder.exists() else uw.save_folder(own, folder))
    how: dict[str, Any] = {"memory_mib": 1024.0}
    start = process_time()
    model = uw.models.SGC(data.x.size(1), signs.size(1), unit=True)
    run = uw.train(model, graph, loss=binary_cross_entropy, weight_decay=DECAY, forgettable=True, **how)
    ours = {"restart": run, "deferred": run}
    trained = process_time() - start

    theirs = Theirs(given.code, given.library, given.work, data)
    rows, w = torch.from_numpy(theirs.x).float()[train], before.float()
    cell = {**cell, "graph": name, "nodes": data.num_nodes, "stored_edges": data.num_edges, "batch": size}
    told = {"first propagation, theirs": theirs.seconds, "first training, ours": trained}
    print(name, json.dumps(told), flush=True)

    def note(who: str, seconds: float, found: Tensor, **more: Any) -> None:
        far, nothing = (float((other.double() - wanted).norm() / wanted.norm()) for other in (found, before))
        right = float(((here[test] @ found.double()).argmax(1) == data.y[test]).double().mean())
        line = {"number": batch, "who": who, "seconds": seconds, "distance": far, "f1": right}
        append(given.out, {**cell, **line, "distance_of_nothing": nothing, **told, **more})
        print(name, who, json.dumps(line), flush=True)

    here, wanted, batch = first, before, 0
    for batch in range(batches):
        some = pairs[batch * size : (batch + 1) * size]
        here = exact(data, pairs[: (batch + 1) * size])
        wanted = minimum(here[train], signs, wanted)
        start = process_time()
        theirs.without(some)
        taken = process_time() - start
        changed = torch.from_numpy(theirs.x).float()[train]
        w, rows = theirs.step(w, rows, changed, signs), changed
        spent = process_time() - start
        wrong = float((torch.from_numpy(theirs.x) - here).abs().max())
        note("ScaleGUN", spent, w, rows_off=wrong, update_seconds=taken)
        request = uw.Request(edges=sorted((int(u), int(v)) for u, v in some))
        for way, last in list(ours.items()):
            start = process_time()
            after = ours[way] = last.forget(request, **({"defer": True} if way == "deferred" else how))
            spent = process_time() - start
            note(f"ours, {way}", spent, flatten(after.model).detach().reshape(signs.size(1), -1).t())


def main() -> None:
    """Measure both on Cora and on a graph with hubs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, required=True, help="a checkout of ScaleGUN")
    parser.add_argument("--library", type=Path, required=True, help="its propagation as a shared library")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=100_000, help="of the generated graph")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "large" / "scalegun.jsonl")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    cell = made("cpu") | {"cores": torch.get_num_threads()}
    compare("cora", uw.load("cora", seed=0), given.batches, 50, given, cell)
    compare(f"hubs-{given.nodes}", hard(given.nodes, hubs=True), given.batches, 1000, given, cell)


if __name__ == "__main__":
    main()
