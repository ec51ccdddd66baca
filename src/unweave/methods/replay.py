"""Replay the end of training on the remaining graph, from a checkpoint of the first one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from unweave._core.tuning import TUNING
from unweave.errors import MethodError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.methods.retrain import check_schedule, one_model
from unweave.objective.parameters import flatten
from unweave.training.adam import Adam, refuse_spoilt, seeded, spoil
from unweave.training.checkpoints import Checkpoint, Trainer, in_order, resume_at, train_through
from unweave.training.minimum import polish_objective
from unweave.training.path import is_traced, traced
from unweave.training.recipe import AnyTrainer, Recipe, Training
from unweave.training.trainer import as_trainer

__all__ = ["Replay"]


@register
@dataclass(frozen=True)
class Replay(Method):
    """Put weights, optimiser and random numbers back to a checkpoint and train to the end without the removed data.

    Nothing of what happened after the checkpoint is left, and the luck of the training path is kept: dropout draws what
    it drew. What the checkpoint saw before is not forgotten. Replaying everything is ``retrain``, to the bit. A
    forgettable model is polished again afterwards, which costs it more than the epochs do.

    Attributes:
        share: How much of the training to do again: it resumes at the latest checkpoint before the last ``share``. 1
            starts anew and needs none.
        checkpoints: The states there are; those of the run, where it is the run that forgets.
        epochs: Epochs of the whole training; those of the recipe, where the method is given by name, or the default of
            the trainer's ``until``.
        lr: Learning rate of full-batch Adam; likewise.
        forgettable: Polish to a minimum afterwards, as a forgettable model was.
        trainer: Your own training, instead of ``lr`` and ``forgettable``: a :class:`~unweave.Trainer`.
    """

    name: ClassVar[str] = "replay"
    bounded: ClassVar[bool] = True
    share: float = 0.2
    checkpoints: Sequence[Checkpoint] = ()
    epochs: int | None = None
    lr: float | None = None
    forgettable: bool = False
    trainer: AnyTrainer | str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.share, int | float) and 0 < self.share <= 1):
            raise MethodError(f"share must be above 0 and at most 1, which is the whole training, got {self.share!r}")
        check_schedule(self.epochs, self.lr)
        if self.trainer is not None:
            own = as_trainer(self.trainer)
            own.resumable(f"method {self.name!r}")
            if self.epochs is None:  # a trainer may say by itself for how long it trains
                object.__setattr__(self, "epochs", own.until)
        in_order(self.checkpoints)

    def check(self) -> None:
        """Refuse where nobody said how to train."""
        if self.trainer is not None and self.epochs is None:
            raise MethodError(
                f"method {self.name!r} has to know for how many epochs trainer= trains; give epochs=, "
                "recipe=unweave.Recipe(epochs=…), or its argument until a default"
            )
        if self.trainer is None and None in (self.epochs, self.lr):
            Training(0.0).require(f"method {self.name!r}")

    @property
    def _until(self) -> int:
        """Epochs of the whole training."""
        self.check()
        assert self.epochs is not None
        return self.epochs

    def forget(self, problem: Problem) -> Outcome:
        """Train a copy of the model from the checkpoint to the end."""
        epochs = self._until
        model, meter = one_model(problem, self.trainer), problem.meter
        known = in_order(self.checkpoints)
        start = self._start(known)
        at = 0 if start is None else start.epoch
        kept = tuple(state for state in known if state.epoch <= at)
        stops = [*(state.epoch for state in known if state.epoch > at), epochs]
        details: dict[str, Any] = {"resumed_at": at, "epochs": epochs - at, "of": epochs}
        with seeded(problem.seed, meter.device):
            *made, _ = train_through(self._trainer(problem, model), model, problem.remaining.data, start, stops)
            if self.trainer is not None:
                meter.passes += 2 * (epochs - at)
                details["trainer"] = as_trainer(self.trainer).name
                refuse_spoilt(
                    model,
                    "trainer= is given a model whose weights were erased; it must restore the state it is given "
                    "(start.restore), or draw weights anew where that is None, and train that model in place",
                )
            else:
                details["lr"] = self.lr
                if self.forgettable:
                    spent = polish_objective(problem.remaining.of(model))
                    details |= {"polished": True, "evaluations": spent["evaluations"]}
        if is_traced(known):  # from the state it began at, training was pulled on by the remaining graph
            kept = (*kept[:-1], *traced(kept[-1:], problem.remaining))
            made = list(traced(made, problem.remaining))
        return Outcome(
            flatten(model),
            details=details,
            buffers=dict(model.named_buffers()),
            nearness=self._nearness(at),
            warnings=_memories(start, epochs, meter.device.type),
            checkpoints=(*kept, *made),
            anew=at == 0,
        )

    def _at(self) -> int:
        """The epoch from which training is done again."""
        start = self._start(in_order(self.checkpoints))
        return 0 if start is None else start.epoch

    @property
    def _polishes(self) -> bool:
        return self.forgettable and self.trainer is None

    @property
    def passes(self) -> float:
        """Two for each epoch done again, each state whose pull is new, and each gradient of a polish."""
        at, known = self._at(), in_order(self.checkpoints)
        made = sum(state.epoch >= at for state in known) if is_traced(known) else 0
        return 2 * (self._until - at + made + (TUNING.polish.usual if self._polishes else 0))

    def expect(self, problem: Problem) -> Expected:
        """Two passes for each epoch done again, and a polish where there was one."""
        epochs = self._until
        model, known = one_model(problem, self.trainer), in_order(self.checkpoints)
        start, at = self._start(known), self._at()
        if self.trainer is None:
            with seeded(problem.seed, problem.meter.device):  # no epoch is trained, but the state has to fit
                self._trainer(problem, model)(model, problem.remaining.data, start, at)
        polishes = self._polishes
        passes = self.passes - (2 * TUNING.polish.usual if polishes else 0)  # how many it takes is not known
        return Expected(
            f"train the last {epochs - at} of {epochs} epochs again, from epoch {at}"
            + (", then to a minimum" if polishes else ""),
            passes,
            None if polishes else passes,
            polishes=polishes,
            checkpoints=known,
            anew=at == 0,
        )

    def _trainer(self, problem: Problem, model: nn.Module) -> Trainer:
        if self.trainer is not None:
            spoil(model)
            return as_trainer(self.trainer).resumable(f"method {self.name!r}")
        assert self.lr is not None
        return Adam(self.lr, problem.remaining)

    def _start(self, known: tuple[Checkpoint, ...]) -> Checkpoint | None:
        """The latest checkpoint that the share to be replayed lies behind; ``None`` for the start of training."""
        epochs = self._until
        if known and known[-1].epoch >= epochs:
            raise MethodError(
                f"there is a checkpoint of epoch {known[-1].epoch}, but training has epochs={epochs}; give the "
                "recipe= (or epochs=) of the training that made it"
            )
        wanted = resume_at(self.share, epochs)
        behind = [state for state in known if state.epoch <= wanted]
        if behind or wanted == 0:
            return behind[-1] if behind else None
        if not known:
            raise MethodError(
                "there is no checkpoint to replay from; train with checkpoints=(0.05, 0.2) (unweave train "
                "--checkpoints 0.05,0.2) and give them as checkpoints=run.checkpoints where no run does, or use "
                "another method"
            )
        there = ", ".join(f"{state.epoch} (share={1 - state.epoch / epochs:.3g})" for state in known)
        raise MethodError(
            f"no checkpoint lies before the last {self.share:.3g} of {epochs} epochs; there are those of epoch "
            f"{there}. Use one of these shares, or method='retrain' to start anew"
        )

    def _nearness(self, at: int) -> str:
        if at == 0:
            return "this is the retrained model itself"
        return (
            f"the last {self._until - at} of {self.epochs} epochs were trained again without what was removed; the "
            f"{at} before them had seen it. The distance to a retrained model was not measured here; unweave.compare "
            "measures it"
        )

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Replay":
        """Replay by the recipe of the first training."""
        if recipe.certify is not None:
            raise MethodError(
                "a certified model has no path of training to replay; use method='certified', or 'retrain'"
            )
        return cls(**{"epochs": recipe.epochs, "lr": recipe.lr, "forgettable": recipe.forgettable, **options})


def _memories(start: Checkpoint | None, epochs: int, device: str) -> tuple[str, ...]:
    """What the model may remember, and where chance went another way."""
    if start is None:
        return ()
    notes = []
    if start.epoch > 0:
        notes.append(
            f"the checkpoint of epoch {start.epoch} of {epochs}, from which training went on, was trained on what this "
            "request removed, and on whatever others removed since it was made: the model may remember that"
        )
    if start.device != device:
        notes.append(
            f"the checkpoint was made on {start.device} and replayed on {device}, whose random numbers are others: "
            "dropout does not draw what it drew"
        )
    return tuple(notes)
