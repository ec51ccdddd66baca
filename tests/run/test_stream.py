"""Requests one after another: mixed, overlapping, batched, interrupted; and what they leave is kept track of."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from tests.killing import REQUESTS, graph
from tests.methods.test_auto import CLOSED, COST, calibrated
from tests.methods.test_calibration import trained
from unweave._core.tuning import tuned
from unweave.methods.ladder.debt import Standing, age_of, standing_of
from unweave.methods.ladder.size import Shape
from unweave.objective.parameters import flatten
from unweave.objective.scores import gap, log_probabilities
from unweave.run.gone import outstanding
from unweave.run.receipts import Receipts
from unweave.testing import small_graph

LONG = {"evaluations": 300}
"""A polish for whom small differences matter."""


@pytest.fixture(scope="module")
def minimum() -> uw.Run:
    data = small_graph(nodes=90)
    with tuned(polish=LONG):
        return uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-2, epochs=30)


def some(data: Data, count: int = 4) -> tuple[list[int], list[tuple[int, int]]]:
    nodes = data.train_mask.nonzero().flatten().tolist()[:count]
    edges = [(u, v) for u, v in data.edge_index.t().tolist() if u < v and u not in nodes and v not in nodes]
    return nodes, edges[:count]


def mixed(data: Data) -> list[uw.Request]:
    nodes, edges = some(data)
    return [
        uw.Request(edges=edges[:2]),
        uw.Request(nodes=nodes[:1], labels=nodes[1:2]),
        uw.Request(features={nodes[2]: "all"}),
        uw.Request(edges=edges[2:], features={nodes[3]: [0, 1]}),
    ]


def test_a_stream_is_its_requests_one_after_another(minimum: uw.Run) -> None:
    requests = mixed(minimum.data)
    seen: list[tuple[int, int]] = []
    streamed = minimum.forget(requests, "gif", progress=lambda *at: seen.append(at))
    run = minimum
    for request in requests:
        run = run.forget(request, "gif")
    assert torch.equal(flatten(streamed.model), flatten(run.model))
    assert len(streamed.receipts) == 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert streamed.verify() is streamed


def test_a_batch_equals_its_parts_to_within_the_estimate(minimum: uw.Run) -> None:
    with tuned(polish=LONG):
        ready = minimum.calibrate(12)
    requests = mixed(ready.data)
    parts, batch = (ready.forget(requests, "auto", at_least=0.9, batch=together) for together in (False, True))
    assert len(batch.receipts) == 1
    assert batch.receipts[0].removed["edges"] >= 4
    assert torch.equal(parts.data.edge_index, batch.data.edge_index)
    with tuned(polish=LONG):
        retrained = ready.forget(uw.Request.merged(requests), "retrain")
    everyone = torch.ones(ready.data.num_nodes, dtype=torch.bool)
    target, one, other, start = (
        log_probabilities(run.model, retrained.data) for run in (retrained, parts, batch, ready)
    )
    apart, whole = gap(one, other, everyone), gap(target, start, everyone)
    allowed = parts.standing.estimate.low
    assert allowed is not None
    assert apart / whole <= 1 - allowed
    assert 1 - gap(target, one, everyone) / whole > 0.9
    assert parts.standing.requests == 4
    assert parts.standing.shape.size == pytest.approx(batch.standing.shape.size, rel=0.1)


def test_of_what_went_with_a_node_nobody_says_that_it_was_there(minimum: uw.Run) -> None:
    nodes, _ = some(minimum.data)
    after = minimum.forget(uw.Request(nodes=[nodes[0]]), "none")
    for asked in (uw.Request(edges=[(nodes[0], nodes[1])]), uw.Request(features={nodes[0]: [99_999]})):
        receipt = after.forget(asked).receipts[-1]
        assert receipt.status == "nothing to do"
        assert receipt.reason is not None
        assert "whether all of that was ever there is not known any more" in receipt.reason
    again = after.forget(uw.Request(nodes=[nodes[0]])).receipts[-1]
    assert again.reason is not None
    assert "not known any more" not in again.reason


def test_what_went_before_is_left_out_and_said(minimum: uw.Run) -> None:
    nodes, edges = some(minimum.data)
    after = minimum.forget(uw.Request(edges=[edges[0]], features={nodes[2]: [0, 1]}), "gif")
    u, v = edges[0]
    again = after.forget(uw.Request(edges=[(v, u), edges[1]], features={nodes[2]: [1, 2]}), "gif")
    receipt = again.receipts[-1]
    assert receipt.request == {"edges": [list(edges[1])], "features": {str(nodes[2]): [2]}}
    assert receipt.status == "partly gone already"
    assert receipt.reason is not None
    assert "had taken 1 edge, features of 1 nodes of it already" in receipt.reason
    asked = uw.Request(edges=[(v, u), edges[1]], features={nodes[2]: [1, 2]})
    assert (receipt.asked, receipt.request_digest) == (asked.content(), asked.digest), "as it was received"
    neighbour = next(b for a, b in minimum.data.edge_index.t().tolist() if a == nodes[0])
    alone = minimum.forget(uw.Request(nodes=[nodes[0]]), "gif")
    later = alone.forget(uw.Request(nodes=nodes[:2], edges=[(nodes[0], neighbour)], labels=[nodes[0], nodes[3]]), "gif")
    assert later.receipts[-1].request == {"nodes": [nodes[1]], "labels": [nodes[3]]}
    gone = alone.forget(uw.Request(labels=[nodes[0]], id="DSR-7"), "gif")
    assert (gone.receipts[-1].status, gone.receipts[-1].id) == ("nothing to do", "DSR-7")
    assert "which is all it names" in gone.receipts[-1].verdict
    assert gone.model is alone.model


def test_what_never_was_there_is_still_refused(minimum: uw.Run) -> None:
    after = minimum.forget(uw.Request(nodes=[3]), "gif")
    absent = next(
        (0, n)
        for n in range(1, 90)
        if n != 3 and not bool(((after.data.edge_index[0] == 0) & (after.data.edge_index[1] == n)).any())
    )
    with pytest.raises(uw.RequestError, match="not in the graph"):
        after.forget(uw.Request(edges=[absent]), "gif")
    with pytest.raises(uw.RequestError, match="not in the graph"):
        after.forget(uw.Request(nodes=[1000]), "gif")
    with pytest.raises(uw.RequestError, match=r"request 2 of 2: edges: .* not in the graph"):
        after.forget([uw.Request(nodes=[4]), uw.Request(edges=[absent])], "gif")
    with pytest.raises(uw.RequestError, match="requests must be one"):
        after.forget([], "gif")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (uw.Request(nodes=[1000]), "nodes: 1000 is not in the graph"),
        (uw.Request(edges=[(0, 0)]), "edges: .* not in the graph"),
        (uw.Request(features={1: [99]}), "column 99 of node 1 is out of range"),
        (uw.Request(labels=[-1]), "labels: -1 is not in the graph"),
        (uw.Request(edges=[(1, 2), (2, 1)]), "named in both directions"),
    ],
)
def test_all_requests_are_checked_before_the_first_is_carried_out(
    minimum: uw.Run, tmp_path: Path, wrong: uw.Request, says: str
) -> None:
    seen: list[object] = []
    stream = [uw.Request(nodes=[4]), uw.Request(labels=[4]), wrong]
    with pytest.raises(uw.RequestError, match="request 3 of 3: .*" + says):
        minimum.forget(stream, "gif", out=tmp_path / "run", progress=lambda *at: seen.append(at))
    assert not seen
    assert not list(tmp_path.iterdir()), "nothing was carried out"


def test_every_request_has_a_receipt_also_where_nothing_is_left(minimum: uw.Run, tmp_path: Path) -> None:
    nodes, _ = some(minimum.data)
    stream = [
        uw.Request(nodes=nodes[:2]),
        uw.Request(nodes=nodes[:1], labels=nodes[1:2]),
        uw.Request(labels=nodes[2:3]),
    ]
    done = minimum.forget(stream, "gif", out=tmp_path / "run")
    assert [r.status for r in done.receipts] == ["done", "nothing to do", "done"]
    assert [r.request_digest for r in done.receipts] == [r.digest for r in stream]
    assert done.receipts[1].request == {}
    opened = uw.Run.open(tmp_path / "run", model=uw.models.SGC(8, 3), data=small_graph(nodes=90)).verify()
    assert list(opened.receipts) == list(done.receipts)
    again = opened.forget(stream, "gif")
    assert list(again.receipts[:3]) == list(done.receipts), "nothing that was issued changes"
    assert [r.status for r in again.receipts[3:]] == ["nothing to do"] * 3
    assert torch.equal(flatten(again.model), flatten(done.model))


def test_a_generator_is_a_stream(minimum: uw.Run) -> None:
    nodes, _ = some(minimum.data)
    done = minimum.forget((uw.Request(nodes=[n]) for n in nodes[:2]), "none")
    assert [r.status for r in done.receipts] == ["done", "done"]
    with pytest.raises(uw.RequestError, match=r"one unweave\.Request or more, got none"):
        minimum.forget(iter(()))
    for wrong in ({"nodes": [3]}, "nodes", 3, [{"nodes": [3]}]):
        with pytest.raises(uw.RequestError, match="got"):
            minimum.forget(wrong)  # type: ignore[arg-type]


def test_all_bad_requests_are_named_at_once_and_can_be_put_aside(minimum: uw.Run) -> None:
    nodes, edges = some(minimum.data)
    stream = [
        uw.Request(nodes=[1000], id="DSR-1"),
        uw.Request(nodes=nodes[:1]),
        uw.Request(edges=[edges[0], (0, 0)], id="DSR-3"),
        uw.Request(edges=[edges[1]]),
    ]
    with pytest.raises(uw.RequestError, match="2 of 4 requests cannot be carried out, and nothing was done") as told:
        minimum.forget(stream, "none")
    assert "request 1 of 4 (DSR-1): nodes: 1000 is not in the graph" in str(told.value)
    assert "request 3 of 4 (DSR-3): edges: (0, 0) is not in the graph" in str(told.value)
    done = minimum.forget(stream, "none", skip_invalid=True)
    assert [r.status for r in done.receipts] == ["refused", "done", "refused", "done"]
    assert done.receipts[2].request == {}
    assert done.receipts[2].asked == stream[2].content()
    assert "Data removed from the graph: no." in done.receipts[2].verdict
    found = done.summary()
    assert found.statuses == {"refused": 2, "done": 2}
    assert set(found.refusals) == {"DSR-1", "DSR-3"}
    batch = minimum.forget(stream, "none", skip_invalid=True, batch=True)
    assert [r.status for r in batch.receipts] == ["refused", "refused", "done"]
    assert torch.equal(batch.data.edge_index, done.data.edge_index)


def test_what_is_refused_on_the_way_can_be_put_aside(minimum: uw.Run) -> None:
    """The last training nodes of a class may go only where that is allowed, which nobody knows beforehand."""
    data = minimum.data
    rare = int(torch.bincount(data.y[data.train_mask]).argmin())
    members = (data.train_mask & (data.y == rare)).nonzero().flatten().tolist()
    other = next(n for n in data.train_mask.nonzero().flatten().tolist() if n not in members)
    stream = [uw.Request(labels=members[:1]), uw.Request(labels=members[1:]), uw.Request(labels=[other])]
    with pytest.raises(uw.ClassLossError, match=r"request 2 of 3.*; 1 before it is carried out") as told:
        minimum.forget(stream, "none")
    assert [r.status for r in told.value.run.receipts] == ["done"], "what was done is not lost"
    done = minimum.forget(stream, "none", skip_invalid=True)
    assert [r.status for r in done.receipts] == ["done", "refused", "done"]


def test_an_interrupted_stream_says_what_was_done_and_keeps_it(minimum: uw.Run, tmp_path: Path) -> None:
    nodes, _ = some(minimum.data)
    stream = [uw.Request(nodes=[n]) for n in nodes]

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(
        KeyboardInterrupt, match=f"interrupted; 2 before it are carried out in {tmp_path / 'run'}"
    ) as told:
        minimum.forget(stream, "none", out=tmp_path / "run", progress=interrupt)
    assert len(told.value.run.receipts) == 2  # type: ignore[attr-defined]
    kept = uw.Run.open(tmp_path / "run", model=uw.models.SGC(8, 3), data=small_graph(nodes=90))
    assert list(kept.receipts) == list(told.value.run.receipts)  # type: ignore[attr-defined]


def test_warnings_of_a_stream_are_collected(minimum: uw.Run) -> None:
    nodes, _ = some(minimum.data)
    done = minimum.forget([uw.Request(nodes=[n]) for n in nodes[:3]], "none")
    found = done.summary()
    assert found.requests == 3
    assert found.grades == {"unchanged": 3}
    assert list(found.warnings.values()) == [3]
    assert not found.relied_on
    assert "3 times practically unchanged: do not rely on it" in str(found)
    assert done.summary(since=2).requests == 1


def test_a_directed_edge_is_another_one_than_its_reverse(minimum: uw.Run) -> None:
    request = uw.Request(edges=[(1, 2)])
    receipt = minimum.forget(uw.Request(nodes=[5]), "gif").receipts[-1]
    earlier = replace(receipt, request={"edges": [[2, 1]]})
    assert outstanding(request, [earlier])[0] is None
    assert outstanding(request, [replace(earlier, graph=earlier.graph | {"undirected": False})]) == (request, "")


@pytest.mark.parametrize("way", ["plain", "prepared", "minimum", "deferred"])
def test_a_resumed_stream_ends_where_an_uninterrupted_one_does(way: str, tmp_path: Path) -> None:
    """To the bit: rounding that differs by where a run comes from grows into another model."""
    run = uw.train(uw.models.GCN(8, 3, hidden=4), graph(), epochs=10, forgettable=way == "minimum")
    run = run.prepare() if way in ("prepared", "deferred") else run
    how = {"defer": way == "deferred"}
    whole = run.forget(REQUESTS[:4], "gif", **how)
    run.forget(REQUESTS[:2], "gif", **how).save(tmp_path / "run")
    resumed = uw.Run.open(tmp_path / "run", data=graph()).forget(REQUESTS[:4], "gif", **how)
    assert [r.status for r in resumed.receipts[2:4]] == ["nothing to do"] * 2
    assert torch.equal(flatten(resumed.model), flatten(whole.model))


def test_what_is_known_of_all_before_is_not_read_again(minimum: uw.Run) -> None:
    """A stream of many requests is linear: the next one asks the last receipts, not all of them."""
    run = minimum.replace(calibration=calibrated({"gif": 0.9}, {"gif": 0.1}))
    nodes = run.data.train_mask.nonzero().flatten().tolist()
    for node in nodes[:6]:
        run = run.forget(uw.Request(labels=[node]), "auto", budget=0.9)
    read: list[int] = []

    class Watched(Receipts):
        def __getitem__(self, number: Any) -> Any:
            read.append(number)
            return super().__getitem__(number)

    watched = Watched(run.receipts.log)
    assert standing_of(watched).requests == 6
    assert run.calibration is not None
    assert age_of(run.calibration, watched)["requests_ago"] == 6
    assert len(read) == 2


def test_what_is_left_adds_up_until_the_ladder_climbs() -> None:
    run = trained().prepare().replace(calibration=calibrated(CLOSED | {"gif": 0.6}, COST))
    edges = some(run.data)[1]
    plain = run
    for edge in edges[:2]:
        plain = plain.forget(uw.Request(edges=[edge]), "gif")
    assert plain.standing.unknown == 2
    assert plain.standing.estimate.closed == 0
    first = run.forget(uw.Request(edges=[edges[0]]), "auto", at_least=0.55)
    assert first.receipts[-1].details["rung"] == "gif"
    assert first.standing.requests == 1
    assert 0.5 < first.standing.estimate.closed < 0.7
    climbed = plain.forget(uw.Request(edges=[edges[2]]), "auto", at_least=0.55)
    assert climbed.receipts[-1].details["rung"] == "replay(share=0.5)", "what is not known counts as not forgotten"
    assert climbed.standing.unknown == 0
    assert climbed.standing.requests == 3
    assert "With 2 requests before it" in " ".join(climbed.receipts[-1].grounds)
    sure = climbed.forget(uw.Request(edges=[edges[3]]), "auto", at_least=0.97)
    assert sure.receipts[-1].details["rung"] == "retrain"
    assert sure.standing == Standing()
    assert [c.epoch for c in sure.checkpoints] == [c.epoch for c in run.checkpoints], "it can replay as before"
    assert plain.forget(uw.Request(edges=[edges[3]]), "retrain").standing == Standing()


def test_standing_weighs_requests_by_their_size() -> None:
    from unweave.receipt.estimate import Estimate  # noqa: PLC0415

    found = (
        Standing().after(Shape(edges=0.03), Estimate(0.9, 0.8, 1.0)).after(Shape(nodes=0.01), Estimate(0.5, 0.2, 0.6))
    )
    assert found.estimate.closed == pytest.approx(1 - (0.1 * 0.03 + 0.5 * 0.01) / 0.04)
    assert found.estimate.low == pytest.approx(1 - (0.2 * 0.03 + 0.8 * 0.01) / 0.04)
    anew = found.anew(Shape(edges=0.01), Estimate(0.7))
    assert anew.estimate.closed == pytest.approx(0.7)
    assert anew.estimate.low is None
    assert Standing(**{**anew.to_dict(), "shape": Shape(**anew.to_dict()["shape"])}) == anew


def test_requests_are_merged_and_read(tmp_path: Path) -> None:
    one = uw.Request(nodes=[1], edges=[(2, 3)], features={4: [1], 5: "all"}, labels=[6])
    two = uw.Request(nodes=[1, 2], edges=[(3, 2)], features={4: [0, 1], 5: [3]}, labels=[6])
    both = uw.Request.merged([one, two], undirected=True)
    assert both == uw.Request(nodes=[1, 2], edges=[(2, 3)], features={4: [0, 1], 5: "all"}, labels=[6])
    assert len(uw.Request.merged([one, two]).edges) == 2
    path = tmp_path / "requests.jsonl"
    path.write_text(one.to_json() + "\n\n" + two.to_json() + "\n")
    assert uw.Request.read_all(path) == [one, two]
    path.write_text(one.to_json() + '\n{"nodes": 3}\n')
    with pytest.raises(uw.RequestError, match="line 2: nodes must be a list"):
        uw.Request.read_all(path)
    path.write_text("\n")
    with pytest.raises(uw.EmptyRequestError, match="holds no request"):
        uw.Request.read_all(path)
    (tmp_path / "one.json").write_text(json.dumps(one.to_dict()))
    assert uw.Request.read_all(tmp_path / "one.json") == [one]
