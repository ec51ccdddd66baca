"""The numbers that decide about steps: one place, frozen, told in receipts, changed in one way."""

import ast
import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import unweave as uw
from unweave._core import tuning
from unweave._core.tuning import TUNING, tuned
from unweave.testing import small_graph


def test_nobody_changes_a_number_by_assigning_it() -> None:
    with pytest.raises(FrozenInstanceError):
        TUNING.damping.share = 1.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        TUNING.damping = tuning.Damping()  # type: ignore[misc]


def test_every_number_has_its_evidence_beside_it() -> None:
    """A string follows each field of each group, as tools that make documentation read it."""
    module = ast.parse(Path(tuning.__file__).read_text())
    for group in (node for node in module.body if isinstance(node, ast.ClassDef) and node.name != "Tuning"):
        for field, after in zip(group.body[1:], [*group.body[2:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                assert told, f"{group.name}.{field.target.id}"  # type: ignore[union-attr]


def test_another_number_for_a_while_is_another_digest() -> None:
    usual, before = TUNING.digest, TUNING.to_dict()
    assert json.loads(json.dumps(TUNING.to_dict())) == TUNING.to_dict()
    with tuned(damping={"tries": 3}, search={"first": 2}) as now:
        assert (now.damping.tries, now.search.first) == (3, 2)
        assert TUNING.digest != usual
    assert TUNING.to_dict() == before
    assert TUNING.digest == usual


def test_a_receipt_tells_by_which_numbers_it_was_decided() -> None:
    data = small_graph()
    model = uw.models.GCN(data.num_features, 3, hidden=4)
    request = uw.draw("edges:0.05", data)
    told = uw.unlearn(model, data, request, "none", weight_decay=1e-3).receipt.environment["tuning"]
    assert told == {"digest": TUNING.digest}
    with tuned(damping={"share": 0.01}):
        told = uw.unlearn(model, data, request, steps=1, weight_decay=1e-3).receipt.environment["tuning"]
    assert told["damping"]["share"] == 0.01
    assert told["digest"] != TUNING.digest
    assert len(json.dumps(told)) < 1100
