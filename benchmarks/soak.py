"""A thousand small requests one after another on the embedded graph: does anything grow, break or drift?

Usage: python benchmarks/soak.py [--way forgettable] [--refresh 0] [--requests 1000]

Every receipt is verified against its neighbours, its model and its graph. Every 50 requests a model is retrained from
scratch on what remains, with the seed of the first training: the gap to it is the drift. ``--refresh N`` computes the
prepared state anew after N requests; without it the curvature of the first day serves to the end. The page and its
figure are made from the result files alone (``page.py``).
"""

import gc
import json
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import torch
from pages.soak import PAGE
from shared import Document, Gap, arguments, made, resident_mib, trained, write
from torch_geometric.data import Data

import unweave as uw
from unweave._core.digest import tensor_digest
from unweave.experiments.paper.results import rounded
from unweave.models import build

LARGER = "edges:0.05"
"""Now and then, to see how the prepared state has aged."""

SHARES = {"edges": 0.70, "features": 0.15, "labels": 0.10, "nodes": 0.05}
"""Of the requests: one edge, up to three features of a node, one label, one node. A thousand leave most of it."""


def one_request(data: Data, rng: np.random.Generator) -> uw.Request:
    """The next request, drawn from what the graph still has."""
    kind = rng.choice(list(SHARES), p=list(SHARES.values()))
    train = data.train_mask.nonzero().flatten()
    if kind == "edges":
        u, v = data.edge_index[:, rng.integers(data.edge_index.size(1))].tolist()
        return uw.Request(edges=[(u, v)])
    if kind == "features":
        train = train[data.x[train].any(dim=1)]
        node = int(train[rng.integers(train.numel())])
        columns = data.x[node].nonzero().flatten().tolist()
        return uw.Request(features={node: rng.choice(columns, min(3, len(columns)), replace=False).tolist()})
    node = int(train[rng.integers(train.numel())])
    return uw.Request(nodes=[node]) if kind == "nodes" else uw.Request(labels=[node])


def faults(before: uw.Run, after: uw.Run) -> list[str]:
    """What the receipt of the last request says that is not so."""
    receipt = after.receipts[-1]
    again = uw.Receipt.from_json(receipt.to_json())
    left, objective = receipt.residual_influence, receipt.objective
    claims = {
        "its JSON is not what it is": again.to_json() == receipt.to_json(),
        "the digest of the request is another": uw.Request.from_dict(receipt.asked).digest == receipt.request_digest,
        "it does not start where the last one ended": receipt.parameters["digest_before"]
        == tensor_digest(before.model.named_parameters()),
        "it does not end at the model": receipt.parameters["digest_after"]
        == tensor_digest(after.model.named_parameters()),
        "the graph has other edges": receipt.graph["stored_edges_after"] == after.data.edge_index.size(1),
        "the graph has other training nodes": receipt.graph["training_nodes_after"] == int(after.data.train_mask.sum()),
        "it left no problem smaller, and does not warn": left is None
        or left < 1
        or bool(receipt.warnings)
        or (restarted(receipt) and objective["remaining_after"] < objective["remaining_before"]),
    }
    return [what for what, holds in claims.items() if not holds]


def restarted(receipt: uw.Receipt) -> bool:
    """Whether the prepared state was used: then L' was minimised, and Q, of which the residual speaks, was not."""
    return receipt.details.get("objective") == "L'"


def live_tensors() -> int:
    """Tensors that are alive."""
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@dataclass
class Soak:
    """The state of a soak, and what it has seen.

    Attributes:
        run: The run as it is now.
        first: The model as it was trained, untouched since.
        gone: Deleted nodes.
        requests: Passes, residual and age of the curvature of each request, in order.
        faults: Receipts that do not verify.
        refused: Requests that raised; nothing was changed by them.
        checks: Every so many requests: the gap to a retrained model, memory, tensors alive.
    """

    run: uw.Run
    first: torch.nn.Module
    gone: list[int] = field(default_factory=list)
    requests: list[Document] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    checks: list[Document] = field(default_factory=list)

    def forget(self, request: uw.Request) -> None:
        """One request."""
        number = len(self.requests) + len(self.refused) + 1
        try:
            after = self.run.forget(request)
        except uw.UnweaveError as error:
            self.refused.append(f"request {number}, {request.describe()}: {error}")
            return
        receipt = after.receipts[-1]
        self.faults += [f"request {number}, {request.describe()}: {fault}" for fault in faults(self.run, after)]
        state = after.prepared
        self.requests.append(
            {
                "passes": receipt.passes,
                "evaluations": receipt.details.get("evaluations"),
                "residual": receipt.residual_influence,
                "warned": bool(receipt.warnings),
                "restarted": restarted(receipt),
                "objective": receipt.objective["remaining_after"] - receipt.objective["remaining_before"],
                "stationarity": None if state is None else state.stationarity,
            }
        )
        self.gone += request.nodes
        self.run = after

    def refresh(self) -> None:
        """Compute the prepared state anew."""
        run = self.run
        self.run = run.replace(prepared=uw.prepare(run.model, run.data, weight_decay=run.recipe.weight_decay))

    def check(self, *, retrain: bool = True) -> None:
        """Measure the drift and the memory."""
        run, done = self.run, len(self.requests) + len(self.refused)
        found: Document = {"requests": done, "resident_mib": resident_mib(), "tensors": live_tensors()}
        if retrain:
            found |= self._drift() | self._ageing()
        found |= {"test_f1": run.metrics.get("test_f1"), "stored_edges": run.data.edge_index.size(1)}
        self.checks.append(found)

    def _ageing(self) -> Document:
        """What four gradients gain of a larger request with the curvature as it has become, and with a new one.

        As shares of what thirty gain with the new one. Nothing of it is kept.
        """
        run, request = self.run, uw.draw(LARGER, self.run.data, seed=len(self.requests))
        decay = run.recipe.weight_decay
        fresh = uw.prepare(run.model, run.data, weight_decay=decay)
        if run.prepared is None or not (run.prepared.at_minimum and fresh.at_minimum):
            return {}

        def gained(state: uw.Prepared, steps: int) -> float:
            options: Document = {"weight_decay": decay, "prepared": state, "steps": steps}
            found = uw.unlearn(run.model, run.data, request, **options).receipt.objective
            return float(found["remaining_before"] - found["remaining_after"])

        all_of_it = gained(fresh, 30)
        return {
            "age": run.prepared.age,
            "aged": gained(run.prepared, 3) / all_of_it,
            "fresh": gained(fresh, 3) / all_of_it,
        }

    def _drift(self) -> Document:
        run = self.run
        name = type(run.model).__name__.lower()
        model = build(name, run.data.num_features, int(run.data.num_classes)).to(run.data.x.device)
        retrained = uw.train(model, run.data, **asdict(run.recipe))
        kept = torch.ones(int(run.data.num_nodes), dtype=torch.bool, device=run.data.x.device)
        kept[self.gone] = False
        gap = Gap(retrained.model, run.data, self.first, kept)
        return {
            "gap": gap.of(run.model),
            "gap_none": gap.none,
            "gap_closed": gap.closed(run.model),
            "retrained_test_f1": retrained.metrics["test_f1"],
        }


def start(way: str, data: Data, *, model: str = "gcn", **options: Any) -> Soak:
    """Train a model, ordinary or forgettable, and prepare it."""
    run = trained(model, data, way, **options)
    soak = Soak(run, run.model)
    soak.refresh()
    return soak


def soak(way: str, *, requests: int, every: int, refresh: int, seed: int, device: str) -> Document:
    """Carry out the requests; returns the result document."""
    rng = np.random.default_rng([seed, 7])
    found = start(way, uw.load("demo", seed=seed).to(torch.device(device)), seed=seed)
    found.check(retrain=False)
    for done in range(1, requests + 1):
        found.forget(one_request(found.run.data, rng))
        if refresh and done % refresh == 0:
            found.refresh()
        if done % every == 0:
            found.check()
            last = found.checks[-1]
            print(
                f"{done} requests: gap {last['gap']:.2e} (untouched {last['gap_none']:.2e}), closed "
                f"{last['gap_closed']:.4f}, {fmean(r['passes'] for r in found.requests[-every:]):.1f} passes, "
                f"{last['resident_mib']:.0f} MiB, {last['tensors']} tensors, {len(found.faults)} faults, "
                f"{len(found.refused)} refused",
                flush=True,
            )
    config = {"way": way, "requests": requests, "every": every, "refresh": refresh, "seed": seed, "device": device}
    given = [f"--{key} {value}" for key, value in config.items() if value != DEFAULTS[key]]
    return {
        "config": config,
        **made(device),
        "command": " ".join(["python benchmarks/soak.py", *given]),
        "faults": found.faults,
        "refused": found.refused,
        "checks": [{key: rounded(value) for key, value in check.items()} for check in found.checks],
        "requests": {key: [rounded(r[key]) for r in found.requests] for key in found.requests[0]},
    }


DEFAULTS = {"way": "forgettable", "requests": 1000, "every": 50, "refresh": 0, "seed": 0, "device": "cpu"}


def main() -> None:
    """Run a soak and make the page."""
    asked = vars(arguments(__doc__, "soak", **DEFAULTS).parse_args())
    out = asked.pop("out")
    name = asked["way"] + (f"-refresh-{asked['refresh']}" if asked["refresh"] else "")
    write(out / f"{name}.json", _compact(soak(**asked)))
    PAGE.write(out)


def _compact(document: Document) -> str:
    """Indented, but the columns of the requests on one line each."""
    columns = {key: json.dumps(values, allow_nan=False) for key, values in document["requests"].items()}
    text = json.dumps(document | {"requests": {key: f"@{key}@" for key in columns}}, indent=1, allow_nan=False)
    for key, line in columns.items():
        text = text.replace(f'"@{key}@"', line)
    return text + "\n"


if __name__ == "__main__":
    main()
