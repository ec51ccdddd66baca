"""What asks for a change beside a request: which methods answer it, and what it makes of the graph."""

from torch_geometric.data import Data

from unweave._core import ranks
from unweave.changes import Change
from unweave.errors import MethodError
from unweave.graph.alteration import Alteration, alter
from unweave.graph.removal import Removal, remove
from unweave.methods.base import Method
from unweave.request import Request

__all__ = ["Asked", "as_asked", "carried_out", "check_answers", "spread_along"]

Asked = Request | Change
"""What a model is to follow: a deletion, or a change."""


def as_asked(asked: Asked) -> Asked:
    """A change that only forgets as the request that it is."""
    return asked if isinstance(asked, Request) else asked.deletion or asked


def check_answers(how: Method, *, defer: bool = False, bounded: bool = False) -> None:
    """Refuse a method that knows deletions alone, before any work."""
    if not how.changes:
        raise MethodError(
            f"method {how.name!r} answers deletions alone, not data that is added or corrected; use method='gif' or "
            "'retrain' for the change, or forget what is to go with a request of its own"
        )
    for asked, name in ((defer, "defer (--defer)"), (bounded, "memory_mib (--memory-mib)")):
        if asked and ranks.joined():
            raise MethodError(f"ranks share the work of deletions alone; {ranks.without(name)}")
        if asked:
            raise MethodError(f"{name} is for deletions alone, not for data that is added or corrected; leave it out")


def carried_out(data: Data, asked: Asked) -> tuple[Data, Removal]:
    """The graph before, of as many nodes as the one after, and what became of it."""
    if isinstance(asked, Request):
        return data, remove(data, asked)
    done = alter(data, asked)
    return done.before, done


def spread_along(data: Data, removal: Removal) -> Data:
    """The graph along which an influence spreads."""
    return removal.both if isinstance(removal, Alteration) else data
