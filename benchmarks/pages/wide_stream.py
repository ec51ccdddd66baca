"""The page of ``wide_stream.py``: how near a model stays to retraining."""

from pathlib import Path
from statistics import median

from shared import Document, documents

from pages.parts import Blocks, Page, columns, number, places


def read(out: Path) -> list[Document]:
    """The streams that are done."""
    return list(documents(out).values())


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Requests one after another to a wide model that was trained once: in turn some edges, and some training nodes "
        "with all that is theirs; together 4 % of both. At the marks a model is trained anew on what remains, "
        "with the same seed. *Gap*: mean KL to it on the remaining nodes, of the model before the stream. *Closed*: "
        "what all requests so far closed of it."
    )
    yield columns(
        [(d, mark) for d in found for mark in d["compared"]],
        {
            "": lambda r: f"{r[0]['model']} {r[0]['data']}",
            "requests": lambda r: r[1]["after"],
            "gap": lambda r: f"{r[1]['gap']:.1e}",
            "closed": lambda r: number(r[1]["closed"], "+.4f"),
            "gradients, median": lambda r: median(t["gradients"] for t in r[0]["receipts"][: r[1]["after"]]),
            "passes, median": lambda r: round(median(t["passes"] for t in r[0]["receipts"][: r[1]["after"]])),
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield (
        "Measured by `python benchmarks/wide_stream.py --device cuda --jobs 3 --marks 2`, by `… --data dblp --model "
        f"gcn --decay 3e-4 --marks 2` and by `… --data hard-100k --model sgc --decay 1e-6 --marks 2` on {where}."
    )


PAGE = Page("A stream to a wide model", read, blocks)
