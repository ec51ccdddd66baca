"""One door to every graph: ``load(name, seed)``."""

from pathlib import Path

from torch_geometric.data import Data

from unweave._core import ranks
from unweave.datasets.catalogue import CATALOGUE
from unweave.datasets.demo import demo_graph
from unweave.datasets.files import fetch, find_root
from unweave.datasets.listenings import load_lastfm
from unweave.datasets.readers import read_graphs, read_npz, read_planetoid
from unweave.datasets.split import split
from unweave.errors import DataError
from unweave.tasks.graphs import Graphs
from unweave.tasks.links import Links

__all__ = ["NAMES", "load"]

NAMES = ("demo", *CATALOGUE, "lastfm")

LINKS = ":links"
"""After the name of a graph: predict its edges instead of the classes of its nodes."""


def load(name: str, *, seed: int = 0, root: str | Path | None = None) -> Data:
    """Load a graph and split it.

    Args:
        name: ``demo`` (embedded, needs no file), ``cora``, ``citeseer``, ``pubmed``, ``cs``, ``physics``,
            ``photo``, ``computers``, ``dblp`` or ``wordnet``; ``mutag`` and ``proteins`` have many graphs
            (:class:`~unweave.tasks.Graphs`), ``lastfm`` has users and artists
            (:class:`~unweave.tasks.Recommendation`). With ``:links`` after it (``cora:links``) a graph is one whose
            edges are to be predicted (:class:`~unweave.tasks.Links`).
        seed: Of the split into 81 % training, 9 % validation and 10 % test nodes, or graphs. The graph is always the
            same.
        root: Data folder; by default ``UNWEAVE_DATA``, then the user's cache folder. Missing files are downloaded.

    Returns:
        ``Data`` with ``x``, ``edge_index``, ``y``, the three masks and ``num_classes``, and with ``name`` and
        ``split_seed`` to know it by.

    Raises:
        DataUnavailableError: The files are missing and cannot be downloaded.
        IntegrityError: A file is not the one it claims to be.
    """
    key = name.lower()
    if key.removesuffix(LINKS) not in NAMES or key == f"lastfm{LINKS}":
        raise DataError(f"unknown data set {name!r}; known: {', '.join(NAMES)}")
    if key.endswith(LINKS):
        pairs = Links.of(load(key.removesuffix(LINKS), seed=seed, root=root), seed=seed)
        pairs.name, pairs.split_seed = key, seed
        return pairs
    if key == "lastfm":
        with ranks.in_turn():
            recommender = load_lastfm(find_root(root), seed)
        recommender.name, recommender.split_seed = key, seed
        return recommender
    if key == "demo":
        data = demo_graph()
    else:
        entry = CATALOGUE[key]
        with ranks.in_turn():
            raw = fetch(key, entry, find_root(root))
        if entry.whole:
            graphs = Graphs.of(read_graphs(entry, raw), seed=seed)
            graphs.name, graphs.split_seed = key, seed
            return graphs
        data = read_planetoid(entry, raw) if entry.prefix else read_npz(entry, raw)
    data.name, data.split_seed, data.num_classes = key, seed, int(data.y.max()) + 1
    return split(data, seed=seed)
