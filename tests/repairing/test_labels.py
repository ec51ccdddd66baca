"""Which labels are wrong: what is said unseen, and what follows from it."""

import pytest
import torch
import torch.nn.functional as F

import unweave as uw
from tests.repairing.planted import CLASSES, Planted, planted, trained
from unweave.objective.scores import log_probabilities
from unweave.repairing.checks import halves
from unweave.repairing.labels import _joint, _noise, judge_labels
from unweave.repairing.suspects import within
from unweave.repairing.unseen import Unseen, deal, unseen


@pytest.fixture(scope="module")
def graph() -> Planted:
    return planted()


@pytest.fixture(scope="module")
def run(graph: Planted) -> uw.Run:
    return trained(graph)


def test_folds_have_every_class_and_every_node_once(graph: Planted) -> None:
    fold = deal(graph.data.y, graph.data.train_mask, 5, 0)
    for label in range(CLASSES):
        counts = torch.bincount(fold[graph.data.train_mask & (graph.data.y == label)], minlength=5)
        assert int(counts.max() - counts.min()) <= 1
    assert torch.equal(fold, deal(graph.data.y, graph.data.train_mask, 5, 0))
    assert not torch.equal(fold, deal(graph.data.y, graph.data.train_mask, 5, 1))


def test_what_is_said_unseen_is_what_a_model_trained_without_the_labels_says(run: uw.Run, graph: Planted) -> None:
    found = unseen(run, folds=4, seed=0)
    mine = (found.fold == 0) & graph.data.train_mask
    without = graph.data.clone()
    without.train_mask = graph.data.train_mask & ~mine
    other = uw.train(uw.models.SGC(8, CLASSES), without, seed=0, epochs=60, weight_decay=1e-2, forgettable=True)
    said = log_probabilities(other.model, graph.data).double()
    assert float((found.log_p[mine] - said[mine]).abs().max()) < 0.02
    seen = log_probabilities(run.model, graph.data).double()
    assert float((found.log_p[mine] - seen[mine]).abs().max()) > 0.1, "the label was seen"


def test_flipped_labels_are_found_with_an_honest_share_of_false_discoveries(run: uw.Run, graph: Planted) -> None:
    trusted, held_out = halves(run, 0)
    assert not bool((trusted & held_out).any())
    found = judge_labels(graph.data, unseen(run), trusted)
    truth = torch.zeros(graph.data.num_nodes, dtype=torch.bool)
    truth[graph.nodes] = True
    first = within(found.wrong, 0.2)
    assert truth[first].double().mean() > 0.75
    assert truth[first].sum() > 0.75 * graph.nodes.numel()
    assert found.rate == pytest.approx(0.15, abs=0.05)
    assert bool((found.wrong[~graph.data.train_mask] == 0).all())
    better = found.log_class[graph.nodes].argmax(dim=1)
    assert (better == graph.right[graph.nodes]).double().mean() > 0.8


def test_wrong_labels_are_found_where_the_model_has_nothing_to_say(graph: Planted) -> None:
    """A model that has learnt every label by heart says it unseen too; features and neighbours do not."""
    data = graph.data
    mute = Unseen(torch.zeros(data.num_nodes, CLASSES).double().log_softmax(1), deal(data.y, data.train_mask, 5, 0), 0)
    found = judge_labels(data, mute, data.val_mask)
    first = within(found.wrong, 0.2)
    assert torch.isin(first, graph.nodes).double().mean() > 0.75
    assert first.numel() > 0.75 * graph.nodes.numel()


def test_a_model_that_cannot_forget_is_refused_with_what_to_do(run: uw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*_: object, **__: object) -> uw.Run:
        raise uw.NoProgressError("no step lowers the objective")

    monkeypatch.setattr(uw.Run, "forget", stuck)
    with pytest.raises(uw.ModelError, match=r"cannot forget .* train it with forgettable=True"):
        uw.repair(run)


@pytest.mark.parametrize(("rate", "pull"), [(0.2, 0.0), (0.2, 1.5), (0.02, 0.5)])
def test_how_labels_went_wrong_is_found_from_probabilities(rate: float, pull: float) -> None:
    rng = torch.Generator().manual_seed(0)
    log_p = F.log_softmax(3 * torch.randn(6000, 5, generator=rng, dtype=torch.double), dim=1)
    right = torch.multinomial(log_p.exp(), 1, generator=rng).flatten()
    others = (pull * log_p).exp().scatter(1, right[:, None], 0.0)
    drawn = torch.multinomial(others, 1, generator=rng).flatten()
    flipped = torch.rand(6000, generator=rng) < rate
    labels = torch.where(flipped, drawn, right)
    found, strength = _noise(log_p, labels)
    assert found == pytest.approx(rate, abs=0.02)
    wrong = 1 - F.softmax(_joint(log_p, labels, found, strength), dim=1).gather(1, labels[:, None]).flatten()
    for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.01)):
        here = (wrong >= low) & (wrong < high)
        if int(here.sum()) > 200:
            assert float(flipped[here].double().mean()) == pytest.approx(float(wrong[here].mean()), abs=0.07)


def test_the_joint_probability_is_the_formula() -> None:
    log_p = F.log_softmax(torch.randn(7, 4, dtype=torch.double), dim=1)
    labels = torch.arange(7) % 4
    p, rate, pull = log_p.exp(), 0.3, 0.7
    expected = torch.empty(7, 4, dtype=torch.double)
    for i, b in enumerate(labels.tolist()):
        for a in range(4):
            rest = sum(float(p[i, c]) ** pull for c in range(4) if c != a)
            expected[i, a] = p[i, a] * (1 - rate if a == b else rate * float(p[i, b]) ** pull / rest)
    assert torch.allclose(_joint(log_p, labels, rate, pull).exp(), expected)
    assert torch.allclose(_joint(log_p, labels, rate, pull, whole=False).exp(), expected)


def test_no_more_is_proposed_than_the_share_allows() -> None:
    wrong = torch.tensor([0.1, 0.99, 0.6, 0.0, 0.9], dtype=torch.double)
    assert within(wrong, 0.06).tolist() == [1, 4]
    assert within(wrong, 0.2).tolist() == [1, 4, 2]
    assert within(wrong, 0.4).tolist() == [1, 4, 2, 0]
    assert within(wrong, 0.001).tolist() == []
