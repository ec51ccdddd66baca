"""What a run's folder tells without its model, its graph or its loss: whoever made them need not be there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from unweave.curvature.prepared import Prepared
from unweave.errors import MethodError, ModelError, RequestError, RunError
from unweave.methods.ladder.calibration import Calibration
from unweave.methods.ladder.debt import Standing, standing_of
from unweave.run.folder import read_folder
from unweave.run.receipts import Receipts
from unweave.training.checkpoints import Checkpoint, read_checkpoints
from unweave.training.recipe import Recipe, Training

__all__ = ["Peeked", "peek"]

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Peeked:
    """A run as its files tell.

    Attributes:
        model: Name of the model, or of its class.
        parameters: How many numbers its weights are.
        data: Name of the data set, ``None`` for a graph of one's own.
        nodes: Of the graph, deleted ones included.
        training_nodes: Those that are left.
        training: How it was trained, as far as it is known.
        metrics: Its scores.
        receipts: Oldest first.
        prepared: What makes requests cheap.
        checkpoints: States of its training.
        calibration: What each way to forget was found to be worth.
    """

    model: str
    parameters: int
    data: str | None
    nodes: int
    training_nodes: int
    training: Training
    metrics: Mapping[str, float]
    receipts: Receipts
    prepared: Prepared | None
    checkpoints: tuple[Checkpoint, ...]
    calibration: Calibration | None

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
    """Read what a run's folder tells by itself; every file is checked by its digest, and nothing is executed."""
    opened = read_folder(Path(path))
    files = opened.files
    try:
        config: dict[str, Any] = json.loads(files["config.json"])
        split, metrics = json.loads(files["split.json"]), json.loads(files["metrics.json"])
        decays = load_tensors(files["decay.safetensors"]) if "decay.safetensors" in files else None
        return Peeked(
            model=str(config["model"]["name"]),
            parameters=sum(tensor.numel() for tensor in load_tensors(files["weights.safetensors"]).values()),
            data=config["data"]["name"],
            nodes=int(config["data"]["nodes"]),
            training_nodes=len(split["train"]),
            training=Training.from_dict(config["training"], decays),
            metrics={str(key): float(value) for key, value in metrics.items()},
            receipts=Receipts(opened.receipts),
            prepared=Prepared.from_files(files) if "prepared.json" in files else None,
            checkpoints=read_checkpoints(files) if "checkpoints.json" in files else (),
            calibration=Calibration.from_json(files["calibration.json"]) if "calibration.json" in files else None,
        )
    except (*MALFORMED, SafetensorError, RequestError, MethodError, ModelError) as error:
        raise RunError(f"{path} does not hold what a run holds: {error}") from error
