"""What pages are made of: blocks with an empty line between them, tables, and where something was measured."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared import Document, write

from unweave.experiments.paper.experiment import number, table

__all__ = ["Block", "Blocks", "Page", "columns", "number", "places", "table"]

Block = str | list[str]
"""A paragraph or a heading, or the lines of a table or a list."""

Blocks = Iterator[Block]


@dataclass(frozen=True)
class Page:
    """A page, from the result files beside it alone.

    Attributes:
        title: Its heading.
        read: What a folder has of it.
        blocks: What it says of that.
        draw: Draws its figures into the folder.
    """

    title: str
    read: Callable[[Path], Any]
    blocks: Callable[[Any], Iterable[Block]]
    draw: Callable[[Any, Path], object] | None = None

    def text(self, found: Any) -> str:
        """The whole page."""
        blocks = [f"# {self.title}", *(self.blocks(found) if found else ["Nothing has been measured yet."])]
        return "\n\n".join(block if isinstance(block, str) else "\n".join(block) for block in blocks) + "\n"

    def write(self, out: Path) -> None:
        """The page and its figures, beside the results."""
        found = self.read(out)
        write(out / "README.md", self.text(found))
        if found and self.draw:
            self.draw(found, out)


def columns(rows: Iterable[Any], cells: dict[str, Callable[[Any], object]]) -> list[str]:
    """A table with a row for each thing, and for each heading what it shows of the thing; – where that is nothing."""
    shown = ([cell(row) for cell in cells.values()] for row in rows)
    return table(list(cells), [["–" if value is None else str(value) for value in row] for row in shown])


def places(found: Iterable[Document], form: str) -> str:
    """Where and by what documents were measured, each place once; ``form`` names keys of theirs or their machine's.

    What one machine measured by several commits is told once, with all of them.
    """
    place, _, commit = form.partition("{commit")
    by: dict[tuple[str, str], set[str]] = {}
    for document in found:
        known = document | document["environment"]
        _, _, after = commit.partition("}")
        key = (place.format_map(known), after.format_map(known))
        by.setdefault(key, set()).add(f"{document['commit']:.7}" if commit else "")
    return "; ".join(f"{before}{', '.join(sorted(by[before, after]))}{after}" for before, after in sorted(by))
