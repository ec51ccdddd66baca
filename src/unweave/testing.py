"""The contract that every method keeps, as tests that any method can run.

Subclass :class:`MethodContract` in a test module, name the method, and let pytest collect it::

    from unweave.testing import MethodContract


    class TestMine(MethodContract):
        method = "mine"
        options = {"strength": 2}

Nothing here needs pytest; the tests are plain methods with assertions.
"""

import copy
import math
from typing import Any, ClassVar

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from unweave.errors import EmptyRequestError, RequestError
from unweave.methods.registry import make
from unweave.models import GCN
from unweave.objective.parameters import flatten
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.run import Run
from unweave.run.train import train
from unweave.training.recipe import Recipe
from unweave.unlearning import Unlearned, unlearn

__all__ = ["MethodContract", "small_graph"]


def small_graph(*, nodes: int = 60, features: int = 8, classes: int = 3, seed: int = 0) -> Data:
    """A random undirected graph with features that follow the class, split in three, for tests."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    x = torch.randn(nodes, features, generator=generator)
    x[torch.arange(nodes), y] += 2
    pairs = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]]
    order = torch.randperm(nodes, generator=generator)
    masks = {}
    for name, part in zip(
        ("train_mask", "val_mask", "test_mask"), torch.split(order, [nodes - 20, 10, 10]), strict=True
    ):
        masks[name] = torch.zeros(nodes, dtype=torch.bool)
        masks[name][part] = True
    return Data(x=x, edge_index=to_undirected(pairs, num_nodes=nodes), y=y, num_classes=classes, **masks)


class MethodContract:
    """What every method owes its users.

    Attributes:
        method: Name of the method under test.
        options: Options to build it with.
    """

    method: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def solve(self, data: Data | None = None, request: Request | None = None) -> tuple[nn.Module, Data, Unlearned]:
        """Train on a small graph and forget; returns what went in and what came out."""
        data = small_graph() if data is None else data
        model, recipe = self.deploy(data)
        return model, data, self.forget(model, data, recipe, request)

    def deploy(self, data: Data) -> tuple[nn.Module, Recipe]:
        """The model that the method works on, and how it was trained."""
        run = train(self.model(data), data, seed=3, epochs=40, weight_decay=1e-3)
        method = make(self.method, self.options, run.recipe)
        return method.setup(run.model, data, run.recipe), run.recipe

    def forget(self, model: nn.Module, data: Data, recipe: Recipe, request: Request | None = None) -> Unlearned:
        """Forget by the method under test."""
        request = request or self.request(data)
        decay = recipe.weight_decay
        return unlearn(model, data, request, self.method, weight_decay=decay, recipe=recipe, **self.options)

    def model(self, data: Data) -> nn.Module:
        """A model that the method serves; override it where that is not a GCN of two layers."""
        return GCN(data.num_features, int(data.num_classes), hidden=4)

    def request(self, data: Data) -> Request:
        """A request with something of every kind."""
        train_nodes = data.train_mask.nonzero().flatten().tolist()
        edges = [(u, v) for u, v in data.edge_index.t().tolist() if u < v]
        return Request(
            nodes=tuple(train_nodes[:2]),
            edges=tuple(edges[5:8]),
            features={train_nodes[3]: "all", train_nodes[4]: (0, 2)},
            labels=(train_nodes[5],),
        )

    def test_result_is_a_finite_model_of_the_same_architecture(self) -> None:
        """Same class, same shapes, no NaN."""
        model, _, done = self.solve()
        assert type(done.model) is type(model)
        shapes = [p.shape for p in model.parameters()]
        assert [p.shape for p in done.model.parameters()] == shapes
        assert bool(torch.isfinite(flatten(done.model)).all())

    def test_caller_keeps_model_and_data(self) -> None:
        """Neither the model nor the graph that was given is modified."""
        data = small_graph()
        model, recipe = self.deploy(data)
        state, graph = copy.deepcopy(model.state_dict()), copy.deepcopy(data.to_dict())
        random = torch.random.get_rng_state()
        self.forget(model, data, recipe)
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
        for key, value in data.to_dict().items():
            same = torch.equal(value, graph[key]) if isinstance(value, torch.Tensor) else value == graph[key]
            assert same, f"data.{key} was changed"
        assert torch.equal(random, torch.random.get_rng_state()), "the caller's random state was changed"

    def test_same_call_same_result(self) -> None:
        """The result depends on nothing but the arguments."""
        first, second = (self.solve()[2] for _ in range(2))
        assert torch.equal(flatten(first.model), flatten(second.model))

    def test_test_labels_never_matter(self) -> None:
        """Changing every label outside the training set changes no bit."""
        data, changed = small_graph(), small_graph()
        changed.y[~changed.train_mask] = (changed.y[~changed.train_mask] + 1) % 3
        assert torch.equal(flatten(self.solve(data)[2].model), flatten(self.solve(changed)[2].model))

    def test_removed_data_never_matters_to_the_remaining_graph(self) -> None:
        """The remaining graph holds nothing of what was removed, and ids stay what they were."""
        _, data, done = self.solve()
        request = self.request(data)
        gone = list(request.nodes)
        assert done.data.num_nodes == data.num_nodes
        assert not bool(torch.isin(done.data.edge_index, torch.tensor(gone)).any())
        assert not bool(done.data.x[gone].any())
        assert not bool(done.data.train_mask[gone + list(request.labels)].any())

    def test_receipt_is_complete(self) -> None:
        """The receipt names the method, survives JSON and holds no NaN."""
        _, _, done = self.solve()
        receipt = done.receipt
        assert receipt.method["name"] == self.method
        assert Receipt.from_json(receipt.to_json()).to_json() == receipt.to_json()
        if make(self.method, self.options).local:
            assert receipt.residual_influence is not None
            assert math.isfinite(receipt.residual_influence)
        else:
            assert receipt.nearness
        assert receipt.passes > 0
        assert str(receipt)

    def test_a_dry_run_tells_the_cost(self) -> None:
        """The passes it takes lie between what it expects (:meth:`Method.expect`), and a dry run changes nothing."""
        data = small_graph()
        model, recipe = self.deploy(data)
        before = flatten(model).clone()
        kept = {name: value for name in ("checkpoints", "prepared") if (value := getattr(self, name, None)) is not None}
        run = Run(model, data, recipe=recipe, **kept)
        plan = run.preview(self.request(data), self.method, **self.options)
        assert torch.equal(flatten(model), before)
        passes = self.forget(model, data, recipe).receipt.passes
        least, most = plan.passes["least"], plan.passes["most"]
        assert least is not None
        assert least <= passes
        assert most is None or passes <= most

    def test_bad_requests_are_refused(self) -> None:
        """An unknown node and an empty request are errors, not no-ops."""
        for nodes, error in (((10_000,), RequestError), ((), EmptyRequestError)):
            try:
                self.solve(request=Request(nodes=nodes))
            except error:
                continue
            raise AssertionError(f"expected {error.__name__}")
