"""The four backbones of the paper, GraphSAGE and SIGN, on PyG's layers; any other module works as well."""

from typing import Any

from torch import nn

from unweave._core.memo import clear_memory
from unweave.errors import ModelError
from unweave.models.gat import GAT
from unweave.models.gcn import GCN
from unweave.models.gin import GIN
from unweave.models.sage import SAGE
from unweave.models.sgc import SGC
from unweave.models.shards import Shards
from unweave.models.sign import SIGN

__all__ = ["GAT", "GCN", "GIN", "MODELS", "SAGE", "SGC", "SIGN", "Shards", "build", "clear_memory"]

MODELS: dict[str, type[nn.Module]] = {
    "gat": GAT,
    "gcn": GCN,
    "gin": GIN,
    "sage": SAGE,
    "sgc": SGC,
    "sign": SIGN,
}
"""Built-in models by the name the command line uses; each is called with (features, classes)."""

FORGETTABLE: dict[str, dict[str, Any]] = {
    "gat": {"temperature": 10.0},
    "gin": {"activation": "tanh", "aggregation": "mean"},
}
"""What a backbone needs in order to have one minimum that every seed finds; the others are fine as they are."""


def build(name: str, in_channels: int, out_channels: int, *, forgettable: bool = False) -> nn.Module:
    """A built-in model by name, in the form that can be trained to a minimum where ``forgettable``."""
    if name not in MODELS:
        raise ModelError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
    options = FORGETTABLE.get(name, {}) if forgettable else {}
    return MODELS[name](in_channels, out_channels, **options)
