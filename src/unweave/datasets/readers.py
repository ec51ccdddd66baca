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

__all__ = ["read_npz", "read_planetoid"]


LARGEST = 2**28
"""Bytes to which a file of an unknown packing may unfold before anybody knows what is in it; the largest of the known
ones has 30 MiB."""


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


def _matrix(archive: "np.lib.npyio.NpzFile", part: str) -> sp.csr_matrix:
    matrix = sp.csr_matrix(
        (archive[f"{part}_data"], archive[f"{part}_indices"], archive[f"{part}_indptr"]),
        archive[f"{part}_shape"],
    )
    matrix.sum_duplicates()
    matrix.data = (matrix.data > 0).astype(np.float32)
    matrix.eliminate_zeros()
    return matrix
