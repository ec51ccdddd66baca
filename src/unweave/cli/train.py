"""``unweave train``: train a built-in model and write a run."""

from pathlib import Path
from typing import Annotated

import typer

from unweave import models
from unweave.cli.options import (
    DataName,
    Device,
    Epochs,
    Json,
    LearningRate,
    ModelName,
    Root,
    Seed,
    WeightDecay,
)
from unweave.cli.output import print_json, progress_bar, reports_errors, say
from unweave.data import load
from unweave.errors import ModelError, RunError
from unweave.meter import find_device
from unweave.training import train as train_model

__all__ = ["train"]


@reports_errors
def train(
    data: DataName,
    model: ModelName,
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    seed: Seed = 0,
    epochs: Epochs = 100,
    lr: LearningRate = 0.01,
    weight_decay: WeightDecay = 1e-4,
    device: Device = "cpu",
    root: Root = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder when it exists.")] = False,
    json: Json = False,
) -> None:
    """Train a model and write a run."""
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists already; choose another folder, or pass --overwrite")
    if model not in models.MODELS:
        raise ModelError(f"unknown model {model!r}; known: {', '.join(models.MODELS)}")
    where = find_device(device)
    graph = load(data, seed=seed, root=root).to(where)
    module = models.MODELS[model](graph.num_features, graph.num_classes).to(where)
    with progress_bar("training") as progress:
        run = train_model(module, graph, seed=seed, epochs=epochs, lr=lr, weight_decay=weight_decay, progress=progress)
    run.save(out, overwrite=overwrite)
    if json:
        print_json({"run": str(out), "metrics": dict(run.metrics)})
    else:
        scores = f"test F1 {run.metrics['test_f1']:.3f}, validation F1 {run.metrics['val_f1']:.3f}"
        say(f"trained {model} on {data}: {scores}")
        say(f"wrote {out}")
