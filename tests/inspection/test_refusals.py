"""What scores cannot say is told or refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.inspection.graphs import DECAY, Plain, graph, look, trained
from unweave.inspection import scores as result


def test_ordinary_training_is_not_trusted() -> None:
    data = graph(40)
    run = uw.train(uw.models.GCN(6, 3).double(), data, epochs=20, seed=0)
    found = run.inspect()
    assert not found.trusted
    assert "not trained to a minimum" in str(found)
    assert bool(torch.isfinite(found.edges).all())


def test_what_cannot_be_is_marked() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    found = look(model, data, uw.Gap(data.val_mask, data.test_mask, of=1))
    assert all(one.possible for one in found.top("edges", 40))
    assert "more than is possible" not in str(found)
    found.edges[0] = 1.5
    assert [one.possible for one in found.top("edges", 2)] == [False, True]
    assert found.to_dict()["top"]["edges"][0]["possible"] is False
    assert "edge" in str(found).partition("more than is possible")[0]
    loss, margin = look(model, data), look(model, data, "node:3")
    loss.nodes[0], margin.labels[0] = -10.0, 100.0
    assert not loss.top("nodes", 1)[0].possible
    assert not margin.top("labels", 1)[0].possible


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ("node:99", "0 … 39"),
        ("class:7", "0 … 2"),
        ("valid", "validation"),
        (3, "got 3"),
        (lambda outputs, data: 1.0, "one floating-point number"),
        (lambda outputs, data: torch.zeros(1), "does not depend"),
        (lambda outputs, data: outputs.sum() * torch.rand(()), "must not be random"),
        (uw.Gap(torch.ones(3, dtype=torch.bool), torch.ones(40, dtype=torch.bool)), "boolean mask of 40"),
        (uw.Gap(torch.zeros(40, dtype=torch.bool), torch.ones(40, dtype=torch.bool)), "needs a node"),
        (uw.Gap(torch.ones(40, dtype=torch.bool), torch.ones(40, dtype=torch.bool), of="f1"), "'loss' or the number"),
    ],
)
def test_what_makes_no_sense_is_refused(of: Any, says: str) -> None:
    data = graph(40)
    model = uw.models.GCN(6, 3).double()
    with pytest.raises(uw.UnweaveError, match=says):
        look(model, data, of)


def test_graphs_and_models_that_cannot_be_inspected() -> None:
    data = graph(40)
    bare = data.clone()
    bare.val_mask = torch.zeros(40, dtype=torch.bool)
    model = trained("gcn", data, hidden=4)
    with pytest.raises(uw.DataError, match="val_mask"):
        look(model, bare)
    alone = data.clone()
    alone.val_mask = data.val_mask & (data.y != 1)
    with pytest.raises(uw.RequestError, match="no validation node"):
        look(model, alone, "class:1")
    with pytest.raises(uw.DataError, match="plain graphs"):
        look(model, uw.tasks.Links.of(data))
    with pytest.raises(uw.ModelError, match=r"torch\.nn\.Module"):
        look("gcn", data)  # type: ignore[arg-type]
    other = uw.prepare(uw.models.GCN(6, 3).double(), data, weight_decay=DECAY)
    with pytest.raises(uw.MethodError, match="other parameters"):
        look(model, data, prepared=other)
    ready = uw.prepare(model, data, weight_decay=DECAY)
    for graph_now, decay in ((data, 30 * DECAY), (alone.update({"y": data.y.flip(0)}), DECAY)):
        with pytest.raises(uw.MethodError, match="another objective"):
            uw.inspect(model, graph_now, weight_decay=decay, prepared=ready)
    with pytest.raises(uw.RequestError, match="kind must be"):
        look(model, data).top("shoes")  # type: ignore[arg-type]
    for number in (-1, 10**9):
        with pytest.raises(uw.RequestError, match="counted from 0"):
            look(model, data).item("nodes", number)
    assert set(result.TOLD) < set(result.KINDS)


def test_a_function_of_the_users_has_copies_and_its_errors_are_named() -> None:
    data = graph(40)
    model, whole = trained("gcn", data, hidden=4, activation="tanh"), data.x.clone()

    def edits(outputs: Tensor, seen: Any) -> Tensor:
        seen.x.zero_()
        return outputs.mul_(2)[3, 1]

    def plain(outputs: Tensor, _: Any) -> Tensor:
        return 2 * outputs[3, 1]

    torch.testing.assert_close(look(model, data, edits).labels, look(model, data, plain).labels)
    assert torch.equal(data.x, whole)

    def beyond(outputs: Tensor, _: Any) -> Tensor:
        return outputs[10**6, 0]

    with pytest.raises(uw.ModelError, match="function given as of=, beyond"):
        look(model, data, beyond)


def test_self_loops_are_said_to_cost_time() -> None:
    data = graph(40)
    looped = data.clone()
    looped.edge_index = torch.cat([data.edge_index, torch.tensor([[5], [5]])], dim=1)
    assert any("1 self loop," in text for text in look(trained("gcn", looped, hidden=4), looped).warnings)
    assert not any("self loop" in text for text in look(trained("gcn", data, hidden=4), data).warnings)


class Pooled(nn.Module):
    """Every node hears of the mean of all."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv = GCNConv(features, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        return h - h.mean(dim=0)  # type: ignore[no-any-return]


def test_a_model_that_mixes_all_nodes_is_refused_before_it_is_believed() -> None:
    data = graph(40)
    model = Pooled(6, 3).double()
    found = look(model, data)
    assert bool(found.labels.any())
    with pytest.raises(uw.ModelError, match="depends on more than the 1 hops"):
        _ = found.edges


def test_two_calls_that_differ_are_refused() -> None:
    class Noisy(Plain):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(nn.functional.dropout(x, 0.5), edge_index)

    with pytest.raises(uw.ModelError, match="deterministic"):
        look(Noisy(6, 3).double(), graph(40))


def test_a_group_that_nothing_can_be_trained_without_is_refused() -> None:
    data = graph(30)
    everyone = data.train_mask.nonzero().flatten().tolist()
    with pytest.raises(uw.RequestError, match="every training node"):
        look(trained("sgc", data), data).group(uw.Request(labels=everyone))


def test_what_is_told() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    found = look(model, data)
    told = found.to_dict()
    assert told["of"] == "validation"
    assert len(told["top"]["edges"]) == 10
    effects = [abs(one["effect"]) for one in told["top"]["nodes"]]
    assert effects == sorted(effects, reverse=True)
    assert told["passes"] > 0
    assert "edge" in str(found)
    assert found.title in str(found)
    assert all(one.effect < 0 for one in found.top("edges", 3, order="lowers"))
    assert all(one.effect > 0 for one in found.top("edges", 3, order="raises"))
