"""unweave: make a trained graph neural network forget.

>>> import unweave as uw
>>> data = uw.load("demo")
>>> model = uw.models.GCN(data.num_features, data.num_classes)
>>> run = uw.train(model, data, seed=0)
>>> done = uw.unlearn(model, data, uw.draw("edges:0.05", data), method="gif", weight_decay=1e-4)
"""

from unweave import losses, methods, models
from unweave.audit import Audit, audit
from unweave.calibration import Calibration
from unweave.checkpoints import Checkpoint, Trainer
from unweave.data import load, split
from unweave.drawing import draw
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
from unweave.explanation import Explanation, explain
from unweave.fitting import Recipe
from unweave.path import trace_path
from unweave.planning import Plan
from unweave.polishing import Polished, polish
from unweave.prepared import Prepared, prepare
from unweave.receipt import Receipt
from unweave.rehearsal import Rehearsal, rehearse
from unweave.request import Request
from unweave.run import Run
from unweave.screening import Screening, screen
from unweave.training import train
from unweave.unlearning import Unlearned, unlearn

__version__ = "0.1.0"

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
