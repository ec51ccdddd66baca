"""A training of one's own, in either form: a function of (model, data), or one that can stop and go on.

The second, a :class:`~unweave.training.checkpoints.Trainer` of (model, data, start, until), serves wherever the first
does. The first serves wherever a model is trained as a whole; what needs states of the training says so.
"""

from dataclasses import dataclass
from inspect import Parameter, Signature, signature

from torch import nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave.errors import MethodError
from unweave.training.adam import refuse_spoilt, spoil
from unweave.training.checkpoints import Trainer
from unweave.training.recipe import AnyTrainer, Training

__all__ = ["Own", "as_trainer", "refuse_bounded"]

BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

ERASED = (
    "trainer= is given a model whose weights were erased; it must draw them anew, e.g. by reset_parameters(), and "
    "train that model in place (what it returns is ignored)"
)


@dataclass(frozen=True, eq=False)
class Own:
    """A training of one's own.

    Attributes:
        function: As it was given.
        whole: Whether it can be called with (model, data) alone.
        states: Whether it can be called with (model, data, start, until).
        until: Epochs it trains for by itself, where it says so.
    """

    function: AnyTrainer
    whole: bool
    states: bool
    until: int | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))

    def train(self, model: nn.Module, data: Data, epochs: int | None = None) -> None:
        """Train a model in place from scratch; its weights are erased first, so that none is carried over.

        Args:
            model: The module.
            data: The graph.
            epochs: Those of the training, for a trainer that has to be told when to stop.
        """
        spoil(model)
        if self.whole:
            self.function(model, data)  # type: ignore[call-arg]
        elif epochs is None:
            raise MethodError(
                f"trainer= ({self.name}) has to be told when to stop, and how many epochs there were is not known; "
                "give its argument until a default, or recipe=unweave.Recipe(epochs=…) beside it"
            )
        else:
            self.function(model, data, None, epochs)
        refuse_spoilt(model, ERASED)

    def resumes(self, epochs: int | None) -> bool:
        """Whether it can stop and go on within a training of so many epochs."""
        return self.states and (not self.whole or self.until == epochs)

    def resumable(self, what: str) -> Trainer:
        """The trainer, for what needs states of the training.

        Args:
            what: What needs them, as the beginning of a sentence.

        Raises:
            MethodError: It cannot stop and go on.
        """
        if not self.states:
            raise MethodError(
                f"{what} goes on from a state of the training, and trainer= ({self.name}) takes (model, data) alone; "
                "write it as (model, data, start, until) that returns a Checkpoint (unweave.Trainer), or use "
                "method='retrain'"
            )
        return self.function  # type: ignore[return-value]  # by its arguments it is one


def as_trainer(trainer: AnyTrainer | str) -> Own:
    """What the user gave as ``trainer=``, by the arguments it takes; an import path is imported now.

    Raises:
        MethodError: It takes neither (model, data) nor (model, data, start, until).
    """
    if not isinstance(trainer, str) and not callable(trainer):
        raise MethodError(f"trainer must be a function of (model, data), got {type(trainer).__name__}")
    function = Training(0.0, trainer=trainer).resolve_trainer()
    assert function is not None
    try:
        takes = signature(function)
    except (TypeError, ValueError):  # written in another language: believed to be the simpler one
        return Own(function, whole=True, states=False)
    places = [p for p in takes.parameters.values() if p.kind in BY_PLACE]
    whole, states = _binds(takes, 2), _binds(takes, 4)
    if whole and len(places) >= 4:  # two of them may be left out: only their names tell what they are
        states = states and [p.name for p in places[2:4]] == ["start", "until"]
    if not whole and not states:
        raise MethodError(
            f"trainer= takes {takes}; it must take (model, data), or (model, data, start, until) where it can stop and "
            "go on (unweave.Trainer)"
        )
    until = places[3].default if states and len(places) >= 4 else None
    return Own(function, whole, states, until if isinstance(until, int) else None)


def _binds(takes: Signature, count: int) -> bool:
    """Whether so many arguments, given by place, are enough and not too many."""
    try:
        takes.bind(*range(count))
    except TypeError:
        return False
    return True


def refuse_bounded(trainer: AnyTrainer | str | None, memory_mib: object) -> None:
    """How much memory a training of one's own takes is not ours to bound."""
    if trainer is not None and ranks.joined():
        raise MethodError(
            "trainer= is given the whole graph, and is not ours to spread over ranks; " + ranks.without("")
        )
    if trainer is not None and memory_mib is not None:
        raise MethodError(
            "trainer= is given the whole graph, so memory_mib (--memory-mib) cannot bound what it takes; leave it out"
        )
