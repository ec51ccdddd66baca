"""What may not grow unnoticed: passes over the graph, and the tensors that a request allocates.

Usage: python benchmarks/budget.py

Neither depends on how fast the machine is: everything is done on the embedded graph in double precision. What torch
allocates goes by the processor's architecture, though, and each has its own part of ``budget.json``.
``tests/benchmarks/test_budget.py`` compares with it and fails where a number grew by more than a twentieth; this script
writes the part of the architecture it runs on anew.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from platform import machine
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

import unweave as uw

BUDGET = Path(__file__).parent / "budget.json"
GROWTH = 0.05
FORGET = "edges:0.05"
SCALE = 20_000
"""With which the published recursion diverges on neither model."""

Costs = dict[str, dict[str, int]]


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the tensors that operations make with memory of their own, and their bytes.

    Attributes:
        count: How many.
        bytes: Of their storages.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it returns that shares no memory with what it was given."""
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if _plain(leaf)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if _plain(leaf) and _storage(leaf) not in given:
                self.count += 1
                self.bytes += leaf.untyped_storage().nbytes()
        return result


def _plain(leaf: object) -> bool:
    """Sparse tensors are counted by the tensors that they are made of."""
    return isinstance(leaf, Tensor) and leaf.layout is torch.strided


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def measure() -> Costs:
    """Passes, allocations and bytes of each piece of work."""
    data = uw.load("demo")
    data.x = data.x.double()
    request = uw.draw(FORGET, data)
    costs: Costs = {}
    for way, decay in (("ordinary", 1e-4), ("forgettable", 1e-2)):
        run = uw.train(
            _model(data, way), data, epochs=100, weight_decay=decay, forgettable=way == "forgettable", examine=False
        )
        ready = uw.prepare(run.model, data, weight_decay=decay)
        forget = partial(_forget, run, request)
        costs[f"request, {way}, prepared"] = _counted(partial(forget, prepared=ready))
        costs[f"request, {way}"] = _counted(forget)
        if way == "forgettable":
            costs["polish"] = {"passes": int(run.metrics["polish_passes"])}
        else:
            # Everything that they remember, those above have filled.
            costs["prepare"] = _counted(partial(_prepare, run), again=False)
            costs["published"] = _counted(partial(forget, "gif-published", scale=SCALE), again=False)
    return costs


def _forget(run: uw.Run, request: uw.Request, method: str = "gif", **options: Any) -> int:
    decay = run.recipe.weight_decay
    return round(uw.unlearn(run.model, run.data, request, method, weight_decay=decay, **options).receipt.passes)


def _prepare(run: uw.Run) -> int:
    return uw.prepare(run.model, run.data, weight_decay=run.recipe.weight_decay).passes


def _model(data: Data, way: str) -> torch.nn.Module:
    """Smooth where it is to have a minimum: beside kinks the gradients that a request takes are a matter of luck."""
    options: dict[str, Any] = {"activation": "tanh", "unit": True} if way == "forgettable" else {}
    return uw.models.GCN(data.num_features, data.num_classes, **options).double()


def _counted(work: Callable[[], int], *, again: bool = True) -> dict[str, int]:
    """Work once to fill what is remembered between requests, unless that is done, then count."""
    if again:
        work()
    with Allocations() as made:
        passes = work()
    return {"passes": passes, "allocations": made.count, "bytes": made.bytes}


def overruns(found: Costs, budget: Costs) -> list[str]:
    """What grew, and what is missing on either side."""
    grown = [f"{what}: not in {BUDGET.name}" for what in found if what not in budget]
    for what, known in budget.items():
        for unit, allowed in known.items():
            now = found.get(what, {}).get(unit)
            if now is None or now > (1 + GROWTH) * allowed:
                grown.append(f"{what}: {now} {unit}, the budget is {allowed}")
    return grown


def read() -> dict[str, Costs]:
    """The committed budgets by architecture."""
    budgets: dict[str, Costs] = json.loads(BUDGET.read_text(encoding="utf-8"))
    return budgets


def main() -> None:
    """Measure, say what changed, and write the budget."""
    found = measure()
    budgets = read()
    known = budgets.get(machine(), {})
    for what, costs in found.items():
        for unit, now in costs.items():
            before = known.get(what, {}).get(unit)
            print(f"{what}: {now:,} {unit}" + (f" (was {before:,})" if before not in (None, now) else ""))
    BUDGET.write_text(json.dumps(budgets | {machine(): found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
