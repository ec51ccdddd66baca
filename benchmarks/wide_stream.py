"""A stream of requests to a wide model on a large graph: does it stay as near to retraining as after the first?

    python benchmarks/wide_stream.py --device cuda --data wordnet --model sage --jobs 5

Requests take in turn some edges and some nodes. At some marks on the way the model is compared with one that is trained
anew on what remains, with the same seed. The trainings and the stream run side by side, so no time is told.
"""

from dataclasses import asdict, dataclass, replace

import torch
from pages.wide_stream import PAGE
from shared import Document, arguments, each, made, write_document
from torch import Tensor
from torch_geometric.data import Data
from wide import loaded

import unweave as uw
from unweave.graph.index import distinct_edges
from unweave.graph.removal import remove
from unweave.models import build
from unweave.objective.scores import closed, gap, log_probabilities

SHARE = 0.04
"""Of the edges, and of the training nodes, that all requests together take."""


@dataclass(frozen=True)
class Task:
    """A stream, or a training on what remains after so many requests."""

    data: str
    model: str
    decay: float
    requests: int
    marks: int
    device: str
    after: int | None = None

    @property
    def compared(self) -> list[int]:
        """After how many requests models are compared."""
        return [self.requests * n // self.marks for n in range(1, self.marks + 1)]


Logs = dict[str, Tensor]
"""Log-probabilities, by what they are of."""


def measure(task: Task) -> tuple[dict[int, Logs], list[Document]]:
    """By how many requests were made: of the model retrained, or of the one before and that after; and the receipts."""
    graph = loaded(task.data).to(task.device)
    requests = stream(graph, task.requests)
    if task.after is not None:
        left = remove(graph, together(requests[: task.after])).data
        return {task.after: {"retrained": log_probabilities(_train(task, left).model, left).cpu()}}, []
    first, told, found = _train(task, graph), list[Document](), dict[int, Logs]()
    run = first
    for number, request in enumerate(requests, 1):
        run = run.forget(request, "gif", allow_class_loss=True)
        receipt = run.receipts[-1]
        told.append({"passes": receipt.passes, "gradients": receipt.details.get("evaluations")})
        if number in task.compared:
            models = {"before": first.model, "after": run.model}
            found[number] = {name: log_probabilities(model, run.data).cpu() for name, model in models.items()}
    told[0]["metrics"] = {k: v for k, v in first.metrics.items() if not k.endswith("seconds")}
    return found, told


def stream(graph: Data, requests: int) -> list[uw.Request]:
    """Requests that do not meet: edges whose ends stay, and training nodes, in turn."""
    generator = torch.Generator().manual_seed(0)
    train = graph.train_mask.nonzero().flatten().cpu()
    nodes = train[torch.randperm(train.numel(), generator=generator)[: int(SHARE * train.numel())]]
    edges = distinct_edges(graph).cpu()
    edges = edges[~torch.isin(edges, nodes).any(dim=1)]
    edges = edges[torch.randperm(edges.size(0), generator=generator)[: int(SHARE * edges.size(0))]]
    half = requests // 2
    parts = zip(edges.tensor_split(requests - half), nodes.tensor_split(requests - half), strict=True)
    both = [(uw.Request(edges=e.tolist()), uw.Request(nodes=n.tolist())) for e, n in parts]
    return [request for pair in both for request in pair][:requests]


def together(requests: list[uw.Request]) -> uw.Request:
    """All of them as one."""
    return uw.Request(
        nodes=[node for request in requests for node in request.nodes],
        edges=[edge for request in requests for edge in request.edges],
    )


def _train(task: Task, graph: Data) -> uw.Run:
    nodes = int(graph.train_mask.sum())
    model = build(task.model, graph.num_features, graph.num_classes, forgettable=True, nodes=nodes).to(task.device)
    return uw.train(model, graph, forgettable=True, weight_decay=task.decay, examine=False)


def main() -> None:
    """Measure a stream."""
    parser = arguments(
        __doc__, "wide_stream", data="wordnet", model="sage", decay=1e-4, requests=200, marks=4, device="cpu", jobs=1
    )
    asked = parser.parse_args()
    task = Task(asked.data, asked.model, asked.decay, asked.requests, asked.marks, asked.device)
    known: dict[int, Logs] = {after: {} for after in task.compared}
    told: list[Document] = []
    for found, receipts in each(measure, [task, *(replace(task, after=n) for n in task.compared)], asked.jobs):
        told = told or receipts
        for after, logs in found.items():
            known[after] |= logs
    graph = loaded(asked.data)
    requests, marks = stream(graph, asked.requests), []
    for after, logs in known.items():
        remaining = torch.ones(graph.num_nodes, dtype=torch.bool)
        remaining[list(together(requests[:after]).nodes)] = False
        none, left = (gap(logs["retrained"], logs[name], remaining) for name in ("before", "after"))
        marks.append({"after": after, "gap": none, "closed": closed(left, none)})
    document = {key: value for key, value in asdict(task).items() if key != "after"}
    document |= {"compared": marks, "receipts": told, **made(asked.device)}
    write_document(asked.out / f"{asked.data}-{asked.model}.json", document)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()
