"""The page of ``wide_audit.py``: the audit of wide models on large graphs."""

from shared import Document

from pages import tasks_audit
from pages.parts import Blocks, Page, places


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Forgettable models as wide as `train` makes them, and a deletion of 5 % of the edges. "
        + tasks_audit.LEGEND
        + " A *quick* audit leaves out the tests that need shadow models."
    )
    yield tasks_audit.table(found, lambda c: f"{c['model']} {c['data']}, {c['asked']}{', quick' * c['quick']}")
    yield (
        "Until commit 0ab11a0 errors on test nodes were compared with retrained models alone; since then they are also "
        "allowed what chance makes of so many nodes. Three more, as `sgc` on WordNet had, are within it."
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/wide_audit.py --device cuda --data … --model …` on {where}."


PAGE = Page("The audit of wide models", tasks_audit.read, blocks)
