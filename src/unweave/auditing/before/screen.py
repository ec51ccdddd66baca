"""Is a request out of the ordinary? Its predicted damage, beside that of random requests of its kinds and sizes.

Deletion can itself be an attack: a few nodes chosen well cost a model more than many at random. What a request is going
to do to nodes that were not trained on is predicted before it is carried out (:mod:`unweave.auditing.before.damage`).
The same is
computed for requests drawn at random, as many of every kind (:mod:`unweave.graph.lookalikes`), and a request is
flagged where
it lies above what the next of those would exceed with a stated probability (:mod:`unweave.auditing.limits`), for the
validation nodes or for the others, each at half of it.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from unweave._core.digest import tensor_digest
from unweave.auditing.before.damage import Probe
from unweave.auditing.limits import limits_of
from unweave.curvature.preparation import checked_objective
from unweave.curvature.prepared import Prepared
from unweave.errors import AbnormalRequestError, MethodError
from unweave.graph.lookalikes import Resampler
from unweave.graph.removal import remove
from unweave.methods.posing import meter_for
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.parameters import duplicate
from unweave.request import Request

__all__ = ["DRAWS", "RATE", "Effect", "Screening", "screen"]

DRAWS = 40
RATE = 0.01
FEWEST = 10

STREAM = 0x5C4EE4
"""Sets the random numbers of these requests apart from those of every other."""


@dataclass(frozen=True)
class Effect:
    """What a request is predicted to do to some nodes, and what random requests like it would.

    Attributes:
        nodes: How many of them stay.
        loss: Their mean loss before: by their labels, or by the class that the model gives them.
        damage: Predicted change of that.
        structural: Of the damage, what the missing edges and features do at once.
        step: Of the damage, what the influence step does; ``None`` where no step is known.
        low: What a random request falls short of with the probability it was screened at.
        high: What a random request exceeds with that probability.
        largest: The largest damage of the random requests that were drawn.
        chance: How probable it is that a random request does as much damage or more.
    """

    nodes: int
    loss: float
    damage: float
    structural: float
    step: float | None
    low: float
    high: float
    largest: float
    chance: float

    @property
    def flagged(self) -> bool:
        """Whether the damage is abnormal."""
        return self.damage > self.high


@dataclass(frozen=True)
class Screening:
    """What a request is predicted to do. ``str(screening)`` is for people, :meth:`to_dict` for machines.

    Attributes:
        request: The request in canonical form.
        effects: What it does to the ``validation`` nodes and, for class labels, to the ``other`` ones that were not
            trained on, where there are any.
        rate: The false-alarm rate.
        draws: How many random requests it was compared with.
        how: How the influence step was found.
        passes: Sweeps over the graph that all this took.
        seconds: And the time.
    """

    request: dict[str, Any]
    effects: dict[str, Effect]
    rate: float
    draws: int
    how: str
    passes: float
    seconds: float

    @property
    def flagged(self) -> bool:
        """Whether the request is out of the ordinary."""
        return any(effect.flagged for effect in self.effects.values())

    @property
    def statement(self) -> str:
        """What was found, in a sentence."""
        told = [
            f"{effect.damage:+.2g} for {effect.nodes:,} {name} nodes (random requests like it: {effect.low:+.2g} … "
            f"{effect.high:+.2g})"
            for name, effect in self.effects.items()
        ]
        return f"{'abnormal' if self.flagged else 'usual'}: the loss is predicted to change by {', by '.join(told)}"

    def to_dict(self) -> dict[str, Any]:
        """The screening as a JSON document."""
        document = {"format": "unweave-screening-1", **asdict(self), "flagged": self.flagged}
        document["effects"] = {name: asdict(e) | {"flagged": e.flagged} for name, e in self.effects.items()}
        return document | {"statement": self.statement}

    def __str__(self) -> str:
        return (
            f"{'Screened':<11}{self.statement}\n"
            f"{'':<11}{self.draws} of those were drawn, and {100 * self.rate:g} % of such are flagged; {self.how}; "
            f"{self.passes:.3g} passes"
        )

    def refuse(self) -> None:
        """Raise an error where the request is out of the ordinary."""
        if not self.flagged:
            return
        name, worst = min(self.effects.items(), key=lambda pair: (not pair[1].flagged, pair[1].chance))
        raise AbnormalRequestError(
            f"the request is out of the ordinary: it is predicted to change the mean loss of the {name} nodes by "
            f"{worst.damage:+.3g} (from {worst.loss:.3g}), and {self.draws} random requests like it by at most "
            f"{worst.largest:+.3g}; the limit for {100 * self.rate:g} % false alarms is {worst.high:+.3g}, and so "
            f"much damage has a chance of {worst.chance:.1g}. Deletion can itself be an attack: look at what the "
            "request names and who asks for it (unweave explain); to carry it out all the same, leave screen=True "
            "(--screen) out"
        )


def screen(
    model: nn.Module,
    data: Data,
    request: Request,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    prepared: Prepared | None = None,
    seed: int = 0,
    draws: int = DRAWS,
    rate: float = RATE,
) -> Screening:
    """Predict what a request would do to nodes not trained on, and whether that is out of the ordinary.

    Args:
        model: The trained module, as for :func:`unweave.unlearn`.
        data: The graph it was trained on, with ``val_mask``.
        request: What would be forgotten.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call the model on a graph.
        prepared: What :func:`unweave.prepare` computed; without it the curvature is computed for this.
        seed: Of the random requests.
        draws: How many of them, at least 10.
        rate: Probability with which a random request is flagged.

    Raises:
        DataError: There are no validation nodes, so that nothing can be predicted.
        UnweaveError: Model, graph or request cannot be used.
    """
    if not (isinstance(draws, int) and draws >= FEWEST and 0 < rate < 0.5 and seed >= 0):
        raise MethodError(
            f"draws must be at least {FEWEST}, rate between 0 and 0.5, and seed at least 0; got {draws!r}, {rate!r} "
            f"and {seed!r}"
        )
    meter = meter_for(model, data, request)
    own = duplicate(model).eval()
    if prepared is not None and prepared.parameters != tensor_digest(own.named_parameters()):
        raise MethodError("prepared= belongs to other parameters; call unweave.prepare on this model")
    with torch.enable_grad(), meter.phase("screen"):
        decay = as_weight_decay(weight_decay, model)
        objective = checked_objective(own, data, decay, as_loss(loss), forward)
        objective.meter.passes += 2  # the checks call the model twice
        found = _compare(Probe(objective, prepared), request, seed, draws, rate)
    return replace(found, seconds=meter.seconds["screen"])


def _compare(probe: Probe, request: Request, seed: int, draws: int, rate: float) -> Screening:
    """The damage of a request, and of random ones."""
    removal = remove(probe.data, request)
    asked, staying = probe.damage(removal.request), probe.staying(removal)
    others = Resampler(removal.request, probe.data)
    drawn = [probe.damage(others.draw(np.random.default_rng([STREAM, seed, number]))) for number in range(draws)]
    effects = {}
    for name, found in asked.items():
        values, loss = np.array([each[name].total for each in drawn]), probe.losses[name]
        limits, share = limits_of(values), rate / len(asked)
        rounding = 10 * torch.finfo(probe.theta.dtype).eps * max(abs(loss), 1.0)
        effects[name] = Effect(
            nodes=int(staying[name].sum()),
            loss=loss,
            damage=found.total,
            structural=found.structural,
            step=found.step,
            low=limits.lower(share),
            high=max(limits.upper(share), rounding),
            largest=float(values.max()),
            chance=limits.chance(found.total),
        )
    return Screening(
        request=removal.request.to_dict(),
        effects=effects,
        rate=rate,
        draws=draws,
        how=probe.how,
        passes=probe.objective.meter.passes,
        seconds=0.0,
    )
