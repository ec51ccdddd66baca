"""The page of ``service.py``: submissions a second, and lists after a long history."""

from pathlib import Path

from shared import Document, documents

from pages.parts import Blocks, Page, columns, places

FINE, LIST = 100.0, 200.0
"""Milliseconds that a submission and a list may take, 99 times of 100."""


def read(out: Path) -> list[Document]:
    """What was measured."""
    return list(documents(out).values())


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    for document in found:
        held = [each["rate"] for each in document["load"] if each["p99_ms"] < FINE]
        yield (
            "Submissions over loopback to a service on SQLite, while one worker carries them out on the same machine, "
            f"which the clients share. p99 stays below {FINE:.0f} ms up to {max(held, default=0)} a second."
        )
        yield columns(
            document["load"],
            {
                "a second": lambda d: f"{d['rate']}",
                "submissions": lambda d: f"{d['submissions']:,}",
                "median": lambda d: f"{d['median_ms']:.0f} ms",
                "p99": lambda d: f"{d['p99_ms']:.0f} ms",
            },
        )
        slow = [name for name, each in document["after"].items() if each["p99_ms"] >= LIST]
        yield (
            f"Lists, before and after {document['history']:,} further requests were in the history. "
            + (f"At {LIST:.0f} ms or more: {', '.join(slow)}." if slow else f"All below {LIST:.0f} ms.")
        )
        yield columns(
            [
                {"name": name, "before": document["before"][name], "after": each}
                for name, each in document["after"].items()
            ],
            {
                "list": lambda d: d["name"],
                "median": lambda d: f"{d['before']['median_ms']:.0f} → {d['after']['median_ms']:.0f} ms",
                "p99": lambda d: f"{d['before']['p99_ms']:.0f} → {d['after']['p99_ms']:.0f} ms",
            },
        )
        memory = ", ".join(f"{each:.0f}" for each in document["memory_mib"])
        yield f"Memory of the process that answers, before and after each of four rounds of all lists: {memory} MiB."
    yield from (d["note"] for d in found if "note" in d)
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/service.py` on {where}."


PAGE = Page("A service under load", read, blocks)
