"""Walk along the path of training from checkpoint to checkpoint, as it would have gone without what is removed.

Training moves θ by −P ∇L(θ) an epoch, where P is what its optimiser makes of a gradient. Without what is removed it
would have gone through θ + u, and u is moved by −P (∇L'(θ + u) − ∇L(θ)). That difference is taken at every checkpoint,
by one gradient on the remaining graph, and moves u over the epochs until the next at once. So long a step is stable
only where it is implicit, which the prepared curvature H makes it, with what every step has met added to it:

    Δu = −(H + λ/(k P))⁻¹ (∇L'(θ + u) − ∇L(θ))     over k epochs.

An influence step is the same from the last point of the path alone, as if training had rested there.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.curvature.solvers import LowRank
from unweave.errors import DivergenceError, MethodError
from unweave.methods.base import Expected, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.methods.replay import Replay
from unweave.objective.parameters import trained
from unweave.training.checkpoints import Checkpoint, in_order, resume_at
from unweave.training.path import NOT_WALKABLE, Motion, is_traced, motion_at, pull_at, walkable

__all__ = ["Retrace"]


@register
@dataclass(frozen=True)
class Retrace(Replay):
    """Move the last checkpoint to where training without the removed data would have had it, and replay from there.

    One gradient is taken at each checkpoint from ``share`` to ``end``, on the remaining graph, and compared with the
    one that pulled training on from there. It comes nearer than an influence step by as many gradients, because it asks
    what the removed data did all along the path and not at its last point alone. Checkpoints stay as they are: the next
    request walks the same path, for itself and all before it.

    Attributes:
        share: Where the walk begins: the latest checkpoint before the last ``share`` of the training.
        end: The share that is trained again at the end, from the latest checkpoint before it.
        steps: Take at most so many gradients, at checkpoints spread evenly; one at each where none is given.
        prepared: What :func:`unweave.prepare` computed, for the curvature.
    """

    name: ClassVar[str] = "retrace"
    rules: ClassVar[tuple[str, ...]] = ("walk",)
    share: float = 0.9
    end: float = 0.05
    steps: int | None = None
    prepared: Prepared | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prepared is not None and not isinstance(self.prepared, Prepared):
            raise MethodError(f"prepared must be what unweave.prepare gives, got {type(self.prepared).__name__}")
        if not (isinstance(self.end, int | float) and 0 < self.end <= self.share < 1):
            raise MethodError(
                f"end must be above 0 and at most share, and share below 1, got end={self.end!r} and "
                f"share={self.share!r}; the whole training is method='retrain'"
            )
        if self.steps is not None and not (type(self.steps) is int and self.steps >= 1):
            raise MethodError(f"steps must be a whole number of at least 1, got {self.steps!r}")

    def forget(self, problem: Problem) -> Outcome:
        """Walk to the last checkpoint, and replay from where that leads."""
        stations, model = self._stations(problem), problem.remaining.model
        assert self.prepared is not None
        ready = self.prepared.to(problem.meter.device)
        walk = _Walk(problem, ready.curvature, ready.mass or problem.original.mass, len(stations))
        motions = [motion_at(state, problem.remaining) for state in stations]
        for state, (before, after) in zip(stations, pairwise(motions), strict=False):
            walk.go(state, after, after.steps - before.steps)
        last = _moved(stations[-1], model, walk.u)
        outcome = Replay.forget(replace(self, share=self.end, checkpoints=(last,)), problem)
        point, nothing = problem.remaining.look(outcome.theta), problem.remaining_value
        if not point.value - nothing <= TUNING.walk.worse * abs(nothing):
            raise DivergenceError(
                f"the walk along the path of training went astray: the objective is {point.value:.4g}, and "
                f"{nothing:.4g} where nothing is done; use method='replay' or 'retrain', or train with "
                "more checkpoints"
            )
        steps = len(stations) - 1
        nearness = (
            f"{steps} gradients along the path of training, from epoch {stations[0].epoch} of {self.epochs}, moved the "
            f"state of epoch {last.epoch} to where it would have been without what was removed, and training went on "
            "from there. The distance to a retrained model was not measured here; unweave.compare measures it"
        )
        details = outcome.details | {
            "prepared": ready.when,
            "retraced_from": stations[0].epoch,
            "steps": steps,
            "pulled_back": walk.pulled_back,
            "caution": walk.caution,
            "moved": float(walk.u.norm()),
        }
        known = in_order(self.checkpoints)
        return replace(outcome, details=details, nearness=nearness, point=point, checkpoints=known, anew=False)

    @property
    def passes(self) -> float:
        """Two for each gradient of the walk and for each epoch at the end."""
        known = in_order(self.checkpoints)
        ends = [0 if start is None else start.epoch for start in self._ends(known)]
        stations = _spread([state for state in known if ends[0] <= state.epoch <= ends[1]], self.steps)
        polish = TUNING.polish.usual if self._polishes else 0
        return 2 * (len(stations) - 1 + self._until - ends[1] + polish)

    def _ends(self, known: tuple[Checkpoint, ...]) -> list[Checkpoint | None]:
        """The states at which the walk begins and ends."""
        return [replace(self, share=share)._start(known) for share in (self.share, self.end)]

    def expect(self, problem: Problem) -> Expected:
        """Two passes for each gradient of the walk and for each epoch at the end."""
        stations = self._stations(problem)
        for state in stations:
            motion_at(state, problem.remaining)
        known = Replay.expect(
            replace(self, share=self.end, checkpoints=(replace(stations[-1], gradient=None),)), problem
        )
        steps = len(stations) - 1
        most = None if known.most is None else known.most + 2 * steps
        how = f"{steps} gradients along the path of training from epoch {stations[0].epoch}; then {known.how}"
        kept = in_order(self.checkpoints)
        return replace(known, how=how, least=known.least + 2 * steps, most=most, checkpoints=kept, anew=False)

    def _stations(self, problem: Problem) -> list[Checkpoint]:
        """The checkpoints to walk over, the last of which is where training goes on."""
        if not walkable(problem.remaining.model):
            raise MethodError(NOT_WALKABLE)
        if self.prepared is None:
            raise MethodError(
                "retrace needs the curvature; give prepared=unweave.prepare(…), or prepare the run (unweave prepare)"
            )
        known = in_order(self.checkpoints)
        if resume_at(self.end, self._until) == 0:
            raise MethodError(f"end={self.end:g} is all of {self.epochs} epochs; use method='retrain'")
        first, last = self._ends(known)
        if first is None or last is None:
            raise MethodError(f"share={self.share:g} is all of {self.epochs} epochs; use method='retrain'")
        if not is_traced(known):
            raise MethodError(
                "these checkpoints do not tell what pulled training on. Those of a forgettable model never do: use "
                "method='gif'. Otherwise train anew (unweave.train computes it), or give those of your own loop to "
                "unweave.trace_path, on the graph they were trained on"
            )
        if any(s.gradient is not None and s.gradient.numel() != problem.theta.numel() for s in known):
            raise MethodError(
                "other parameters were frozen when these checkpoints were made; use method='gif', or train anew"
            )
        found = [state for state in known if first.epoch <= state.epoch <= last.epoch]
        if len(found) < 2:
            raise MethodError(
                f"a walk from share={self.share:g} to end={self.end:g} needs two checkpoints or more, and there is "
                f"that of epoch {found[0].epoch} alone; train with checkpoints=(0.05, 0.2, 0.5, 0.9), or use "
                "method='replay'"
            )
        return _spread(found, self.steps)


def _spread(states: list[Checkpoint], steps: int | None) -> list[Checkpoint]:
    """The first and the last of some states, and of those between so many that ``steps`` lead over them."""
    if steps is None or steps >= len(states) - 1:
        return states
    return [states[round(number * (len(states) - 1) / steps)] for number in range(steps + 1)]


class _Walk:
    """Where the path without what is removed has got to, relative to the one that was taken.

    Attributes:
        u: θ' − θ.
        caution: λ.
        pulled_back: Steps that went too far and were shortened.
    """

    def __init__(self, problem: Problem, curvature: LowRank, mass: float, most: int) -> None:
        self.objective = problem.remaining
        self.u = torch.zeros_like(problem.theta)
        self.caution = TUNING.walk.caution
        self.pulled_back = 0
        self._rank = min(TUNING.walk.rank, curvature.values.numel())
        self._values = self.u.new_zeros(self._rank + most)
        self._rows = self.u.new_zeros(self._rank + most, self.u.numel())
        self._values[: self._rank] = curvature.values[: self._rank] / mass
        self._rows[: self._rank] = curvature.vectors.T[: self._rank]
        self._last: tuple[Tensor, Tensor] | None = None

    def go(self, state: Checkpoint, motion: Motion, steps: int) -> None:
        """One step, from a state, over as many of the optimiser, which moves the parameters as at their end."""
        assert state.gradient is not None
        pull = pull_at(state, self.objective, self.u) - state.gradient.to(self.u)
        if self._last is not None:
            pull = self._learnt(*self._last, pull)
        # No step of Adam is longer than its learning rate, whatever pulls: the pull would have been part of v̂.
        stiffness = self.caution / steps * torch.maximum(1 / motion.rates, pull.abs() / motion.lengths)
        step = -self._solve(pull, stiffness)
        if not bool(torch.isfinite(step).all()):
            raise DivergenceError(
                f"the walk along the path of training left the numbers at epoch {state.epoch}; use method='replay' or "
                "'retrain', or train with more checkpoints"
            )
        self._last = step, pull
        self.u = self.u + step

    def _learnt(self, step: Tensor, before: Tensor, pull: Tensor) -> Tensor:
        """What the last step tells, now that the pull after it is known; the pull at the point to go on from.

        The curvature that was met is added to H. A step that used up more than all of the pull along it went too far:
        the point where it would have used it up lies on the line between both, and the next ones are more cautious.
        """
        met = pull - before
        self._add(step, met)
        wanted = -float(step @ before)
        used = float(step @ met) / wanted if wanted > 0 else 0.0
        if used > 1:
            self.pulled_back += 1
            self.u = self.u - (1 - 1 / used) * step
            self.caution *= min(used, TUNING.walk.most)
            return before + met / used
        if 0 <= used < 0.5:
            self.caution = max(self.caution / TUNING.walk.ease, TUNING.walk.least)
        return pull

    def _add(self, step: Tensor, met: Tensor) -> None:
        """The symmetric rank-one update (Nocedal and Wright, section 6.2), where it keeps H positive."""
        values, rows = self._values[: self._rank], self._rows[: self._rank]
        missing = met - (values * (rows @ step)) @ rows
        along, size = float(missing @ step), float(missing.norm())
        if along > TUNING.walk.along * size * float(step.norm()):
            self._values[self._rank] = size**2 / along
            self._rows[self._rank] = missing / size
            self._rank += 1

    def _solve(self, pull: Tensor, stiffness: Tensor) -> Tensor:
        """(V diag(λ) Vᵀ + diag(stiffness))⁻¹ pull (Woodbury)."""
        values, rows = self._values[: self._rank], self._rows[: self._rank]
        scaled = rows / stiffness
        small = torch.diag(1 / values) + scaled @ rows.T
        inside = torch.linalg.solve(small.double(), (scaled @ pull).double())
        solved: Tensor = pull / stiffness - inside.to(pull) @ scaled
        return solved


def _moved(state: Checkpoint, model: nn.Module, step: Tensor) -> Checkpoint:
    """A checkpoint whose weights have taken a step; optimiser and random numbers stay."""
    weights, at = dict(state.model), 0
    for name, parameter in trained(model).items():
        part = step[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
        weights[name] = weights[name] + part.to(weights[name])
    return replace(state, model=weights, gradient=None)
