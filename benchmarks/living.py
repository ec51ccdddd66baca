"""A simulated year of a graph that lives: every day some nodes come, some data is corrected, some is deleted.

    python benchmarks/living.py --data cora --model gcn

The graph begins with a part of its nodes and with some features and labels that are wrong. Every day nodes that were
held out come with their edges, some of what is wrong is put right, and a node and an edge are deleted. The model that
was trained on the first day follows by one update a day. On some days it is compared with a model that is trained anew
on the graph of that day; and so are the model of the first day, and the one of the last weekly training.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from pages.living import PAGE
from shared import Document, arguments, made, write_document
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import unweave as uw
from unweave.graph.alteration import alter
from unweave.models import build
from unweave.objective.scores import gap, log_probabilities

WEEK = 7
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Task:
    """A year on one graph."""

    data: str
    model: str
    decay: float
    days: int
    arrivals: int
    every: int
    seed: int
    device: str


class World:
    """The whole graph, in order of arrival, and what is wrong in the beginning.

    Attributes:
        whole: Every node with its true features and labels.
        start: The graph of the first day.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.generator = torch.Generator().manual_seed(task.seed)
        data = uw.load(task.data, seed=0)
        size, late = int(data.num_nodes), task.days * task.arrivals
        order = torch.randperm(size, generator=self.generator)
        place = torch.empty_like(order)
        place[order] = torch.arange(size)
        self.whole = Data(
            x=data.x[order],
            edge_index=place[data.edge_index],
            y=data.y[order],
            num_classes=int(data.num_classes),
            **{f"{name}_mask": data[f"{name}_mask"][order] for name in SPLITS},
        )
        self.first = size - late
        here = torch.arange(self.first)
        parts = {key: self.whole[key][: self.first].clone() for key in ("x", "y", *(f"{s}_mask" for s in SPLITS))}
        edges, _ = subgraph(here, self.whole.edge_index, num_nodes=size)
        self.start = Data(edge_index=edges, num_classes=self.whole.num_classes, **parts)
        self._spoil()

    def _spoil(self) -> None:
        """Give nodes the features of others, and training nodes the wrong class: each is put right on some day."""
        rows = self._some(torch.arange(self.first), self.task.days)
        self.start.x[rows] = self.start.x[rows.roll(1)]
        labels = self._some(self.start.train_mask.nonzero().flatten(), self.task.days // 2)
        shift = torch.randint(1, self.whole.num_classes, labels.shape, generator=self.generator)
        self.start.y[labels] = (self.start.y[labels] + shift) % self.whole.num_classes
        self.rows, self.labels = rows.tolist(), labels.tolist()

    def _some(self, nodes: Tensor, count: int) -> Tensor:
        return nodes[torch.randperm(nodes.numel(), generator=self.generator)[:count]]

    def changes(self) -> Iterator[uw.Change]:
        """What happens on each day."""
        gone, graph = set[int](), self.start
        neighbours: dict[int, list[int]] = {}
        for u, v in self.whole.edge_index.t().tolist():
            neighbours.setdefault(v, []).append(u)
        for day in range(1, self.task.days + 1):
            size = int(graph.num_nodes)
            wrong = {self.rows[day - 1], *([self.labels[day // 2 - 1]] if day % 2 == 0 else [])} - gone
            row, label = self.rows[day - 1], self.labels[day // 2 - 1] if day % 2 == 0 else None
            dead = self._alive(size, gone | wrong)
            edge = self._edge(graph, dead)
            nodes = []
            for node in range(size, size + self.task.arrivals):
                ends = {end for end in neighbours.get(node, ()) if end < node} - gone - {dead}
                nodes.append(self._node(node, sorted(ends)))
            correct: Document = {}
            if row in wrong:
                correct["features"] = {row: self.whole.x[row]}
            if label is not None and label in wrong:
                correct["labels"] = {label: int(self.whole.y[label])}
            change = uw.Change(
                add={"nodes": nodes}, correct=correct, forget=uw.Request(nodes=[dead], edges=[edge]), id=f"day {day}"
            )
            gone.add(dead)
            graph = alter(graph, change).data
            yield change

    def _node(self, node: int, ends: list[int]) -> Document:
        split = next((name for name in SPLITS if bool(self.whole[f"{name}_mask"][node])), None)
        own = {} if split is None else {"label": int(self.whole.y[node]), "mask": split}
        return {"features": self.whole.x[node], "edges": ends, **own}

    def _alive(self, size: int, apart: set[int]) -> int:
        while (node := int(torch.randint(size, (1,), generator=self.generator))) in apart:
            pass
        return node

    def _edge(self, graph: Data, dead: int) -> tuple[int, int]:
        while True:
            at = int(torch.randint(graph.edge_index.size(1), (1,), generator=self.generator))
            u, v = graph.edge_index[:, at].tolist()
            if dead not in (u, v):
                return min(u, v), max(u, v)


def train(task: Task, graph: Data) -> uw.Run:
    """A model that can forget, trained on the graph of a day."""
    nodes = int(graph.train_mask.sum())
    model = build(task.model, graph.num_features, graph.num_classes, forgettable=True, nodes=nodes).to(task.device)
    return uw.train(model, graph, forgettable=True, weight_decay=task.decay, examine=False)


def cost(run: uw.Run) -> float:
    """Passes that a training took."""
    assert run.recipe is not None
    return 2 * run.recipe.epochs + run.metrics["polish_passes"]


def live(task: Task) -> Document:
    """A year, day by day."""
    world = World(task)
    first = run = train(task, world.start.to(task.device))
    weekly = first
    told, compared, gone = list[Document](), list[Document](), list[int]()
    for day, change in enumerate(world.changes(), start=1):
        run = run.update(change)
        receipt = run.receipts[-1]
        told.append({"passes": receipt.passes, "seconds": round(receipt.seconds["total"], 4), "grade": receipt.grade})
        assert change.forget is not None
        gone += change.forget.nodes
        marked = day % task.every == 0 or day == task.days
        mark = next((d for d in [*range(task.every, task.days, task.every), task.days] if d >= day), task.days)
        if day == mark - mark % WEEK and not marked:
            weekly = train(task, run.data)
        if not marked:
            continue
        anew = train(task, run.data)
        weekly = anew if day % WEEK == 0 else weekly
        alive = torch.ones(run.data.num_nodes, dtype=torch.bool, device=run.data.x.device)
        alive[gone] = False
        logs = log_probabilities(anew.model, run.data)
        gaps = {
            name: gap(logs, log_probabilities(other.model, run.data), alive)
            for name, other in (("update", run), ("none", first), ("weekly", weekly))
        }
        scores = {"update": run.metrics["test_f1"], "retrained": anew.metrics["test_f1"]}
        compared.append({"day": day, "gaps": gaps, "retraining": cost(anew), "test_f1": scores})
        print(day, {name: f"{value:.2e}" for name, value in gaps.items()}, flush=True)
    run.verify()
    return {"receipts": told, "compared": compared, "nodes": [world.first, int(run.data.num_nodes)]}


def main() -> None:
    """Measure a year."""
    torch.set_num_threads(1)
    parser = arguments(
        __doc__,
        "living",
        data="cora",
        model="gcn",
        decay=1e-2,
        days=365,
        arrivals=2,
        every=30,
        seed=0,
        device="cpu",
    )
    asked = parser.parse_args()
    task = Task(**{name: getattr(asked, name) for name in Task.__dataclass_fields__})
    write_document(asked.out / f"{task.data}-{task.model}.json", {**asdict(task), **live(task), **made(task.device)})
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()
