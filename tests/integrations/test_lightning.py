"""A training by PyTorch Lightning that ends forgettable. Skipped where the extra is not installed."""

import copy
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data

import unweave as uw
from tests.integrations.test_watch import QUICK, closed_by, wide
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

if find_spec("lightning") is None:
    pytest.skip("lightning is not installed (pip install 'unweave[lightning]')", allow_module_level=True)

import lightning.pytorch as L

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*in eval mode at the start of training.*"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

EPOCHS = 40


class Lit(L.LightningModule):
    """A net, its loss and its optimiser, as everybody writes them."""

    def __init__(self, model: nn.Module, decay: float = 3e-3, fails_at: int | None = None) -> None:
        super().__init__()
        self.model, self.decay, self.fails_at = model, decay, fails_at

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x, edge_index)  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[Tensor, ...], _: int) -> Tensor:
        if self.current_epoch == self.fails_at:
            raise OSError("the disk is full")
        x, edge_index, y, nodes = batch
        return nn.functional.cross_entropy(self.model(x, edge_index)[nodes], y[nodes])

    def configure_optimizers(self) -> Any:
        optimiser = torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=self.decay)
        return {"optimizer": optimiser, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimiser, 15, 0.7)}


class Samples(Dataset[tuple[Tensor, ...]]):
    """So many batches of training nodes an epoch, each on a sample of the edges; one is the whole graph."""

    def __init__(self, data: Data, batches: int) -> None:
        self.data, self.batches = data, batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, _: int) -> tuple[Tensor, ...]:
        data, nodes = self.data, self.data.train_mask.nonzero().flatten()
        if self.batches == 1:
            return data.x, data.edge_index, data.y, nodes
        kept = torch.rand(data.edge_index.size(1)) < 0.7
        return data.x, data.edge_index[:, kept], data.y, nodes[torch.randperm(len(nodes))[: len(nodes) // self.batches]]


def trainer(*callbacks: L.Callback, **how: Any) -> L.Trainer:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return L.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **({"max_epochs": EPOCHS} | quiet | how))


def fit(model: Any, data: Data, callback: L.Callback, *, batches: int = 1, **how: Any) -> None:
    model.reset_parameters()
    trainer(callback, **how).fit(Lit(model), DataLoader(Samples(data, batches), batch_size=None, shuffle=True))


def fit_sampled(model: Any, data: Data, callback: L.Callback) -> None:
    fit(model, data, callback, batches=4)


def forgettable(data: Data, **how: Any) -> Any:
    return uw.integrations.lightning.Forgettable(data, **({"net": "model", "polish": QUICK} | how))


@pytest.mark.parametrize("train", [fit, fit_sampled])
def test_it_forgets_as_a_model_fitted_and_polished_without_the_data(train: Any) -> None:
    data = uw.load("demo", seed=0)
    model, callback = wide(data), forgettable(data, trainer=train)
    train(model, data, callback)
    run = callback.run
    assert torch.equal(flatten(model), flatten(run.model))
    assert type(run.model) is type(model)
    assert run.training.recipe is None
    assert run.training.weight_decay == 3e-3
    assert [state.epoch for state in run.checkpoints] == [32, 38]
    request = uw.draw("edges:0.05", data)
    retrained = run.forget(request, "retrain")
    assert closed_by(run, "gif", request, retrained) > 0.9
    assert closed_by(run, "replay", request, retrained) > 0.9


@pytest.mark.parametrize("train", [fit, fit_sampled])
def test_a_fit_goes_on_from_its_states_to_the_bit(train: Any) -> None:
    """Dropout, order and samples of the batches and the schedule are what they were."""
    data = small_graph()
    model, callback = wide(data, 8), forgettable(data, trainer=train, polish=False, checkpoints=(0.1, 0.5, 0.9))
    train(model, data, callback)
    run = callback.run
    assert [state.epoch for state in run.checkpoints] == [4, 20, 36]
    resumed = run.training.resolve_trainer()
    for state in run.checkpoints:
        again = copy.deepcopy(model)
        ended = resumed(again, data, state, EPOCHS)
        assert torch.equal(flatten(again), flatten(model))
        assert ended.epoch == EPOCHS
    half = copy.deepcopy(model)
    resumed(half, data, resumed(half, data, run.checkpoints[0], 20), EPOCHS)
    assert torch.equal(flatten(half), flatten(model))


def test_without_a_polish_retrace_walks_the_path() -> None:
    data = uw.load("demo", seed=0)
    callback = forgettable(data, trainer=fit, polish=False, checkpoints=(0.05, 0.2, 0.5, 0.9))
    fit(wide(data, dropout=0.0), data, callback)
    run, request = callback.run, uw.draw("edges:0.05", data)
    retrained = run.forget(request, "retrain")
    assert [state.epoch for state in retrained.checkpoints] == [4, 20, 32, 38]
    for method in ("replay", "retrace"):
        assert closed_by(run, method, request, retrained) > 0.3, method


def test_the_lightning_module_itself_can_be_the_model(tmp_path: Path) -> None:
    data = small_graph()
    module, callback = Lit(wide(data, 8), 1e-2), forgettable(data, net=None, out=tmp_path / "run")
    trainer(callback).fit(module, DataLoader(Samples(data, 1), batch_size=None))
    run = callback.run
    assert isinstance(run.model, Lit)
    assert torch.equal(flatten(module), flatten(run.model))
    again = uw.Run.open(tmp_path / "run", model=Lit(wide(data, 8)), data=data)
    assert again.forget(uw.draw("edges:0.1", data)).receipts
    through = forgettable(data, net=None, forward=lambda module, data: module.model(data.x, data.edge_index))
    trainer(through).fit(Lit(wide(data, 8), 1e-2), DataLoader(Samples(data, 1), batch_size=None))
    assert through.run.prepared is not None
    assert through.polished is not None


def test_an_early_stop_is_the_end() -> None:
    class Stop(L.Callback):
        def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            trainer.should_stop = trainer.current_epoch >= 11  # counted before its end

    data = small_graph()
    callback = forgettable(data, checkpoints=(0.1, 0.9), polish=False)
    trainer(callback, Stop()).fit(Lit(wide(data, 8)), DataLoader(Samples(data, 1), batch_size=None))
    assert [state.epoch for state in callback.run.checkpoints] == [4]


def test_steps_instead_of_epochs_have_no_shares() -> None:
    data = small_graph()
    loader = DataLoader(Samples(data, 3), batch_size=None)
    with pytest.raises(uw.ModelError, match=r"max_epochs=-1 and max_steps=10.*checkpoints=\(\)"):
        trainer(forgettable(data), max_steps=10, max_epochs=-1).fit(Lit(wide(data, 8)), loader)
    callback = forgettable(data, checkpoints=(), polish=False)
    trainer(callback, max_steps=10, max_epochs=-1).fit(Lit(wide(data, 8)), loader)
    assert callback.run.checkpoints == ()


def test_an_interrupted_fit_gives_no_run() -> None:
    data = small_graph()
    callback = forgettable(data)
    with pytest.raises(uw.ModelError, match="fit was not called with this callback"):
        _ = callback.run
    model = wide(data, 8)
    with pytest.raises(OSError, match="full"):
        trainer(callback).fit(Lit(model, fails_at=3), DataLoader(Samples(data, 1), batch_size=None))
    with pytest.raises(uw.ModelError, match=r"interrupted by OSError \(the disk is full\)"):
        _ = callback.run


def test_bad_uses_are_refused_before_an_epoch() -> None:
    data = small_graph()
    loader = DataLoader(Samples(data, 1), batch_size=None)
    callback = forgettable(data, polish=False)
    trainer(callback).fit(Lit(wide(data, 8)), loader)
    for how, decay, words in (
        ({"used": callback}, 3e-3, "make a new Forgettable"),
        ({}, 0.0, "without weight decay"),
        ({"net": "nothing"}, 3e-3, "names no module of Lit; it has model"),
        ({"net": None, "forward": lambda module, data: module.model(data)}, 3e-3, "edge_index"),
    ):
        model = wide(data, 8)
        before = flatten(model).clone()
        used: Any = how.pop("used", None) or forgettable(data, **how)  # type: ignore[attr-defined]
        with pytest.raises((uw.ModelError, TypeError), match=words):
            trainer(used).fit(Lit(model, decay), loader)
        assert torch.equal(before, flatten(model))
    assert callback.run is not None


def test_a_graph_that_changed_meanwhile_is_refused() -> None:
    class Change(L.Callback):
        def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            data.x[0] = 0

    data = small_graph()
    with pytest.raises(uw.DataError, match="changed in place"):
        trainer(forgettable(data), Change()).fit(Lit(wide(data, 8)), DataLoader(Samples(data, 1), batch_size=None))


def test_a_trainer_that_does_not_do_what_it_is_asked_for_is_refused() -> None:
    def leaves_out(model: Any, data: Data, callback: L.Callback) -> None:
        fit(model, data, L.Callback())

    def another(model: Any, data: Data, callback: L.Callback) -> None:
        fit(copy.deepcopy(model), data, callback)

    data = small_graph()
    request = uw.draw("edges:0.1", data)
    for train, words in ((leaves_out, "did not fit with the callback"), (another, "the very model")):
        callback = forgettable(data, trainer=train, polish=False)
        fit(wide(data, 8), data, callback)
        with pytest.raises(uw.MethodError, match=words):
            callback.run.forget(request, "retrain")
