"""How far a change travels through a model: its message-passing steps, found from its layers.

The answer only narrows the work. It is checked against the model's outputs before it is used
(:func:`unweave.methods.posing.pose`), so a module that mixes nodes in a way not seen here costs
time, never correctness.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch.fx import GraphModule

from unweave._core.compat import passes_messages_its_own_way
from unweave.models.alike import AlikeConv
from unweave.models.gat import SparseGATConv, TemperedGATConv
from unweave.models.gcn import SparseGCNConv
from unweave.models.gin import SparseGINConv
from unweave.models.lightgcn import SparseLGConv
from unweave.models.sage import SparseSAGEConv
from unweave.models.sgc import SparseAPPNP
from unweave.models.shards import Shards
from unweave.models.sign import SparseMeanConv
from unweave.models.stack import Stack

__all__ = ["Reach", "describe", "find_reach"]


@dataclass(frozen=True)
class Reach:
    """Message-passing steps of a model.

    Attributes:
        steps: Number of steps K, or ``None`` when unknown (then the region is the whole graph).
        normalised: Whether messages are weighted by node degrees.
        flow: ``"source_to_target"`` or ``"target_to_source"``, as in PyG.
        source: How this is known, in words.
    """

    steps: int | None
    normalised: bool = True
    flow: str = "source_to_target"
    source: str = "given"


def describe(reach: Reach) -> dict[str, Any]:
    """A reach as receipts have it."""
    return {
        "steps": reach.steps,
        "degree_normalised": reach.normalised,
        "flow": reach.flow,
        "source": reach.source,
    }


# Layer → (steps, weighted by degree). What is not listed is unknown, and unknown means the whole graph.
_ONE_STEP_PLAIN = (
    pyg.EdgeConv,
    pyg.GATConv,
    pyg.GATv2Conv,
    pyg.GINConv,
    pyg.GINEConv,
    pyg.GraphConv,
    pyg.LEConv,
    pyg.NNConv,
    pyg.ResGatedGraphConv,
    pyg.SAGEConv,
    pyg.SimpleConv,
    pyg.TransformerConv,
    AlikeConv,
    SparseGATConv,
    SparseGINConv,
    SparseMeanConv,
    SparseSAGEConv,
    TemperedGATConv,
)
_LAYERS: dict[type, Callable[[Any], tuple[int, bool]]] = {
    **dict.fromkeys(_ONE_STEP_PLAIN, lambda layer: (1, False)),
    pyg.APPNP: lambda layer: (layer.K, True),
    pyg.ChebConv: lambda layer: (len(layer.lins) - 1, True),
    pyg.ClusterGCNConv: lambda layer: (1, True),
    pyg.GCN2Conv: lambda layer: (1, True),
    pyg.GCNConv: lambda layer: (1, bool(layer.normalize)),
    pyg.LGConv: lambda layer: (1, bool(layer.normalize)),
    pyg.MixHopConv: lambda layer: (max(layer.powers), True),
    pyg.SGConv: lambda layer: (layer.K, True),
    pyg.SSGConv: lambda layer: (layer.K, True),
    pyg.TAGConv: lambda layer: (layer.K, bool(layer.normalize)),
    SparseAPPNP: lambda layer: (layer.K, True),
    SparseGCNConv: lambda layer: (1, True),
    SparseLGConv: lambda layer: (1, bool(layer.normalize)),
}


def _kind(layer: nn.Module) -> type | None:
    """The known layer that a layer is: its own class, or one it derives from without passing messages another way."""
    for kind in type(layer).mro():
        if kind in _LAYERS:
            return kind
        if passes_messages_its_own_way(kind):
            return None
    return None


def find_reach(model: nn.Module, run: Callable[[], object], readout: int = 0) -> Reach:
    """Count the message-passing steps of one forward pass.

    Args:
        model: The module.
        run: Calls the module once; layers are counted as often as they are called. Of shards, which work side by
            side, one is counted.
        readout: Steps from the nodes to the examples of a task, beside those of the layers.
    """
    model = model.models[0] if isinstance(model, Shards) else model
    called: list[tuple[str, Any]] = []
    hooks = [
        layer.register_forward_hook(lambda module, args, out, name=name: called.append((name, module)))
        for name, layer in model.named_modules()
        if isinstance(layer, pyg.MessagePassing)
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    kinds = [_kind(layer) for _, layer in called]
    unknown = [
        f"{name} ({type(layer).__name__})" for (name, layer), kind in zip(called, kinds, strict=True) if kind is None
    ]
    if unknown:
        return Reach(None, source=f"unknown layer {unknown[0]}")
    flows = {layer.flow for _, layer in called}
    if len(flows) > 1:
        return Reach(None, source="layers with opposite flows")
    found = [_LAYERS[kind](layer) for (_, layer), kind in zip(called, kinds, strict=True) if kind is not None]
    side_by_side = _side_by_side(model)
    chains: dict[str, dict[str, tuple[int, list[str]]]] = {}
    for (name, layer), (steps, _) in zip(called, found, strict=True):
        chain = chains.setdefault(side_by_side.get(name, name), {})
        before, names = chain.get(name, (0, []))
        chain[name] = before + steps, [*names, type(layer).__name__]
    deepest = [max(chain.values(), key=lambda one: one[0]) for chain in chains.values()]
    reach = Reach(
        steps=sum(steps for steps, _ in deepest) + readout,
        normalised=any(normalised for _, normalised in found),
        source=" + ".join(name for _, names in deepest for name in names) or "no message-passing layer",
    )
    return replace(reach, flow=flows.pop()) if flows else reach


def _side_by_side(model: nn.Module) -> dict[str, str]:
    """Layers that take the same step, as each for another type of edges: the name of what they belong to, by their own.

    These are the parts of a ``HeteroConv``, of what ``to_hetero`` makes of one layer, and the read-outs of a
    :class:`~unweave.models.stack.Stack` with what stands beside its first layer.
    """
    parents = [name for name, part in model.named_modules() if isinstance(part, pyg.HeteroConv)]
    if isinstance(model, GraphModule):
        parents += [name for name, part in model.named_modules() if isinstance(part, nn.ModuleDict)]
    stacks = [(f"{name}." if name else "", part) for name, part in model.named_modules() if isinstance(part, Stack)]
    return {
        name: parent
        for parent in parents
        for name, _ in model.named_modules()
        if name.startswith(f"{parent}." if parent else "")
    } | {f"{start}{name}": f"{start}{group}" for start, part in stacks for name, group in part.same_step().items()}
