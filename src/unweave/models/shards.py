"""Models trained on parts of a graph that never saw each other, answering together (GraphEraser, CCS'22)."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.errors import ModelError

__all__ = ["Aggregation", "Shards"]

Aggregation = Literal["mean", "majority", "learned"]


class Shards(nn.Module):
    """k sub-models of one architecture; each is called on the whole graph, and their answers are aggregated.

    The outputs are log-probabilities. With p_s the softmax of the outputs of sub-model s and w on the simplex:
    ``mean`` and ``learned`` give log Σ_s w_s p_s, ``majority`` the logarithm of the shares of votes, one from each
    sub-model with w_s > 0 and one for each class, so that no class has none.

    Args:
        models: The sub-models, in the order of their shards.
        members: Shard of each node of the graph, −1 where it is in none.
        aggregation: ``mean``, ``majority`` or ``learned``; the last differs from the first in its weights only.
    """

    members: Tensor
    weights: Tensor

    def __init__(self, models: Sequence[nn.Module], members: Tensor, aggregation: Aggregation = "mean") -> None:
        super().__init__()
        if aggregation not in get_args(Aggregation):
            raise ModelError(f"aggregation must be {', '.join(get_args(Aggregation))}, got {aggregation!r}")
        self.models = nn.ModuleList(models)
        self.aggregation = aggregation
        self.register_buffer("members", members)
        self.register_buffer("weights", next(self.parameters()).new_full((len(models),), 1 / len(models)))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Log-probabilities ``[nodes, classes]``, in whatever structure the sub-models give their outputs."""
        takes = signature(self.models[0].forward)
        try:
            takes.bind(*args, **kwargs)
        except TypeError as error:
            name = type(self.models[0]).__name__
            raise ModelError(
                f"the shards are of {name}, which takes {takes} and cannot be called so: {error}"
            ) from error
        return _combine([model(*args, **kwargs) for model in self.models], self._aggregate)

    def _aggregate(self, outputs: Tensor) -> Tensor:
        if self.aggregation == "majority":
            votes = F.one_hot(outputs.argmax(dim=-1), outputs.size(-1)).to(outputs)
            counts = torch.einsum("s,snc->nc", (self.weights > 0).to(outputs), votes) + 1
            return (counts / counts.sum(dim=-1, keepdim=True)).log()
        return torch.logsumexp(F.log_softmax(outputs, dim=-1) + self.weights.log()[:, None, None], dim=0)


def _combine(outputs: Sequence[Any], aggregate: Callable[[Tensor], Tensor]) -> Any:
    """Aggregate tensor by tensor what may be tensors, or mappings or sequences of them."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return aggregate(torch.stack(list(outputs)))
    if isinstance(first, Mapping):
        return {key: _combine([output[key] for output in outputs], aggregate) for key in first}
    if isinstance(first, list | tuple):
        return tuple(_combine(parts, aggregate) for parts in zip(*outputs, strict=True))
    return first
