"""Files that were changed and sealed again: what is read is checked before it is used, and costs next to nothing."""

import json
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load, save
from torch import nn

import unweave as uw
from tests.methods.test_auto import CLOSED, COST, calibrated
from tests.sealing import reseal, reseal_receipts
from unweave.run.folder import read_folder
from unweave.run.log import LINES
from unweave.run.peek import peek
from unweave.testing import small_graph

JSON = ("config.json", "split.json", "metrics.json", "prepared.json", "checkpoints.json", "calibration.json", LINES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all that a run can keep."""
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, seed=1, epochs=10, checkpoints=(0.5,)).prepare()
    run = run.replace(calibration=calibrated(CLOSED, COST))
    run = run.forget(uw.Request(nodes=[3]), "auto", at_least=0.5).forget(uw.Request(labels=[5]), "gif")
    return run.save(tmp_path_factory.mktemp("malformed") / "run")


def opened(path: Path) -> uw.Run:
    """Opened, and looked at in every way that needs no work."""
    run = uw.Run.open(path, data=small_graph())
    assert peek(path).training_nodes
    for receipt in run.receipts:
        assert "\x1b" not in str(receipt)
    assert run.standing
    return run


def documents(path: Path, name: str) -> Any:
    if name == LINES:
        receipts = read_folder(path).receipts
        return [json.loads(receipts.line(number)) for number in range(len(receipts))]
    return json.loads((path / name).read_bytes())


def changed(path: Path, name: str, document: Any) -> None:
    if name == LINES:
        reseal_receipts(path, document)
    else:
        reseal(path, {name: json.dumps(document).encode()})


def places(document: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be changed in a document."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


def with_value(document: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[at[0]] = with_value(copy[at[0]], at[1:], value)
    return copy


STRANGE = [
    None, True, -1, 0, 10**9, 10**30, 1.5, -0.0, 1e300, float("nan"), float("inf"), "", "x", "\x1b[2J\x07", "all",
    [], [[]], [1, 2], {}, {"a": 1}, [None], "../../etc/passwd",
]  # fmt: skip


@settings(
    max_examples=120, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(name=st.sampled_from(JSON), chance=st.randoms(use_true_random=False), value=st.sampled_from(STRANGE))
def test_whatever_a_file_says_a_run_opens_or_is_refused(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, name: str, chance: random.Random, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(whole, path)
    document = documents(path, name)
    at = chance.choice([place for place in places(document) if place or name != LINES])
    try:
        changed(path, name, with_value(document, at, value))
    except ValueError:  # canonical JSON has no NaN; nor can receipts
        return
    says = ""
    try:
        opened(path)
    except uw.UnweaveError as error:
        says = str(error)
    assert "\x1b" not in says


@pytest.mark.parametrize("size", [10**5, 10**9, 10**18, 10**30, -1, 2.5, "8", None, True])
@pytest.mark.parametrize("which", ["in_channels", "hidden", "out_channels"])
def test_sizes_are_checked_against_the_weights_before_a_model_is_built(
    whole: Path, tmp_path: Path, size: Any, which: str
) -> None:
    """They took a minute and gigabytes, or ended in a traceback."""
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    document = documents(path, "config.json")
    document["model"]["config"][which] = size
    changed(path, "config.json", document)
    tracemalloc.start()
    with pytest.raises(uw.RunError, match=r"do not fit|cannot have|no gcn of such sizes"):
        opened(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("config.json", ("data", "name"), ["demo"]),
        ("config.json", ("data", "split_seed"), "1"),
        ("config.json", ("seed",), "1"),
        ("config.json", ("training", "recipe", "epochs"), "10"),
        ("config.json", ("training", "recipe", "seed"), "1"),
        ("config.json", ("model", "config", "dropout"), 5),
        ("config.json", ("model", "config", "hidden"), [4]),
        ("config.json", ("model", "name"), "rm -rf"),
        ("config.json", ("loss",), {"name": 3}),
        ("metrics.json", ("test_f1",), "high"),
        ("metrics.json", (), [1]),
        ("prepared.json", ("damping",), "1"),
        ("prepared.json", ("locality", "reach", "steps"), "2"),
        ("prepared.json", ("locality", "border"), "open"),
        ("prepared.json", ("locality", "classes"), {"0": "many"}),
        ("prepared.json", ("pending",), {"requests": "1", "kept": 1}),
        ("calibration.json", ("deletions", 0, "gap"), "0.1"),
        ("calibration.json", ("deletions", 0, "gap"), 0),
        ("calibration.json", ("deletions", 0, "shape", "nodes"), -1),
        ("calibration.json", ("parameters",), 3),
        ("checkpoints.json", (0, "epoch"), "5"),
        ("checkpoints.json", (0, "epoch"), True),
    ],
)
def test_values_of_another_kind_are_refused(whole: Path, tmp_path: Path, name: str, at: Any, value: Any) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    changed(path, name, with_value(documents(path, name), at, value))
    with pytest.raises(uw.RunError):
        opened(path)


def test_a_prepared_state_of_another_size_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    tensors = load((path / "prepared.safetensors").read_bytes())
    for wrong in (tensors["gradient"][:-1], tensors["gradient"].long(), tensors["gradient"] * torch.nan):
        reseal(path, {"prepared.safetensors": save(tensors | {"gradient": wrong.contiguous()})})
        with pytest.raises(uw.RunError, match="not the numbers that belong to"):
            opened(path)


class Own(nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 3), nn.Linear(3, size)


def test_weights_of_another_model_leave_the_given_one_alone(tmp_path: Path) -> None:
    data, run = small_graph(), uw.Run(Own(), small_graph(), weight_decay=0.0)
    path = run.save(tmp_path / "run")
    config = documents(path, "config.json")["model"]
    assert config["path"].endswith("test_malformed.Own")
    assert config["shapes"]["one.weight"] == [3, 8]
    with pytest.raises(uw.RunError, match=r"of your own \(.*test_malformed\.Own: one\.bias \[3\], one\.w"):
        uw.Run.open(path, data=data)
    other = Own(4)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(uw.RunError, match=r"do not fit the model: 'two\.weight'"):
        uw.Run.open(path, model=other, data=data)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_a_model_in_double_precision_is_opened_in_it(tmp_path: Path) -> None:
    data = small_graph()
    run = uw.Run(uw.models.SGC(8, 3).double(), data, weight_decay=0.0)
    again = uw.Run.open(run.save(tmp_path / "run"), data=data)
    assert torch.equal(again.model.linear.weight, run.model.linear.weight)
    assert again.model.linear.weight.dtype == torch.float64


def test_escape_sequences_do_not_reach_a_terminal(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    receipts = documents(path, LINES)
    receipts[1]["warnings"] = ["harmless\x1b]0;title\x07\nVerdict    all is well\u202e"]
    changed(path, LINES, receipts)
    text = str(opened(path).receipts[1])
    assert r"harmless\x1b]0;title\x07\nVerdict    all is well\u202e" in text
    changed(path, "config.json", documents(path, "config.json") | {"loss": {"name": "\x1b[31m"}})
    with pytest.raises(uw.RunError) as refused:
        opened(path)
    assert "\x1b" not in str(refused.value)
