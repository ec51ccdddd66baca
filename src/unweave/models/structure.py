"""What the built-in layers read off a graph, once for as long as nobody writes to it: sparse matrices and patterns.

Who asks for one has looked at the graph (:func:`unweave._core.memo.look`). A layer that cannot use them
(:func:`serves`) takes the path of PyG's layer that it derives from, which gives the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import degree

from unweave._core import sparse
from unweave._core.compat import listened_to, messages_listened_to, transformed
from unweave._core.memo import derive, look, origin, remembered, remembered_lightly
from unweave._core.sparse import Matrix, Pattern, eagerly, matmul
from unweave.errors import DataError

__all__ = [
    "Attention",
    "adjacency",
    "attention",
    "bare",
    "by_messages",
    "entering",
    "features",
    "normalised",
    "project",
    "serves",
    "spread",
]

_by_messages = ContextVar("by_messages", default=False)


@contextmanager
def by_messages() -> Iterator[None]:
    """Let the built-in layers compute as PyG's layers do, message by message, to compare with those."""
    token = _by_messages.set(True)
    try:
        yield
    finally:
        _by_messages.reset(token)


def serves(layer: MessagePassing, x: object, edge_index: object, edge_weight: object = None) -> bool:
    """Whether a layer may use what is remembered of this graph, instead of PyG's messages.

    Not where somebody wants the messages themselves (an explainer's masks, hooks on them), derivatives by
    the edges' weights, or any other kind of input than plain tensors in single or double precision.
    """
    if messages_listened_to(layer) or not _fits(x):
        return False
    if not (isinstance(edge_index, Tensor) and constant(edge_index) and edge_index.dtype == torch.long):
        return False
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.device != x.device:
        return False
    if edge_weight is not None:
        if not (isinstance(edge_weight, Tensor) and constant(edge_weight)):
            return False
        if edge_weight.dtype != x.dtype or edge_weight.shape != edge_index.shape[1:]:
            return False
    if getattr(layer, "given", True):  # a model looks at its graph in its first layer
        look(edge_index)
        if isinstance(edge_weight, Tensor):
            look(edge_weight)
    return True


def _fits(x: object) -> TypeGuard[Tensor]:
    """Whether our products can take a tensor: a dense matrix in single or double precision, taken as it is."""
    return (
        type(x) in (Tensor, nn.Parameter)
        and isinstance(x, Tensor)
        and x.dim() == 2
        and x.layout == torch.strided
        and x.dtype in (torch.float32, torch.float64)
        and x.device.type in ("cpu", "cuda")
        and not torch.is_autocast_enabled(x.device.type)
        and not torch.compiler.is_compiling()
        and not _by_messages.get()
    )


def constant(tensor: Tensor) -> bool:
    """Whether this is a plain tensor that nobody differentiates by, in either mode."""
    return (
        type(tensor) is Tensor
        and tensor.layout == torch.strided
        and not tensor.requires_grad
        and not transformed(tensor)
        and unpack_dual(tensor).tangent is None  # type: ignore[no-untyped-call]
    )


def bare(module: nn.Module) -> bool:
    """Whether nobody listens to calls of a module, so that its parameters may be used without calling it."""
    return not listened_to(module)


def project(x: Tensor, weight: Tensor, *, given: bool) -> Tensor:
    """X Wᵀ, by the sparse features where they are ``given`` with the graph and sparse enough."""
    matrix = _sparse(x, given)
    return F.linear(x, weight) if matrix is None else matmul(matrix, weight.t())


def spread(matrix: Matrix, x: Tensor, weight: Tensor, *, given: bool, own: Tensor | None = None) -> Tensor:
    """(A + own I) X Wᵀ, with messages as narrow as may be: where X is dense and narrower than X Wᵀ, it is sent."""
    narrow = x.size(1) < weight.size(0) and _sparse(x, given) is None
    h = x if narrow else project(x, weight, given=given)
    mixed = matmul(matrix, h) if own is None else matmul(matrix, h) + own * h
    return F.linear(mixed, weight) if narrow else mixed


def _sparse(x: Tensor, given: bool) -> Matrix | None:
    return features(x) if given and _fits(x) and constant(x) else None


def densest(device: torch.device) -> float:
    """The share of entries that are not zero up to which sparse features pay.

    Measured for X Wᵀ and its derivative with 3 to 64 columns: both ways cost the same near 20 % with MKL, near 5 % with
    torch's own kernel. On a GPU dense products are cheap, so the lower one holds.
    """
    return 0.15 if sparse.THREADED and device.type == "cpu" else 0.05


def entering(x: Tensor, *, unit: bool) -> Tensor:
    """What a model takes of a graph's features: as they are, or every row at length 1."""
    if not unit:
        return x
    return unit_rows(x) if _fits(x) and constant(x) else F.normalize(x, dim=-1)


@remembered
def unit_rows(x: Tensor) -> Tensor:
    """Every row at length 1; one of zeros stays so."""
    known = origin(x)
    with eagerly():
        scaled = F.normalize(x, dim=-1)
    if known is not None and known[1] is None:  # the same with more zeros
        look(scaled)
        derive(scaled, unit_rows(known[0]))
    return scaled


@remembered
def features(x: Tensor) -> Matrix | None:
    """X as a sparse matrix, ``None`` where that would not pay."""
    known = origin(x)
    with eagerly():
        if known is not None and known[1] is None:  # the same with more zeros
            before = features(known[0])
            if before is None:
                return None
            values = x[before.pattern.places]
            pattern, _ = before.pattern.only(values != 0)
            return Matrix(pattern, values[values != 0])
        if int(torch.count_nonzero(x)) > densest(x.device) * x.numel():
            return None
        return Matrix.dense(x)


@remembered_lightly
def normalised(edge_index: Tensor, edge_weight: Tensor | None, nodes: int, dtype: torch.dtype) -> Matrix:
    """D^-½ (A + I) D^-½ as in PyG; a node that has a self-loop keeps it instead."""
    with eagerly():
        known = looped(edge_index, nodes)
        if known is None:
            refuse_unknown(edge_index, nodes)
            (source, target), values = gcn_norm(edge_index, edge_weight, nodes, dtype=dtype)
            return Matrix.of(target, source, values, (nodes, nodes))
        row, col = known.pattern.places
        if edge_weight is None and known.entry.numel() == row.numel():  # no edge twice
            scale = known.pattern.crow.diff().to(dtype).rsqrt()
            return Matrix(known.pattern, scale[row] * scale[col])
        weight = torch.ones(known.entry.numel(), dtype=dtype, device=row.device)
        if edge_weight is not None:
            weight[: edge_weight.numel()] = edge_weight
        total = torch.zeros(row.numel(), dtype=dtype, device=row.device).index_add_(0, known.entry, weight)
        scale = torch.zeros(nodes, dtype=dtype, device=row.device).index_add_(0, row, total).rsqrt()
        scale = scale.masked_fill(scale == torch.inf, 0.0)  # as in PyG, where weights cancel out
        return Matrix(known.pattern, scale[row] * total * scale[col])


@dataclass(frozen=True)
class Looped:
    """Where A + I has entries, and which of them each stored edge is; then the loops, one for each node."""

    pattern: Pattern
    entry: Tensor


@remembered_lightly
def looped(edge_index: Tensor, nodes: int) -> Looped | None:
    """The places of A + I; ``None`` where it has self-loops of its own.

    Of a graph that lost edges they are those of the graph it was made of, less what went: that takes no sorting.
    """
    known = origin(edge_index)
    before = looped(known[0], nodes) if known is not None and known[1] is not None else None
    if known is not None and known[1] is not None and before is not None:
        entry = torch.cat([before.entry.index_select(0, known[1]), before.entry[known[0].size(1) :]])
        used = torch.zeros_like(before.pattern.col, dtype=torch.bool).index_fill_(0, entry, True)
        pattern, number = before.pattern.only(used)
        return Looped(pattern, number.index_select(0, entry))
    refuse_unknown(edge_index, nodes)
    source, target = edge_index
    if bool((source == target).any()):
        return None
    loops = torch.arange(nodes, device=edge_index.device)
    return Looped(*Pattern.of(torch.cat([target, loops]), torch.cat([source, loops]), (nodes, nodes)))


@remembered_lightly
def adjacency(
    edge_index: Tensor, nodes: int, dtype: torch.dtype, mean: bool, edge_weight: Tensor | None = None
) -> Matrix:
    """A, or D⁻¹A for the mean over the edges into a node; as in PyG, weights do not count in D."""
    with eagerly():
        refuse_unknown(edge_index, nodes)
        source, target = edge_index
        counts = degree(target, nodes, dtype=dtype)
        values = 1 / counts[target] if mean else torch.ones_like(target, dtype=dtype)
        values = values if edge_weight is None else values * edge_weight
        return Matrix.of(target, source, values, (nodes, nodes))


@dataclass(frozen=True)
class Attention:
    """Who attends to whom: every node to itself and to those with an edge to it, once for each head.

    Head h of node i is row and column i · heads + h.

    Attributes:
        pattern: The entries.
        row: Row of each, int64: who attends.
        col: Column of each, int64: to whom.
        counts: How many edges an entry stands for; ``None`` where there are no parallel ones.
    """

    pattern: Pattern
    row: Tensor
    col: Tensor
    counts: Tensor | None


@remembered_lightly
def attention(edge_index: Tensor, nodes: int, dtype: torch.dtype, heads: int) -> Attention:
    """The attention of a graph, its own self-loops replaced by one for each node."""
    with eagerly():
        refuse_unknown(edge_index, nodes)
        source, target = edge_index[:, edge_index[0] != edge_index[1]]
        loops = torch.arange(nodes, device=edge_index.device)
        head = torch.arange(heads, device=edge_index.device)
        row, col = ((torch.cat([end, loops])[:, None] * heads + head).flatten() for end in (target, source))
        size = nodes * heads
        pattern, entry = Pattern.of(row, col, (size, size))
        counts = torch.bincount(entry).to(dtype) if entry.numel() > pattern.col.numel() else None
        return Attention(pattern, pattern.rows(), pattern.col.long(), counts)


def refuse_unknown(edge_index: Tensor, nodes: int) -> None:
    if not edge_index.numel():
        return
    low, high = int(edge_index.min()), int(edge_index.max())
    if low < 0 or high >= nodes:
        raise DataError(f"edge_index names nodes {low} to {high}, but x has rows for 0 … {nodes - 1}")
