"""Graphs of any size with planted classes, in time and memory proportional to their edges."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave._core.threads import side_by_side
from unweave.datasets.folder import seal_folder
from unweave.datasets.sorting import write_sorted

WITHIN = 0.8
"""Share of the edges that stay within a class."""

NOISE = 1.5
"""Standard deviation of a feature over the square root of their number; that of the centres is 1. A GCN that averages
over neighbours sees through it for nine nodes of ten."""

CHUNK = 1 << 18
PAIRS, ROWS = 1 << 20, 1 << 15
"""Pairs and rows that a thread draws at a time; their seed is their place, whoever draws them."""


def planted(nodes: int, stored_edges: int, *, features: int, classes: int, seed: int = 0, device: str = "cpu") -> Data:
    """An undirected graph whose features are the centre of a node's class plus noise, split as the others are.

    Edges are drawn one by one between a random node and one of its own class, or any, so degrees are nearly Poisson.
    A pair that is drawn twice is kept once, and no node is its own neighbour: there are a few edges fewer than asked.

    Args:
        nodes: How many.
        stored_edges: Entries of ``edge_index``, two for each edge.
        features: Of a node.
        classes: Of equal probability.
        seed: Decides everything.
        device: Where it is made.
    """
    generator = Generator(device).manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=generator, device=device)
    edge_index = _edges(y, stored_edges // 2, classes, generator)
    centres = torch.randn(classes, features, generator=generator, device=device)
    x = torch.randn(nodes, features, generator=generator, device=device).mul_(NOISE * features**0.5)
    for start in range(0, nodes, CHUNK):  # the centres of all nodes at once would be a second feature matrix
        x[start : start + CHUNK] += centres[y[start : start + CHUNK]]
    data = Data(x=x, edge_index=edge_index, y=y, num_nodes=nodes)
    data.num_classes = classes
    return uw.split(data, seed=seed)


def _edges(y: Tensor, pairs: int, classes: int, generator: Generator) -> Tensor:
    nodes, device = y.numel(), y.device
    order, counts = y.argsort(), y.bincount(minlength=classes)
    starts = counts.cumsum(0) - counts
    source, target = torch.randint(nodes, (2, pairs), generator=generator, device=device)
    inside = torch.rand(pairs, generator=generator, device=device) < WITHIN
    own = y[source[inside]]
    place = (torch.rand(own.numel(), generator=generator, device=device) * counts[own]).long()
    target[inside] = order[starts[own] + place.minimum(counts[own] - 1)]  # a product may round up to the count
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    key: Tensor = (low * nodes + high)[low != high].unique()  # type: ignore[no-untyped-call]
    forth = torch.stack([key // nodes, key % nodes])
    return torch.cat([forth, forth.flip(0)], dim=1)


def hard(nodes: int, *, hubs: bool = False, features: int = 128, classes: int = 20, seed: int = 0) -> Data:
    """A graph on which models differ: by several points of F1 a linear one, a GCN and a GraphSAGE.

    Degrees follow a power law, with ``hubs`` a heavier one, whose largest node has a tenth of all others. Of a node's
    edges a half lead to its own class, a quarter to the next one, and the rest anywhere, so that to average over
    neighbours is not enough. One label in twenty is wrong.

    Args:
        nodes: How many.
        hubs: Whether a few nodes have very many neighbours.
        features: Of a node.
        classes: Of unequal probability.
        seed: Decides everything.
    """
    generator = Generator().manual_seed(seed)
    shares = 1 / torch.arange(1, classes + 1).double().sqrt()
    y = torch.multinomial(shares, nodes, replacement=True, generator=generator)
    weight = torch.rand(nodes, generator=generator, dtype=torch.float64).pow(-0.5 if hubs else -0.35)
    weight = weight.clamp(max=float(weight.sum()) / 100 if hubs else float(weight.mean()) * 50)
    pairs = 4 * nodes
    source = torch.multinomial(weight, pairs, replacement=True, generator=generator)
    drawn = torch.rand(pairs, generator=generator)
    wanted = torch.where(drawn < 0.5, y[source], (y[source] + 1) % classes)
    target = torch.randint(nodes, (pairs,), generator=generator)
    for label in range(classes):
        place, own = ((drawn < 0.75) & (wanted == label)).nonzero().flatten(), (y == label).nonzero().flatten()
        target[place] = own[torch.multinomial(weight[own], place.numel(), replacement=True, generator=generator)]
    if hubs:
        many = torch.randperm(nodes, generator=generator)[: nodes // 10]
        source, target = torch.cat([source, torch.zeros_like(many)]), torch.cat([target, many])
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    key: Tensor = (low * nodes + high)[low != high].unique()  # type: ignore[no-untyped-call]
    forth = torch.stack([key // nodes, key % nodes])
    centres = torch.randn(classes, features, generator=generator)
    x = torch.randn(nodes, features, generator=generator) * (0.42 * features**0.5) + centres[y]
    wrong = torch.rand(nodes, generator=generator) < 0.05
    seen = torch.where(wrong, torch.randint(classes, (nodes,), generator=generator), y)
    data = Data(x=x, edge_index=torch.cat([forth, forth.flip(0)], dim=1), y=seen, num_nodes=nodes)
    data.num_classes = classes
    return uw.split(data, seed=seed)


def neighbourly(
    nodes: int, stored_edges: int, *, far: float, features: int = 64, classes: int = 10, hubs: int = 0, seed: int = 0
) -> Data:
    """A graph with neighbourhoods: most edges join nodes of nearby ids, as where people, pages or places cluster.

    Args:
        nodes: How many.
        stored_edges: Entries of ``edge_index``, two for each edge; a few fewer, as pairs drawn twice are kept once.
        far: Share of the edges that lead anywhere; the others lead at most 500 ids away.
        features: Of a node.
        classes: Of equal probability, the same for 100 nodes in a row.
        hubs: Nodes among the first ids that have a thousand neighbours more, from anywhere near.
        seed: Decides everything.
    """
    generator = Generator().manual_seed(seed)
    pairs = stored_edges // 2
    source = torch.randint(nodes, (pairs,), generator=generator)
    target = (source + torch.randint(1, 500, (pairs,), generator=generator)) % nodes
    drawn = torch.rand(pairs, generator=generator) < far
    target[drawn] = torch.randint(nodes, (int(drawn.sum()),), generator=generator)
    if hubs:
        source = torch.cat([source, torch.arange(hubs).repeat_interleave(1000)])
        target = torch.cat([target, torch.randint(nodes // 4, (1000 * hubs,), generator=generator)])
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    key: Tensor = (low * nodes + high)[low != high].unique()  # type: ignore[no-untyped-call]
    forth = torch.stack([key // nodes, key % nodes])
    y = (torch.arange(nodes) // 100) % classes
    centres = torch.randn(classes, features, generator=generator)
    x = torch.randn(nodes, features, generator=generator).mul_(NOISE * features**0.5)
    for start in range(0, nodes, CHUNK):
        x[start : start + CHUNK] += centres[y[start : start + CHUNK]]
    data = Data(x=x, edge_index=torch.cat([forth, forth.flip(0)], dim=1), y=y, num_nodes=nodes)
    data.num_classes = classes
    return uw.split(data, seed=seed)


def onto_disk(folder: Path, *, nodes: int, stored_edges: int, features: int, classes: int, training: float) -> None:
    """The same kind of graph as :func:`hard` with hubs, drawn onto disk a part at a time, and sealed as a folder.

    Args:
        folder: Where to.
        nodes: How many.
        stored_edges: Two for each pair; pairs that come again are left out, so there are a few less.
        features: Of a node.
        classes: Of unequal probability.
        training: Share of training nodes; as many are for validation and for tests together.
    """
    rng = np.random.default_rng(0)
    shares = 1 / np.sqrt(np.arange(1, classes + 1))
    y = rng.choice(classes, nodes, p=shares / shares.sum())
    order, ends = y.argsort(kind="stable"), np.r_[0, np.bincount(y, minlength=classes).cumsum()]
    weight = np.minimum(rng.random(nodes) ** -0.5, 1e-3 * nodes)
    everyone, sorted_in = weight.cumsum(), np.r_[0.0, weight[order].cumsum()]

    def drawn(first: int) -> np.ndarray[Any, Any]:
        """Some pairs, looked up in the order of where they lie: at random each would be a miss of the cache."""
        own, count = np.random.default_rng([1, first]), min(PAIRS, stored_edges // 2 - first)
        source = np.searchsorted(everyone, np.sort(own.random(count)) * everyone[-1]).clip(max=nodes - 1)
        kind, label = own.random(count), y[source]
        wanted = np.where(kind < 0.5, label, (label + 1) % classes)
        low, high = sorted_in[ends[wanted]], sorted_in[ends[wanted + 1]]
        value = low + own.random(count) * (high - low)
        by = value.argsort()
        place = np.searchsorted(sorted_in, value[by], side="right") - 1
        target = np.where(kind[by] < 0.75, order[place.clip(max=nodes - 1)], own.integers(nodes, size=count))
        pairs = np.stack([source[by], target])
        return pairs[:, pairs[0] != pairs[1]]

    def parts() -> Iterator[np.ndarray[Any, Any]]:
        yield from side_by_side(drawn, range(0, stored_edges // 2, PAIRS))
        many = rng.choice(nodes, nodes // 100, replace=False)  # node 0 is a hub beside those that chance made
        yield np.stack([np.zeros_like(many), many])[:, many != 0]

    folder.mkdir(parents=True)
    write_sorted(parts(), nodes, folder, both_ways=True)
    centres = rng.standard_normal((classes, features), dtype=np.float32)

    def rows(first: int) -> np.ndarray[Any, Any]:
        own = np.random.default_rng([2, first])
        x = own.standard_normal((min(ROWS, nodes - first), features), dtype=np.float32)
        x *= np.float32(0.42 * features**0.5)
        x += centres[y[first : first + ROWS]]
        return x

    with (folder / "x.npy").open("wb") as out:
        head = {"descr": "<f4", "fortran_order": False, "shape": (nodes, features)}
        np.lib.format.write_array_header_1_0(out, head)
        for some in side_by_side(rows, range(0, nodes, ROWS)):
            out.write(some.data)
    np.save(folder / "y.npy", np.where(rng.random(nodes) < 0.05, rng.integers(classes, size=nodes), y))
    chance = rng.random(nodes)
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        low, high = ((0, training), (training, 1.5 * training), (1.5 * training, 2 * training))[number]
        np.save(folder / f"{name}.npy", (low <= chance) & (chance < high))
    seal_folder(folder)
