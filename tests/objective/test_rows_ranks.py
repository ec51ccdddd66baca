"""Rows of a folder among ranks: each has some of the nodes, and together they say what one process says."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unweave as uw
from tests.folders import graph
from tests.spread import spread
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.certificate.bound import uncertified
from unweave.curvature.products import products
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.parts.bounded import objective_within
from unweave.objective.parts.rows import Rows

FEW = {"rank": 4, "per_class": 1.0, "spare": 2, "bend_products": 4}


def by_rows(folder: str, memory_mib: float | None) -> dict[str, Tensor]:
    """Train, prepare and forget on a graph in a folder."""
    data = uw.load_folder(folder)
    torch.manual_seed(0)
    model = uw.models.SIGN(data.num_features, 3, hidden=4, dropout=0.0).double()
    with tuned(spectrum=FEW):
        run = uw.train(model, data, epochs=6, weight_decay=1e-2, examine=False, memory_mib=memory_mib)
        run = run.prepare(memory_mib=memory_mib)
        after = run.forget(uw.Request(nodes=[4], edges=[(0, 7)]), memory_mib=memory_mib)
    data = uw.load_folder(folder)
    how = (1e-2, cross_entropy, call, Meter(data.x.device), memory_mib)
    objective = objective_within(run.model, data, *how)
    assert isinstance(objective, Rows)
    product = products("gauss-newton", objective.at(flatten(run.model)))
    first, again = (product(torch.ones_like(flatten(run.model))) for _ in range(2))
    assert torch.equal(first, again)
    if memory_mib is None:  # the one block of a rank is kept, and made once
        assert len(product._kept) == 1
        assert "by rows" in str(uncertified(objective))
    told = after.receipts[-1].details["in_blocks"]["rows"]
    scores = [value for key, value in sorted(after.metrics.items()) if "seconds" not in key]
    return {
        "product": first,
        "trained": flatten(run.model),
        "after": flatten(after.model),
        "scores": torch.tensor(scores),
        "rows": torch.tensor([told["training"], told["others"], told["differing"]]),
        "passes": torch.tensor(after.receipts[-1].passes),
    }


@pytest.mark.parametrize("memory_mib", [64, None])
def test_ranks_share_out_rows(memory_mib: float | None, warm: ForkServerContext, tmp_path: Path) -> None:
    uw.save_folder(graph(), tmp_path / "graph")
    answers = spread(warm, 2, tmp_path, by_rows, str(tmp_path / "graph"), memory_mib)
    wanted = by_rows(str(tmp_path / "graph"), 64)
    for answer in answers:
        assert "found" in answer, answer
        for key, value in wanted.items():
            if key == "passes" and memory_mib is None:  # a block that is kept is evaluated less often
                assert answer["found"][key] <= value
                continue
            torch.testing.assert_close(answer["found"][key], value.detach(), rtol=1e-10, atol=1e-10, msg=key)
