"""A change in plain words: what was added, corrected and forgotten, and what became of the model."""

from typing import Any

from unweave.receipt.record import Record

__all__ = [
    "ADDED_OF_TYPE",
    "MODEL_CHANGED",
    "OF_TYPE",
    "changed_data",
    "describe_asked",
    "describe_changed",
    "is_change",
    "touched_by",
]

Line = tuple[str, str]

OF_TYPE, ADDED_OF_TYPE = "of type ", "added of type "
"""What precedes the name of a type of nodes, where a receipt counts those that went or came."""

MODEL_CHANGED = {
    "retrained": "trained anew on the graph as it is now; this is exact",
    "not needed": "need not change; nothing it was trained on depends on what was changed",
    "trained on": "trained on for a while on the new graph; how near to a retrained one that is was not measured",
    "doubtful": "moved, but its own figures show no sign that it came nearer to a retrained one; do not rely on it",
}
"""What became of a model, where that is said in other words than after a deletion."""


def is_change(document: dict[str, Any]) -> bool:
    """Whether what was carried out added or corrected something."""
    return "add" in document or "correct" in document


def touched_by(done: dict[str, Any]) -> dict[str, Any]:
    """All that a change named, as the document of one request."""
    add, correct, forget = (done.get(kind, {}) for kind in ("add", "correct", "forget"))
    return {
        "nodes": list(forget.get("nodes", ())),
        "edges": [*add.get("edges", ()), *correct.get("edge_weights", ()), *forget.get("edges", ())],
        "features": {**forget.get("features", {}), **correct.get("features", {})},
        "labels": [
            *add.get("nodes", ()),
            *add.get("graphs", ()),
            *correct.get("labels", ()),
            *forget.get("labels", ()),
        ],
    }


def changed_data(record: Record) -> str:
    """What became of the data, in a few words for a verdict."""
    parts = [f"{text} {word}" for text, word in _parts(record.removed) if text]
    note = "; what else was asked had gone already" if record.reason is not None else ""
    return "yes, " + ", ".join(parts) + note


def describe_changed(
    removed: dict[str, int], titles: tuple[str, ...] = ("Added", "Corrected", "Forgotten")
) -> list[Line]:
    """What came, what was corrected and what went, a line each."""
    return [(title, text) for title, (text, _) in zip(titles, _parts(removed), strict=True) if text]


def describe_asked(asked: dict[str, Any]) -> str:
    """The outline of a change (:meth:`unweave.Change.outline`) in a few words."""
    add, correct, forget = (asked.get(kind, {}) for kind in ("add", "correct", "forget"))
    edges = len(add.get("edges", ())) + sum(map(len, add.get("neighbours", ())))
    parts = [
        (_counted((_many(add, "nodes"), "node"), (edges, "edge"), (_many(add, "graphs"), "graph")), "to add"),
        (
            _counted(
                (len(correct.get("features", ())), "row of features"),
                (len(correct.get("labels", ())), "label"),
                (len(correct.get("edge_weights", ())), "edge weight"),
            ),
            "to correct",
        ),
        (
            _counted(
                (len(forget.get("nodes", ())), "node"),
                (len(forget.get("edges", ())), "edge"),
                (len(forget.get("features", ())), "row of features"),
                (len(forget.get("labels", ())), "label"),
            ),
            "to forget",
        ),
    ]
    return "; ".join(f"{text} {word}" for text, word in parts if text)


def _many(add: dict[str, Any], kind: str) -> int:
    """How many there are: a number as it was asked for, ids once it is done."""
    found = add.get(kind, 0)
    return found if isinstance(found, int) else len(found)


def _parts(removed: dict[str, int]) -> list[tuple[str, str]]:
    counts = {key: removed.get(key, 0) for key in ("added_graphs", "added_rows", "rows")}
    return [
        (
            _counted(
                *(_typed(removed, ADDED_OF_TYPE) or [(removed["added_nodes"], "node")]),
                (removed["added_edges"], "edge"),
                (counts["added_graphs"] if not _typed(removed, ADDED_OF_TYPE) else 0, "graph"),
                (counts["added_rows"], "row of an embedding table, zero at first,"),
            ),
            "added",
        ),
        (
            _counted(
                (removed["corrected_rows"], "row of features"),
                (removed["corrected_labels"], "label"),
                (removed["corrected_weights"], "edge weight"),
            ),
            "corrected",
        ),
        (
            _counted(
                *(_typed(removed, OF_TYPE) or [(removed["nodes"], "node")]),
                (removed["edges"], "edge"),
                (removed["feature_rows"], "row of features"),
                (removed["labels"], "label"),
                (counts["rows"], "row of an embedding table"),
            ),
            "forgotten",
        ),
    ]


def _typed(removed: dict[str, int], prefix: str) -> list[tuple[int, str]]:
    """How many nodes of each type, where there are several; by name, as a receipt that was stored has them."""
    return [(number, key.removeprefix(prefix)) for key, number in sorted(removed.items()) if key.startswith(prefix)]


def _counted(*parts: tuple[int, str]) -> str:
    found = [f"{n:,} {noun if n == 1 else _several(noun)}" for n, noun in parts if n]
    return " and ".join(filter(None, [", ".join(found[:-1]), *found[-1:]]))


def _several(noun: str) -> str:
    return noun.replace("row ", "rows ") if noun.startswith("row ") else f"{noun}s"
