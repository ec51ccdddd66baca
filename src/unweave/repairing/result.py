"""What a repair found and did."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave.objective.scores import log_probabilities
from unweave.repairing.deciding import Score
from unweave.repairing.rounds import Step
from unweave.repairing.suspects import Suspect, false_share
from unweave.run.run import Run

__all__ = ["Repair"]

LISTED = 5
"""Suspects of each kind that the text shows."""


@dataclass(frozen=True)
class Repair:
    """The result of :func:`unweave.repair`.

    Attributes:
        before: The run as it was, prepared.
        run: The run after, with a receipt for everything that was done; ``before`` where nothing helped.
        steps: Every step, kept or not.
        suspects: All that is suspect, the most suspect of each kind first, with what was done about it.
        held_out: Loss and F1 of the validation nodes, which decided, before and after.
        deciding: Those nodes.
        config: The options.
    """

    before: Run
    run: Run
    steps: tuple[Step, ...]
    suspects: tuple[Suspect, ...]
    held_out: tuple[Score, Score]
    deciding: tuple[int, ...]
    config: dict[str, Any]

    @property
    def model(self) -> nn.Module:
        """The repaired model."""
        return self.run.model

    @property
    def data(self) -> Data:
        """The repaired graph."""
        return self.run.data

    @property
    def done(self) -> tuple[Suspect, ...]:
        """The suspects that something was done about."""
        return tuple(suspect for suspect in self.suspects if suspect.action != "left")

    @property
    def corrected(self) -> bool:
        """Whether a label was corrected, so that the run is opened with the graph as it is now."""
        return any(suspect.action == "relabelled" for suspect in self.suspects)

    @property
    def expected_false(self) -> float | None:
        """The share of what was done that is expected to have been right as it was; ``None`` where nothing was."""
        return false_share(list(self.done))

    def of(self, kind: str) -> tuple[Suspect, ...]:
        """The suspects of one kind."""
        return tuple(suspect for suspect in self.suspects if suspect.kind == kind)

    def by_class(self) -> dict[int, tuple[int, float, float]]:
        """Of each class the validation nodes that decided: how many, and the share found before and after."""
        nodes = self.before.data.y.new_tensor(self.deciding)
        labels = self.before.data.y[nodes]
        found = [
            log_probabilities(run.model, run.data, run.forward)[nodes].argmax(dim=1) for run in (self.before, self.run)
        ]
        table = {}
        for label in sorted(set(labels.tolist())):
            here = labels == label
            old, new = (float((said[here] == label).double().mean()) for said in found)
            table[label] = (int(here.sum()), old, new)
        return table

    def to_dict(self) -> dict[str, Any]:
        """As a JSON document."""
        return {
            "config": self.config,
            "held_out": {
                "nodes": len(self.deciding),
                "before": _told(self.held_out[0]),
                "after": _told(self.held_out[1]),
            },
            "done": len(self.done),
            "expected_false": self.expected_false,
            "steps": [_step(step) for step in self.steps],
            "suspects": [suspect.to_dict() for suspect in self.suspects],
        }

    def __str__(self) -> str:
        before, after = self.held_out
        lines = []
        for step in self.steps:
            told = step.why
            if step.after is not None:
                told = f"{_tried(step)}: {'kept' if step.kept else 'not kept'}, {step.why}"
            lines.append(f"{f'Round {step.round}':<11}{step.kind}: {told}")
        acted = self.done
        relabelled = sum(suspect.action == "relabelled" for suspect in acted)
        told = f"{len(acted) - relabelled:,} forgotten, {relabelled:,} labels corrected"
        lines.append(f"{'Done':<11}{told if acted else 'nothing; the model and its graph are as they were'}")
        lines.append(
            f"{'Held out':<11}loss {before.loss:.4f} → {after.loss:.4f}, F1 {before.f1:.3f} → {after.f1:.3f} "
            f"on {len(self.deciding)} validation nodes"
        )
        for kind in self.config["kinds"]:
            for suspect in self.of(kind)[:LISTED]:
                lines.append(f"{suspect.wrong:>8.0%}   {suspect.name} ({suspect.action}): {suspect.why}")
        return "\n".join(lines)


def _tried(step: Step) -> str:
    """What a step tried to be without, in words."""
    assert step.expected_false is not None
    count = step.forgotten + step.relabelled
    done = f"{step.forgotten:,} forgotten" + (f" and {step.relabelled:,} corrected" if step.relabelled else "")
    return f"{done}, about {round((1 - step.expected_false) * count):,} of them expected to be wrong"


def _told(score: Score | None) -> dict[str, float] | None:
    return None if score is None else {"loss": score.loss, "f1": score.f1}


def _step(step: Step) -> dict[str, Any]:
    told = {"requests": list(step.requests), "before": _told(step.before), "after": _told(step.after)}
    return vars(step) | told
