"""What a deferred request looks at: never the whole graph, and a model that needs that is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected

import unweave as uw
from tests.methods.test_deferred import edge
from unweave.testing import small_graph


class Watch(TorchDispatchMode):
    """Refuses every operation that reads or writes all of a large tensor."""

    def __init__(self, large: int) -> None:
        super().__init__()
        self.large = large
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        views = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.returns)
        name = func._schema.name.removeprefix("aten::")
        # A gather reads, and an index_put_ writes, as many rows as are asked for.
        if not views and name != "index_put_":
            picks = name in ("index", "index_select")
            looked_at = tree_leaves(out if picks else (args, kwargs, out))
            big = [tuple(t.shape) for t in looked_at if isinstance(t, Tensor) and t.numel() >= self.large]
            assert not big, f"{func} touches {big}"
        return out


def test_no_operation_is_as_large_as_the_graph() -> None:
    size = 20_000
    ring = torch.arange(size)
    chords = torch.randint(size, (2, 3000), generator=torch.Generator().manual_seed(0))
    pairs = torch.cat([torch.stack([ring, ring.roll(1)]), chords[:, chords[0] != chords[1]]], dim=1)
    y = ring * 3 // size
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(0))
    train = ring % 10 != 0
    data = Data(x=x, edge_index=to_undirected(pairs, num_nodes=size), y=y, train_mask=train, test_mask=~train)
    torch.manual_seed(0)
    model = uw.models.GCN(4, 3, hidden=4)
    ready = uw.prepare(model, data, weight_decay=1e-3)
    run = uw.Run(model, data, weight_decay=1e-3, prepared=ready)
    requests = [
        edge(data, 100),
        uw.Request(nodes=[501]),
        uw.Request(features={77: "all"}, labels=[1201]),
        edge(data, 30_000),
    ]
    with Watch(size) as watch:
        for request in requests:
            run = run.forget(request, defer=True)
    assert watch.operations > 1000
    assert run.pending == 4
    assert max(r.passes for r in run.receipts) < 0.1
    with pytest.raises(AssertionError, match="touches"), Watch(size):
        run.forget(edge(data, 400))


class Deaf(nn.Module):
    """A model of one's own that reads the mean of the whole graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x - x.mean(dim=0), edge_index)  # type: ignore[no-any-return]


class Normed(nn.Module):
    """A GCN with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = GCNConv(8, 3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.norm(self.conv(x, edge_index))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("model", "says"), [(Deaf(), "depends on more than"), (Normed(), "keeps statistics")])
def test_a_model_that_needs_the_whole_graph_is_refused(model: nn.Module, says: str) -> None:
    data = small_graph()
    uw.train(model, data, epochs=10, weight_decay=1e-3)
    ready = uw.prepare(model, data, weight_decay=1e-3)
    with pytest.raises(uw.ModelError, match=says):
        uw.unlearn(model, data, edge(data, 0), weight_decay=1e-3, prepared=ready, defer=True)
