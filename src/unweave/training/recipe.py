"""How a model was trained, as far as it is known: by a recipe of ours, by a trainer of the user's, or unknown.

Nothing is ever invented: what has to train (retrain, finetune, calibrate, rehearse, audit) calls
:meth:`Training.require` before any work, which refuses where nobody said how.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from unweave.certificate.gaussian import check_promise
from unweave.errors import MethodError, ModelError
from unweave.objective.decay import EntryDecay, WeightDecay, decay_to_json
from unweave.training.checkpoints import Trainer

__all__ = ["AnyTrainer", "Recipe", "Training"]

AnyTrainer = Trainer | Callable[..., object]
"""A function of (model, data) that trains the model in place, or one that can stop and go on (:class:`Trainer`)."""

HOW = (
    "give trainer=, your own function of (model, data) that trains the model in place (or its import path, "
    "'package.module:function'), or recipe=unweave.Recipe(…) if it was trained by full-batch Adam"
)


@dataclass(frozen=True)
class Recipe:
    """A training by unweave: full-batch Adam on the mean loss of the training nodes.

    Attributes:
        seed: Decides the initial weights and the dropout stream.
        epochs: Full-batch epochs.
        lr: Learning rate.
        weight_decay: Adam's ``weight_decay``: one number, or numbers by name of a parameter or module
            (``{"conv1": 5e-4}``; what is not named has none).
        forgettable: Whether training ends at a minimum of the objective (:mod:`unweave.training.polish`).
        certify: (ε, δ) of a model trained for certified removal (:mod:`unweave.certificate.release`). It is trained
            to the minimum whatever seed, epochs and learning rate are.
    """

    seed: int = 0
    epochs: int = 100
    lr: float = 0.01
    weight_decay: float | Mapping[str, float] = 1e-4
    forgettable: bool = False
    certify: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.certify is not None:
            object.__setattr__(self, "certify", check_promise(*self.certify))
        if isinstance(self.weight_decay, Mapping):
            object.__setattr__(self, "weight_decay", dict(self.weight_decay))
        try:
            fine = self.epochs >= 1 and 0 < self.lr < math.inf and _numbers(self.weight_decay)
        except TypeError:
            fine = False
        if not fine:
            raise ModelError(f"epochs and lr must be positive and weight_decay at least 0, got {self}")


@dataclass(frozen=True)
class Training:
    """How a model was trained, as far as it is known.

    Attributes:
        weight_decay: What it was trained with, as :func:`unweave.objective.decay.as_weight_decay` gives it.
        recipe: Ours, where it was trained by that.
        trainer: The user's own, a function or its import path ``"package.module:function"``. With a recipe beside it
            the trainer trains, and the recipe says for how many epochs.
        lost: Which trainer there was that could not be stored, in words.
    """

    weight_decay: WeightDecay
    recipe: Recipe | None = None
    trainer: AnyTrainer | str | None = None
    lost: str | None = None

    def __post_init__(self) -> None:
        if self.recipe is not None and not isinstance(self.recipe, Recipe):
            raise ModelError(f"recipe must be an unweave.Recipe, got {type(self.recipe).__name__}")
        if isinstance(self.weight_decay, Mapping):
            object.__setattr__(self, "weight_decay", dict(self.weight_decay))
        if not isinstance(self.weight_decay, EntryDecay) and not _numbers(self.weight_decay):
            raise ModelError(f"weight_decay must be numbers of at least 0, got {self.weight_decay!r}")
        if self.recipe is not None and self.trainer is None and self.recipe.weight_decay != self.weight_decay:
            raise ModelError(
                f"weight_decay={self.weight_decay!r} is not that of the recipe, {self.recipe.weight_decay!r}"
            )
        if isinstance(self.trainer, str):
            _parts(self.trainer)
        elif self.trainer is not None and not callable(self.trainer):
            raise ModelError(
                f"trainer must be a function of (model, data) or its import path 'package.module:function', got "
                f"{type(self.trainer).__name__}"
            )

    @classmethod
    def by(cls, recipe: Recipe) -> "Training":
        """A training by a recipe of ours."""
        return cls(recipe.weight_decay, recipe)

    @property
    def known(self) -> bool:
        """Whether the model could be trained again."""
        return self.recipe is not None or self.trainer is not None

    def require(self, what: str) -> None:
        """Refuse what has to train where it is not known how.

        Args:
            what: What needs it, as the beginning of a sentence: ``"method 'retrain'"``.

        Raises:
            MethodError: It is not known.
        """
        if self.known:
            return
        was = f" (it was trained by {self.lost}, which could not be stored)" if self.lost else ""
        raise MethodError(f"{what} needs to know how the model was trained, and nobody said so{was}; {HOW}")

    def resolve_trainer(self) -> AnyTrainer | None:
        """The user's own trainer; one that is given by its import path is imported now, and not before."""
        if not isinstance(self.trainer, str):
            return self.trainer
        module, names = _parts(self.trainer)
        try:
            found: Any = import_module(module)
            for name in names:
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            raise MethodError(
                f"the trainer {self.trainer!r} cannot be imported: {error}; put its module on PYTHONPATH, or give "
                "trainer= another path or the function itself"
            ) from error
        if not callable(found):
            raise MethodError(f"the trainer {self.trainer!r} is a {type(found).__name__}, not a function")
        return found  # type: ignore[no-any-return]

    @property
    def called(self) -> str | None:
        """What the trainer is called, where there is one."""
        return self.trainer if isinstance(self.trainer, str | None) else _called(self.trainer)

    @property
    def path(self) -> str | None:
        """The import path of the trainer, where it has one: only that can be stored."""
        if self.trainer is None or isinstance(self.trainer, str):
            return self.trainer
        module, name = getattr(self.trainer, "__module__", None), getattr(self.trainer, "__qualname__", None)
        found: Any = sys.modules.get(module) if module not in (None, "__main__") and name else None
        for part in (name or "").split("."):
            found = getattr(found, part, None)
        return f"{module}:{name}" if found is self.trainer else None

    @property
    def unstorable(self) -> str | None:
        """What is lost when this is stored, in words, and what to do; ``None`` where nothing is."""
        if self.trainer is None or self.path is not None:
            return None
        return (
            f"the trainer {_called(self.trainer)} cannot be stored: it is no function of a module that can be imported "
            "(a lambda, a closure, or of a script); move it into one, or give its import path 'package.module:function'"
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON document; a trainer that cannot be stored is named only (:attr:`unstorable`).

        What is one number for each entry of the parameters goes beside it (:meth:`to_tensors`).
        """
        return {
            "weight_decay": decay_to_json(self.weight_decay),
            "by_entry": isinstance(self.weight_decay, EntryDecay),
            "recipe": None if self.recipe is None else asdict(self.recipe),
            "trainer": self.path,
            "lost": _called(self.trainer) if self.unstorable else self.lost,
        }

    def to_tensors(self) -> dict[str, Tensor]:
        """The weight decay of each entry, where there is one for each; otherwise nothing."""
        return self.weight_decay.to_tensors() if isinstance(self.weight_decay, EntryDecay) else {}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> "Training":
        """Read what :meth:`to_dict` and :meth:`to_tensors` wrote; nothing is imported.

        Raises:
            ModelError: It is not what was written.
        """
        try:
            decay, recipe = document["weight_decay"], document["recipe"]
            if document["by_entry"]:
                stored, decay = decay, EntryDecay(dict(tensors or {}), str(decay["source"]))
                if decay.digest != stored["digest"]:
                    raise ModelError("the weight decay of each entry is missing, or not the one that was written")
            trainer, lost = document["trainer"], document["lost"]
            if not all(isinstance(text, str | None) for text in (trainer, lost)):
                raise ModelError(f"a trainer is stored by its import path, got {trainer!r} and {lost!r}")
            return cls(decay, None if recipe is None else Recipe(**recipe), trainer, lost)
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"this does not say how a model was trained: {error!r}") from error


def _numbers(weight_decay: object) -> bool:
    """Whether something is a finite number of at least 0, or some of them by name."""
    values = weight_decay.values() if isinstance(weight_decay, Mapping) else [weight_decay]
    names = weight_decay if isinstance(weight_decay, Mapping) else ()
    return all(isinstance(name, str) for name in names) and all(
        hasattr(value, "__float__") and 0 <= float(value) < math.inf for value in values
    )


def _parts(path: str) -> tuple[str, list[str]]:
    """Module and names of an import path."""
    module, colon, names = path.partition(":")
    words = [*module.split("."), *names.split(".")]
    if not colon or not all(word.isidentifier() for word in words):
        raise ModelError(f"a trainer is given by an import path 'package.module:function', got {path!r}")
    return module, names.split(".")


def _called(trainer: object) -> str:
    return str(getattr(trainer, "__qualname__", type(trainer).__name__))
