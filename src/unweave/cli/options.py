"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.names import DATA, MODELS

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from unweave.request import Request

__all__ = [
    "GRAPHS",
    "Certify",
    "Checkpoints",
    "DataName",
    "Device",
    "Epochs",
    "Forget",
    "Forgettable",
    "Json",
    "LearningRate",
    "MemoryMib",
    "ModelName",
    "RequestFile",
    "RequestSeed",
    "Requests",
    "Root",
    "Seed",
    "UntilEnough",
    "WeightDecay",
    "read_promise",
    "request_reader",
]

GRAPHS = f"{', '.join(DATA)}; demo:links and others so for the links of a graph"
DataName = Annotated[str, typer.Option("--data", help=f"{GRAPHS}; or your own, a .pt or .safetensors file.")]
ModelName = Annotated[str, typer.Option("--model", help=f"{', '.join(MODELS)}; or your own, package.module:factory.")]
Seed = Annotated[int, typer.Option(help="Decides the split, the initial weights and dropout.", min=0)]
UntilEnough = Annotated[int | None, typer.Option(help="Epochs; by default until validation says enough.", min=1)]
Epochs = Annotated[int, typer.Option(help="Full-batch epochs of Adam.", min=1)]
LearningRate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
WeightDecay = Annotated[float | None, typer.Option(help="Weight decay; 1e-4, or chosen on validation if forgettable.")]
Forgettable = Annotated[bool, typer.Option("--forgettable", help="Train to a minimum, so that the model can forget.")]
Checkpoints = Annotated[
    str,
    typer.Option(help="Shares of the training that replay may do again, e.g. 0.05,0.2; a state is kept for each."),
]
Certify = Annotated[
    str | None, typer.Option(help="EPS,DELTA: train for certified removal, e.g. 1,1e-5; for models linear in θ (sgc).")
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Root = Annotated[Path | None, typer.Option(help="Data folder; by default UNWEAVE_DATA, then the cache folder.")]
MemoryMib = Annotated[
    float | None, typer.Option("--memory-mib", help="MiB for the model's evaluations; done in blocks of nodes to fit.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
RequestFile = Annotated[Path | None, typer.Option("--request", help="Request, a .json or .csv file.")]
Requests = Annotated[
    Path | None, typer.Option("--request", help="Request, a .json or .csv file; or a .jsonl file, one request a line.")
]
Forget = Annotated[
    str | None, typer.Option("--forget", help="Random request, e.g. edges:0.05 or edges:0.05,nodes:0.1.")
]
RequestSeed = Annotated[int, typer.Option(help="Seed of the random request.", min=0)]


def read_promise(text: str | None) -> tuple[float, float] | None:
    """(ε, δ) as it is written on the command line."""
    if text is None:
        return None
    try:
        epsilon, delta = (float(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"--certify {text} must be two numbers, ε and δ, e.g. 1,1e-5") from error
    return epsilon, delta


def request_reader(request: Path | None, forget: str | None, seed: int) -> "Callable[[Data], Request]":
    """How to get the request once there is a graph; wrong usage unless exactly one way is named."""
    from unweave.graph.draw import draw
    from unweave.request import Request

    if (request is None) == (forget is None):
        raise typer.BadParameter("say what to forget: either --request FILE or --forget KIND:PROBABILITY")
    return lambda data: Request.read(request) if request else draw(str(forget), data, seed=seed)
