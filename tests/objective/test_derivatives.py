"""Models that compute something again while they are differentiated, and compiled ones."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import unweave as uw
from unweave.testing import small_graph


class Checkpointed(nn.Module):
    """A hidden layer that is computed again for its derivatives."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.last = SAGEConv(8, 4), SAGEConv(4, 4), SAGEConv(4, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of the classes."""
        hidden = self.first(x, edge_index).tanh()
        hidden = checkpoint(lambda h: self.second(h, edge_index).tanh(), hidden, use_reentrant=self.reentrant)
        outputs: Tensor = self.last(hidden, edge_index)
        return outputs


class Keeping(nn.Module):
    """A module that keeps what it computed last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(8, 4), SAGEConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of the classes."""
        self.seen = self.first(x, edge_index).tanh()
        outputs: Tensor = self.second(self.seen, edge_index)
        return outputs


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [False, True])
def test_what_would_be_computed_again_with_other_parameters_is_refused(data: Data, reentrant: bool) -> None:
    model = Checkpointed(reentrant)
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    with pytest.raises(uw.ModelError, match="switch checkpointing off"):
        uw.unlearn(model, data, request, weight_decay=1e-2)
    with pytest.raises(uw.ModelError, match="switch checkpointing off"):
        uw.polish(model, data, weight_decay=1e-2, examine=False)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_compiled_model_is_refused_by_name(data: Data) -> None:
    model = torch.compile(Keeping(), backend="aot_eager")
    with pytest.raises(uw.ModelError, match="_orig_mod"):
        uw.unlearn(model, data, uw.Request(nodes=[int(data.train_mask.nonzero()[0])]), weight_decay=1e-2)


def test_what_a_module_keeps_of_its_last_call_does_not_stop_a_polish(data: Data) -> None:
    model = Keeping()
    model(data.x, data.edge_index)
    assert not model.seen.is_leaf
    assert uw.polish(model, data, weight_decay=1e-2, evaluations=5, examine=False).report["evaluations"] == 5


@pytest.mark.parametrize("loss", [nn.BCELoss(), nn.BCEWithLogitsLoss()])
def test_a_polish_says_what_is_wrong_with_the_loss_before_any_work(data: Data, loss: nn.Module) -> None:
    with pytest.raises((uw.DataError, uw.ModelError), match=r"the loss (cannot take|must give)"):
        uw.polish(Keeping(), data, weight_decay=1e-2, loss=loss)
