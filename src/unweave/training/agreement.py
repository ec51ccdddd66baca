"""Whether the minimum that training found is the only one: would another seed have ended at the same function?

That is asked where it matters, after a deletion: a model is trained without some data from another seed, and compared
with where following that deletion leads. What lies between is all that a request may be short of: other minima, a
saddle that one training left and another did not, and what following left undone. Two seeds on the graph as it is tell
less. On three large cells of ``benchmarks/wide.py`` they differed by 0.1, 0.4 and 0.9 % of what a deletion changes
(SIGN on hubs and on WordNet, GraphSAGE on hubs), and after it by 2.8, 3.7 and 5.3 %; ``gif`` was short by 2.4, 3.8 and
8.9 %.

A small graph is no average over many places: seeds may agree after one deletion and not after the next. There several
deletions are asked, of one kind after another, each with a training from a seed of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.objective.objective import Objective
from unweave.objective.parameters import duplicate, flatten
from unweave.objective.running_stats import carry
from unweave.training.adam import Adam, Progress, seeded
from unweave.training.checkpoints import Checkpoint, resume_at, train_through
from unweave.training.minimum import follow, polish_objective, without_some
from unweave.training.resuming import Resume, key_of

__all__ = [
    "FIRST_PHASE",
    "FIRST_RATE",
    "Agreement",
    "agreement_of",
    "agrees",
    "another",
    "descend",
    "examined",
    "in_words",
    "shortcomings",
]

ROWS = 2**16
"""Nodes whose probabilities are compared at a time."""

FIRST_PHASE = 100
"""Epochs that come before a polish, where nobody says how many: they only lead to where it starts."""

FIRST_RATE = 0.01
"""Their learning rate, likewise."""


@dataclass(frozen=True)
class Agreement:
    """How far two ways to the model after a deletion end from each other, beside what the deletion changes.

    Attributes:
        seeds: Mean KL, in nats, from the outputs of a model that was trained without the data, from another seed, to
            those of one that followed the deletion or was retrained from its own; for other losses than those of
            classes the mean squared difference.
        deletion: The same to those of the model before.
    """

    seeds: float
    deletion: float

    @property
    def value(self) -> float:
        """1: every training ends at the same function; 0 or less: the luck of a seed is as large as a deletion."""
        return 1 - self.seeds / max(self.deletion, 1e-30)

    def and_of(self, other: "Agreement | None", trainings: int) -> "Agreement":
        """The mean of what so many trainings told so far and what one more tells."""
        if other is None:
            return self
        share = 1 / (trainings + 1)
        seeds = self.seeds + share * (other.seeds - self.seeds)
        return Agreement(seeds, self.deletion + share * (other.deletion - self.deletion))


def agrees(value: float) -> bool:
    """Whether the minimum is to be called one."""
    return value >= TUNING.polish.agreement


def in_words(value: float) -> str:
    """What an agreement means."""
    if agrees(value):
        return "another training would give the same model"
    return "another training would not give the same model: widen it, or give it more weight decay"


def shortcomings(
    prepared: Prepared, before: Mapping[str, float], after: Mapping[str, float], validated: int
) -> tuple[str, ...]:
    """What the user of a model that was brought to a minimum should know, and what to do about it.

    Args:
        prepared: What is known of the place it was brought to.
        before: Scores before the polish; those that there are.
        after: The same after it.
        validated: Nodes that the F1 of validation is of.
    """
    told, same = [], prepared.agreement
    if not prepared.at_minimum:
        told.append(
            f"no minimum was reached ({prepared.stationarity:.2g} of the objective is left to gain), so it forgets "
            "only in part: give it more weight decay, or smooth activations and no norm behind a linear layer"
        )
    if same is not None and not agrees(same):
        told.append(
            f"{in_words(same)}. As it is, with an agreement of {same:.2f} of 1, no request can be expected to bring it "
            "nearer to a model retrained from another seed than that"
        )
    was, now = (scores.get("val_f1") for scores in (before, after))
    if was is not None and now is not None and was - now > _chance(validated):
        fits_less = after.get("train_f1", 1.0) < before.get("train_f1", 0.0) - TUNING.polish.lost
        told.append(
            f"validation F1 fell from {was:.3f} to {now:.3f} on the way to the minimum"
            + (", and training F1 too: give it less weight decay" if fits_less else ": give it more weight decay")
        )
    return tuple(told)


def _chance(nodes: int) -> float:
    """F1 that may be lost on so many nodes without a word.

    Where n of them were lost and none was gained, the loss is √n standard errors: up to four are no more than two.
    """
    return max(TUNING.polish.lost, 4 / max(nodes, 1) + 1e-9)


def descend(
    objective: Objective,
    *,
    seed: int,
    epochs: int,
    lr: float,
    shares: Sequence[float] = (),
    resume: Resume | None = None,
    progress: Progress | None = None,
) -> list[Checkpoint]:
    """Train the model of an objective by Adam from the start, in place; the states from which the shares begin.

    Where states of the same training are kept already it goes on from the last of them.
    """
    meter, trainer = objective.meter, Adam(lr, objective, progress)
    stops = sorted({resume_at(share, epochs) for share in shares} - {0})
    states, key = list[Checkpoint](), ""
    if resume is not None:
        key = key_of(objective, seed=seed, epochs=epochs, lr=lr, stops=stops)
        states = resume.known(key)
    with seeded(seed, meter.device), meter.phase("train"):
        for stop in [*stops[len(states) :], epochs]:
            states += train_through(trainer, objective.model, objective.data, states[-1] if states else None, [stop])
            if resume is not None and stop < epochs:
                resume.keep(key, states)
    return states[:-1]


def examined(
    objective: Objective, prepare: Callable[[], Prepared], *, seed: int, epochs: int, lr: float
) -> tuple[Prepared, Agreement | None]:
    """Prepare a model at its minimum, and find out whether that is the only one.

    One training from another seed tells, or on a small graph several, each after a deletion of its own, while they
    agree: one that does not is answer enough.

    Args:
        objective: With the model at its minimum.
        prepare: What computes what is known of the curvature there.
        seed: Of the first of the other trainings.
        epochs: Of their first phase.
        lr: Its learning rate.

    Returns:
        What was prepared, and what was found; ``None`` where there is nothing to compare.
    """
    # Before what is known of the first one is computed: each holds as much memory as the polish of the other.
    other = another(objective, seed=seed, epochs=epochs, lr=lr)
    prepared = prepare()
    found = None if other is None else agreement_of(objective, prepared, other)
    for done in range(1, trainings(int(objective.data.num_nodes))):
        if found is None or found.value < TUNING.polish.sought:
            break
        other = another(objective, seed=seed + done, epochs=epochs, lr=lr, deletion=done)
        found = found if other is None else found.and_of(agreement_of(objective, prepared, other), done)
    return prepared, found


def trainings(nodes: int) -> int:
    """Trainings from other seeds that tell of a minimum on a graph of so many nodes."""
    return max(1, min(TUNING.polish.trainings, math.ceil(TUNING.polish.few / max(nodes, 1))))


def another(objective: Objective, *, seed: int, epochs: int, lr: float, deletion: int = 0) -> Objective | None:
    """The objective after a typical deletion with another model, trained to its minimum from a new start.

    Returns:
        It; ``None`` where nothing can be deleted.
    """
    remaining = without_some(objective, deletion)
    if remaining is None:
        return None
    other = remaining.of(duplicate(objective.model))
    other.meter = Meter(objective.meter.device)  # it is no part of the training
    descend(other, seed=seed, epochs=epochs, lr=lr)
    polish_objective(other)
    return other


def agreement_of(objective: Objective, prepared: Prepared, other: Objective) -> Agreement | None:
    """Follow a typical deletion, and compare where that leads with what another training without the data found.

    Args:
        objective: With the model at its minimum.
        prepared: What is known of the curvature there.
        other: What remains, with :func:`another` model.

    Returns:
        What was found; ``None`` where the deletion changes nothing.
    """
    theta, remaining = flatten(objective.model), other.of(duplicate(objective.model))
    with torch.no_grad():
        before = _seen(remaining, theta)
    carry(remaining.model, objective.model, objective.data, remaining.data, remaining.forward)
    new, _ = follow(remaining, theta, prepared.curvature, TUNING.step.steps)
    classes = objective.loss.classes
    with torch.no_grad():
        target, after = _seen(other, flatten(other.model)), _seen(remaining, new)
    deletion = _distance(target, before, classes=classes)
    return Agreement(_distance(target, after, classes=classes), deletion) if deletion > 0 else None


def _seen(objective: Objective, theta: Tensor) -> Tensor:
    """Outputs of the nodes that any are computed for."""
    outputs = objective.outputs(theta)
    return outputs if objective.seen is None else outputs[objective.seen]


def _distance(one: Tensor, other: Tensor, *, classes: bool) -> float:
    if not classes:
        return float((one.double() - other.double()).square().mean())
    total = 0.0
    for some in zip(torch.split(one, ROWS), torch.split(other, ROWS), strict=True):
        p, q = (F.log_softmax(outputs.double(), dim=-1) for outputs in some)
        total += float((p.exp() * (p - q)).sum())
    return total / one[..., 0].numel()
