"""What is known of a tensor goes with it, and is never taken for what is known of another."""

import gc

import pytest
import torch

from unweave._core.weak import ByTensor


def test_tensors_are_told_apart_by_identity_and_go_when_they_do() -> None:
    known, one, same = ByTensor[str](), torch.ones(2), torch.ones(2)
    known[one] = "one"
    assert known.get(one) == known[one] == "one"
    assert one in known
    assert same not in known
    assert known.get(same) is None
    assert known.get(same, "nothing") == "nothing"
    with pytest.raises(KeyError):
        known[same]
    known[one] = "another"
    assert list(known.items()) == [(one, "another")]
    del one
    gc.collect()
    assert not len(known)


def test_a_number_that_comes_back_is_not_the_tensor_that_had_it() -> None:
    """Tensors die and others are made in their place, at the same address."""
    known, addresses = ByTensor[int](), set()
    for number in range(50):
        tensor = torch.empty(3)
        assert known.get(tensor) is None
        known[tensor] = number
        addresses.add(id(tensor))
    assert len(addresses) < 50
    assert len(known) == 1


def test_a_tensor_that_only_torch_holds_is_still_known() -> None:
    """Its Python object goes to sleep and wakes up again as the same one."""
    known, leaf = ByTensor[str](), torch.ones(2, requires_grad=True)
    (leaf * 2).sum().backward()
    assert leaf.grad is not None
    known[leaf.grad] = "slope"
    gc.collect()
    assert known[leaf.grad] == "slope"
    del known[leaf.grad]
    assert leaf.grad not in known
    known.clear()
