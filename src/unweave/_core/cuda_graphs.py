"""Record a function of one tensor as a CUDA graph, so that running it again costs one launch instead of hundreds."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unweave._core.compat import DispatchMode, storage_key
from unweave._core.memory import storages_in
from unweave.errors import UnweaveError

__all__ = ["LOOKS", "Function", "Outsiders", "Recording", "aside", "record"]

Function = Callable[[Tensor], tuple[Tensor, ...]]

LOOKS = 3
"""How often a function is run in order to be recorded, at most: once, where it waits for nothing."""


class Recording(NamedTuple):
    """What became of a function that was to be recorded.

    Attributes:
        function: The function recorded, or as it was.
        whether: Which of them, in words.
        looks: How often it was run for that. While CUDA watches nothing is computed.
    """

    function: Function
    whether: str
    looks: int


class _Recorded:
    """A function that was run once while CUDA watched, and is replayed from then on.

    It must do nothing but queue work on the GPU: whatever waits for a result (a value that Python looks at, a selection
    whose size depends on the data) cannot be recorded. That is found out before CUDA watches, as a recording that is
    broken off leaves torch's random numbers in disorder.
    """

    def __init__(self, function: Function, example: Tensor) -> None:
        device = example.device
        self._input = example.detach().clone()
        with aside(device):
            try:
                self._try(function)
            except RuntimeError:
                function(self._input)  # what is found out once and remembered may wait
                self._try(function)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=_pool(device), stream=_stream(device)), Outsiders() as outsiders:
            self._outputs = function(self._input)
        # A recording reads where these lay, whoever else lets go of them.
        self._held = outsiders.storages

    def _try(self, function: Function) -> None:
        """Run it as it will be while CUDA watches, when nobody may wait."""
        with _nobody_waits():
            function(self._input)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the function gives for another tensor of the same shape."""
        self._input.copy_(x)
        self._graph.replay()
        return tuple(output.clone() for output in self._outputs)


class Outsiders(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes, within the block, all memory that is read there and was not made there.

    Attributes:
        storages: That memory; it stays for as long as this is held.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: list[torch.UntypedStorage] = []
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation: what it is given and nobody here has made comes from outside."""
        for storage in storages_in((args, kwargs)):
            if storage_key(storage) not in self._known:
                self._known.add(storage_key(storage))
                self.storages.append(storage)
        result = func(*args, **(kwargs or {}))
        self._known.update(storage_key(storage) for storage in storages_in(result))
        return result


def record(function: Function, example: Tensor) -> Recording:
    """The function recorded, where it runs on a GPU and can be; otherwise the function itself."""
    if example.device.type != "cuda":
        return Recording(function, f"no: it runs on the {example.device.type}", 0)
    calls = 0

    def counted(x: Tensor) -> tuple[Tensor, ...]:
        nonlocal calls
        calls += 1
        return function(x)

    try:
        recorded = _Recorded(counted, example)
    except (RuntimeError, ImportError, UnweaveError) as error:
        torch.cuda.synchronize(example.device)
        _settle_random_numbers()
        return Recording(function, f"no: {str(error).splitlines()[0]}", calls)
    return Recording(recorded, "yes", calls - 1)


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """Work on the stream that recordings are made on; on the CPU this does nothing.

    A derivative runs on the stream of what it is the derivative of, so a graph of derivatives that a recording is to
    run along must have been made here.
    """
    if device.type != "cuda":
        yield
        return
    stream, here = _stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        yield
    here.wait_stream(stream)


@lru_cache
def _stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@lru_cache
def _pool(device: torch.device) -> Any:
    """Memory that recordings share: no two of them ever run at the same time."""
    with torch.cuda.device(device):
        return torch.cuda.graph_pool_handle()


@contextmanager
def _nobody_waits() -> Iterator[None]:
    """Make it an error to wait for the GPU."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _settle_random_numbers() -> None:
    """After a recording that was broken off torch believes to be recording still; one of nothing ends that."""
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is empty
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass
