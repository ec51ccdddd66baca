"""A change as CSV text: edges that come, values that are corrected, and what is forgotten."""

from typing import Any

from unweave._core.reading import table
from unweave._core.words import shown
from unweave.errors import RequestError
from unweave.request import Request

__all__ = ["document_of"]

KINDS = ("add-edge", "correct-feature", "correct-label", "correct-weight")
FORGET = ("forget-node", "forget-edge", "forget-feature", "forget-label")


def document_of(text: str) -> dict[str, Any]:
    """The JSON document that CSV text stands for; see :meth:`unweave.Change.from_csv`."""
    add: list[list[Any]] = []
    features: dict[str, dict[str, float]] = {}
    labels: dict[str, float] = {}
    weights: list[list[Any]] = []
    forget: list[str] = []
    for line, kind, node, value in table(text, (*KINDS, *FORGET), ". New nodes have features, for which there is JSON"):
        if kind in FORGET:
            forget.append(f"{kind.removeprefix('forget-')},{node},{value}")
        elif kind in ("add-edge", "correct-weight"):
            end, given, weight = value.partition("=")
            edge = [node, end.strip(), *([_number(weight, line)] if given else [])]
            (add if kind == "add-edge" else weights).append(edge)
        elif kind == "correct-label":
            _set(labels, node, value, f"line {line}: the label of node {node}", line)
        else:
            column, _, entry = value.partition("=")
            told = f"line {line}: column {column} of node {node}"
            _set(features.setdefault(node, {}), column.strip(), entry, told, line)
    corrected = {"features": features, "labels": labels, "edge_weights": weights}
    found: dict[str, Any] = {
        "add": {"edges": add} if add else {},
        "correct": {kind: entries for kind, entries in corrected.items() if entries},
    }
    if forget:
        found["forget"] = Request.from_csv("\n".join(["kind,node,value", *forget, ""])).content()
    return {kind: part for kind, part in found.items() if part}


def _set(values: dict[str, float], key: str, text: str, what: str, line: int) -> None:
    if key in values:
        raise RequestError(f"{what} is given twice")
    values[key] = _number(text, line)


def _number(text: str, line: int) -> float | int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"line {line}: {shown(text)} is not a number") from None
