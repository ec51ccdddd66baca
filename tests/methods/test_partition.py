"""Balanced partitions: never over capacity, the same for the same seed, and good where there is something to find."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import unweave as uw
from unweave.methods.baselines.partition import assign, bekm, blpa


def plain(score: NDArray[np.float64], capacity: int) -> NDArray[np.int64]:
    """The greedy assignment, pair by pair."""
    size, shards = score.shape
    result, held = np.full(size, -1), [0] * shards
    for pair in np.argsort(-score.ravel(), kind="stable"):
        node, shard = divmod(int(pair), shards)
        if result[node] < 0 and held[shard] < capacity:
            result[node] = shard
            held[shard] += 1
    return result


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 30), st.integers(1, 6), st.integers(0, 3), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_assign_is_the_greedy_assignment(size: int, shards: int, slack: int, levels: int, seed: int) -> None:
    """Few levels of score make many ties."""
    score = np.random.default_rng(seed).integers(-levels, levels, (size, shards)).astype(float)
    capacity = math.ceil(size / shards) + slack
    before = score.copy()
    np.testing.assert_array_equal(assign(score, capacity), plain(score, capacity))
    np.testing.assert_array_equal(score, before)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(uw.MethodError, match="7 nodes do not fit into 2 shards of 3"):
        assign(np.zeros((7, 2)), 3)
    for shards in (0, 4):
        with pytest.raises(uw.MethodError, match=r"give shards=1 … 3"):
            blpa(np.zeros((2, 0), dtype=np.int64), 3, shards, 0)
        with pytest.raises(uw.MethodError, match=r"give shards=1 … 3"):
            bekm(np.zeros((3, 2)), shards, 0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[NDArray[np.int64], int, int]:
    """Edges, nodes and shards; any graph: no edges, loops, parallel edges, pieces."""
    size = draw(st.integers(1, 25))
    ends = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=60))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T, size, draw(st.integers(1, size))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_capacity_holds_on_every_graph(graph: tuple[NDArray[np.int64], int, int], seed: int) -> None:
    edges, size, shards = graph
    members = blpa(edges, size, shards, seed)
    assert np.bincount(members, minlength=shards).max() <= math.ceil(size / shards)
    assert members.shape == (size,)
    assert 0 <= members.min() <= members.max() < shards
    np.testing.assert_array_equal(members, blpa(edges, size, shards, seed))


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_capacity_holds_for_any_points(graph: tuple[NDArray[np.int64], int, int], distinct: int, seed: int) -> None:
    """Also for fewer distinct points than shards."""
    _, size, shards = graph
    points = np.random.default_rng(seed).integers(distinct, size=(size, 2)).astype(np.float32)
    members = bekm(points, shards, seed)
    assert np.bincount(members, minlength=shards).max() <= math.ceil(size / shards)
    assert 0 <= members.min() <= members.max() < shards
    np.testing.assert_array_equal(members, bekm(points, shards, seed))


def communities(seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """200 nodes in 4 hidden groups of 50, with four of five edges within a group."""
    random = np.random.default_rng(seed)
    group = random.permutation(200) % 4
    one, other = random.integers(200, size=(2, 12_000))
    kept = (group[one] == group[other]) | (random.random(one.size) < 0.08)
    return np.stack([one[kept], other[kept]])[:, :2500], group


def cut(members: NDArray[np.int64], edges: NDArray[np.int64]) -> float:
    return float((members[edges[0]] != members[edges[1]]).mean())


def test_label_propagation_cuts_few_edges() -> None:
    edges, group = communities()
    random = np.random.default_rng(1).permutation(200) % 4
    assert cut(random, edges) > 0.7
    for seed in range(5):
        assert cut(blpa(edges, 200, 4, seed), edges) < 0.75 * cut(random, edges)
    assert cut(group, edges) < 0.25
    assert min(cut(blpa(edges, 200, 4, seed), edges) for seed in range(5)) < 0.3


def test_a_node_prefers_to_stay_where_nothing_speaks_against_it() -> None:
    """Without edges the first partition is the last; directions and parallel edges make no difference."""
    nothing = np.zeros((2, 0), dtype=np.int64)
    assert sorted(np.bincount(blpa(nothing, 10, 3, 0))) == [3, 3, 4]
    edges, _ = communities()
    for same in (edges[::-1], np.concatenate([edges, edges[::-1], np.tile(np.arange(200), (2, 1))], axis=1)):
        np.testing.assert_array_equal(blpa(edges, 200, 4, 3), blpa(same, 200, 4, 3))


def test_k_means_finds_clear_clusters() -> None:
    random = np.random.default_rng(0)
    cluster = random.permutation(90) % 3
    points = 10 * np.eye(3)[cluster] + random.normal(size=(90, 3))
    members = bekm(points, 3, 0)
    assert len(set(zip(members.tolist(), cluster.tolist(), strict=True))) == 3


def test_k_means_fills_shards_that_clusters_would_leave_empty() -> None:
    points = np.concatenate([np.zeros((17, 2)), np.full((3, 2), 9.0)])
    assert np.bincount(bekm(points, 4, 0)).tolist() == [5, 5, 5, 5]
