"""Models that take of a graph only rows of PᵏX: those can be computed once, and training touches rows alone."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.models.sgc import SGC, SparseAPPNP
from unweave.models.sign import SIGN, SparseMeanConv
from unweave.models.structure import bare

__all__ = ["Propagation", "by_rows", "propagation_of"]


@dataclass(frozen=True)
class Propagation:
    """What a model takes of a graph.

    Attributes:
        matrix: P: ``"mean"`` over the neighbours, D⁻¹A, or ``"normalised"``, D^-½ (A + I) D^-½.
        steps: K.
        all: Whether rows of every PᵏX from k = 0 on are taken, or of P^K X alone.
        unit: Whether X is taken with rows of length 1.
    """

    matrix: Literal["mean", "normalised"]
    steps: int
    all: bool
    unit: bool

    @property
    def powers(self) -> range:
        """The k whose rows are taken."""
        return range(0 if self.all else self.steps, self.steps + 1)


def propagation_of(model: nn.Module) -> Propagation | None:
    """What a model takes of a graph; ``None`` where that is more than rows of PᵏX, or it is not as it was built."""
    if not all(bare(module) and "forward" not in vars(module) for module in model.modules()):
        return None
    if type(model) is SGC and type(model.propagate) is SparseAPPNP and model.propagate.as_built:
        return Propagation("normalised", model.propagate.K, all=False, unit=model.unit)
    if type(model) is SIGN and type(model.step) is SparseMeanConv and model.step.aggr == "mean":
        step = model.step
        return None if step.combine_root else Propagation("mean", len(model.distances) - 1, all=True, unit=model.unit)
    return None


def by_rows(model: nn.Module, data: Data) -> Tensor:
    """Call such a model on rows, ``data.x`` of the shape [nodes, powers, features]."""
    assert isinstance(model, SGC | SIGN)
    return model.of_rows(*torch.unbind(data.x, dim=1))
