"""The figures, against values worked out by hand."""

import math

import pytest
import torch

from unweave.models import SGC
from unweave.objective.parameters import load_flat
from unweave.objective.scores import closed, gap, micro_f1, parameter_gap_closed, score
from unweave.testing import small_graph

ALL = torch.tensor([True, True])


def logs(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def test_gap_is_the_mean_divergence_from_the_retrained_model() -> None:
    retrained, other = logs([0.5, 0.5], [0.9, 0.1]), logs([0.25, 0.75], [0.9, 0.1])
    first = 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
    assert gap(retrained, other, ALL) == pytest.approx(first / 2)
    assert gap(retrained, other, torch.tensor([True, False])) == pytest.approx(first)
    assert gap(retrained, retrained, ALL) == 0
    assert gap(other, retrained, ALL) != pytest.approx(first / 2), "the divergence is not symmetric"


def test_closed() -> None:
    assert closed(0.0, 2.0) == 1
    assert closed(2.0, 2.0) == 0
    assert closed(3.0, 2.0) == -0.5
    assert closed(1.0, 0.0) is None


def test_micro_f1_is_accuracy_over_the_mask() -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    labels = torch.tensor([0, 0, 0])
    assert micro_f1(outputs, labels, torch.tensor([True, True, False])) == 0.5


def test_parameter_gap() -> None:
    start, method, target = SGC(2, 2), SGC(2, 2), SGC(2, 2)
    load_flat(start, torch.tensor([0.0, 0, 0, 0]))
    load_flat(target, torch.tensor([4.0, 0, 0, 0]))
    load_flat(method, torch.tensor([3.0, 0, 0, 0]))
    assert parameter_gap_closed(method, target, start) == pytest.approx(0.75)


def test_score_covers_the_three_masks() -> None:
    scores = score(SGC(8, 3), small_graph())
    assert set(scores) == {f"{part}_{figure}" for part in ("train", "val", "test") for figure in ("loss", "f1")}


def test_the_gap_of_what_hardly_moved_is_no_rounding() -> None:
    """Outputs that one edge moves by 1e-4, in single precision: as the same in double precision."""
    generator = torch.Generator().manual_seed(0)
    one = 4 * torch.randn(200, 6, generator=generator)
    other = one + 1e-4 * torch.randn(200, 6, generator=generator)
    found = gap(one.log_softmax(1), other.log_softmax(1), torch.ones(200, dtype=torch.bool))
    exact = gap(one.double().log_softmax(1), other.double().log_softmax(1), torch.ones(200, dtype=torch.bool))
    assert 0 < exact < 1e-8
    assert found == pytest.approx(exact, rel=0.01)
