"""Refuse graphs and models that cannot be unlearned, before anything is computed."""

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch_geometric.data import Data, Dataset, HeteroData

from unweave._core.mapped import mapped
from unweave._core.memo import remembered
from unweave.errors import ClassLossError, DataError, ModelError, RequestError
from unweave.graph.edit import MASKS, check_attributes
from unweave.graph.region import Region
from unweave.models import MODELS, LightGCN, Linker, PooledSIGN, Shards
from unweave.objective.losses import Loss
from unweave.objective.parameters import duplicate, tensors_on
from unweave.tasks import Graphs, Links, Relations

__all__ = [
    "changed_outside",
    "check_classes",
    "check_data",
    "check_deterministic",
    "check_finite",
    "check_kind",
    "check_labels",
    "check_logits",
    "check_model",
    "check_outputs",
    "check_scores",
    "probabilities",
    "rounding",
]

UNSEEN = 0.5
"""Probability that a trained model may give, on average, to classes without a training node."""

ROWS = 2**14
"""Rows that are checked at a time."""

MOST = 0.5
"""Share of the edges that a tensor must have to be taken for them; positions and negative samples have hardly any."""

SUMS = 1e-3
"""How far from 1 the rows of a softmax may sum to."""


def check_kind(data: object) -> Data:
    """One graph with one kind of nodes; what else PyG has is refused by name."""
    if isinstance(data, Data):
        return data
    more = ""
    if isinstance(data, HeteroData):
        more = "; for several types of nodes or edges give unweave.tasks.Relations.of(data)"
    elif isinstance(data, Dataset | list | tuple):
        more = "; give one graph of it, e.g. dataset[0], or all, for a model of whole graphs, as "
        more += "unweave.tasks.Graphs.of(dataset)"
    raise DataError(f"a graph is a torch_geometric.data.Data, got {type(data).__name__}{more}")


def check_data(data: Data) -> None:
    """Shapes, masks, ids and finiteness of a graph. Labels of test nodes are not looked at."""
    data = check_kind(data)
    for key in ("x", "edge_index", "y", "train_mask"):
        if not isinstance(data.get(key), Tensor):
            hint = "; convert adj_t to edge_index first" if key == "edge_index" and "adj_t" in data else ""
            raise DataError(f"the graph has no tensor data.{key}, which forgetting needs{hint}")
    size = data.x.size(0)
    for key, value in data.to_dict().items():
        if key == "edge_label_index":
            raise DataError(
                "the graph has data.edge_label_index, pairs of nodes for link prediction; for a link predictor give "
                "unweave.tasks.Links.of(data), whose examples are the edges. Delete it if this is a model of nodes"
            )
        aligned = isinstance(value, Tensor) and (data.is_node_attr(key) or data.is_edge_attr(key))
        if key in ("adj", "adj_t") or (key.endswith("_index") and not aligned):
            raise DataError(
                f"data.{key} would keep what is removed from edge_index; delete it from the graph first (a model that "
                "computes with it can build it from data.edge_index in forward=)"
            )
    if data.x.dim() != 2 or not data.x.is_floating_point() or data.x.layout != torch.strided:
        raise DataError(
            f"data.x must be a dense floating-point matrix [nodes, features], got {data.x.dtype} "
            f"of shape {tuple(data.x.shape)} and layout {data.x.layout}; say data.x = data.x.to_dense().float()"
        )
    check_attributes(data)
    index = data.edge_index
    if index.dtype != torch.long or index.dim() != 2 or index.size(0) != 2:
        raise DataError(f"data.edge_index must be int64 of shape [2, edges], got {index.dtype} {tuple(index.shape)}")
    if mapped(index) is None and index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        raise DataError(f"data.edge_index names nodes outside 0 … {size - 1}")
    rows = data.y.size(0) if data.y.dim() else 1
    if rows != size:
        graphs = int(data.batch.max()) + 1 if isinstance(data.get("batch"), Tensor) and data.batch.numel() else 1
        whole = "; for labels of whole graphs give unweave.tasks.Graphs.of(dataset)" if rows == graphs else ""
        raise DataError(f"data.y has {rows} row{'s' * (rows != 1)} for {size} nodes{whole}")
    masks = {name: data[name] for name in MASKS if data.get(name) is not None}
    for name, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (size,):
            raise DataError(
                f"data.{name} must be a boolean vector of {size} nodes, got {mask.dtype} of shape "
                f"{tuple(mask.shape)}; choose one split if there are several"
            )
    for a, b in combinations(masks, 2):
        both = (masks[a] & masks[b]).nonzero().flatten()
        if both.numel():
            raise DataError(f"data.{a} and data.{b} overlap in {both.numel()} nodes, e.g. node {int(both[0])}")
    if not bool(data.train_mask.any()):
        raise DataError("data.train_mask selects no node; there is nothing that was trained on")
    for key in ("x", "edge_weight"):
        value = data.get(key)
        row = None if value is None or mapped(value) is not None else _first_not_finite(value)
        if row is not None:
            raise DataError(f"data.{key} is not finite, first at row {row}; replace NaN and infinity first")
    weight = data.get("edge_weight")
    if weight is not None and weight.size(0) != index.size(1):
        raise DataError(f"data.edge_weight has {weight.size(0)} entries for {index.size(1)} edges")


@remembered
def _first_not_finite(value: Tensor) -> int | None:
    """The first row with a number that is not finite; a memory map is never looked at whole."""
    for first in range(0, value.size(0), ROWS):
        rows = value[first : first + ROWS]
        if not bool(torch.isfinite(rows).all()):
            return first + int((~torch.isfinite(rows)).reshape(rows.size(0), -1).any(dim=1).nonzero()[0])
    return None


def check_labels(data: Data, loss: Loss, outputs: Tensor) -> None:
    """Training labels that the loss can take; only a loss of classes knows what a label is."""
    if not loss.classes:
        return
    labels = data.y
    if labels.dtype != torch.long or labels.dim() != 1:
        raise DataError(
            f"{loss.name} needs data.y as int64 class numbers of shape [nodes], got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; say data.y = data.y.flatten().long() where they are class numbers, and for other "
            "targets pass loss=, e.g. torch.nn.MSELoss() or unweave.losses.binary_cross_entropy"
        )
    if outputs.dim() != 2:
        raise ModelError(f"the model must give [nodes, classes] for {loss.name}, got shape {tuple(outputs.shape)}")
    used = labels[data.train_mask]
    low, high = int(used.min()), int(used.max())
    if low < 0 or high >= outputs.size(1):
        cure = "take nodes without a label out of data.train_mask" if low < 0 else "number classes from 0, or widen it"
        raise DataError(
            f"training labels run from {low} to {high}, but the model has {outputs.size(1)} outputs; "
            f"they must lie in 0 … {outputs.size(1) - 1}: {cure}"
        )
    for name in ("val_mask", "test_mask"):
        mask = data.get(name)
        if mask is not None and bool((labels[mask] >= outputs.size(1)).any()):
            raise DataError(
                f"labels of data.{name} run to {int(labels[mask].max())}, but the model has {outputs.size(1)} outputs: "
                f"number classes from 0, widen it, or take these nodes out of data.{name}"
            )


def check_model(model: nn.Module, data: Data, *, trained: bool = True) -> None:
    """Parameters that can move, no cached graph, one type and device; finite ones where the model was trained."""
    _check_fit(model, data)
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ModelError(f"{type(model).__name__} has no parameters; there is nothing to unlearn")
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ModelError(
            "every parameter has requires_grad=False; frozen parameters keep what they learnt, so call "
            "model.requires_grad_(True) first"
        )
    for name, parameter in parameters.items():
        if isinstance(parameter, UninitializedParameter):
            raise ModelError(f"parameter {name!r} is not initialised yet; call the model once first")
        if parameter.is_inference() or torch.is_inference_mode_enabled():
            raise ModelError(
                "unlearning needs derivatives; call it, and build the model, outside torch.inference_mode()"
            )
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ModelError(f"parameter {name!r} is {parameter.dtype}; use float32 or float64, e.g. model.float()")
        if trained and not bool(torch.isfinite(parameter).all()):
            raise ModelError(f"parameter {name!r} is not finite; the model was not trained successfully")
    for what, kinds in (
        ("type", {p.dtype for p in parameters.values()}),
        ("device", {p.device for p in parameters.values()}),
    ):
        if len(kinds) > 1:
            raise ModelError(f"parameters must share one {what}, got {', '.join(sorted(map(str, kinds)))}")
    first = next(iter(parameters.values()))
    if first.device != data.x.device or first.dtype != data.x.dtype:
        raise ModelError(
            f"the model is {first.dtype} on {first.device} and data.x is {data.x.dtype} on {data.x.device}; "
            "move both with .to(…) first"
        )
    for name, module in model.named_modules():
        if getattr(module, "cached", False) is True:
            raise ModelError(
                f"layer {name!r} ({type(module).__name__}) has cached=True and would go on using the old graph; "
                f"build it with cached=False, or set model.{name}.cached = False and its cached tensors to None"
            )
    for name, held in tensors_on(model):
        if not isinstance(model, Shards) and _holds_edges(held, data):
            raise ModelError(
                f"the model holds edges of the graph itself, in {name!r}, and would go on using those deleted; "
                "let it compute with the edge_index that forward is given, and delete that tensor from it"
            )


def _holds_edges(held: Tensor, data: Data) -> bool:
    """Whether a tensor on a model is a sparse matrix over the nodes, or has most edges of the graph in it."""
    size, index = data.x.size(0), data.edge_index
    if held.layout != torch.strided:
        return held.shape == (size, size)
    pairs = not held.is_floating_point() and held.dim() == 2 and held.size(0) == 2
    if not pairs or held.dtype == torch.bool or not index.numel() or mapped(index) is not None:
        return False
    own = held.to(index.device, torch.long)
    known = torch.isin(index[0] * size + index[1], own[0] * size + own[1])
    return float(known.float().mean()) > MOST


def _check_fit(model: nn.Module, data: Data) -> None:
    """A built-in model of pairs or of whole graphs, and a graph of such examples."""
    name = type(model).__name__
    if isinstance(model, LightGCN | Linker) and not isinstance(data, Links):
        raise ModelError(f"{name} scores pairs of nodes; give it a graph of pairs, unweave.tasks.Links.of(data)")
    if isinstance(model, LightGCN) and model.num_nodes != data.spec["rows"]:
        raise ModelError(f"the model has embeddings of {model.num_nodes} nodes, the graph has {data.spec['rows']}")
    if isinstance(data, Relations) and type(model) in MODELS.values():
        raise ModelError(
            f"{name} takes nodes of one type, and the graph has several; give a model of your own that is called as "
            "model(x_dict, edge_index_dict), e.g. one that to_hetero makes"
        )
    if isinstance(model, PooledSIGN) and not isinstance(data, Graphs):
        raise ModelError(f"{name} is a model of whole graphs; give it unweave.tasks.Graphs.of(dataset)")


def check_outputs(outputs: object, data: Data) -> Tensor:
    """One finite row for each node."""
    size = data.x.size(0)
    if not isinstance(outputs, Tensor) or outputs.dim() == 0 or outputs.size(0) != size:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ModelError(
            f"the model must give one row for each of {size} nodes, got {got}{_kind_of(outputs, data)}; "
            "pass forward=lambda model, data: … to choose or reshape its output"
        )
    check_finite(outputs)
    return outputs


def check_finite(outputs: Tensor) -> None:
    """No row that is no number."""
    if not all(bool(torch.isfinite(some).all()) for some in torch.split(outputs, ROWS)):
        raise ModelError("the model's outputs are not finite on this graph; it was not trained successfully")


def _kind_of(outputs: object, data: Data) -> str:
    """What a model seems to be whose outputs are not those of nodes."""
    rows = outputs.size(0) if isinstance(outputs, Tensor) and outputs.dim() else 1
    if rows == data.edge_index.size(1):
        return ", one for each edge: a link predictor takes unweave.tasks.Links.of(data)"
    if rows == 1 and isinstance(outputs, Tensor):
        return ", one for the graph: a model of whole graphs takes unweave.tasks.Graphs.of(dataset)"
    return ""


def check_scores(data: Data, loss: Loss, outputs: Tensor) -> None:
    """A trained classifier with more outputs than classes has learnt that the others do not occur."""
    if not loss.classes or outputs.dim() != 2:
        return
    seen = torch.zeros(outputs.size(1), dtype=torch.bool, device=outputs.device)
    seen[data.y[data.train_mask]] = True
    if bool(seen.all()):
        return
    shares = torch.softmax(outputs[data.train_mask].double(), dim=-1)[:, ~seen].sum(dim=-1)
    if float(shares.mean()) > UNSEEN:
        raise ModelError(
            f"the model has {outputs.size(1)} outputs and gives {float(shares.mean()):.0%} of its probability to "
            f"classes that no training node has ({int(seen.sum())} are there), so it was not trained to tell these "
            f"classes by {loss.name}: does it give embeddings, as the encoder of a link predictor does "
            "(unweave.tasks.Links)? Give the loss= that it was trained with, or forward=lambda model, data: … that "
            "gives the scores of the classes"
        )


def probabilities(outputs: Tensor) -> bool:
    """Whether every row is a distribution over several classes already."""
    if outputs.dim() != 2 or outputs.size(1) < 2:
        return False
    return all(
        bool((some >= 0).all()) and bool(((some.sum(dim=1) - 1).abs() < SUMS).all())
        for some in torch.split(outputs.detach(), ROWS)
    )


def check_logits(
    model: nn.Module, data: Data, loss: Loss, forward: Callable[[nn.Module, Data], Tensor], outputs: Tensor
) -> None:
    """A model whose softmax is left out while it trains was trained by another loss than its outputs would tell."""
    if not loss.classes or not probabilities(outputs):
        return
    twin = duplicate(model).train()
    with torch.no_grad(), torch.random.fork_rng(devices=[outputs.device] if outputs.is_cuda else []):
        while_training = forward(twin, data)
    if isinstance(while_training, Tensor) and not probabilities(while_training):
        raise ModelError(
            f"the model gives probabilities in eval mode and other outputs while it trains, so that {loss.name} would "
            "take a softmax of them that its training did not take; give their logarithms, "
            "forward=lambda model, data: model(data.x, data.edge_index).log(), whose softmax they are"
        )


def check_deterministic(first: Tensor, second: Tensor) -> None:
    """Two evaluations in eval mode agree."""
    if bool(((first - second).abs() > rounding(first)).any()):
        raise ModelError(
            "the model's output changes between two identical calls in eval mode; is dropout applied without "
            "training=self.training, or are neighbours sampled? Forgetting needs a deterministic model"
        )


def changed_outside(region: Region, before: Tensor, after: Tensor) -> Tensor:
    """Ids of nodes outside the region whose output a removal changed all the same."""
    moved = ((before - after).abs() > rounding(before)).reshape(before.size(0), -1).any(dim=1)
    return (moved & ~region.mask).nonzero().flatten()


def check_classes(before: Data, after: Data, loss: Loss, allowed: bool) -> None:
    """Training nodes remain, and so does each class unless its loss is allowed."""
    if not bool(after.train_mask.any()):
        raise RequestError(
            "the request takes every training node, so no model remains that retraining could give; "
            "delete the model instead"
        )
    if allowed or not loss.classes:
        return
    lost = set(before.y[before.train_mask].tolist()) - set(after.y[after.train_mask].tolist())
    if lost:
        raise ClassLossError(
            f"the request takes the last training node of class {', '.join(map(str, sorted(lost)))}; "
            "if that is meant, say so with allow_class_loss=True (--allow-class-loss)"
        )


def rounding(outputs: Tensor) -> Tensor:
    """What may be rounding in outputs of this size and type."""
    return 1e3 * torch.finfo(outputs.dtype).eps * outputs.detach().abs().max().clamp(min=1)
