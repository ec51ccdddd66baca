"""Requests: every way to write one, and every way to write one wrongly."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unweave import EmptyRequestError, Request, RequestError

EVERYTHING = '{"nodes": [3], "edges": [[0, 1], [5, 2]], "features": {"7": "all", "9": [5, 0]}, "labels": [4]}'


def test_json_csv_and_python_agree() -> None:
    table = "kind,node,value\nnode,3,\nedge,0,1\nedge,5,2\nfeature,7,all\nfeature,9,5\nfeature,9,0\nlabel,4,\n"
    python = Request(nodes=[3], edges=[(5, 2), (0, 1)], features={9: [0, 5], 7: "all"}, labels=[4])
    assert Request.from_json(EVERYTHING) == python == Request.from_csv(table)
    assert hash(python) == hash(Request.from_csv(table))
    assert python.describe() == "1 node, 2 edges, features of 2 nodes, 1 label"


def test_numpy_and_torch_ids_are_taken() -> None:
    request = Request(nodes=np.array([2, 1]), edges=torch.tensor([[0, 1]]), labels=torch.tensor([3]))
    assert request == Request(nodes=(1, 2), edges=((0, 1),), labels=(3,))
    assert all(type(n) is int for n in request.nodes)


def test_read_by_suffix(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(EVERYTHING)
    (tmp_path / "r.csv").write_text("kind,node,value\nnode,3,\n")
    assert Request.read(tmp_path / "r.json") == Request.from_json(EVERYTHING)
    assert Request.read(tmp_path / "r.csv") == Request(nodes=(3,))
    with pytest.raises(RequestError, match="must end in"):
        Request.read(tmp_path / "r.txt")
    with pytest.raises(RequestError, match="cannot read"):
        Request.read(tmp_path / "absent.json")


def test_a_request_cannot_be_changed() -> None:
    request = Request.from_json(EVERYTHING)
    with pytest.raises(AttributeError):
        request.nodes = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        request.features[1] = "all"  # type: ignore[index]
    assert copy.deepcopy(request) == request == pickle.loads(pickle.dumps(request))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Request(nodes=[1, 2, 1]), "nodes: named more than once: 1"),
        (lambda: Request(edges=[(0, 1), (0, 1)]), r"edges: named more than once: \(0, 1\)"),
        (lambda: Request(labels=[4, 4]), "labels: named more than once: 4"),
        (lambda: Request(features={1: [2, 2]}), "features of node 1: named more than once: 2"),
        (lambda: Request(features={1: []}), "no column is named for node 1"),
        (lambda: Request(features={1: "some"}), "must be 'all' or a list"),
        (lambda: Request(features=[1]), "must map a node"),
        (lambda: Request(nodes=[1.5]), "1.5 is not a whole number"),
        (lambda: Request(nodes=[True]), "True is not a whole number"),
        (lambda: Request(nodes="12"), "nodes must be a list"),
        (lambda: Request(edges=[3]), "not a pair"),
        (lambda: Request(edges=[(1, 2, 3)]), "not a pair"),
        (lambda: Request.from_json("{"), "not valid JSON"),
        (lambda: Request.from_json("[1]"), "is a JSON object"),
        (lambda: Request.from_json('{"node": [1]}'), "unknown key 'node'"),
        (lambda: Request.from_json('{"features": {"1": "all", "1": [0]}}'), "named more than once: 1"),
        (lambda: Request.from_json('{"features": {"one": "all"}}'), "'one' is not a node id"),
        (lambda: Request.from_json('{"features": {"1": "all", "01": [0]}}'), "features: named more than once: 1"),
        (lambda: Request.from_csv("a,b\n1,2\n"), "first line must be"),
        (lambda: Request.from_csv("kind,node,value\n\nNode,3,\n"), "line 3: unknown kind 'Node'; use node"),
        (lambda: Request.from_csv("kind,node,value\nperson,3,1\n"), "line 2: unknown kind 'person'"),
        (lambda: Request.from_csv("kind,node,value\nnode,three,\n"), "'three' is not a whole number"),
        (lambda: Request.from_csv("kind,node,value\nedge,3,\n"), "line 2: an? edge needs a value"),
        (lambda: Request.from_csv("kind,node,value\nnode,3,7\n"), "a node leaves the value empty"),
        (lambda: Request.from_csv("kind,node,value\nnode,１２,\n"), "is not a whole number"),
        (lambda: Request.from_json('{"nodes": [' + "9" * 5000 + "]}"), "not valid JSON"),
        (lambda: Request.from_json("[" * 100_000), "not valid JSON"),
        (lambda: Request(nodes=torch.tensor([False, True])), "boolean mask"),
        (lambda: Request.from_csv("kind,node,value\nnode,3,,9\n"), "line 2: more than the three columns"),
        (lambda: Request.from_csv("kind,node,value\nfeature,3,all\nfeature,3,1\n"), "line 3: features of node 3"),
        (lambda: Request.from_csv("kind,node,value\nnode," + "1" * 200_000 + ",\n"), "line 2: not valid CSV.*131072"),
        (lambda: Request.from_csv("kind," + "x" * 200_000), "not valid CSV"),
        (lambda: Request.from_csv("kind,node,value\nnode," + "1" * 100_000 + ",\n"), "^line 2: .{0,150}$"),
        (
            lambda: Request.from_csv("kind,node,value\nnode,3,\nend,2,\n"),
            "should be 2 rows before the end, there are 1",
        ),
        (lambda: Request.from_csv("kind,node,value\nnode,3,\nend,1,\nnode,4,\n"), "line 4: a row after the end"),
        (lambda: Request.from_dict({"nodes": [3], 1: 2, "x": 3}), "unknown key 1"),
    ],
)
def test_bad_form_is_refused(make, says) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RequestError, match=says):
        make()


@pytest.mark.parametrize(
    "make", [Request, lambda: Request.from_json("{}"), lambda: Request.from_csv("kind,node,value\n")]
)
def test_an_empty_request_is_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(EmptyRequestError):
        make()


def test_a_csv_that_was_cut_is_no_other_request() -> None:
    """``node,12,`` cut to ``node,1`` named another node."""
    whole = "kind,node,value\nnode,7,\nedge,0,633\nnode,12,\nend,3,\n"
    assert (
        Request.from_csv(whole)
        == Request.from_csv(whole.replace("\n", "\r\n"))
        == Request(nodes=[7, 12], edges=[(0, 633)])
    )
    for length in range(len(whole)):
        if whole[length - 1] != "\n":
            with pytest.raises(RequestError):
                Request.from_csv(whole[:length])
    with pytest.raises(RequestError, match="may have been cut; end a whole text with one"):
        Request.from_csv("kind,node,value\nnode,1")


def test_every_bad_line_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"nodes": [1]}\n{"nodes": 3}\n\n{}\n{"nodes": [2]}\nnonsense\n')
    with pytest.raises(RequestError, match="3 lines are no request") as caught:
        Request.read_all(path)
    told = str(caught.value)
    assert all(words in told for words in ("line 2: nodes must be a list", "line 4: the request is empty", "line 6: "))
    lines = Request.read_lines(path)
    assert lines.requests == {1: Request(nodes=[1]), 5: Request(nodes=[2])}
    assert set(lines.invalid) == {2, 4, 6}
    path.write_text("{\n" * 30)
    with pytest.raises(RequestError, match=r"line 20: .*\n  and lines 21, 22, .*, 30$"):
        Request.read_all(path)


def test_a_line_separator_of_unicode_does_not_split_a_line(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"nodes": [1], "id": "a\x85b"}\n{"nodes":\u2028[2]}\n{"nodes": [3]}\r\n', encoding="utf-8")
    lines = Request.read_lines(path)
    assert [*lines.invalid, *lines.requests] == [1, 2, 3]
    assert "id must be" in str(lines.invalid[1])


ids = st.integers(0, 500)


@given(
    st.sets(ids, min_size=1),
    st.sets(st.tuples(ids, ids)),
    st.dictionaries(ids, st.one_of(st.just("all"), st.sets(ids, min_size=1))),
    st.sets(ids),
    st.randoms(),
)
def test_json_round_trip_and_order_do_not_matter(nodes, edges, features, labels, random) -> None:  # type: ignore[no-untyped-def]
    request = Request(nodes=nodes, edges=edges, features=features, labels=labels)
    assert Request.from_json(request.to_json()) == request
    shuffled = list(nodes)
    random.shuffle(shuffled)
    again = Request(nodes=shuffled, edges=edges, features=features, labels=labels)
    assert again.digest == request.digest


@pytest.mark.parametrize("count", [2, 3])
def test_an_edge_index_is_not_taken_for_pairs(count: int) -> None:
    """Two columns of an edge_index would read as two other edges."""
    index = torch.tensor([[1, 2, 3], [4, 5, 6]])[:, :count]
    with pytest.raises(RequestError, match="edge_index"):
        Request(edges=index)
    assert Request(edges=index.t().tolist()).edges[0] == (1, 4)


def test_a_request_carries_an_id_and_a_note_that_are_no_part_of_its_digest() -> None:
    text = '{"nodes": [240], "id": "DSR-1042", "note": "asked by post, Müller"}'
    request = Request.from_json(text)
    assert (request.id, request.note) == ("DSR-1042", "asked by post, Müller")
    assert Request.from_dict(request.to_dict()) == request == pickle.loads(pickle.dumps(request))
    assert request.digest == Request(nodes=[240]).digest
    assert request.content() == {"nodes": [240]} == Request(nodes=[240]).to_dict()
    assert replace(request, nodes=(3,)).id == "DSR-1042"


@pytest.mark.parametrize("name", ["id", "note"])
@pytest.mark.parametrize("said", ["", "  ", "a\nb", "\x1b[31mred", "a\u2028b", 7, ["a"], "\ud800", "x" * 2_001])
def test_words_that_would_spoil_a_receipt_are_refused(name: str, said: object) -> None:
    with pytest.raises(RequestError, match=f"^{name} must be a text of 1 to") as caught:
        Request.from_dict({"nodes": [1], name: said})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_merged_requests_keep_their_ids_and_notes() -> None:
    merged = Request.merged([Request(nodes=[n], id=f"T{n}", note="by post") for n in (1, 2)] + [Request(nodes=[3])])
    assert (merged.id, merged.note) == ("T1; T2", "by post")
    assert Request.merged([Request(nodes=[3])]).id is None
    many = Request.merged(Request(nodes=[n], id=f"{n:0100d}") for n in range(50))
    assert many.id is not None
    assert many.id == f"{0:0100d}; and 49 more"
