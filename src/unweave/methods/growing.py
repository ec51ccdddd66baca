"""A model with a row for every node gets rows for new nodes; one that a new node must not change is tried for that."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.errors import ModelError
from unweave.graph.alteration import Alteration
from unweave.graph.removal import Removal
from unweave.models import Shards
from unweave.objective.checks import rounding
from unweave.objective.objective import Forward
from unweave.objective.parameters import duplicate, trained
from unweave.tasks.task import Task

__all__ = ["grown_model", "new_rows"]

TRIED = 16
"""Ways to give a model new rows that are tried, where sizes leave several."""


def grown_model(
    model: nn.Module, data: Data, removal: Removal, forward: Forward, outputs: Tensor | None = None
) -> tuple[nn.Module, int]:
    """The model that a change is answered with, and the passes it took to find it.

    New nodes are blank at first: nothing that was trained on uses them, and their rows of an embedding table are zero,
    where weight decay leaves a row that nobody uses. So a minimum stays one, and the method moves the new rows with
    all others. What the model gives for every old node must stay as it is; otherwise the change is refused.

    Args:
        model: The module, in eval mode; where it has no table it is returned as it is.
        data: The graph as it was.
        removal: What became of it; a change that adds no node needs no look.
        forward: How the module is called.
        outputs: What it gives on the graph, where that is known.
    """
    if not isinstance(removal, Alteration) or not removal.added.numel():
        return model, 0
    if isinstance(model, Shards):
        raise ModelError("shards hold a part of the graph each, and no part for a new node; train them anew")
    passes, refused = 0, ModelError("")
    with torch.no_grad():
        if outputs is None:
            outputs, passes = forward(model, data), 1
        for candidate in _candidates(model, data, removal.before):
            passes += 1
            try:
                _look(candidate, removal.before, forward, outputs)
            except ModelError as error:
                refused = error
                continue
            return candidate, passes
    raise refused


def new_rows(before: nn.Module, after: nn.Module) -> dict[str, int]:
    """How many rows each table of a model got, by name."""
    sizes = {name: value.shape for name, value in before.named_parameters()}
    return {
        name: value.size(0) - sizes[name][0]
        for name, value in after.named_parameters()
        if name in sizes and value.shape != sizes[name]
    }


def _look(model: nn.Module, data: Data, forward: Forward, outputs: Tensor) -> None:
    """Refuse a model for which blank nodes change what it gives for all others."""
    try:
        after = forward(model, data)
    except Exception as error:  # a model of anyone's may have a row for every node
        raise ModelError(
            f"the model cannot be called with new nodes beside those it was trained on ({type(error).__name__}: "
            f"{error}); has it a row for every node? Then train it anew on the new graph. On the graph of a task "
            "(unweave.tasks) rows are added to an nn.Embedding, or a parameter, with one for each node of a type"
        ) from error
    if bool(((outputs - after[: outputs.size(0)]).abs() > rounding(outputs)).any()):
        raise ModelError(
            "the model's predictions change when a node without features and edges is put beside the graph, as it "
            "mixes all nodes (a normalisation or a pooling over the whole graph), or draws at random; for new nodes "
            "train it anew on the new graph"
        )


def _candidates(model: nn.Module, old: Data, new: Data) -> Iterator[nn.Module]:
    """The model with rows for new nodes, in every way that the sizes of its tables leave; embeddings come first."""
    if not (isinstance(old, Task) and isinstance(new, Task)):
        yield model
        return
    more = [(a.numel(), b.numel() - a.numel()) for a, b in zip(old.groups(), new.groups(), strict=True)]
    embeddings = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Embedding)}
    ways: dict[str, list[int]] = {}
    for name, value in model.named_parameters():
        found = sorted({n for size, n in more if value.dim() == 2 and size == value.size(0) and n}, reverse=True)
        if found:  # the width of a layer may be a number of nodes by accident
            ways[name] = [*found, 0]
    first = {name: sizes[:-1] if name in embeddings else [0] for name, sizes in ways.items()}
    tried = 0
    for options in (first, ways):
        for chosen in product(*options.values()):
            tried += 1
            if tried <= TRIED:
                yield _with_rows(model, dict(zip(ways, chosen, strict=True)), *more[0])


def _with_rows(model: nn.Module, rows: dict[str, int], nodes: int, new: int) -> nn.Module:
    """A copy whose parameters have so many more rows of zeros at their end."""
    if not any(rows.values()):
        return model
    grown = duplicate(model)
    known = dict(grown.named_parameters())
    larger = {
        id(known[name]): nn.Parameter(
            torch.cat([known[name].detach(), known[name].new_zeros(count, known[name].size(1))]),
            requires_grad=known[name].requires_grad,
        )
        for name, count in rows.items()
        if count
    }
    for part in grown.modules():
        for name, value in part.named_parameters(recurse=False):
            if id(value) in larger:
                setattr(part, name, larger[id(value)])
        if isinstance(part, nn.Embedding):
            part.num_embeddings = part.weight.size(0)
        if vars(part).get("num_nodes") == nodes:  # LightGCN's, ours and PyG's
            setattr(part, "num_nodes", nodes + new)  # noqa: B010
        config = vars(part).get("config")
        if isinstance(config, dict) and config.get("nodes") == nodes:  # what a built-in model is stored by
            setattr(part, "config", {**config, "nodes": nodes + new})  # noqa: B010
    assert list(trained(grown)) == list(trained(model))
    return grown
