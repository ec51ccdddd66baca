"""What people who are new to it ran into: plans that differ from deeds, work thrown away, words that are not so."""

import json
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

import unweave as uw
from tests.cli.test_cli import refused, unweave
from tests.methods.test_auto import calibrated
from unweave.cli.calibrate import _gain, _table
from unweave.testing import small_graph


@pytest.fixture
def run() -> uw.Run:
    data = small_graph(nodes=90)
    return uw.train(uw.models.GCN(8, 3, hidden=8), data, epochs=20, checkpoints=(0.5,)).prepare()


def test_a_plan_chooses_as_forgetting_does(run: uw.Run) -> None:
    closed = {"gif(steps=1)": 0.2, "gif": 0.3, "replay(share=0.5)": 0.95}
    cost = {"gif(steps=1)": 0.03, "gif": 0.05, "replay(share=0.5)": 0.5}
    known = run.replace(calibration=calibrated(closed, cost))
    request = uw.draw("edges:0.05", run.data)
    for wish in ({"budget": 0.6}, {"budget": 0.06}, {"at_least": 0.9}):
        planned = known.preview(request, "auto", **wish)
        done = known.forget(request, "auto", **wish).receipts[-1]
        assert planned.how.startswith(done.details["rung"] + ":")
    with pytest.raises(uw.MethodError, match="too small"):
        known.preview(request, "auto", budget=0.01)


def test_the_gain_of_a_calibration_is_that_of_the_rung_that_auto_takes(run: uw.Run) -> None:
    for better, taken in ((0.503, "gif"), (0.6, "replay(share=0.5)")):  # alike, the cheaper one is taken
        closed = {"gif(steps=1)": 0.2, "gif": 0.5, "replay(share=0.5)": better}
        cost = {"gif(steps=1)": 0.03, "gif": 0.05, "replay(share=0.5)": 0.1}
        known = run.replace(calibration=calibrated(closed, cost))
        assert f"--method auto takes {taken}, believed to close 0." in _gain(known)
        assert "saves 9" in _gain(known)
        assert known.preview(uw.draw("edges:0.01", run.data), "auto").how.startswith(taken + ":")
    harmful = calibrated({"gif": -20.0, "replay(share=0.5)": -0.1}, {"gif": 0.05, "replay(share=0.5)": 0.1})
    assert _gain(run.replace(calibration=harmful)).startswith("none for 1% of the edges: within the budget no rung")
    text = StringIO()
    Console(file=text, width=120).print(_table(harmful))
    assert "< -10 < -10 < -10 < -10" in text.getvalue()
    assert "-0.1" in text.getvalue()


def test_a_calibration_from_before_retraining_says_so(tmp_path: Path) -> None:
    data = uw.load("demo")
    model = uw.models.GCN(data.num_features, data.num_classes, hidden=8)
    run = uw.train(model, data, epochs=20, checkpoints=(0.5,)).prepare()
    closed, cost = {"gif": 0.9, "replay(share=0.5)": 0.95}, {"gif": 0.05, "replay(share=0.5)": 0.5}
    run = run.replace(calibration=calibrated(closed, cost))
    for again in ({"method": "retrain"}, {"method": "replay", "share": 1}, {"method": "auto", "at_least": 1.0}):
        retrained = run.forget(uw.draw("edges:0.01", data), **again)
        assert retrained.standing.requests == 0
        later = retrained.forget(uw.draw("nodes:0.01", retrained.data), "auto", budget=0.6)
        assert "2 requests ago" not in str(later.receipts[-1])
        words = "simulated deletions, 1 request ago, on the model before it was retrained by the same recipe"
        assert words in str(later.receipts[-1])
    plain = run.forget(uw.draw("edges:0.01", data), "gif")
    after = plain.forget(uw.draw("nodes:0.01", plain.data), "auto", budget=0.6)
    assert "simulated deletions, 1 request ago; held back" in str(after.receipts[-1])
    path = later.save(tmp_path / "run")
    assert "deletions, 2 requests ago, on the model before it was retrained" in unweave("show", path).stdout
    told = json.loads(unweave("show", path, "--json").stdout)["calibration"]
    assert told["deletions"] == 20
    assert told["requests_ago"] == 2
    assert told["retrained_since"] is True


def test_a_training_of_ones_own_is_not_repeated_by_adam(run: uw.Run) -> None:
    model = uw.models.GCN(8, 3, hidden=8)
    state = uw.Checkpoint.take(10, model, torch.optim.SGD(model.parameters(), lr=0.1))
    own, request = run.replace(checkpoints=(state,)), uw.draw("edges:0.05", run.data)
    for method in ("retrain", "auto", "replay", "retrace"):
        with pytest.raises(uw.MethodError, match="taken with SGD"):
            own.forget(request, method)
        with pytest.raises(uw.MethodError, match="taken with SGD"):
            own.preview(request, method)
    with pytest.raises(uw.MethodError, match="taken with SGD"):
        own.calibrate(1)
    assert own.forget(request).receipts[-1].method["name"] == "gif"


def test_the_command_line_cannot_repeat_a_training_of_ones_own(tmp_path: Path) -> None:
    data = uw.load("demo")
    model = uw.models.GCN(data.num_features, data.num_classes, hidden=8)
    state = uw.Checkpoint.take(3, model, torch.optim.SGD(model.parameters(), lr=0.1))
    path = uw.Run(model.eval(), data, recipe=uw.Recipe(epochs=5), checkpoints=(state,)).save(tmp_path / "run")
    told = unweave("calibrate", path, "--deletions", 1)
    refused(told, "trained by a loop of its own")
    refused(told, "the command line cannot call it, and has methods that do not train (--method gif)")
    assert uw.Run.open(path).calibration is None


def test_a_certified_run_says_when_its_model_is_not(tmp_path: Path) -> None:
    data = uw.load("demo")
    run = uw.train(uw.models.SGC(data.num_features, data.num_classes), data, certify=(1.0, 1e-5)).prepare()
    request = uw.draw("edges:0.01", data)
    with pytest.raises(uw.MethodError, match="cannot be certified"):
        run.forget(request, defer=True)
    with pytest.raises(uw.MethodError, match="needs no calibration"):
        run.calibrate(2)
    other = run.forget(request, "gif")
    other.save(tmp_path / "run")
    assert "Certified  this model is not" in unweave("show", tmp_path / "run").stdout
    later = other.forget(uw.draw("nodes:0.01", other.data)).receipts[-1].certificate
    assert later is not None
    assert "1 earlier model of this run is not certified" in later["statement"]


def test_a_stream_is_purged_once_and_goes_on_where_nothing_is_left(run: uw.Run) -> None:
    zero = next(n for n in run.data.train_mask.nonzero().flatten().tolist() if n > 2)
    run.data.x[zero] = 0
    requests = [uw.Request(nodes=[0]), uw.Request(features={zero: [1]}), uw.Request(nodes=[1])]
    done = run.prepare().forget(requests, "gif", purge=True)
    assert [(receipt.kind, receipt.status) for receipt in done.receipts] == [
        ("request", "done"), ("request", "nothing to do"), ("request", "done"), ("purge", "done"),
    ]  # fmt: skip
    states = [{t["what"]: t["state"] for t in receipt.remembers} for receipt in done.receipts]
    assert states[0]["the checkpoints of epoch 10"] == states[2]["the checkpoints of epoch 10"] == "kept"
    assert states[3]["the checkpoints of epoch 10"] == "purged"


def test_what_was_measured_is_not_thrown_away(run: uw.Run) -> None:
    known = run.calibrate(2)
    with pytest.raises(uw.MethodError, match="2 simulated deletions of seed 0"):
        known.calibrate(3, seed=7)
    assert known.calibrate(1).calibration == known.calibration


def test_files_of_ones_own_are_not_lost(tmp_path: Path, run: uw.Run) -> None:
    path = run.save(tmp_path / "run")
    (path / "NOTES.md").write_text("mine")
    with pytest.raises(uw.RunError, match=r"NOTES\.md"):
        run.save(path, overwrite=True)
    assert (path / "NOTES.md").read_text() == "mine"


def test_the_command_line_says_what_to_do(tmp_path: Path) -> None:
    one = str(tmp_path / "one")
    unweave("train", "--data", "demo", "--model", "gcn", "--epochs", "5", "--out", one)
    asked = ("forget", one, "--forget", "edges:0.05", "--method", "gif", "--budget", "20%", "--out", one + "x")
    refused(unweave(*asked), "go with --method auto", code=2)
    stream = tmp_path / "all.jsonl"
    stream.write_text(json.dumps({"nodes": [3]}) + "\n")
    two, three = str(tmp_path / "two"), str(tmp_path / "three")
    unweave("forget", one, "--request", str(stream), "--method", "none", "--out", two)
    said = unweave("forget", two, "--request", str(stream), "--method", "none", "--out", three)
    assert "Nothing to do: earlier requests had taken 1 node of it already" in said.stdout
    again = unweave("forget", one, "--request", str(stream), "--method", "none", "--out", two)
    refused(again, "goes on with: unweave forget")


def test_a_graph_without_validation_or_test_nodes_is_trained_on(tmp_path: Path) -> None:
    data = small_graph(nodes=90)
    kept = {key: data[key] for key in ("x", "edge_index", "y", "train_mask")}  # and nobody says how many classes
    torch.save(kept, tmp_path / "graph.pt")
    result = unweave(
        "train", "--data", tmp_path / "graph.pt", "--model", "sgc", "--epochs", 5, "--out", tmp_path / "run"
    )
    assert result.exit_code == 0, result.output
    assert "training F1" in result.output
    assert "validation F1" not in result.output


def test_what_gif_refuses_is_explained_all_the_same(
    run: uw.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save(tmp_path / "run")
    torch.save(run.data.to_dict(), tmp_path / "graph.pt")

    def refuse(*_: object, **__: object) -> None:
        raise uw.UnweaveError("no step lowers the objective")

    monkeypatch.setattr(uw.Run, "forget", refuse)
    result = unweave("explain", tmp_path / "run", "--data", tmp_path / "graph.pt", "--forget", "nodes:0.05")
    assert result.exit_code == 0, result.output
    assert "Felt by" in result.output
    assert "Not done    gif does not carry it out, so nothing actual is told: no step lowers" in result.output
