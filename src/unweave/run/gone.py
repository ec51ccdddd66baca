"""What of a request is gone already: earlier requests took it, which is left out and said."""

from collections.abc import Sequence
from typing import Any, TypeVar

from unweave._core.words import listed
from unweave.changes import Change
from unweave.errors import RequestError
from unweave.receipt.receipt import Receipt
from unweave.request import ALL, Columns, Request
from unweave.run.receipts import Receipts, Taken

__all__ = ["left_of", "outstanding"]

REST, ALL_OF_IT = "; the rest was carried out", ", which is all it names"


Asks = TypeVar("Asks", Request, Change, Request | Change)


def outstanding(asked: Asks, receipts: Sequence[Receipt]) -> tuple[Asks | None, str]:
    """What of a request or of a change is still to be done (:func:`left_of`), by what the receipts of a run took."""
    return left_of(asked, Receipts.of(receipts).taken)


def left_of(asked: Asks, taken: Taken) -> tuple[Asks | None, str]:
    """What is still to be done, and a note of what earlier ones did.

    Raises:
        RequestError: A change names a node that was deleted.
    """
    return _left_of_change(asked, taken) if isinstance(asked, Change) else _left_of_request(asked, taken)


def _left_of_change(change: Change, taken: Taken) -> tuple[Change | None, str]:
    if change.once is not None and change.once in taken.once:
        return None, "this very change was carried out before, under the same id; give it another id to do it again"
    ends = [end for edge in (*change.add.edges, *change.correct.edge_weights) for end in edge[:2]]
    ends += [end for node in change.add.nodes for end, _ in node.edges]
    for where, named in (
        ("edges", ends),
        ("correct.features", change.correct.features),
        ("correct.labels", change.correct.labels),
    ):
        deleted = sorted(set(named) & taken.nodes)
        if deleted:
            raise RequestError(
                f"{where}: {listed(deleted)}: deleted by an earlier request, and an id is never used again; add it as "
                "a new node"
            )
    if change.forget is None:
        return change, ""
    left, note = _left_of_request(change.forget, taken)
    return change.without(left), note.replace(ALL_OF_IT, REST)


def _left_of_request(request: Request, taken: Taken) -> tuple[Request | None, str]:
    """What of a request is still to be forgotten, and a note of what earlier ones took.

    An edge of a node that was deleted went with it, as its features and its label did. Whether such an edge was ever
    there cannot be told any more; all else that never was there is left in the request, to be refused.

    Returns:
        The request without that, ``None`` where nothing is left of it; and the note, empty where all of it is left.
    """
    rest: dict[str, Any] = {
        "nodes": [n for n in request.nodes if n not in taken.nodes],
        "edges": [e for e in request.edges if e not in taken.edges and not any(n in taken.nodes for n in e)],
        "features": {
            n: there
            for n, columns in request.features.items()
            if n not in taken.nodes and (there := _rest(columns, taken.features.get(n, set())))
        },
        "labels": [n for n in request.labels if n not in taken.labels and n not in taken.nodes],
    }
    left = Request(**rest, id=request.id, note=request.note) if any(rest.values()) else None
    if left is not None and left.content() == request.content():
        return request, ""
    counts = [
        (len(getattr(request, kind)) - len(rest[kind]), name)
        for kind, name in (("nodes", "node"), ("edges", "edge"), ("labels", "label"))
    ]
    changed = sum(1 for n, columns in request.features.items() if rest["features"].get(n) != columns)
    gone = [f"{n} {name}{'s' * (n > 1)}" for n, name in counts if n] + [f"features of {changed} nodes"] * (changed > 0)
    with_nodes = any(e not in taken.edges and any(n in taken.nodes for n in e) for e in request.edges) or any(
        n in taken.nodes for n in request.features
    )
    what = f"earlier requests had taken {', '.join(gone)} of it already"
    what += " (with a deleted node: whether all of that was ever there is not known any more)" if with_nodes else ""
    return left, what + (REST if left is not None else ALL_OF_IT)


def _rest(columns: Columns, gone: set[int] | None) -> Columns:
    """The columns of a node that are left."""
    if columns == ALL:
        return ALL if gone is not None else ()
    return () if gone is None else tuple(c for c in columns if c not in gone)
