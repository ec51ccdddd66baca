"""The command line with a model and a graph of one's own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import unweave as uw
from tests.cli.test_cli import refused, unweave
from unweave.datasets.own import read_graph
from unweave.testing import small_graph

MODULE = """
import torch
from torch import nn
from torch_geometric.nn import SAGEConv

class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv({features}, 8), SAGEConv(8, {classes})

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)

def factory():
    torch.manual_seed(0)
    return Sage()

def called():
    return {{"model": factory(), "forward": lambda model, data: model(data.x, data.edge_index), "weight_decay": 1e-3}}

def with_trainer():
    return {{"model": factory(), "trainer": print}}

def with_optimiser():
    model = factory()
    return {{"model": model, "weight_decay": torch.optim.AdamW(model.parameters())}}

def wrong():
    return 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    data = small_graph()
    (tmp_path / "mine.py").write_text(MODULE.format(features=data.num_features, classes=int(data.y.max()) + 1))
    torch.save(data, tmp_path / "graph.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("mine", None)


OWN = ("--model", "mine:factory", "--data", "graph.pt")


def test_a_model_from_elsewhere_is_adopted_and_forgets(own: Path) -> None:
    done = unweave("adopt", *OWN, "--weight-decay", 1e-3, "--out", "a")
    assert done.exit_code == 0, done.stderr
    for command in (("prepare", "a"), ("forget", "a", "--forget", "edges:0.1", "--out", "b"), ("verify", "b")):
        done = unweave(*command, *OWN)
        assert done.exit_code == 0, done.stderr
    assert len(uw.Run.open("b", model=_fresh(), data=read_graph("graph.pt")).receipts) == 1
    refused(unweave("forget", "a", "--forget", "edges:0.1", "--out", "c"), "--model package.module:factory")
    assert not (own / "c").exists()


def _fresh() -> nn.Module:
    module: nn.Module = sys.modules["mine"].factory()
    return module


def test_a_run_of_ones_own_is_shown_without_its_model(own: Path) -> None:
    assert unweave("adopt", *OWN, "--weight-decay", 1e-3, "--out", "a").exit_code == 0
    done = unweave("show", "a")
    assert done.exit_code == 0, done.stderr
    assert "Sage" in done.stdout


def test_weights_from_a_file(own: Path) -> None:
    sys.path.insert(0, str(own))
    weights = {key: torch.full_like(value, 0.1) for key, value in __import__("mine").factory().state_dict().items()}
    save_file(weights, own / "w.safetensors")
    done = unweave("adopt", "--model", "mine:called", "--data", "graph.pt", "--weights", "w.safetensors", "--out", "a")
    assert done.exit_code == 0, done.stderr
    save_file({"other": torch.ones(1)}, own / "other.safetensors")
    wrong = ("adopt", *OWN, "--weight-decay", 0, "--weights", "other.safetensors", "--out", "b")
    refused(unweave(*wrong), "cannot be loaded into the module")


def test_it_is_trained_by_the_command_line_too(own: Path) -> None:
    done = unweave("train", *OWN, "--epochs", 3, "--out", "a")
    assert done.exit_code == 0, done.stderr
    assert unweave("forget", "a", *OWN, "--forget", "edges:0.1", "--method", "retrain", "--out", "b").exit_code == 0


def test_what_a_factory_says_of_training_is_not_passed_over(own: Path) -> None:
    train = ("train", "--data", "graph.pt", "--epochs", "3", "--out", "t", "--model")
    unweave(*train, "mine:called")
    assert uw.Run.open(own / "t", model=_fresh(), data=small_graph()).recipe.weight_decay == 1e-3
    refused(unweave(*train, "mine:with_trainer", "--overwrite"), "unweave adopt")
    refused(unweave(*train, "mine:with_optimiser", "--overwrite"), "--weight-decay 1e-3")


def test_what_is_wrong_is_said(own: Path) -> None:
    out = ("--data", "graph.pt", "--weight-decay", 0, "--out", "x")
    refused(unweave("adopt", "--model", "mine", *out), "must be package.module:factory")
    refused(unweave("adopt", "--model", "nowhere:factory", *out), "cannot import nowhere")
    refused(unweave("adopt", "--model", "mine:absent", *out), "has no absent")
    refused(unweave("adopt", "--model", "mine:wrong", *out), "must give a torch.nn.Module")
    refused(unweave("adopt", *OWN, "--out", "x"), "--weight-decay 5e-4, or 0 for none")
    refused(unweave("train", "--model", "nope", "--data", "demo", "--out", "x"), "package.module:factory for your own")
    assert not (own / "x").exists()
