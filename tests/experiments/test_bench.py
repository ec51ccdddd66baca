"""The bench: every method in turns, quality beside every time, and a floor that can be counted by hand."""

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import unweave as uw
from tests.cli.test_cli import refused, unweave
from unweave.errors import ModelError
from unweave.experiments import bench as bench_module
from unweave.experiments.bench import METHODS, PREPARED, PUBLISHED, SPED_UP, Bench, bench
from unweave.experiments.floor import Machine, Work, measure_machine, work_of_a_pass
from unweave.methods import Method
from unweave.methods.registry import make
from unweave.models import structure
from unweave.testing import small_graph


def graph(seed: int) -> Data:
    return small_graph()


MEASURED = cache(partial(measure_machine, side=256))


@pytest.fixture(scope="module", autouse=True)
def briefly() -> Iterator[None]:
    """The machine is measured once, with small matrices, and the published recursion, far the slowest, is short."""

    def short(name: str, options: dict[str, Any], recipe: uw.Recipe) -> Method:
        return make(name, options | ({"iterations": 15} if name == PUBLISHED else {}), recipe)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_module, "measure_machine", MEASURED)
        patch.setattr(bench_module, "make", short)
        yield


def net(features: int, classes: int) -> nn.Module:
    return uw.models.GCN(features, classes, hidden=4)


@pytest.mark.parametrize("forgettable", [False, True])
def test_every_method_is_measured_with_its_quality(forgettable: bool, tmp_path: Path) -> None:
    found = bench(graph, uw.models.SGC, "edges:0.05", epochs=30, weight_decay=1e-2, forgettable=forgettable)
    document = json.loads(found.save(tmp_path / "bench.json").read_text())
    assert [row["method"] for row in document["rows"]] == list(METHODS)
    for row in document["rows"]:
        assert row["failure"] is None
        assert len(row["rounds"]) == 5
        assert row["cost"] > 0
        assert row["passes"] > 0
        assert row["floor_seconds"] > 0
    assert found.row("retrain")["gap_closed"] == pytest.approx(1)
    assert found.row("retrain")["cost"] == 1
    assert found.row(PUBLISHED)["faster_than_published"] == found.row(SPED_UP)["faster_than_sped_up"] == 1
    assert found.row(PUBLISHED)["gap_closed"] == pytest.approx(found.row(SPED_UP)["gap_closed"], abs=1e-3)
    assert document["config"]["published_scale"] in (500, 1000, 2000, 5000, 20000)
    assert document["once"]["prepare_passes"] > 0
    assert ("polish_of_adam" in document["once"]) is forgettable
    if forgettable:
        assert found.row(PREPARED)["prepared"] == "after training"
        assert found.row(PREPARED)["passes"] < found.row("gif")["passes"]


def test_a_procedure_that_diverges_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.experiments.bench.PUBLISHED_SCALES", (1e-6,))
    found = bench(graph, net, epochs=5)
    assert "diverged" in found.row(PUBLISHED)["failure"]
    assert "gap_closed" not in found.row(PUBLISHED)
    assert found.row("gif")["gap_closed"] is not None


def test_the_floor_is_what_a_count_by_hand_gives() -> None:
    data = Data(x=torch.tensor([[1.0, 0, 0, 0]] * 3), edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    model = uw.models.GCN(4, 2, hidden=5)
    sparse, entries = 4 * (2 * 3 + 3), 2 + 3
    features = sparse + 4 * (4 * 5 + 3 * 5), 2 * 3 * 5
    spread = {width: (4 * (entries + 6 + 6 * width), 2 * entries * width) for width in (5, 2)}
    dense = 4 * (15 + 10 + 6), 2 * 3 * 5 * 2
    once = [sum(part[i] for part in (features, spread[5], dense, spread[2])) for i in (0, 1)]
    both = [2 * once[i] + dense[i] for i in (0, 1)]  # going back, the dense product is differentiated by both factors
    assert work_of_a_pass(model, data) == Work(both[0] / 2, both[1] / 2)
    beside = sparse + 4 * (4 * 2 + 3 * 2) + 2 * spread[2][0], 2 * 3 * 2 + 2 * spread[2][1]  # Â² X V
    direct = uw.models.GCN(4, 2, hidden=5, direct=1.0)
    assert work_of_a_pass(direct, data) == Work(both[0] / 2 + beside[0], both[1] / 2 + beside[1])


def test_the_floor_of_every_built_in_model_grows_with_the_graph_and_no_other_is_known() -> None:
    small, large = small_graph(), uw.load("demo")
    for cls in (uw.models.GCN, uw.models.SGC, uw.models.GIN, uw.models.GAT):
        a, b = (work_of_a_pass(cls(data.num_features, 3), data) for data in (small, large))
        assert 0 < a.bytes < b.bytes
        assert 0 < a.operations < b.operations
    with pytest.raises(ModelError, match="built-in models, not for Linear"):
        work_of_a_pass(nn.Linear(2, 2), small)


def test_a_machine_takes_as_long_as_the_slower_of_memory_and_arithmetic() -> None:
    machine = Machine(bandwidth=10, rate=100)
    assert machine.seconds(Work(50, 100)) == 5
    assert machine.seconds(Work(5, 100)) == 1
    here = measure_machine(torch.device("cpu"), side=64, repeats=1)
    assert here.bandwidth > 0
    assert here.rate > 0


@pytest.mark.usefixtures("embedded")
def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    done = unweave("bench", "--model", "sgc", "--epochs", 3, "--out", path)
    assert done.exit_code == 0, done.stderr
    for word in ("retrain", PUBLISHED, PREPARED, "prepare once", "GB/s", str(path)):
        assert word in done.stdout
    assert json.loads(path.read_text())["config"]["data"] == "demo"
    refused(unweave("bench", "--repeats", 2), "repeats", code=2)
    refused(unweave("bench", "--data", "nothing"), "nothing")
    with pytest.raises(uw.DataError, match="at least 5"):
        bench(graph, net, repeats=4)


@pytest.fixture(scope="module")
def impatient() -> tuple[Bench, set[str]]:
    """A bench that waits for nobody, and which methods ran, and how."""
    seen: set[str] = set()
    plain = bench_module.unlearn

    def listening(*args: Any, **kwargs: Any) -> Any:
        layer, data = args[0].conv1, args[1]
        how = structure.serves(layer, data.x, data.edge_index)
        seen.add(args[3].name if how else f"{args[3].name} by messages")
        return plain(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_module, "unlearn", listening)
        patch.setattr(bench_module, "PATIENCE", 0.0)
        return bench(graph, net, epochs=5), seen


def test_the_published_procedure_runs_on_messages_and_nobody_else(impatient: tuple[Bench, set[str]]) -> None:
    assert impatient[1] == {"retrain", "finetune", "gif", "gif-published", "gif-published by messages"}


def test_who_is_too_slow_sits_out(impatient: tuple[Bench, set[str]]) -> None:
    found = impatient[0]
    assert len(found.row(PUBLISHED)["rounds"]) == 1
    assert len(found.row(SPED_UP)["rounds"]) == 5
    assert found.row(PREPARED)["faster_than_published"] > 0
