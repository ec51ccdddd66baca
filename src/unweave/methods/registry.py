"""Find methods by name. Third parties add theirs with :func:`register` or a package entry point."""

import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib.metadata import entry_points
from typing import Any, TypeVar

from unweave.errors import MethodError, UnweaveWarning
from unweave.methods.base import Method
from unweave.training.recipe import Recipe

__all__ = ["available", "make", "parse", "read_options", "register"]

ENTRY_POINTS = "unweave.methods"
KEPT = ("prepared", "checkpoints", "calibration", "receipts", "trainer")
"""What a run keeps for its methods."""

_METHODS: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


def register(method: M) -> M:
    """Class decorator: make a method known by its ``name``.

    A package can do the same without an import by the user, with an entry point in the group
    ``unweave.methods`` that refers to the class.
    """
    known = _METHODS.get(method.name)
    if known is not None and known is not method:
        raise MethodError(f"a method named {method.name!r} is registered already: {known.__module__}.{known.__name__}")
    _METHODS[method.name] = method
    return method


def available() -> list[str]:
    """Names of all methods, sorted."""
    _load_entry_points()
    return sorted(_METHODS)


def make(method: str | Method, options: dict[str, Any], recipe: Recipe | None = None) -> Method:
    """Build a method from its name and options, or complete one that is built already.

    Args:
        method: Name or instance.
        options: Fields of the method; for an instance only what a run keeps and it has none of.
        recipe: How the model was trained, where that is known.
    """
    if isinstance(method, Method):
        return _completed(method, dict(options), recipe)
    if method not in _METHODS:
        _load_entry_points()
    if method not in _METHODS:
        hint = "; give options apart from the name (-o name=value)" if "(" in method else ""
        raise MethodError(f"unknown method {method!r}; known: {', '.join(available())}{hint}")
    cls = _METHODS[method]
    known = [f.name for f in fields(cls)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        takes, moved = ", ".join(known) or "no options", cls.gone.get(unknown[0])
        more = f" any more: {moved}; {method!r} takes" if moved else "; it takes"
        raise MethodError(f"method {method!r} does not take {unknown[0]!r}{more} {takes}")
    return cls(**options) if recipe is None else cls.from_recipe(recipe, **options)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Read a method with its options, e.g. ``gif(steps=3)``."""
    name, opened, rest = text.strip().partition("(")
    if bool(opened) != text.strip().endswith(")") or (opened and not rest[:-1].strip()):
        raise MethodError(f"cannot read the method {text!r}; write a name, or a name(option=value, …)")
    return name.strip(), read_options(rest[:-1].split(",")) if opened else {}


def read_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs: whole numbers, then numbers, then text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = (part.strip() for part in pair.partition("="))
        if not separator or not name:
            raise MethodError(f"cannot read the option {pair.strip()!r}; write name=value, e.g. damping=10")
        if name in options:
            raise MethodError(f"the option {name!r} is given twice")
        for read in (int, float, str):
            try:
                options[name] = read(text)
                break
            except ValueError:
                continue
    return options


def ready_for(method: str | Method, **kept: object) -> dict[str, Any]:
    """Of what a run keeps (:data:`KEPT`), what a method takes; an instance takes what it has none of."""
    if isinstance(method, str) and method not in _METHODS:
        _load_entry_points()
    cls = _METHODS.get(method) if isinstance(method, str) else type(method)
    takes = set() if cls is None else {f.name for f in fields(cls)}
    wanted = {name: value for name, value in kept.items() if name in takes and value is not None}
    return {name: value for name, value in wanted.items() if isinstance(method, str) or not getattr(method, name)}


def _completed(method: Method, given: dict[str, Any], recipe: Recipe | None) -> Method:
    """A method that was built by hand, with what it has none of; all else goes into it when it is built."""
    takes = {f.name for f in fields(method)}
    wrong = [name for name in given if name not in KEPT or name not in takes or getattr(method, name)]
    if wrong:
        raise MethodError(f"options {sorted(wrong)} go into the method itself: {type(method).__name__}(…)")
    if recipe is None or ("recipe" in takes and getattr(method, "recipe", None) is not None):
        return replace(method, **given) if given else method
    trains = [name for name in ("epochs", "lr") if name in takes]
    if any(getattr(method, name) not in (None, getattr(recipe, name)) for name in trains):
        given.pop("checkpoints", None)  # they are states of another training than the one it does
    said = {f.name: value for f in fields(method) if (value := getattr(method, f.name)) is not f.default}
    return type(method).from_recipe(recipe, **said | given)


def _load_entry_points() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in _METHODS:
            continue
        try:
            register(entry.load())
        except Exception as error:  # somebody else's package must not take every other method down
            text = f"the method {entry.name!r} of {entry.value} cannot be loaded: {error}"
            warnings.warn(text, UnweaveWarning, stacklevel=2)
