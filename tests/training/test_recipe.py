"""How a model was trained, as far as it is known: nothing is invented, and what can be stored is."""

import json
import sys

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave.objective.decay import as_weight_decay
from unweave.training.recipe import Training


def train(model: nn.Module, data: Data) -> None:
    """Does nothing; it is here to be imported."""


HERE = f"{__name__}:train"


def stored(training: Training) -> Training:
    return Training.from_dict(json.loads(json.dumps(training.to_dict())), training.to_tensors())


def test_an_unknown_training_is_refused_with_what_to_do() -> None:
    training = Training(5e-4)
    assert not training.known
    with pytest.raises(uw.MethodError, match=r"method 'retrain' needs to know how .* trainer=.*recipe="):
        training.require("method 'retrain'")


@pytest.mark.parametrize("known", [{"recipe": uw.Recipe(weight_decay=5e-4)}, {"trainer": train}, {"trainer": HERE}])
def test_a_known_training_is_enough_and_is_stored(known: dict[str, object]) -> None:
    training = Training(5e-4, **known)  # type: ignore[arg-type]
    training.require("method 'retrain'")
    again = stored(training)
    assert again.recipe == training.recipe
    assert again.resolve_trainer() is training.resolve_trainer()


def test_weight_decay_by_name_is_a_recipe_and_is_stored() -> None:
    recipe = uw.Recipe(weight_decay={"conv1": 5e-4})
    assert stored(Training.by(recipe)) == Training.by(recipe)


def test_what_cannot_be_imported_is_not_stored_and_says_so() -> None:
    training = Training(0.0, trainer=lambda model, data: None)
    assert training.unstorable is not None
    assert "import path" in training.unstorable
    again = stored(training)
    assert not again.known
    with pytest.raises(uw.MethodError, match=r"trained by .*<lambda>, which could not be stored"):
        again.require("an audit")
    assert stored(again) == again


def test_a_trainer_by_its_path_is_imported_only_when_asked() -> None:
    training = stored(Training(0.0, trainer="unweave_nowhere.module:train"))
    assert "unweave_nowhere" not in sys.modules
    with pytest.raises(uw.MethodError, match="cannot be imported"):
        training.resolve_trainer()


@pytest.mark.parametrize("path", ["package.module", "package.module:", ":train", "os:system('ls')", "a b:c"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(uw.ModelError, match=r"package\.module:function"):
        Training(0.0, trainer=path)


@pytest.mark.parametrize("decay", [-1.0, float("nan"), {"a": -1.0}, {1: 0.1}, "much"])
def test_weight_decay_that_is_none_is_refused(decay: object) -> None:
    for make in (lambda: Training(decay), lambda: uw.Recipe(weight_decay=decay)):  # type: ignore[arg-type]
        with pytest.raises(uw.ModelError, match="at least 0"):
            make()


def test_weight_decay_other_than_that_of_the_recipe_is_refused() -> None:
    with pytest.raises(uw.ModelError, match="not that of the recipe"):
        Training(1e-3, uw.Recipe(weight_decay=1e-4))


def test_weight_decay_of_each_entry_is_stored_and_checked() -> None:
    model = nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    model(torch.ones(4, 3)).square().sum().backward()
    optimiser.step()
    training = Training(as_weight_decay(optimiser, model))
    assert stored(training) == training
    tensors: dict[str, Tensor] = {name: value + 1 for name, value in training.to_tensors().items()}
    for wrong in ({}, tensors):
        with pytest.raises(uw.ModelError, match="of each entry is missing"):
            Training.from_dict(training.to_dict(), wrong)


@pytest.mark.parametrize("spoilt", [{}, {"weight_decay": None}, {"trainer": 3}, {"recipe": {"epochs": "many"}}])
def test_a_document_that_was_edited_is_refused(spoilt: dict[str, object]) -> None:
    document = Training(0.0).to_dict() | spoilt if spoilt else {}
    with pytest.raises(uw.ModelError):
        Training.from_dict(document)
