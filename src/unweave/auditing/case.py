"""What an audit is about: the items of a request, items to compare them with, and the models to compare with."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.auditing.population import Upbringing, Variant, raise_models
from unweave.errors import DataError, RequestError
from unweave.graph.edit import attributes
from unweave.graph.index import is_undirected
from unweave.graph.removal import Removal, remove
from unweave.objective.scores import gap
from unweave.request import Request
from unweave.tasks.task import Task
from unweave.training.adam import Progress
from unweave.training.agreement import Agreement

__all__ = ["Case", "Shadow", "Size", "Subject", "build_case"]

LEAST, MOST = 50, 1000
"""Items to compare with: as many as the request has, between these."""

STREAM = 0xA0D17


@dataclass(frozen=True)
class Size:
    """How many models an audit trains.

    Attributes:
        references: Models retrained without the data, and as many trained with it.
        shadows: Models that saw a random half of what is in question.
    """

    references: int
    shadows: int


@dataclass(frozen=True)
class Subject:
    """A model as an auditor sees it.

    Attributes:
        model: The model.
        whole: Log-probabilities of every node on the graph as it was.
        remaining: The same on the graph that remains.
    """

    model: nn.Module
    whole: Tensor
    remaining: Tensor


@dataclass(frozen=True)
class Shadow:
    """A shadow model and the half that it saw.

    Attributes:
        subject: The model.
        nodes: For every node in question, whether it saw it.
        links: For every pair in question, whether it saw the edge.
    """

    subject: Subject
    nodes: np.ndarray
    links: np.ndarray


@dataclass(frozen=True)
class Case:
    """A request with all that tests of forgetting need.

    Attributes:
        data: The graph as it was.
        removal: The request carried out.
        nodes: Nodes whose label the training used and that lost label, features or all; then as many that were held out
            of training.
        targets: How many of ``nodes`` the request takes.
        links: Deleted edges between nodes that stay, then pairs that share a neighbour and no edge.
        deleted: How many of ``links`` the request takes.
        retrained: Models trained without the data, one for each seed.
        trained: Models trained with it, from the same seeds.
        shadows: Models that saw half.
        how: How all these were trained.
        notes: What the reader should know.
    """

    data: Data
    removal: Removal
    nodes: Tensor
    targets: int
    links: Tensor
    deleted: int
    retrained: tuple[Subject, ...]
    trained: tuple[Subject, ...]
    shadows: tuple[Shadow, ...]
    how: Upbringing
    notes: tuple[str, ...] = ()

    def subject(self, model: nn.Module) -> Subject:
        """A model, looked at."""
        return _look(model, self.data, self.removal.data, self.how)

    @cached_property
    def labels(self) -> Tensor:
        """The labels that ``nodes`` had, wrong ones included: what a model that saw them learned."""
        found: Tensor = self.data.y[self.nodes]
        return found

    @cached_property
    def gone(self) -> Tensor:
        """Mask of the deleted nodes."""
        mask = torch.zeros(self.data.num_nodes, dtype=torch.bool, device=self.data.x.device)
        mask[self.removal.nodes] = True
        return mask

    @cached_property
    def agreement(self) -> Agreement:
        """How far retrained models of different seeds are from each other, beside what the request changes.

        Both are means over the seeds there are, on the remaining graph: one retrained model and the next, and the two
        models of a seed, without and with the data.
        """
        here, kept = self.retrained, ~self.gone
        seeds = [gap(one.remaining, other.remaining, kept) for one, other in pairwise(here)]
        deletion = [gap(one.remaining, other.remaining, kept) for one, other in zip(here, self.trained, strict=True)]
        return Agreement(fmean(seeds), fmean(deletion))

    @cached_property
    def rings(self) -> Tensor:
        """For every node its distance in edges from the nearest node that the request touches; -1 where none is."""
        distance = torch.where(self.removal.touched, 0, -1)
        row, col = self.data.edge_index
        for hop in range(1, 4):
            reached = torch.zeros_like(self.removal.touched)
            near = distance == hop - 1
            reached[col[near[row]]] = True
            reached[row[near[col]]] = True
            distance[reached & (distance < 0)] = hop
        return distance


def build_case(
    data: Data,
    request: Request,
    how: Upbringing,
    size: Size,
    *,
    seed: int = 0,
    jobs: int = 1,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Case:
    """Choose what to compare with, and train the models.

    Args:
        data: The graph as it was.
        request: What was to be forgotten.
        how: How the model was trained.
        size: How many models.
        seed: Decides the choice and the models.
        jobs: Processes that train.
        cache: Folder of trained models.
        progress: Called with (models there, models).
    """
    removal = remove(data, request)
    request = _of_examples(data, removal.request) if isinstance(data, Task) else removal.request
    rng = np.random.default_rng([STREAM, seed])
    nodes, targets, notes = _nodes(data, request, rng)
    links, deleted, more = _links(data, request, rng)
    if not targets and not deleted:
        raise RequestError(
            "the tests ask about nodes whose label the training used and about edges between nodes that stay, and of "
            f"the request there is nothing to audit by them{''.join(f'; {note}' for note in [*notes, *more])}. That is "
            "no proof that the model learnt nothing from it"
        )
    attributed = [key for key in attributes(data)[1] if key != "edge_index"]
    if attributed and deleted:
        more.append(f"edges have {attributed[0]}, so none can be made up for the likelihood ratio of edges: left out")
    seeds = [int(s) for s in rng.integers(2**31, size=size.references)]
    shadows = _halves(request, nodes, targets, links, deleted, size.shadows, rng, addable=not attributed)
    variants = [
        *(Variant(s, request) for s in seeds),
        *(Variant(s) for s in seeds),
        *(variant for variant, _, _ in shadows),
    ]
    found: dict[int, Subject] = {}
    for number, model in raise_models(how, data, variants, jobs=jobs, cache=cache, progress=progress):
        found[number] = _look(model, data, removal.data, how)
    count = size.references
    more += _suspicions(how, [found[n] for n in range(count)])
    return Case(
        data=data,
        removal=removal,
        nodes=nodes,
        targets=targets,
        links=links,
        deleted=deleted,
        retrained=tuple(found[n] for n in range(count)),
        trained=tuple(found[count + n] for n in range(count)),
        shadows=tuple(Shadow(found[2 * count + n], *shadows[n][1:]) for n in range(len(shadows))),
        how=how,
        notes=(*notes, *more),
    )


def _of_examples(data: Task, request: Request) -> Request:
    """A request by the examples that go: with each goes what is its own, so that a half of them is a half of it all."""
    whole = data.complete(request)
    if not whole.nodes:
        return request
    trained = data.train_mask.cpu()
    examples = [node for node in whole.nodes if trained[node]]
    implied = set(data.complete(Request(nodes=examples)).nodes) - set(examples) if examples else set[int]()
    nodes = [node for node in whole.nodes if node not in implied]  # the nodes of a graph go with it, and stay with it
    return Request(nodes=nodes, features=request.features, labels=request.labels)


def _suspicions(how: Upbringing, retrained: list[Subject]) -> list[str]:
    """What makes the models that an audit compares with less of a yardstick than they should be."""
    notes = []
    if any(not parameter.requires_grad for parameter in how.model.parameters()):
        notes.append(
            "frozen parameters are the same in every model that is compared with: what they learnt before, from the "
            "deleted data as well, is not audited"
        )
    same = all(torch.equal(s.remaining, retrained[0].remaining) for s in retrained[1:])
    if how.training.trainer is not None and same:
        notes.append(
            "retrained models are all the same, as if trainer= set a seed of its own: what luck does is not known, and "
            "a model retrained from another seed would be found to differ"
        )
    return notes


def _look(model: nn.Module, data: Data, remaining: Data, how: Upbringing) -> Subject:
    return Subject(model, how.outputs(model, data), how.outputs(model, remaining))


def _nodes(data: Data, request: Request, rng: np.random.Generator) -> tuple[Tensor, int, list[str]]:
    """The training nodes of a request, and held-out nodes to compare with."""
    named = sorted({*request.nodes, *request.features, *request.labels})
    used = data.train_mask.cpu()
    chosen = [node for node in named if used[node]]
    silent = len(named) - len(chosen)
    told = [
        f"{silent} of the nodes in the request have no label that was trained on: no test asks about them, though "
        "training nodes near them may have learnt from their features and edges"
    ]
    if not chosen:
        return torch.empty(0, dtype=torch.long, device=data.x.device), 0, told if silent else []
    held, notes = _held_out(data, set(named))
    notes += told if silent else []
    count = min(len(held), max(LEAST, min(len(chosen), MOST)))
    others = rng.choice(held, size=count, replace=False).tolist()
    return torch.tensor([*chosen, *others], device=data.x.device), len(chosen), notes


def _held_out(data: Data, named: set[int]) -> tuple[list[int], list[str]]:
    """Nodes with a label that no training used: validation nodes, or test nodes where there are too few of those.

    A node that the request names is not one of them: it has lost what it would be compared by.
    """
    for name in ("val_mask", "test_mask"):
        mask = data.get(name)
        if mask is not None:
            held = (mask & (data.y >= 0) & ~data.train_mask).nonzero().flatten().tolist()
            found = [node for node in held if node not in named]
            if len(found) >= LEAST:
                break
    else:
        what = "examples" if isinstance(data, Task) else "nodes"
        raise DataError(
            f"an audit compares with {what} that were held out of training, and neither val_mask nor test_mask has "
            f"{LEAST} of them with a label and outside of the request; give the graph such a mask"
        )
    return found, ["test nodes, not validation nodes, are compared with"] if name == "test_mask" else []


def _links(data: Data, request: Request, rng: np.random.Generator) -> tuple[Tensor, int, list[str]]:
    """The edges of a request between nodes that stay, and pairs with a common neighbour that never had one.

    An edge of a deleted node goes with the node, and what is asked about that is asked about the node.
    """
    none = torch.empty((0, 2), dtype=torch.long, device=data.x.device)
    gone = set(request.nodes)
    asked = [edge for edge in request.edges if not gone & set(edge)]
    if not asked:
        return none, 0, []
    near: dict[int, set[int]] = {}
    for u, v in data.edge_index.t().tolist():
        if u in gone or v in gone:
            continue
        near.setdefault(u, set()).add(v)
        near.setdefault(v, set()).add(u)
    wanted, found = max(LEAST, min(len(asked), MOST)), set[tuple[int, int]]()
    # Around a few edges there may be too few such pairs; then there are others elsewhere.
    for ends in ([node for edge in asked for node in edge], sorted(near)):
        for _ in range(50 * wanted):
            if len(found) == wanted:
                break
            u = ends[rng.integers(len(ends))]
            via = sorted(near[u] - {u})
            beyond = sorted(near[via[rng.integers(len(via))]] - near[u] - {u}) if via else []
            if beyond:
                v = beyond[rng.integers(len(beyond))]
                found.add((min(u, v), max(u, v)) if is_undirected(data) else (u, v))
    if len(found) < LEAST // 5:
        return none, 0, ["too few pairs of nodes share a neighbour and no edge: attacks on edges are left out"]
    return torch.tensor([*asked, *sorted(found)], device=data.x.device), len(asked), []


def _halves(
    request: Request,
    nodes: Tensor,
    targets: int,
    links: Tensor,
    deleted: int,
    count: int,
    rng: np.random.Generator,
    *,
    addable: bool,
) -> list[tuple[Variant, np.ndarray, np.ndarray]]:
    """Shadow models: each sees a random half of all that is in question, every item is seen by half of them."""
    seen_nodes, seen_links = (_split(n, count, rng) for n in (nodes.numel(), links.size(0)))
    if not addable:
        seen_links[:, deleted:] = False
    ids, pairs = nodes.tolist(), [(int(u), int(v)) for u, v in links.tolist()]
    gone, asked = set(request.nodes), set(pairs[:deleted])
    never = [edge for edge in request.edges if edge not in asked and not gone & set(edge)]
    found = []
    for number in range(count):
        saw, linked = seen_nodes[number], seen_links[number]
        # What the request takes from nodes that the training did not use, and edges that no test asks about, stay out
        # of every shadow model's graph; an edge of a deleted node goes or stays with it.
        kept = {node for node, known in zip(ids[:targets], saw, strict=False) if known}
        parts = {
            "nodes": [n for n in request.nodes if n not in kept],
            "edges": [*never, *(p for p, known in zip(pairs[:deleted], linked, strict=False) if not known)],
            "features": {n: c for n, c in request.features.items() if n not in kept},
            "labels": [n for n in request.labels if n not in kept],
        }
        variant = Variant(
            int(rng.integers(2**31)),
            Request(**parts) if any(parts.values()) else None,  # type: ignore[arg-type]
            tuple(node for node, known in zip(ids[targets:], saw[targets:], strict=True) if known),
            tuple(pair for pair, known in zip(pairs[deleted:], linked[deleted:], strict=True) if known),
        )
        found.append((variant, saw, linked))
    return found


def _split(items: int, models: int, rng: np.random.Generator) -> np.ndarray:
    """For each model which items it sees: every item is seen by half of the models."""
    order = rng.permuted(np.tile(np.arange(models), (items, 1)), axis=1)
    return (order < models // 2).T if items else np.zeros((models, 0), dtype=bool)
