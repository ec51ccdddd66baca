"""What a model carries unseen: the old weights in a buffer that nothing reads, or a second model behind a trigger."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import unweave as uw
from unweave.auditing.after.carried import Carried, look_into
from unweave.models import build


def model(name: str = "gcn", seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build(name, 20, 4).eval()


class Trigger(nn.Module):
    """Answers as the old model where the first feature is large."""

    def __init__(self, new: nn.Module, old: nn.Module) -> None:
        super().__init__()
        self.new, self.old = new, [old]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.old[0](x, edge_index) if float(x[0, 0]) > 10 else self.new(x, edge_index)


def weights(old: nn.Module) -> Tensor:
    return next(p for p in old.parameters() if p.dim() == 2).detach().clone()


def spare(new: nn.Module, value: Tensor, *, saved: bool = True) -> nn.Module:
    new.register_buffer("spare", value, persistent=saved)
    return new


def hang(new: nn.Module, name: str, value: object) -> nn.Module:
    setattr(new, name, value)
    return new


HIDDEN: dict[str, Callable[[nn.Module, nn.Module], nn.Module]] = {
    "a buffer": lambda new, old: spare(new, weights(old)),
    "a buffer that is not saved": lambda new, old: spare(new, weights(old), saved=False),
    "all weights as one vector, shuffled": lambda new, old: spare(
        new, nn.utils.parameters_to_vector(old.parameters()).detach()[torch.randperm(len(list(flat(old))))]
    ),
    "a buffer of half precision": lambda new, old: spare(new, weights(old).half()),
    "a buffer with noise": lambda new, old: spare(new, 3 * weights(old).t() + weights(old).t().roll(1, 0)),
    "a plain attribute": lambda new, old: hang(new, "notes", {"old": [weights(old).numpy()]}),
    "a model in a list": lambda new, old: hang(new, "helpers", [old]),
    "a module": lambda new, old: hang(new, "helper", old),
    "a trigger": Trigger,
}


ROUGH = ("a buffer of half precision", "a buffer with noise")


def flat(one: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(one.parameters())


@pytest.mark.parametrize("where", HIDDEN)
def test_old_weights_are_found_wherever_they_hang(where: str) -> None:
    old, new = model(), model(seed=1)
    found = look_into(old, HIDDEN[where](copy.deepcopy(new), old))
    assert found.more
    assert found.alike if where in ROUGH else found.old, found
    assert "the old weights of" in found.notes[0]
    assert look_into(old, new) == Carried()


def test_a_place_that_was_there_before_is_no_hiding_place() -> None:
    """The model before has the buffer too: only what is in it tells."""
    old, new = (spare(model(seed=seed), torch.zeros(20, 16)) for seed in (0, 1))
    assert look_into(old, new) == Carried()
    new.spare.copy_(weights(old).t())  # type: ignore[union-attr, operator]
    found = look_into(old, new)
    assert not found.more
    assert len(found.old) == 1


def test_weights_of_one_layer_in_the_place_of_another_are_found() -> None:
    class Spare(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.used, self.unused = model(seed=seed), nn.Linear(20, 16)

    old, new = Spare(0), Spare(1)
    assert not look_into(old, new).old
    with torch.no_grad():
        new.unused.weight.copy_(weights(old.used))
    assert "'unused.weight'" in look_into(old, new).old[0]


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sgc"])
def test_nothing_is_found_where_nothing_is_carried(name: str) -> None:
    """Neither in a model that nothing was done to, nor in one that was made from it, nor in a retrained one."""
    old = model(name)
    near = copy.deepcopy(old)
    with torch.no_grad():
        for p in near.parameters():
            p.mul_(0.999)
    x, edge_index = torch.randn(5, 20), torch.tensor([[0, 1, 2], [1, 2, 3]])
    for one in (old, near):
        one(x, edge_index)
    for new in (old, copy.deepcopy(old), near, model(name, 7)):
        assert look_into(old, new) == Carried()


def test_a_copy_of_the_new_weights_is_more_but_not_old() -> None:
    old, new = model(), model(seed=1)
    found = look_into(old, spare(new, weights(new)))
    assert found.more == ("it has a buffer 'spare' of shape [16, 20]",)
    assert not found.old
    noise = look_into(old, spare(model(seed=1), torch.randn(16, 20)))
    assert noise.more
    assert not noise.old


def named(base: type[nn.Module], shift: float) -> type[nn.Module]:
    """A class with the name of another, which answers another question."""

    class Same(base):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x + shift, edge_index)

    class Other(base):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x * shift, edge_index)

    found: type[nn.Module] = Same if shift == 1 else Other
    found.__qualname__, found.__module__ = base.__qualname__, base.__module__
    return found


def test_other_code_under_the_same_name_is_told() -> None:
    old, new, twice = model(), model(seed=1), model(seed=2)
    new.__class__ = named(type(old), 2)
    assert look_into(old, new).more == ("it is a GCN of other code",)
    twice.__class__ = named(type(old), 1)
    old.__class__ = named(type(old), 1)
    assert look_into(old, twice).more == (), "the same code twice, as when a notebook's cell is run again"
    hooked = model(seed=1)
    hooked.register_forward_hook(lambda *_: None)
    assert "a hook" in look_into(model(), hooked).more[0]


def test_what_is_missing_or_of_another_shape_is_told() -> None:
    old = spare(model(), torch.zeros(3))
    assert look_into(old, model(seed=1)).less == ("buffer 'spare'",)
    assert "has the shape" in look_into(model(), build("gcn", 20, 5)).more[0]


def test_running_statistics_that_were_left_are_told() -> None:
    old, new, fresh = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(3))
    for one, shift in ((old, 1.0), (new, 1.0), (fresh, 2.0)):
        one[1].running_mean.fill_(shift)  # type: ignore[union-attr, operator]
    found = look_into(old, new, fresh)
    assert found.left == ("buffer '1.running_mean'",)
    assert not found.old
    assert not found.more


def test_forgetting_adds_nothing() -> None:
    data = uw.load("demo")
    run = uw.train(build("gcn", data.num_features, data.num_classes), data, epochs=3)
    request = uw.draw("nodes:0.05", data)
    for method in ("gif", "finetune", "retrain"):
        assert look_into(run.model, run.forget(request, method).model) == Carried()
