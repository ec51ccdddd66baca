"""Requests one after another, or as one: all are looked at before the first, and what was done is never lost."""

import copy
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path

from unweave.changes import Change
from unweave.datasets.own import writing_graph
from unweave.errors import EmptyRequestError, InterruptedStream, RequestError, UnweaveError
from unweave.graph.removal import check_request
from unweave.graph.view import as_view
from unweave.methods.changing import Asked, as_asked, carried_out
from unweave.request import Request
from unweave.run.forget import forget, refused
from unweave.run.gone import left_of, outstanding
from unweave.run.purge import purge
from unweave.run.state import State
from unweave.run.store import save
from unweave.run.wish import Wish
from unweave.training.adam import Progress

__all__ = ["forget_all", "listed", "listed_changes"]

NAMED = 10
"""Bad requests that an error names; of the others it says how many there are."""


def listed_changes(changes: Asked | Iterable[Asked]) -> list[Asked]:
    """Changes as a list, whatever they come as; one that only forgets is the request that it is."""
    if isinstance(changes, Request | Change):
        return [as_asked(changes)]
    if isinstance(changes, Mapping | str | bytes) or not isinstance(changes, Iterable):
        raise RequestError(
            f"what to change is an unweave.Change, or several of them, got {type(changes).__name__}; Change.from_dict "
            "and Change.read make one"
        )
    found = list(changes)
    wrong = next((c for c in found if not isinstance(c, Request | Change)), None)
    if wrong is not None or not found:
        what = f"a {type(wrong).__name__}" if found else "none"
        raise RequestError(f"changes must be one unweave.Change or more, got {what}")
    return [as_asked(change) for change in found]


def listed(requests: Request | Iterable[Request]) -> list[Asked]:
    """The requests as a list, whatever they come as: one, a list, a generator."""
    if isinstance(requests, Request):
        return [requests]
    if isinstance(requests, Mapping | str | bytes) or not isinstance(requests, Iterable):
        raise RequestError(
            f"what to forget is an unweave.Request, or several of them, got {type(requests).__name__}; "
            "Request.from_dict and Request.read make one"
        )
    found: list[Asked] = list(requests)
    wrong = next((r for r in found if not isinstance(r, Request)), None)
    if wrong is not None or not found:
        what = f"a {type(wrong).__name__}" if found else "none"
        raise RequestError(f"requests must be one unweave.Request or more, got {what}")
    return found


def forget_all(
    state: State,
    requests: list[Asked],
    wish: Wish,
    *,
    batch: bool = False,
    out: Path | None = None,
    graph: Path | None = None,
    skip_invalid: bool = False,
    progress: Progress | None = None,
) -> State:
    """Carry out requests one after another; see :meth:`unweave.Run.forget`."""
    wish.method_for(state)
    bad = _bad(state, requests) if len(requests) > 1 else {}  # that looks at the whole graph
    if bad and not skip_invalid:
        raise _all_at_once(bad, requests)
    if batch and all(isinstance(request, Request) for request in requests):
        for number, error in bad.items():
            state = refused(state, requests[number], str(error))
        good = [r for number, r in enumerate(requests) if number not in bad and isinstance(r, Request)]
        requests, bad = [Request.merged(good, undirected=as_view(state.whole).undirected)] if good else [], {}
    total, done = len(requests), 0
    try:
        for number, request in enumerate(requests):
            if number in bad:
                state = refused(state, request, str(bad[number]))
            else:
                state = _next(state, request, wish, skip_invalid=skip_invalid)
            if number + 1 == total:  # what the ladder chooses by is needed until then
                state = purge(state, wish.memory_mib, in_place=wish.in_place) if wish.purge else state
            with nullcontext() if graph is None else writing_graph(state.data, graph):
                state = state if out is None else save(state, out, overwrite=True)
            done += 1
            if progress is not None:
                progress(done, total)
    except UnweaveError as error:
        if total == 1:
            raise
        told = type(error)(f"{_called(done, requests)}: {error}{_kept(done, out)}")
        told.run = state
        raise told from error
    except KeyboardInterrupt as error:
        raise InterruptedStream(f"interrupted{_kept(done, out) or '; nothing was done'}", state) from error
    return state


def _next(state: State, request: Asked, wish: Wish, *, skip_invalid: bool) -> State:
    try:
        return forget(state, request, wish)
    except RequestError as error:  # what can only be found out when it is its turn, e.g. the last node of a class
        if not skip_invalid:
            raise
        return refused(state, request, str(error))


def _bad(state: State, requests: list[Asked]) -> dict[int, RequestError]:
    """The requests that name what never was in the graph, found before the first is carried out."""
    found = dict[int, RequestError]()
    if any(isinstance(request, Change) for request in requests):
        return _bad_in_turn(state, requests)
    graph = state.whole
    for number, request in enumerate(requests):
        left, _ = outstanding(request, state.receipts)
        try:
            if isinstance(left, Request):
                check_request(graph, left)
        except RequestError as error:
            found[number] = error
    return found


def _bad_in_turn(state: State, requests: list[Asked]) -> dict[int, RequestError]:
    """The same where one may name what another adds: each is carried out on the graph, without the model."""
    graph, taken, found = state.data, copy.deepcopy(state.receipts.taken), dict[int, RequestError]()
    for number, request in enumerate(requests):
        try:
            left, _ = left_of(request, taken)
            if left is None:
                continue
            _, done = carried_out(graph, left)
        except EmptyRequestError:
            continue
        except RequestError as error:
            found[number] = error
            continue
        taken.add(done.content, done.undirected)
        graph = done.data
    return found


def _all_at_once(bad: dict[int, RequestError], requests: list[Asked]) -> RequestError:
    """One error for all of them."""
    if len(requests) == 1:
        return bad[0]
    first = next(iter(bad.values()))
    if len(bad) == 1:
        return type(first)(f"{_called(next(iter(bad)), requests)}: {first}; nothing was done")
    named = [f"{_called(number, requests)}: {error}" for number, error in list(bad.items())[:NAMED]]
    named += [f"and {len(bad) - NAMED} more"] * (len(bad) > NAMED)
    return RequestError(
        f"{len(bad)} of {len(requests)} requests cannot be carried out, and nothing was done; leave them out, or pass "
        "skip_invalid (--skip-invalid) to carry out the others:\n" + "\n".join(named)
    )


def _called(number: int, requests: list[Asked]) -> str:
    own = requests[number].id
    return f"request {number + 1} of {len(requests)}" + (f" ({own})" if own else "")


def _kept(done: int, out: Path | None) -> str:
    """What was carried out before a stream ended on the way."""
    if not done:
        return ""
    where = f" in {out}: give the same requests to that run, and it goes on" if out is not None else ""
    return f"; {done} before it {'is' if done == 1 else 'are'} carried out{where}"
