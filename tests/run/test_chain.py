"""What was changed in a run, though every file is sealed again: the receipts no longer follow from each other."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch_geometric.data import Data

import unweave as uw
from tests.methods.test_auto import CLOSED, COST, calibrated
from tests.sealing import reseal, reseal_receipts, seal
from unweave.run.log import INDEX, LINES, Log
from unweave.testing import small_graph


def trained(seed: int, hidden: int = 4) -> uw.Run:
    model = uw.models.GCN(8, 3, hidden=hidden)
    return uw.train(model, small_graph(), seed=seed, epochs=10, checkpoints=(0.5,)).prepare()


@pytest.fixture(scope="module")
def run() -> uw.Run:
    """All kinds of receipts there are."""
    start = trained(1)
    run = start.replace(calibration=calibrated(CLOSED, COST).__class__(start.prepared.parameters, 0))
    run = run.forget(uw.Request(nodes=[3], labels=[5]), "gif")
    run = run.forget(uw.Request(nodes=[3], features={8: [0, 1]}), "finetune", epochs=1)
    run = run.forget(uw.Request(nodes=[3]))
    run = run.forget(uw.Request(labels=[13]), defer=True).verify()
    return run.forget(uw.Request(labels=[22]), "gif")


@pytest.fixture
def path(run: uw.Run, tmp_path: Path) -> Path:
    return run.save(tmp_path / "run")


def opened(path: Path) -> uw.Run:
    return uw.Run.open(path, data=small_graph())


def receipts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / LINES).read_bytes().splitlines()]


def test_an_honest_chain_holds(run: uw.Run, path: Path) -> None:
    assert [receipt.status for receipt in run.receipts] == [
        "done", "partly gone already", "nothing to do", "unverified", "done", "done",
    ]  # fmt: skip
    assert run.verify() is run
    assert len(opened(path).verify().receipts) == 6
    assert run.purge().verify().receipts[-1].kind == "purge"
    assert run.forget(uw.Request(labels=[23]), "retrain").verify()


def test_an_honest_chain_of_certificates_holds() -> None:
    data = small_graph()
    run = uw.train(uw.models.SGC(8, 3), data, certify=(1.0, 1e-4), weight_decay=1e-2)
    for node in (3, 5, 8):
        run = run.forget(uw.Request(labels=[node]))
    assert run.verify() is run
    assert run.receipts[-1].certificate["together"]["models"] == 3
    bounded = uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-2)
    assert bounded.forget(uw.Request(nodes=[3]), "gif").verify().receipts[0].certificate["kind"] == "bound"


def edited(at: int, **values: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda found: [r | values if n == at else r for n, r in enumerate(found)]


FORGED = {
    "one changed": (edited(1, note="nothing"), False, "receipt 3 does not name the one before"),
    "one left out": (lambda found: [*found[:2], *found[3:]], False, "receipt 3 does not name the one before"),
    "two in another order": (
        lambda found: [*found[:2], found[3], found[2], *found[4:]],
        True,
        "starts from other parameters",
    ),
    "the last left out": (lambda found: found[:-1], True, "not those that the last receipt tells of"),
    "the request changed": (edited(0, asked={"nodes": [3], "labels": [6]}), True, "digest that is not that of the req"),
    "more taken than asked": (edited(5, request={"labels": [22, 23]}), True, "more than was asked for"),
    "words changed": (edited(0, verdict="Model: as good as new."), True, "something else than follows from its fig"),
    "figures changed": (edited(0, residual_influence=0.001), True, "something else than follows|speaks of receipts"),
    "nothing done, model changed": (
        lambda found: edited(2, parameters=found[2]["parameters"] | {"digest_after": "0" * 64})(found),
        True,
        "carried out nothing, and left other parameters|starts from other",
    ),
    "another graph": (
        lambda found: edited(1, graph=found[1]["graph"] | {"training_nodes_before": 7})(found),
        True,
        "starts from 7 training nodes|something else than follows",
    ),
    "not removed": (lambda found: edited(0, removed=found[0]["removed"] | {"nodes": 0})(found), True, "counts|follows"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_chain_that_was_edited_is_noticed(path: Path, how: str) -> None:
    change, linked, says = FORGED[how]
    remaining = opened(path).data
    reseal_receipts(path, change(receipts(path)), linked=linked)
    with pytest.raises(uw.RunError, match=says):
        uw.Run.open(path, data=remaining).verify()


def test_requests_by_which_the_graph_is_rebuilt_are_those_of_the_receipts(path: Path) -> None:
    """The graph as it remained is given, so that nothing is rebuilt."""
    log = Log()
    for number, line in enumerate((path / LINES).read_bytes().splitlines()):
        took = {} if number == 0 else json.loads(line)["request"]
        log = log.plus(line, took, undirected=True)
    data = opened(path).data
    (path / INDEX).write_bytes(log.index_from(0))
    seal(path, json.loads((path / "manifest.json").read_text()) | {"receipts": log.extent.to_dict()})
    with pytest.raises(uw.RunError, match=r"another request than requests\.jsonl"):
        uw.Run.open(path, data=data).verify()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"distance": 1e-9}, "another distance"),
        ({"epsilon": 0.0}, "its own figures do not give"),
        ({"residual": 1e9}, "its own figures do not give"),
        ({"delta": 2}, "its own figures do not give"),
        ({"mu": -1.0}, "figures that are none"),
        ({"kind": "proof"}, "of no kind that there is"),
        ({"together": None}, "all certified models"),
        ({"together": {"models": 2, "epsilon": 0.1, "delta": 1e-4}}, "all certified models"),
    ],
)
def test_a_certificate_whose_figures_contradict_each_other_is_noticed(
    tmp_path: Path, certified: uw.Run, change: dict[str, Any], says: str
) -> None:
    path = certified.save(tmp_path / "run")
    found = receipts(path)
    found[1]["certificate"] |= change
    found[1]["version"] = "0.1.9"  # whose words are not known
    reseal_receipts(path, found, linked=True)
    with pytest.raises(uw.RunError, match=f"{says}|does not hold what a receipt holds"):
        opened(path).verify()


@pytest.fixture(scope="module")
def certified() -> uw.Run:
    run = uw.train(uw.models.SGC(8, 3), small_graph(), certify=(1.0, 1e-4), weight_decay=1e-2)
    return run.forget(uw.Request(labels=[3])).forget(uw.Request(labels=[5]))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("prepared.safetensors", "prepared.json"), "prepared state in the run belongs to another model"),
        (("weights.safetensors",), "not those that the last receipt tells of"),
    ],
)
def test_parts_of_another_run_are_noticed(path: Path, tmp_path: Path, names: tuple[str, ...], says: str) -> None:
    other = trained(2).save(tmp_path / "other")
    reseal(path, {name: (other / name).read_bytes() for name in names})
    with pytest.raises(uw.RunError, match=says):
        opened(path).verify()


def test_checkpoints_of_another_model_are_noticed(path: Path, tmp_path: Path) -> None:
    other = trained(2, hidden=5).save(tmp_path / "other")
    names = ("checkpoints.safetensors", "checkpoints.json")
    reseal(path, {name: (other / name).read_bytes() for name in names})
    with pytest.raises(uw.RunError, match="checkpoints in the run belongs to another model"):
        opened(path).verify()


def test_a_calibration_of_another_model_is_noticed(path: Path) -> None:
    known = json.loads((path / "calibration.json").read_bytes())
    reseal(path, {"calibration.json": json.dumps(known | {"parameters": "0" * 64}).encode()})
    with pytest.raises(uw.RunError, match="calibration in the run belongs to another model"):
        opened(path).verify()


def test_a_run_of_version_0_1_opens_verifies_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "version_0_1", path)
    shutil.move(path / "graph.safetensors", tmp_path)
    graph = Data(**load_file(path.with_name("graph.safetensors")), num_classes=3)
    run = uw.Run.open(path, data=graph).verify()
    assert [receipt.version for receipt in run.receipts] == ["0.1.0", "0.1.0"]
    assert "Forgotten  1 node" in str(run.receipts[0])
    assert run.training.recipe == uw.Recipe(seed=1, epochs=10)
    assert len(run.checkpoints) == 1
    run.forget(uw.Request(labels=[22]), "gif").save(path, overwrite=True)
    again = uw.Run.open(path, data=graph).verify()
    assert [receipt.version for receipt in again.receipts] == ["0.1.0", "0.1.0", uw.__version__]
    assert again.receipts[2].previous == again.receipts[1].digest
    assert not (path / "receipts").exists()
