"""``unweave train``: train a model and write a run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.cli.names import MODELS
from unweave.cli.options import (
    GRAPHS,
    Certify,
    Checkpoints,
    Device,
    Forgettable,
    Json,
    LearningRate,
    MemoryMib,
    ModelName,
    Root,
    Seed,
    UntilEnough,
    WeightDecay,
    read_promise,
)
from unweave.cli.output import (
    certified_in_words,
    checkpoint_sizes,
    describe_checkpoints,
    launched,
    print_json,
    progress_bar,
    reports_errors,
    say,
)
from unweave.cli.own import graph_named, is_path
from unweave.errors import ModelError, RunError

__all__ = ["train"]


LAYERS = {"sgc": "steps"}
"""What a model calls its layers, where not so."""


@reports_errors
def train(
    data: Annotated[
        str, typer.Option("--data", help=f"{GRAPHS}; or your own: a .pt or .safetensors file, or a folder.")
    ],
    model: ModelName,
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    seed: Seed = 0,
    epochs: UntilEnough = None,
    lr: LearningRate = 0.01,
    weight_decay: WeightDecay = None,
    forgettable: Forgettable = False,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units of a built-in model.")] = None,
    activation: Annotated[str | None, typer.Option(help="relu, tanh, elu or silu.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers; of sign and sgc, steps of propagation.")] = None,
    checkpoints: Checkpoints = "",
    certify: Certify = None,
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder when it exists.")] = False,
    json: Json = False,
) -> None:
    """Train a model and write a run."""
    from unweave._core.cost import find_device
    from unweave.models import PAIRS, build
    from unweave.run.factory import made_by
    from unweave.run.train import short_of, train_run
    from unweave.tasks import Links
    from unweave.training.agreement import agrees, in_words

    if out.exists() and not overwrite:
        raise RunError(f"{out} exists already; choose another folder, or pass --overwrite")
    if model not in MODELS and not is_path(model):
        known = ", ".join(MODELS)
        raise ModelError(f"unknown model {model!r}; known: {known}, or package.module:factory for your own")
    shares = _read_shares(checkpoints)
    promise = read_promise(certify)
    where = find_device(device)
    graph = graph_named(data, seed, root).to(where)
    own = made_by(model) if is_path(model) else {}
    options: dict[str, Any] = {"hidden": hidden, "activation": activation, LAYERS.get(model, "layers"): layers}
    if own and any(value is not None for value in options.values()):
        raise ModelError("--hidden, --activation and --layers are for built-in models; your factory decides on its own")
    options |= {"forgettable": forgettable, "nodes": int(graph.train_mask.sum())}
    if isinstance(graph, Links) and not own and model not in PAIRS:
        raise ModelError(f"{data} has pairs for examples, which {model} does not score; use {' or '.join(PAIRS)}")
    module = own.get("model") or build(model, graph.num_features, graph.num_classes, x=graph.x, **options)
    how = {key: own[key] for key in ("loss", "forward") if key in own}
    decay = _decay_of(own, weight_decay)
    states = out.with_name(f".{out.name}.states") if launched() and shares else None  # for torchrun's restarts
    with progress_bar("training") as progress:
        run = train_run(
            module.to(where),
            graph,
            seed=seed,
            epochs=epochs,
            lr=lr,
            weight_decay=decay,
            forgettable=forgettable,
            checkpoints=shares,
            certify=promise,
            memory_mib=memory_mib,
            resume=states,
            progress=progress,
            **how,
        )
    run.save(out, overwrite=overwrite)
    short = short_of(run)
    if json:
        kept = checkpoint_sizes(run.checkpoints)
        print_json({"run": str(out), "metrics": dict(run.metrics), "checkpoints": kept, "warnings": list(short)})
    else:
        told = [f"{words} {run.metrics[key]:.3f}" for key, words in TOLD.items() if key in run.metrics]
        say(f"trained {model} on {data}: {', '.join(told)}")
        if promise is not None:
            say(f"certified: {certified_in_words(run)}")
        if run.prepared is not None:
            found = run.metrics
            reached = "at a minimum" if run.prepared.at_minimum else "not at a minimum"
            gradients = f"{found['gradient_norm_before_polish']:.3g} → {found['gradient_norm']:.3g}"
            same = run.prepared.agreement
            say(
                f"polished: gradient {gradients}, objective within {found['stationarity']:.2g} of its minimum, "
                + (
                    f"validation F1 {found['val_f1_before_polish']:.3f} → {found['val_f1']:.3f}, "
                    if "val_f1" in found
                    else ""
                )
                + f"weight decay {run.recipe.weight_decay}; {reached}"
            )
            if same is not None:
                say(f"agreement: {same:.3f}" + (f"; {in_words(same)}" if agrees(same) else ""))
        elif "training_ended" in run.metrics:
            ended = "" if run.metrics["training_ended"] else "; it was cut off while it still became better"
            say(f"epochs: {run.recipe.epochs}, the best of {run.metrics['epochs_looked_at']:.0f} on validation{ended}")
            if run.recipe.lr < lr:
                say(f"learning rate: {run.recipe.lr:.2g}; with {lr:g} training lost what it had learnt")
        for text in short:
            say(f"warning: {text}")
        if run.checkpoints:
            say(f"checkpoints: {describe_checkpoints(run.checkpoints, run.recipe.epochs)}")
        say(f"wrote {out}")


TOLD = {"test_f1": "test F1", "val_f1": "validation F1", "train_f1": "training F1"}
TOLD |= {f"test_{key}": key for key in ("auc", "hits@20", "recall@20", "ndcg@20")}
"""Scores that are told: those of the masks that there are, and of links and recommendations beside F1."""


def _decay_of(own: dict[str, Any], given: float | None) -> float | dict[str, float] | None:
    """The decay to train with, by option or by the factory; what training here would pass over is refused."""
    if "trainer" in own:
        raise ModelError(
            "the factory gives a trainer, and this command trains in its own way; train with yours and take the model "
            "over with unweave adopt, or let a factory without trainer= give it"
        )
    decay: float | dict[str, float] | None = own.get("weight_decay") if given is None else given
    if not isinstance(decay, float | int | dict | None):
        raise ModelError(
            f"the factory gives {type(decay).__name__} as weight_decay, which belongs to a model that is trained "
            "already; to train it here, say a number: --weight-decay 1e-3"
        )
    return decay


def _read_shares(text: str) -> list[float]:
    try:
        return [float(share) for share in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise typer.BadParameter(f"cannot read --checkpoints {text!r}; write shares as 0.05,0.2") from error
