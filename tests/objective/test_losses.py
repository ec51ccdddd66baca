"""Losses are asked what they are, so that class weights and label smoothing lose none of the tools."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import Meter
from unweave.curvature.preparation import checked_objective
from unweave.graph.removal import take
from unweave.objective.decay import decay_vector
from unweave.objective.losses import CrossEntropy, Loss, as_loss, known_loss, mean_of, with_slope
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.parts.locality import local_pull
from unweave.testing import small_graph
from unweave.training.adam import reinitialise, seeded

WEIGHTS = (0.5, 1.0, 3.0)
SKEWED = CrossEntropy(class_weights=WEIGHTS, label_smoothing=0.1)


def own(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def doubled() -> Data:
    data = small_graph()
    data.x = data.x.double()
    return data


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS, dtype=torch.float64)),
        nn.CrossEntropyLoss(label_smoothing=0.2),
        nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS, dtype=torch.float64), label_smoothing=0.2),
        nn.BCEWithLogitsLoss(),
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor(WEIGHTS, dtype=torch.float64)),
        nn.MSELoss(),
    ],
    ids=str,
)
def test_the_mean_of_a_loss_of_torch_is_what_torch_gives(loss: nn.Module) -> None:
    outputs = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 2, 0, 1, 2])
    given = targets if isinstance(loss, nn.CrossEntropyLoss) else F.one_hot(targets).double()
    found = as_loss(loss)
    assert float(mean_of(found(outputs, given), found.mass(given))) == pytest.approx(float(loss(outputs, given)), 1e-12)
    slope = with_slope(found, outputs, given)[1]
    leaf = outputs.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(leaf, given) * found.mass(given), leaf)
    torch.testing.assert_close(slope, wanted)
    assert found == as_loss(loss)
    assert found.convex


def test_a_loss_says_what_it_is() -> None:
    plain, skewed, mine = as_loss(F.cross_entropy), SKEWED, as_loss(own)
    assert plain is as_loss(F.nll_loss) is uw.losses.cross_entropy
    assert (plain.plain, plain.classes, plain.convex, str(plain)) == (True, True, True, "cross_entropy")
    assert (skewed.plain, skewed.classes, skewed.convex) == (False, True, True)
    assert (mine.plain, mine.classes, mine.convex, mine.name) == (False, False, False, "own")
    assert str(skewed) == "cross_entropy(class_weights=[0.5, 1.0, 3.0], label_smoothing=0.1)"
    assert Loss(own, classes=True) == Loss(own, classes=True) != mine
    assert as_loss(skewed) is skewed


@pytest.mark.parametrize(
    "loss", [SKEWED, uw.losses.cross_entropy, uw.losses.squared_error, uw.losses.binary_cross_entropy]
)
def test_a_built_in_loss_is_known_by_its_settings(loss: Loss) -> None:
    assert known_loss(json.loads(json.dumps(loss.settings))) == loss


def test_a_loss_of_ones_own_is_not() -> None:
    assert known_loss(as_loss(own).settings) is None
    assert known_loss(Loss(own, "cross_entropy").settings) is None
    with pytest.raises(uw.ModelError, match="does not describe a loss"):
        known_loss({"name": "cross_entropy", "class_weights": 3})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: as_loss(nn.CrossEntropyLoss(reduction="sum")), "divided by the number of training nodes"),
        (lambda: as_loss(nn.CrossEntropyLoss(ignore_index=2)), "train_mask"),
        (lambda: as_loss("cross_entropy"), "function"),  # type: ignore[arg-type]
        (lambda: CrossEntropy(class_weights=(1.0, -1.0)), "class_weights"),
        (lambda: CrossEntropy(label_smoothing=1.0), "label_smoothing"),
    ],
)
def test_what_cannot_be_a_loss_says_what_to_do(wrong: object, says: str) -> None:
    with pytest.raises(uw.ModelError, match=says):
        wrong()  # type: ignore[operator]


def test_training_sees_the_weighted_mean_that_torch_has() -> None:
    data, model = small_graph(), uw.models.GCN(8, 3, hidden=4, dropout=0.0)
    run = uw.train(model, data, epochs=5, weight_decay=1e-2, loss=SKEWED)
    same = uw.models.GCN(8, 3, hidden=4, dropout=0.0)
    with seeded(0, torch.device("cpu")):
        reinitialise(same)
    optimiser = torch.optim.Adam(same.parameters(), lr=0.01, weight_decay=1e-2)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS), label_smoothing=0.1)
    for _ in range(5):
        optimiser.zero_grad()
        criterion(same(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    torch.testing.assert_close(flatten(run.model), flatten(same), rtol=1e-5, atol=1e-6)


def test_weights_count_in_blocks_and_in_a_part_of_the_graph_as_in_the_whole() -> None:
    data, model = doubled(), uw.models.GCN(8, 3, hidden=4).double().eval()
    request = uw.Request(nodes=(int(data.train_mask.nonzero()[0]),), labels=(int(data.train_mask.nonzero()[4]),))
    whole = checked_objective(model, data, 0.1, SKEWED, call)
    blocks = bounded_objective(model, data, 0.1, SKEWED, call, Meter(torch.device("cpu")), 100.0)
    theta = flatten(model)
    assert isinstance(blocks, Blocks)
    for one, other in ((whole, blocks), (whole.without(request), blocks.without(request))):
        assert one.at(theta).value == pytest.approx(other.at(theta).value, 1e-12)
        torch.testing.assert_close(one.at(theta).gradient(), other.at(theta).gradient())
    after, taken = take(blocks.view, request)
    there = blocks.locality.without(taken, after, SKEWED, allow_class_loss=False)
    assert there.mass == pytest.approx(whole.without(request).mass)
    pull = local_pull(
        model, theta, taken, blocks.locality, there,
        loss=SKEWED, decay=decay_vector(model, 0.1), forward=call, meter=Meter(torch.device("cpu")),
    )  # fmt: skip
    v = whole.at(theta).gradient() - whole.without(request).at(theta).gradient()
    torch.testing.assert_close(pull.v, v)


def test_a_model_trained_with_weights_and_smoothing_forgets_with_every_figure() -> None:
    """Certificate, KL of the outputs and the check of classes are there, and the answer is the retrained model."""
    data = doubled()
    run = uw.train(uw.models.SGC(8, 3).double(), data, forgettable=True, weight_decay=1e-2, loss=SKEWED)
    request = uw.Request(nodes=tuple(data.train_mask.nonzero().flatten().tolist()[:3]))
    done = run.forget(request)
    again = uw.train(uw.models.SGC(8, 3).double(), done.data, forgettable=True, weight_decay=1e-2, loss=SKEWED)
    receipt = done.receipts[-1]
    assert receipt.certificate is not None
    assert receipt.certificate["kind"] == "bound"
    assert receipt.objective["function_change"] > 0
    assert receipt.objective["loss"] == str(SKEWED)
    left = (flatten(done.model) - flatten(again.model)).norm() / (flatten(run.model) - flatten(again.model)).norm()
    assert left < 0.01
    last = tuple((data.train_mask & (data.y == 2)).nonzero().flatten().tolist())
    with pytest.raises(uw.ClassLossError):
        run.forget(uw.Request(labels=last))


def test_weights_and_smoothing_can_be_calibrated_and_rehearsed() -> None:
    data = small_graph()
    run = uw.train(uw.models.SGC(8, 3), data, epochs=5, loss=nn.CrossEntropyLoss(label_smoothing=0.1)).prepare()
    assert run.rehearse("edges:0.1").gap_closed is not None
    assert run.calibrate(deletions=1).calibration is not None


def test_a_run_keeps_its_loss(tmp_path: Path) -> None:
    data = uw.load("demo")
    run = uw.train(uw.models.SGC(data.num_features, data.num_classes), data, epochs=2, loss=CrossEntropy(None, 0.1))
    run.save(tmp_path / "run")
    assert uw.Run.open(tmp_path / "run").loss == run.loss
    with pytest.raises(uw.RunError, match="loss="):
        uw.Run.open(tmp_path / "run", loss=uw.losses.cross_entropy)
