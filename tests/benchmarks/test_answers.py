"""The record of answers is compared figure by figure, and what may differ is named."""

import json
import re
from typing import Any

import answers
import pytest
from shared import RESULTS

RECORD = json.loads((RESULTS / "answers" / "v0.1.0.json").read_text())


@pytest.mark.parametrize(
    ("known", "found", "wrong"),
    [
        (1.0, 1.0 + 1e-13, False),
        (1.0, 1.0 + 1e-11, True),
        (0.0, 1e-14, False),
        ([1.0, 2.0], [1.0], True),
        ({"passes": 7}, {"passes": 8}, True),
        ({"refused": "ModelError"}, {"refused": "MethodError"}, True),
        ({"residual": 0.5}, {}, True),
        ({}, {"warnings": ["new"]}, True),
    ],
)
def test_what_differs_by_more_than_rounding_is_found(known: object, found: object, wrong: bool) -> None:
    assert any(share > 1 for _, _, share in answers.differences(known, found)) is wrong


def test_a_difference_fails_the_check_unless_it_is_an_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(**cells: object) -> dict[str, Any]:
        return {"made_with": {"unweave": "0.1.0"}, "requests": 2, "cells": cells}

    known = record(a={"passes": 7, "step": 1.0, "warnings": ["beyond"]}, b={"step": 2.0})
    counted = {"passes": 8, "step": 1.0, "warnings": ["beyond"]}
    assert answers.check(known, record(a=counted, b={"step": 2.0})) == 1
    monkeypatch.setattr(answers, "EXCEPTIONS", {"0.1.0": (("a", "passes", "it is counted otherwise"),)})
    assert answers.check(known, record(a=counted, b={"step": 2.0})) == 0
    assert "it is counted otherwise" in capsys.readouterr().out
    assert answers.check(known, record(a=counted | {"step": 1.1}, b={"step": 2.0})) == 1
    assert answers.check(known, record(a=counted | {"warnings": []}, b={"step": 2.0})) == 1
    assert answers.check(known, record(a=counted)) == 1


def test_every_exception_is_of_a_cell_in_the_record() -> None:
    for cells, _, why in answers.EXCEPTIONS["0.1.0"]:
        assert any(re.fullmatch(cells, name) for name in RECORD["cells"]), why
