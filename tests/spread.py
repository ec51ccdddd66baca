"""Do a piece of work in several processes that are ranks of one job, as torchrun starts them."""

import os
import socket
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch

import unweave as uw

LONG = 120
"""Seconds after which a rank that does not end is killed: it hangs."""


def spread(
    warm: ForkServerContext, count: int, folder: Path, work: Callable[..., Any], *args: Any
) -> list[dict[str, Any]]:
    """What the work gave on each rank, or the error it ended with."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = [folder / f"{work.__name__}-{count}-{rank}.pt" for rank in range(count)]
    there = [
        warm.Process(target=_one, args=(rank, count, port, place, work, args)) for rank, place in enumerate(places)
    ]
    for process in there:
        process.start()
    for process in there:
        process.join(LONG)
    hanging = [rank for rank, process in enumerate(there) if process.is_alive()]
    for process in there:
        process.kill()
    assert not hanging, f"ranks {hanging} hang"
    return [
        torch.load(place, weights_only=True) if place.exists() else {"gone": p.exitcode}
        for place, p in zip(places, there, strict=True)
    ]


def _one(rank: int, count: int, port: int, place: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    found: dict[str, Any]
    try:
        with uw.ranks():
            found = {"found": work(*args)}
    except Exception as error:
        found = {"error": type(error).__name__, "says": str(error)}
    torch.save(found, place)
