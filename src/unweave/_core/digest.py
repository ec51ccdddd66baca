"""Digests that identify tensors, parameters and graphs."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.document import document_digest
from unweave._core.mapped import mapped

__all__ = ["graph_digest", "tensor_digest"]


def tensor_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, types, shapes and bytes of tensors, in the order given."""
    sha = hashlib.sha256()
    for name, tensor in _fetched([part for own, whole in named for part in _stored(own, whole.detach())]):
        kind, flat = _plain(tensor.contiguous())
        sha.update(f"{name}|{kind}|{tuple(tensor.shape)}|".encode())
        sha.update(flat.numpy().view("uint8").data)  # no copy: it may be larger than memory
    return sha.hexdigest()


def _plain(tensor: Tensor) -> tuple[str, Tensor]:
    """The type of a tensor's numbers and these in a row, of a type that numpy has."""
    flat = tensor.reshape(-1)
    try:
        return flat.numpy().dtype.str, flat
    except TypeError:  # bfloat16 and others of which numpy knows nothing
        return str(tensor.dtype), flat.view(torch.uint8)


def _stored(name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """A tensor as the dense ones that it is stored as: itself, or of a sparse one places and values."""
    if tensor.layout is torch.strided:
        return [(name, tensor)]
    whole = f"{name}|{tensor.layout}|{tuple(tensor.shape)}"
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return [(f"{whole}|indices", tensor.indices()), (f"{whole}|values", tensor.values())]
    rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    ends, places = (
        (tensor.crow_indices(), tensor.col_indices()) if rows else (tensor.ccol_indices(), tensor.row_indices())
    )
    return [(f"{whole}|ends", ends), (f"{whole}|places", places), (f"{whole}|values", tensor.values())]


def _fetched(named: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Tensors on the CPU; those of one type on one GPU come in a single transfer."""
    tensors = [tensor for _, tensor in named]
    kinds = {(tensor.device, tensor.dtype) for tensor in tensors}
    if len(tensors) < 2 or len(kinds) > 1 or not tensors[0].is_cuda:
        fetched = [tensor.cpu() for tensor in tensors]
    else:
        together = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()
        pieces = torch.split(together, [tensor.numel() for tensor in tensors])
        fetched = [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]
    return [(name, tensor) for (name, _), tensor in zip(named, fetched, strict=True)]


def graph_digest(data: Data) -> str:
    """Identify a graph by all that training may look at; labels of test nodes are not read.

    Of features and edges that are mapped the digest of their file stands for them.
    """
    used = data.train_mask | data.val_mask if data.get("val_mask") is not None else data.train_mask
    tensors = [(k, v) for k, v in sorted(data.to_dict().items()) if isinstance(v, Tensor) and k != "y"]
    files = {k: file.digest for k, v in tensors if (file := mapped(v)) is not None and file.digest}
    digest = tensor_digest([*((k, v) for k, v in tensors if k not in files), ("y", torch.as_tensor(data.y)[used])])
    return document_digest([digest, files]) if files else digest
