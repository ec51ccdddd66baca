"""What a recording reads stays where it lay; without a GPU, as far as that can be told."""

import torch
from torch import Tensor

from unweave._core.cuda_graphs import Outsiders


def test_all_memory_from_outside_is_held_and_none_that_is_made_inside() -> None:
    weight, index, rows = torch.randn(4, 3), torch.tensor([0, 2]), torch.randn(5, 4)

    def look(theta: Tensor) -> Tensor:
        theta = theta.detach().requires_grad_()
        loss = ((rows[1:3] @ weight).index_select(0, torch.tensor([1, 0])) * theta[index]).tanh().square().sum()
        return torch.autograd.grad(loss, theta)[0]

    given = torch.randn(3, 3)
    with Outsiders() as outsiders:
        found = look(given)
    held = {storage.data_ptr() for storage in outsiders.storages}
    assert {tensor.data_ptr() for tensor in (weight, index, given)} <= held
    assert rows.untyped_storage().data_ptr() in held  # a part of it was read
    assert found.data_ptr() not in held
    assert len(held) <= 5  # the constant made inside may have come through a copy of Python's numbers


def test_what_only_the_way_back_reads_is_held_too() -> None:
    hidden = torch.randn(3)

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, slope: Tensor) -> Tensor:  # type: ignore[override]
            return slope * hidden

    leaf = torch.ones(3, requires_grad=True)
    with Outsiders() as outsiders:
        torch.autograd.grad(Through.apply(leaf).sum(), leaf)
    assert hidden.data_ptr() in {storage.data_ptr() for storage in outsiders.storages}
