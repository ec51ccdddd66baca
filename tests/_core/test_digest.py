"""Digests tell tensors apart, however they are stored."""

import hashlib

import pytest
import torch
from torch import Tensor

from unweave._core.digest import tensor_digest


def of(tensor: Tensor) -> str:
    return tensor_digest([("w", tensor)])


def test_a_digest_is_of_name_type_shape_and_bytes() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    text = b"w|<f4|(2, 3)|" + tensor.numpy().tobytes()
    assert of(tensor) == of(tensor.t().contiguous().t()) == hashlib.sha256(text).hexdigest()
    assert len({of(tensor), of(tensor.double()), of(tensor.reshape(3, 2)), tensor_digest([("v", tensor)])}) == 4


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support")
def test_sparse_tensors_are_told_apart(layout: torch.layout) -> None:
    dense = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    stored = dense.to_sparse(layout=layout)
    other = (dense + torch.eye(2, 3)).to_sparse(layout=layout)
    assert of(stored) == of(dense.to_sparse(layout=layout))
    assert len({of(stored), of(other), of(dense), of(2 * stored)}) == 4


def test_what_a_sparse_tensor_says_twice_is_added_up() -> None:
    twice = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (2, 2), check_invariants=True
    )
    assert of(twice) == of(twice.coalesce())


def test_types_that_numpy_does_not_have_are_told_apart() -> None:
    half = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert len({of(half), of(half + 1), of(half.to(torch.float16)), of(half.view(torch.int16))}) == 4
    assert of(torch.zeros((), dtype=torch.bfloat16)) != of(torch.ones((), dtype=torch.bfloat16))
