"""Requests one after another, or as one: what earlier ones took is left out of a later one, and said so."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave.errors import EmptyRequestError, RequestError, UnweaveError
from unweave.graph.removal import canonical, is_undirected, named_edges
from unweave.methods import Method
from unweave.receipt.receipt import Receipt
from unweave.request import ALL, Columns, Request
from unweave.run.purge import check_purge
from unweave.training.adam import Progress

if TYPE_CHECKING:
    from unweave.run.run import Run

__all__ = ["forget_all", "noted", "outstanding", "refuse_gone"]


def outstanding(request: Request, receipts: Sequence[Receipt]) -> tuple[Request | None, str]:
    """What of a request is still to be forgotten, and a note of what earlier ones took.

    An edge of a node that was deleted went with it, as its features and its label did. Whether such an edge was ever
    there cannot be told any more; all else that never was there is left in the request, to be refused.

    Returns:
        The request without that, ``None`` where nothing is left of it; and the note, empty where all of it is left.
    """
    nodes, edges, labels = set[int](), set[tuple[int, int]](), set[int]()
    features: dict[int, set[int] | None] = {}
    for receipt in receipts:
        earlier = receipt.request
        nodes.update(earlier.get("nodes", ()))
        labels.update(earlier.get("labels", ()))
        for u, v in earlier.get("edges", ()):
            edges.update([(u, v), (v, u)] if receipt.graph["undirected"] else [(u, v)])
        for node, columns in earlier.get("features", {}).items():
            known = features.get(int(node), set())
            features[int(node)] = None if columns == ALL or known is None else known | set(columns)
    rest: dict[str, Any] = {
        "nodes": [n for n in request.nodes if n not in nodes],
        "edges": [e for e in request.edges if e not in edges and not nodes & set(e)],
        "features": {
            n: there
            for n, columns in request.features.items()
            if n not in nodes and (there := _rest(columns, features.get(n, set())))
        },
        "labels": [n for n in request.labels if n not in labels and n not in nodes],
    }
    left = Request(**rest) if any(rest.values()) else None
    if left == request:
        return request, ""
    counts = [
        (len(getattr(request, kind)) - len(rest[kind]), name)
        for kind, name in (("nodes", "node"), ("edges", "edge"), ("labels", "label"))
    ]
    changed = sum(1 for n, columns in request.features.items() if rest["features"].get(n) != columns)
    gone = [f"{n} {name}{'s' * (n > 1)}" for n, name in counts if n] + [f"features of {changed} nodes"] * (changed > 0)
    what = f"of the request {request.digest[:12]} earlier requests had taken {', '.join(gone)} already"
    return left, what + (": left out" if left is not None else ", which is all it names: nothing was done")


def _rest(columns: Columns, gone: set[int] | None) -> Columns:
    """The columns of a node that are left."""
    if columns == ALL:
        return ALL if gone is not None else ()
    return () if gone is None else tuple(c for c in columns if c not in gone)


def noted(run: "Run", note: str) -> "Run":
    """A run whose last receipt has a note; one that it has already is not said twice."""
    last = run.receipts[-1]
    if note in last.warnings:
        return run
    return replace(run, receipts=(*run.receipts[:-1], replace(last, warnings=[*last.warnings, note])))


def forget_all(
    run: "Run",
    requests: Sequence[Request],
    method: str | Method | None = "auto",
    *,
    batch: bool = False,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> "Run":
    """Carry out requests one after another; see :meth:`unweave.Run.forget_all`."""
    wrong = next((r for r in requests if not isinstance(r, Request)), None)
    if wrong is not None or not requests:
        raise RequestError(f"requests must be one unweave.Request or more, got {wrong if requests else 'none'}")
    if batch:
        requests = [Request.merged(requests, undirected=is_undirected(run.data))]
    _check_all(run, requests)
    purge = bool(options.pop("purge", False))
    check_purge(purge, bool(options.get("defer")))
    for number, request in enumerate(requests, start=1):
        left, note = outstanding(request, run.receipts)
        if left is None:
            run = noted(run, note)
        else:
            try:
                run = run.forget(request, method, **options)
            except EmptyRequestError as error:
                if not run.receipts:
                    raise _told(error, number, len(requests), out) from error
                run = noted(run, f"request {request.digest[:12]} ({request.describe()}): {error}")
            except UnweaveError as error:
                raise _told(error, number, len(requests), out) from error
        if purge and number == len(requests):  # what the ladder chooses by is needed until then
            run = run.purge(memory_mib=options.get("memory_mib"))
        if out is not None:
            run = run.at(out)
            run.save(out, overwrite=True)
        if progress is not None:
            progress(number, len(requests))
    return run


def _check_all(run: "Run", requests: Sequence[Request]) -> None:
    """Refuse a stream where one of its requests names what never was in the graph, before the first is carried out."""
    data = run.data
    undirected = is_undirected(data)
    for number, request in enumerate(requests, start=1):
        left, _ = outstanding(request, run.receipts)
        try:
            if left is not None:
                named_edges(data, canonical(left, data, undirected), undirected)
        except RequestError as error:
            raise _told(error, number, len(requests), None) from error


def _told(error: UnweaveError, number: int, total: int, out: str | Path | None) -> UnweaveError:
    if total == 1:
        return error
    before = "" if out is None or number == 1 else f"; the {number - 1} before it are carried out in {out}"
    return type(error)(f"request {number} of {total}: {error}{before}")


def refuse_gone(request: Request, note: str, *, purge: bool = False) -> EmptyRequestError:
    """The error for a single request of which nothing is left."""
    alone = "; to purge the run all the same, call Run.purge, or give the request as a .jsonl file" if purge else ""
    return EmptyRequestError(
        f"the graph no longer holds anything of this request ({request.describe()}): {note}{alone}"
    )
