"""The four backbones of the paper, GraphSAGE and SIGN, on PyG's layers; any other module works as well."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from unweave._core.memo import clear_memory
from unweave.errors import ModelError
from unweave.models.gat import GAT
from unweave.models.gcn import GCN
from unweave.models.gin import GIN
from unweave.models.lightgcn import LightGCN
from unweave.models.linker import Linker
from unweave.models.pooled import PooledSIGN
from unweave.models.sage import SAGE
from unweave.models.sgc import SGC
from unweave.models.shards import Shards
from unweave.models.sign import SIGN

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "MODELS",
    "SAGE",
    "SGC",
    "SIGN",
    "LightGCN",
    "Linker",
    "PooledSIGN",
    "Shards",
    "build",
    "clear_memory",
    "push",
    "width",
]

MODELS: dict[str, type[nn.Module]] = {
    "gat": GAT,
    "gcn": GCN,
    "gin": GIN,
    "lightgcn": LightGCN,
    "linker": Linker,
    "pooled-sign": PooledSIGN,
    "sage": SAGE,
    "sgc": SGC,
    "sign": SIGN,
}
"""Built-in models by the name the command line uses; each is called with (features, classes). ``pooled-sign`` is one of
whole graphs, all others are of nodes."""

PAPER: dict[str, dict[str, Any]] = {
    "gat": {"temperature": 10.0},
    "gin": {"activation": "tanh", "aggregation": "mean"},
}
"""What a backbone of the paper's size needs so that most seeds find the same minimum on a small graph."""

PAIRS = ("lightgcn", "linker")
"""Models of pairs of nodes: what they give are embeddings, of no number of classes."""

WIDE: dict[str, dict[str, Any]] = {
    "gat": {"attention": "features", "heads": 1, "beside": True},
    "gcn": {"beside": True},
    "gin": {"aggregation": "mean", "perceptron": 1, "beside": True},
    "sage": {"beside": True},
}
"""What a wide model needs so that every seed finds the same minimum, beside a smooth activation and unit features.

tanh is odd: near zero, where weight decay holds most units, it is a line but for its third order, units can be turned
into each other at hardly any cost, and a polish of little decay goes on along that valley without end; where features
are few, a direct way (:data:`DIRECT`) ends it. SiLU bends by its second order and ends it as well, but in other minima
from other seeds (``docs/forgettable.md``)."""


def width(nodes: int) -> int:
    """Hidden units of a model that is to have one minimum, for so many training nodes.

    L2 on both factors of a product is a nuclear norm on the product, and a factorised problem of n conditions has no
    minimum but the best ones from about √(2n) columns on (Burer and Monteiro, 2005; Pataki, 1998). That is a
    reason for a size, no proof: depth and hubs leave more minima (``benchmarks/results/wide``). On PubMed, whose 15,971
    training nodes ask for 128, seeds agreed with 256 units where with 64 they did not.
    """
    return min(512, max(64, 1 << math.ceil(math.log2(max(nodes, 1)) / 2)))


def build(
    name: str,
    in_channels: int,
    out_channels: int,
    *,
    forgettable: bool = False,
    nodes: int | None = None,
    x: Tensor | None = None,
    **given: Any,
) -> nn.Module:
    """A built-in model by name, in the form that can be trained to a minimum where ``forgettable``.

    Args:
        name: Of :data:`MODELS`.
        in_channels: Features of a node; of ``lightgcn`` rows of its table, which are the features of who has none but
            its number.
        out_channels: Classes.
        forgettable: Whether it is to be trained to a minimum.
        nodes: Training nodes, by which such a model is made wide enough; ``None`` for the size that the paper has.
        x: The features that an ordinary model is for: where they would :func:`push` all nodes at once, units take rows
            of length 1, as those of a model that is to be trained to a minimum always do.
        given: Options of the model that the user wants otherwise; those that are ``None`` are not.
    """
    if name not in MODELS:
        raise ModelError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
    if name in PAIRS:
        return _of_pairs(name, in_channels, width(nodes) if forgettable and nodes is not None else 64, given)
    options: dict[str, Any] = {}
    if forgettable and nodes is None:
        options = dict(PAPER.get(name, {}))
    elif forgettable and nodes is not None:
        layered = {} if name == "sgc" else {"hidden": width(nodes), "activation": "tanh"}
        options = layered | WIDE.get(name, {}) | {"unit": in_channels >= FEW}
    elif x is not None and name in DIRECTED and in_channels >= FEW and push(x) > 1:
        options = {"unit": True}
    options |= {key: value for key, value in given.items() if value is not None}
    if forgettable and nodes is not None and name in DIRECTED and _few(in_channels, nodes, options["hidden"]):
        options.setdefault("direct", DIRECT)
    try:
        return MODELS[name](in_channels, out_channels, **options)
    except TypeError as error:
        raise ModelError(f"{name} cannot be built with {options}: {error}; leave that option out") from error


def push(x: Tensor, lr: float = 0.01) -> float:
    """By how much one step of Adam moves a unit for all nodes at once: ``lr`` times the length of the mean row.

    Adam moves every weight by about ``lr``, whatever the gradient's size, and where features are positive those of one
    unit may all move the same way. By more than 1, and it may be zero for all nodes after a few steps, and stay so: on
    Photo (2.6) a GCN of the paper's size had an F1 of 0.43 after 1,000 epochs, two GINs 0.41 and 0.55, a GraphSAGE
    0.81; with rows of length 1 0.93, 0.93 and 0.83, and 0.95. No graph in the catalogue is between 0.6 (CS) and that.
    """
    if x.layout is not torch.strided:
        return 0.0
    some = x[:: max(1, x.size(0) // ROWS)]
    return lr * float(some.mean(dim=0, dtype=torch.float64).abs().sum())


ROWS = 2**12
"""Rows that are looked at to know it, evenly taken."""


def _few(features: int, nodes: int, hidden: int) -> bool:
    """Whether a direct way has fewer parameters than the units, and nodes enough not to fit noise."""
    return features < hidden and nodes >= DIRECT_NODES * features


def _of_pairs(name: str, size: int, wide: int, given: dict[str, Any]) -> nn.Module:
    """A model of embeddings, as wide as training to a minimum asks for; or as LightGCN's authors have it."""
    named = {key: value for key, value in given.items() if value is not None}
    usual = {"unit": size >= FEW} if name == "linker" else {}
    options = {"width": named.pop("hidden", wide), "layers": named.pop("layers", 2)} | usual | named
    try:
        return MODELS[name](size, **options)
    except TypeError as error:
        raise ModelError(f"{name} cannot be built with {options}: {error}; leave that option out") from error


DIRECTED = ("gat", "gcn", "gin", "sage", "sign")
"""Models that a direct way can be added to; an SGC is nothing else."""

DIRECT = 10.0
"""How much a direct way counts (:class:`~unweave.models.direct.Direct`). Weight decay of it is a hundredth of that of
the units: where validation chose both, that of SGC was a thirtieth to a thousandth of that of GCN
(``benchmarks/results/wide``). With 3 polishes were no shorter and seeds agreed less (0.78 on 100,000 nodes)."""

DIRECT_NODES = 200
"""Training nodes for each feature from which on there is one, where features are fewer than hidden units. With so
little decay it fits noise where nodes are few. What that rests on is thin: GraphSAGE on ``hard`` graphs
(``benchmarks/generated.py``), one seed, 60 gradients, validation F1 with it less that without: at 125 nodes a feature
−0.016 (decay 1e-3), at 250 +0.002 (1e-3), −0.006 (3e-4) and, with 64 features, −0.004 (1e-3), at 547 +0.001 (1e-3). On
six others, with other seeds and the decay by validation loss: GCN +0.007 (at 101) and −0.003 (202), GraphSAGE −0.003
and −0.005 (202) and −0.003 (405), GIN +0.019 (177), of which 0.004 is chance. Of more features than units it is the
units that are fewer parameters."""

FEW = 16
"""Features below which a node's length tells too much to be left out."""
