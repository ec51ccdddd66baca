"""The form of a change: what it says, how it is written, and what is refused before any graph is looked at."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import unweave as uw

FULL: dict[str, Any] = {
    "add": {
        "nodes": [{"features": [1.0, 0.5], "label": 3, "mask": "train", "edges": [5, 9]}, {"features": [0.0, 0.0]}],
        "edges": [[0, 7]],
    },
    "correct": {"features": {"7": {"0": 1.5}, "8": [1.0, 2.0]}, "labels": {"4": 2}, "edge_weights": [[0, 633, 0.5]]},
    "forget": {"nodes": [3]},
    "id": "ticket 7",
    "note": "by post",
}


def test_every_form_says_the_same() -> None:
    change = uw.Change.from_dict(FULL)
    assert change.to_dict() == FULL
    assert uw.Change.from_json(json.dumps(FULL)) == change == uw.Change.from_json(change.to_json())
    assert pickle.loads(pickle.dumps(change)) == change
    assert hash(change) == hash(uw.Change.from_dict(FULL))
    same = uw.Change(
        add={"nodes": [{"features": torch.tensor([1.0, 0.5]), "label": torch.tensor(3), "edges": [9, 5]},
                       {"features": (0, 0)}], "edges": torch.tensor([[0, 7]])},
        correct={"features": {8: [1, 2], 7: {0: 1.5}}, "labels": {4: 2}, "edge_weights": [(0, 633, 0.5)]},
        forget=uw.Request(nodes=[3]),
    )  # fmt: skip
    assert same.digest == change.digest
    assert same != change  # ids and notes are no part of the digest
    assert change.describe() == (
        "2 nodes and 3 edges added; 2 rows of features, 1 label and 1 edge weight corrected; 1 node forgotten"
    )


def test_an_outline_has_no_value() -> None:
    outline = uw.Change.from_dict(FULL).outline()
    assert outline == {
        "add": {"nodes": 2, "edges": [[0, 7]], "neighbours": [[5, 9], []]},
        "correct": {"features": {"7": [0], "8": "all"}, "labels": [4], "edge_weights": [[0, 633]]},
        "forget": {"nodes": [3]},
    }
    assert not any(value in json.dumps(outline) for value in ("1.5", "0.5", "2.0"))


def test_csv_says_what_it_can(tmp_path: Path) -> None:
    rows = ["kind,node,value", "add-edge,0,7", "correct-feature,7,0=1.5", "correct-feature,7,1=2", "correct-label,4,2",
            "correct-weight,0,633=0.5", "forget-node,3,", "forget-feature,9,all", "end,7,", ""]  # fmt: skip
    found = uw.Change.from_csv("\n".join(rows))
    assert found.content() == {
        "add": {"edges": [[0, 7]]},
        "correct": {"features": {"7": {"0": 1.5, "1": 2.0}}, "labels": {"4": 2}, "edge_weights": [[0, 633, 0.5]]},
        "forget": {"nodes": [3], "features": {"9": "all"}},
    }
    (tmp_path / "a.csv").write_text("\n".join(rows))
    (tmp_path / "a.jsonl").write_text(found.to_json() + "\n\n" + json.dumps(FULL) + "\n")
    assert uw.Change.read(tmp_path / "a.csv") == found
    assert uw.Change.read_all(tmp_path / "a.jsonl") == [found, uw.Change.from_dict(FULL)]
    (tmp_path / "b.jsonl").write_text(found.to_json() + '\n{"add": 3}\n{}\n')
    with pytest.raises(uw.RequestError, match=r"line 2: add must be an object(.|\n)*line 3: the change is empty"):
        uw.Change.read_all(tmp_path / "b.jsonl")
    for text, wrong in (
        ("kind,node,value\nadd-edge,0,7", "newline"),
        ("kind,node,value\nadd-node,0,7\n", "unknown kind 'add-node'.*JSON"),
        ("kind,node,value\ncorrect-label,0,x\n", "'x' is not a number"),
        ("kind,node,value\ncorrect-label,0,1\ncorrect-label,0,2\n", "label of node 0 is given twice"),
        ("kind,node,value\nadd-edge,0,7\nend,2,\n", "should be 2 rows"),
        ("kind,node\n", "first line"),
    ):
        with pytest.raises(uw.RequestError, match=wrong):
            uw.Change.from_csv(text)


NODE = {"features": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ({}, "the change is empty"),
        ({"add": {}, "correct": {"labels": {}}}, "the change is empty"),
        ({"remove": {}}, "unknown key 'remove'"),
        ({"add": {"nodes": [{"label": 3}]}}, r"add.nodes\[0\] has no features"),
        ({"add": {"nodes": [{"features": [1.0, float("nan")]}]}}, "nan is not finite"),
        ({"add": {"nodes": [{"features": "12"}]}}, "must be a list"),
        ({"add": {"nodes": [{"features": [True]}]}}, "True is not a number"),
        ({"add": {"nodes": [NODE | {"mask": "train"}]}}, "one without in none"),
        ({"add": {"nodes": [NODE | {"label": 1, "mask": "holdout"}]}}, "'holdout' is none of train, val, test"),
        ({"add": {"nodes": [NODE | {"edges": [5, 5]}]}}, "named more than once: 5"),
        ({"add": {"nodes": [NODE | {"colour": 1}]}}, "unknown key 'colour'"),
        ({"add": {"edges": [[0, 7], [0, 7]]}}, r"named more than once: \(0, 7\)"),
        ({"add": {"edges": [[0]]}}, "is not an edge"),
        ({"add": {"edges": [[0, -1]]}}, "-1 is below 0"),
        ({"add": {"edges": [[0, 1.5]]}}, "1.5 is not a whole number"),
        ({"correct": {"edge_weights": [[0, 7]]}}, "has no weight"),
        ({"correct": {"edge_weights": [[0, 7, float("inf")]]}}, "inf is not finite"),
        ({"correct": {"features": {"7": {}}}}, "no column is named"),
        ({"correct": {"features": {"seven": [1.0]}}}, "'seven' is not a whole number"),
        ({"correct": {"labels": [4]}}, "must map ids to values"),
        ({"correct": {"labels": {"4": 1, 4: 2}}}, "named more than once: 4"),
        ({"correct": {"labels": {4: 1}}, "forget": {"nodes": [4]}}, "correct.labels: the same change forgets"),
        ({"correct": {"labels": {4: 1}}, "forget": {"labels": [4]}}, "correct.labels: the same change forgets"),
        ({"correct": {"features": {4: {1: 1}}}, "forget": {"features": {4: [1]}}}, "correct.features: the same change"),
        ({"add": {"edges": [[4, 5]]}, "forget": {"nodes": [4]}}, "add.edges: the same change forgets"),
        ({"add": {"edges": [[4, 5]]}, "id": "a\nb"}, "id must be a text"),
    ],
)  # fmt: skip
def test_what_is_no_change_is_refused(parts: dict[str, Any], wrong: str) -> None:
    with pytest.raises(uw.RequestError, match=wrong):
        uw.Change.from_dict(parts)


def test_only_forgetting_is_a_request() -> None:
    request = uw.Request(nodes=[3], id="a")
    assert uw.Change(forget=request).deletion == request
    assert uw.Change(forget={"nodes": [3]}, id="a").deletion == request
    assert uw.Change.from_dict(FULL).deletion is None
