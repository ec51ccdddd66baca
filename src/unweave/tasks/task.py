"""The one interface between a task and the rest: a plain graph that knows how a model is called on it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.changes import Change
from unweave.errors import RequestError
from unweave.request import Request
from unweave.tasks.growth import Growth

__all__ = ["Task"]


class Task(Data):  # type: ignore[misc]
    """A plain graph whose nodes and edges are of several types, and whose examples may be nodes of their own.

    ``x``, ``edge_index``, ``y`` and the masks are what they are of any graph, with a row for every node of every type;
    ``node_type`` and ``edge_type`` tell them apart. What depends on the task is asked by the methods below, and all of
    it is read off these tensors, so that it holds for the graph after a request, and for a part of it.

    A subclass has no constructor of its own, as PyG makes copies by it; it is made by a class method ``of``.
    """

    readout = 0
    """Steps along edges from what the layers of a model give to the outputs of an example."""

    metric = "f1"
    """What a model of the task is judged by, one of its scores."""

    lasting = frozenset({"node_type"})
    """Attributes of nodes that a deletion leaves as they are: they number the others of a type."""

    flat = False
    """Whether the curvature has no few directions that stand out, as that of a table with a row for every node: steps
    promise something for long, and end at a share of training (``TUNING.step.most``) whatever they promise."""

    def call(self, model: nn.Module) -> Tensor:
        """The model's outputs: one row for every node of the plain graph, zero where that is no example."""
        raise NotImplementedError

    def complete(self, request: Request) -> Request:
        """A request with all that goes along with what it names, such as the examples of a user.

        Raises:
            RequestError: It names what has no meaning by itself.
        """
        return request

    def growth(self, change: Change) -> Growth:
        """What a change adds to the plain graph, with all that goes along, such as the example of an interaction.

        Raises:
            RequestError: It adds or corrects what there is not in such a graph.
        """
        raise RequestError(f"nothing can be added to a {type(self).__name__}, or corrected in it; train anew")

    def own_edges(self) -> Tensor | None:
        """Mask of the stored edges that are the user's; ``None`` where all are."""
        return None

    def scores(self, model: nn.Module) -> Mapping[str, float]:
        """Scores of a model that its outputs of the examples do not tell; reads the test examples."""
        return {}

    def tables(self, model: nn.Module) -> Mapping[str, Sequence[Tensor]]:
        """Parameters with as many rows as there are nodes, of all or of one type: which nodes these may be, by name."""
        groups = self.groups()
        known = {
            name: [g for g in groups if value.dim() == 2 and g.numel() == value.size(0)]
            for name, value in model.named_parameters()
        }
        return {name: fitting for name, fitting in known.items() if fitting}

    def dimensions(self, model: nn.Module) -> Mapping[str, int]:
        """Axes of parameters that may count the dimensions of what examples are scored by, by name of the parameter."""
        return {}

    def groups(self) -> Sequence[Tensor]:
        """Nodes that a table may have the rows of: those of each type."""
        return [(self.node_type == number).nonzero().flatten() for number, name in enumerate(self.names) if name]

    @property
    def both_ways(self) -> bool:
        """Whether an edge and its reverse are one thing to the user, so that naming either names both."""
        return False

    def featured(self) -> Tensor:
        """Mask of the nodes that have features of their own."""
        there: Tensor = self.x.flatten(1).any(dim=1)
        return there

    def describe(self) -> Mapping[str, Any]:
        """What the graph is made of, for receipts: how many of each type are left."""
        return self.count(torch.arange(self.node_type.numel(), device=self.node_type.device))

    def count(self, nodes: Tensor) -> Mapping[str, int]:
        """How many of some nodes are of each type, by its name; types of which there is none are left out."""
        names = self.names
        counts = torch.bincount(self.node_type[nodes], minlength=len(names)).tolist()
        return {name: number for name, number in zip(names, counts, strict=False) if number and name}

    @property
    def names(self) -> Sequence[str]:
        """The names of the types of nodes, by number; an empty one is of no type of the user's."""
        return ("node",)
