"""The page of ``changes.py``: what an update is worth beside a deletion of the same size."""

from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places


def read(out: Path) -> list[Document]:
    """The changes that are measured."""
    return lines(*sorted(out.glob("*.jsonl")))


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "One change to a trained model, answered by `gif` from a prepared state: training nodes that come with their "
        "features, labels and edges, edges that come, labels and features of training nodes that are put right; and "
        "beside them the deletion of as many nodes and edges. *Gap*: mean KL of the model that nothing is done to, on "
        "the new graph, to one that is trained anew there with the same seed. *Closed*: what the update closes of it; "
        "below 0 it leads away. *Ordinary* is 100 epochs of Adam with weight decay 1e-4; *forgettable* is trained to "
        "a minimum. Of recommenders (the softmax over all items, of every user) and of whole graphs the share is "
        "one of users, items, interactions, graphs, and labels of graphs."
    )
    yield columns(
        found,
        {
            "": lambda d: f"{d['model']} {d['data']}",
            "training": lambda d: d["way"],
            "change": lambda d: f"{d['share']:.0%} of the {d['kind']}",
            "gap": lambda d: f"{d['gap']:.1e}",
            "closed": lambda d: number(d["closed"], "+.3f"),
            "passes": lambda d: d["passes"],
            "the receipt says": lambda d: d["grade"],
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/changes.py` and `changes_tasks.py` on {where}."


PAGE = Page("One change beside one deletion", read, blocks)
