"""The objective of a trained module within a memory budget, checked without ever looking at the whole graph.

``memory_mib`` bounds what evaluating the model and its derivatives holds at a time. Beside it there are the graph, an
index of its edges, the outputs of all nodes and vectors as long as the parameters. Of the features only the rows of a
block are read, so ``data.x`` may be a memory map; of a graph in a folder (:func:`unweave.load_folder`) all of it is.
"""

from collections.abc import Hashable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.memory import check_memory
from unweave.graph.view import GraphView, as_view
from unweave.objective.checks import check_data, check_model
from unweave.objective.decay import WeightDecay, decay_vector
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward, Objective
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.localising import find_locality_in_parts
from unweave.objective.parts.locality import Locality
from unweave.objective.parts.rows import Rows, locality_by_rows, rows_for

__all__ = ["blocks_on", "bounded_objective", "objective_within", "predict"]


def bounded_objective(
    model: nn.Module,
    graph: Data | GraphView,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    memory_mib: float,
    sizes: dict[str, int] | None = None,
) -> Blocks:
    """The objective of a trained module in blocks, once the module and the graph have passed every check."""
    limit = check_memory(memory_mib)
    base = graph.base if isinstance(graph, GraphView) else graph
    check_data(base)
    check_model(model, base)
    view = as_view(graph)
    decay = decay_vector(model, weight_decay)
    if rows_for(model, view, forward) is not None:
        locality = locality_by_rows(model.eval(), view, loss, decay, limit)
    else:
        locality = find_locality_in_parts(model.eval(), view, loss, decay, forward, limit)
    return blocks_on(model, locality, loss, decay, forward, meter, memory_mib, sizes)


def blocks_on(
    model: nn.Module,
    locality: Locality,
    loss: Loss,
    decay: Tensor,
    forward: Forward,
    meter: Meter,
    memory_mib: float,
    sizes: dict[str, int] | None = None,
) -> Blocks:
    """The objective in blocks where how that is done is known; on rows alone where the model takes no more."""
    by_rows = locality.graph is not None and rows_for(model, locality.graph, forward) is not None
    return (Rows if by_rows else Blocks)(model, locality, loss, decay, forward, meter, memory_mib, sizes)


def objective_within(
    model: nn.Module,
    graph: Data | GraphView,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    meter: Meter,
    memory_mib: float | None,
) -> Objective:
    """The objective of a module, in blocks where memory is bounded or ranks share the work."""
    memory_mib = ranks.budget(memory_mib)
    if memory_mib is not None:
        return bounded_objective(model, graph, weight_decay, loss, forward, meter, memory_mib)
    data = graph.data if isinstance(graph, GraphView) else graph
    return Objective(model, data, loss, decay_vector(model, weight_decay), forward, meter)


def predict(
    model: nn.Module, graph: Data | GraphView, forward: Forward, loss: Loss, memory_mib: float | None
) -> Tensor:
    """Outputs of all nodes of a trained module in eval mode, in blocks where memory is bounded or there are ranks."""
    memory_mib = ranks.budget(memory_mib)
    if memory_mib is not None:
        view = as_view(graph)
        parameters = tuple((p.shape, p.dtype) for p in model.parameters())
        sizes = _sizes_of(str(type(model)), parameters, view.size, view.stored_edges, memory_mib)
        how = (0.0, loss, forward, Meter(view.base.x.device), memory_mib, sizes)
        return bounded_objective(model, view, *how).predict(model)
    data = graph.data if isinstance(graph, GraphView) else graph
    model.eval()
    with torch.no_grad():
        return forward(model, data)


@lru_cache(maxsize=64)
def _sizes_of(*held: Hashable) -> dict[str, int]:
    """Block sizes, found once for models and graphs that hold as much; what a receipt counts is not among these."""
    return {}
