"""Audit two runs, or two models of one's own: is it gone?"""

from collections.abc import Sequence
from pathlib import Path

from torch import nn
from torch_geometric.data import Data

from unweave.auditing.audit import Audit, audit_models
from unweave.auditing.population import Upbringing
from unweave.errors import ModelError, RequestError
from unweave.graph.index import is_undirected
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.run import Run
from unweave.training.adam import Progress
from unweave.training.recipe import AnyTrainer, Recipe, Training

__all__ = ["audit"]


def audit(
    before: Run | nn.Module,
    after: Run | nn.Module,
    *,
    data: Data | None = None,
    request: Request | None = None,
    recipe: Recipe | None = None,
    trainer: AnyTrainer | str | None = None,
    quick: bool = False,
    seed: int = 0,
    jobs: int = 1,
    cache: str | Path | None = None,
    loss: AnyLoss | None = None,
    forward: Forward = call,
    memory_mib: float | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Is it gone? Test a model that was made to forget against retrained ones.

    Args:
        before: The run, or the model, before the request.
        after: The same after it.
        data: The graph before the request, for models; that of ``before`` for runs.
        request: What was to be forgotten, for models; what the new receipts of ``after`` say for runs.
        recipe: How the model was trained; a run knows it, where anybody does.
        trainer: Your own training instead of a recipe, a function or its import path ``"package.module:function"``:
            called with a copy of the model, whose weights have been erased, and a graph, it draws new weights from
            torch's generators and trains in place.
        quick: Leave out what needs shadow models; the report says what.
        seed: Of the models that are trained to compare with.
        jobs: Processes that train them; a script that uses more than one guards its work by ``__name__``.
        cache: Folder that keeps those models, so that an interrupted audit goes on. They remember what was deleted.
        loss: Per-node loss, for models; class probabilities only.
        forward: How the models are called.
        memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph, in
            each process; it is then done in blocks of nodes.
        progress: Called with (models trained, models).

    Returns:
        Evidence and verdict; ``write_report`` makes a page of it.

    Raises:
        MethodError: Nobody said how the model was trained, so that there is nothing to compare with.
        UnweaveError: Models, graph or request cannot be audited.
    """
    if recipe is not None and trainer is not None:
        raise ModelError("models are trained by the recipe= or by your trainer=; give one of them")
    training = Training(0.0 if recipe is None else recipe.weight_decay, recipe, trainer)
    receipts: Sequence[Receipt] = ()
    if isinstance(before, Run) and isinstance(after, Run):
        data = before.data if data is None else data
        training = training if training.known else before.training
        if loss is not None or forward is not call:
            raise ModelError("runs know their own loss and forward; leave loss= and forward= out")
        loss, forward = before.loss, before.forward
        receipts = _new_receipts(before, after)
        if request is None:
            if not receipts:
                raise RequestError("the second run has no receipt that the first has not; give request=")
            if any(receipt.kind == "change" and receipt.carried_out for receipt in receipts):
                raise RequestError(
                    "data was added or corrected between the two runs, and an audit asks what a model knows of what "
                    "was deleted; audit runs between which there are deletions alone"
                )
            asked = [Request.from_dict(receipt.request) for receipt in receipts if receipt.carried_out]
            if not asked:
                raise RequestError("the second run has forgotten nothing that the first has not; give request=")
            request = asked[0] if len(asked) == 1 else Request.merged(asked, undirected=is_undirected(data))
    old, new = (value.model if isinstance(value, Run) else value for value in (before, after))
    for value in (old, new):
        if not isinstance(value, nn.Module):
            raise ModelError(f"an audit is of two runs or of two modules (done.model), got {type(value).__name__}")
    if request is not None and not isinstance(request, Request):
        raise RequestError(f"request must be an unweave.Request, got {type(request).__name__}")
    if data is None or request is None:
        raise RequestError("an audit of two models needs the graph as it was (data=) and what was deleted (request=)")
    return audit_models(
        old,
        new,
        data,
        request,
        Upbringing(old, training, as_loss(cross_entropy if loss is None else loss), forward, memory_mib),
        quick=quick,
        seed=seed,
        jobs=jobs,
        cache=cache,
        receipt=next((receipt for receipt in reversed(receipts) if receipt.carried_out), None),
        progress=progress,
    )


def _new_receipts(before: Run, after: Run) -> Sequence[Receipt]:
    old = before.receipts
    if [r.request_digest for r in after.receipts[: len(old)]] != [r.request_digest for r in old]:
        raise RequestError("the second run does not go on from the first: its first receipts are others")
    return after.receipts[len(old) :]
