"""Weight decay: by name, from an optimiser of torch, and AdamW's decoupled decay entry by entry."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import Meter
from unweave.objective.decay import EntryDecay, as_weight_decay, decay_vector
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph


def doubled() -> Data:
    data = small_graph()
    data.x = data.x.double()
    return data


def descend(model: nn.Module, data: Data, optimiser: torch.optim.Optimizer, epochs: int) -> None:
    for _ in range(epochs):
        optimiser.zero_grad()
        outputs = model(data.x, data.edge_index)[data.train_mask]
        F.cross_entropy(outputs, data.y[data.train_mask]).backward()
        optimiser.step()


def pyg_example(model: uw.models.GCN) -> torch.optim.Optimizer:
    """The optimiser of PyG's own GCN example: decay on the first convolution alone."""
    groups = [
        {"params": model.conv1.parameters(), "weight_decay": 5e-4},
        {"params": model.conv2.parameters(), "weight_decay": 0},
    ]
    return torch.optim.Adam(groups, lr=0.01)


def test_the_gcn_example_of_pyg_becomes_a_run_and_is_stored(tmp_path: Path) -> None:
    data, model = small_graph(), uw.models.GCN(8, 3, hidden=4)
    optimiser = pyg_example(model)
    descend(model.train(), data, optimiser, 5)
    own = uw.Run(model, data, weight_decay=optimiser)
    by_name = uw.Run(model, data, weight_decay={"conv1": 5e-4})
    request = uw.draw("edges:0.1", data)
    assert torch.equal(flatten(own.forget(request).model), flatten(by_name.forget(request).model))
    path = own.save(tmp_path / "own")
    again = uw.Run.open(path, model=model, data=data)
    assert again.training.weight_decay == own.training.weight_decay


def test_a_recipe_by_name_trains_retrains_and_is_stored(tmp_path: Path) -> None:
    data = uw.load("demo")
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data, epochs=4, weight_decay={"conv1": 5e-4})
    same = uw.models.GCN(data.num_features, data.num_classes)
    same.load_state_dict(run.model.state_dict())
    assert as_weight_decay(pyg_example(same), same) == {
        "conv1.lin.weight": 5e-4, "conv1.bias": 5e-4, "conv2.lin.weight": 0.0, "conv2.bias": 0.0,
    }  # fmt: skip
    again = uw.Run.open(run.save(tmp_path / "run"))
    assert again.recipe == run.recipe
    request = uw.draw("edges:0.1", data)
    assert torch.equal(*(flatten(r.forget(request, "retrain").model) for r in (run, again)))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_what_is_added_to_the_gradient_is_taken_as_it_is(make: type[torch.optim.Optimizer]) -> None:
    model = uw.models.GCN(8, 3, hidden=4)
    assert as_weight_decay(make(model.parameters(), lr=0.1, weight_decay=0.02), model) == 0.02


def settled(model: nn.Module, data: Data, **how: bool) -> torch.optim.AdamW:
    """AdamW with a preconditioner that does not move any more, trained until it stands still."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.3, weight_decay=0.2, betas=(0.5, 1 - 1e-12), eps=1e-3, **how)
    descend(model, data, optimiser, 1)
    for number, state in enumerate(optimiser.state.values()):
        generator = torch.Generator().manual_seed(number)
        for key in {"exp_avg_sq", "max_exp_avg_sq"} & set(state):
            state[key].uniform_(0.01, 1.0, generator=generator)
        state["step"].fill_(1e14)
    descend(model, data, optimiser, 150)
    return optimiser


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adamw_stands_still_where_its_translation_has_a_minimum(amsgrad: bool) -> None:
    """∇ mean loss + λ (√v̂ + ε) θ = 0; with λ itself as weight decay it is nowhere near."""
    data, model = doubled(), uw.models.SGC(8, 3).double()
    optimiser = settled(model, data, amsgrad=amsgrad)
    decay = as_weight_decay(optimiser, model)
    assert isinstance(decay, EntryDecay)
    left = []
    for value in (decay, 0.2):
        vector = decay_vector(model, value)
        point = Objective(model, data, uw.losses.cross_entropy, vector, call, Meter(vector.device)).at(flatten(model))
        left.append(float(point.gradient().norm() / point.loss_gradient().norm()))
    assert left[0] < 1e-3
    assert left[1] > 0.1


def test_a_model_trained_by_adamw_forgets_as_if_trained_so_again(tmp_path: Path) -> None:
    data, model = doubled(), uw.models.SGC(8, 3).double()
    optimiser = settled(model, data)
    run = uw.Run(model, data, weight_decay=optimiser).prepare()
    assert run.prepared is not None
    assert run.prepared.at_minimum
    done = run.forget(uw.Request(nodes=tuple(data.train_mask.nonzero().flatten().tolist()[:3])))
    told = done.receipts[-1].objective["weight_decay"]
    assert "AdamW, 0.2 times" in told["source"]
    again = uw.models.SGC(8, 3).double()
    again.load_state_dict(model.state_dict())
    descend(again, done.data, _like(optimiser, again), 150)
    moved, left = (float((flatten(again) - flatten(other)).norm()) for other in (model, done.model))
    assert left < 0.01 * moved
    path = done.save(tmp_path / "run")
    opened = uw.Run.open(path, model=uw.models.SGC(8, 3).double(), data=data)
    assert opened.training.weight_decay == run.training.weight_decay


def _like(optimiser: torch.optim.AdamW, model: nn.Module) -> torch.optim.AdamW:
    found = torch.optim.AdamW(model.parameters())
    found.load_state_dict(optimiser.state_dict())
    return found


def test_what_an_optimiser_cannot_tell_is_asked_for() -> None:
    model, other = uw.models.GCN(8, 3, hidden=4), uw.models.GCN(8, 3, hidden=4)

    def refused(optimiser: torch.optim.Optimizer, says: str) -> None:
        with pytest.raises(uw.ModelError, match=says):
            as_weight_decay(optimiser, model)

    refused(torch.optim.AdamW(model.parameters()), r"after training .* weight_decay=0 where")
    refused(torch.optim.Adam(other.parameters()), "this very model")
    refused(torch.optim.Adafactor(model.parameters(), weight_decay=0.1), "not known")
    assert as_weight_decay(torch.optim.AdamW(model.parameters(), weight_decay=0.0), model) == 0.0
    with pytest.raises(uw.ModelError, match="of another model"):
        decay_vector(model, EntryDecay({"conv1.bias": torch.zeros(2)}, "AdamW"))


def test_adamw_s_decay_is_no_recipe() -> None:
    """Full-batch Adam cannot train with one decay for each entry: what would, refuses."""
    data, model = doubled(), uw.models.SGC(8, 3).double()
    run = uw.Run(model, data, weight_decay=settled(model, data))
    with pytest.raises(uw.ModelError, match="Adam"):
        run.forget(uw.draw("edges:0.1", data), "finetune", lr=0.01)
