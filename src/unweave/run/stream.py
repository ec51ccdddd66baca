"""Requests one after another, or as one: what earlier ones took is left out of a later one, and said so."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unweave.errors import EmptyRequestError, RequestError, UnweaveError
from unweave.graph.index import is_undirected
from unweave.graph.removal import check_request
from unweave.methods import Method
from unweave.request import Request
from unweave.run.forget import forget, noted
from unweave.run.gone import outstanding
from unweave.run.purge import check_purge, purge as purge_state
from unweave.run.state import State
from unweave.run.store import save
from unweave.training.adam import Progress

__all__ = ["forget_all"]


def forget_all(
    state: State,
    requests: Sequence[Request],
    method: str | Method | None = "auto",
    *,
    batch: bool = False,
    out: str | Path | None = None,
    progress: Progress | None = None,
    allow_class_loss: bool = False,
    defer: bool = False,
    memory_mib: float | None = None,
    purge: bool = False,
    screen: bool = False,
    **options: Any,
) -> State:
    """Carry out requests one after another; see :meth:`unweave.Run.forget_all`."""
    wrong = next((r for r in requests if not isinstance(r, Request)), None)
    if wrong is not None or not requests:
        raise RequestError(f"requests must be one unweave.Request or more, got {wrong if requests else 'none'}")
    if batch:
        requests = [Request.merged(requests, undirected=is_undirected(state.data))]
    _check_all(state, requests)
    check_purge(purge, defer)
    how: dict[str, Any] = {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
    for number, request in enumerate(requests, start=1):
        left, note = outstanding(request, state.receipts)
        if left is None:
            state = noted(state, note)
        else:
            try:
                state = forget(state, request, method, **how, purge=False, screen=screen, options=options)
            except EmptyRequestError as error:
                if not state.receipts:
                    raise _told(error, number, len(requests), out) from error
                state = noted(state, f"request {request.digest[:12]} ({request.describe()}): {error}")
            except UnweaveError as error:
                raise _told(error, number, len(requests), out) from error
        if purge and number == len(requests):  # what the ladder chooses by is needed until then
            state = purge_state(state, memory_mib)
        if out is not None:
            state = save(state, out, overwrite=True)
        if progress is not None:
            progress(number, len(requests))
    return state


def _check_all(state: State, requests: Sequence[Request]) -> None:
    """Refuse a stream where one of its requests names what never was in the graph, before the first is carried out."""
    data = state.data
    for number, request in enumerate(requests, start=1):
        left, _ = outstanding(request, state.receipts)
        try:
            if left is not None:
                check_request(data, left)
        except RequestError as error:
            raise _told(error, number, len(requests), None) from error


def _told(error: UnweaveError, number: int, total: int, out: str | Path | None) -> UnweaveError:
    if total == 1:
        return error
    before = "" if out is None or number == 1 else f"; the {number - 1} before it are carried out in {out}"
    return type(error)(f"request {number} of {total}: {error}{before}")
