"""What can be proved about a model that has forgotten, and what cannot.

Where the outputs are linear in the trained parameters and the loss is convex in the outputs, L' is strongly convex with
the smallest weight decay μ = min_k w_k·|D'|, so the minimiser θ* on the remaining graph is unique and

    ‖θ − θ*‖ ≤ ‖∇L'(θ)‖ / μ

for every θ. Nothing is declared: linearity is tried on the graph itself, the gradient is taken in double precision, and
what rounding may have hidden of it is added. For any other model there is no such bound, and the reason is given.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.compat import DERIVED_OF_CODE, TABLES
from unweave._core.digest import tensor_digest
from unweave._core.memo import derive, remembered
from unweave._core.sparse import eagerly
from unweave.certificate.gaussian import epsilon_of, ratio_of
from unweave.curvature.solvers import random_like
from unweave.errors import UnweaveError
from unweave.graph.view import GraphView
from unweave.models import GAT, GCN, GIN, LightGCN, Linker, Shards
from unweave.objective.checks import rounding
from unweave.objective.losses import with_slope
from unweave.objective.objective import Forward, Objective, Point
from unweave.objective.parameters import duplicate, trained
from unweave.objective.parts.blocks import BlockPoint, Blocks
from unweave.objective.running_stats import running
from unweave.receipt.receipt import Receipt

__all__ = [
    "Bound",
    "Linear",
    "bound_of",
    "bounded",
    "examine",
    "in_sequence",
    "local",
    "most_passes",
    "none",
    "uncertified",
]

LINES = (0.5, -1.0)
"""Where on the line through two points the outputs are looked at: between them and beyond."""

CURVED = (GCN, GAT, GIN, LightGCN, Linker, Shards)
"""Models that need no trial: their layers multiply each other, or two embeddings do, or attention divides, or they
average probabilities."""

DERIVED = ("training", *DERIVED_OF_CODE)
"""Of a module, what follows from its class (what PyG notes of its signatures) or does not count in eval mode."""

REMEMBERED = 256
"""Models found curved that are remembered."""


@dataclass(frozen=True)
class Linear:
    """A model that was found linear in its trained parameters, with a loss that is convex, in double precision.

    Attributes:
        objective: L', evaluated in double precision.
        mu: The smallest weight decay of a parameter, times the training nodes: L' bends at least so much everywhere.
        checked: What was checked, in words.
    """

    objective: Objective
    mu: float
    checked: tuple[str, ...]


@dataclass(frozen=True)
class Bound:
    """How far a point can be from the minimiser.

    Attributes:
        gradient_norm: ‖∇L'(θ)‖ as computed.
        rounding: By how much rounding may have made it too small.
        mu: Strong convexity.
    """

    gradient_norm: float
    rounding: float
    mu: float

    @property
    def distance(self) -> float:
        """An upper bound on ‖θ − θ*‖."""
        return (self.gradient_norm + self.rounding) / self.mu

    def to_dict(self) -> dict[str, float]:
        """The figures, for a receipt."""
        return {
            "distance": self.distance,
            "gradient_norm": self.gradient_norm,
            "rounding": self.rounding,
            "mu": self.mu,
        }


def uncertified(objective: Objective) -> str | None:
    """Why there can be no certificate, as far as that is known without evaluating anything; ``None`` where it is not.

    A model that was tried and found curved is remembered by what decides it, so that its next request costs nothing.
    """
    model = objective.model
    if isinstance(objective, Blocks) and not objective.keeps:
        return "in bounded memory the model is not looked at as a whole"
    if isinstance(objective, Blocks) and objective.hears is None:
        return "by rows of a folder the model is not looked at as a whole"
    if isinstance(model, CURVED):
        return f"the outputs of {type(model).__name__} are not linear in its parameters"
    if not objective.loss.convex:
        return f"the loss {objective.loss.name} is not known to be convex"
    if names := ", ".join(running(model)):
        return f"running statistics ({names}) follow the data and are no part of the objective"
    key = _key(model, objective.forward)
    return None if key is None else _FOUND.get(key)


def most_passes(objective: Objective) -> int:
    """Passes that looking for a certificate, and computing its bound, takes at most."""
    return 0 if uncertified(objective) is not None else 3 + 2 + len(LINES)


def examine(objective: Objective, theta: Tensor) -> Linear | str:
    """A model that can be certified, or why it cannot.

    Args:
        objective: L' of the model.
        theta: Trained parameters, where linearity is tried from.
    """
    reason = uncertified(objective)
    if reason is not None:
        return reason
    bare = [name for name, decay in objective.split(objective.mu).items() if not bool((decay > 0).all())]
    if bare:
        return f"parameter {bare[0]!r} has no weight decay, so the objective need not have a single minimum"
    try:
        double = _doubled(objective)
        known = double.written_out  # as Âᴷ X W: GCN, the other one, is refused above
        off, allowed = (0.0, 0.0) if known else _departure(double, theta.double())
    except (RuntimeError, TypeError, ValueError, UnweaveError) as error:
        return f"the model cannot be evaluated in double precision ({error})"
    if off > allowed:
        hint = "; if the model ends in a softmax, leave that out, as the loss takes logits"
        reason = "the outputs are not linear in the parameters" + (hint if objective.loss.classes else "")
        if (key := _key(objective.model, objective.forward)) is not None:
            while len(_FOUND) >= REMEMBERED:
                del _FOUND[next(iter(_FOUND))]  # the oldest
            _FOUND[key] = reason
        return reason
    return Linear(
        objective=double,
        mu=float(double.mu.min()),
        checked=(
            "outputs are linear in the trained parameters "
            + ("(it is SGC as it was built)" if known else f"(off by {off:.1e} at random points of this graph)"),
            "the loss is convex in the outputs",
            f"every parameter has weight decay (μ = {float(double.mu.min()):.4g})",
            *_constants(objective.model),
        ),
    )


def bound_of(found: Linear, theta: Tensor, tilt: Tensor | None = None) -> Bound:
    """‖∇L'(θ)‖ in double precision, or that of L' + ⟨tilt, ·⟩, with an allowance for rounding.

    A sum of m products is off by at most m·eps times the sum of their sizes; here m counts everything that meets in one
    entry of the gradient: edges, nodes and features. The weight decay is known as exactly as the model's own numbers.
    """
    objective, exact = found.objective, torch.finfo(theta.dtype).eps
    theta = theta.double()
    with torch.enable_grad():
        point = objective.at(theta)
        gradient = point.gradient() if tilt is None else point.gradient() + tilt
        if isinstance(point, BlockPoint):
            sizes = point.total("sizes", lambda part, _: _sizes(part.at(theta)))
        else:
            sizes = _sizes(point)
    met = objective.stored_edges + objective.nodes.numel() + objective.width
    decay = float((objective.mu * theta).norm())
    allowance = met * torch.finfo(torch.float64).eps * (float(sizes.norm()) + decay) + exact / 2 * decay
    return Bound(float(gradient.norm()), allowance, found.mu)


def _sizes(point: Point) -> Tensor:
    """The sum of the sizes of what meets in each entry of the gradient, as far as the slopes of losses tell."""
    objective = point.objective
    outputs = point.outputs.index_select(0, objective.nodes)
    slope = with_slope(objective.loss, outputs.detach(), objective.data.y[objective.nodes])[1]
    (sizes,) = torch.autograd.grad(outputs, point.theta, slope.abs())
    objective.meter.passes += 1
    return sizes


def bounded(found: Linear, bound: Bound, length: float) -> dict[str, Any]:
    """A bound as receipts have it; ``length`` is ‖θ‖."""
    share = f" ({bound.distance / length:.2g} of their length)" if length > 0 else ""
    return {
        "kind": "bound",
        "statement": f"the parameters are within {bound.distance:.3g}{share} of the minimiser on the remaining graph, "
        f"where retraining to the end leads: ‖∇L'‖/μ = {bound.gradient_norm:.3g} / {bound.mu:.4g}",
        **bound.to_dict(),
        "checked": list(found.checked),
    }


def none(reason: str) -> dict[str, Any]:
    """Not certified, and why."""
    return {"kind": "none", "statement": f"not certified: {reason}"}


def local(curvature: float | None, gradient_norm: float, reason: str) -> dict[str, Any]:
    """What is true of a model at a minimum that is not linear: what was met along the steps, and nothing else."""
    if curvature is None or curvature <= 0:
        bent = "" if curvature is None else f", and the objective bends down along a step (curvature {curvature:.3g})"
        return none(reason + bent)
    return {
        "kind": "local",
        "statement": f"not certified: {reason}. Local only: along the steps the remaining objective bent by at least "
        f"{curvature:.3g}, and its gradient is {gradient_norm:.3g} where they ended; a minimum in a surrounding that "
        f"bends as much in every direction, which nobody has checked, would be within {gradient_norm / curvature:.3g}",
        "smallest_curvature_along_steps": curvature,
        "gradient_norm": gradient_norm,
    }


def in_sequence(receipt: Receipt, earlier: Sequence[Receipt]) -> Receipt:
    """The receipt of a certified request, with what all models since training give away when they are seen together."""
    if receipt.certificate is None or receipt.certificate["kind"] != "removal":
        return receipt
    told = dict(receipt.certificate)
    models, others, spread = 1, 0, ratio_of(told["epsilon"], told["delta"]) ** 2
    for before in reversed(earlier):
        known = (before.certificate or {}).get("sequence")
        if known is not None:  # it tells of all before it
            models, others, spread = models + known["models"], others + known["others"], spread + known["spread"]
            break
        others += before.carried_out
    told["sequence"] = {"models": models, "others": others, "spread": spread}
    if others:
        which = "1 earlier model of this run is" if others == 1 else f"{others} earlier models of this run are"
        told["statement"] += f"; {which} not certified, and may give away what this one does not"
    if models > 1:
        epsilon = epsilon_of(told["delta"], math.sqrt(spread))
        told["together"] = {"models": models, "epsilon": epsilon, "delta": told["delta"]}
    return replace(receipt, certificate=told)


_FOUND: dict[tuple[object, ...], str] = {}
"""Why models that were tried are not linear, by all that decides it."""


def _key(model: nn.Module, forward: Forward) -> tuple[object, ...] | None:
    """All that a model computes with beside its parameters' values; ``None`` where that is not known."""
    parts: list[object] = [forward]
    try:
        for part in model.modules():
            own = {key: value for key, value in vars(part).items() if key not in (*DERIVED, *TABLES)}
            parts += [type(part), _written(own), tuple(name for name, _ in part.named_children())]
            parts += [_written(dict(part.named_buffers(recurse=False)))]
            parts += [(key, tuple(p.shape), p.requires_grad) for key, p in part.named_parameters(recurse=False)]
    except TypeError:
        return None
    return tuple(parts)


def _written(value: object) -> object:
    """A setting of a module as something that can be compared."""
    if value is None or isinstance(value, str | int | float | type | FunctionType | BuiltinFunctionType | Enum):
        return value
    if isinstance(value, Tensor):
        return tensor_digest([("", value)])
    if isinstance(value, Mapping):
        return frozenset((key, _written(inside)) for key, inside in value.items())  # a copy may have another order
    if isinstance(value, tuple | list):
        return tuple(map(_written, value))
    if isinstance(value, set):
        return frozenset(value)
    raise TypeError(f"nothing is known of a {type(value).__name__}")


def _doubled(objective: Objective) -> Objective:
    """The same objective in double precision; the float32 numbers it is made of are exact in it."""
    if objective.mu.dtype == torch.float64:
        return objective
    model, decay = duplicate(objective.model).double().eval(), objective.decay.double()
    rest = (objective.loss, decay, objective.forward, objective.meter)
    if isinstance(objective, Blocks):
        view = objective.view
        base = _doubled_graph(view.base)
        twin = replace(view, base=base, x=view.x.double(), stamp=GraphView.of(base).stamp)
        return Blocks(model, replace(objective.locality, graph=twin), *rest, objective.memory_mib, like=objective)
    return Objective(model, _doubled_graph(objective.data), *rest)


def _doubled_graph(data: Data) -> Data:
    doubled = copy.copy(data)
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point():
            doubled[key] = value if value.dtype == torch.float64 else _double(value)
    return doubled


@remembered
def _double(tensor: Tensor) -> Tensor:
    """The same numbers as doubles; features are mostly those of the request before."""
    with eagerly():
        doubled = tensor.double()
    derive(doubled, tensor)  # so that sparse features need not be found again
    return doubled


def _departure(objective: Objective, theta: Tensor) -> tuple[float, float]:
    """How far the outputs are from affine along a random line through θ, and how far rounding may bring them."""
    scale = max(float(theta.square().mean()) ** 0.5, 1.0)
    other = scale * random_like(theta)
    with torch.no_grad():
        here, there = objective.outputs(theta), objective.outputs(other)
        off, allowed = 0.0, 0.0
        for a in LINES:
            found = objective.outputs(a * other + (1 - a) * theta)
            off = max(off, float((found - a * there - (1 - a) * here).abs().max()))
            allowed = max(allowed, *(float(rounding(outputs)) for outputs in (here, there, found)))
    objective.meter.passes += 2 + len(LINES)
    return off, allowed


def _constants(model: nn.Module) -> tuple[str, ...]:
    """What the model holds beside its trained parameters, which no certificate covers."""
    known = trained(model)
    frozen = [name for name, _ in model.named_parameters() if name not in known]
    buffers = [name for name, value in model.named_buffers() if value.is_floating_point()]
    if not frozen and not buffers:
        return ()
    names = ", ".join([*frozen, *buffers][:4]) + (", …" if len(frozen) + len(buffers) > 4 else "")
    return (
        f"of the trained parameters only: {names} are taken as constants that know nothing of the graph; what a frozen "
        "encoder gives on the remaining graph was computed anew",
    )
