"""Training, and all that trains, within a memory budget: in blocks of nodes, and the same where nothing is drawn."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GCNConv
from torch_geometric.utils import to_undirected

import unweave as uw
from unweave._core.cost import Meter
from unweave._core.memory import MIB
from unweave._core.tuning import tuned
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.parts.fitting import Fitting
from unweave.objective.scores import log_probabilities
from unweave.testing import small_graph

LITTLE = 0.05
"""MiB in which no pass over the whole graph fits."""


def ring(nodes: int) -> Data:
    """A graph on which blocks have small halos."""
    graph, near = small_graph(nodes=nodes), torch.arange(nodes)
    graph.x = graph.x.double()
    graph.edge_index = to_undirected(torch.stack([near.repeat(2), torch.cat([near + 1, near + 2]) % nodes]))
    return graph


@pytest.fixture(scope="module")
def data() -> Data:
    return ring(90)


@pytest.fixture(autouse=True)
def few_products() -> Iterator[None]:
    """Every product takes every block, and whether blocks give the same is seen from few of them."""
    with tuned(spectrum={"rank": 4, "per_class": 1.0, "spare": 2, "bend_products": 4}):
        yield


def plain(dropout: float = 0.0) -> nn.Module:
    return uw.models.GCN(8, 3, hidden=8, dropout=dropout).double()


def trained(data: Data, memory_mib: float | None, *, dropout: float = 0.0, **how: Any) -> uw.Run:
    return uw.train(plain(dropout), data, epochs=12, examine=False, memory_mib=memory_mib, **how)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    torch.testing.assert_close(flatten(one), flatten(other), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("checkpoints", [(), (0.25,)])
def test_without_dropout_a_training_in_blocks_is_the_same(data: Data, checkpoints: tuple[float, ...]) -> None:
    whole, parts = (trained(data, memory, checkpoints=checkpoints) for memory in (None, LITTLE))
    assert_same(whole.model, parts.model)
    assert parts.metrics["test_f1"] == whole.metrics["test_f1"]
    assert [state.epoch for state in parts.checkpoints] == [state.epoch for state in whole.checkpoints]
    for one, other in zip(whole.checkpoints, parts.checkpoints, strict=True):
        assert one.gradient is not None
        torch.testing.assert_close(one.gradient, other.gradient, rtol=1e-6, atol=1e-9)


def test_a_training_until_enough_is_the_same(data: Data) -> None:
    with tuned(ending={"most": 40}):
        whole, parts = (uw.train(plain(), data, memory_mib=memory) for memory in (None, LITTLE))
    assert whole.recipe == parts.recipe
    assert_same(whole.model, parts.model)


def test_with_dropout_it_is_repeated_exactly_and_another_than_that_of_the_whole_graph(data: Data) -> None:
    one, other = (trained(data, LITTLE, dropout=0.5) for _ in range(2))
    assert torch.equal(flatten(one.model), flatten(other.model))
    assert not torch.allclose(flatten(one.model), flatten(trained(data, None, dropout=0.5).model))


def test_no_block_holds_more_than_it_may(data: Data) -> None:
    model = plain(0.5)
    objective = bounded_objective(model, data, 1e-4, cross_entropy, call, Meter(torch.device("cpu")), LITTLE)
    before = torch.get_rng_state()
    objective.backward(model.train())
    drawn = torch.get_rng_state()
    assert len(objective.found["training"]) > 1
    assert 0 < objective.peak <= LITTLE * MIB
    torch.set_rng_state(before)
    first = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    objective.backward(model)
    assert torch.equal(torch.get_rng_state(), drawn), "to find the blocks cost random numbers"
    for name, parameter in model.named_parameters():
        assert torch.equal(first[name], parameter.grad)


@pytest.mark.filterwarnings("ignore:another training would not:unweave.UnweaveWarning")
def test_a_forgettable_model_ends_at_the_same_minimum_and_knows_whether_it_is_one(data: Data, examined: None) -> None:
    how: dict[str, Any] = {"epochs": 12, "forgettable": True, "weight_decay": 1e-2}
    with tuned(polish={"evaluations": 12}):
        whole, parts = (uw.train(plain(), data, memory_mib=memory, **how) for memory in (None, LITTLE))
    assert parts.metrics["train_loss"] == pytest.approx(whole.metrics["train_loss"], rel=1e-4)
    assert parts.metrics["agreement"] == pytest.approx(whole.metrics["agreement"], abs=0.05)


@pytest.mark.parametrize(("method", "options"), [("retrain", {}), ("replay", {"share": 0.25}), ("finetune", {})])
def test_what_trains_to_forget_does_it_in_blocks(data: Data, method: str, options: dict[str, Any]) -> None:
    run, request = trained(data, None, checkpoints=(0.25,)), uw.draw("nodes:0.1", data)
    whole, parts = (run.forget(request, method, memory_mib=memory, **options) for memory in (None, LITTLE))
    assert_same(whole.model, parts.model)
    assert parts.receipts[-1].passes > whole.receipts[-1].passes


def test_deferred_requests_are_verified_in_blocks(data: Data) -> None:
    run = trained(data, None).prepare().forget(uw.draw("edges:0.05", data), defer=True)
    whole, parts = run.verify(), run.verify(memory_mib=LITTLE)
    assert parts.receipts[-1].residual_influence == pytest.approx(whole.receipts[-1].residual_influence, rel=1e-9)
    assert parts.metrics == pytest.approx(whole.metrics, rel=1e-9)
    assert not parts.verify(memory_mib=LITTLE).pending
    again = run.forget(uw.draw("edges:0.05", run.data, seed=1), memory_mib=LITTLE)
    assert [receipt.kind for receipt in again.receipts] == ["request", "verification", "request"]


@pytest.mark.slow
def test_a_calibration_in_blocks_measures_the_same(data: Data) -> None:
    run = trained(data, None, checkpoints=(0.25,))
    whole, parts = (run.calibrate(1, memory_mib=memory).calibration for memory in (None, LITTLE))
    assert whole is not None
    assert parts is not None
    for one, other in zip(whole.deletions, parts.deletions, strict=True):
        assert other.gap == pytest.approx(one.gap, rel=1e-5)
        assert set(other.rungs) == set(one.rungs)
        for rung, figures in other.rungs.items():
            assert figures.closed == pytest.approx(one.rungs[rung].closed, abs=1e-3)


@pytest.mark.slow
def test_an_audit_in_blocks_finds_the_same(few_references: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.auditing.after.relearning.EPOCHS", 4)
    graph, held = ring(120), torch.arange(120) < 55
    graph.train_mask, graph.val_mask, graph.test_mask = ~held, held, torch.zeros_like(held)
    before = trained(graph, None)
    after = before.forget(uw.draw("nodes:0.1", graph))
    whole, parts = (uw.audit(before, after, quick=True, memory_mib=memory) for memory in (None, LITTLE))
    assert parts.verdict == whole.verdict
    assert [entry.name for entry in parts.evidence] == [entry.name for entry in whole.evidence]
    for one, other in zip(whole.evidence, parts.evidence, strict=True):
        for here, there in zip((one.after, *one.retrained), (other.after, *other.retrained), strict=True):
            assert there.value == pytest.approx(here.value, rel=1e-4, abs=1e-6), one.name


class Normed(nn.Module):
    """A model that keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = GCNConv(8, 8), BatchNorm(8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h: Tensor = self.last(self.norm(self.first(x, edge_index)).relu(), edge_index)
        return h


def test_what_cannot_be_bounded_is_refused_before_any_work(data: Data) -> None:
    with pytest.raises(uw.ModelError, match=r"norm.*keeps statistics of the whole graph \(LayerNorm does not\)"):
        uw.train(Normed().double(), data, epochs=2, memory_mib=1.0)
    with pytest.raises(uw.ModelError, match=r"certified.*leave memory_mib"):
        uw.train(uw.models.SGC(8, 3).double(), data, certify=(1.0, 1e-4), memory_mib=LITTLE)
    with pytest.raises(uw.errors.BudgetError, match="is too little"):
        uw.train(plain(), data, epochs=2, memory_mib=1e-3)
    run, request = trained(data, None), uw.draw("nodes:0.1", data)

    def own(model: nn.Module, data: Data) -> None:
        raise AssertionError("nothing was to be trained")

    after = run.forget(request)
    for work in (
        lambda: run.forget(request, "retrain", trainer=own, memory_mib=LITTLE),
        lambda: run.calibrate(1, trainer=own, memory_mib=LITTLE),
        lambda: uw.audit(run, after, trainer=own, memory_mib=LITTLE),
    ):
        with pytest.raises(uw.MethodError, match="trainer= is given the whole graph"):
            work()


def test_a_graph_that_lost_something_is_another_one(data: Data) -> None:
    """The trainer is told a graph each time; blocks of another serve only while nothing is gone from it."""
    model = plain()
    blocks = bounded_objective(model, data, 1e-4, cross_entropy, call, Meter(torch.device("cpu")), LITTLE)
    assert blocks.anew(model, blocks.data) is blocks
    other = blocks.anew(plain(), blocks.data)
    assert isinstance(other, Blocks)
    assert other.locality is blocks.locality
    less = blocks.without(uw.draw("nodes:0.2", data))
    assert less.anew(model, less.data).nodes.numel() == less.nodes.numel() < blocks.nodes.numel()
    assert less.anew(model, data).nodes.numel() == blocks.nodes.numel()


def test_another_model_of_a_kind_is_not_searched_for_the_size_of_its_blocks(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = plain(), plain()
    log_probabilities(one, data, memory_mib=LITTLE)

    def search(*_: object) -> int:
        raise AssertionError("it holds as much as the one before")

    monkeypatch.setattr(Fitting, "largest", search)
    found = log_probabilities(other, data, memory_mib=LITTLE)
    torch.testing.assert_close(found, log_probabilities(other, data))
