"""Training: repeatable, and without side effects on the caller's random numbers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SGConv

import unweave as uw
from unweave.objective.parameters import flatten
from unweave.testing import small_graph
from unweave.training.fit import _error


def test_the_same_seed_gives_the_same_model_and_leaves_the_generator_alone() -> None:
    data = small_graph()
    models = [uw.models.GCN(8, 3) for _ in range(3)]
    state = torch.random.get_rng_state()
    for model, seed in zip(models, (0, 0, 1), strict=True):
        uw.train(model, data, seed=seed, epochs=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(flatten(models[0]), flatten(models[1]))
    assert not torch.equal(flatten(models[0]), flatten(models[2]))


def test_trainings_of_one_seed_in_two_threads_give_the_same_model() -> None:
    """Dropout draws from torch's own generator, which threads share."""
    data, models = small_graph(), [uw.models.GCN(8, 3) for _ in range(3)]
    uw.train(models[0], data, epochs=30)
    begin = Barrier(2)

    def train(model: nn.Module) -> None:
        begin.wait()
        uw.train(model, data, epochs=30)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, models[1:]))
    assert torch.equal(flatten(models[1]), flatten(models[0]))
    assert torch.equal(flatten(models[2]), flatten(models[0]))


@pytest.mark.parametrize("name", sorted(set(uw.models.MODELS) - {"pooled-sign", "lightgcn", "linker"}))
def test_built_in_models_learn(name: str) -> None:
    data = uw.load("demo")
    run = uw.train(uw.models.MODELS[name](data.num_features, data.num_classes), data, epochs=60)
    assert run.metrics["test_f1"] > 0.8


def test_sgc_is_the_convolution_of_the_paper() -> None:
    """Â²XW: the same function as PyG's SGConv, which propagates the features instead."""
    data = small_graph()
    model, reference = uw.models.SGC(8, 3), SGConv(8, 3, K=2, bias=False)
    reference.lin.weight.data = model.linear.weight.data
    torch.testing.assert_close(model(data.x, data.edge_index), reference(data.x, data.edge_index))


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    uw.train(uw.models.SGC(8, 3), small_graph(), epochs=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_module_that_cannot_start_afresh_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(8, 3))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x @ self.weight

    with pytest.raises(uw.ModelError, match="'weight' was not drawn anew"):
        uw.train(Bare(), small_graph())


def test_diverging_training_is_an_error() -> None:
    with pytest.raises(uw.DivergenceError, match="lower lr"):
        uw.train(uw.models.GIN(8, 3), small_graph(), lr=1e30, epochs=10)


@pytest.mark.parametrize(
    "bad", [{"epochs": 0}, {"lr": 0.0}, {"lr": -1.0}, {"weight_decay": -1.0}, {"lr": float("nan")}]
)
def test_bad_recipes_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(uw.ModelError):
        uw.train(uw.models.SGC(8, 3), small_graph(), **bad)  # type: ignore[arg-type]


def test_two_decays_are_compared_on_the_nodes_that_only_one_of_them_has_right() -> None:
    """Four nodes more of a hundred are evidence where nothing else changed, less so where sixty others did."""
    better, worse = torch.ones(100, dtype=torch.bool), torch.ones(100, dtype=torch.bool)
    worse[:4] = False
    also_better, also_worse = better.clone(), worse.clone()
    also_better[20:50], also_worse[50:80] = False, False
    assert better.sum() - worse.sum() == also_better.sum() - also_worse.sum() == 4
    assert _error(worse, better) == pytest.approx(2 / 100)
    assert _error(also_worse, also_better) == pytest.approx(8 / 100)
