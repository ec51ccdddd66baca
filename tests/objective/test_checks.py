"""Graphs and models that cannot be unlearned are refused before anything is computed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

import unweave as uw
from tests.cases import Net
from tests.test_unlearning import forget, trained
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
        (put("y", lambda d: d.y + 1), "training labels run from 1 to 3, but the model has 3 outputs"),
        (put("y", lambda d: d.y - 1), "training labels run from -1"),
        (put("y", lambda d: d.y.float()), "cross_entropy needs data.y as int64"),
        (put("y", lambda d: d.y[:-1]), "59 rows for 60 nodes"),
        (put("y", None), "no tensor data.y"),
        (put("x", lambda d: d.x.long()), "dense floating-point matrix"),
        (put("x", lambda d: d.x.to_sparse()), "dense floating-point matrix"),
        (put("edge_index", lambda d: d.edge_index.int()), "must be int64"),
        (put("edge_index", lambda d: d.edge_index + 5), "names nodes outside"),
        (put("edge_index", None), "no tensor data.edge_index"),
        (put("adj_t", 1), "data.adj_t would keep what is removed"),
        (put("edge_label_index", torch.zeros(2, 7, dtype=torch.long)), "data.edge_label_index would keep"),
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
