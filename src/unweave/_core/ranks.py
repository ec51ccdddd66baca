"""Several processes at one job: who takes part, and the little that they say to each other.

``torchrun`` starts them and tells each in its environment who it is. All of them run the same program on the same model
and graph and take the same decisions; only what :mod:`unweave.objective.parts.blocks` evaluates is spread. Nothing else
here knows of ``torch.distributed``.

Every exchange begins with a roll call of one shape. A rank that fails answers the next one, wherever the others are in
the program, with what went wrong, and all of them end with that error; one that is somewhere else than the others is
found out in the same way. A rank that is killed ends the connections of the others, and ``torchrun`` ends the command.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from unweave.errors import RankError, ServiceError, UnweaveError

__all__ = [
    "budget",
    "first",
    "first_holds",
    "in_turn",
    "is_first",
    "joined",
    "leave",
    "local_device",
    "rank",
    "ranks",
    "rows",
    "same",
    "size",
    "together",
    "total",
    "without",
]

T = TypeVar("T")

WAIT = timedelta(hours=6)
"""How long a rank waits for the others. One that died is noticed at once; this is for one that cannot be reached."""

TEXT = 4096
"""Bytes of an error that the others are told."""

TAGS = 2**20
"""What a place in the program is told by; squares of it are summed without rounding."""

_here: list["_Group"] = []


class _Group:
    """The ranks of this job, as one of them sees it."""

    def __init__(self, own: bool) -> None:
        self.own = own
        self.rank, self.size = dist.get_rank(), dist.get_world_size()


@contextmanager
def ranks() -> Iterator[None]:
    """Take part in the job that ``torchrun`` started, within the block; where nobody started one, change nothing.

    Everything that evaluates an objective within the block has to be called by all ranks, in the same order.

    Raises:
        RankError: The ranks cannot find each other, or one of them failed.
    """
    if _here or not _launched():
        with together("a block of ranks"):
            yield
        return
    _join()
    try:
        yield
    except BaseException as error:
        with suppress(RankError):
            leave(error)
        raise
    leave()


def _launched() -> bool:
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def _join() -> None:
    own = not dist.is_initialized()
    if own:
        kinds = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        try:
            store, number, count = next(rendezvous("env://", timeout=WAIT))
            again = os.environ.get(
                "TORCHELASTIC_RESTART_COUNT", "0"
            )  # where those before could be reached is noted too
            own_store = PrefixStore(f"unweave/{again}", store)
            dist.init_process_group(kinds, store=own_store, rank=number, world_size=count, timeout=WAIT)
        except (RuntimeError, ValueError) as error:
            raise RankError(
                f"the ranks cannot find each other ({_short(error)}); start all of them with torchrun, with the same "
                "--rdzv-endpoint or --master-addr"
            ) from error
    _here.append(_Group(own))


def leave(error: BaseException | None = None) -> None:
    """End the job together; an error that the others do not know yet is told to them.

    Raises:
        RankError: Another rank failed, and no error was given.
    """
    if not _here:
        return
    try:
        if error is None or not _is_told(error):
            _roll("the end", error)
    finally:
        group = _here.pop()
        if group.own:
            with suppress(RuntimeError):
                dist.destroy_process_group()


def joined() -> bool:
    """Whether this process is one of several ranks, or of a job of one."""
    return bool(_here)


def rank() -> int:
    """Which one."""
    return _here[0].rank if _here else 0


def size() -> int:
    """Of how many."""
    return _here[0].size if _here else 1


def is_first() -> bool:
    """Whether this is the one that writes files and speaks."""
    return rank() == 0


def budget(memory_mib: float | None) -> float | None:
    """What evaluating a model may hold at a time; ranks evaluate in blocks also where there is no bound."""
    return float("inf") if memory_mib is None and _here else memory_mib


def without(option: str) -> str:
    """What to do about something that cannot be had in blocks."""
    return "start it in one process, without torchrun" if _here else f"leave {option} out"


def local_device(device: torch.device) -> torch.device:
    """The device of this rank, where one of a kind is asked for."""
    if not _here or str(device) != "cuda":  # which names none of them
        return device
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= there:
        raise RankError(f"there are {there} GPUs here, and more ranks; start at most --nproc-per-node {there}")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


@contextmanager
def together(kind: str, theta: Tensor | None = None) -> Iterator[None]:
    """Do a part of some work that all ranks do: they end the block together, all of them with an error if one has it.

    Args:
        kind: What work; all must do the same.
        theta: Where; that must be the same number for number.
    """
    if not _here:
        yield
        return
    try:
        yield
    except Exception as error:
        if not _is_told(error):
            _roll(kind, error)
        raise
    _roll(kind if theta is None else f"{kind} at {_checksum(theta)}", None)


def total(values: Tensor) -> Tensor:
    """The sum over the ranks, the same on each bit by bit; those that are to be exact are given in double precision."""
    if not _here:
        return values
    found = values.clone()
    with _reaching():
        dist.all_reduce(found)
    return found


def rows(some: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all ranks, one after the other.

    Args:
        some: Those of this rank.
        counts: How many each has.
    """
    if not _here:
        return some
    most = max(counts)
    padded = some.new_zeros(most, *some.shape[1:])
    padded[: some.size(0)] = some
    found = [torch.empty_like(padded) for _ in counts]
    with _reaching():
        dist.all_gather(found, padded)
    return torch.cat([part[:count] for part, count in zip(found, counts, strict=True)])


def same(tensor: Tensor) -> Tensor:
    """What the first rank has, on all."""
    if not _here:
        return tensor
    found = tensor.clone()
    with _reaching():
        dist.broadcast(found, 0)
    return found


def first(work: Callable[[], T]) -> T:
    """Do something on the first rank alone, like writing a file; the others wait, and get its result or its error.

    Args:
        work: What it gives is a number, a text, nothing, or a list of these.
    """
    if not _here:
        return work()
    found: Any = None
    with together("before what the first rank does alone"):
        pass  # whoever still looks whether a file is there must not see the new one
    with together("what the first rank does alone"):
        found = work() if is_first() else None
    text = json.dumps(found).encode() if is_first() else b""
    length = int(same(torch.tensor(len(text))))
    content = torch.tensor(list(text) if is_first() else [0] * length, dtype=torch.uint8)
    given: T = json.loads(bytes(same(content).tolist()))
    return given


@contextmanager
def first_holds(held: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Hold something on the first rank alone, like a lock, within the block; the others wait until it has it."""
    with held() if is_first() else nullcontext():
        with together("what the first rank holds"):
            pass
        yield


@contextmanager
def in_turn() -> Iterator[None]:
    """Do something on the first rank, like getting a file from elsewhere, then on the others, which find it there."""
    if is_first():
        with together("the first has it"):
            yield
        return
    with together("the first has it"):
        pass
    yield


def _roll(kind: str, error: BaseException | None) -> None:
    """Call the roll: all are at the same place, and nobody has failed."""
    tag = zlib.crc32(kind.encode()) % TAGS
    told = torch.tensor([0 if error is None else 1, tag, tag * tag], dtype=torch.float64)
    with _reaching():
        dist.all_reduce(told)
    failed, tags, squares = told.tolist()
    if failed:
        _tell(error)
    elif (tags, squares) != (tag * size(), tag * tag * size()):
        raise _marked(
            RankError(
                f"the ranks are not at the same place of the program any more (rank {rank()}: {kind}); their machines "
                "compute different numbers, or were given different files. Nothing was written. Start the same "
                "versions on machines of one kind, with the same number of threads (OMP_NUM_THREADS)"
            )
        )


def _tell(error: BaseException | None) -> None:
    """Tell the others what went wrong here, or hear it: all know it afterwards."""
    text = b"" if error is None else f"{type(error).__name__}\n{error}".encode()[:TEXT]
    own = torch.zeros(TEXT, dtype=torch.uint8)
    own[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    found = [torch.empty_like(own) for _ in range(size())]
    with _reaching():
        dist.all_gather(found, own)
    if error is not None:
        _marked(error)
        return  # who has it raises it
    number, told = next((n, t) for n, t in enumerate(found) if bool(t.any()))
    name, _, words = bytes(told.tolist()).rstrip(b"\0").decode(errors="replace").partition("\n")
    kind = next((kind for kind in _kinds(UnweaveError) if kind.__name__ == name), None)
    if kind is not None and kind is not ServiceError:
        raise _marked(kind(words))
    raise _marked(RankError(f"rank {number} of {size()} failed ({name}: {words}); nothing was written"))


@contextmanager
def _reaching() -> Iterator[None]:
    """Say in words that another rank is gone."""
    try:
        yield
    except RuntimeError as error:
        raise _marked(
            RankError(
                f"another of the {size()} ranks ended or cannot be reached ({_short(error)}). What was on disk is as "
                "it was; start the same command again"
            )
        ) from error


def _kinds(kind: type[UnweaveError]) -> Iterator[type[UnweaveError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _marked(error: BaseException) -> Any:
    error.told = True  # type: ignore[attr-defined] # all ranks know it, or nobody can be told any more
    return error


def _is_told(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "told", False):
            return True
        error = error.__cause__ or error.__context__
    return False


def _short(error: BaseException) -> str:
    """The first sentence of an error of torch, without the place in its sources."""
    line = re.sub(r"^.*?\[/[^]]*\]\s*", "", (str(error).strip() or type(error).__name__).splitlines()[0])
    return line.split(". ")[0][:200]


def _checksum(theta: Tensor) -> int:
    return zlib.crc32(theta.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
