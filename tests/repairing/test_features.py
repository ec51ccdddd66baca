"""What features say of a node, the node itself had no part in."""

import torch

from unweave.repairing.beliefs import RIDGE, _logistic
from unweave.repairing.features import feature_rows, said_by_features, without


def test_what_is_left_out_is_what_a_fit_without_the_node_says() -> None:
    generator = torch.Generator().manual_seed(0)
    x, target = (torch.randn(12, k, generator=generator, dtype=torch.double) for k in (4, 3))
    spread, turned = torch.linalg.eigh(x.t() @ x)
    found = without(x @ turned, spread, target, 0.7)
    for node in range(12):
        rest = torch.arange(12) != node
        bend = x[rest].t() @ x[rest] + 0.7 * torch.eye(4, dtype=torch.double)
        assert torch.allclose(found[node], x[node] @ torch.linalg.solve(bend, x[rest].t() @ target[rest]))


def test_a_label_does_not_speak_for_itself() -> None:
    """Features of pure chance say nothing of any node, those that a wide regression could remember included."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (120,), generator=generator)
    rows = feature_rows(torch.randn(120, 100, generator=generator))
    log_class = torch.log(torch.nn.functional.one_hot(labels, 3).double() + 1e-9)
    said = said_by_features(rows, torch.ones(120, dtype=torch.bool), log_class)
    assert float((said.argmax(dim=1) == labels).double().mean()) < 0.5


def test_the_regression_of_evidence_ends_at_its_minimum() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 5, generator=generator, dtype=torch.double)
    target = (x[:, 0] > 0.3).double()  # all but separable
    weight = _logistic(x, target)
    slope = x.t() @ (torch.sigmoid(x @ weight) - target) + RIDGE * weight
    assert float(slope.norm()) < 1e-3
