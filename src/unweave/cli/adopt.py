"""``unweave adopt``: make a run of a model that was trained elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Json
from unweave.cli.output import print_json, reports_errors, say
from unweave.errors import ModelError, RunError

__all__ = ["adopt"]


@reports_errors
def adopt(
    model: Annotated[
        str, typer.Option("--model", help="package.module:factory, which gives the trained module (or a dict of it).")
    ],
    data: Annotated[
        Path, typer.Option("--data", help="The graph: a .pt or .safetensors file of tensors, or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    weights: Annotated[
        Path | None, typer.Option(help="Weights to load into the module first, a .safetensors file.")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="What it was trained with, 0 for none; not needed where the factory says it.")
    ] = None,
    trainer: Annotated[
        str | None, typer.Option(help="How it was trained, package.module:function; for what has to train it again.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a run of a model that was trained elsewhere, so that it can forget.

    The module is checked on the graph; its parameters are not changed.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from unweave.curvature.preparation import check_calls
    from unweave.datasets.own import read_graph
    from unweave.objective.checks import check_data, check_model
    from unweave.objective.scores import score
    from unweave.run.factory import made_by
    from unweave.run.run import Run

    if out.exists():
        raise RunError(f"{out} exists already; choose another folder")
    parts = made_by(model)
    given = {"weight_decay": weight_decay, "trainer": trainer}
    parts |= {key: value for key, value in given.items() if value is not None}
    if "weight_decay" not in parts:
        raise ModelError(
            "say what the model was trained with: --weight-decay 5e-4, or 0 for none; AdamW's decay is no such number, "
            "so let the factory give its optimiser as weight_decay"
        )
    module = parts.pop("model")
    if weights is not None:
        if weights.suffix != ".safetensors":
            raise ModelError(f"{weights} must be a .safetensors file; write one by safetensors.torch.save_file")
        try:
            module.load_state_dict(load_file(weights))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise ModelError(f"the weights {weights} cannot be loaded into the module: {error}") from error
    run = Run(module.eval(), read_graph(data), **parts)
    check_data(run.data)
    check_model(module, run.data)
    check_calls(module, run.data, run.loss, run.forward)
    run = run.replace(metrics=score(module, run.data, run.loss, run.forward))
    run.save(out)
    if json:
        print_json({"run": str(out), "metrics": dict(run.metrics)})
        return
    scores = ", ".join(f"{key.replace('_', ' ')} {value:.3f}" for key, value in run.metrics.items())
    say(f"{'Adopted':<11}{type(module).__name__}, {sum(p.numel() for p in module.parameters()):,} parameters; {scores}")
    say(f"{'Written':<11}{out}; next: unweave prepare {out} --model {model} --data {data}")
