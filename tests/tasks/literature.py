"""A small literature: papers, authors and venues, with labels of papers that depend on who wrote them and where."""

import torch
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv, to_hetero

WRITES, IN, CITES = ("author", "writes", "paper"), ("paper", "in", "venue"), ("paper", "cites", "paper")


def literature(papers: int = 120, *, classes: int = 3, dtype: torch.dtype = torch.float32, seed: int = 3) -> HeteroData:
    """Authors and venues have a field of their own; a paper's field is that of most of its neighbours."""
    rng = torch.Generator().manual_seed(seed)
    authors, venues = papers // 2, 3 * classes
    field = torch.randint(classes, (papers,), generator=rng)

    def joined(count: int, each: int) -> Tensor:
        kind = torch.arange(count) % classes
        wanted = torch.where(
            torch.rand(papers * each, generator=rng) < 0.8,
            field.repeat(each),
            torch.randint(classes, (papers * each,), generator=rng),
        )
        chosen = torch.randint(count // classes, (papers * each,), generator=rng) * classes + wanted
        assert bool((kind[chosen] == wanted).all())
        return chosen

    data = HeteroData()
    signal = nn.functional.one_hot(field, classes)
    data["paper"].x = (torch.randn(papers, 6, generator=rng) + 0.5 * nn.functional.pad(signal, (0, 6 - classes))).to(
        dtype
    )
    data["author"].x = torch.randn(authors, 4, generator=rng).to(dtype)
    data["author"].x[:, :classes] += nn.functional.one_hot(torch.arange(authors) % classes, classes)
    data["venue"].x = nn.functional.one_hot(torch.arange(venues) % classes, classes).to(dtype)
    data[WRITES].edge_index = torch.unique(torch.stack([joined(authors, 2), torch.arange(papers).repeat(2)]), dim=1)
    data[IN].edge_index = torch.stack([torch.arange(papers), joined(venues, 1)])
    cited = torch.randint(papers, (2, papers), generator=rng)
    data[CITES].edge_index = torch.unique(cited[:, cited[0] != cited[1]], dim=1)
    data["paper"].y = field
    part = torch.rand(papers, generator=rng)
    data["paper"].train_mask, data["paper"].val_mask = part < 0.7, (part >= 0.7) & (part < 0.8)
    data["paper"].test_mask = part >= 0.8
    found: HeteroData = T.ToUndirected()(data)
    return found


class SAGE(nn.Module):
    """Two layers, for ``to_hetero``."""

    def __init__(self, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), hidden), SAGEConv((-1, -1), classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).tanh(), edge_index)  # type: ignore[no-any-return]


class Layered(nn.Module):
    """One layer of ``HeteroConv`` and a linear one, which gives the target's outputs alone."""

    def __init__(self, data: HeteroData, hidden: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.conv = HeteroConv({relation: SAGEConv((-1, -1), hidden) for relation in data.edge_types})
        self.last = nn.Linear(hidden, classes)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
        return self.last(self.conv(x_dict, edge_index_dict)["paper"].tanh())  # type: ignore[no-any-return]


def heterogeneous(data: HeteroData, hidden: int = 8, classes: int = 3) -> nn.Module:
    model = to_hetero(SAGE(hidden, classes), data.metadata())
    return started(model, data)


def started(model: nn.Module, data: HeteroData) -> nn.Module:
    """A model whose sizes are known, which lazy layers learn by being called."""
    torch.manual_seed(0)
    model = model.to(data["paper"].x.dtype)
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    return model.eval()
