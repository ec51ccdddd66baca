"""Graphs and models that cannot be unlearned are refused before anything is computed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCNConv, SAGEConv

import unweave as uw
from tests.cases import Net
from tests.test_unlearning import forget, trained
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

# --- bad data -----------------------------------------------------------------------------------------------------


def put(key: str, value: Any) -> Callable[[Data], None]:
    return lambda data: data.__setitem__(key, value(data) if callable(value) else value)


def with_nan(key: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data[key] = data[key].clone()
        data[key][7] = float("nan")

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_nan("x"), "data.x is not finite, first at row 7"),
        (put("edge_weight", lambda d: torch.full((d.num_edges,), float("inf"))), "data.edge_weight is not finite"),
        (put("edge_weight", torch.ones(3)), "data.edge_weight has 3 entries"),
        (put("val_mask", lambda d: d.train_mask.clone()), "data.train_mask and data.val_mask overlap in 40 nodes"),
        (put("test_mask", lambda d: d.val_mask.clone()), "data.val_mask and data.test_mask overlap"),
        (put("train_mask", torch.zeros(60, dtype=torch.bool)), "selects no node"),
        (put("train_mask", torch.zeros(60, 10, dtype=torch.bool)), "choose one split"),
        (put("train_mask", torch.arange(60)), "must be a boolean vector"),
        (put("y", lambda d: d.y + 1), "from 1 to 3, but the model has 3 outputs.*number classes from 0"),
        (put("y", lambda d: torch.where(d.val_mask, 3, d.y)), "labels of data.val_mask run to 3, but the model has 3"),
        (put("y", lambda d: d.y - 1), "take nodes without a label out of data.train_mask"),
        (put("y", lambda d: d.y.float()), "or unweave.losses.binary_cross_entropy"),
        (put("y", lambda d: d.y[:, None]), "cross_entropy needs data.y as int64.*flatten"),
        (put("y", lambda d: d.y[:-1]), "59 rows for 60 nodes"),
        (put("y", None), "no tensor data.y"),
        (put("x", lambda d: d.x.long()), "dense floating-point matrix"),
        (put("x", lambda d: d.x.to_sparse()), "dense floating-point matrix.*to_dense"),
        (put("edge_index", lambda d: d.edge_index.int()), "must be int64"),
        (put("edge_index", lambda d: d.edge_index + 5), "names nodes outside"),
        (put("edge_index", None), "no tensor data.edge_index"),
        (put("adj_t", 1), "data.adj_t would keep what is removed"),
        (put("edge_label_index", torch.zeros(2, 7, dtype=torch.long)), "data.edge_label_index, pairs of nodes"),
    ],
)
def test_bad_graphs_are_refused(change: Callable[[Data], None], says: str) -> None:
    model, data = trained()
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    change(data)
    with pytest.raises(uw.DataError, match=says):
        forget(model, data, request)


# --- bad models ---------------------------------------------------------------------------------------------------


class Odd(nn.Module):
    """A GCN whose output is spoiled in some way."""

    def __init__(self, spoil: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)
        self.spoil = spoil

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.spoil(self.conv(x, edge_index))


def frozen() -> nn.Module:
    model = uw.models.GCN(8, 3)
    return model.requires_grad_(False)


def broken() -> nn.Module:
    model = uw.models.GCN(8, 3)
    nn.init.constant_(model.conv2.bias, float("nan"))
    return model


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Odd(lambda h: h.mean(dim=0)), r"one row for each of 60 nodes, got \(3,\)"),
        (lambda: Odd(lambda h: (h, h)), "got tuple"),
        (lambda: Odd(lambda h: h[:, 0]), r"must give \[nodes, classes\]"),
        (lambda: Odd(lambda h: h * float("nan")), "outputs are not finite"),
        (lambda: Odd(lambda h: F.dropout(h, 0.5)), "changes between two identical calls"),
        (lambda: Odd(lambda h: h + torch.rand(())), "changes between two identical calls"),
        (lambda: Net(GCNConv(8, 3, cached=True)), "has cached=True"),
        (frozen, "every parameter has requires_grad=False"),
        (broken, "'conv2.bias' is not finite"),
        (lambda: Odd(lambda h: h).double(), "the model is torch.float64 on cpu and data.x is torch.float32"),
        (nn.Identity, "has no parameters"),
        (lambda: Net(SAGEConv(-1, 3)), "not initialised yet"),
        (lambda: Net(GCNConv(8, 3).double(), GCNConv(3, 3)), "must share one type"),
        (lambda: Net(GCNConv(8, 3)).bfloat16(), "use float32 or float64"),
    ],
)
def test_bad_models_are_refused(make: Callable[[], nn.Module], says: str) -> None:
    data = small_graph()
    with pytest.raises(uw.ModelError, match=says):
        forget(make(), data)


class Softened(uw.models.GCN):
    """A GCN that gives probabilities, or does so only when it is no longer trained."""

    always = False

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = super().forward(x, edge_index, edge_weight)
        return h.softmax(dim=-1) if self.always or not self.training else h


def test_a_softmax_that_is_left_out_while_training_is_not_taken_twice() -> None:
    model, data = trained()
    soft = Softened(8, 3, hidden=4)
    soft.load_state_dict(model.state_dict())
    for refused in (
        lambda: forget(soft, data),
        lambda: uw.prepare(soft, data, weight_decay=1e-4),
        lambda: uw.prepare(soft, data, weight_decay=1e-4, memory_mib=1),
        lambda: uw.train(Softened(8, 3), data, epochs=1),
    ):
        with pytest.raises(uw.ModelError, match="probabilities in eval mode and other outputs while it trains"):
            refused()
    state = torch.random.get_rng_state()
    told = forget(soft, data, forward=lambda model, data: model(data.x, data.edge_index).log())
    assert torch.equal(torch.random.get_rng_state(), state)
    plain = forget(model, data)
    torch.testing.assert_close(flatten(told.model), flatten(plain.model), rtol=1e-3, atol=1e-5)


def test_a_softmax_that_was_trained_through_is_told_of() -> None:
    data = small_graph()
    soft = Softened(8, 3, hidden=4)
    soft.always = True
    uw.train(soft, data, seed=1, epochs=30)
    said = "outputs are probabilities, and cross_entropy took a softmax of them again"
    assert any(said in warning for warning in forget(soft, data).receipt.warnings)
    assert any(said in warning for warning in forget(soft, data, method="none").receipt.warnings)
    assert not any(said in warning for warning in forget(*trained()).receipt.warnings)


# --- what is not supported, and what is somebody else's bug --------------------------------------------------------


def test_a_bug_in_forward_surfaces_as_it_is() -> None:
    """A TypeError of the user's own is not taken for a model that cannot be called."""

    class Buggy(uw.models.GCN):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index) + "one"  # type: ignore[operator]

    with pytest.raises(TypeError, match=r"unsupported operand|must be Tensor") as caught:
        forget(Buggy(8, 3), small_graph())
    assert caught.traceback[-1].name == "forward"


class Third(uw.models.GCN):
    def forward(self, x: Tensor, edge_index: Tensor, time: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index) + time


class Alone(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


@pytest.mark.parametrize("model", [Third(8, 3), Alone(8, 3)], ids=["three", "one"])
def test_a_model_that_takes_other_arguments_says_how_to_call_it(model: nn.Module) -> None:
    with pytest.raises(uw.ModelError, match=r"cannot be called as model\(x, edge_index\).*forward=lambda"):
        forget(model, small_graph())


def several_types() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.randn(4, 8)
    return data


def of_graphs() -> Data:
    one = Data(x=torch.randn(5, 8), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
    data = Batch.from_data_list([one, one.clone()])
    data.train_mask = torch.ones(10, dtype=torch.bool)
    return data  # type: ignore[no-any-return]


def of_links() -> Data:
    data = small_graph()
    data.edge_label_index, data.edge_label = data.edge_index[:, :4], torch.ones(4)
    return data


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (several_types, r"several types of nodes.*tasks\.Relations\.of\(data\)"),
        (of_graphs, r"labels of whole graphs.*tasks\.Graphs\.of\(dataset\)"),
        (of_links, r"link prediction.*tasks\.Links\.of\(data\)"),
        (lambda: [small_graph()], r"dataset\[0\].*tasks\.Graphs\.of\(dataset\)"),
    ],
)
def test_graphs_of_another_kind_are_refused_by_name(make: Callable[[], Any], says: str) -> None:
    model, data = uw.models.GCN(8, 3), make()
    works: list[Callable[[], object]] = [
        lambda: uw.unlearn(model, data, uw.Request(nodes=[1]), weight_decay=0.0),
        lambda: uw.train(model, data),
        lambda: uw.Run(model, data, weight_decay=0.0).forget(uw.Request(nodes=[1])),
    ]
    for work in works:
        with pytest.raises(uw.DataError, match=says):
            work()


class Pairs(uw.models.GCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = super().forward(x, edge_index)
        return (hidden[edge_index[0]] * hidden[edge_index[1]]).sum(dim=-1)


class Pooled(uw.models.GCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).mean(dim=0, keepdim=True)


@pytest.mark.parametrize(
    ("model", "says"),
    [(Pairs(8, 3), r"link predictor takes unweave\.tasks\.Links"), (Pooled(8, 3), "model of whole graphs takes")],
)
def test_models_of_another_kind_are_refused_by_name(model: nn.Module, says: str) -> None:
    with pytest.raises(uw.ModelError, match=says):
        forget(model, small_graph())


def test_embeddings_are_not_taken_for_scores_of_classes() -> None:
    """Forty outputs for three classes: only a model that was trained to tell them says that the others do not occur."""
    data, encoder = small_graph(), uw.models.GCN(8, 40, hidden=4)
    for work in (lambda: forget(encoder, data), lambda: uw.prepare(encoder, data, weight_decay=1e-4)):
        with pytest.raises(uw.ModelError, match=r"40 outputs .* no training node has \(3 are there\)"):
            work()
    uw.train(encoder, data, epochs=60)
    assert forget(encoder, data).receipt.status == "done"
