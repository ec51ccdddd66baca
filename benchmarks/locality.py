"""Deferred requests: their time for one edge as the graph grows, and how much of the gap to retraining they close.

    python benchmarks/locality.py 10000 100000 1000000
    python benchmarks/locality.py quality

Times: random graphs of average degree 10 with 16 features, a GCN of two layers, one thread. The model is not trained:
how good the answer is does not matter here.
Quality: a forgettable GCN on the embedded graph, single nodes and single edges, three seeds.
"""

import statistics
import sys
import time

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected
from unweave.metrics import gap, log_probabilities

import unweave as uw

REQUESTS = 21


def graph(nodes: int, *, degree: int = 10, features: int = 16, classes: int = 4) -> Data:
    """A random graph whose features follow the class."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (nodes,), generator=generator)
    x = torch.randn(nodes, features, generator=generator)
    x[torch.arange(nodes), y] += 1
    pairs = torch.randint(nodes, (2, nodes * degree // 2), generator=generator)
    train = torch.rand(nodes, generator=generator) < 0.9
    edges = to_undirected(pairs[:, pairs[0] != pairs[1]], num_nodes=nodes)
    return Data(x=x, edge_index=edges, y=y, train_mask=train, test_mask=~train)


def quality() -> None:
    """Print the mean and the least gap closed by requests that are deferred and that are not."""
    found: dict[str, list[float]] = {}
    for seed in range(3):
        data = uw.load("demo", seed=seed)
        model = uw.models.GCN(data.num_features, data.num_classes)
        run = uw.train(model, data, seed=seed, weight_decay=1e-2, forgettable=True)
        generator = torch.Generator().manual_seed(10 + seed)
        trained, everyone = data.train_mask.nonzero().flatten(), torch.ones(data.num_nodes, dtype=torch.bool)
        nodes = trained[torch.randint(trained.numel(), (4,), generator=generator)].tolist()
        edges = data.edge_index[:, torch.randint(data.num_edges, (4,), generator=generator)].t().tolist()
        requests = [("node", uw.Request(nodes=[node])) for node in nodes]
        requests += [("edge", uw.Request(edges=[(u, v)])) for u, v in edges]
        for kind, request in requests:
            reference = run.forget(request, "retrain")
            target = log_probabilities(reference.model, reference.data)
            nothing = gap(target, log_probabilities(run.model, reference.data), everyone)
            for defer in (False, True):
                after = run.forget(request, defer=defer)
                left = gap(target, log_probabilities(after.model, reference.data), everyone)
                found.setdefault(f"{kind}, {'deferred' if defer else 'gif'}", []).append(1 - left / nothing)
    for name, shares in found.items():
        print(f"{name:<16} gap closed {statistics.mean(shares):.2f} on average, {min(shares):.2f} at least")


def main() -> None:
    """Print one line a size."""
    torch.set_num_threads(1)
    if sys.argv[1:] == ["quality"]:
        quality()
        return
    for nodes in map(int, sys.argv[1:] or ["10000", "100000"]):
        data = graph(nodes)
        torch.manual_seed(0)
        model = uw.models.GCN(16, 4)
        start = time.perf_counter()
        ready = uw.prepare(model, data, weight_decay=1e-3, rank=4)
        prepared = time.perf_counter() - start
        run = uw.Run(model, data, weight_decay=1e-3, prepared=ready)
        spent, epoch = [], []
        for number in range(REQUESTS):
            u, v = data.edge_index[:, (number + 1) * data.num_edges // (REQUESTS + 1)].tolist()
            start = time.perf_counter()
            run = run.forget(uw.Request(edges=[(u, v)]), defer=True)
            spent.append(time.perf_counter() - start)
        halo = statistics.median(receipt.region["halo_nodes"] for receipt in run.receipts)
        for _ in range(3):
            start = time.perf_counter()
            loss = torch.nn.functional.cross_entropy(model(data.x, data.edge_index), data.y)
            torch.autograd.grad(loss, list(model.parameters()))
            epoch.append(time.perf_counter() - start)
        print(
            f"{nodes:>9,} nodes: request {1e3 * statistics.median(spent):.0f} ms "
            f"(least {1e3 * min(spent):.0f}, halo {halo:,.0f} nodes), one epoch {1e3 * min(epoch):.0f} ms, "
            f"prepared in {prepared:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
