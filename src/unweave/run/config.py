"""``config.json``: which graph, which model, how trained, with which loss. What is read is checked before it is used.

Sizes are checked against the tensors that are there, on torch's ``meta`` device, before a model is built: a number in a
file costs neither time nor memory.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unweave._core.kinds import check_fields, fits, shown
from unweave.errors import ModelError, RunError
from unweave.graph.view import digest_of
from unweave.models import MODELS
from unweave.objective.losses import (
    Loss,
    binary_cross_entropy,
    cross_entropy,
    known_loss,
    squared_error,
)
from unweave.run.state import State
from unweave.tasks.task import Task
from unweave.training.recipe import Recipe, Training

__all__ = ["Config", "GraphConfig", "ModelConfig", "built", "loss_of", "read_json"]

MOST_STEPS = 1000
"""Message-passing steps that a stored model may have: no shape of a tensor tells them."""


@dataclass(frozen=True)
class GraphConfig:
    """Which graph: its name and split, where :func:`unweave.load` has it, its nodes and the digest of what remains.

    That of a task has ``types``, how many of its nodes are of each, and ``examples``, the type of those that it is
    trained on.
    """

    name: str | None
    split_seed: int | None
    nodes: int
    digest: str
    types: dict[str, int] | None = None
    examples: str | None = None

    @classmethod
    def of(cls, state: State) -> "GraphConfig":
        """That of a run."""
        data = state.base
        plain = cls(data.get("name"), data.get("split_seed"), int(data.num_nodes), digest_of(state.whole))
        if not isinstance(data, Task):
            return plain
        every = torch.arange(plain.nodes, device=data.node_type.device)
        examples = next(iter(data.count(data.train_mask.nonzero().flatten())), None)
        return replace(plain, types=dict(data.count(every)), examples=examples)


@dataclass(frozen=True)
class ModelConfig:
    """Which model.

    Attributes:
        name: Of a built-in model, or of the class.
        built_in: Whether it is one of :data:`unweave.models.MODELS`.
        config: What a built-in one is called with.
        path: Module and name of the class.
        shapes: Of its parameters and buffers, by name.
    """

    name: str
    built_in: bool
    config: dict[str, Any] | None = None
    path: str | None = None
    shapes: dict[str, list[int]] | None = None

    def __str__(self) -> str:
        return self.path or self.name


@dataclass(frozen=True)
class Config:
    """What a run is made of.

    Attributes:
        data: Which graph.
        model: Which model.
        training: How it was trained, as :meth:`Training.to_dict` says it.
        seed: For what uses chance.
        loss: :attr:`Loss.settings`.
    """

    data: GraphConfig
    model: ModelConfig
    training: dict[str, Any]
    seed: int
    loss: dict[str, Any]

    @classmethod
    def of(cls, state: State) -> "Config":
        """That of a run."""
        own = type(state.model)
        name = next((key for key, known in MODELS.items() if own is known), None)
        return cls(
            data=GraphConfig.of(state),
            model=ModelConfig(
                name=name or own.__qualname__,
                built_in=name is not None,
                config=vars(state.model)["config"] if name else None,
                path=f"{own.__module__}.{own.__qualname__}",
                shapes={key: list(value.shape) for key, value in state.model.state_dict().items()},
            ),
            training=state.training.to_dict(),
            seed=state.seed,
            loss=state.loss.settings,
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return asdict(self)

    @classmethod
    def read(cls, text: bytes) -> "Config":
        """Read ``config.json``, of this version or of 0.1.

        Raises:
            ValueError, KeyError, TypeError: It is something else.
            ModelError: It has a recipe that is none.
        """
        document = read_json(text)
        if "recipe" in document:  # as version 0.1 wrote it
            recipe = Recipe(**document.pop("recipe"))
            document |= {"training": Training.by(recipe).to_dict(), "seed": recipe.seed}
            document["loss"] = _settings(document["loss"])
        found = cls(**document | {"data": GraphConfig(**document["data"]), "model": ModelConfig(**document["model"])})
        check_fields(found)
        return found


def read_json(text: bytes) -> Any:
    """A JSON document; NaN and infinities are none."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def built(known: ModelConfig, weights: Mapping[str, Tensor], given: nn.Module | None) -> nn.Module:
    """The model of a run, with its weights: a built-in one anew, otherwise the one that is given.

    Raises:
        RunError: It is not the model that these are weights of, or there is none.
    """
    if given is None and not known.built_in:
        shapes = ", ".join(f"{name} {size}" for name, size in list((known.shapes or {}).items())[:3])
        raise RunError(
            f"the run holds a model of your own ({shown(str(known))[1:-1]}{': ' * bool(shapes)}"
            f"{shown(shapes)[1:-1] if shapes else ''}); pass one as model="
        )
    if given is None:
        with torch.device("meta"):
            _check_shapes(_made(known), weights)
        given = _made(known)
        kinds = {value.dtype for value in weights.values() if value.is_floating_point()}
        given = given.to(kinds.pop()) if len(kinds) == 1 else given
    _check_shapes(given, weights)
    given.load_state_dict(weights)
    return given.eval()


def _made(known: ModelConfig) -> nn.Module:
    """A built-in model as a file describes it."""
    kind = MODELS.get(known.name)
    if kind is None or known.config is None:
        raise RunError(f"the run holds a model {shown(known.name)}, and this version has {', '.join(MODELS)}")
    parameters = inspect.signature(kind).parameters
    for name, value in known.config.items():
        kind_of = parameters[name].annotation if name in parameters else None
        if kind_of is None or not fits(value, kind_of) or (kind_of is int and value < 1):
            raise RunError(f"a {known.name} cannot have {shown(name)[1:-1]}={shown(value)}")
    share, steps = known.config.get("dropout", 0), known.config.get("steps", 1)
    if not (0 <= share < 1 and 1 <= steps <= MOST_STEPS):
        raise RunError(f"a {known.name} cannot have dropout={share} or steps={steps}")
    try:
        return kind(**known.config)
    except (RuntimeError, ValueError, TypeError, ZeroDivisionError, ModelError) as error:
        raise RunError(f"there is no {known.name} of such sizes: {error}") from error


def _check_shapes(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights of another model, before any is copied."""
    here, there = ({key: tuple(value.shape) for key, value in of.items()} for of in (model.state_dict(), weights))
    wrong = next((name for name in {**here, **there} if here.get(name) != there.get(name)), None)
    if wrong is not None:
        raise RunError(
            f"the weights do not fit the model: {shown(wrong)} is {there.get(wrong, 'missing')} there, and in "
            f"{type(model).__name__} {here.get(wrong, 'missing')}"
        )


def loss_of(known: Mapping[str, Any], given: Loss | None) -> Loss:
    """The loss of a run: a built-in one is known, any other has to be given."""
    loss = known_loss(known) if given is None else given
    same = loss is not None and (loss.settings == known or (set(known) == {"name"} and loss.name == known["name"]))
    if loss is None or not same:
        raise RunError(f"the run was trained with the loss {shown(dict(known))}; pass it as loss=")
    return loss


def _settings(name: Any) -> Any:
    """The settings of a loss that version 0.1 knew by its name."""
    known = {loss.name: loss.settings for loss in (cross_entropy, binary_cross_entropy, squared_error)}
    return known.get(name, {"name": name}) if isinstance(name, str) else name
