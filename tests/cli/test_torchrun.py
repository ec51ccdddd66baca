"""Commands that torchrun starts several times: one voice, one folder, and what becomes of a rank that is killed."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import unweave as uw
from tests.cli.test_cli import unweave
from tests.scripts import small_demo
from tests.spread import spread

TRAIN = ("train", "--data", "demo", "--model", "sgc", "--epochs", 6, "--seed", 2)


def commanded(folder: Path) -> list[tuple[int, str, str]]:
    """Exit codes and what was said."""
    os.environ["TORCHELASTIC_RUN_ID"] = "a test"
    commands: list[tuple[Any, ...]] = [
        (*TRAIN, "--out", folder / "a"),
        (*TRAIN, "--out", folder / "a"),
        ("prepare", folder / "a"),
        ("forget", folder / "a", "--forget", "nodes:0.01", "--out", folder / "b"),
        ("forget", folder / "b", "--request", folder / "gone.json", "--out", folder / "b", "--overwrite"),
        ("verify", folder / "b"),
        ("forget", folder / "a", "--forget", "edges:0.02", "--dry-run"),
        ("show", folder / "a"),
    ]
    answers = [unweave(*command) for command in commands]
    return [(answer.exit_code, answer.stdout, answer.stderr) for answer in answers]


def test_the_first_rank_speaks_and_writes_for_all(warm: ForkServerContext, tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text('{"edges": [[0, 1]], "nodes": [5]}')
    first, second = (answer["found"] for answer in spread(warm, 2, tmp_path, commanded, tmp_path))
    assert [code for code, _, _ in first] == [code for code, _, _ in second]
    said = ("trained sgc", "exists already", "Prepared", "Forgotten", "", "Nothing is pending", "Affected", "torchrun")
    for (code, out, errors), (_, nothing, silence), words in zip(first, second, said, strict=True):
        assert words in out + errors
        assert code == int(words in ("exists already", "torchrun")) or not words
        assert not nothing
        assert not silence or words == "torchrun"
    assert not list(tmp_path.glob(".*")), "no lock and no workshop is left"
    with small_demo():
        run = uw.Run.open(tmp_path / "b").verify()
        assert run.receipts[0].carried_out
        unweave(*TRAIN, "--out", tmp_path / "one")
        alone = load_file(tmp_path / "one" / "weights.safetensors")
    for name, value in load_file(tmp_path / "a" / "weights.safetensors").items():
        torch.testing.assert_close(value, alone[name], rtol=1e-5, atol=1e-5)


def torchrun(*arguments: object, restarts: int = 0) -> subprocess.Popen[str]:
    how = ["--nproc-per-node", "2", "--standalone", "--max-restarts", str(restarts), "-m", "unweave"]
    command = [sys.executable, "-m", "torch.distributed.run", *how, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def children(parent: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = place.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(told[1]) == parent:
            found.append(int(place.parent.name))
    return sorted(found)


def kill_one(launcher: subprocess.Popen[str]) -> None:
    """Kill the last process that a launcher started."""
    os.kill(children(launcher.pid)[-1], signal.SIGKILL)


LONG = ("train", "--data", "demo", "--model", "gcn", "--epochs", 300, "--checkpoints", "0.9,0.5", "--seed", 1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the processes are found in /proc")
def test_a_rank_that_is_killed_under_torchrun(tmp_path: Path) -> None:
    whole = torchrun(*LONG, "--out", tmp_path / "whole")
    said, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, said
    states = tmp_path / ".a.states"
    for restarts in (0, 1):
        killed = torchrun(*LONG, "--out", tmp_path / "a", restarts=restarts)
        while not states.exists() and killed.poll() is None:
            time.sleep(0.05)
        kill_one(killed)
        said, _ = killed.communicate(timeout=300)
        if not restarts:
            assert killed.returncode != 0
            assert "ranks ended or cannot be reached" in said
            assert not (tmp_path / "a").exists()
            assert states.exists(), "what was kept is there for who starts it again"
            states.unlink()
    assert killed.returncode == 0, said
    assert not states.exists()
    ours, theirs = (load_file(tmp_path / place / "weights.safetensors") for place in ("a", "whole"))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items()), "dropout included"
