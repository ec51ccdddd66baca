"""Runs on disk: written whole, never executed, and every change noticed."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import unweave as uw
from tests.sealing import seal
from unweave.objective.parameters import flatten
from unweave.run.manifest import sha
from unweave.testing import small_graph


@pytest.fixture(scope="module")
def run() -> uw.Run:
    data = uw.load("demo", seed=4)
    return uw.train(uw.models.GCN(data.num_features, data.num_classes, hidden=8), data, seed=4, epochs=5)


def test_round_trip(run: uw.Run, tmp_path: Path) -> None:
    path = run.save(tmp_path / "deep" / "a")
    again = uw.Run.open(path)
    assert torch.equal(flatten(again.model), flatten(run.model))
    assert again.recipe == run.recipe
    assert dict(again.metrics) == dict(run.metrics)
    assert torch.equal(again.data.train_mask, run.data.train_mask)
    assert {p.name for p in path.iterdir()} == {
        "config.json", "manifest.json", "metrics.json", "split.json", "weights.safetensors",
    }  # fmt: skip


def test_forgetting_twice_is_kept_and_replayed(run: uw.Run, tmp_path: Path) -> None:
    once = run.forget(uw.draw("edges:0.05", run.data))
    twice = once.forget(uw.draw("nodes:0.02", once.data), "finetune", epochs=2)
    path = twice.save(tmp_path / "b")
    again = uw.Run.open(path)
    assert len(again.receipts) == 2
    assert again.data.num_edges == twice.data.num_edges
    assert again.receipts[1].to_json() == twice.receipts[1].to_json()
    assert len((path / "receipts.jsonl").read_bytes().splitlines()) == 2


def test_retrain_follows_the_recipe_of_the_run(run: uw.Run) -> None:
    retrained = run.forget(uw.draw("edges:0.05", run.data), "retrain")
    fresh = uw.models.GCN(run.data.num_features, run.data.num_classes, hidden=8)
    uw.train(fresh, retrained.data, seed=4, epochs=5)
    assert torch.equal(flatten(retrained.model), flatten(fresh))


def test_an_existing_folder_is_refused_unless_asked(run: uw.Run, tmp_path: Path) -> None:
    path = run.save(tmp_path / "a")
    with pytest.raises(uw.RunError, match="exists already"):
        run.save(path)
    run.save(path, overwrite=True)
    uw.Run.open(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a"], "nothing may be left beside the run"


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "config.json", "split.json", "metrics.json", "receipts.jsonl", "requests.jsonl"]
)
def test_truncated_edited_and_missing_files_are_noticed(run: uw.Run, tmp_path: Path, name: str) -> None:
    path = run.forget(uw.draw("edges:0.05", run.data), "none").save(tmp_path / "a")
    content = (path / name).read_bytes()
    for change in (
        content[:-20],
        content.replace(b"1", b"2", 1) if b"1" in content else content + b" ",
        *([] if name.endswith(".jsonl") else [content + b" "]),  # what is added to those is nobody's yet
    ):
        (path / name).write_bytes(change)
        with pytest.raises(uw.RunError, match="truncated or edited"):
            uw.Run.open(path)
    (path / name).unlink()
    with pytest.raises(uw.RunError, match="missing"):
        uw.Run.open(path)


def test_an_edited_manifest_is_noticed(run: uw.Run, tmp_path: Path) -> None:
    path = run.save(tmp_path / "a")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"].pop("split.json")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(uw.RunError, match="has been edited"):
        uw.Run.open(path)
    (path / "manifest.json").write_text("{")
    with pytest.raises(uw.RunError, match="truncated or edited"):
        uw.Run.open(path)
    with pytest.raises(uw.RunError, match="not a run"):
        uw.Run.open(tmp_path)


def test_a_failed_write_leaves_nothing(run: uw.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        if path.name == "metrics.json":
            raise OSError("no space left on device")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    monkeypatch.setattr("unweave.run.folder._write", full)
    with pytest.raises(uw.RunError, match="no space left"):
        run.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_failed_overwrite_keeps_the_old_run(run: uw.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run.save(tmp_path / "a")
    monkeypatch.setattr("unweave.run.folder._write", lambda *_: (_ for _ in ()).throw(OSError("disk gone")))
    with pytest.raises(uw.RunError):
        run.save(path, overwrite=True)
    assert torch.equal(flatten(uw.Run.open(path).model), flatten(run.model))


def test_weights_are_safetensors(run: uw.Run, tmp_path: Path) -> None:
    path = run.save(tmp_path / "a")
    with safe_open(path / "weights.safetensors", framework="pt") as stored:  # type: ignore[no-untyped-call]
        assert set(stored.keys()) == set(run.model.state_dict())


class Own(nn.Module):
    """A model of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


def test_a_model_and_graph_of_ones_own(tmp_path: Path) -> None:
    data = small_graph()
    run = uw.train(Own(), data, epochs=5)
    path = run.forget(uw.draw("edges:0.1", data)).save(tmp_path / "a")
    with pytest.raises(uw.RunError, match="pass it as data="):
        uw.Run.open(path, model=Own())
    with pytest.raises(uw.RunError, match="pass one as model="):
        uw.Run.open(path, data=data)
    again = uw.Run.open(path, data=data, model=Own())
    assert again.data.num_edges < data.num_edges
    assert uw.Run.open(path, data=again.data, model=Own()).data is again.data, "the old graph may be destroyed"
    with pytest.raises(uw.RunError, match="not the one"):
        uw.Run.open(path, data=small_graph(seed=1), model=Own())
    with pytest.raises(uw.RunError, match="do not fit"):
        uw.Run.open(path, data=data, model=uw.models.GCN(8, 3))


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum(dim=-1)


def test_a_loss_of_ones_own_must_be_given_again(tmp_path: Path) -> None:
    data = small_graph()
    data.y = data.x[:, :3].clone()
    run = uw.train(Own(), data, epochs=5, loss=squared)
    path = run.save(tmp_path / "a")
    for wrong in (None, uw.losses.squared_error):
        with pytest.raises(uw.RunError, match=r"squared.*loss="):
            uw.Run.open(path, data=data, model=Own(), loss=wrong)
    assert uw.Run.open(path, data=data, model=Own(), loss=squared).loss == run.loss


def test_only_a_run_is_ever_overwritten(run: uw.Run, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years")
    (tmp_path / "request.csv").write_text("kind,node,value")
    for name in ("thesis", "request.csv"):
        with pytest.raises(uw.RunError, match="not a run"):
            run.save(tmp_path / name, overwrite=True)
    assert (tmp_path / "thesis" / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize("names", [["../secret"], ["/dev/zero"], [], ["receipts/0001.json"]])
def test_a_manifest_that_names_other_files_is_refused(run: uw.Run, tmp_path: Path, names: list[str]) -> None:
    path = run.save(tmp_path / "a")
    (tmp_path / "secret").write_text("s")
    manifest = json.loads((path / "manifest.json").read_text())
    digests = {**(manifest["files"] if names else {}), **dict.fromkeys(names, sha(b"s"))}
    seal(path, manifest | {"files": digests})
    with pytest.raises(uw.RunError, match="not a run"):
        uw.Run.open(path)


@pytest.mark.parametrize("text", ["[]", "{}", "[" * 100_000, '"x"'])
def test_a_strange_manifest_is_refused(run: uw.Run, tmp_path: Path, text: str) -> None:
    path = run.save(tmp_path / "a")
    (path / "manifest.json").write_text(text)
    with pytest.raises(uw.RunError, match="truncated or edited"):
        uw.Run.open(path)


def test_moving_a_run_leaves_the_first_where_it_was(run: uw.Run) -> None:
    moved = run.to(torch.device("cpu"))
    assert moved.model is not run.model
    assert moved.data is not run.data
