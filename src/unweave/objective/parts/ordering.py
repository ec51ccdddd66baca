"""An order of nodes in which those near each other stand near each other, for graphs whose ids do not tell."""

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from unweave._core import ranks
from unweave.graph.index import Side
from unweave.graph.view import GraphView

__all__ = ["places"]


def places(view: GraphView) -> Tensor:
    """Where each node stands in the order of Cuthill and McKee (1969): breadth first, along the edges.

    It takes time in proportion to the edges. All ranks get what the first one found: another order on one of them would
    share out nodes twice, or not at all.
    """
    key = "places in an order of ranks"
    if key not in view.notes:
        place = torch.zeros(view.size, dtype=torch.long)
        with ranks.together("an order of the nodes"):
            if ranks.is_first():
                place[_order(view)] = torch.arange(view.size)
        view.notes[key] = ranks.same(place).to(view.edge_index.device)
    found: Tensor = view.notes[key]
    return found


def _order(view: GraphView) -> Tensor:
    side = view.index.into
    assert isinstance(side, Side)  # nobody asks for that of a graph in a folder
    start, other = (part.cpu().numpy() for part in (side.start, side.other))
    matrix = csr_matrix((np.ones(other.size, dtype=np.int8), other, start), shape=(view.size, view.size))
    return torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=view.undirected).astype(np.int64))
