"""Random requests of the same kinds and sizes as a given one, from the same graph."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from unweave.graph.edit import MASKS
from unweave.graph.index import distinct_edges
from unweave.request import ALL, Columns, Request

__all__ = ["Resampler"]

Ids = NDArray[np.int64]


class Resampler:
    """Draws requests like one: as many nodes, edges, features and labels, wherever they may be.

    A node is replaced by one of the same part of the split (training, validation, test, or none of them), an edge by
    any other, and features by as many that are not zero already. What was deleted earlier is not drawn.

    Args:
        request: What the others are to be like.
        data: The graph.
    """

    def __init__(self, request: Request, data: Data) -> None:
        self._request, self._data = request, data
        self._parts = np.zeros(data.num_nodes, dtype=np.int64)
        for power, name in enumerate(MASKS):
            if data.get(name) is not None:
                self._parts += 2**power * data[name].cpu().numpy()
        self._filled = (data.x != 0).any(dim=1).cpu().numpy()
        self._there = self._filled | (self._parts > 0)
        self._there[np.unique(data.edge_index.cpu().numpy())] = True
        self._edges: list[list[int]] = distinct_edges(data).tolist() if request.edges else []

    def draw(self, rng: np.random.Generator) -> Request:
        """One such request."""
        asked = self._request
        chosen = rng.permutation(len(self._edges))[: len(asked.edges)]
        rows = self._others(list(asked.features), self._filled, rng)
        return Request(
            nodes=self._others(asked.nodes, self._there, rng),
            edges=[(u, v) for u, v in (self._edges[i] for i in chosen)],
            features={new: self._columns(old, new, rng) for old, new in zip(asked.features, rows, strict=True)},
            labels=self._others(asked.labels, self._there, rng),
        )

    def _others(self, ids: Sequence[int], among: NDArray[np.bool_], rng: np.random.Generator) -> list[int]:
        """As many nodes of the same parts of the split, in the order of those."""
        given = np.array(ids, dtype=np.int64)
        found = given.copy()
        for part in np.unique(self._parts[given]):
            here = self._parts[given] == part
            candidates = np.union1d(np.flatnonzero(among & (self._parts == part)), given[here])
            found[here] = rng.choice(candidates, size=int(here.sum()), replace=False)
        members: list[int] = found.tolist()
        return members

    def _columns(self, old: int, new: int, rng: np.random.Generator) -> Columns:
        """As many features of a node that are not zero as were named of another; one at least."""
        named = self._request.features[old]
        if named == ALL:
            return ALL
        wanted = max(1, int((self._data.x[old, list(named)] != 0).sum()))
        present = self._data.x[new].nonzero().flatten().tolist() or [0]
        return tuple(sorted(rng.permutation(present)[:wanted].tolist()))
