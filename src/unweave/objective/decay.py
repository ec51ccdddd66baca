"""Weight decay: what the user says of it, and what it is for every entry of the parameters.

The objective has a term ½ Σ_k w_k θ_k² beside the *mean* loss. ``w`` is the ``weight_decay`` of optimisers that add
w·θ to the gradient (SGD, Adam and most others). AdamW takes lr·λ·θ off apart from its step instead: it stands still
where ∇ + λ (√v̂ + ε) θ = 0, so that of its λ an entry has w = λ (√v̂ + ε), with the v̂ that training ended with.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from unweave._core.digest import tensor_digest
from unweave.errors import ModelError
from unweave.objective.parameters import trained, unflatten

__all__ = [
    "AnyDecay",
    "EntryDecay",
    "WeightDecay",
    "as_weight_decay",
    "decay_to_json",
    "decay_vector",
    "decays",
    "decays_in",
    "groups_of",
]

L2 = ("SGD", "Adam", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "LBFGS", "Rprop")
"""Optimisers of torch whose weight_decay is added to the gradient, or that have none."""


@dataclass(frozen=True, eq=False)
class EntryDecay:
    """A weight decay for every entry of the parameters: what AdamW's decoupled decay amounts to.

    Attributes:
        values: By name of the parameter, in its shape, on the CPU.
        source: Where it is from, in words.
    """

    values: Mapping[str, Tensor] = field(repr=False)
    source: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntryDecay) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def digest(self) -> str:
        """SHA-256 of the values."""
        return tensor_digest(sorted(self.values.items()))

    def to_tensors(self) -> dict[str, Tensor]:
        """The values, to be stored beside :func:`decay_to_json`."""
        return {name: value.contiguous() for name, value in self.values.items()}


WeightDecay = float | Mapping[str, float] | EntryDecay
"""One number for all parameters, numbers by name of a parameter or module (what is not named has none), or one number
for each entry. Public entries take a torch optimiser as well (:func:`as_weight_decay`)."""


AnyDecay = WeightDecay | torch.optim.Optimizer
"""What public entries take as ``weight_decay=``."""


def as_weight_decay(weight_decay: AnyDecay, model: nn.Module) -> WeightDecay:
    """What the user gave, checked and as a value that can be kept: an optimiser is asked for what it did.

    The translation of AdamW is exact where training ended with gradients that average to nothing and with v̂ settled;
    after a short training, or while the learning rate still fell, it is the objective that training was heading for.

    Args:
        weight_decay: A number, numbers by name, or the torch optimiser that trained the model, after training.
        model: The model it belongs to.

    Raises:
        ModelError: It cannot be the weight decay of this model, or the optimiser does not tell it.
    """
    if isinstance(weight_decay, torch.optim.Optimizer):
        return _of_optimiser(weight_decay, model)
    _by_name(weight_decay, model)
    return dict(weight_decay) if isinstance(weight_decay, Mapping) else weight_decay


def decay_vector(model: nn.Module, weight_decay: WeightDecay) -> Tensor:
    """One weight decay for each entry of the parameters, as one vector."""
    values = _by_name(weight_decay, model)
    return torch.cat([_full(p, values[n]).reshape(-1) for n, p in trained(model).items()])


def decays(model: nn.Module, weight_decay: WeightDecay) -> list[float | str]:
    """The weight decay of each trained parameter as its type has it, to compare; that of entries as a digest."""
    values = _by_name(weight_decay, model)
    return [
        _told([value.to(p.dtype)])[0]
        if isinstance(value := values[name], Tensor)
        else torch.tensor(value, dtype=p.dtype).item()
        for name, p in trained(model).items()
    ]


def decays_in(model: nn.Module, decay: Tensor) -> list[float | str]:
    """The same of a vector (:func:`decay_vector`)."""
    return _told(list(unflatten(model, decay).values()))


def _told(pieces: list[Tensor]) -> list[float | str]:
    """Each as one number where all entries have the same, as a digest otherwise."""
    ends = torch.stack([torch.stack(torch.aminmax(p)) if p.numel() else p.new_zeros(2) for p in pieces]).tolist()
    return [
        low if low == high else tensor_digest([("", piece)]) for (low, high), piece in zip(ends, pieces, strict=True)
    ]


def groups_of(model: nn.Module, weight_decay: float | Mapping[str, float]) -> list[dict[str, Any]]:
    """The trained parameters as the groups of an optimiser, one for each weight decay there is."""
    groups: dict[float, list[nn.Parameter]] = {}
    values = _by_name(weight_decay, model)
    for name, parameter in trained(model).items():
        groups.setdefault(float(values[name]), []).append(parameter)
    return [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]


def decay_to_json(weight_decay: WeightDecay) -> Any:
    """For receipts and files: the number, the numbers by name, or where one for each entry is from."""
    if isinstance(weight_decay, EntryDecay):
        return {"source": weight_decay.source, "digest": weight_decay.digest}
    return dict(weight_decay) if isinstance(weight_decay, Mapping) else float(weight_decay)


def _by_name(weight_decay: WeightDecay, model: nn.Module) -> Mapping[str, float | Tensor]:
    """The decay of each trained parameter, checked."""
    names = trained(model)
    if isinstance(weight_decay, EntryDecay):
        wrong = next((n for n, p in names.items() if _shape(weight_decay, n) != tuple(p.shape)), None)
        if wrong is not None:
            shapes = f"{_shape(weight_decay, wrong)} there and {tuple(names[wrong].shape)} here"
            raise ModelError(f"the weight decay ({weight_decay.source}) is of another model: {wrong!r} is {shapes}")
        return weight_decay.values
    if isinstance(weight_decay, Mapping):
        for key in weight_decay:
            if not any(_under(name, key) for name in names):
                raise ModelError(
                    f"weight_decay names {key!r}, which is no parameter or module of the model: {list(names)}"
                )
        keys = sorted(weight_decay, key=len)  # the longest name that fits a parameter is the one that counts
        values = {n: ([0.0] + [weight_decay[k] for k in keys if _under(n, k)])[-1] for n in names}
    else:
        if not hasattr(weight_decay, "__float__"):  # a string has none
            raise ModelError(
                "weight_decay must be a number, a mapping by name or the torch optimiser that trained the model, got "
                f"{weight_decay!r}"
            )
        values = dict.fromkeys(names, float(weight_decay))
    if any(not 0 <= value < math.inf for value in values.values()):
        raise ModelError(f"weight_decay must be a finite number of at least 0, got {weight_decay!r}")
    return values


def _of_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module) -> WeightDecay:
    """The weight decay that an optimiser applied to the parameters of a model."""
    name = type(optimiser).__name__
    groups = {id(parameter): group for group in optimiser.param_groups for parameter in group["params"]}
    missing = [name for name, parameter in trained(model).items() if id(parameter) not in groups]
    if missing:
        raise ModelError(
            f"the optimiser given as weight_decay= does not hold the parameter {missing[0]!r} of the model; give the "
            "one that trained this very model, and freeze what it did not train: requires_grad_(False). Of a copy, or "
            "of an average of weights, give the weight decay as a number"
        )
    mine = {name: (parameter, groups[id(parameter)]) for name, parameter in trained(model).items()}
    if any(_decoupled(name, group) and group["weight_decay"] for _, group in mine.values()):
        return _of_adamw(optimiser, mine)
    if not any(type(optimiser) is getattr(torch.optim, known) for known in (*L2, "AdamW")):
        raise ModelError(
            f"what the weight_decay of {name} does to the objective is not known; give it as a number or by name, as "
            "the w of a term ½·w·θ² beside the mean loss, or 0 where there was none"
        )
    values = {name: float(group.get("weight_decay", 0.0)) for name, (_, group) in mine.items()}
    return next(iter(values.values())) if len(set(values.values())) == 1 else values


def _decoupled(name: str, group: Mapping[str, Any]) -> bool:
    return name == "AdamW" or bool(group.get("decoupled_weight_decay"))


def _of_adamw(optimiser: torch.optim.Optimizer, mine: Mapping[str, tuple[nn.Parameter, dict[str, Any]]]) -> EntryDecay:
    """λ (√v̂ + ε) for every entry."""
    if type(optimiser) not in (torch.optim.AdamW, torch.optim.Adam):
        raise ModelError(
            f"the decoupled weight decay of {type(optimiser).__name__} cannot be translated, AdamW's can; give numbers"
        )
    values = {}
    for name, (parameter, group) in mine.items():
        state = optimiser.state.get(parameter, {})
        if group["weight_decay"] and "exp_avg_sq" not in state:
            raise ModelError(
                f"AdamW's weight decay depends on what it has learnt of the gradients, and it has learnt nothing of "
                f"{name!r}; give the optimiser after training (or load its state_dict), or weight_decay=0 where "
                "lr · weight_decay · steps is far below 1, so that it did nothing"
            )
        if not group["weight_decay"]:
            values[name] = torch.zeros_like(parameter, device="cpu")
            continue
        square = state.get("max_exp_avg_sq", state["exp_avg_sq"]).detach()
        corrected = square / (1 - group["betas"][1] ** float(state["step"]))
        values[name] = (group["weight_decay"] * (corrected.sqrt() + group["eps"])).cpu()
    decay = sorted({float(group["weight_decay"]) for _, group in mine.values()})
    return EntryDecay(values, f"AdamW, {' and '.join(f'{w:g}' for w in decay)} times (√v̂ + ε) of every entry")


def _full(parameter: Tensor, value: float | Tensor) -> Tensor:
    return value.to(parameter) if isinstance(value, Tensor) else torch.full_like(parameter, value)


def _shape(decay: EntryDecay, name: str) -> tuple[int, ...] | None:
    return tuple(decay.values[name].shape) if name in decay.values else None


def _under(name: str, key: str) -> bool:
    return name == key or name.startswith(key + ".")
