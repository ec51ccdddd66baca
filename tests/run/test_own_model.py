"""A run of a model of one's own: what nobody said about its training is not known, and nothing is made up."""

import json
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from unweave.objective.parameters import flatten
from unweave.testing import small_graph
from unweave.training.adam import reinitialise

DECAY = 1e-2


def train(model: torch.nn.Module, data: Data) -> None:
    """A training of one's own, that can be imported."""
    reinitialise(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=DECAY)
    for _ in range(30):
        optimiser.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        torch.nn.functional.cross_entropy(out, data.y[data.train_mask]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def model(data: Data) -> torch.nn.Module:
    torch.manual_seed(0)
    built = uw.models.SGC(data.num_features, int(data.num_classes))
    train(built, data)
    return built.eval()


def test_no_recipe_is_invented(model: torch.nn.Module, data: Data, tmp_path: Path) -> None:
    run = uw.Run(model, data, weight_decay=DECAY)
    assert not run.training.known
    path = run.forget(uw.Request(nodes=[3])).save(tmp_path / "run")
    stored = json.loads((path / "config.json").read_text())["training"]
    assert stored["recipe"] is None
    assert stored["trainer"] is None
    again = uw.Run.open(path, model=uw.models.SGC(data.num_features, int(data.num_classes)), data=data)
    assert again.training == run.training
    with pytest.raises(uw.ModelError, match="not trained by a recipe of unweave"):
        _ = again.recipe


def test_ones_own_trainer_is_kept_by_its_path_and_used(model: torch.nn.Module, data: Data, tmp_path: Path) -> None:
    run = uw.Run(model, data, weight_decay=DECAY, trainer=f"{__name__}:train", seed=3)
    path = run.save(tmp_path / "run")
    again = uw.Run.open(path, model=uw.models.SGC(data.num_features, int(data.num_classes)), data=data)
    request = uw.Request(nodes=[3])
    wanted = uw.Run(model, data, weight_decay=DECAY, seed=3).forget(request, "retrain", trainer=train)
    assert torch.equal(flatten(again.forget(request, "retrain").model), flatten(wanted.model))


def test_the_optimiser_tells_the_weight_decay(model: torch.nn.Module, data: Data) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=DECAY)
    run = uw.Run(model, data, weight_decay=optimiser)
    plain = uw.Run(model, data, weight_decay=DECAY)
    request = uw.Request(nodes=[3])
    assert torch.equal(flatten(run.forget(request).model), flatten(plain.forget(request).model))


def test_what_cannot_be_a_run_is_refused(model: torch.nn.Module, data: Data) -> None:
    with pytest.raises(uw.ModelError, match="say what the model was trained with"):
        uw.Run(model, data)
    with pytest.raises(uw.ModelError, match=r"torch\.nn\.Module"):
        uw.Run("model", data, weight_decay=0)  # type: ignore[arg-type]
    with pytest.raises(uw.DataError, match=r"torch_geometric\.data\.Data"):
        uw.Run(model, "graph", weight_decay=0)  # type: ignore[arg-type]
