"""How requests are to be carried out: what :meth:`unweave.Run.forget` and :meth:`unweave.Run.preview` are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unweave.errors import MethodError
from unweave.methods import Method
from unweave.run.state import State

__all__ = ["Wish", "check_trainer"]

REPEATS = ("auto", "replay", "retrace", "retrain")
"""Methods that repeat the training, or some of it."""


@dataclass(frozen=True)
class Wish:
    """The arguments of :meth:`unweave.Run.forget`, beside the requests.

    Attributes:
        method: Name of a method, or a method; ``None`` for the usual one.
        allow_class_loss: Allow the last training node of a class to go.
        defer: Take one prepared step, to be verified later.
        memory_mib: What evaluating the model may hold at a time.
        purge: Purge the run when all requests are carried out.
        screen: Refuse a request that is out of the ordinary.
        strict: Refuse an answer that is worse than nothing, or none.
        in_place: Whether the new run takes the place of the one before.
        options: Options of the method.
    """

    method: str | Method | None = None
    allow_class_loss: bool = False
    defer: bool = False
    memory_mib: float | None = None
    purge: bool = False
    screen: bool = False
    strict: bool = False
    in_place: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def method_for(self, state: State) -> str | Method:
        """The method for a run, once all that can be refused without any work was.

        Where none is named it is ``"certified"`` for a run that was trained for that and ``"gif"`` for any other, for
        one request as for many: ``gif`` asks for nothing beside the model, where ``auto`` needs a calibration to be
        better. A budget or a wish (``budget``, ``at_least``) is for ``auto``.
        """
        if self.purge and self.defer:
            raise MethodError(
                "purge (--purge) computes the prepared state anew, which looks at the whole graph, and a deferred "
                "request does not; leave defer (--defer) out, or purge with a later request, which verifies this one"
            )
        if self.screen and self.memory_mib is not None:
            raise MethodError(
                "screening looks at the whole graph at once; leave screen (--screen) out, or memory_mib (--memory-mib)"
            )
        method = "auto" if self.method is None and {"budget", "at_least"} & set(self.options) else self.method
        recipe = state.training.recipe
        certified = recipe is not None and recipe.certify is not None
        if method is None and certified and self.defer:
            raise MethodError(
                "a deferred request cannot be certified, which this run was trained for; leave defer (--defer) out, or "
                "name method='gif' (--method gif) for a model that is not certified"
            )
        if method in REPEATS:
            check_trainer(state, self.options.get("trainer"))
        return ("certified" if certified else "gif") if method is None else method


def check_trainer(state: State, trainer: object) -> None:
    """A recipe is that of Adam; a training whose states are those of another loop is not repeated by it."""
    others = {name for kept in state.checkpoints for name, _ in kept.parts} - {"Adam"}
    if others and trainer is None and state.training.trainer is None:
        raise MethodError(
            f"this run was trained by a loop of its own: its checkpoints were taken with {', '.join(sorted(others))}, "
            "so that its recipe would train another model. In Python pass the trainer= that made it, to Run.forget or "
            "Run.calibrate; the command line cannot call it, and has methods that do not train (--method gif)"
        )
