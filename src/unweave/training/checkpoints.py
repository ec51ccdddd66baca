"""States that training can be resumed from: weights, optimiser and random numbers, in memory and in a run's folder."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.document import to_json
from unweave.errors import MethodError, ModelError

__all__ = [
    "FILES",
    "Checkpoint",
    "Resumable",
    "Trainer",
    "in_order",
    "read_checkpoints",
    "resume_at",
    "train_through",
    "write_checkpoints",
]

FILES = ("checkpoints.safetensors", "checkpoints.json")


class Resumable(Protocol):
    """What a training loop needs beside the model: torch's optimisers and schedules are, and so may be your own."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values (numbers, text, ``None``), in dictionaries and lists."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Take such a state over."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a training after some epochs. It remembers all that was trained on until then.

    Attributes:
        epoch: Epochs done.
        model: Parameters and buffers by name. All tensors are on the CPU, wherever training ran.
        parts: Name of the class and state of the optimiser, and of whatever else the loop has.
        random: States of torch's generators: ``cpu``, and ``cuda`` where the model was there.
        gradient: What pulled the parameters on from here, ∇(L/n) in eval mode, where that was computed
            (:func:`unweave.trace_path`).
    """

    epoch: int
    model: Mapping[str, Tensor] = field(repr=False)
    parts: tuple[tuple[str, Any], ...] = field(repr=False)
    random: Mapping[str, Tensor] = field(repr=False)
    gradient: Tensor | None = field(default=None, repr=False)

    @classmethod
    def take(cls, epoch: int, model: nn.Module, *parts: Resumable) -> "Checkpoint":
        """The state after ``epoch`` epochs, as a copy.

        Args:
            epoch: Epochs done.
            model: The module.
            parts: The optimiser, and what else changes from epoch to epoch: a schedule, a sampler.
        """
        if type(epoch) is not int or epoch < 0:
            raise ModelError(f"epoch must be a whole number of at least 0, got {epoch!r}")
        random = {"cpu": torch.get_rng_state()}
        if (device := _device(model)).type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(device)
        return cls(
            epoch=epoch,
            model={name: _copied(value, name) for name, value in _tensors(model).items()},
            parts=tuple((_name(part), _copied(part.state_dict(), _name(part))) for part in parts),
            random=random,
        )

    def restore(self, model: nn.Module, *parts: Resumable) -> None:
        """Put model, parts and torch's generators into this state.

        On a device where the checkpoint was not taken, that device's generator stays as it is.

        Args:
            model: A module of the same architecture.
            parts: As they were given to :meth:`take`, built anew for this module.

        Raises:
            ModelError: The state is that of another model, or of another optimiser.
        """
        self._check(model, parts)
        with torch.no_grad():
            for name, value in _tensors(model).items():
                value.copy_(self.model[name])
        for part, (name, state) in zip(parts, self.parts, strict=True):
            try:
                part.load_state_dict(_copied(state, name))  # optimisers write into what they are given
            except (ValueError, KeyError, TypeError, RuntimeError) as error:
                raise ModelError(f"the checkpoint of epoch {self.epoch} does not fit this {name}: {error}") from error
        try:
            torch.set_rng_state(self.random["cpu"])
            if (device := _device(model)).type == "cuda" and "cuda" in self.random:
                torch.cuda.set_rng_state(self.random["cuda"], device)
        except (RuntimeError, TypeError) as error:
            raise ModelError(f"this version of torch cannot take the checkpoint's random state: {error}") from error

    def _check(self, model: nn.Module, parts: tuple[Resumable, ...]) -> None:
        self.check_model(model)
        had, got = [name for name, _ in self.parts], [_name(part) for part in parts]
        if had != got:
            raise ModelError(
                f"the checkpoint of epoch {self.epoch} was taken with {', '.join(had) or 'a model alone'} and is to be "
                f"restored into {', '.join(got) or 'a model alone'}; use the trainer= that made it"
            )

    def check_model(self, model: nn.Module) -> None:
        """Raise where the state is that of another model."""
        here, there = (
            {name: f"{value.dtype} {tuple(value.shape)}".removeprefix("torch.") for name, value in tensors.items()}
            for tensors in (_tensors(model), self.model)
        )
        wrong = next((name for name in {**here, **there} if here.get(name) != there.get(name)), None)
        if wrong is not None:
            raise ModelError(
                f"the checkpoint of epoch {self.epoch} is that of another model: {wrong!r} is "
                f"{there.get(wrong, 'missing')} there and {here.get(wrong, 'missing')} here"
            )

    @property
    def device(self) -> str:
        """Where it was taken, ``cpu`` or ``cuda``: whose random numbers dropout draws."""
        return "cuda" if "cuda" in self.random else "cpu"

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return _bytes([self.model, self.random, [state for _, state in self.parts], self.gradient])


class Trainer(Protocol):
    """A function that trains a model in place, from a state to a state.

    Calling it once to the end and calling it twice, with a stop between, must give the same model; that is what the
    :class:`Checkpoint` is for. It draws random numbers from torch's generators only. With defaults for ``start`` and
    ``until`` it also is the ``trainer=`` of ``retrain``, which keeps new checkpoints where there were some.
    """

    def __call__(self, model: nn.Module, data: Data, start: Checkpoint | None, until: int, /) -> Checkpoint:
        """Train, and return ``Checkpoint.take(until, model, optimiser, …)``.

        Args:
            model: Its weights have been erased: restore those of ``start``, or draw new ones where there is none.
            data: The graph to train on.
            start: The state to go on from, by ``start.restore(model, optimiser, …)``; ``None`` for a new training.
            until: Stop when so many epochs have been done, those of ``start`` counted.
        """


def resume_at(share: float, epochs: int) -> int:
    """The epoch after which the last ``share`` of a training begins; at least one epoch is left."""
    return epochs - max(1, round(share * epochs))


def train_through(
    trainer: Trainer, model: nn.Module, data: Data, start: Checkpoint | None, stops: Iterable[int]
) -> list[Checkpoint]:
    """Train a model in place from a state through some epochs, the last of which is the end; the states there."""
    found: list[Checkpoint] = []
    for stop in stops:
        state = trainer(model, data, found[-1] if found else start, stop)
        if not isinstance(state, Checkpoint) or state.epoch != stop:
            got = f"that of epoch {state.epoch}" if isinstance(state, Checkpoint) else type(state).__name__
            raise MethodError(
                f"trainer= was asked to train until epoch {stop} and returned {got}; it must return "
                "Checkpoint.take(until, model, optimiser)"
            )
        found.append(state)
    return found


def in_order(checkpoints: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
    """The checkpoints by epoch; refused where two have the same, or where something else is among them."""
    strange = [c for c in checkpoints if not isinstance(c, Checkpoint)] if isinstance(checkpoints, Sequence) else [0]
    if strange:
        raise MethodError("checkpoints must be a sequence of unweave.Checkpoint, as in run.checkpoints")
    if len({c.epoch for c in checkpoints}) < len(checkpoints):
        raise MethodError(f"two checkpoints are of the same epoch: {sorted(c.epoch for c in checkpoints)}")
    return tuple(sorted(checkpoints, key=lambda c: c.epoch))


def write_checkpoints(checkpoints: Sequence[Checkpoint]) -> dict[str, bytes]:
    """Checkpoints as two files of a run."""
    tensors: dict[str, Tensor] = {}
    documents = []
    for state in in_order(checkpoints):
        here = str(state.epoch)
        documents.append(
            {
                "epoch": state.epoch,
                "model": _encode(dict(state.model), f"{here}/model", tensors),
                "parts": [[name, _encode(value, f"{here}/{name}", tensors)] for name, value in state.parts],
                "random": _encode(dict(state.random), f"{here}/random", tensors),
                "gradient": _encode(state.gradient, f"{here}/gradient", tensors),
            }
        )
    return {FILES[0]: save(tensors), FILES[1]: to_json(documents)}


def read_checkpoints(files: Mapping[str, bytes]) -> tuple[Checkpoint, ...]:
    """Read what :func:`write_checkpoints` wrote."""
    tensors = load(files[FILES[0]])
    found = []
    for document in json.loads(files[FILES[1]]):
        parts = tuple((str(name), _decode(value, tensors)) for name, value in document["parts"])
        model, random, gradient = (_decode(document.get(key), tensors) for key in ("model", "random", "gradient"))
        held = [*model.values(), random["cpu"], *([] if gradient is None else [gradient])]
        if not isinstance(document["epoch"], int) or not all(isinstance(value, Tensor) for value in held):
            raise ValueError("a checkpoint is not one")
        found.append(Checkpoint(document["epoch"], model, parts, random, gradient))
    return in_order(found)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _name(part: Resumable) -> str:
    return type(part).__name__


def _copied(value: Any, where: str) -> Any:
    """Tensors and plain values, however nested, as a copy on the CPU."""
    if isinstance(value, Tensor):
        copied = value.detach().to("cpu", copy=True)
        return copied.contiguous() if copied.layout == torch.strided else copied
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return {key: _copied(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_copied(item, where) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ModelError(
        f"{where} is of type {type(value).__name__}; a checkpoint can hold tensors, numbers, text and None only"
    )


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(_bytes, items))


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A state as JSON, its tensors put aside under their names."""
    if isinstance(value, Tensor):
        while name in tensors:
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):  # as pairs: the keys of an optimiser are numbers
        return {"dict": [[key, _encode(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(item, f"{name}/{number}", tensors) for number, item in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _decode(item, tensors) for key, item in content}
    if kind in ("list", "tuple"):
        items = [_decode(item, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "float":
        return float(content)
    raise ValueError(f"unknown kind {kind!r} in a checkpoint")
