"""What a graph will take is told from its sizes alone, and by what was measured or taken before."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import unweave as uw
from tests.cli.test_cli import unweave
from tests.folders import graph
from unweave.errors import DataError
from unweave.models import build
from unweave.objective.parameters import flatten
from unweave.run import forecast as module
from unweave.run.forecast import Sizes, forecast, passes_of

SIZES = Sizes(nodes=10**6, edges=10**7, features=32, classes=5, training=10**4, held=10**4)


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENOUGH", 0.0)


def told(name: str, sizes: Sizes = SIZES, **how: Any) -> module.Forecast:
    model = build(name, sizes.features, sizes.classes, hidden=8) if name != "sgc" else build(name, sizes.features, 5)
    return forecast(sizes, model, passes_of(sizes.classes), **({"memory_mib": 64.0} | how))


def test_of_a_folder_only_the_description_is_read(tmp_path: Path) -> None:
    data = graph(dtype=torch.float32)
    folder = uw.save_folder(data, tmp_path / "g")
    for path in folder.glob("*.npy"):
        path.unlink()
    training = int(data.train_mask.sum())
    assert Sizes.of_folder(folder) == Sizes(60, data.num_edges, 5, 3, training, 60 - training)
    result = unweave("plan", "--data", folder, "--model", "sign", "--hidden", "4", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["sizes"]["training"] == training


def test_rows_cost_by_training_nodes_and_blocks_by_their_neighbourhoods() -> None:
    rows, blocks = told("sign"), told("gcn")
    assert rows.by_rows
    assert not blocks.by_rows
    assert rows.sweeps == 0.01
    assert blocks.sweeps > rows.sweeps
    assert rows.disk_mib["propagated"] == 3 * 10**6 * 32 * 4 / 2**20
    assert "propagated" not in blocks.disk_mib
    assert told("gcn", memory_mib=1e6).sweeps == 1.0, "one block holds it all"
    assert blocks.sweeps == pytest.approx((1 + 10 + 100) * 10**4 / 10**6), "each block its own neighbourhood"


def test_memory_follows_from_what_is_allocated() -> None:
    few, all_ = told("sgc", memory_mib=64.0).memory_mib, told("sgc", memory_mib=1024.0).memory_mib
    columns = 10**6 * 4 / 2**20
    assert few["propagating"] - few["opening"] > 16 * columns, "64 MiB hold 16 columns of all nodes"
    assert all_["propagating"] - few["propagating"] == pytest.approx(16 * columns, rel=0.2)
    rare = told("sgc", replace(SIZES, training=10, held=10), memory_mib=64.0).memory_mib
    outputs = 3 * 5 * columns
    assert few["training"] - rare["training"] > 0.9 * outputs, "pages of outputs without a node of a mask take nothing"
    assert few["a request"] > few["training"]
    edges = 16 * SIZES.edges / 2**20
    assert few["a request of thousands"] - few["a request"] > edges, "all edges are looked at, and rows made anew"
    assert rare["a request of thousands"] - rare["a request"] == pytest.approx(edges, rel=0.05), "hardly any rows"


def test_more_processes_share_rows_and_time_and_send_vectors_as_long_as_the_parameters() -> None:
    many = Sizes(nodes=10**5, edges=10**5, features=32, classes=5, training=9 * 10**4, held=10**4)
    one, four = (told("sign", many, ranks=ranks, memory_mib=1e4) for ranks in (1, 4))
    length = flatten(build("sign", 32, 5, hidden=8)).numel()
    assert one.parameters == length
    assert one.network_mib == 0
    assert four.network_mib == pytest.approx(2 * 3 / 4 * 8 * length / 2**20)
    assert four.memory_mib["training"] < one.memory_mib["training"]
    assert four.memory_mib["opening"] == pytest.approx(one.memory_mib["opening"], rel=0.2)
    assert "none" in str(one)
    assert "MiB a pass" in str(four)


def test_passes_are_those_of_a_run_where_one_is_given(tmp_path: Path, one_decay: None) -> None:
    data = graph(dtype=torch.float32)
    run = uw.train(uw.models.SGC(5, 3), data, forgettable=True, weight_decay=1e-2, epochs=20)
    run.forget(uw.Request(nodes=[4])).save(tmp_path / "run")
    passes, receipt = passes_of(3, tmp_path / "run"), uw.Run.open(tmp_path / "run", data=data).receipts[-1]
    assert passes.training == (40 + run.metrics["polish_passes"],) * 2
    assert run.prepared is not None
    assert passes.preparing == (run.prepared.passes,) * 2
    assert passes.request == (receipt.passes, receipt.passes)
    least, most = passes_of(3).training
    assert least <= most
    uw.Run(uw.models.SGC(5, 3), data, weight_decay=0.0).save(tmp_path / "other")
    with pytest.raises(DataError, match="does not say how many passes"):
        passes_of(3, tmp_path / "other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "sign"), "--nodes"),
        (("--model", "gru", "--nodes", "9", "--edges", "9", "--features", "2", "--classes", "2"), "gru"),
        (("--model", "sign", "--nodes", "9", "--edges", "9", "--features", "2"), "--classes"),
        (("--model", "sign", "--data", "nowhere"), "no folder of a graph"),
        (("--model", "sign", "--data", "nowhere", "--nodes", "4"), "--nodes"),
        (
            ("--model", "sgc", "--nodes", "9", "--edges", "9", "--features", "2", "--classes", "2", "--training", "0"),
            "training must be",
        ),
    ],
)
def test_what_cannot_be_told_is_refused(options: tuple[str, ...], message: str) -> None:
    result = unweave("plan", *options)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
