"""What else remembers: named in every receipt, and gone or made anew after a purge."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

import unweave as uw
from tests.cli.test_cli import refused, unweave
from unweave.objective.parameters import flatten
from unweave.receipt.traces import BEFORE, STATES, UNPURGED
from unweave.run.manifest import PARTS, STATE
from unweave.run.state import State
from unweave.testing import small_graph

EPOCHS = 20


def train(data: Any = None, **options: Any) -> uw.Run:
    """A run with all that a run can keep."""
    data = small_graph() if data is None else data
    model = uw.models.GCN(8, 3, hidden=4)
    return uw.train(model, data, seed=1, epochs=EPOCHS, checkpoints=(0.2, 0.5), **options).prepare()


@pytest.fixture(scope="module")
def run() -> uw.Run:
    return train()


def states(run: uw.Run) -> dict[str, str]:
    return {trace["what"].split(" of ")[0]: trace["state"] for trace in by_name(run).values()}


def by_name(run: uw.Run) -> dict[str, dict[str, str]]:
    """What remembers, by the receipt of the last request and of the purge that came after it, if one did."""
    last = max(number for number, receipt in enumerate(run.receipts) if receipt.carried_out)
    return {trace["what"]: trace for receipt in run.receipts[last:] for trace in receipt.remembers}


def tensors(run: uw.Run) -> list[Tensor]:
    """All that could tell of the graph a run was trained on: weights, moments of the optimiser, curvature, gradient."""
    assert run.prepared is not None
    states = [tensor for kept in run.checkpoints for tensor in kept.model.values()]
    moments = [
        tensor
        for kept in run.checkpoints
        for _, state in kept.parts
        for entry in state["state"].values()
        for tensor in entry.values()
        if tensor.dim()
    ]
    return [*run.model.state_dict().values(), *states, *moments, run.prepared.gradient, run.prepared.curvature.vectors]


def test_every_state_file_is_in_the_table() -> None:
    """A new file of a run has to say what a purge does with it."""
    known = {name for part in STATES for name in part.files}
    assert set(STATE) == known
    assert not known & set(PARTS)
    assert {part.field for part in STATES} <= set(State.__dataclass_fields__)


@pytest.mark.parametrize("method", ["gif", "if", "finetune", "none", "retrain", "replay", "lbfgs"])
def test_without_a_purge_the_receipt_says_what_is_kept(run: uw.Run, method: str) -> None:
    after = run.forget(uw.draw("edges:0.1", run.data), method)
    assert states(after) == {
        "the prepared state": "kept",
        "the checkpoints": "rewritten" if method == "retrain" else "kept",
        BEFORE: "kept",
        "the graph": "kept",
        "the request": "kept",
    }
    assert all(trace[key] for trace in after.receipts[-1].remembers for key in ("what", "where", "why"))


@pytest.mark.parametrize("method", ["gif", "finetune", "replay"])
def test_a_purge_leaves_nothing_that_was_made_before(run: uw.Run, method: str, tmp_path: Path) -> None:
    after = run.forget(uw.draw("nodes:0.1", run.data), method, purge=True)
    assert after.checkpoints == ()
    assert states(after)["the prepared state"] == "rewritten"
    assert states(after)["the checkpoints"] == "purged"
    fresh = uw.prepare(after.model, after.data, weight_decay=1e-4)
    assert after.prepared is not None
    assert after.prepared.age == 0
    assert torch.equal(after.prepared.gradient, fresh.gradient)
    assert torch.equal(after.prepared.curvature.vectors, fresh.curvature.vectors)
    assert after.prepared.passes == fresh.passes

    path = after.save(tmp_path / "a")
    assert not list(path.glob("checkpoints*"))
    secrets = [tensor.numpy().tobytes() for tensor in tensors(run) if tensor.numel() > 2 and tensor.any()]
    assert len(secrets) > 15
    for name, content in contents(tmp_path).items():
        assert not any(secret in content for secret in secrets), name


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones as well."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_the_search_for_old_tensors_finds_them(run: uw.Run, tmp_path: Path) -> None:
    run.forget(uw.draw("nodes:0.1", run.data)).save(tmp_path / "a")
    found = contents(tmp_path)["a/checkpoints.safetensors"]
    assert run.checkpoints[0].model["conv1.bias"].numpy().tobytes() in found


def noninterfering(purge: bool, path: Path) -> list[str]:
    """The files of two runs that retrained without a node, about which alone they were told different things."""
    found = []
    for features in (0.0, 5.0):
        data = small_graph()
        data.x = data.x.clone()
        data.x[7] = features
        data.train_mask[7] = True
        after = train(data).forget(uw.Request(nodes=[7]), "retrain", purge=purge)
        found.append(contents(after.save(path / f"{features}")))
    for files in found:
        facts = json.loads(files["prepared.json"])
        files["prepared.json"] = json.dumps(facts | {"seconds": 0}).encode()
    return sorted(name for name in found[0] if found[0][name] != found[1][name])


def test_after_a_purge_no_file_depends_on_what_was_removed(tmp_path: Path) -> None:
    """Retraining leaves no trace in the model; then all files but the record must be the same, whatever was removed."""
    assert noninterfering(True, tmp_path / "a") == ["manifest.json", "receipts.jsonl", "requests.jsonl"]
    assert "prepared.safetensors" in noninterfering(False, tmp_path / "b"), "without a purge they differ"


def test_checkpoints_of_a_training_that_began_anew_are_no_trace(run: uw.Run) -> None:
    for method, options in (("replay", {"share": 1}), ("retrain", {})):
        after = run.forget(uw.draw("edges:0.1", run.data), method, purge=True, **options)
        assert states(after)["the checkpoints"] == "rewritten"
        again = train(after.data)
        assert torch.equal(flatten(after.model), flatten(again.model))
        for here, there in zip(after.checkpoints, again.checkpoints, strict=True):
            assert all(torch.equal(here.model[name], there.model[name]) for name in here.model)


def test_what_a_purge_cost_is_in_the_receipt(run: uw.Run) -> None:
    request = uw.draw("edges:0.1", run.data)
    plain, purged = run.forget(request).receipts[-1], run.forget(request, purge=True)
    first, receipt, state = *purged.receipts, purged.prepared
    assert state is not None
    assert first.passes == plain.passes
    assert receipt.passes == state.passes
    assert receipt.seconds["purge"] == state.seconds
    total = sum(value for phase, value in receipt.seconds.items() if phase != "total")
    assert receipt.seconds["total"] == pytest.approx(total)
    assert f"computed anew on the remaining graph, {state.passes} passes" in str(receipt)


def test_a_run_without_a_prepared_state_gets_none() -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, epochs=5, checkpoints=(0.5,))
    after = run.forget(uw.draw("edges:0.1", data), purge=True)
    assert (after.prepared, after.checkpoints) == (None, ())
    assert "the prepared state" not in states(after)


def test_a_purged_run_goes_on_forgetting(run: uw.Run) -> None:
    once = run.forget(uw.draw("edges:0.1", run.data), purge=True)
    twice = once.forget(uw.draw("nodes:0.1", once.data))
    assert states(twice)["the prepared state"] == "kept"
    assert twice.receipts[-1].details["prepared"] == "after training"
    with pytest.raises(uw.MethodError, match="no checkpoint to replay from"):
        once.forget(uw.draw("nodes:0.1", once.data), "replay")


def test_a_purge_when_the_curvature_is_worn(run: uw.Run) -> None:
    most = run.forget(uw.draw("edges:0.4", run.data))
    after = most.forget(uw.draw("nodes:0.1", most.data), purge=True)
    assert "prepare" in after.receipts[-2].seconds
    assert "purge" in after.receipts[-1].seconds
    assert "anew for this request" in str(after.receipts[-2].details["prepared"])
    assert states(after)["the prepared state"] == "rewritten"


def test_a_purge_in_bounded_memory(run: uw.Run) -> None:
    after = run.forget(uw.draw("nodes:0.1", run.data), purge=True, memory_mib=64)
    assert states(after)["the prepared state"] == "rewritten"
    assert after.checkpoints == ()


def test_deferred_requests(run: uw.Run) -> None:
    with pytest.raises(uw.MethodError, match=r"leave defer \(--defer\) out"):
        run.forget(uw.draw("edges:0.02", run.data), defer=True, purge=True)
    waiting = run.forget(uw.draw("edges:0.02", run.data), defer=True)
    assert states(waiting)["the prepared state"] == "kept"
    after = waiting.forget(uw.draw("nodes:0.1", waiting.data), purge=True)
    assert after.pending == 0
    assert [receipt.kind for receipt in after.receipts] == ["request", "verification", "request", "purge"]
    assert states(after)["the prepared state"] == "rewritten"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    made = ("train", "--data", "demo", "--model", "gcn", "--epochs", 10, "--checkpoints", "0.5", "--out", path / "a")
    assert unweave(*made).exit_code == 0
    assert unweave("prepare", path / "a").exit_code == 0
    return path


def test_purge_on_the_command_line(folder: Path) -> None:
    how = ("forget", folder / "a", "--forget", "nodes:0.05", "--purge", "--out")
    refused(unweave(*how, folder / "b", "--defer"), "leave defer (--defer) out")
    done = unweave(*how, folder / "b")
    assert done.exit_code == 0, done.stderr
    for words in (
        "Purged     the checkpoints of epoch 5 (checkpoints.safetensors, checkpoints.json): removed",
        "Rewritten  the prepared state (prepared.safetensors, prepared.json): computed anew",
        f"the run before ({folder / 'a'}): it has the old model",
        "the data set demo (where it is stored)",
        "the request (receipts.jsonl, line 1)",
    ):
        assert words in done.stdout
        assert words in unweave("show", folder / "b").stdout
    told = json.loads(unweave(*how, folder / "c", "--json").stdout)["receipt"]["remembers"]
    assert {"what": "the request", "where": "receipts.jsonl, line 1", "state": "kept"}.items() <= told[-1].items()
    assert {p.name for p in folder.iterdir()} == {"a", "b", "c"}


def test_a_purge_in_place_leaves_nothing_of_the_old_run(folder: Path, tmp_path: Path) -> None:
    old = uw.Run.open(folder / "a")
    path = old.save(tmp_path / "a")
    for number in (1, 2):
        done = unweave(
            "forget", path, "--forget", "nodes:0.05", "--purge", "--out", path, "--overwrite", "--request-seed", number
        )
        assert done.exit_code == 0, done.stderr
        assert f"the run before ({path}): replaced by this one" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    secrets = [tensor.numpy().tobytes() for tensor in tensors(old) if tensor.numel() > 2 and tensor.any()]
    for name, content in contents(tmp_path).items():
        assert not any(secret in content for secret in secrets), name
    new = uw.Run.open(path)
    assert [r["state"] for n in new.receipts for r in n.remembers if r["what"] == BEFORE] == ["purged", "purged"]
    assert set(load((path / "weights.safetensors").read_bytes())) == set(new.model.state_dict())
    assert not torch.equal(flatten(new.model), flatten(old.model))
    assert unweave("verify", path).exit_code == 0


def test_in_python_the_run_before_is_replaced_in_its_own_folder_only(folder: Path, tmp_path: Path) -> None:
    path = uw.Run.open(folder / "a").save(tmp_path / "a")
    request = uw.draw("edges:0.05", uw.load("demo"))
    elsewhere = uw.Run.open(path).forget(request, out=tmp_path / "b")
    assert by_name(elsewhere)[BEFORE]["state"] == "kept"
    assert list(uw.Run.open(tmp_path / "b").receipts) == list(elsewhere.receipts)
    kept = uw.Run.open(path).forget(request)
    kept.save(path, overwrite=True)
    assert by_name(uw.Run.open(path))[BEFORE]["state"] == "kept", "what was issued is not patched when it is saved"
    again = uw.Run.open(path)
    again.forget(uw.draw("edges:0.05", again.data, seed=3), out=path)
    assert by_name(uw.Run.open(path))[BEFORE] == {
        "what": BEFORE, "where": str(path), "state": "purged", "why": "replaced by this one",
    }  # fmt: skip


def test_a_stream_is_purged_where_nothing_of_its_last_request_is_left(run: uw.Run) -> None:
    zero = next(n for n in run.data.train_mask.nonzero().flatten().tolist() if n > 2)
    data = run.data.clone()
    data.x[zero] = 0
    other = train(data)
    gone, empty = uw.Request(labels=[0]), uw.Request(features={zero: [1]})
    for last in (gone, empty):
        after = other.forget([uw.Request(nodes=[0]), last], "gif", purge=True)
        assert [r.status for r in after.receipts] == ["done", "nothing to do", "done"]
        assert states(after)["the checkpoints"] == "purged"
        assert states(after)["the prepared state"] == "rewritten"
        assert after.checkpoints == ()


def test_a_stream_that_was_done_before_is_purged_when_it_is_asked_for(run: uw.Run, tmp_path: Path) -> None:
    requests = [uw.Request(nodes=[0]), uw.Request(nodes=[1])]
    done = run.forget(requests, "gif")
    path = done.save(tmp_path / "a")
    opened = uw.Run.open(path, data=small_graph())
    after = opened.forget(requests, "gif", purge=True, out=tmp_path / "b")
    assert states(after)["the checkpoints"] == "purged"
    assert states(after)["the prepared state"] == "rewritten"
    assert after.prepared is not None
    assert after.receipts[-1].passes == after.prepared.passes
    assert list(after.receipts[:2]) == list(done.receipts)
    written = uw.Run.open(tmp_path / "b", data=small_graph())
    assert written.checkpoints == ()
    assert {"state": "kept", "where": str(path)}.items() <= by_name(written)[UNPURGED].items(), "a still has them"

    opened.forget(requests, "gif", purge=True, out=path)
    assert by_name(uw.Run.open(path, data=small_graph()))[UNPURGED]["state"] == "purged"
    assert not list(path.glob("checkpoints*"))


def test_a_purge_on_its_own_is_the_purge_of_a_request(run: uw.Run) -> None:
    request = uw.draw("edges:0.1", run.data)
    for how in ({"method": "finetune"}, {"method": "replay", "share": 1}):
        at_once, later = run.forget(request, purge=True, **how), run.forget(request, **how).purge()
        assert by_name(later) == by_name(at_once)
        assert [r.passes for r in later.receipts] == [r.passes for r in at_once.receipts]
        assert [c.epoch for c in later.checkpoints] == [c.epoch for c in at_once.checkpoints]
        assert later.purge() is later, "there is nothing left to purge"
    assert run.purge() is run, "nothing was forgotten"


def test_a_deferred_request_is_verified_before_it_is_purged(run: uw.Run) -> None:
    after = run.forget(uw.draw("edges:0.02", run.data), defer=True).purge()
    assert after.pending == 0
    assert [receipt.kind for receipt in after.receipts] == ["request", "verification", "purge"]
    assert states(after)["the prepared state"] == "rewritten"
    with pytest.raises(uw.MethodError, match=r"leave defer \(--defer\) out"):
        run.forget([uw.Request(nodes=[0]), uw.Request(nodes=[1])], "gif", defer=True, purge=True)


def test_the_command_line_purges_where_nothing_is_left_to_forget(folder: Path, tmp_path: Path) -> None:
    stream, single = tmp_path / "all.jsonl", tmp_path / "one.json"
    stream.write_text('{"nodes": [3]}\n')
    single.write_text('{"nodes": [3]}')
    path = tmp_path / "a"
    assert unweave("forget", folder / "a", "--request", stream, "--out", path).exit_code == 0
    again = ("forget", path, "--purge", "--out", path, "--overwrite", "--request")
    said = unweave(*again, single)
    assert said.exit_code == 0
    assert said.stdout.startswith("Verdict    Nothing to do: ")
    assert "Purged     the checkpoints of epoch 5" in said.stdout
    assert unweave(*again, stream).exit_code == 0
    assert f"the run before the purge ({path}): replaced by this one" in said.stdout
    assert uw.Run.open(path).checkpoints == ()
