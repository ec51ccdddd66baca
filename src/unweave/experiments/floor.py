"""The physical floor: what the passes of a request must move and compute at least, over what the machine can do.

Counted from shapes and from the numbers of stored entries, for the built-in models. Every operation reads each of its
inputs once and writes its output once, features and adjacency are kept in whichever of the dense and the sparse form is
smaller, activations are fused, and linear steps come in their cheapest order:

    [n, a] · [a, b]     4 (na + ab + nb) bytes,               2nab operations
    X · [a, b]          the same with the bytes of X,          2 nnz(X) b
    Â · [n, b]          4 (nnz(Â) + 2n + 2nb)                  2 nnz(Â) b
    attention, k heads  4 (nnz(Â) + n + 2nk + 2nb)             nnz(Â) (2b + 6k)

Â is the adjacency with self-loops. Its entries follow from the degrees, so an index for each and a degree for each node
will do. A backward pass costs the same again for each of the two things that a product is differentiated by; the
features are not differentiated. Graphs that fit a cache may beat the floor: the bandwidth is that of main memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.errors import ModelError
from unweave.models import GAT, GCN, GIN, SGC

__all__ = ["Machine", "Work", "measure_machine", "work_of_a_pass"]

WORD = 4
ATTENTION = 6
"""Operations for each edge and head: sum, slope, maximum, exponential, sum over the neighbours, division."""

PRODUCT = 2048
"""Side of the matrices whose product times a CPU: large enough for its full rate, small enough not to take seconds."""


@dataclass(frozen=True)
class Work:
    """Bytes moved and floating-point operations."""

    bytes: float
    operations: float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.bytes + other.bytes, self.operations + other.operations)

    def __mul__(self, times: float) -> "Work":
        return Work(self.bytes * times, self.operations * times)


@dataclass(frozen=True)
class Machine:
    """What a device was seen to do.

    Attributes:
        bandwidth: Bytes a second, by a triad a = b + s·c over arrays that fit no cache.
        rate: Floating-point operations a second, by a matrix product in single precision.
    """

    bandwidth: float
    rate: float

    def seconds(self, work: Work) -> float:
        """The least time for some work, memory and arithmetic overlapping."""
        return max(work.bytes / self.bandwidth, work.operations / self.rate)


def measure_machine(device: torch.device, *, side: int = 8192, repeats: int = 5) -> Machine:
    """The best of some repeats of a triad and of a matrix product, on this device, now.

    Args:
        device: Where.
        side: An array of the triad has ``side²`` numbers; three of them, 768 MiB, are more than caches hold.
        repeats: How many, after one to warm up.
    """
    a, b, c = (torch.ones(side, side, device=device) for _ in range(3))
    triad = min(_clock(device, lambda: torch.add(b, c, alpha=0.5, out=a)) for _ in range(repeats + 1))
    part = side if device.type == "cuda" else min(side, PRODUCT)
    u, v, out = (matrix[:part, :part].contiguous() for matrix in (a, b, c))
    product = min(_clock(device, lambda: torch.mm(u, v, out=out)) for _ in range(repeats + 1))
    return Machine(3 * WORD * a.numel() / triad, 2 * part**3 / product)


def work_of_a_pass(model: nn.Module, data: Data) -> Work:
    """The mean of a forward and a backward pass of a built-in model: passes come in such pairs."""
    forward, backward = Work(0, 0), Work(0, 0)
    for once, derivatives in _steps(model, data):
        forward += once
        backward += once * derivatives
    return (forward + backward) * 0.5


def _steps(model: nn.Module, data: Data) -> Iterator[tuple[Work, int]]:
    """The linear steps of a model, and by how many things each is differentiated."""
    config = getattr(model, "config", None)
    if not isinstance(model, GCN | SGC | GIN | GAT) or not isinstance(config, dict):
        raise ModelError(f"the floor is known for the built-in models, not for {type(model).__name__}")
    n, entries = int(data.num_nodes), data.edge_index.size(1) + int(data.num_nodes)
    classes = config["out_channels"]

    def first(width: int) -> tuple[Work, int]:
        return _features(data.x, width), 1

    def spread(width: int) -> tuple[Work, int]:
        return Work(WORD * (entries + 2 * n + 2 * n * width), 2 * entries * width), 1

    def dense(a: int, b: int) -> tuple[Work, int]:
        return Work(WORD * (n * a + a * b + n * b), 2 * n * a * b), 2

    def attend(heads: int, width: int) -> tuple[Work, int]:
        moved = WORD * (entries + n + 2 * n * heads + 2 * n * width)
        return Work(moved, entries * (2 * width + ATTENTION * heads)), 2

    if config.get("direct"):
        yield first(classes * (1 if isinstance(model, GCN) else config["layers"] + 1))
        yield from (spread(classes) for _ in range(config["layers"]))
    if isinstance(model, SGC):
        yield first(classes)
        yield from (spread(classes) for _ in range(config["steps"]))
    elif isinstance(model, GCN):
        hidden = config["hidden"]
        yield from (first(hidden), spread(hidden), dense(hidden, classes), spread(classes))
    elif isinstance(model, GIN):
        hidden = config["hidden"]
        yield from (first(hidden), spread(hidden), dense(hidden, hidden))
        yield from (dense(hidden, hidden), spread(hidden), dense(hidden, classes))
    else:
        heads, hidden = config["heads"], config["heads"] * config["hidden"]
        yield from (first(hidden), attend(heads, hidden), dense(hidden, classes), attend(1, classes))


def _features(x: Tensor, width: int) -> Work:
    """X · [a, b], with X in its smaller form: all numbers, or a value and a column for each that is not zero."""
    n, a = x.shape
    stored = int(torch.count_nonzero(x))
    held = min(WORD * n * a, WORD * (2 * stored + n))
    return Work(held + WORD * (a * width + n * width), 2 * stored * width)


def _clock(device: torch.device, work: Callable[[], object]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - start
