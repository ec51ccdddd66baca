"""One rank on a GPU: torchrun, nccl, and the answer of one process. Needs nothing but pytest beside the package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

import unweave as uw
from tests.run.test_ranks import everything

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CASE = ("directed", "sage", torch.float64, None, "cuda")


def started(*arguments: object, torchrun: bool = True) -> None:
    """Start a module, as the one rank of a job or without one; it has to end well."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"] if torchrun else []
    command = [sys.executable, *launcher, "-m", *map(str, arguments)]
    done = subprocess.run(
        command, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rank_on_a_gpu_agrees_with_one_process(tmp_path: Path) -> None:
    started("tests.test_cuda_ranks", tmp_path / "found.pt")
    told = torch.load(tmp_path / "found.pt", weights_only=True)
    assert {"all_reduce by nccl", "all_gather by nccl"} <= set(told["sent"]), told["sent"]
    for key, value in everything(*CASE).items():
        if "passes" in key:  # one process records its looks, which costs some
            continue
        torch.testing.assert_close(told["found"][key], value, rtol=1e-9, atol=1e-9, msg=lambda m, k=key: f"{k}: {m}")


def test_commands_of_a_rank_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    on = ("--device", "cuda")
    train = ("unweave", "train", "--data", "demo", "--model", "sgc", "--epochs", 6, "--seed", 2, *on, "--out")
    started(*train, tmp_path / "a")
    started(*train, tmp_path / "one", torchrun=False)
    started("unweave", "prepare", tmp_path / "a", *on)
    started("unweave", "forget", tmp_path / "a", "--forget", "nodes:0.01", "--out", tmp_path / "b", *on)
    receipt = uw.Run.open(tmp_path / "b").receipts[-1]
    assert receipt.carried_out
    assert receipt.environment["device"].startswith("cuda")
    ours, theirs = (load_file(tmp_path / place / "weights.safetensors") for place in ("a", "one"))
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-5)


def main(place: str) -> None:
    """What torchrun starts: everything, and by which library it was exchanged."""
    sent: dict[str, int] = {}
    for name in ("all_reduce", "all_gather", "broadcast"):
        setattr(dist, name, _noted(getattr(dist, name), name, sent))
    with uw.ranks():
        found = everything(*CASE)
    torch.save({"found": found, "sent": sorted(sent)}, place)


def _noted(function, name, sent):  # type: ignore[no-untyped-def]
    def noted(first, *others):  # type: ignore[no-untyped-def]
        tensor = others[0] if name == "all_gather" else first
        backend = dist.distributed_c10d._get_default_group()._get_backend(tensor.device).name()
        sent[f"{name} by {backend}"] = 1
        return function(first, *others)

    return noted


if __name__ == "__main__":
    main(sys.argv[1])
