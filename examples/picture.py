"""Draw what happens to a graph and to a model when something is forgotten. Usage: python picture.py [FILE [EPOCHS]]."""

import sys

import matplotlib as mpl
import networkx as nx
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import Meter
from unweave.graph.draw import draw
from unweave.graph.region import influenced_region
from unweave.graph.removal import remove
from unweave.models.reach import Reach
from unweave.objective.decay import decay_vector
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten

GONE, FELT, CALM = "#c8102e", ("#f08a24", "#f9cf7a"), "#9db8d2"
CENTRE = 27
"""A node of the demo graph with a neighbourhood of a size that can be drawn."""


def draw_graph(axes: Axes, data: Data, after: bool) -> None:
    """The neighbourhood of a deleted node, coloured by how many steps away its going is felt."""
    removal = remove(data, uw.Request(nodes=[CENTRE]))
    whole, left = (nx.Graph(graph.edge_index.t().tolist()) for graph in (data, removal.data))
    near = nx.ego_graph(whole, CENTRE, radius=3)
    place = nx.kamada_kawai_layout(near)
    first, second = (influenced_region(data, removal, Reach(steps)).mask for steps in (0, 1))
    colours = {n: CALM for n in near.nodes if n != CENTRE}
    if after:
        colours = {n: FELT[0] if first[n] else FELT[1] if second[n] else CALM for n in colours}
    kept = [edge for edge in near.edges if not after or left.has_edge(*edge)]
    cut = [edge for edge in near.edges if edge not in set(kept)]
    nx.draw_networkx_edges(near, place, ax=axes, edgelist=kept, edge_color="0.65")
    nx.draw_networkx_edges(near, place, ax=axes, edgelist=cut, edge_color=GONE, style=":")
    style = {"ax": axes, "node_size": 70, "edgecolors": "0.35", "linewidths": 0.8}
    nx.draw_networkx_nodes(near, place, nodelist=list(colours), node_color=list(colours.values()), **style)
    style |= {"node_size": 110, "edgecolors": GONE, "linewidths": 1.8}
    nx.draw_networkx_nodes(near, place, nodelist=[CENTRE], node_color="white" if after else GONE, **style)
    axes.set_axis_off()


def plane(points: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Two orthonormal directions through three points."""
    first = (points[2] - points[0]) / (points[2] - points[0]).norm()
    rest = points[1] - points[0]
    rest = rest - (rest @ first) * first
    return first, rest / rest.norm()


def draw_model(axes: Axes, epochs: int) -> None:
    """The remaining objective on the plane through the trained, the forgetting and the retrained parameters."""
    data = uw.load("demo")
    data.x = data.x.double()
    decay, lr = 2e-3, 0.05
    model = uw.models.SGC(data.num_features, data.num_classes).double()
    uw.train(model, data, weight_decay=decay, epochs=epochs, lr=lr)
    request = draw("edges:0.05", data)
    done = uw.unlearn(model, data, request, weight_decay=decay, damping=0.0)
    again = uw.unlearn(model, data, request, "retrain", weight_decay=decay, epochs=epochs, lr=lr)
    points = [flatten(m) for m in (model, done.model, again.model)]
    first, second = plane(points)
    spots = np.array([[float((p - points[0]) @ d) for d in (first, second)] for p in points])
    size = float(spots[2, 0])
    meter = Meter(torch.device("cpu"))
    objective = Objective(model, done.data, uw.losses.cross_entropy, decay_vector(model, decay), call, meter)
    horizontal, vertical = np.linspace(-0.35, 1.35, 29) * size, np.linspace(-0.5, 0.5, 21) * size
    heights = [[objective.at(points[0] + a * first + b * second).value for a in horizontal] for b in vertical]
    above = np.array(heights) - objective.at(points[2]).value
    axes.contourf(horizontal, vertical, np.sqrt(np.maximum(above, 0)), levels=14, cmap="Blues_r", alpha=0.85)
    axes.annotate("", xy=spots[1], xytext=spots[0], arrowprops={"arrowstyle": "-|>", "color": GONE, "lw": 2})
    axes.plot(*spots[0], "o", color="black")
    axes.plot(*spots[1], "o", color=GONE)
    axes.plot(*spots[2], "*", color="gold", ms=15, mec="black")
    labels = (("trained on everything", (-8, -20)), ("after one GIF step", (-80, 14)), ("retrained", (-25, -26)))
    for spot, (label, shift) in zip(spots, labels, strict=True):
        axes.annotate(label, spot, xytext=shift, textcoords="offset points", size=9, weight="bold")
    axes.set(xticks=[], yticks=[], xlabel="parameters (SGC, 5 % of the edges forgotten)")


def main(path: str, epochs: int = 1500) -> None:
    mpl.rcParams["svg.hashsalt"] = "unweave"
    data = uw.load("demo")
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    one, two, three = figure.subplots(1, 3)
    draw_graph(one, data, after=False)
    one.set_title("1  A node asks to be forgotten", size=11, loc="left")
    draw_graph(two, data, after=True)
    two.set_title(
        "2  It is cut out; its neighbours feel it,\n     and their neighbours through them", size=11, loc="left"
    )
    draw_model(three, epochs)
    three.set_title("3  The model moves to where\n     retraining would have ended", size=11, loc="left")
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.endswith("svg") else None)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "forgetting.png", *map(int, sys.argv[2:3]))
