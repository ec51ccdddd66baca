"""Balanced partitions of a graph into shards, as GraphEraser makes them (Chen et al., CCS'22).

Both start somewhere and repeat one step: score how well each node fits each shard, then assign the nodes so that no
shard holds more than ⌈n/k⌉ of them. They stop when nothing changes, or after thirty steps: label propagation
may go on in a circle. Shards may end up smaller than others, or empty.
"""

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from unweave._core.tuning import TUNING
from unweave.errors import MethodError

__all__ = ["assign", "bekm", "blpa"]


def assign(score: NDArray[np.float64], capacity: int) -> NDArray[np.int64]:
    """The shard of each node, taken greedily over all (node, shard) pairs from the highest score down.

    A pair is taken when its node is free and its shard not full; of equal scores the lower node goes first, then the
    lower shard. Until a shard is full that gives every node the shard it likes best, so it takes k rounds at most: the
    free nodes name their best open shard, and are served in order up to the first one that finds it full.

    Args:
        score: How well each node fits each shard, ``[n, k]``, finite.
        capacity: Nodes that fit into a shard.
    """
    size, shards = score.shape
    if size > shards * capacity:
        raise MethodError(f"{size} nodes do not fit into {shards} shards of {capacity}")
    score = score.astype(float)
    left = np.full(shards, capacity)
    result = np.full(size, -1)
    free = np.arange(size)
    while free.size:
        best = score[free].argmax(axis=1)
        order = np.argsort(-score[free, best], kind="stable")
        refused = np.flatnonzero(_earlier(best[order]) >= left[best[order]])
        served = order[: refused[0]] if refused.size else order
        result[free[served]] = best[served]
        left -= np.bincount(best[served], minlength=shards)
        score[:, left == 0] = -np.inf
        free = np.delete(free, served)
    return result


def blpa(edges: NDArray[np.int64], size: int, shards: int, seed: int) -> NDArray[np.int64]:
    """Balanced label propagation: each node wants to be where most of its neighbours are.

    Of shards with as many neighbours a node prefers the one it is in; what is equal even so is decided by chance,
    once and for all. Edges count in either direction, parallel ones once, and loops not at all.

    Args:
        edges: ``[2, m]``, numbers 0 … size − 1.
        size: Number of nodes.
        shards: Number of shards.
        seed: Of the first partition and of ties.
    """
    capacity = _capacity(size, shards)
    random = np.random.default_rng(seed)
    members = random.permutation(size) % shards
    chance = random.random((size, shards)) / 4
    proper = edges[:, edges[0] != edges[1]]
    rows, columns = np.concatenate([proper, proper[::-1]], axis=1)
    adjacency = csr_array((np.ones(rows.size), (rows, columns)), shape=(size, size))
    adjacency.data[:] = 1
    for _ in range(TUNING.baselines.rounds):
        present = np.eye(shards)[members]
        before, members = members, assign(adjacency @ present + present / 2 + chance, capacity)
        if np.array_equal(before, members):
            break
    return members


def bekm(points: NDArray[np.float64], shards: int, seed: int) -> NDArray[np.int64]:
    """Balanced k-means on embeddings: each node wants to be with the nearest centroid.

    Args:
        points: One embedding a node, ``[n, d]``, finite.
        shards: Number of shards.
        seed: Of the first centroids, which are those of plain k-means (k-means++).
    """
    size = points.shape[0]
    capacity = _capacity(size, shards)
    points = points.astype(float)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # Fewer distinct points than shards leave clusters empty; here those fill up with what others cannot hold.
        warnings.simplefilter("ignore", UserWarning)
        centroids, _ = kmeans2(points, shards, minit="++", seed=seed)
    members = np.full(size, -1)
    for _ in range(TUNING.baselines.rounds):
        before, members = members, assign(-cdist(points, centroids, "sqeuclidean"), capacity)
        if np.array_equal(before, members):
            break
        counts = np.bincount(members, minlength=shards)
        sums = np.eye(shards)[members].T @ points
        centroids[counts > 0] = (sums / np.maximum(counts, 1)[:, None])[counts > 0]
    return members


def _capacity(size: int, shards: int) -> int:
    if not 1 <= shards <= size:
        raise MethodError(f"{size} training nodes cannot be divided into {shards} shards; give shards=1 … {size}")
    return math.ceil(size / shards)


def _earlier(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each entry, how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    grouped = values[order]
    result = np.empty_like(values)
    result[order] = np.arange(values.size) - np.searchsorted(grouped, grouped)
    return result
