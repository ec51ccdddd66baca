"""How much of the gap to retraining deferred requests close; what they cost is measured by ``speed.py --only edge``.

    python benchmarks/locality.py

A forgettable GCN on the embedded graph, single nodes and single edges, three seeds.
"""

from statistics import fmean

import torch
from shared import Gap, trained

import unweave as uw


def main() -> None:
    """Print the mean and the least gap closed by requests that are deferred and that are not."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    for seed in range(3):
        data = uw.load("demo", seed=seed)
        run = trained("gcn", data, "forgettable", seed=seed)
        generator = torch.Generator().manual_seed(10 + seed)
        training = data.train_mask.nonzero().flatten()
        nodes = training[torch.randint(training.numel(), (4,), generator=generator)].tolist()
        edges = data.edge_index[:, torch.randint(data.num_edges, (4,), generator=generator)].t().tolist()
        requests = [("node", uw.Request(nodes=[node])) for node in nodes]
        requests += [("edge", uw.Request(edges=[(u, v)])) for u, v in edges]
        for kind, request in requests:
            retrained = run.forget(request, "retrain")
            gap = Gap(retrained.model, retrained.data, run.model)
            for defer in (False, True):
                closed = gap.closed(run.forget(request, defer=defer).model)
                assert closed is not None
                found.setdefault(f"{kind}, {'deferred' if defer else 'gif'}", []).append(closed)
    for name, shares in found.items():
        print(f"{name:<16} gap closed {fmean(shares):.2f} on average, {min(shares):.2f} at least")


if __name__ == "__main__":
    main()
