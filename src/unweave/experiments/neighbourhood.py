"""A picture of a neighbourhood: which nodes and edges did what to a quantity. Needs matplotlib."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unweave.experiments.style import canvas, save
from unweave.graph.region import hops_from
from unweave.inspection import Inspection

__all__ = ["plot_inspection"]

RAISES, LOWERS, GREY = "#1f5fa8", "#b04e14", "0.75"
MOST = 60
"""Nodes that can be told apart on one picture."""

NAMED = 12
"""Items of each kind that have their name beside them."""


def plot_inspection(found: Inspection, path: str | Path) -> Path:
    """Draw the nodes and edges that matter most to a quantity, as a graph.

    Around the node that is asked about, where one is; else around the ends of the edges that matter most. Orange: the
    quantity falls if it goes; blue: it rises. Width and size tell by how much.
    """
    nodes = _shown(found)
    place = {node: i for i, node in enumerate(nodes.tolist())}
    inside = torch.isin(found.edge_index, nodes).all(dim=0).nonzero().flatten()
    ends = found.edge_index[:, inside]
    local = np.array([[place[a], place[b]] for a, b in ends.t().tolist()], dtype=np.int64).reshape(-1, 2)
    edge_scores, node_scores = found.edges[inside].cpu().numpy(), found.nodes[nodes].cpu().numpy()
    where = _layout(len(nodes), local)
    figure = canvas(7.2, 6.0)
    axes = figure.add_subplot()
    largest = max(float(np.abs(edge_scores).max(initial=0)), 1e-30)
    for (a, b), score in zip(local, edge_scores, strict=True):
        share = abs(score) / largest
        axes.plot(
            *where[[a, b]].T, color=_colour(score) if share > 0.02 else GREY, lw=0.5 + 4.5 * share, zorder=1,
            solid_capstyle="round",
        )  # fmt: skip
    sizes = np.abs(node_scores) / max(float(np.abs(node_scores).max(initial=0)), 1e-30)
    colours = [_colour(score) if size > 0.02 else GREY for score, size in zip(node_scores, sizes, strict=True)]
    axes.scatter(where[:, 0], where[:, 1], s=25 + 320 * sizes, c=colours, edgecolors="white", linewidths=0.8, zorder=2)
    _name(axes, found, nodes, where, node_scores)
    for i in np.argsort(-np.abs(edge_scores))[: NAMED // 2]:
        x, y = where[local[i]].mean(axis=0)
        axes.text(x, y, f"{edge_scores[i]:+.2g}", size=7, color="0.25", ha="center", va="center", zorder=4)
    axes.set_axis_off()
    axes.margins(0.08)
    unit = f" {found.subject.quantity.unit}" if found.subject.quantity.unit else ""
    figure.suptitle(
        f"{found.title}: {found.value:.4g}{unit}\norange: falls if it goes; blue: rises", size=10, x=0.01, ha="left"
    )
    return save(figure, Path(path))


def _colour(score: float) -> str:
    return LOWERS if score < 0 else RAISES


def _name(
    axes: object, found: Inspection, nodes: Tensor, where: NDArray[np.float64], scores: NDArray[np.float64]
) -> None:
    """Write the numbers of the nodes that matter beside them, and a ring around the one that is asked about."""
    centre = found.subject.quantity.node
    for i, node in enumerate(nodes.tolist()):
        if node == centre:
            axes.scatter(*where[i], s=420, facecolors="none", edgecolors="black", linewidths=1.4, zorder=3)  # type: ignore[attr-defined]
    named = {int(i) for i in np.argsort(-np.abs(scores))[:NAMED]}
    named |= {i for i, node in enumerate(nodes.tolist()) if node == centre}
    for i in named:
        axes.annotate(str(int(nodes[i])), where[i], xytext=(4, 4), textcoords="offset points", size=8, zorder=5)  # type: ignore[attr-defined]


def _shown(found: Inspection) -> Tensor:
    """The nodes to draw: near the node that is asked about, or near the edges that matter most; the strongest first."""
    data, centre = found.subject.objective.data, found.subject.quantity.node
    start = torch.zeros(data.num_nodes, dtype=torch.bool, device=data.x.device)
    if centre is not None:
        start[centre] = True
    else:
        start[found.edge_index[:, found.edges.abs().argsort(descending=True)[: NAMED // 2]].flatten()] = True
    hops = hops_from(data, start, "source_to_target")
    near = ((hops >= 0) & (hops <= 2)).nonzero().flatten()
    rank = found.nodes[near].abs() / max(float(found.nodes.abs().max()), 1e-30) - hops[near]
    return near[rank.argsort(descending=True, stable=True)][:MOST].sort().values


def _layout(size: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Places of nodes by springs and repulsion (Fruchterman and Reingold, 1991)."""
    draw = np.random.default_rng(0)
    where = draw.standard_normal((size, 2))
    wide = 1 / np.sqrt(max(size, 1))
    for step in range(200):
        apart = where[:, None] - where[None]
        far = np.maximum(np.linalg.norm(apart, axis=-1), 1e-3)
        force = (apart * (wide**2 / far**2)[..., None]).sum(axis=1)
        if edges.size:
            a, b = edges.T
            pull = (where[a] - where[b]) * (np.linalg.norm(where[a] - where[b], axis=-1) / wide)[:, None]
            np.add.at(force, a, -pull)
            np.add.at(force, b, pull)
        force -= 0.02 * where
        length = np.maximum(np.linalg.norm(force, axis=-1, keepdims=True), 1e-9)
        where = where + force / length * np.minimum(length, 0.1 * (1 - step / 200))
    return where
