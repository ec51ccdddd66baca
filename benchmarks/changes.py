"""One change to a model that was trained as usual, or to a minimum: how near to one trained anew on the new graph?

    python benchmarks/changes.py --data cora --models gcn,sgc

Additions and corrections of several sizes, and beside each the deletion of the same nodes or edges. Each is answered
by ``gif`` from a prepared state, and compared with a model that is trained anew with the same seed.
"""

from dataclasses import asdict, dataclass

import torch
from pages.changes import PAGE
from shared import Document, append, arguments, lines, made, trained
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import unweave as uw
from unweave.graph.index import distinct_edges
from unweave.graph.removal import remove
from unweave.objective.scores import closed, gap, log_probabilities

KINDS = ("nodes added", "nodes deleted", "edges added", "edges deleted", "labels corrected", "features corrected")
SPLITS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class Cell:
    """One change to one model."""

    data: str
    model: str
    way: str
    kind: str
    share: float


def posed(cell: Cell) -> tuple[Data, uw.Change]:
    """The graph before, and what changes."""
    whole, generator = uw.load(cell.data, seed=0), torch.Generator().manual_seed(0)
    train = whole.train_mask.nonzero().flatten()
    some = train[torch.randperm(train.numel(), generator=generator)[: max(1, int(cell.share * train.numel()))]]
    kind, _, done = cell.kind.partition(" ")
    if kind == "edges":
        edges = distinct_edges(whole)
        chosen = edges[torch.randperm(edges.size(0), generator=generator)[: max(1, int(cell.share * edges.size(0)))]]
        request = uw.Request(edges=chosen.tolist())
        if done == "deleted":
            return whole, uw.Change(forget=request)
        return remove(whole, request).data, uw.Change(add={"edges": chosen.tolist()})
    if done == "deleted":
        return whole, uw.Change(forget=uw.Request(nodes=some.tolist()))
    if kind == "nodes":
        return _without(whole, some)
    wrong = whole.clone()
    if kind == "labels":
        shift = torch.randint(1, int(whole.num_classes), some.shape, generator=generator)
        wrong.y[some] = (wrong.y[some] + shift) % int(whole.num_classes)
        return wrong, uw.Change(correct={"labels": {int(n): int(whole.y[n]) for n in some}})
    wrong.x[some] = whole.x[some.roll(1)]
    return wrong, uw.Change(correct={"features": {int(n): whole.x[n] for n in some}})


def _without(whole: Data, some: torch.Tensor) -> tuple[Data, uw.Change]:
    """A graph in which some nodes are not there yet, and the change that adds them."""
    size = int(whole.num_nodes)
    here = torch.ones(size, dtype=torch.bool)
    here[some] = False
    order = torch.cat([here.nonzero().flatten(), some])
    place = torch.empty_like(order)
    place[order] = torch.arange(size)
    first, index = size - some.numel(), place[whole.edge_index]
    parts = {key: whole[key][order][:first] for key in ("x", "y", *SPLITS)}
    edges, _ = subgraph(torch.arange(first), index, num_nodes=size)
    came = index[:, (index.max(dim=0).values >= first) & (index[0] <= index[1])].t()
    nodes = [{"features": whole.x[n], "label": int(whole.y[n])} for n in some]
    start = Data(edge_index=edges, num_classes=int(whole.num_classes), **parts)
    return start, uw.Change(add={"nodes": nodes, "edges": came})


def measure(cell: Cell) -> Document:
    """What an update closes of the gap that doing nothing leaves."""
    start, change = posed(cell)
    run = trained(cell.model, start, cell.way)
    run = run if run.prepared is not None else run.prepare()
    after = run.update(change, "gif")
    anew = trained(cell.model, after.data, cell.way)
    alive = torch.ones(after.data.num_nodes, dtype=torch.bool)
    alive[list(change.forget.nodes) if change.forget is not None else []] = False
    logs = log_probabilities(anew.model, after.data)
    none, left = (gap(logs, log_probabilities(each.model, after.data), alive) for each in (run, after))
    receipt = after.receipts[-1]
    told = {"grade": receipt.grade, "passes": receipt.passes, "residual": receipt.residual_influence}
    return {**asdict(cell), "gap": none, "left": left, "closed": closed(left, none), **told}


def main() -> None:
    """Measure every change that is not measured yet."""
    torch.set_num_threads(1)
    parser = arguments(
        __doc__, "changes", data="cora", models=("gcn", "sgc"), ways=("ordinary", "forgettable"), shares=(0.01, 0.05)
    )
    asked = parser.parse_args()
    out = asked.out / f"{asked.data}.jsonl"
    cells = [
        Cell(asked.data, m, w, k, s) for m in asked.models for w in asked.ways for k in KINDS for s in asked.shares
    ]
    known = {Cell(**{key: d[key] for key in Cell.__dataclass_fields__}) for d in lines(out)}
    for cell in cells:
        if cell not in known:
            found = measure(cell)
            append(out, {**found, **made("cpu")})
            print(cell, found["gap"], found["closed"], found["grade"], flush=True)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()
