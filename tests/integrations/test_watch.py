"""A plain training loop that is watched: it ends forgettable, and what cannot is refused before it begins."""

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import unweave as uw
from tests.scripts import small_demo
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.testing import small_graph
from unweave.training.checkpoints import Checkpoint

pytestmark = pytest.mark.usefixtures("part")

EPOCHS = 40
QUICK: dict[str, Any] = {"examine": False}
LONGER = QUICK | {"evaluations": 400}
"""A small graph at a small decay takes long to be at a minimum."""


def wide(data: Data, hidden: int = 64, dropout: float = 0.5) -> nn.Module:
    return GCN(data.num_features, hidden, 2, int(data.y.max()) + 1, act="tanh", dropout=dropout)


def adam(model: nn.Module, weight_decay: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=weight_decay)


def epoch(model: nn.Module, data: Data, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    outputs = model.train()(data.x, data.edge_index)[data.train_mask]
    nn.functional.cross_entropy(outputs, data.y[data.train_mask]).backward()
    optimiser.step()


def again(model: Any, data: Data, start: uw.Checkpoint | None = None, until: int = EPOCHS) -> uw.Checkpoint:
    """The loop below as a trainer that can stop and go on."""
    optimiser = adam(model)
    if start is None:
        model.reset_parameters()
    else:
        start.restore(model, optimiser)
    for _ in range(0 if start is None else start.epoch, until):
        epoch(model, data, optimiser)
    return uw.Checkpoint.take(until, model, optimiser)


def whole(model: Any, data: Data) -> None:
    again(model, data)


def watched(data: Data, epochs: int = EPOCHS, **how: Any) -> tuple[nn.Module, uw.Run]:
    torch.manual_seed(0)
    model = wide(data)
    optimiser = adam(model)
    watch = uw.integrations.Watch(model, data, optimiser, epochs=epochs, **({"polish": QUICK} | how))
    for _ in range(epochs):
        epoch(model, data, optimiser)
        watch.step()
    return model, watch.finish()


def closed_by(run: uw.Run, method: str, request: uw.Request, retrained: uw.Run, **options: Any) -> float:
    after = run.forget(request, method, **options)
    everybody = torch.ones(int(after.data.num_nodes), dtype=torch.bool)
    target, before, now = (log_probabilities(r.model, after.data, run.forward) for r in (retrained, run, after))
    found = closed(gap(target, now, everybody), gap(target, before, everybody))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def demo() -> Data:
    return uw.load("demo", seed=0)


@pytest.fixture(scope="module")
def done(demo: Data) -> tuple[nn.Module, uw.Run]:
    return watched(demo, trainer=again)


def test_it_forgets_as_a_model_trained_and_polished_without_the_data(
    demo: Data, done: tuple[nn.Module, uw.Run]
) -> None:
    _, run = done
    assert run.prepared is not None
    assert run.prepared.at_minimum
    request = uw.Request(nodes=uw.draw("nodes:0.03", demo).nodes, edges=uw.draw("edges:0.03", demo).edges)
    retrained = run.forget(request, "retrain")
    assert [state.epoch for state in retrained.checkpoints] == [32, 38]
    # Beside the short polish of a test the gradients that gif would take are dear; here they may be.
    assert closed_by(run, "gif", request, retrained, steps=15) > 0.99
    assert closed_by(run, "replay", request, retrained) > 0.99


def test_the_users_model_has_the_polished_weights_and_is_not_the_runs(done: tuple[nn.Module, uw.Run]) -> None:
    model, run = done
    assert torch.equal(flatten(model), flatten(run.model))
    assert run.model is not model
    assert not {id(p) for p in run.model.parameters()} & {id(p) for p in model.parameters()}


def test_nothing_is_made_up(demo: Data, done: tuple[nn.Module, uw.Run]) -> None:
    _, run = done
    assert run.training.recipe is None
    assert run.training.weight_decay == 3e-3
    assert run.training.called == "again, then a polish"
    without = run.replace(training=uw.Training(3e-3))
    for method in ("retrain", "replay"):
        with pytest.raises(uw.MethodError, match="nobody said"):
            without.forget(uw.draw("edges:0.05", demo), method)
    with pytest.raises(uw.MethodError, match="forgettable model never do"):
        run.forget(uw.draw("edges:0.05", demo), "retrace", share=0.2)


def test_without_a_polish_retrace_walks_the_path(demo: Data) -> None:
    model, run = watched(demo, polish=False, trainer=again, checkpoints=(0.05, 0.2, 0.5, 0.9))
    assert run.training.path == f"{__name__}:again"  # as it was given, so that it can be stored
    assert torch.equal(flatten(model), flatten(run.model))
    assert all(state.gradient is not None for state in run.checkpoints)
    request = uw.draw("edges:0.05", demo)
    retrained = run.forget(request, "retrain")
    assert closed_by(run, "retrace", request, retrained) > 0.3
    assert closed_by(run, "replay", request, retrained) > 0.3


def test_a_trainer_of_two_arguments_retrains_and_does_not_replay() -> None:
    data = small_graph()
    _, run = watched(data, trainer=whole, epochs=10, polish=False)
    request = uw.draw("edges:0.1", data)
    assert run.forget(request, "retrain").receipts
    with pytest.raises(uw.MethodError, match=r"takes \(model, data\) alone"):
        run.forget(request, "replay")


def test_samples_class_weights_a_schedule_and_adamw() -> None:
    """What of a loop is chance does not matter to the polish; what AdamW's decay amounts to is translated."""
    with small_demo(None):  # on few nodes so short a loop is better on validation than what it goes to
        demo = uw.load("demo", seed=0)
    torch.manual_seed(0)
    model = wide(demo, 32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 8)
    loss = nn.CrossEntropyLoss(weight=torch.linspace(0.5, 1.5, demo.num_classes), label_smoothing=0.1)
    watch = uw.integrations.Watch(
        model, demo, optimiser, schedule, epochs=8, loss=loss, checkpoints=(0.5,), polish=QUICK | {"evaluations": 60}
    )
    known = demo.train_mask.nonzero().flatten()
    for _ in range(8):
        for batch in known[torch.randperm(known.numel())].split(500):
            optimiser.zero_grad()
            kept = torch.rand(demo.edge_index.size(1)) < 0.7
            loss(model.train()(demo.x, demo.edge_index[:, kept])[batch], demo.y[batch]).backward()
            optimiser.step()
        schedule.step()
        watch.step()
    run = watch.finish()
    assert "AdamW" in str(run.training.weight_decay)
    assert [(state.epoch, [name for name, _ in state.parts]) for state in run.checkpoints] == [
        (4, ["AdamW", "CosineAnnealingLR"])
    ]
    assert watch.polished is not None
    assert watch.polished.report["objective"] < watch.polished.report["objective_before"]


def test_a_model_called_in_another_way() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = wide(small_graph(), 8, 0.0)

        def forward(self, graph: Data) -> torch.Tensor:
            return self.inner(graph.x, graph.edge_index)  # type: ignore[no-any-return]

    data, model = small_graph(), Head()
    optimiser = adam(model, 1e-2)
    with pytest.raises(uw.ModelError, match="forward="):
        uw.integrations.Watch(model, data, optimiser, epochs=1)
    watch = uw.integrations.Watch(
        model, data, optimiser, epochs=1, forward=lambda model, data: model(data), polish=QUICK
    )
    epoch(model.inner, data, optimiser)
    watch.step()
    assert watch.finish().forget(uw.draw("edges:0.1", data)).receipts


def test_a_state_is_copied_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = Checkpoint.take.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Checkpoint], at: int, *rest: Any) -> Checkpoint:
        taken.append(at)
        found: Checkpoint = take(cls, at, *rest)
        return found

    monkeypatch.setattr(Checkpoint, "take", classmethod(counted))
    data = small_graph()
    model, run = watched(data, epochs=200, polish=False)
    assert taken == [0, 160, 190]  # once before, to know that it can be done
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert max(state.nbytes for state in run.checkpoints) < 3.1 * weights + 10_000


def test_an_epoch_costs_no_more_than_before() -> None:
    data = small_graph()
    model = wide(data)
    watch = uw.integrations.Watch(model, data, adam(model), epochs=10_000, checkpoints=())
    begin = time.perf_counter()
    for _ in range(10_000):
        watch.step()
    assert time.perf_counter() - begin < 1


def test_early_stopping_ends_where_it_ends() -> None:
    data = small_graph()
    torch.manual_seed(0)
    model = wide(data, 16)
    optimiser = adam(model)
    watch = uw.integrations.Watch(
        model, data, optimiser, epochs=100, checkpoints=(0.1, 0.9), trainer=again, polish=False
    )
    for _ in range(20):
        epoch(model, data, optimiser)
        watch.step()
    run = watch.finish()
    assert [state.epoch for state in run.checkpoints] == [10]
    done = run.forget(uw.draw("edges:0.1", data), "replay", share=0.5)
    assert done.receipts[-1].details["of"] == 20


def test_a_run_is_written_and_says_what_it_could_not_keep(tmp_path: Path) -> None:
    data = small_graph()
    with pytest.warns(UserWarning, match="cannot be stored"):
        watched(data, epochs=5, trainer=again, polish=LONGER, out=tmp_path / "run")
    run = uw.Run.open(tmp_path / "run", model=wide(data), data=data)
    assert run.prepared is not None
    assert run.training.lost == "again, then a polish"
    with pytest.raises(uw.MethodError, match="nobody said"):
        run.forget(uw.draw("edges:0.1", data), "retrain")
    with pytest.raises(uw.RunError, match="exists already"):
        watched(data, epochs=5, out=tmp_path / "run")


def test_what_the_polish_has_to_say_is_told() -> None:
    data = small_graph()
    with pytest.warns(UserWarning, match="no minimum was reached"):
        watched(data, epochs=1, polish=QUICK | {"evaluations": 1})


def test_what_retrace_cannot_use_is_told() -> None:
    data = small_graph()
    torch.manual_seed(0)
    model = wide(data, 8)
    optimiser = torch.optim.RMSprop(model.parameters(), lr=0.01, weight_decay=1e-2)
    watch = uw.integrations.Watch(model, data, optimiser, epochs=4, checkpoints=(0.5,), polish=False)
    for _ in range(4):
        epoch(model, data, optimiser)
        watch.step()
    with pytest.warns(UserWarning, match="retrace cannot use the states of this training.*RMSprop"):
        run = watch.finish()
    assert len(run.checkpoints) == 1


Refusal = tuple[Callable[[nn.Module], torch.optim.Optimizer], dict[str, Any], type[Exception], str]

REFUSED: dict[str, Refusal] = {
    "another model": (lambda m: adam(copy.deepcopy(m)), {}, uw.ModelError, "not a copy"),
    "a part of it": (lambda m: adam(m.convs[0]), {}, uw.ModelError, "does not hold the parameter"),
    "more than it": (
        lambda m: torch.optim.Adam([*m.parameters(), nn.Parameter(torch.zeros(1))], weight_decay=1e-2),
        {}, uw.ModelError, "no part of the model",
    ),
    "no decay": (lambda m: adam(m, 0.0), {}, uw.ModelError, "without weight decay"),
    "no decay, said so": (adam, {"weight_decay": 0.0}, uw.ModelError, "without weight decay"),
    "no optimiser": (lambda m: m, {}, uw.ModelError, "torch.optim.Optimizer, got GCN"),  # type: ignore[dict-item]
    "no epochs": (adam, {"epochs": 0}, uw.ModelError, "at least 1"),
    "no share": (adam, {"checkpoints": (1.5,)}, uw.ModelError, "shares of the training"),
    "no polish": (adam, {"polish": "yes"}, uw.ModelError, "True, False or some options"),
    "no trainer": (adam, {"trainer": lambda: None}, uw.MethodError, "must take"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_fail_at_the_end_is_refused_before_it_begins(case: str) -> None:
    optimiser, how, error, words = REFUSED[case]
    data = small_graph()
    model = wide(data, 8)
    with pytest.raises(error, match=words):
        uw.integrations.Watch(model, data, optimiser(model), **({"epochs": 5} | how))


def test_two_optimisers_do_not_tell_one_decay() -> None:
    data = small_graph()
    model = wide(data, 8)
    first, *others = model.parameters()
    both = [torch.optim.Adam([first], weight_decay=1e-2), torch.optim.SGD(others, lr=0.1)]
    with pytest.raises(uw.ModelError, match="2 optimisers"):
        uw.integrations.Watch(model, data, *both, epochs=5)  # type: ignore[arg-type]
    uw.integrations.Watch(model, data, *both, epochs=5, weight_decay=1e-2)  # type: ignore[arg-type]


def test_no_decay_is_fine_where_nothing_is_polished() -> None:
    data = small_graph()
    model = wide(data, 8)
    optimiser = adam(model, 0.0)
    watch = uw.integrations.Watch(model, data, optimiser, epochs=3, polish=False, checkpoints=())
    for _ in range(3):
        epoch(model, data, optimiser)
        watch.step()
    assert watch.finish().training.weight_decay == 0


def test_looking_before_it_begins_leaves_model_and_chance_alone() -> None:
    data = small_graph()
    model = wide(data, 8).train()
    before, chance = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    uw.integrations.Watch(model, data, adam(model), epochs=5)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(chance, torch.get_rng_state())


def test_a_graph_that_changed_meanwhile_is_refused_and_the_model_stays() -> None:
    data = small_graph()
    model = wide(data, 8)
    watch = uw.integrations.Watch(model, data, adam(model), epochs=5)
    watch.step()
    before = flatten(model).clone()
    data.edge_index = data.edge_index[:, :-2]
    with pytest.raises(uw.DataError, match="changed in place"):
        watch.finish()
    assert torch.equal(before, flatten(model))


def test_a_training_ends_once_and_after_it_has_begun() -> None:
    data = small_graph()
    model = wide(data, 8)
    watch = uw.integrations.Watch(model, data, adam(model, 1e-2), epochs=1, polish=LONGER)
    with pytest.raises(uw.ModelError, match="not one epoch"):
        watch.finish()
    watch.step()
    with pytest.raises(uw.ModelError, match="epoch 2 of a training of epochs=1"):
        watch.step()
    watch.finish()
    for more in (watch.finish, watch.step):
        with pytest.raises(uw.ModelError, match="watch a new training"):
            more()
