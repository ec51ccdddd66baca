"""The local problem of a request, and what rounding leaves of it."""

import pytest
import torch
from torch import Tensor

import unweave as uw
from unweave._core.cost import Meter
from unweave.curvature.local import LocalProblem
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph


@pytest.mark.parametrize("some", [False, True], ids=["every node", "some nodes"])
def test_a_change_too_small_for_the_losses_is_told_by_the_slopes(some: bool) -> None:
    """A single feature of 2,000 nodes moves them less than their sum is rounded, and was refused for that."""
    data = small_graph(nodes=1500)
    model = uw.models.SGC(data.num_features, 3)

    def problem(dtype: torch.dtype) -> tuple[Objective, LocalProblem]:
        graph, own = data.clone(), uw.models.SGC(data.num_features, 3).to(dtype)
        graph.x = data.x.to(dtype)
        own.load_state_dict(model.state_dict())
        theta = flatten(own)
        decay = torch.full_like(theta, 1e-3)
        objective = Objective(own, graph, cross_entropy, decay, call, Meter(torch.device("cpu")))
        point = objective.at(theta)
        counted = torch.arange(objective.nodes.numel()) % 3 > 0 if some else None
        left = 0.9 * point.gradient()
        return objective, LocalProblem(theta, point.losses.detach(), objective.mu, left, counted=counted)

    (here, told), (exact, truth) = problem(torch.float32), problem(torch.float64)
    pull = -told.gradient(here.at(told.start))
    torch.testing.assert_close(pull.double(), -truth.gradient(exact.at(truth.start)), rtol=1e-4, atol=1e-4)

    wrong = 0
    for length in (10.0**-n for n in range(3, 10)):
        theta: Tensor = told.start + length * pull
        known, point = truth.change(exact.at(theta.double())), here.at(theta)
        change, small = told.resolved(point, pull)
        assert change == pytest.approx(known, rel=0.05)
        assert small or change == told.change(point)
        wrong += abs(told.change(point) / known - 1) > 0.05
    assert wrong, "no step was too small for the losses"
