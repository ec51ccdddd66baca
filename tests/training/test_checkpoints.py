"""Checkpoints: training goes on from them as if it had never stopped, in memory and from disk."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.sealing import reseal
from unweave._core.cost import Meter
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph
from unweave.training.adam import Adam, seeded, spoil
from unweave.training.checkpoints import read_checkpoints, train_through, write_checkpoints
from unweave.training.polish import polish_objective

SHARES = (0.05, 0.2, 0.5)


class Normed(nn.Module):
    """A model with running statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = GCNConv(8, 6), nn.BatchNorm1d(6), GCNConv(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.dropout(self.norm(self.first(x, edge_index)), 0.5, self.training)
        out: Tensor = self.second(h, edge_index)
        return out


MODELS = {"gcn": lambda: uw.models.GCN(8, 3), "gat": lambda: uw.models.GAT(8, 3), "normed": Normed}


def builtin(model: nn.Module, recipe: uw.Recipe) -> Adam:
    decay = decay_vector(model, recipe.weight_decay)
    return Adam(recipe.lr, Objective(model, small_graph(), cross_entropy, decay, call, Meter(torch.device("cpu"))))


@pytest.mark.parametrize("name", MODELS)
def test_from_every_checkpoint_training_ends_where_it_ended(name: str) -> None:
    data = small_graph()
    plain = uw.train(MODELS[name](), data, seed=1, epochs=40)
    run = uw.train(MODELS[name](), data, seed=1, epochs=40, checkpoints=SHARES)
    assert not plain.checkpoints
    assert [c.epoch for c in run.checkpoints] == [20, 32, 38]
    expected = plain.model.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in run.model.state_dict().items())
    for stored in (run.checkpoints, read_checkpoints(write_checkpoints(run.checkpoints))):
        for checkpoint in stored:
            model = copy.deepcopy(run.model)
            spoil(model)
            with seeded(99, data.x.device):
                end = builtin(model, run.recipe)(model, data, checkpoint, 40)
            assert end.epoch == 40
            assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())


def test_a_forgettable_model_ends_at_the_same_minimum() -> None:
    data = small_graph()
    run = uw.train(
        uw.models.GCN(8, 3), data, seed=1, epochs=30, weight_decay=1e-2, forgettable=True, checkpoints=(0.2,)
    )
    model = copy.deepcopy(run.model)
    trainer = builtin(model, run.recipe)
    with seeded(99, data.x.device):
        trainer(model, data, run.checkpoints[0], 30)
    polish_objective(trainer.objective.anew(model, data))
    assert torch.equal(flatten(model), flatten(run.model))


def test_resuming_leaves_the_checkpoint_as_it_is() -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3), data, epochs=20, checkpoints=(0.5,))
    before = write_checkpoints(run.checkpoints)
    model = copy.deepcopy(run.model)
    with seeded(0, data.x.device):
        builtin(model, run.recipe)(model, data, run.checkpoints[0], 20)
    assert write_checkpoints(run.checkpoints) == before


def test_what_a_loop_may_keep_survives_the_disk() -> None:
    model = nn.Linear(3, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser)  # its best so far is infinite
    adam = torch.optim.Adam(model.parameters(), betas=(0.5, 0.9))
    for _ in range(2):
        torch.autograd.backward(model(torch.ones(1, 3)).sum())
        optimiser.step()
        adam.step()
    taken = uw.Checkpoint.take(7, model, optimiser, plateau, adam)
    expected = torch.rand(3)
    (read,) = read_checkpoints(write_checkpoints([taken]))
    assert read.epoch == 7
    assert read.nbytes == taken.nbytes
    _same(read.parts, taken.parts)
    other = nn.Linear(3, 2)
    parts = (
        torch.optim.SGD(other.parameters(), lr=0.5),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser),
        torch.optim.Adam(other.parameters()),
    )
    parts[1].best = 3.0
    read.restore(other, *parts)
    assert torch.equal(flatten(other), flatten(model))
    assert parts[0].param_groups[0]["momentum"] == 0.9
    assert parts[1].best == float("inf")
    assert parts[2].param_groups[0]["betas"] == (0.5, 0.9)
    assert torch.equal(torch.rand(3), expected), "the random numbers go on where they stopped"


def _same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        _same(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            _same(a, b)
    else:
        assert one == other


def test_bytes_are_those_of_weights_optimiser_and_random_state() -> None:
    data = small_graph()
    (state,) = uw.train(uw.models.GCN(8, 3), data, epochs=4, checkpoints=(0.5,)).checkpoints
    weights = sum(value.numel() for value in state.model.values())
    steps = len(state.model)
    assert state.nbytes == 4 * (4 * weights + steps) + torch.get_rng_state().numel()
    assert state.nbytes < sum(map(len, write_checkpoints([state]).values())) < state.nbytes + 6000


def test_what_does_not_fit_is_refused() -> None:
    data = small_graph()
    (state,) = uw.train(uw.models.GCN(8, 3), data, epochs=4, checkpoints=(0.5,)).checkpoints
    wide, same = uw.models.GCN(8, 3, hidden=5), uw.models.GCN(8, 3)
    with pytest.raises(uw.ModelError, match=r"'conv1.bias' is float32 \(16,\) there and float32 \(5,\) here"):
        state.restore(wide, torch.optim.Adam(wide.parameters()))
    with pytest.raises(uw.ModelError, match=r"missing (here|there)"):
        state.restore(uw.models.SGC(8, 3))
    with pytest.raises(uw.ModelError, match=r"float32 .* there and float64"):
        state.restore(uw.models.GCN(8, 3).double())
    odd = replace(state, random={"cpu": torch.zeros(3, dtype=torch.uint8)})
    with pytest.raises(uw.ModelError, match="cannot take the checkpoint's random state"):
        odd.restore(same, torch.optim.Adam(same.parameters()))
    for epoch in (-1, 2.0, None):
        with pytest.raises(uw.ModelError, match="epoch must be a whole number"):
            uw.Checkpoint.take(epoch, same)  # type: ignore[arg-type]
    with pytest.raises(uw.ModelError, match="taken with Adam and is to be restored into SGD"):
        state.restore(same, torch.optim.SGD(same.parameters()))
    with pytest.raises(uw.ModelError, match="restored into a model alone"):
        state.restore(same)
    with pytest.raises(uw.ModelError, match="does not fit this Adam"):
        state.restore(same, torch.optim.Adam([{"params": [p]} for p in same.parameters()]))
    schedule = torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD(same.parameters()), [_Falling()])
    with pytest.raises(uw.ModelError, match=r"LambdaLR.*secret is of type object"):
        uw.Checkpoint.take(1, same, schedule)


class _Falling:
    """A schedule with a state that no file should hold."""

    def __init__(self) -> None:
        self.secret = object()

    def __call__(self, epoch: int) -> float:
        return 0.9**epoch


def test_a_trainer_must_do_as_it_is_told() -> None:
    data, model = small_graph(), uw.models.GCN(8, 3)

    def deaf(model: nn.Module, data: Data, start: uw.Checkpoint | None, until: int, /) -> uw.Checkpoint:
        return uw.Checkpoint.take(100, model)

    with pytest.raises(uw.MethodError, match="until epoch 80 and returned that of epoch 100"):
        train_through(deaf, model, data, None, [80, 100])
    with pytest.raises(uw.MethodError, match="returned NoneType"):
        train_through(lambda *_: None, model, data, None, [80])  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("bad", [(0.0,), (1.0,), (0.1, -0.2), (float("nan"),), 0.2, "0.2", ("0.2",)])
def test_bad_shares_are_refused(bad: Any) -> None:
    with pytest.raises(uw.ModelError, match="checkpoints must be shares"):
        uw.train(uw.models.GCN(8, 3), small_graph(), epochs=2, checkpoints=bad)


def test_shares_that_meet_are_one_checkpoint_and_the_start_is_none() -> None:
    run = uw.train(uw.models.SGC(8, 3), small_graph(), epochs=3, checkpoints=(0.01, 0.1, 0.9))
    assert [c.epoch for c in run.checkpoints] == [2]


def test_progress_goes_on_over_the_stops() -> None:
    seen: list[tuple[int, int]] = []
    uw.train(
        uw.models.SGC(8, 3),
        small_graph(),
        epochs=4,
        checkpoints=(0.25, 0.5),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.fixture(scope="module")
def run() -> uw.Run:
    data = uw.load("demo", seed=4)
    model = uw.models.GCN(data.num_features, data.num_classes, hidden=8)
    return uw.train(model, data, seed=4, epochs=10, checkpoints=(0.1, 0.5))


def test_a_run_keeps_them(run: uw.Run, tmp_path: Path) -> None:
    path = run.save(tmp_path / "a")
    again = uw.Run.open(path)
    assert write_checkpoints(again.checkpoints) == write_checkpoints(run.checkpoints)
    request = uw.draw("edges:0.05", run.data)
    here, there = (r.forget(request, "replay", share=0.5) for r in (run, again))
    assert torch.equal(flatten(here.model), flatten(there.model))
    bare = again.replace(checkpoints=()).save(path, overwrite=True)
    assert not (bare / "checkpoints.json").exists()
    assert not uw.Run.open(bare).checkpoints


@pytest.mark.parametrize("name", ["checkpoints.safetensors", "checkpoints.json"])
def test_truncated_and_missing_files_are_noticed(run: uw.Run, tmp_path: Path, name: str) -> None:
    path = run.save(tmp_path / "a")
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[:-20])
    with pytest.raises(uw.RunError, match="truncated or edited"):
        uw.Run.open(path)
    (path / name).unlink()
    with pytest.raises(uw.RunError, match="missing"):
        uw.Run.open(path)


NO_STATE = {"epoch": 5, "model": {"dict": []}, "parts": [], "random": {"dict": []}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("checkpoints.safetensors", b"no tensors"),
        ("checkpoints.safetensors", save({"other": torch.zeros(1)})),
        ("checkpoints.json", b"{"),
        ("checkpoints.json", b"[3]"),
        ("checkpoints.json", json.dumps([NO_STATE]).encode()),
        ("checkpoints.json", json.dumps([NO_STATE | {"random": {"code": "x"}}]).encode()),
        ("checkpoints.json", None),
    ],
)
def test_files_that_are_no_checkpoints_are_refused(
    run: uw.Run, tmp_path: Path, name: str, content: bytes | None
) -> None:
    """The digests are right, the files are not."""
    path = run.save(tmp_path / "a")
    if content is None:
        content = json.dumps(json.loads((path / name).read_bytes()) * 2).encode()
    reseal(path, {name: content})
    with pytest.raises(uw.RunError, match="does not hold what a run holds"):
        uw.Run.open(path)
