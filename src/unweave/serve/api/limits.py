"""How often and how much anybody may send."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unweave.serve.api.problems import problem

__all__ = ["BodyLimit", "Buckets", "address"]

MOST = 10_000
"""Senders that are remembered at a time."""


class Buckets:
    """A bucket a sender, which fills steadily; a request takes one drop. Only the event loop uses it.

    Args:
        rate: Drops a second.
        burst: Drops that it holds.
        clock: Seconds.
    """

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self._level: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, sender: str) -> int:
        """Take a drop; 0, or the seconds after which there is one again."""
        at = self.clock()
        level, before = self._level.pop(sender, (float(self.burst), at))
        level = min(float(self.burst), level + (at - before) * self.rate)
        fine = level >= 1
        self._level[sender] = (level - 1 if fine else level, at)
        if len(self._level) > MOST:  # who was silent longest is forgotten first
            self._level.popitem(last=False)
        return 0 if fine else max(1, math.ceil((1 - level) / self.rate))


def address(scope: Scope) -> str:
    """Where a request comes from; whoever has one address of version 6 has 2⁶⁴ of them, which count as one."""
    host = str((scope.get("client") or ("unknown",))[0])
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if found.version == 4 else str(ipaddress.ip_network((int(found), 64), strict=False))


class _TooLongError(Exception):
    pass


class BodyLimit:
    """Refuses a body that is too long, whatever its header says, before all of it was read.

    Args:
        app: What lies behind it.
        kib: Longest body, in KiB.
    """

    def __init__(self, app: ASGIApp, *, kib: int) -> None:
        self.app, self.kib = app, kib

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = problem(413, f"a body has up to {self.kib} KiB", headers={"Connection": "close"})
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if len(lengths) > 1 or any(not value.isdigit() for value in lengths):
            refusal = problem(400, "Content-Length is no number")
            await refusal(scope, receive, send)
            return
        if any(len(value) > 18 or int(value) > self.kib * 1024 for value in lengths):
            await refusal(scope, receive, send)
            return
        await self._counted(scope, receive, send, refusal)

    async def _counted(self, scope: Scope, receive: Receive, send: Send, refusal: ASGIApp) -> None:
        read, begun = 0, False

        async def counting() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.kib * 1024:
                raise _TooLongError
            return message

        async def sending(message: Message) -> None:
            nonlocal begun
            if begun or read <= self.kib * 1024:  # what the application makes of the interruption is not the answer
                begun = True
                await send(message)

        with suppress(_TooLongError):
            await self.app(scope, counting, sending)
        if read > self.kib * 1024 and not begun:
            await refusal(scope, receive, send)
