"""Carry the influence step back to a checkpoint, and do the rest of the training again from there."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from unweave.checkpoints import Checkpoint, resume_at
from unweave.errors import MethodError
from unweave.methods.base import Expected, Outcome, Problem
from unweave.methods.gif import GIF
from unweave.methods.registry import register
from unweave.methods.replay import Replay
from unweave.objective import trained
from unweave.prepared import Prepared

__all__ = ["GIFReplay"]


@register
@dataclass(frozen=True)
class GIFReplay(Replay):
    """``replay`` from a checkpoint that was moved by what ``gif`` moves the trained model by.

    Replay undoes what came after the checkpoint and leaves what came before; an influence step undoes part of
    everything. θ_checkpoint + (θ_gif − θ0) has both: the step takes much of what the checkpoint remembers out of it,
    and the training from there on makes good what the step got wrong. It costs what the two cost together.

    Attributes:
        prepared: What :func:`unweave.prepare` computed, for the step.
    """

    name: ClassVar[str] = "gif-replay"
    prepared: Prepared | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prepared is not None and not isinstance(self.prepared, Prepared):
            raise MethodError(f"prepared must be what unweave.prepare gives, got {type(self.prepared).__name__}")

    def expect(self, problem: Problem) -> Expected:
        """What both expect together."""
        rest = super().expect(problem)
        if rest.anew:
            return rest
        step = GIF(prepared=self.prepared).expect(problem)
        most = None if step.most is None or rest.most is None else step.most + rest.most
        return replace(rest, how=f"{step.how}; then {rest.how}", least=step.least + rest.least, most=most)

    def forget(self, problem: Problem) -> Outcome:
        """Take the step, move every checkpoint by it, and replay."""
        if resume_at(self.share, self.epochs) == 0:
            return super().forget(problem)
        stepped = GIF(prepared=self.prepared).forget(problem)
        step = stepped.theta - problem.theta
        model = problem.remaining.model
        moved = tuple(_moved(state, model, step) for state in self.checkpoints)
        outcome = Replay.forget(replace(self, checkpoints=moved), problem)
        details = outcome.details | {"carried_step": float(step.norm())}
        warnings = (*stepped.warnings, *outcome.warnings)
        return replace(outcome, details=details, warnings=warnings, anew=False)


def _moved(state: Checkpoint, model: nn.Module, step: Tensor) -> Checkpoint:
    """A checkpoint whose weights have taken a step; optimiser and random numbers stay."""
    weights, at = dict(state.model), 0
    for name, parameter in trained(model).items():
        part = step[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
        if name in weights:  # what is missing is refused where it is restored
            weights[name] = weights[name] + part.to(weights[name])
    return replace(state, model=weights)
