"""Read the raw files of a data set, after they have been checked."""

import zlib
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import remove_self_loops, to_undirected

from unweave._core.digest import tensor_digest
from unweave.datasets.catalogue import Entry
from unweave.datasets.files import known_sum, refuse

__all__ = ["read_graphs", "read_npz", "read_planetoid"]


LARGEST = 2**28
"""Bytes to which a file of an unknown packing may unfold before anybody knows what is in it; the largest of the known
ones has 30 MiB."""


NUMBERED = {"MUTAG.txt": 9}
"""Nodes at the beginning of a file that are written as ``number tag degree neighbour``, with one neighbour only. Read
so they have the degrees that they tell, by the edges that the others name, and there are 2,395 atoms of carbon and
7,442 stored edges in MUTAG, as there should be."""


def read_planetoid(entry: Entry, raw: Path) -> Data:
    """Cora, CiteSeer and PubMed. The files are pickles, so every sum is checked first."""
    for file, accepted in entry.files.items():
        if not known_sum(raw / file, accepted):
            raise refuse(raw / file)
    return read_planetoid_data(str(raw), entry.prefix)


def read_npz(entry: Entry, raw: Path) -> Data:
    """The ``.npz`` data sets: features made binary, edges undirected and without self-loops, as PyG does.

    Of a file with an unknown sum nothing is unpacked that says to be larger than any of the known ones.
    Features stay in compressed rows, in memory and on disk, until the one dense matrix that models take
    is filled from them; nothing is written.
    """
    ((file, accepted),) = entry.files.items()
    trusted = known_sum(raw / file, accepted)
    try:
        with ZipFile(raw / file) as packed:
            if not trusted and sum(part.file_size for part in packed.infolist()) > LARGEST:
                raise refuse(raw / file)
        with (raw / file).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            features, adjacency = (_matrix(archive, part) for part in ("attr", "adj"))
            labels = torch.from_numpy(np.asarray(archive["labels"], dtype=np.int64))
    except (OSError, ValueError, KeyError, EOFError, MemoryError, BadZipFile, zlib.error) as error:
        raise refuse(raw / file) from error
    pairs = adjacency.tocoo()
    edges = torch.from_numpy(np.stack([pairs.row, pairs.col]).astype(np.int64))
    edges = to_undirected(remove_self_loops(edges)[0], num_nodes=labels.numel())
    rows = (
        torch.from_numpy(features.indptr.astype(np.int64)),
        torch.from_numpy(features.indices.astype(np.int64)),
    )
    content = tensor_digest([("indptr", rows[0]), ("indices", rows[1]), ("edge_index", edges), ("labels", labels)])
    if not trusted and content != entry.content:
        raise refuse(raw / file)
    x = torch.zeros(features.shape, dtype=torch.float32)
    x[torch.repeat_interleave(torch.arange(x.size(0)), rows[0].diff()), rows[1]] = 1
    return Data(x=x, edge_index=edges, y=labels)


def read_graphs(entry: Entry, raw: Path) -> list[Data]:
    """MUTAG and PROTEINS in the text form of GIN: the features of a node are its tag, as one of those there are.

    The first line has the number of graphs. Each graph has a line ``nodes label``, and each of its nodes one,
    ``tag degree neighbours…``; every edge is there twice, and needs to be read once.
    """
    ((file, accepted),) = entry.files.items()
    if not known_sum(raw / file, accepted):
        raise refuse(raw / file)
    lines = [[int(word) for word in line.split()] for line in (raw / file).read_text(encoding="ascii").splitlines()]
    for line in range(2, 2 + NUMBERED.get(file, 0)):
        _, tag, _, neighbour = lines[line]
        lines[line] = [tag, 1, neighbour]
    rows, found = iter(lines), []
    for _ in range(next(rows)[0]):
        size, label = next(rows)
        nodes = [next(rows) for _ in range(size)]
        pairs = [(node, other) for node, (_, degree, *others) in enumerate(nodes) for other in others[:degree]]
        ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
        edges = to_undirected(remove_self_loops(ends)[0], num_nodes=size)
        found.append((label, [tag for tag, *_ in nodes], edges))
    labels, tags = sorted({label for label, *_ in found}), sorted({tag for _, some, _ in found for tag in some})
    kinds = torch.eye(len(tags))
    return [
        Data(x=kinds[[tags.index(tag) for tag in some]], edge_index=edges, y=torch.tensor([labels.index(label)]))
        for label, some, edges in found
    ]


def _matrix(archive: "np.lib.npyio.NpzFile", part: str) -> sp.csr_matrix:
    matrix = sp.csr_matrix(
        (archive[f"{part}_data"], archive[f"{part}_indices"], archive[f"{part}_indptr"]),
        archive[f"{part}_shape"],
    )
    matrix.sum_duplicates()
    matrix.data = (matrix.data > 0).astype(np.float32)
    matrix.eliminate_zeros()
    return matrix
