"""What of a request is gone already: earlier requests took it, which is left out and said."""

from collections.abc import Sequence
from typing import Any

from unweave.receipt.receipt import Receipt
from unweave.request import ALL, Columns, Request
from unweave.run.receipts import Receipts

__all__ = ["outstanding"]


def outstanding(request: Request, receipts: Sequence[Receipt]) -> tuple[Request | None, str]:
    """What of a request is still to be forgotten, and a note of what earlier ones took.

    An edge of a node that was deleted went with it, as its features and its label did. Whether such an edge was ever
    there cannot be told any more; all else that never was there is left in the request, to be refused.

    Returns:
        The request without that, ``None`` where nothing is left of it; and the note, empty where all of it is left.
    """
    taken = Receipts.of(receipts).taken
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
    what = f"earlier requests had taken {', '.join(gone)} of it already"
    return left, what + ("; the rest was carried out" if left is not None else ", which is all it names")


def _rest(columns: Columns, gone: set[int] | None) -> Columns:
    """The columns of a node that are left."""
    if columns == ALL:
        return ALL if gone is not None else ()
    return () if gone is None else tuple(c for c in columns if c not in gone)
