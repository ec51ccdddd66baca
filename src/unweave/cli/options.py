"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.data import NAMES
from unweave.models import MODELS

__all__ = [
    "DataName",
    "Device",
    "Epochs",
    "Forgettable",
    "Json",
    "LearningRate",
    "ModelName",
    "Root",
    "Seed",
    "WeightDecay",
]

DataName = Annotated[str, typer.Option("--data", help=f"Data set: {', '.join(NAMES)}.")]
ModelName = Annotated[str, typer.Option("--model", help=f"Model: {', '.join(MODELS)}.")]
Seed = Annotated[int, typer.Option(help="Decides the split, the initial weights and dropout.", min=0)]
Epochs = Annotated[int, typer.Option(help="Full-batch epochs of Adam.", min=1)]
LearningRate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
WeightDecay = Annotated[float | None, typer.Option(help="Weight decay; 1e-4, or chosen on validation if forgettable.")]
Forgettable = Annotated[bool, typer.Option("--forgettable", help="Train to a minimum, so that the model can forget.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Root = Annotated[Path | None, typer.Option(help="Data folder; by default UNWEAVE_DATA, then the cache folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
