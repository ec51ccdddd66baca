"""Rows of a folder among ranks: each has some of the nodes, and together they say what one process says."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch
from torch import Tensor

import unweave as uw
from tests.folders import graph
from tests.spread import spread
from unweave._core.tuning import tuned
from unweave.objective.parameters import flatten

FEW = {"rank": 4, "per_class": 1.0, "spare": 2, "bend_products": 4}


def by_rows(folder: str) -> dict[str, Tensor]:
    """Train, prepare and forget on a graph in a folder."""
    data = uw.load_folder(folder)
    torch.manual_seed(0)
    model = uw.models.SIGN(data.num_features, 3, hidden=4, dropout=0.0).double()
    with tuned(spectrum=FEW):
        run = uw.train(model, data, epochs=6, weight_decay=1e-2, examine=False, memory_mib=64).prepare(memory_mib=64)
        after = run.forget(uw.Request(nodes=[4], edges=[(0, 7)]), memory_mib=64)
    told = after.receipts[-1].details["in_blocks"]["rows"]
    scores = [value for key, value in sorted(after.metrics.items()) if "seconds" not in key]
    return {
        "trained": flatten(run.model),
        "after": flatten(after.model),
        "scores": torch.tensor(scores),
        "rows": torch.tensor([told["training"], told["others"], told["differing"]]),
        "passes": torch.tensor(after.receipts[-1].passes),
    }


def test_ranks_share_out_rows(warm: ForkServerContext, tmp_path: Path) -> None:
    uw.save_folder(graph(), tmp_path / "graph")
    answers = spread(warm, 2, tmp_path, by_rows, str(tmp_path / "graph"))
    wanted = by_rows(str(tmp_path / "graph"))
    for answer in answers:
        assert "found" in answer, answer
        for key, value in wanted.items():
            torch.testing.assert_close(answer["found"][key], value.detach(), rtol=1e-10, atol=1e-10, msg=key)
