"""Parts of one job side by side, on as many threads as torch has (``torch.set_num_threads``, ``OMP_NUM_THREADS``).

NumPy, SciPy, hashing and reading let go of Python's lock while they work, so threads are enough.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["side_by_side"]

Item = TypeVar("Item")
Found = TypeVar("Found")


def side_by_side(work: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """Do some work on every item; what was found comes in their order, and no more than one is ahead of each thread."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Found]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()
