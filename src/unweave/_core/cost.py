"""Count and time the work: passes over the graph, seconds per phase, peak memory."""

import ctypes
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from unweave._core import ranks
from unweave.errors import UnweaveError

__all__ = ["Meter", "find_device", "peak_memory"]


def find_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise UnweaveError(f"unknown device {name!r}; use cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnweaveError(f"device {name!r} was asked for, but torch sees no CUDA device here; use cpu")
    return ranks.local_device(device)


class Meter:
    """Passes over the whole graph and wall-clock seconds per phase.

    One pass is one forward or backward sweep of the model over the graph; an epoch of training is two, and so is
    a product with the curvature. A sweep over a part of the graph counts as the share of the nodes that it holds; one
    that ranks do together, and a call of a model made of several, as one.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.passes: float = 0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to phase ``name``."""
        start = self.now()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - start

    def now(self) -> float:
        """A clock reading after all work queued on the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


@contextmanager
def peak_memory(device: torch.device) -> Iterator[list[float]]:
    """Yield a list that holds, after the block, the peak memory of the block in MiB.

    On CUDA this is the allocator's peak above what was allocated at the start; on Linux the peak of
    resident memory above its value at the start; elsewhere the growth of the process's high-water mark.
    """
    result: list[float] = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        start = _allocated(device)["current"]
        yield result
        result.append((_allocated(device)["peak"] - start) / 2**20)
        return
    _reset_high_water()
    before = _resident("VmRSS")
    yield result
    result.append(max(0.0, _resident("VmHWM") - before))


def _allocated(device: torch.device) -> dict[str, int]:
    """Bytes that tensors hold on a GPU; torch's own functions for one number sort all of them first."""
    found: dict[str, int] = torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]
    return found


def _reset_high_water() -> None:
    """Give freed memory back to the system, so that its reuse counts, and lower the mark to what is left."""
    with suppress(OSError, AttributeError):  # not Linux, or not allowed: the mark then only ever grows
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def _resident(field: str) -> float:
    """MiB of resident memory now (``VmRSS``) or at its highest (``VmHWM``)."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    with suppress(ImportError):
        import resource  # noqa: PLC0415 (not on every platform)

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
    return 0.0
