"""The measurements behind the table of targets on the real graphs: passes, and the cost of 5 % of the edges.

A measurement is a set of cells; each is a function of a cell's name that returns what is written for it.
"""

from functools import lru_cache
from typing import Any

import torch
from pages.speed import ENOUGH
from shared import DECAYS, Document, Gap, trained
from torch_geometric.data import Data

import unweave as uw
from unweave.experiments.bench import bench
from unweave.graph.removal import remove

DATA = ("cora", "citeseer", "pubmed", "cs")
MODELS = ("gcn", "sgc", "gat", "gin")
FORGET = "edges:0.05"
SEEDS = 3
STEPS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 15, 20, 30)
CONVERGED = {"steps": 1, "tolerance": 1e-5, "iterations": 200}
"""The influence step alone, solved until more products would change nothing."""


@lru_cache(maxsize=SEEDS)
def graph_of(data: str, seed: int, device: str) -> Data:
    """A graph on its device; reading CS takes longer than forgetting a part of it."""
    return uw.load(data, seed=seed).to(torch.device(device))


class Case:
    """A trained model, a request, and the retrained model it is to come near to."""

    def __init__(self, way: str, model: str, data: str, seed: int, device: str) -> None:
        graph = graph_of(data, seed, device)
        self.run = trained(model, graph, way, seed=seed)
        self.request = uw.draw(FORGET, graph, seed=seed)
        self.ready = uw.prepare(self.run.model, graph, weight_decay=DECAYS[way])
        self.reference = self.forget("retrain")
        kept = torch.ones(int(graph.num_nodes), dtype=torch.bool, device=graph.x.device)
        kept[remove(graph, self.request).nodes] = False
        self.gap = Gap(self.reference.model, self.reference.data, self.run.model, kept)

    def forget(self, method: str = "gif", **options: Any) -> uw.Unlearned:
        """The request by a method."""
        run = self.run
        return uw.unlearn(
            run.model,
            run.data,
            self.request,
            method,
            weight_decay=run.recipe.weight_decay,
            recipe=run.recipe,
            allow_class_loss=True,
            **options,
        )

    def outcome(self, **options: Any) -> Document:
        """Passes and gap closed of ``gif``, or why it failed."""
        try:
            done = self.forget(**options)
        except uw.UnweaveError as error:
            return {"failure": str(error)}
        return {"passes": done.receipt.passes, "gap_closed": self.gap.closed(done.model)}


def ordinary(cell: str, device: str) -> Document:
    """Passes of a prepared request on an ordinary model, and its gap closed beside that of the converged step."""
    model, data = cell.split()
    seeds = []
    for seed in range(SEEDS):
        case = Case("ordinary", model, data, seed, device)
        converged = case.outcome(**CONVERGED)
        seeds.append({"prepared": case.outcome(prepared=case.ready), "converged": converged})
    return {"seeds": seeds}


def forgettable(cell: str, device: str) -> Document:
    """Passes of a prepared request on a forgettable model, step by step, until enough of the gap is closed."""
    model, data = cell.split()
    seeds = []
    for seed in range(SEEDS):
        case = Case("forgettable", model, data, seed, device)
        path: list[Document] = []
        for steps in STEPS:
            path.append({"steps": steps, **case.outcome(prepared=case.ready, steps=steps)})
            if (path[-1].get("gap_closed") or 0.0) >= ENOUGH:
                break
        seeds.append({"path": path, "retrain_passes": case.reference.receipt.passes})
    return {"seeds": seeds}


def request(cell: str, device: str) -> Document:
    """Time, passes, memory and gap closed of 5 % of the edges, in turns with retraining and the published procedure."""
    way, model, data = cell.split()
    found = bench(
        lambda seed: graph_of(data, seed, device),
        model,
        FORGET,
        weight_decay=DECAYS[way],
        forgettable=way == "forgettable",
        device=device,
    ).to_dict()
    for row in found["rows"]:
        row["rounds"] = len(row["rounds"])
    return {key: found[key] for key in ("machine", "once", "rows")} | {"scale": found["config"]["published_scale"]}
