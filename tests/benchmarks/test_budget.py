"""The budget: no request may need more passes, or allocate more, than what is committed."""

from platform import machine

import budget
import pytest
import torch

from unweave._core.tuning import tuned


@pytest.mark.skipif(machine() not in budget.read(), reason=f"budget.json knows nothing of {machine()}")
def test_nothing_grew() -> None:
    """If this is meant to grow, say why in the commit that rewrites it: python benchmarks/budget.py."""
    with tuned(polish={"evaluations": 300}):  # what a request takes goes by how well the model was polished
        assert budget.overruns(budget.measure(), budget.read()[machine()]) == []


def test_a_growth_of_more_than_a_twentieth_is_seen_and_less_is_not() -> None:
    known = {"request": {"passes": 100, "bytes": 1000}}
    assert budget.overruns({"request": {"passes": 105, "bytes": 10}}, known) == []
    assert budget.overruns({"request": {"passes": 106, "bytes": 10}}, known) == [
        "request: 106 passes, the budget is 100"
    ]
    assert budget.overruns({}, known) == [
        "request: None passes, the budget is 100",
        "request: None bytes, the budget is 1000",
    ]
    assert budget.overruns({**known, "other": {"passes": 1}}, known) == ["other: not in budget.json"]


def test_views_and_writes_in_place_allocate_nothing() -> None:
    with budget.Allocations() as made:
        a = torch.zeros(10, 10)
        a.view(100).add_(1)
        a[2:4].t()
        assert (made.count, made.bytes) == (1, 400)
        a + 1
        assert (made.count, made.bytes) == (2, 800)


def test_backward_passes_are_counted_too() -> None:
    x = torch.ones(10, requires_grad=True)
    with budget.Allocations() as forward:
        y = (x * x).sum()
    with budget.Allocations() as backward:
        torch.autograd.grad(y, x)
    assert forward.bytes == 44
    assert backward.bytes >= 40


@pytest.mark.parametrize("unit", ["passes", "allocations", "bytes"])
@pytest.mark.parametrize("known", budget.read().values(), ids=budget.read())
def test_a_prepared_request_is_cheaper_than_the_published_one(known: budget.Costs, unit: str) -> None:
    assert known["request, forgettable, prepared"][unit] < known["published"][unit]
