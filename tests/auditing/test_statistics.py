"""What the audit computes from numbers, against the definitions."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from unweave.auditing.after.collateral import expected_calibration_error
from unweave.auditing.after.likelihood import LikelihoodRatio, confidence
from unweave.auditing.case import Shadow, Subject
from unweave.auditing.evidence import Evidence, Reading
from unweave.auditing.separation import auc, auc_interval, hits_at

RNG = np.random.default_rng(0)


def readings(*values: float) -> tuple[Reading, ...]:
    return tuple(map(Reading, values))


def evidence(after: float, retrained: list[float], trained: list[float], **options: object) -> Evidence:
    return Evidence(
        "a",
        "b",
        "c",
        "d",
        "AUC",
        Reading(0.0),
        Reading(after),
        readings(*retrained),
        readings(*trained),
        0.01,
        **options,
    )  # type: ignore[arg-type]


def test_area_and_hits_are_those_of_the_definition() -> None:
    inside, outside = RNG.integers(0, 9, 40).astype(float), RNG.integers(0, 7, 30).astype(float)
    pairs = np.sign(inside[:, None] - outside[None, :])
    assert auc(inside, outside) == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2)
    assert auc(inside, outside) == pytest.approx(stats.mannwhitneyu(inside, outside).statistic / pairs.size)
    assert hits_at(inside, outside, 0.1) == (inside > np.sort(outside)[-4]).mean()
    assert hits_at(np.ones(3), np.zeros(5)) == 1
    assert hits_at(np.zeros(3), np.zeros(5)) == 0


def test_the_interval_of_an_area_covers_it() -> None:
    true = stats.norm.cdf(1 / 2**0.5)
    held = 0
    for _ in range(200):
        low, high = auc_interval(RNG.normal(1, 1, 60), RNG.normal(0, 1, 80))
        assert low is not None
        assert high is not None
        held += low <= true <= high
    assert 180 <= held <= 199
    assert auc_interval(np.ones(1), np.zeros(9)) == (None, None)


@pytest.mark.parametrize(
    ("after", "trained", "options", "finding"),
    [
        (0.9, [0.9, 0.91], {}, "remembers"),
        (0.5, [0.9, 0.91], {}, "as retrained"),
        (0.1, [0.9, 0.91], {}, "differs"),
        (0.9, [0.5, 0.51], {}, "differs"),
        (0.5, [0.5, 0.51], {}, "no power"),
        (0.1, [0.1, 0.11], {"side": "above"}, "as retrained"),
        (0.9, [0.1, 0.11], {"side": "above"}, "differs"),
        (0.5, [0.5, 0.51], {"asks": "else"}, "as retrained"),
    ],
)
def test_what_is_found(after: float, trained: list[float], options: dict[str, object], finding: str) -> None:
    assert evidence(after, [0.49, 0.5, 0.51, 0.5, 0.49, 0.51], trained, **options).finding == finding


def test_where_seeds_do_not_matter_a_last_digit_is_not_material() -> None:
    """A convex model ends at the same place from every seed; an answer that is 99 % there has not failed."""
    retrained = [0.5 + 1e-9 * n for n in range(8)]
    assert evidence(0.504, retrained, [0.9] * 8).finding == "as retrained"
    assert evidence(0.55, retrained, [0.9] * 8).finding == "remembers"


def test_a_few_test_nodes_more_are_chance_where_as_many_could_have_gone_the_other_way() -> None:
    """Retrained models are wrong on the same 100 of 1,000 nodes; another has 5 of those right, and 8 others wrong."""
    options = {"asks": "else", "side": "above"}
    assert evidence(0.103, [0.1] * 8, [0.1] * 8, **options).finding == "differs"
    assert evidence(0.103, [0.1] * 8, [0.1] * 8, **options, chance=13**0.5 / 1000).finding == "as retrained"
    assert evidence(0.111, [0.1] * 8, [0.1] * 8, **options, chance=13**0.5 / 1000).finding == "differs"


def test_the_least_share_is_where_four_of_five_mixtures_are_outside() -> None:
    retrained, trained = RNG.normal(0.5, 0.01, 16).tolist(), RNG.normal(0.8, 0.05, 16).tolist()
    found = evidence(0.5, retrained, trained)
    share = found.noticeable
    assert share is not None
    assert 0.05 < share < 0.5
    low, high = found.usual

    def outside(s: float) -> float:
        return float(np.mean([not low <= (1 - s) * a + s * b <= high for a in retrained for b in trained]))

    assert outside(share + 1e-9) >= 0.8 > outside(share - 1e-3)
    assert all(outside(s) >= 0.8 for s in np.linspace(share + 1e-9, 1, 20))
    assert evidence(0.5, retrained, retrained).noticeable is None
    assert evidence(0.5, retrained, trained, asks="else").noticeable is None


def test_the_likelihood_ratio_is_that_of_two_normals() -> None:
    models, items = 40, 5
    seen = RNG.random((models, items)) < 0.5
    said = np.where(seen, 2.0, -1.0) + RNG.normal(0, 0.7, (models, items)) + np.arange(items)
    subjects = [Subject(nn.Identity(), torch.tensor(row), torch.tensor(row)) for row in said]
    shadows = tuple(Shadow(s, m, m[:0]) for s, m in zip(subjects, seen, strict=True))
    attack = LikelihoodRatio(shadows, seen, lambda subject: subject.whole.numpy()[:, None])
    found = attack(subjects[0])
    for item in range(items):
        parts = []
        for mask in (seen, ~seen):
            mean = said[mask[:, item], item].mean()
            left = [said[mask[:, i], i] - said[mask[:, i], i].mean() for i in range(items)]
            spread = np.sqrt(sum((x**2).sum() for x in left) / sum(len(x) - 1 for x in left))
            spread *= np.sqrt(1 + 1 / mask.sum(axis=0).mean())
            parts.append(stats.norm.logpdf(said[0, item], mean, spread))
        assert found[item] == pytest.approx(parts[0] - parts[1])


def test_confidence_is_the_logit_of_the_label() -> None:
    outputs = torch.randn(6, 4, dtype=torch.float64).log_softmax(dim=1)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    p = outputs.exp()[torch.arange(6), labels].numpy()
    assert confidence(outputs, labels) == pytest.approx(np.log(p / (1 - p)))
    assert np.isfinite(confidence(torch.tensor([[0.0, -800.0]], dtype=torch.float64), torch.tensor([0]))).all()


def test_calibration_error_of_a_sure_and_of_an_honest_model() -> None:
    sure = torch.tensor([[0.0, -50.0]] * 10)
    assert expected_calibration_error(sure, torch.tensor([0] * 6 + [1] * 4)) == pytest.approx(0.4)
    honest = torch.tensor([[0.6, 0.4]] * 10).log()
    assert expected_calibration_error(honest, torch.tensor([0] * 6 + [1] * 4)) == pytest.approx(0, abs=1e-6)
