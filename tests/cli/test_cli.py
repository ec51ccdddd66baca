"""The command line: its exit codes, its streams, and what it leaves on disk."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import unweave as uw
from tests.scripts import SHOWN, small_demo
from unweave._core.tuning import tuned
from unweave.cli.app import app
from unweave.run import lock


def unweave(*arguments: object, cwd: Path | None = None) -> Any:
    with contextlib.chdir(cwd or Path.cwd()):
        return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def refused(result: Any, says: str, code: int = 1) -> None:
    assert result.exit_code == code, result.stderr
    assert says in result.stderr
    assert not result.stdout


@pytest.fixture(scope="module", autouse=True)
def part() -> Iterator[None]:
    """A part of the embedded graph is all of it."""
    with small_demo():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    done = unweave("train", "--data", "demo", "--model", "sgc", "--epochs", 20, "--seed", 2, "--out", path / "a")
    assert done.exit_code == 0, done.stderr
    assert "test F1" in done.stdout
    return path


def test_forget_show_and_a_chain(folder: Path) -> None:
    done = unweave(
        "forget", folder / "a", "--forget", "edges:0.05,nodes:0.01", "--method", "gif", "--out", folder / "b"
    )
    assert done.exit_code == 0, done.stderr
    assert "Forgotten" in done.stdout
    assert "How near" in done.stdout
    assert done.stderr == "", "no progress bar when not a terminal"
    (folder / "request.json").write_text('{"features": {"7": "all", "9": [0, 5]}, "labels": [4]}')
    done = unweave("forget", folder / "b", "--request", folder / "request.json", "--out", folder / "c", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["receipt"]["request"]["labels"] == [4]
    shown = unweave("show", folder / "c")
    assert "Requests   2" in shown.stdout
    assert shown.stdout.count("Forgotten") == 2
    assert len(json.loads(unweave("show", folder / "c", "--json").stdout)["receipts"]) == 2


def test_explain_says_what_pulls_and_leaves_the_run_as_it_is(folder: Path, tmp_path: Path) -> None:
    files = {path: path.read_bytes() for path in (folder / "a").iterdir()}
    plot = tmp_path / "explain.png"
    done = unweave("explain", folder / "a", "--forget", "nodes:0.02", "--top", 2, "--plot", plot)
    assert done.exit_code == 0, done.stderr
    for word in ("Pull", "its neighbourhood", "Resistance", "hop", str(plot)):
        assert word in done.stdout
    assert plot.stat().st_size > 10_000
    (tmp_path / "request.json").write_text('{"labels": [4, 6]}')
    done = unweave("explain", folder / "a", "--request", tmp_path / "request.json", "--damping", 3, "--json")
    found = json.loads(done.stdout)
    assert found["request"]["labels"] == [4, 6]
    assert found["damping"] == 3
    assert found["hardest"]["touched"][0]["node"] in (4, 6)
    refused(unweave("explain", folder / "a"), "say what to forget", code=2)
    bad = unweave("explain", folder / "a", "--forget", "nodes:0.02", "--plot", tmp_path / "x.doc")
    refused(bad, "must end in .png", code=2)
    refused(unweave("explain", folder / "a", "--forget", "nodes:0.02", "--damping", -1), "damping must be")
    assert {path: path.read_bytes() for path in (folder / "a").iterdir()} == files


def test_options_of_a_method(folder: Path) -> None:
    out = folder / "options"
    chosen = ("--method", "gif-published", "-o", "decay=counted", "-o", "scale=300", "-o", "iterations=20")
    done = unweave("forget", folder / "a", "--forget", "edges:0.05", "--out", out, *chosen, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["receipt"]["solve"]["settings"] == {"scale": 300, "iterations": 20}


def test_checkpoints_are_kept_shown_and_replayed(tmp_path: Path) -> None:
    made = ("train", "--data", "demo", "--model", "gcn", "--epochs", 20)
    done = unweave(*made, "--checkpoints", "0.1, 0.5", "--out", tmp_path / "a")
    assert done.exit_code == 0, done.stderr
    size = sum((tmp_path / "a" / f"checkpoints.{kind}").stat().st_size for kind in ("json", "safetensors"))
    words = f"2 (epoch 10, 18 of 20), {size / 2**20:.2g} MiB on disk"
    assert f"checkpoints: {words}" in done.stdout
    assert words in unweave("show", tmp_path / "a").stdout
    kept = {"epochs": [10, 18], "bytes": size}
    assert json.loads(unweave("show", tmp_path / "a", "--json").stdout)["checkpoints"] == kept

    request = ("--forget", "edges:0.05", "--method", "replay")
    done = unweave("forget", tmp_path / "a", *request, "-o", "share=0.1", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    assert "replay (resumed at 18, epochs 2, of 20" in done.stdout
    assert "the checkpoints of epoch 10, 18 (" in done.stdout
    assert json.loads(unweave("show", tmp_path / "b", "--json").stdout)["checkpoints"]["epochs"] == [10, 18]
    for share, says in ((0.6, "no checkpoint lies before"), (2, "share must be"), ("x", "share must be")):
        refused(unweave("forget", tmp_path / "a", *request, "-o", f"share={share}", "--out", tmp_path / "c"), says)

    done = unweave(*made, "--out", tmp_path / "bare", "--json")
    assert json.loads(done.stdout)["checkpoints"] == {"epochs": [], "bytes": 0}
    assert "checkpoints" not in unweave("show", tmp_path / "bare").stdout
    refused(unweave("forget", tmp_path / "bare", *request, "--out", tmp_path / "c"), "unweave train --checkpoints")
    refused(unweave(*made, "--checkpoints", "5%", "--out", tmp_path / "c"), "write shares as 0.05,0.2", code=2)
    refused(unweave(*made, "--checkpoints", "5,10", "--out", tmp_path / "c"), "above 0 and below 1")
    assert not (tmp_path / "c").exists()


def test_refusals_leave_everything_as_it_was(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    run, out = folder / "a", folder / "never"
    refused(unweave("forget", run, "--forget", "edges:0.05", "--out", run), "exists already")
    refused(unweave("forget", run, "--forget", "edge:0.05", "--out", out), "cannot read 'edge:0.05'")
    refused(unweave("forget", run, "--forget", "edges:0.05", "--method", "gift", "--out", out), "unknown method 'gift'")
    refused(unweave("forget", run, "--forget", "edges:0.05", "-o", "scale=1", "--out", out), "gif-published")
    refused(unweave("forget", run, "--request", folder / "no.json", "--out", out), "cannot read")
    refused(unweave("forget", folder / "no", "--forget", "edges:0.05", "--out", out), "is not a run")
    refused(unweave("show", folder), "is not a run")
    refused(unweave("train", "--data", "korra", "--model", "gcn", "--out", out), "unknown data set")
    refused(unweave("train", "--data", "demo", "--model", "gcm", "--out", out), "unknown model")
    refused(unweave("train", "--data", "demo", "--model", "gcn", "--device", "tpu9", "--out", out), "unknown device")
    refused(unweave("compare", "--data", "demo", "--model", "gcn", "--forget", "edges:2"), "cannot read 'edges:2'")
    assert sorted(folder.rglob("*")) == before


def test_wrong_usage_is_exit_code_two(folder: Path) -> None:
    refused(unweave("forget", folder / "a", "--out", folder / "x"), "say what to forget", code=2)
    refused(
        unweave("forget", folder / "a", "--forget", "edges:0.1", "-o", "damping", "--out", folder / "x"),
        "name=value",
        code=2,
    )
    refused(unweave("train", "--data", "demo"), "Missing option", code=2)
    refused(unweave("forgive"), "No such command", code=2)


def test_compare_writes_json_and_plot(tmp_path: Path) -> None:
    done = unweave(
        "compare", "--data", "demo", "--model", "sgc", "--forget", "edges:0.05", "--methods", "none,if,gif",
        "--seeds", 1, "--epochs", 10, "--out", "compare.json", "--plot", "compare.png", cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "retrain (other seed)" in done.stdout
    assert json.loads((tmp_path / "compare.json").read_text())["config"]["model"] == "sgc"
    assert (tmp_path / "compare.png").exists()


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("nodes", [SHOWN, pytest.param(None, id="whole", marks=pytest.mark.slow)])
def test_demo_is_the_main_job(tmp_path: Path, nodes: int | None) -> None:
    with small_demo(nodes):
        done = unweave("demo", "--seeds", 1, cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    for word in (
        "none",
        "finetune",
        "if",
        "gif",
        "retrain",
        "F1",
        "gap closed",
        "cost",
        "Receipt",
        "How near",
    ):
        assert word in done.stdout
    for puzzle in ("residual ", "seed-averaged", "seconds"):
        assert puzzle not in done.stdout[: done.stdout.index("Receipt")]
    told = done.stdout[done.stdout.index("Next") :]
    for step in ("uw.Run(model, data, weight_decay=5e-4)", "--forgettable", "unweave audit"):
        assert step in told
    found = json.loads((tmp_path / "demo" / "compare.json").read_text())
    finetune, gif = (row for row in found["rows"] if row["method"] in ("finetune", "gif"))
    assert abs(finetune["passes_mean"] - gif["passes_mean"]) <= 1, "no time decides what fine-tuning gets"
    retrain = next(row for row in found["rows"] if row["method"] == "retrain")
    assert gif["cost_median"] == pytest.approx(gif["passes_mean"] / retrain["passes_mean"])
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {
        "compare.json",
        "compare.png",
        "forgettable.json",
        "receipt.json",
    }
    assert "Trained to be able to forget" in done.stdout


def test_a_memory_budget(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "bounded"
    how = ("forget", folder / "a", "--forget", "edges:0.05", "--out", out)
    refused(unweave(*how, "--memory-mib", 64, "--method", "closed-form"), "calls the model on the whole graph")
    done = unweave(*how, "--memory-mib", 64, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["receipt"]["details"]["in_blocks"]["memory_mib"] == 64
    with tuned(spectrum={"rank": 8, "spare": 4, "bend_products": 8}):  # a product takes every block
        assert unweave("prepare", out, "--memory-mib", 64).exit_code == 0
    assert unweave("verify", out, "--memory-mib", 64).exit_code == 0
    train = ("train", "--data", "demo", "--model", "sgc", "--epochs", 2, "--out", tmp_path / "anew", "--memory-mib")
    for command in (("prepare", out, "--memory-mib"), ("calibrate", out, "--memory-mib"), train):
        refused(unweave(*command, -1), "positive number of MiB")
    assert unweave(*train, 64).exit_code == 0
    assert uw.Run.open(tmp_path / "anew").recipe.epochs == 2


def test_prepare_writes_its_state_into_the_run(tmp_path: Path) -> None:
    out = tmp_path / "a"
    assert unweave("train", "--data", "demo", "--model", "gcn", "--out", out, "--epochs", "30").exit_code == 0
    done = unweave("prepare", out)
    assert done.exit_code == 0, done.stderr
    assert "directions of curvature" in done.stdout
    assert "no minimum: steps are damped by" in done.stdout
    told = json.loads(unweave("prepare", out, "--json").stdout)
    state = uw.Run.open(out).prepared
    assert state is not None
    assert told["passes"] == state.passes
    assert told["bytes"] == sum((out / name).stat().st_size for name in ("prepared.json", "prepared.safetensors"))
    done = unweave("forget", out, "--forget", "edges:0.05", "--out", tmp_path / "b", "--json")
    assert json.loads(done.stdout)["receipt"]["details"]["prepared"] == "after training"
    refused(unweave("prepare", tmp_path / "none"), "is not a run")


def test_certified_removal(tmp_path: Path) -> None:
    trained = unweave("train", "--data", "demo", "--model", "sgc", "--certify", "1,1e-5", "--out", tmp_path / "a")
    assert trained.exit_code == 0, trained.stderr
    assert "every model that method certified makes of this run is (1, 1e-05)-certified removal" in trained.stdout
    done = unweave("forget", tmp_path / "a", "--forget", "edges:0.02", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    assert "Certified  (1, 1e-05)-certified removal, refined" in done.stdout
    shown = unweave("show", tmp_path / "b").stdout
    assert "Trained    to the minimum with noise in the objective" in shown
    assert shown.count("-certified removal") == 2
    other = unweave(
        "forget", tmp_path / "b", "--forget", "edges:0.02", "--method", "finetune", "--out", tmp_path / "c", "--json"
    )
    assert json.loads(other.stdout)["receipt"]["certificate"]["kind"] == "bound"
    gcn = ("train", "--data", "demo", "--model", "gcn", "--out", tmp_path / "d", "--certify")
    refused(unweave(*gcn, "1,1e-5"), "cannot be certified: the outputs of GCN are not linear")
    refused(unweave(*gcn, "1,2"), "δ between 0 and 1")
    refused(unweave(*gcn, "1"), "must be two numbers", code=2)
    assert not (tmp_path / "d").exists()


def test_a_command_waits_for_another_that_writes_the_same_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ended well and one deletion was gone: each had opened the run before the other saved it."""
    path = uw.Run.open(folder / "a").save(tmp_path / "a")
    waits, really = threading.Event(), lock._lock

    def noticed(handle: int, *, wait: bool) -> bool:
        if wait:
            waits.set()
        return really(handle, wait=wait)

    monkeypatch.setattr(lock, "_lock", noticed)
    held = threading.Event()

    def other() -> None:
        with lock.locked(path):
            held.set()
            waits.wait(60)
            uw.Run.open(path).forget(uw.Request(nodes=[3]), "none").save(path, overwrite=True)

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    done = unweave("forget", path, "--forget", "nodes:0.01", "--method", "none", "--out", path, "--overwrite")
    thread.join()
    assert done.exit_code == 0, done.stderr
    assert done.stderr == f"waiting for another process, which is writing {path}\n"
    assert len(uw.Run.open(path).receipts) == 2


def test_train_says_how_long_it_took_and_whether_seeds_agree(tmp_path: Path, examined: None, brief: None) -> None:
    made = ("train", "--data", "demo", "--model", "sgc")
    done = unweave(*made, "--out", tmp_path / "a")
    epochs = uw.Run.open(tmp_path / "a").recipe.epochs
    assert f"epochs: {epochs}, the best of " in done.stdout
    with tuned(ending={"most": 10}):
        done = unweave(*made, "--out", tmp_path / "b")
    assert "cut off while it still became better" in done.stdout
    done = unweave(*made, "--forgettable", "--out", tmp_path / "c")
    assert "agreement: 1.000; another training would give the same model" in done.stdout
