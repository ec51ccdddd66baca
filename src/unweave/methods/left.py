"""The gradient that training left: a restart at a minimum keeps it where the request is small beside it.

Training ends with a little gradient g, and so does a retraining. A restart on L' would spend its gradients on making g
smaller; where what the request pulls is no more than that, it would lead away from every retraining. On L'(θ) − ⟨g, θ⟩
the request is all that pulls.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.local import LocalProblem
from unweave.curvature.prepared import Prepared, widened
from unweave.curvature.solvers import LowRank
from unweave.methods.problem import Problem

__all__ = ["kept", "left_by_training", "most_to_gain"]


def left_by_training(problem: Problem, prepared: Prepared | None) -> Tensor:
    """The gradient at which a training on the remaining graph would end: a share of that at which the first one did."""
    if prepared is None:
        return problem.share * problem.original_gradient
    slope = widened(prepared.slope.to(problem.theta.device), problem.places, problem.theta.numel())
    return problem.remaining.mass * slope


def kept(problem: Problem, slope: Tensor, curvature: LowRank) -> LocalProblem | None:
    """L' but for that gradient, where following it would lower L' by more than a restart may leave of its fall.

    Elsewhere it is of no account, and L' alone is bounded from below however little it bends. Where examples are pairs
    the known curvature covers too little of it to tell.
    """
    asked = _promised(problem.forgotten_gradient, curvature)
    if problem.flat or not _promised(slope, curvature) > TUNING.step.kept * asked:
        return None
    return replace(problem.local(), slope=slope)


def most_to_gain(problem: Problem, local: LocalProblem, curvature: LowRank) -> float:
    """The largest ⟨g, θ − θ0⟩ on the way to a minimum of L' − ⟨g, θ⟩, by a quadratic model of it and with room.

    With the step d to that minimum no point as low as θ0 is farther than 2‖d‖ from it, in lengths by the curvature, and
    ⟨g, x⟩ is at most the product of the lengths of H⁻¹g and x. Steps that gain more follow g where L' hardly bends.
    """
    both = _promised(local.slope, curvature) * _promised(problem.forgotten_gradient, curvature)
    return TUNING.step.astray * 4 * math.sqrt(both)


def _promised(pull: Tensor, curvature: LowRank) -> float:
    """½ gᵀH⁻¹g, by how much following a gradient lowers a function of this curvature."""
    return float(torch.dot(pull, curvature.solve(pull, 0.0))) / 2
