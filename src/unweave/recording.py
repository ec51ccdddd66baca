"""Record a function of one tensor as a CUDA graph, so that running it again costs one launch instead of hundreds."""

from collections.abc import Callable

import torch
from torch import Tensor

from unweave.errors import UnweaveError

__all__ = ["Recorded", "record"]

Function = Callable[[Tensor], tuple[Tensor, ...]]
WARM_UP = 2


class Recorded:
    """A function that was run once while CUDA watched, and is replayed from then on.

    It must do nothing but queue work on the GPU: whatever waits for a result (a value that Python looks at, a selection
    whose size depends on the data) cannot be recorded.

    Args:
        function: From one tensor to several, always of the same shapes.
        example: A tensor it may be called with.
    """

    def __init__(self, function: Function, example: Tensor) -> None:
        self._input = example.detach().clone()
        aside = torch.cuda.Stream(example.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(example.device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                function(self._input)
        torch.cuda.current_stream(example.device).wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = function(self._input)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the function gives for another tensor of the same shape."""
        self._input.copy_(x)
        self._graph.replay()
        return tuple(output.clone() for output in self._outputs)


def record(function: Function, example: Tensor) -> tuple[Function, str]:
    """The function recorded, where it runs on a GPU and can be; otherwise the function itself. And which, in words."""
    if example.device.type != "cuda":
        return function, f"no: it runs on the {example.device.type}"
    try:
        return Recorded(function, example), "yes"
    except (RuntimeError, UnweaveError) as error:
        torch.cuda.synchronize(example.device)
        return function, f"no: {str(error).splitlines()[0]}"
