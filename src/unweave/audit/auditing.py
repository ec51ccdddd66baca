"""Is it gone? A model that was made to forget, judged beside retrained models and beside such as saw the data."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave.audit.case import Case, Size, Subject, build_case
from unweave.audit.collateral import class_scores, scored_nodes
from unweave.audit.evidence import ALARM, Evidence, limits
from unweave.audit.examination import Examination, Verdict, verdict_of
from unweave.audit.population import Upbringing
from unweave.errors import ModelError, RequestError
from unweave.fitting import Progress, Recipe
from unweave.graph import is_undirected
from unweave.losses import Loss, cross_entropy
from unweave.metrics import micro_f1
from unweave.objective import Forward, call, flatten
from unweave.receipt import Receipt, environment
from unweave.request import Request
from unweave.run import Run
from unweave.validation import check_data, check_model

__all__ = ["FULL", "QUICK", "Audit", "audit"]

FULL, QUICK = Size(references=16, shadows=32), Size(references=16, shadows=0)
UNLIKE = 1e-4
"""Chance that a model is taken for one of another training than it had."""

LEFT_OUT = "the likelihood-ratio attacks and the hard cases, which need shadow models"

OTHER = (
    "the model after is of another architecture than the one before, of which all models to compare with are: what it "
    "does differently may come from that, whatever the verdict"
)


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

    @property
    def verdict(self) -> Verdict:
        """The conclusion of all tests together."""
        return verdict_of(self.evidence)

    @property
    def sentence(self) -> str:
        """The conclusion in plain words."""
        able = [entry for entry in self.evidence if entry.powerful]
        tests = f"{len(able)} of {sum(e.asks == 'gone' for e in self.evidence)} tests that ask whether the data is gone"
        named = {
            finding: "; ".join(e.name for e in self.evidence if e.finding == finding)
            for finding in ("remembers", "differs")
        }
        if self.verdict == "remembers":
            return f"Not gone. The model still looks like one that saw the deleted data to: {named['remembers']}."
        if self.verdict == "differs":
            return (
                f"Not what retraining gives. The model lies outside of what retrained models do in: {named['differs']}."
            )
        if self.verdict == "gone":
            return (
                f"Gone, as far as these tests can see. {tests} would have noticed had nothing been done, and none of "
                "them tells this model from retrained ones."
                + (" A quick audit leaves out the strongest tests." if self.config["quick"] else "")
            )
        return (
            "These tests cannot tell. On this request none of them tells models that saw the data from models that did "
            "not, so that passing them means nothing."
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "format": "unweave-audit-1",
            "verdict": self.verdict,
            "sentence": self.sentence,
            "request": self.request.to_dict(),
            "config": self.config,
            "evidence": [entry.to_dict() for entry in self.evidence],
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
        width = max(len(entry.name) for entry in self.evidence)
        lines = [self.sentence, ""]
        for e in self.evidence:
            low, high = e.usual
            usual = f"{'' if e.side == 'above' else f'{low:.3g} '}… {high:.3g}"
            lines.append(
                f"{e.name:<{width}}  {e.before.value:8.3g} → {e.after.value:<8.3g} retrained {usual:<18} "
                f"{e.unit:<7} {e.finding}"
            )
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])


def audit(
    before: Run | nn.Module,
    after: Run | nn.Module,
    *,
    data: Data | None = None,
    request: Request | None = None,
    recipe: Recipe | None = None,
    trainer: Callable[[nn.Module, Data], object] | None = None,
    quick: bool = False,
    seed: int = 0,
    jobs: int = 1,
    cache: str | Path | None = None,
    loss: Loss = cross_entropy,
    forward: Forward = call,
    progress: Progress | None = None,
) -> Audit:
    """Is it gone? Test a model that was made to forget against retrained ones.

    Args:
        before: The run, or the model, before the request.
        after: The same after it.
        data: The graph before the request, for models; that of ``before`` for runs.
        request: What was to be forgotten, for models; what the new receipts of ``after`` say for runs.
        recipe: How the model was trained, for models.
        trainer: Your own training instead of a recipe: called with a copy of the model, whose weights have been erased,
            and a graph, it draws new weights from torch's generators and trains in place.
        quick: Leave out what needs shadow models; the report says what.
        seed: Of the models that are trained to compare with.
        jobs: Processes that train them; a script that uses more than one guards its work by ``__name__``.
        cache: Folder that keeps those models, so that an interrupted audit goes on. They remember what was deleted.
        loss: Per-node loss, for models; class probabilities only.
        forward: How the models are called.
        progress: Called with (models trained, models).

    Returns:
        Evidence and verdict; ``write_report`` makes a page of it.
    """
    start = perf_counter()
    receipts: Sequence[Receipt] = ()
    if isinstance(before, Run) and isinstance(after, Run):
        data = before.data if data is None else data
        recipe = before.recipe if recipe is None else recipe
        if loss is not cross_entropy or forward is not call:
            raise ModelError("runs know their own loss and forward; leave loss= and forward= out")
        loss, forward = before.loss, before.forward
        receipts = _new_receipts(before, after)
        if request is None:
            if not receipts:
                raise RequestError("the second run has no receipt that the first has not; give request=")
            asked = [Request.from_dict(receipt.request) for receipt in receipts]
            request = asked[0] if len(asked) == 1 else Request.merged(asked, undirected=is_undirected(data))
    elif recipe is not None and trainer is not None:
        raise ModelError("models are trained by the recipe= or by your trainer=; give one of them")
    old, new = (value.model if isinstance(value, Run) else value for value in (before, after))
    for value in (old, new):
        if not isinstance(value, nn.Module):
            raise ModelError(f"an audit is of two runs or of two modules (done.model), got {type(value).__name__}")
    if request is not None and not isinstance(request, Request):
        raise RequestError(f"request must be an unweave.Request, got {type(request).__name__}")
    if data is None or request is None:
        raise RequestError("an audit of two models needs the graph as it was (data=) and what was deleted (request=)")
    if recipe is None and trainer is None:
        raise ModelError(
            "retrained models are what an audit compares with; give the recipe= of the training, or trainer="
        )
    if loss is not cross_entropy:
        raise ModelError("only models of classes (unweave.losses.cross_entropy) can be audited")
    check_data(data)
    for model in (old, new):
        check_model(model, data)
    how = Upbringing(old, recipe, trainer, loss, forward)
    size = QUICK if quick else FULL
    case = build_case(
        data, request, how, size, seed=seed, jobs=jobs, cache=None if cache is None else Path(cache), progress=progress
    )
    return conclude(case, old, new, seed=seed, quick=quick, receipt=_told(receipts), start=start)


def conclude(
    case: Case, old: nn.Module, new: nn.Module, *, seed: int, quick: bool, receipt: Receipt | None, start: float
) -> Audit:
    """Test one model of a case."""
    before, after = case.subject(old), case.subject(new)
    mask = scored_nodes(case)
    groups = {"before": [before], "after": [after], "retrained": list(case.retrained)}
    return Audit(
        evidence=Examination(case).of(before, after),
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
            "removed": case.removal.counts,
            "model": type(old).__name__,
            "recipe": None if case.how.recipe is None else asdict(case.how.recipe),
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
        notes=(*case.notes, *_unlike(case, before), *([] if flatten(old).shape == flatten(new).shape else [OTHER])),
    )


def _unlike(case: Case, before: Subject) -> list[str]:
    """A note where the model before is not what the training that is compared with gives."""
    mask, labels = case.data.train_mask, case.data.y
    found, *known = (float(cross_entropy(s.whole[mask], labels[mask]).mean()) for s in (before, *case.trained))
    low, high = limits(known, UNLIKE, skewed=True)
    if low <= found <= high:
        return []
    return [
        f"the model before has a training loss of {found:.3g}, and models that were trained to compare with have "
        f"{low:.3g} to {high:.3g}: is the recipe or trainer that was given how it was trained? If not, the verdict "
        "means nothing"
    ]


def _new_receipts(before: Run, after: Run) -> tuple[Receipt, ...]:
    old = before.receipts
    if [r.request_digest for r in after.receipts[: len(old)]] != [r.request_digest for r in old]:
        raise RequestError("the second run does not go on from the first: its first receipts are others")
    return after.receipts[len(old) :]


def _told(receipts: Sequence[Receipt]) -> Receipt | None:
    return receipts[-1] if receipts else None
