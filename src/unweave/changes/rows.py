"""A change as CSV text: edges that come, values that are corrected, and what is forgotten."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from unweave._core.words import shown
from unweave.errors import RequestError
from unweave.request import Request

__all__ = ["document_of"]

HEADER = ["kind", "node", "value"]
KINDS = ("add-edge", "correct-feature", "correct-label", "correct-weight")
FORGET = ("forget-node", "forget-edge", "forget-feature", "forget-label")


def document_of(text: str) -> dict[str, Any]:
    """The JSON document that CSV text stands for; see :meth:`unweave.Change.from_csv`."""
    add: list[list[Any]] = []
    features: dict[str, dict[str, float]] = {}
    labels: dict[str, float] = {}
    weights: list[list[Any]] = []
    forget: list[str] = []
    for line, kind, node, value in _rows(text):
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
        found["forget"] = Request.from_csv("\n".join([",".join(HEADER), *forget, ""])).content()
    return {kind: part for kind, part in found.items() if part}


def _rows(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, kind, node and value of each row of a text that is whole."""
    reader = csv.reader(io.StringIO(text))
    count, ended = 0, False
    try:
        header = [name.strip() for name in next(reader, [])]
        if header != HEADER:
            raise RequestError(f"the first line must be 'kind,node,value', got {shown(header)}")
        if not text.endswith(("\n", "\r")):
            raise RequestError("the last line has no newline, so it may have been cut; end a whole text with one")
        for row in filter(None, reader):
            line = reader.line_num
            if len(row) != len(HEADER) or ended:
                what = "a row after the end" if ended else f"there are three columns, got {shown(row)}"
                raise RequestError(f"line {line}: {what}")
            kind, node, value = (entry.strip() for entry in row)
            ended = kind == "end"
            if ended and node != str(count):
                raise RequestError(f"line {line}: there should be {node} rows before the end, there are {count}")
            if not ended and kind not in (*KINDS, *FORGET):
                raise RequestError(
                    f"line {line}: unknown kind {shown(kind)}; use {', '.join((*KINDS, *FORGET))}, and end for the "
                    "last row. New nodes have features, for which there is JSON"
                )
            if not ended:
                count += 1
                yield line, kind, node, value
    except csv.Error as error:
        raise RequestError(f"line {reader.line_num + 1}: not valid CSV: {error}") from None


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
