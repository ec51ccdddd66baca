"""Read what people write, requests and changes alike: JSON, tables, files of one document or of one a line."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from unweave._core.words import listed, shown
from unweave.errors import EmptyRequestError, RequestError

__all__ = ["WHOLE", "by_line", "one_of", "parsed", "refuse_invalid", "refuse_twice", "table", "whole_number"]

WHOLE = re.compile(r"-?[0-9]{1,18}")
HEADER = ["kind", "node", "value"]
TOLD = 20
"""How many bad lines an error explains; of the rest it gives the numbers."""

T = TypeVar("T")


def parsed(text: str, what: str) -> Any:
    """A JSON document in which no key stands twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        refuse_twice(f"the {what}", [key for key, _ in pairs])
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the {what} is not valid JSON: {error}") from None


def refuse_twice(where: str, entries: Iterable[Any]) -> None:
    """Refuse what is named more than once."""
    repeated = sorted(entry for entry, count in Counter(entries).items() if count > 1)
    if repeated:
        raise RequestError(f"{where}: named more than once: {listed(repeated)}; name each entry once")


def one_of(path: str | Path, readers: Mapping[str, Callable[[str], T]], what: str) -> T:
    """What a file holds, read by how its name ends."""
    path = Path(path)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise RequestError(f"{path} must end in .json or .csv (.jsonl for several, one a line)")
    return reader(_text(path, what))


def by_line(
    path: str | Path, read: Callable[[Path], T], one: Callable[[str], T], what: str
) -> tuple[dict[int, T], dict[int, RequestError]]:
    """The documents of a ``.jsonl`` file by their lines, and what is wrong with the others; any other file is one.

    Args:
        path: The file.
        read: Reads a file that is one document.
        one: Reads a line.
        what: What they are called.
    """
    path = Path(path)
    if path.suffix.lower() != ".jsonl":
        return {1: read(path)}, {}
    found: dict[int, T] = {}
    invalid: dict[int, RequestError] = {}
    # Lines end with a newline and with nothing else that Unicode knows: any of that may stand in a text.
    for number, line in enumerate(_text(path, what).split("\n"), start=1):
        try:
            found |= {number: one(line)} if line.strip() else {}
        except RequestError as error:
            invalid[number] = error
    if not found and not invalid:
        raise EmptyRequestError(f"{path} holds no {what}; write one a line")
    return found, invalid


def refuse_invalid(path: Path, invalid: Mapping[int, RequestError], what: str) -> None:
    """One error for all lines that are none."""
    if not invalid:
        return
    told = [f"line {number}: {error}" for number, error in invalid.items()]
    if len(told) > TOLD:
        told[TOLD:] = ["and lines " + ", ".join(map(str, [*invalid][TOLD:]))]
    count = "a line is" if len(invalid) == 1 else f"{len(invalid)} lines are"
    raise RequestError(f"{path}: {count} no {what}, nothing was carried out:\n  " + "\n  ".join(told))


def table(text: str, kinds: Sequence[str], hint: str = "") -> Iterator[tuple[int, str, str, str]]:
    """Line, kind, node and value of each row of CSV text that is whole.

    Args:
        text: With the header ``kind,node,value``; it must end with a newline, as proof that it is whole. A last row
            ``end,5,`` says how many rows there are before it.
        kinds: What a row may be.
        hint: What else to know where it is something else.
    """
    reader = csv.reader(io.StringIO(text))
    try:
        names = [name.strip() for name in next(reader, [])]
        if names != HEADER:
            raise RequestError(f"the first line must be 'kind,node,value', got {shown(names)}")
        if not text.endswith(("\n", "\r")):
            raise RequestError("the last line has no newline, so it may have been cut; end a whole text with one")
        ended = False
        for count, row in enumerate(filter(None, reader)):
            number = reader.line_num
            if len(row) > len(HEADER):
                raise RequestError(f"line {number}: more than the three columns kind, node and value")
            kind, node, value = (entry.strip() for entry in [*row, "", ""][: len(HEADER)])
            if kind not in (*kinds, "end") or ended:
                what = "a row after the end" if ended else f"unknown kind {shown(kind)}"
                raise RequestError(f"line {number}: {what}; use {', '.join(kinds)}, and end for the last row{hint}")
            ended = kind == "end"
            if not ended:
                yield number, kind, node, value
            elif value:
                raise RequestError(f"line {number}: a {kind} leaves the value empty")
            elif whole_number(node, number) != count:
                raise RequestError(f"line {number}: there should be {node} rows before the end, there are {count}")
    except csv.Error as error:
        raise RequestError(f"line {reader.line_num}: not valid CSV: {error}") from None


def whole_number(text: str, line: int) -> int:
    """A whole number in a table."""
    if not WHOLE.fullmatch(text):
        raise RequestError(f"line {line}: {shown(text)} is not a whole number")
    return int(text)


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {what}s from {path}: {error}") from None
