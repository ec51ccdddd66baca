"""What is remembered is never stale."""

import gc
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from unweave._core.memo import derive, origin, remembered


class Counted:
    """A function of tensors that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, other: Tensor | None, power: int) -> float:
        self.calls += 1
        return float((x**power).sum()) + (0.0 if other is None else float(other.sum()))


def make() -> tuple[Counted, Callable[..., float]]:
    counted = Counted()

    def function(x: Tensor, other: Tensor | None = None, power: int = 1) -> float:
        return counted(x, other, power)

    return counted, remembered(function)


def test_the_same_tensors_are_computed_once() -> None:
    counted, function = make()
    x, other = torch.ones(3), torch.ones(2)
    for _ in range(3):
        assert function(x, other, 2) == 5
    assert counted.calls == 1


def test_a_write_a_copy_and_another_argument_are_noticed() -> None:
    counted, function = make()
    x, other = torch.ones(3), torch.ones(2)
    assert function(x, other, 1) == 5
    x[0] = 2
    assert function(x, other, 1) == 6
    other.mul_(2)
    assert function(x, other, 1) == 8
    assert function(x, other.clone(), 1) == 8
    assert function(x, None, 1) == 4
    assert function(x, None, 2) == 6
    assert function(x.clone(), None, 2) == 6
    assert counted.calls == 7


def test_tensors_are_let_go() -> None:
    _, function = make()
    x, other = torch.ones(3), torch.ones(2)
    function(x, other, 1)
    gone = weakref.ref(x), weakref.ref(other)
    del x, other
    gc.collect()
    assert [there() for there in gone] == [None, None]


def test_inference_tensors_are_not_remembered() -> None:
    counted, function = make()
    with torch.inference_mode():
        x = torch.ones(3)
        assert function(x, None, 1) == function(x, None, 1) == 3
    assert counted.calls == 2


def test_an_origin_is_known_until_somebody_writes() -> None:
    parent = torch.arange(6).view(2, 3)
    kept = torch.tensor([0, 2])
    for edited in range(2):
        child = parent[:, kept]
        assert origin(child) is None
        derive(child, parent, kept)
        found = origin(child)
        assert found is not None
        assert found[0] is parent
        assert found[1] is kept
        (child, parent)[edited].add_(1)
        assert origin(child) is None


def test_an_origin_is_not_kept_alive() -> None:
    parent = torch.ones(2, 3)
    child = parent.clone()
    derive(child, parent)
    there = weakref.ref(parent)
    del parent
    gc.collect()
    assert there() is None
    assert origin(child) is None
