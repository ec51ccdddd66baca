"""What of a request is gone already: earlier requests took it, which is left out and said."""

from collections.abc import Sequence
from typing import Any

from unweave.errors import EmptyRequestError
from unweave.receipt.receipt import Receipt
from unweave.request import ALL, Columns, Request

__all__ = ["outstanding", "refuse_gone"]


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


def refuse_gone(request: Request, note: str, *, purge: bool = False) -> EmptyRequestError:
    """The error for a single request of which nothing is left."""
    alone = "; to purge the run all the same, call Run.purge, or give the request as a .jsonl file" if purge else ""
    return EmptyRequestError(
        f"the graph no longer holds anything of this request ({request.describe()}): {note}{alone}"
    )
