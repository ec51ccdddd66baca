"""Per-node losses: what training minimises the mean of, and what may be asked of it.

A loss takes the outputs and targets of n nodes and returns n numbers. What else the library needs to know of it, it is
asked: whether outputs are scores of classes, whether it is convex in them, and what its mean divides by.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.errors import ModelError

__all__ = [
    "AnyLoss",
    "CrossEntropy",
    "Loss",
    "as_loss",
    "binary_cross_entropy",
    "cross_entropy",
    "known_loss",
    "mean_of",
    "squared_error",
    "with_slope",
]

Function = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Loss:
    """A per-node loss.

    Attributes:
        function: ``(outputs, targets) → [n]``, without a reduction over the nodes.
        name: What receipts call it; the function's own by default.
        classes: Whether outputs are scores of classes, of which a softmax makes probabilities, and labels are class
            numbers: what audit, calibration, rehearsal and the checks of classes ask for.
        convex: Whether it is convex in the outputs: what certificates ask for.
        unit: What it is measured in.
    """

    function: Function
    name: str = ""
    classes: bool = False
    convex: bool = False
    unit: str = "of loss"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ModelError(f"a loss is a function (outputs, targets) → [n], got {type(self.function).__name__}")
        if not self.name:
            own = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "name", own)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each node."""
        return self.function(outputs, targets)

    def __str__(self) -> str:
        return self.name

    @property
    def plain(self) -> bool:
        """Whether it is −log softmax(outputs)[target] and nothing else, whose derivatives are written out."""
        return False

    @property
    def fisher(self) -> bool:
        """Whether its curvature in the outputs is the Fisher information of the class probabilities."""
        return False

    @property
    def settings(self) -> dict[str, Any]:
        """What it is, as a JSON document, to store and to compare."""
        return {"name": self.name, "classes": self.classes, "convex": self.convex}

    def mass(self, targets: Tensor) -> float:
        """What the mean over these nodes divides by, as torch's reduction does: n, or the sum of their weights."""
        return float(targets.size(0))


class CrossEntropy(Loss):
    """Cross-entropy of a softmax; outputs may be logits or log-probabilities.

        ℓ_i = −(1 − ε) c_y log p_y − ε/C Σ_k c_k log p_k,        mass = Σ_i c_{y_i}

    Args:
        class_weights: c, one for each class; none by default.
        label_smoothing: ε.
    """

    def __init__(self, class_weights: Sequence[float] | Tensor | None = None, label_smoothing: float = 0.0) -> None:
        values = class_weights.tolist() if isinstance(class_weights, Tensor) else class_weights
        weights = None if values is None else tuple(float(value) for value in values)
        if weights is not None and not (weights and all(0 <= weight < math.inf for weight in weights)):
            raise ModelError(f"class_weights must be finite numbers of at least 0, one for each class, got {values!r}")
        if not 0 <= label_smoothing < 1:
            raise ModelError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing!r}")
        softmax = _Softmax(weights, float(label_smoothing))
        super().__init__(softmax, "cross_entropy", classes=True, convex=True, unit="nats")

    @property
    def _softmax(self) -> "_Softmax":
        assert isinstance(self.function, _Softmax)
        return self.function

    def __str__(self) -> str:
        told = {key: value for key, value in self.settings.items() if key in ("class_weights", "label_smoothing")}
        inner = ", ".join(f"{key}={value}" for key, value in told.items())
        return f"{self.name}({inner})" if inner else self.name

    @property
    def plain(self) -> bool:
        """Whether there are neither weights nor smoothing."""
        return self._softmax.weights is None and not self._softmax.smoothing

    @property
    def fisher(self) -> bool:
        """It is, whatever the smoothing; with class weights every node's counts as often as the node."""
        return True

    @property
    def settings(self) -> dict[str, Any]:
        """What it is, as a JSON document."""
        weights, smoothing = self._softmax.weights, self._softmax.smoothing
        return {
            **super().settings,
            **({} if weights is None else {"class_weights": list(weights)}),
            **({"label_smoothing": smoothing} if smoothing else {}),
        }

    def mass(self, targets: Tensor) -> float:
        """n, or the sum of the weights of the nodes' classes."""
        if self._softmax.weights is None:
            return super().mass(targets)
        return float(_tensor(self._softmax.weights, torch.float64, targets.device)[targets].sum())


@dataclass(frozen=True)
class _Softmax:
    """The function of :class:`CrossEntropy`."""

    weights: tuple[float, ...] | None
    smoothing: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weight = None if self.weights is None else _tensor(self.weights, outputs.dtype, outputs.device)
        return F.cross_entropy(outputs, targets, weight, reduction="none", label_smoothing=self.smoothing)


@lru_cache(maxsize=16)
def _tensor(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The weights where they are needed; made once, as a recording on a GPU can copy nothing from the CPU."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def _binary(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(dim=-1)


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    difference = outputs - targets.view_as(outputs)
    return difference.square().sum(dim=-1) / 2


cross_entropy = CrossEntropy()
"""−log softmax(outputs)[target]; outputs may be logits or log-probabilities."""

binary_cross_entropy = Loss(_binary, "binary_cross_entropy", convex=True, unit="nats")
"""Multi-label loss on logits, *summed* over the labels of a node; torch's own mean over the labels is another one."""

squared_error = Loss(_squared, "squared_error", convex=True)
"""½‖outputs − targets‖², for regression; targets may be given as a column or as a vector."""


@dataclass(frozen=True)
class _Torch:
    """A loss of torch that is a mean over nodes and over the outputs of a node: the latter alone."""

    function: Callable[..., Tensor]
    weights: tuple[float, ...] | None = None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        more = {} if self.weights is None else {"pos_weight": _tensor(self.weights, outputs.dtype, outputs.device)}
        found: Tensor = self.function(outputs, targets.view_as(outputs), reduction="none", **more)
        return found.reshape(found.size(0), -1).mean(dim=-1)


AnyLoss = Loss | Function | nn.Module
"""What public entries take as ``loss=``."""


def as_loss(loss: AnyLoss) -> Loss:
    """What the user gave as ``loss=``, as a :class:`Loss`.

    Args:
        loss: One already; a loss of torch (``nn.CrossEntropyLoss``, ``nn.NLLLoss``, ``nn.BCEWithLogitsLoss``,
            ``nn.MSELoss``, or their functions), whose mean is what was trained; or a function of one's own, of which
            nothing is known: say ``uw.Loss(function, classes=True, convex=False)`` where more is.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss | nn.BCEWithLogitsLoss | nn.MSELoss):
        return _of_torch(loss)
    if loss in (F.cross_entropy, F.nll_loss):
        return cross_entropy
    if loss is F.binary_cross_entropy_with_logits:
        return _of_torch(nn.BCEWithLogitsLoss())
    if loss is F.mse_loss:
        return _of_torch(nn.MSELoss())
    return Loss(loss)


def _of_torch(loss: nn.CrossEntropyLoss | nn.NLLLoss | nn.BCEWithLogitsLoss | nn.MSELoss) -> Loss:
    name = type(loss).__name__
    if loss.reduction == "sum":
        raise ModelError(
            f"{name}(reduction='sum') was given, and weight decay is here what goes with the mean loss; give the loss "
            "without reduction= and the weight_decay divided by the number of training nodes"
        )
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        if loss.ignore_index >= 0:
            raise ModelError(f"{name}(ignore_index={loss.ignore_index}): take these nodes out of train_mask instead")
        return CrossEntropy(loss.weight, getattr(loss, "label_smoothing", 0.0))
    if isinstance(loss, nn.MSELoss):
        return Loss(_Torch(F.mse_loss), name, convex=True)
    if loss.weight is not None:
        raise ModelError(f"{name}(weight=…) is not known here; give a function of your own, as uw.Loss(function)")
    positive = loss.pos_weight
    weights = None if positive is None else tuple(positive.reshape(-1).tolist())
    name += "" if weights is None else f"(pos_weight={list(weights)})"
    return Loss(_Torch(F.binary_cross_entropy_with_logits, weights), name, convex=True, unit="nats")


def known_loss(settings: Mapping[str, Any]) -> Loss | None:
    """The built-in loss of some :attr:`Loss.settings`; ``None`` where it is one of the user's own, who has to give it.

    Raises:
        ModelError: They are no settings of a loss.
    """
    try:
        more = {key: settings[key] for key in ("class_weights", "label_smoothing") if key in settings}
        builtin = (CrossEntropy(**more), binary_cross_entropy, squared_error)
    except (TypeError, ValueError) as error:
        raise ModelError(f"this does not describe a loss: {settings!r}") from error
    return next((loss for loss in builtin if loss.settings == settings), None)


def mean_of(losses: Tensor, mass: float) -> Tensor:
    """The mean of the losses of some nodes, of a given :meth:`Loss.mass`: what an optimiser sees."""
    return losses.mean() if mass == losses.size(0) else losses.sum() / mass


def with_slope(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each node and its derivative by the outputs; that of plain cross-entropy is written out."""
    if loss.plain:
        logs = F.log_softmax(outputs, dim=-1)
        chosen = targets[:, None]
        return -logs.gather(1, chosen)[:, 0], logs.exp().scatter_add_(1, chosen, torch.full_like(logs[:, :1], -1.0))
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        losses = loss(leaf, targets)
        (slope,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), slope
