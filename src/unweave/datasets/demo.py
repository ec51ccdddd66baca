"""The embedded graph: generated, always the same, shaped like a small citation network.

Six research fields of different size; papers cite mostly within their field and in proportion to
a power-law popularity; each paper holds a few words, some typical of its field; some papers sit between
fields. A two-layer GCN learns it to a plausible F1, not to a perfect one.
"""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

__all__ = ["demo_graph"]

NODES, WORDS, CITATIONS = 2_000, 600, 4_600
FIELDS = (0.26, 0.21, 0.17, 0.14, 0.12, 0.10)
WITHIN_FIELD = 0.76
FIELD_WORDS, TYPICAL, LENGTH = 70, 0.22, (8, 24)
BETWEEN_FIELDS = 0.08


def demo_graph() -> Data:
    """The graph. Only uniform numbers are drawn, so that it is the same with every NumPy."""
    rng = np.random.default_rng(20230430)
    field = _choose(rng, np.array(FIELDS), NODES)
    popularity = np.minimum((1 - rng.random(NODES)) ** (-1 / 1.6), 40.0)

    source = _choose(rng, popularity, CITATIONS)
    target = _choose(rng, popularity, CITATIONS)
    inside = rng.random(CITATIONS) < WITHIN_FIELD
    for k in range(len(FIELDS)):
        members, here = np.flatnonzero(field == k), np.flatnonzero(inside & (field[source] == k))
        target[here] = members[_choose(rng, popularity[members], here.size)]
    pairs = np.stack([source, target])[:, source != target]
    edges = to_undirected(torch.from_numpy(pairs.astype(np.int64)), num_nodes=NODES)

    x = torch.zeros(NODES, WORDS)
    vocabularies = np.stack([np.argsort(rng.random(WORDS), kind="stable")[:FIELD_WORDS] for _ in FIELDS])
    topic = np.where(rng.random(NODES) < BETWEEN_FIELDS, _choose(rng, np.array(FIELDS), NODES), field)
    node, word = _words(rng, vocabularies, topic)
    x[torch.from_numpy(node), torch.from_numpy(word)] = 1
    return Data(x=x, edge_index=edges, y=torch.from_numpy(field.astype(np.int64)))


def _words(rng: np.random.Generator, vocabularies: np.ndarray, topic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which paper holds which word: its length is drawn for each paper, then three numbers for each of its words."""
    drawn = rng.random(NODES * (1 + 3 * LENGTH[1]))  # more than are needed
    starts, counts, at = np.zeros(NODES, dtype=np.int64), np.zeros(NODES, dtype=np.int64), 0
    for paper in range(NODES):
        starts[paper], counts[paper] = at + 1, LENGTH[0] + int(drawn[at] * (LENGTH[1] - LENGTH[0]))
        at += 1 + 3 * int(counts[paper])
    node = np.repeat(np.arange(NODES), counts)
    place = (starts - np.cumsum(counts) + counts)[node] + np.arange(node.size)
    typical, of_field, of_all = (drawn[place + number * counts[node]] for number in range(3))
    word = np.where(
        typical < TYPICAL,
        vocabularies[topic[node], (of_field * FIELD_WORDS).astype(int)],
        _chosen(of_all, 1 / (5.0 + np.arange(WORDS))),
    )
    return node, word


def _choose(rng: np.random.Generator, weights: np.ndarray, count: int) -> np.ndarray:
    """Draw indices in proportion to weights."""
    return _chosen(rng.random(count), weights)


def _chosen(uniform: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Uniform numbers as indices in proportion to weights, by inverting their cumulative sum."""
    steps = np.cumsum(weights)
    chosen: np.ndarray = np.minimum(np.searchsorted(steps, uniform * steps[-1]), weights.size - 1)
    return chosen
