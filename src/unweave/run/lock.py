"""One writer of a run at a time: a lock beside its folder.

The lock is the file ``.NAME.unweave-lock`` beside the folder ``NAME``: not in it, because the folder is replaced as a
whole. Only who writes takes it; who reads neither makes it nor looks at it. It holds nothing: it is never written to,
a link in its place is not followed, and what is not a plain file of this user is refused. Its holder deletes it before
letting go; the lock of a process that was killed is free, and the next writer takes it over.
"""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unweave.errors import RunError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows)
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock_of", "locked"]


class _Hold:
    """A lock that this process holds."""

    def __init__(self, handle: int) -> None:
        self.handle: int | None = handle


class _Own(threading.local):
    """The locks that a thread holds, by the place of their files."""

    def __init__(self) -> None:
        self.holds: dict[Path, _Hold] = {}


_own = _Own()
_all: set[_Hold] = set()


def lock_of(path: Path) -> Path:
    """Where the lock of a folder is while somebody writes it."""
    path = path.resolve()
    return path.parent / f".{path.name}.unweave-lock"


@contextmanager
def locked(path: str | Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Let nobody else write a run within the block: for whoever opens it, forgets and saves in its place.

    Where another process or thread is at it, this waits until that has finished. A block inside another one of the same
    thread and folder changes nothing, so that what saves within it does not wait for itself.

    Args:
        path: The folder of the run; it need not exist, the folder around it must.
        waiting: Called once where there is somebody to wait for.

    Raises:
        RunError: The lock cannot be had: no such place, a link or the file of somebody else where it should be, or a
            system without such locks.
    """
    lock = lock_of(Path(path))
    if lock in _own.holds:
        yield
        return
    hold = _taken(lock, waiting)
    _all.add(hold)
    _own.holds[lock] = hold
    try:
        yield
    finally:
        if _own.holds.get(lock) is hold:
            del _own.holds[lock]
        _let_go(lock, hold)


def _taken(lock: Path, waiting: Callable[[], None] | None) -> _Hold:
    while True:
        handle = _opened(lock)
        try:
            if not _lock(handle, wait=False):
                if waiting is not None:
                    waiting()
                    waiting = None
                _lock(handle, wait=True)
            if _is_there(handle, lock):  # otherwise the one before deleted it, and there may be another one by now
                return _Hold(handle)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _opened(lock: Path) -> int:
    """The file of a lock, made where there is none; refused where it is not one."""
    if fcntl is None:
        raise RunError(
            "this system has no locks of files (fcntl), so that runs cannot be written safely on it; use Linux or macOS"
        )
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        handle = os.open(lock, flags, 0o600)
    except OSError as error:
        raise RunError(
            f"cannot lock {lock.name} in {lock.parent}: {error.strerror}; it must be a plain file of yours, in a "
            "folder that you can write to. Where it is a link or belongs to somebody else, delete it"
        ) from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise RunError(f"{lock} is not a plain file of yours, so it is no lock of a run; delete it, and try again")
    return handle


def _lock(handle: int, *, wait: bool) -> bool:
    """Take a lock; whether it was free."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise RunError(
            f"this file system has no locks, so that runs cannot be written safely on it: {error}"
        ) from error
    return True


def _is_there(handle: int, lock: Path) -> bool:
    """Whether an open file is the one at its place."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(lock, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _let_go(lock: Path, hold: _Hold) -> None:
    _all.discard(hold)
    if hold.handle is None:  # that of the process this one was forked from
        return
    try:
        with suppress(OSError):
            lock.unlink()
        fcntl.flock(hold.handle, fcntl.LOCK_UN)  # forked processes may have it open as well
    finally:
        os.close(hold.handle)


def _after_fork() -> None:
    """A forked process holds none of the locks of the one it came from."""
    for hold in _all:
        if hold.handle is not None:
            os.close(hold.handle)
            hold.handle = None
    _all.clear()
    _own.holds.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
