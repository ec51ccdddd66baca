"""What the model after carries that its predictions do not show.

Tests ask a model. What lies in it unasked, the old weights in a buffer that nothing reads or a second model behind a
trigger, no question reaches. So the model after is laid beside the one before: its modules and their code, the names,
kinds and shapes of all parameters and buffers, those that are not saved too, and every tensor that hangs on a module in
another way. What it has more of is named, and every tensor that no test judges as a parameter is looked through for the
weights of before: value by value, in whatever order and shape, and by correlation, which finds rounded, scaled and
noisy copies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Carried", "look_into"]

FEWEST = 8
"""Distinct numbers of a parameter below which finding them elsewhere means nothing."""

SHARE = 0.25
"""Share of a parameter's numbers that are found elsewhere, bit for bit, which makes that a copy: of 23,000 numbers in
single precision about one in a thousand is found among as many others by chance."""

ALIKE, NEARER, SURE = 0.5, 0.1, 6.0
"""Correlation that makes a tensor alike to old weights, by how much it must exceed that with the new ones, and its
least size in standard deviations of what chance gives (1/√n)."""

EXACT = 4
"""Bytes of a number below which equal ones are no sign of a copy."""

MOST = 2000
"""Numbers of a parameter that are looked for: enough for its share, in models of any size."""

DEEPEST = 6
OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""

Kind = Literal["parameter", "buffer", "tensor"]


@dataclass(frozen=True)
class Carried:
    """What the model after has beside what the tests judge, in words.

    Attributes:
        more: What it has that the model before has not, and what is of other code, kind or shape.
        less: What it lacks.
        old: Where it holds weights of the model before, bit for bit.
        alike: Where it holds something like them.
        left: Buffers that are as before, though training without the data changes them.
    """

    more: tuple[str, ...] = ()
    less: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def unseen(self) -> bool:
        """Whether there is something that no test reaches."""
        return bool(self.more or self.alike)

    @property
    def notes(self) -> list[str]:
        """What the reader should know."""
        found = [f"the model after holds {text}: whoever has it has those" for text in self.old]
        found += [
            f"the model after holds something like {text}: a rounded or noisy copy, or what training on nearly the "
            "same data gives. No test tells which"
            for text in self.alike
        ]
        if self.more:
            found.append(
                f"the model after is not built as the one before: {'; '.join(self.more)}. No test reaches what that "
                "may hold or do on inputs that are not asked for, so that passing the tests says nothing about it"
            )
        if self.less:
            found.append(
                f"the model after lacks {', '.join(self.less)}. All models to compare with are built as the one "
                "before: what this one does differently may come from that, whatever the verdict"
            )
        if self.left:
            found.append(
                f"left as before, though training without the deleted data changes it: {', '.join(self.left)}. Where "
                "predictions do not depend on it, no test asks about it"
            )
        return found


@dataclass(frozen=True)
class _Contents:
    """Everything that a model holds, by name."""

    modules: dict[str, type]
    tensors: dict[str, tuple[Kind, Tensor]]
    others: set[str]

    def parameters(self) -> dict[str, Tensor]:
        return {name: value for name, (kind, value) in self.tensors.items() if kind == "parameter"}


def look_into(before: nn.Module, after: nn.Module, retrained: nn.Module | None = None) -> Carried:
    """Lay a model beside the one it was made from.

    Args:
        before: The model before.
        after: The model after.
        retrained: One that was trained without the data.
    """
    old, new = _contents(before), _contents(after)
    fresh = {} if retrained is None else dict(retrained.named_buffers())
    left = [
        f"buffer {name!r}"
        for name, (kind, value) in new.tensors.items()
        if kind == "buffer" and _same(value, old.tensors.get(name, ("", None))[1])
        if name in fresh and value.is_floating_point() and not _same(value, fresh[name])
    ]
    copies, alike = _copies(old, new)
    return Carried(tuple(_more(old, new)), tuple(_less(old, new)), tuple(copies), tuple(alike), tuple(left))


def _contents(model: nn.Module) -> _Contents:
    modules: dict[str, type] = {}
    tensors: dict[str, tuple[Kind, Tensor]] = {}
    others: set[str] = set()
    for path, module in model.named_modules(remove_duplicate=False):
        modules[path] = type(module)
        kinds: tuple[tuple[Kind, Mapping[str, Any]], ...] = (
            ("parameter", dict(module.named_parameters(recurse=False, remove_duplicate=False))),
            ("buffer", dict(module.named_buffers(recurse=False, remove_duplicate=False))),
        )
        for kind, held in kinds:
            tensors |= {_join(path, name): (kind, value) for name, value in held.items() if value is not None}
        for name, value in vars(module).items():
            if name in OWN:
                others |= {_join(path, f"{name}[{n}]") for n in range(len(value))} if "hooks" in name else set()
                continue
            others.add(_join(path, name))
            for where, found in _tensors_in(value, set()):
                tensors[_join(path, f"{name}{where}")] = "tensor", found
    for name, value in model.state_dict().items():
        if name not in tensors:  # what a module saves of itself beside its tensors
            others.add(name)
            tensors |= {f"{name}{where}": ("tensor", found) for where, found in _tensors_in(value, set())}
    return _Contents(modules, tensors, others)


def _tensors_in(value: Any, seen: set[int], depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Tensors in whatever hangs on a module."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        yield "", value
        return
    if depth > DEEPEST or id(value) in seen or isinstance(value, type | ModuleType | FunctionType | MethodType):
        return
    seen.add(id(value))
    parts: Iterator[tuple[Any, Any]]
    if isinstance(value, nn.Module):
        parts = iter({**dict(value.named_parameters()), **dict(value.named_buffers())}.items())
    elif isinstance(value, Mapping):
        parts = iter(value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        parts = enumerate(value)
    else:
        parts = iter(getattr(value, "__dict__", {}).items())
    for key, part in parts:
        for where, found in _tensors_in(part, seen, depth + 1):
            yield f"[{key}]{where}", found


def _more(old: _Contents, new: _Contents) -> Iterator[str]:
    """What the second has that the first has not."""
    added = {path for path in new.modules if path not in old.modules}
    for path, made in new.modules.items():
        if path in added:
            if path.rpartition(".")[0] not in added:
                yield f"it has a module {path!r} ({made.__qualname__})"
        elif not _alike(made, old.modules[path]):
            was, now = old.modules[path].__qualname__, made.__qualname__
            what = "it" if path == "" else f"{path!r}"
            yield f"{what} is a {now} {'of other code' if was == now else f'and was a {was}'}"
    for name, (kind, value) in new.tensors.items():
        if name.rpartition(".")[0] in added:
            continue
        shape = list(value.shape)
        if name not in old.tensors:
            yield f"it has a {kind} {name!r} of shape {shape}"
        elif old.tensors[name][0] != kind:
            yield f"{name!r} is a {kind} and was a {old.tensors[name][0]}"
        elif kind != "tensor" and old.tensors[name][1].shape != value.shape:
            yield f"the {kind} {name!r} has the shape {shape} and had {list(old.tensors[name][1].shape)}"
    for name in sorted(new.others - old.others):
        if name.rpartition(".")[0] not in added and name not in new.tensors:
            yield f"it has {'a hook' if 'hooks[' in name else 'an attribute'} {name!r}"


def _less(old: _Contents, new: _Contents) -> Iterator[str]:
    """What the first has and the second lacks."""
    gone = {path for path in old.modules if path not in new.modules}
    yield from (f"module {path!r}" for path in gone if path.rpartition(".")[0] not in gone)
    for name, (kind, _) in old.tensors.items():
        if kind != "tensor" and name not in new.tensors and name.rpartition(".")[0] not in gone:
            yield f"{kind} {name!r}"


def _alike(one: type, other: type) -> bool:
    """Whether two classes are the same, or were made twice of the same code, as when a notebook's cell is run again."""
    if one is other:
        return True
    pairs = list(zip_longest(one.__mro__, other.__mro__))
    return all(a is b or (a is not None and b is not None and _code(a) == _code(b)) for a, b in pairs)


def _code(kind: type) -> list[Any]:
    """The name of a class and what its own functions do; its source would be looked up by the name alone."""
    found = [getattr(value, "fget", None) or getattr(value, "__func__", value) for value in vars(kind).values()]
    return [kind.__qualname__, [_steps(value.__code__) for value in found if isinstance(value, FunctionType)]]


def _steps(code: CodeType) -> tuple[Any, ...]:
    constants = [_steps(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return code.co_name, code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _copies(old: _Contents, new: _Contents) -> tuple[list[str], list[str]]:
    """Where weights of the first, and such as are like them, lie in the second beside what took their place."""
    copies, alike = [], []
    was, now = old.parameters(), new.parameters()
    moved = {name: value for name, value in was.items() if name not in now or not _same(value, now[name])}
    wanted: dict[tuple[str, torch.dtype], np.ndarray] = {}
    for name, (kind, value) in new.tensors.items():
        held = []
        if value.is_floating_point() and value.element_size() >= EXACT:
            numbers = np.unique(_numbers(value))
            for other, weights in moved.items():
                key = other, value.dtype
                if key not in wanted:
                    wanted[key] = _telling(weights, now.get(other), value.dtype)
                if other != name and _share(wanted[key], numbers) >= SHARE:
                    held.append(other)
        if held:
            copies.append(f"the old weights of {_names(held)} in the {kind} {name!r}")
        elif (kind != "parameter" or name not in was) and (found := _correlated(value, moved, now)):
            alike.append(f"the old weights of {found[0]!r} in the {kind} {name!r} (correlation {found[1]:.2f})")
    return copies, alike


def _telling(weights: Tensor, now: Tensor | None, dtype: torch.dtype) -> np.ndarray:
    """Of some weights numbers that occur once and are no longer in their place, as another type has them."""
    numbers, count = np.unique(_numbers(weights.to(dtype)), return_counts=True)
    known = np.empty(0) if now is None else _numbers(now.to(dtype))
    numbers = numbers[(count == 1) & ~np.isin(numbers, known)]
    found: np.ndarray = numbers[:: max(1, numbers.size // MOST)]
    return found


def _share(wanted: np.ndarray, numbers: np.ndarray) -> float:
    """Of numbers those that are among others, which are in order; none where there are too few to tell."""
    if wanted.size < FEWEST or not numbers.size:
        return 0.0
    place = np.minimum(np.searchsorted(numbers, wanted), numbers.size - 1)
    return float((numbers[place] == wanted).mean())


def _correlated(value: Tensor, was: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> tuple[str, float] | None:
    """The weights that a tensor is alike to, where it is nearer to what they were than to what they are."""
    for name, weights in was.items():
        if weights.numel() != value.numel() or value.numel() < FEWEST:
            continue
        for shape in (value, value.t()) if value.dim() == 2 else (value,):
            found = abs(_correlation(shape, weights))
            same = name in now and now[name].numel() == value.numel()
            here = abs(_correlation(shape, now[name])) if same else 0.0
            if found >= max(ALIKE, SURE / value.numel() ** 0.5) and found > here + NEARER:
                return name, found
    return None


def _correlation(one: Tensor, other: Tensor) -> float:
    a, b = (_numbers(value) - _numbers(value).mean() for value in (one, other))
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size > 0 and np.isfinite(size) else 0.0


def _numbers(value: Tensor) -> np.ndarray:
    found: np.ndarray = value.detach().double().cpu().flatten().numpy()
    return found


def _same(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.equal(one.to(other.device, other.dtype), other)


def _names(names: list[str], most: int = 3) -> str:
    told = ", ".join(map(repr, names[:most]))
    return told if len(names) <= most else f"{told} and {len(names) - most} more"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
