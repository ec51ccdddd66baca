"""unweave: make a trained graph neural network forget.

>>> import unweave as uw
>>> data = uw.load("demo")
>>> model = uw.models.GCN(data.num_features, data.num_classes)
>>> run = uw.train(model, data, seed=0)
>>> after = run.forget(uw.draw("edges:0.05", data))
>>> print(after.receipts[-1])  # doctest: +SKIP

Names are imported when they are first used, so that ``import unweave`` and ``unweave --help`` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unweave._core.version import __version__

if TYPE_CHECKING:
    from unweave import integrations as integrations, methods as methods, models as models, tasks as tasks
    from unweave._core.ranks import ranks as ranks
    from unweave.auditing import Audit as Audit
    from unweave.auditing.before.screen import Screening as Screening, screen as screen
    from unweave.changes import Change as Change
    from unweave.curvature.preparation import prepare as prepare
    from unweave.curvature.prepared import Prepared as Prepared
    from unweave.datasets import (
        load as load,
        load_folder as load_folder,
        save_folder as save_folder,
        split as split,
    )
    from unweave.errors import (
        AbnormalRequestError as AbnormalRequestError,
        BudgetError as BudgetError,
        ClassLossError as ClassLossError,
        DataError as DataError,
        DataUnavailableError as DataUnavailableError,
        DivergenceError as DivergenceError,
        EmptyRequestError as EmptyRequestError,
        IntegrityError as IntegrityError,
        InterruptedStream as InterruptedStream,
        MethodError as MethodError,
        ModelError as ModelError,
        NegativeCurvatureError as NegativeCurvatureError,
        NoProgressError as NoProgressError,
        RankError as RankError,
        RequestError as RequestError,
        RunError as RunError,
        SolverError as SolverError,
        StrictError as StrictError,
        UnweaveError as UnweaveError,
        UnweaveWarning as UnweaveWarning,
    )
    from unweave.experiments.compare import compare as compare
    from unweave.graph.draw import draw as draw
    from unweave.inspection import Gap as Gap, Inspection as Inspection
    from unweave.inspection.explain import Explanation as Explanation, explain as explain
    from unweave.inspection.inspect import inspect as inspect
    from unweave.methods import Method as Method
    from unweave.methods.ladder.calibration import Calibration as Calibration
    from unweave.objective import losses as losses
    from unweave.objective.losses import Loss as Loss
    from unweave.receipt.receipt import Receipt as Receipt
    from unweave.repairing import Repair as Repair, repair as repair
    from unweave.request import Request as Request
    from unweave.run.audit import audit as audit
    from unweave.run.plan import Plan as Plan
    from unweave.run.rehearse import Rehearsal as Rehearsal
    from unweave.run.run import Run as Run
    from unweave.run.train import train as train
    from unweave.training.checkpoints import Checkpoint as Checkpoint, Trainer as Trainer
    from unweave.training.path import trace_path as trace_path
    from unweave.training.polish import Polished as Polished, polish as polish
    from unweave.training.recipe import Recipe as Recipe, Training as Training
    from unweave.unlearning import Unlearned as Unlearned, unlearn as unlearn

_VOCABULARY = {
    "Audit": "auditing.audit",
    "Change": "changes.change",
    "Loss": "objective.losses",
    "Method": "methods.base",
    "Plan": "run.plan",
    "Receipt": "receipt.receipt",
    "Recipe": "training.recipe",
    "Repair": "repairing.result",
    "Request": "request",
    "Run": "run.run",
    "Training": "training.recipe",
    "UnweaveError": "errors",
    "audit": "run.audit",
    "compare": "experiments.compare",
    "draw": "graph.draw",
    "inspect": "inspection.inspect",
    "integrations": "integrations",
    "load": "datasets.loading",
    "load_folder": "datasets.folder",
    "losses": "objective.losses",
    "methods": "methods",
    "models": "models",
    "polish": "training.polish",
    "prepare": "curvature.preparation",
    "repair": "repairing.repair",
    "save_folder": "datasets.folder",
    "split": "datasets.split",
    "tasks": "tasks",
    "train": "run.train",
    "unlearn": "unlearning",
}
"""What a user needs to know, and where it lives: this is what ``dir(unweave)`` shows."""

_BESIDE = {
    "Calibration": "methods.ladder.calibration",
    "Checkpoint": "training.checkpoints",
    "Explanation": "inspection.explain",
    "Gap": "inspection.quantity",
    "Inspection": "inspection.inspection",
    "InterruptedStream": "errors",
    "Polished": "training.polish",
    "Prepared": "curvature.prepared",
    "Rehearsal": "run.rehearse",
    "Screening": "auditing.before.screen",
    "Trainer": "training.checkpoints",
    "Unlearned": "unlearning",
    "UnweaveWarning": "errors",
    "explain": "inspection.explain",
    "ranks": "_core.ranks",
    "screen": "auditing.before.screen",
    "trace_path": "training.path",
}
"""What the vocabulary hands out or takes, by its short name."""

__all__ = [  # noqa: PLE0604 (a constant list, spelled once above)
    *_VOCABULARY,
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    place = _VOCABULARY.get(name) or _BESIDE.get(name) or ("errors" if name.endswith("Error") else None)
    if place is None:
        raise AttributeError(f"module 'unweave' has no attribute {name!r}; dir(unweave) lists what it has")
    module = import_module(f"unweave.{place}")
    value = module if place.endswith(name) and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
