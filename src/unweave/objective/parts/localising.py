"""Find out whether a model's outputs can be had from a part of the graph, and how: it is tried, not believed."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.memory import MIB, OverBudget, TensorBytes
from unweave.errors import BudgetError, ModelError, UnweaveError
from unweave.graph.edit import attributes
from unweave.graph.index import among
from unweave.graph.neighbourhood import BORDERS, halo
from unweave.graph.view import GraphView
from unweave.models.reach import Reach, find_reach
from unweave.objective.checks import check_deterministic, check_labels, check_logits, check_outputs, rounding
from unweave.objective.decay import decays_in
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward, Objective
from unweave.objective.parts.locality import NOTHING_LESS, Locality, counted, setting_of
from unweave.objective.running_stats import running

__all__ = ["find_locality", "find_locality_in_parts"]

TRIED = 6
"""Nodes whose output on their halo is compared with that on the whole graph."""

COMPANY = 3
"""Neighbours whose halos make up a part larger than a node's own."""


def find_locality(objective: Objective) -> Locality:
    """Try the halos of a few nodes against the whole graph.

    Args:
        objective: The model with its parameters, in eval mode, and its graph.
    """
    model, data, forward = objective.model.eval(), objective.data, objective.forward
    seen: list[Tensor] = []
    with torch.no_grad():
        reach = find_reach(model, lambda: seen.append(forward(model, data)), getattr(data, "readout", 0))
    objective.meter.passes += 1
    view = GraphView.of(data)
    found = Locality(
        reach=reach,
        border="none",
        setting=setting_of(model, objective.loss, decays_in(model, objective.decay), forward),
        graph=view,
        functions=(objective.loss, forward),
        **counted(data.y[data.train_mask], objective.loss),
    )
    tried = _tried(view)
    return _settle(found, model, forward, tried, seen[0][tried], rounding(seen[0]))


def find_locality_in_parts(
    model: nn.Module, view: GraphView, loss: Loss, decay: Tensor, forward: Forward, limit: float
) -> Locality:
    """The same without ever calling the model on the whole graph.

    A node's output on its halo is compared with that on a larger one, which it shares with some of its neighbours and
    with a node drawn at random.

    Args:
        model: The module, in eval mode.
        view: The graph.
        loss: Per-node loss.
        decay: Weight decay per parameter.
        forward: How the module is called.
        limit: Bytes that a call may hold.
    """
    tried, seen = _tried(view), list[Tensor]()
    with torch.no_grad():
        near = halo(view, tried[:1], Reach(1), "both").data(view)
        reach = find_reach(model, lambda: seen.append(_try(model, near, forward, limit)), getattr(near, "readout", 0))
        check_labels(view.base, loss, check_outputs(seen[0], near))
        check_logits(model, near, loss, forward, seen[0])
        trained = view.base.train_mask.nonzero().flatten()
        labels = view.base.y[trained[~among(trained, view.unlabelled)]]
        found = Locality(
            reach=reach,
            border="none",
            setting=setting_of(model, loss, decays_in(model, decay), forward),
            graph=view,
            functions=(loss, forward),
            **counted(labels, loss),
        )
        if reach.steps is None:
            return _settle(found, model, forward, tried, tried, tried)
        rows = torch.stack([_row(model, view, tried.roll(-i), reach, forward, limit) for i in range(tried.numel())])
    return _settle(found, model, forward, tried, rows, rounding(rows))


def _row(model: nn.Module, view: GraphView, tried: Tensor, reach: Reach, forward: Forward, limit: float) -> Tensor:
    """The output of the first of some nodes, in the company of neighbours and of the second."""
    _, _, senders = view.edges_at(tried[:1], into=reach.flow == "source_to_target")
    roots = list(dict.fromkeys([*tried[:2].tolist(), *senders[:COMPANY].tolist()]))
    part = halo(view, torch.tensor(roots, device=tried.device), reach, "both").data(view)
    outputs = check_outputs(_try(model, part, forward, limit), part)
    check_deterministic(outputs, _try(model, part, forward, limit))
    return outputs[0]


def _try(model: nn.Module, part: Data, forward: Forward, limit: float) -> Tensor:
    try:
        with TensorBytes(limit):
            return forward(model, part)
    except OverBudget:
        with TensorBytes() as counted:
            forward(model, part)
        raise BudgetError(
            f"memory_mib={limit / MIB:g} is too little to call the model on the neighbourhood of a few nodes, which "
            f"takes {counted.peak / MIB:.3g} MiB for {part.num_nodes} nodes and {part.num_edges} edges; allow more"
        ) from None
    except UnweaveError:
        raise
    except Exception as error:  # a model of anyone's may want the whole graph in any way
        raise ModelError(
            f"the model cannot be called on a part of the graph ({type(error).__name__}: {error}), so it cannot "
            f"be evaluated in parts; {ranks.without('memory_mib (--memory-mib)')}"
        ) from error


def _tried(view: GraphView) -> Tensor:
    """The node with the fewest neighbours, and some at random."""
    degree = view.index.into.start.diff()
    chosen = torch.randperm(view.size, generator=torch.Generator().manual_seed(0))[: TRIED - 1].to(degree.device)
    return torch.cat([degree.argmin().reshape(1), chosen])


def _settle(
    found: Locality, model: nn.Module, forward: Forward, tried: Tensor, wanted: Tensor, tolerance: Tensor
) -> Locality:
    """Find the border with which halos give some nodes the outputs wanted, or say why there is none."""
    reach = found.reach
    if reach.steps is None:
        return replace(found, refusal=f"how far its messages travel is not known ({reach.source})")
    if running(model):
        return replace(
            found,
            refusal=f"its layer {next(iter(running(model)))} keeps statistics of the whole graph (LayerNorm does not)",
        )
    reason = ""
    for border in BORDERS if reach.normalised and reach.steps else ("none",):
        reason = _differs(model, forward, tried, wanted, tolerance, replace(found, border=border))
        if not reason:
            return replace(found, border=border)
    return replace(found, refusal=reason)


def _differs(
    model: nn.Module, forward: Forward, tried: Tensor, wanted: Tensor, tolerance: Tensor, how: Locality
) -> str:
    """What is wrong with the outputs that halos give to a few nodes; empty where they are those wanted."""
    view = how.graph
    assert view is not None
    edge_attributes = set(attributes(view.base)[1]) - {"edge_index"}
    if how.border == "merged" and (
        edge_attributes - {"edge_weight"} or getattr(view.base.get("edge_weight"), "ndim", 1) != 1
    ):
        return "its edges carry more than a weight"
    parts = [halo(view, node.reshape(1), how.reach, how.border) for node in tried]
    if all(part.nodes.numel() == view.size for part in parts):
        return NOTHING_LESS
    if how.border == "merged" and not any(
        bool((view.index.into.degree[part.nodes[part.nodes.numel() - part.merged :]] > 1).any()) for part in parts
    ):
        return "there is nothing to draw together"
    for part, row in zip(parts, wanted, strict=True):
        try:
            with torch.no_grad():
                found = forward(model, part.data(view))[0]
        except Exception as error:  # a model of anyone's may want the whole graph in any way
            return f"it cannot be called on a part of the graph ({type(error).__name__}: {error})"
        if bool(((found - row).abs() > tolerance).any()):
            node = int(part.nodes[0])
            return f"the output of node {node} depends on more than the {how.reach.steps} hops of {how.reach.source}"
    return ""
