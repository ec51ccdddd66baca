"""What a run's folder tells by itself: without its model, its graph or its loss, whoever made them.

``manifest.json`` holds the digest of every file, so a truncated or edited one is noticed. Who can write the folder can
write those digests as well, so what a file says is checked before it is used: kinds of values, sizes, and that parts
fit each other. Nothing in a run is ever executed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from unweave._core.document import to_json
from unweave._core.kinds import check_fields, fits
from unweave._core.text import printable
from unweave.curvature.prepared import Prepared
from unweave.errors import MethodError, ModelError, RequestError, RunError
from unweave.methods.ladder.calibration import Calibration
from unweave.methods.ladder.debt import Standing, standing_of
from unweave.run.config import Config, read_json
from unweave.run.manifest import leftovers, read_folder
from unweave.run.receipts import Receipts
from unweave.training.checkpoints import Checkpoint, read_checkpoints
from unweave.training.recipe import Recipe, Training

__all__ = ["MALFORMED", "Peeked", "check_prepared", "peek", "refusing"]

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What goes wrong where a document is read as what it is not."""


@dataclass(frozen=True)
class Peeked:
    """A run as its files tell.

    Attributes:
        path: The folder.
        digest: That of its manifest.
        config: Which model and graph, how trained, with which loss.
        weights: Parameters and buffers of the model, by name.
        training: How it was trained, as far as it is known.
        metrics: Its scores.
        receipts: Oldest first.
        prepared: What makes requests cheap.
        checkpoints: States of its training.
        calibration: What each way to forget was found to be worth.
        sizes: Bytes of its files, by name, without receipts.
        left: What a process that was killed left beside the folder, or one that writes it now has there; whoever writes
            next deletes it.
    """

    path: Path
    digest: str
    config: Config
    weights: Mapping[str, Tensor] = field(repr=False)
    training: Training
    metrics: Mapping[str, float]
    receipts: Receipts
    prepared: Prepared | None
    checkpoints: tuple[Checkpoint, ...]
    calibration: Calibration | None
    sizes: Mapping[str, int]
    left: tuple[Path, ...]
    split: bytes = field(repr=False)

    @property
    def model(self) -> str:
        """Name of the model, or of its class."""
        return self.config.model.name

    @property
    def parameters(self) -> int:
        """How many numbers its weights are."""
        return sum(tensor.numel() for tensor in self.weights.values())

    @property
    def data(self) -> str | None:
        """Name of the data set, ``None`` for a graph of one's own."""
        return self.config.data.name

    @property
    def nodes(self) -> int:
        """Of the graph, deleted ones included."""
        return self.config.data.nodes

    @cached_property
    def training_nodes(self) -> int:
        """Those that are left."""
        with refusing(self.path):
            split = read_json(self.split)
            if not fits(split["train"], list[int]):
                raise TypeError("split.json holds something else than nodes")
            return len(split["train"])

    @property
    def recipe(self) -> Recipe | None:
        """The recipe it was trained by, where it was by one."""
        return self.training.recipe

    @property
    def pending(self) -> int:
        """Deferred requests that are not verified."""
        return 0 if self.prepared is None or self.prepared.pending is None else self.prepared.pending.requests

    @property
    def standing(self) -> Standing:
        """What was asked of the model since it was trained, and how much of it is believed left."""
        return standing_of(self.receipts)


def peek(path: str | Path) -> Peeked:
    """Read what a run's folder tells by itself; every file is checked by its digest, and nothing is executed.

    Raises:
        RunError: It is no run, or a file is not what it should be.
    """
    path = Path(path)
    opened = read_folder(path)
    files = opened.files
    with refusing(path):
        config = Config.read(files["config.json"])
        return Peeked(
            path=path,
            digest=opened.digest,
            config=config,
            weights=load_tensors(files["weights.safetensors"]),
            training=_training(files, config),
            metrics=_metrics(files),
            receipts=Receipts(opened.receipts),
            prepared=_prepared(files),
            checkpoints=_checkpoints(files),
            calibration=_calibration(files),
            sizes={name: len(content) for name, content in files.items()},
            left=tuple(leftovers(path)),
            split=files["split.json"],
        )


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Whatever goes wrong where a file is read as what it is not, is the file's fault, and told as such."""
    try:
        yield
    except RunError as error:
        raise RunError(f"{path}: {error}") from error
    except (*MALFORMED, SafetensorError, MethodError, ModelError, RequestError) as error:
        raise RunError(f"{path} does not hold what a run holds: {printable(str(error))}") from error


def _metrics(files: Mapping[str, bytes]) -> dict[str, float]:
    metrics = read_json(files["metrics.json"])
    if not fits(metrics, dict[str, float]):
        raise TypeError("metrics.json holds something else than numbers by name")
    return dict(metrics)


def _training(files: Mapping[str, bytes], config: Config) -> Training:
    decays = load_tensors(files["decay.safetensors"]) if "decay.safetensors" in files else None
    training = Training.from_dict(config.training, decays)
    if training.recipe is not None:
        check_fields(training.recipe)
    return training


def _calibration(files: Mapping[str, bytes]) -> Calibration | None:
    if "calibration.json" not in files:
        return None
    found = Calibration.from_dict(read_json(files["calibration.json"]))
    check_fields(found)
    for deletion in found.deletions:
        if min(deletion.shape.shares) < 0 or (deletion.rungs and not (deletion.gap > 0 and deletion.shape.size > 0)):
            raise ValueError("calibration.json has a deletion of no size, or with nothing to close")
    return found


def _checkpoints(files: Mapping[str, bytes]) -> tuple[Checkpoint, ...]:
    found = read_checkpoints(files) if "checkpoints.json" in files else ()
    for state in found:
        check_fields(state)
    return found


def _prepared(files: Mapping[str, bytes]) -> Prepared | None:
    if "prepared.json" not in files:
        return None
    facts = read_json(files["prepared.json"])
    # Version 0.1 described the loss by its name alone; to defer requests such a state has to be made anew.
    if "mass" not in (facts.get("locality") or {"mass": 0}):
        files = {**files, "prepared.json": to_json(facts | {"locality": None})}
    found = Prepared.from_files(files)
    check_fields(found)
    check_prepared(found, found.gradient.numel())
    return found


def check_prepared(prepared: Prepared, size: int) -> None:
    """Refuse a prepared state that is not one of a model with so many parameters.

    Raises:
        ValueError: A tensor of it is of another size, or has no numbers.
    """
    curvature, rank = prepared.curvature, prepared.curvature.values.numel()
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "gradient": (prepared.gradient, (size,)),
        "slope": (prepared.slope, (size,)),
        "values": (curvature.values, (rank,)),
        "vectors": (curvature.vectors, (size, rank)),
    }
    if prepared.pending is not None:
        shapes |= {"pull": (prepared.pending.pull, (size,)), "step": (prepared.pending.step, (size,))}
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape or not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name!r} of the prepared state has not the numbers that belong to {size:,} parameters")
    if not rank or not bool((curvature.values > 0).all()) or min(prepared.edges, prepared.nodes, prepared.age) < 0:
        raise ValueError("the prepared state has no curvature, or sizes below 0")
