"""unweave: make a trained graph neural network forget.

>>> import unweave as uw
>>> data = uw.load("demo")
>>> model = uw.models.GCN(data.num_features, data.num_classes)
>>> run = uw.train(model, data, seed=0)
>>> done = uw.unlearn(model, data, uw.draw("edges:0.05", data), method="gif", weight_decay=1e-4)
"""

from unweave import methods, models
from unweave._core.version import __version__
from unweave.auditing import Audit
from unweave.auditing.before.explain import Explanation, explain
from unweave.auditing.before.screen import Screening, screen
from unweave.curvature.prepared import Prepared, prepare
from unweave.datasets import load, split
from unweave.errors import (
    AbnormalRequestError,
    BudgetError,
    ClassLossError,
    DataError,
    DataUnavailableError,
    DivergenceError,
    EmptyRequestError,
    IntegrityError,
    MethodError,
    ModelError,
    NegativeCurvatureError,
    NoProgressError,
    RequestError,
    RunError,
    SolverError,
    UnweaveError,
)
from unweave.experiments.compare import compare
from unweave.graph.draw import draw
from unweave.methods.ladder.calibration import Calibration
from unweave.objective import losses
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.audit import audit
from unweave.run.plan import Plan
from unweave.run.rehearse import Rehearsal, rehearse
from unweave.run.run import Run
from unweave.run.train import train
from unweave.training.adam import Recipe
from unweave.training.checkpoints import Checkpoint, Trainer
from unweave.training.path import trace_path
from unweave.training.polish import Polished, polish
from unweave.unlearning import Unlearned, unlearn

__all__ = [
    "AbnormalRequestError",
    "Audit",
    "BudgetError",
    "Calibration",
    "Checkpoint",
    "ClassLossError",
    "DataError",
    "DataUnavailableError",
    "DivergenceError",
    "EmptyRequestError",
    "Explanation",
    "IntegrityError",
    "MethodError",
    "ModelError",
    "NegativeCurvatureError",
    "NoProgressError",
    "Plan",
    "Polished",
    "Prepared",
    "Receipt",
    "Recipe",
    "Rehearsal",
    "Request",
    "RequestError",
    "Run",
    "RunError",
    "Screening",
    "SolverError",
    "Trainer",
    "Unlearned",
    "UnweaveError",
    "__version__",
    "audit",
    "compare",
    "draw",
    "explain",
    "load",
    "losses",
    "methods",
    "models",
    "polish",
    "prepare",
    "rehearse",
    "screen",
    "split",
    "trace_path",
    "train",
    "unlearn",
]
