"""``unweave plan``: what training and forgetting on a graph will take, before anything of it is opened."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.cli.names import MODELS
from unweave.cli.options import Json
from unweave.cli.output import print_json, reports_errors, say
from unweave.errors import DataError

__all__ = ["plan"]

KINDS = ("gat", "gcn", "gin", "sage", "sgc", "sign")


@reports_errors
def plan(
    model: Annotated[str, typer.Option("--model", help=f"{', '.join(KINDS)}.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="A folder of a graph; its graph.json alone is read.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes, where there is no folder yet.")] = None,
    edges: Annotated[int | None, typer.Option(min=0, help="Stored edges, two for an undirected one.")] = None,
    features: Annotated[int | None, typer.Option(min=1, help="Features of a node.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes.")] = None,
    training: Annotated[float, typer.Option(help="Share of training nodes.", min=0, max=1)] = 0.81,
    held: Annotated[float, typer.Option(help="Share of validation and test nodes.", min=0, max=1)] = 0.19,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers; of sign and sgc, steps of propagation.")] = None,
    forgettable: Annotated[bool, typer.Option("--forgettable", help="Trained to a minimum.")] = False,
    memory_mib: Annotated[float, typer.Option("--memory-mib", help="MiB for the model's evaluations.")] = 1024.0,
    ranks: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    like: Annotated[Path | None, typer.Option(help="A run like it: passes are what that took.")] = None,
    json: Json = False,
) -> None:
    """Say what training and forgetting on a graph will take: memory, disk, network, passes and time."""
    from unweave._core.memory import check_memory
    from unweave.cli.train import LAYERS
    from unweave.models import build
    from unweave.run.forecast import Sizes, forecast, passes_of

    check_memory(memory_mib)
    if model not in KINDS:
        tasks = f"none for {model}: train it, and ask unweave forget RUN --dry-run what a request takes"
        what = tasks if model in MODELS else f"unknown model {model!r}"
        raise DataError(f"there are forecasts for {', '.join(KINDS)}; {what}")
    given = {"--nodes": nodes, "--edges": edges, "--features": features, "--classes": classes}
    if data is not None:
        if wrong := [name for name, value in given.items() if value is not None]:
            raise typer.BadParameter(f"{wrong[0]} is known from --data; leave one of them out")
        sizes = Sizes.of_folder(data)
    else:
        if nodes is None or edges is None or features is None or classes is None:
            missing = next(name for name, value in given.items() if value is None)
            raise typer.BadParameter(f"say how large the graph is: --data FOLDER, or also {missing}")
        sizes = Sizes(nodes, edges, features, classes, round(training * nodes), round(min(held, 1 - training) * nodes))
    options: dict[str, Any] = {"hidden": hidden, LAYERS.get(model, "layers"): layers, "forgettable": forgettable}
    module = build(model, sizes.features, sizes.classes, nodes=sizes.training, **options)
    passes = passes_of(sizes.classes, like, forgettable=forgettable)
    found = forecast(sizes, module, passes, memory_mib=memory_mib, ranks=ranks)
    if json:
        print_json(found.to_dict())
    else:
        say(str(found))
