"""Is it gone? A model that was made to forget, judged beside retrained models and beside such as saw the data."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave._core.tuning import TUNING
from unweave.auditing.after.carried import Carried, look_into
from unweave.auditing.after.collateral import class_scores, scored_nodes
from unweave.auditing.case import Case, Size, Subject, build_case
from unweave.auditing.evidence import ALARM, Evidence
from unweave.auditing.examination import Examination
from unweave.auditing.limits import limits_of
from unweave.auditing.population import Upbringing
from unweave.auditing.verdict import Verdict, verdict_of
from unweave.auditing.words import FINDINGS, HEADLINES, answer, figures, reason
from unweave.errors import ModelError
from unweave.objective.checks import check_data, check_model
from unweave.objective.losses import cross_entropy
from unweave.objective.scores import micro_f1
from unweave.receipt.receipt import Receipt
from unweave.receipt.record import environment
from unweave.request import Request
from unweave.training.adam import Progress
from unweave.training.trainer import refuse_bounded

__all__ = ["FULL", "QUICK", "Audit", "audit_models"]

FULL, QUICK = Size(references=16, shadows=32), Size(references=16, shadows=0)
UNLIKE = 1e-4
"""Chance that a model is taken for one of another training than it had."""

LEFT_OUT = "the likelihood-ratio attacks and the hard cases, which need shadow models"


@dataclass(frozen=True)
class Audit:
    """What was found.

    Attributes:
        evidence: One entry a test.
        request: What was to be forgotten.
        config: How many models, which seed, what was left out.
        classes: F1 of each class on the test nodes: before, after and of every retrained model.
        recovery: F1 on the test nodes before, after and of the retrained models, all on the remaining graph.
        receipt: What the method says of itself, where it left a receipt.
        environment: Versions and device.
        seconds: How long it took.
        notes: What the reader should know.
        carried: What the model after holds that its predictions do not show.
    """

    evidence: tuple[Evidence, ...]
    request: Request
    config: dict[str, Any]
    classes: dict[str, Any]
    recovery: dict[str, Any]
    receipt: Receipt | None
    environment: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    carried: Carried = field(default_factory=Carried)

    @property
    def verdict(self) -> Verdict:
        """The conclusion of all tests together, and of what the model carries unseen."""
        return verdict_of(self.evidence, self.carried)

    @property
    def headline(self) -> str:
        """The conclusion in a few words."""
        return HEADLINES[self.verdict]

    @property
    def reason(self) -> str:
        """Why, in plain words."""
        return reason(self.verdict, self.evidence, self.carried, quick=self.config["quick"])

    @property
    def sentence(self) -> str:
        """Both."""
        return f"{self.headline}. {self.reason}"

    @property
    def noticeable(self) -> float | None:
        """The least share of the deleted data that a model could not remember without being noticed, about."""
        return min((e.noticeable for e in self.evidence if e.noticeable is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "format": "unweave-audit-1",
            "verdict": self.verdict,
            "sentence": self.sentence,
            "request": self.request.to_dict(),
            "config": self.config,
            "evidence": [entry.to_dict() | {"answer": answer(entry)} for entry in self.evidence],
            "noticeable": self.noticeable,
            "carried": asdict(self.carried),
            "classes": self.classes,
            "recovery": self.recovery,
            "receipt": None if self.receipt is None else self.receipt.to_dict(),
            "environment": self.environment,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """The JSON document as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def __str__(self) -> str:
        told = [f"{e.name} – {FINDINGS[e.finding]}\n  {e.question} {answer(e)}" for e in self.evidence]
        notes = [f"{'Note':<11}{note}" for note in self.notes]
        if self.config["left_out"]:
            notes.append(f"{'Left out':<11}{self.config['left_out']}")
        parts = [self.sentence, "\n".join(told), figures(self.evidence), "\n".join(notes)]
        return "\n\n".join(part for part in parts if part)


def audit_models(
    before: nn.Module,
    after: nn.Module,
    data: Data,
    request: Request,
    how: Upbringing,
    *,
    quick: bool = False,
    seed: int = 0,
    jobs: int = 1,
    cache: str | Path | None = None,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Test a model against retrained ones.

    Args:
        before: The model before the request.
        after: The same after it.
        data: The graph before the request.
        request: What was to be forgotten.
        how: How the models to compare with are trained.
        quick: Leave out what needs shadow models.
        seed: Of the models that are trained to compare with.
        jobs: Processes that train them.
        cache: Folder that keeps those models.
        receipt: What the method says of itself.
        progress: Called with (models trained, models).
    """
    start = perf_counter()
    how.training.require("an audit, which compares with retrained models,")
    if not how.loss.classes:
        raise ModelError(
            f"only models of classes can be audited, and the loss {how.loss} is not known to be one of classes; give "
            "losses.CrossEntropy(…), or uw.Loss(your_function, classes=True) where outputs are scores of classes"
        )
    refuse_bounded(how.training.trainer, how.memory_mib)
    check_data(data)
    for model in (before, after):
        check_model(model, data)
    size = QUICK if quick else FULL
    case = build_case(
        data, request, how, size, seed=seed, jobs=jobs, cache=None if cache is None else Path(cache), progress=progress
    )
    return conclude(Examination(case), before, after, seed=seed, quick=quick, receipt=receipt, start=start)


def conclude(
    tests: Examination, old: nn.Module, new: nn.Module, *, seed: int, quick: bool, receipt: Receipt | None, start: float
) -> Audit:
    """Put one model through the tests of a case."""
    case = tests.case
    before, after = case.subject(old), case.subject(new)
    training = case.how.training
    carried = look_into(old, new, case.retrained[0].model)
    mask = scored_nodes(case)
    groups = {"before": [before], "after": [after], "retrained": list(case.retrained)}
    return Audit(
        evidence=tests.of(before, after),
        request=case.removal.request,
        config={
            "seed": seed,
            "quick": quick,
            "left_out": LEFT_OUT if quick else None,
            "retrained": len(case.retrained),
            "trained": len(case.trained),
            "shadows": len(case.shadows),
            "nodes": case.targets,
            "held_out": int(case.nodes.numel()) - case.targets,
            "edges": case.deleted,
            "pairs": int(case.links.size(0)) - case.deleted,
            "alarm": ALARM,
            "agreement": case.agreement.value,
            "removed": case.removal.counts,
            "model": type(old).__name__,
            "recipe": None if training.recipe is None else asdict(training.recipe),
            "trainer": training.called,
            "data": case.data.get("name"),
        },
        classes={key: [class_scores(case, s) for s in group] for key, group in groups.items()},
        recovery={
            key: [] if mask is None else [micro_f1(s.remaining, case.data.y, mask) for s in group]
            for key, group in groups.items()
        },
        receipt=receipt,
        environment=environment(case.data.x.device),
        seconds=perf_counter() - start,
        notes=(*carried.notes, *case.notes, *_unlike(case, before), *_luck(case.agreement.value)),
        carried=carried,
    )


def _luck(same: float) -> list[str]:
    """A note where seeds differ by something beside the deletion: a difference below that is hidden by luck."""
    if same >= TUNING.polish.agreement:
        return []
    return [
        f"retrained models of different seeds are not the same model (agreement {same:.2f} of 1; 0 or less where they "
        "differ as much as the deletion changes): what is less than that luck cannot be seen"
    ]


def _unlike(case: Case, before: Subject) -> list[str]:
    """A note where the model before is not what the training that is compared with gives."""
    mask, labels = case.data.train_mask, case.data.y
    found, *known = (float(cross_entropy(s.whole[mask], labels[mask]).mean()) for s in (before, *case.trained))
    low, high = limits_of(known, "log").range(UNLIKE)
    if low <= found <= high:
        return []
    return [
        f"the model before has a training loss of {found:.3g}, and models that were trained to compare with have "
        f"{low:.3g} to {high:.3g}: is the recipe or trainer that was given how it was trained? If not, the verdict "
        "means nothing"
    ]
