"""Ways to forget, one file each, behind the small contract of :class:`Method`."""

from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.baselines.closed_form import ClosedForm
from unweave.methods.baselines.eraser import EraserBEKM, EraserBLPA
from unweave.methods.baselines.influence import IF
from unweave.methods.baselines.lbfgs import LBFGS
from unweave.methods.baselines.published import GIFPublished
from unweave.methods.certified import Certified
from unweave.methods.finetune import Finetune
from unweave.methods.gif import GIF
from unweave.methods.ladder.auto import Auto
from unweave.methods.none import Nothing
from unweave.methods.problem import Problem
from unweave.methods.registry import available, make, register
from unweave.methods.replay import Replay
from unweave.methods.retrace import Retrace
from unweave.methods.retrain import Retrain

__all__ = [
    "GIF",
    "IF",
    "LBFGS",
    "Auto",
    "Certified",
    "ClosedForm",
    "EraserBEKM",
    "EraserBLPA",
    "Expected",
    "Finetune",
    "GIFPublished",
    "Method",
    "Nothing",
    "Outcome",
    "Problem",
    "Replay",
    "Retrace",
    "Retrain",
    "available",
    "make",
    "register",
]
