"""What kind of request and how large a one: all that is known of it before anything is computed."""

from collections.abc import Iterable
from dataclasses import dataclass

from unweave.request import KINDS, Request

__all__ = ["Shape", "shape_of"]


@dataclass(frozen=True)
class Shape:
    """The shares of a graph that a request takes.

    Attributes:
        nodes: Nodes named, as a share of the training nodes.
        edges: Edges named, as a share of the edges.
        features: Nodes whose features are named, as a share of the training nodes.
        labels: Labels named, as a share of the training nodes.
    """

    nodes: float = 0.0
    edges: float = 0.0
    features: float = 0.0
    labels: float = 0.0

    @property
    def shares(self) -> tuple[float, ...]:
        """In the order of the kinds."""
        return tuple(getattr(self, kind) for kind in KINDS)

    @property
    def size(self) -> float:
        """The shares together."""
        return sum(self.shares)

    @staticmethod
    def total(shapes: Iterable["Shape"]) -> "Shape":
        """Several requests as one."""
        return Shape(*(sum(column) for column in zip((0.0,) * len(KINDS), *(s.shares for s in shapes), strict=True)))


def shape_of(request: Request, *, stored_edges: int, undirected: bool, training_nodes: int) -> Shape:
    """The shape of a request on a graph of so many stored edges and training nodes."""
    edges, nodes = max(stored_edges // (2 if undirected else 1), 1), max(training_nodes, 1)
    return Shape(
        nodes=len(request.nodes) / nodes,
        edges=len(request.edges) / edges,
        features=len(request.features) / nodes,
        labels=len(request.labels) / nodes,
    )
