"""What a comparison is given, as functions that make it: a graph of a seed, an untrained model for a graph."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.datasets import load
from unweave.datasets.own import SUFFIXES, read_graph
from unweave.errors import ModelError
from unweave.models import MODELS, build
from unweave.run.factory import made_by

__all__ = ["MakeData", "MakeModel", "data_maker", "model_for", "model_maker", "name_of"]

MakeData = Callable[[int], Data]
MakeModel = Callable[[int, int], nn.Module]


def model_for(make_model: MakeModel, data: Data) -> nn.Module:
    """An untrained model for a graph, where the graph is."""
    classes = int(data.num_classes) if "num_classes" in data else int(data.y.max()) + 1
    if isinstance(make_model, BuiltIn) and make_model.wide:
        return make_model(data.num_features, classes, int(data.train_mask.sum()), data.x).to(data.x.device)
    return make_model(data.num_features, classes).to(data.x.device)


def name_of(made: str | MakeData | MakeModel) -> str:
    """What data or a model are called."""
    return made if isinstance(made, str) else getattr(made, "__name__", "custom")


def data_maker(data: str | MakeData, root: str | Path | None) -> MakeData:
    """A function that gives the graph split by a seed; that of a file has one split."""
    if callable(data):
        return data
    if Path(data).suffix in SUFFIXES:
        graph = read_graph(data)
        return lambda seed: graph
    return lambda seed: load(data, seed=seed, root=root)


def model_maker(model: str | MakeModel, forgettable: bool, *, wide: bool = True) -> MakeModel:
    """A function of (features, classes) that builds the model; not ``wide`` for the paper's size."""
    if callable(model):
        return model
    if ":" in model:
        return partial(_own, model)
    if model not in MODELS:
        raise ModelError(f"unknown model {model!r}; known: {', '.join(MODELS)}, or package.module:factory for your own")
    return BuiltIn(model, forgettable, wide)


def _own(path: str, features: int, classes: int) -> nn.Module:
    """An untrained model of a factory's, which knows the graph it is made for."""
    parts = made_by(path)
    if further := sorted(set(parts) - {"model"}):
        raise ModelError(
            f"{path} gives {', '.join(further)} too; a comparison trains by the recipe, and takes the model"
        )
    module: nn.Module = parts["model"]
    return module


@dataclass(frozen=True)
class BuiltIn:
    """Builds a model of ours, as wide as the graph asks for or as the paper has it."""

    name: str
    forgettable: bool
    wide: bool

    def __call__(self, features: int, classes: int, nodes: int | None = None, x: Tensor | None = None) -> nn.Module:
        """An untrained model."""
        return build(self.name, features, classes, forgettable=self.forgettable, nodes=nodes, x=x)
