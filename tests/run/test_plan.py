"""A dry run: what would happen, checked as it would be then, and the passes that a real one takes."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.cases import pairwise
from tests.cli.test_cli import refused, unweave
from unweave.methods import EraserBLPA, Method, Outcome, Problem
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

EPOCHS = 40


@pytest.fixture(scope="module")
def runs() -> dict[str, uw.Run]:
    data = small_graph()

    def train(activation: str = "relu", **options: Any) -> uw.Run:
        return uw.train(uw.models.GCN(8, 3, hidden=4, activation=activation), data, seed=1, epochs=EPOCHS, **options)

    plain = train(checkpoints=(0.1, 0.5))
    forgettable = train("tanh", forgettable=True, weight_decay=3e-2, checkpoints=(0.5,))
    assert forgettable.prepared is not None
    assert forgettable.prepared.at_minimum
    return {
        "plain": plain,
        "prepared": plain.prepare(),
        "forgettable": forgettable,
        "unprepared": uw.Run(forgettable.model, data, recipe=forgettable.recipe, metrics=forgettable.metrics),
    }


EXACT = [
    ("none", {}, 7),
    ("finetune", {"epochs": 3}, 13),
    ("finetune", {}, 27),
    ("retrain", {}, 7 + 2 * (EPOCHS + 2)),  # and the gradients of the two checkpoints that are made anew
    ("replay", {"share": 0.1}, 7 + 8 + 2),  # and the gradient at the state it begins at
    ("replay", {"share": 1}, 7 + 2 * (EPOCHS + 2)),
]


@pytest.mark.parametrize(("method", "options", "passes"), EXACT)
@pytest.mark.parametrize("forget", ["edges:0.1", "nodes:0.1"])
def test_passes_that_are_known(
    runs: dict[str, uw.Run], method: str, options: dict[str, Any], passes: int, forget: str
) -> None:
    run = runs["plain"]
    request = uw.draw(forget, run.data)
    plan = run.preview(request, method, **options)
    receipt = run.forget(request, method, **options).receipts[-1]
    assert plan.passes == {"least": passes, "most": passes, "about": None}
    assert receipt.passes == passes
    share = passes / (2 * EPOCHS)
    assert plan.share == (share, share)


BOUNDED: list[tuple[str, dict[str, Any]]] = [
    ("gif", {}),
    ("gif", {"steps": 1}),
    ("gif", {"steps": 12}),
    ("gif", {"damping": 10.0}),
    ("if", {}),
    ("lbfgs", {}),
    ("gif-published", {"iterations": 10, "scale": 5000}),
    ("gif-published", {"iterations": 20, "scale": "auto", "decay": "counted", "curvature": "hessian"}),
]


SETTINGS = [
    {"kind": kind, "how": how, "forget": forget}
    for kind, how, forget in product(
        ("plain", "prepared", "forgettable", "unprepared"),
        range(len(BOUNDED)),
        ("edges:0.02", "nodes:0.1,features:0.1", "labels:0.1"),
    )
]


@pytest.mark.parametrize(
    ("kind", "how", "forget"),
    [
        pytest.param(*settings.values(), marks=[] if needed else [pytest.mark.slow])
        for settings, needed in zip(SETTINGS, pairwise(SETTINGS), strict=True)
    ],
)
def test_passes_lie_within_the_bounds(runs: dict[str, uw.Run], kind: str, how: int, forget: str) -> None:
    run, (method, options) = runs[kind], BOUNDED[how]
    request = uw.draw(forget, run.data)
    plan = run.preview(request, method, **options)
    passes = run.forget(request, method, **options).receipts[-1].passes
    least, most = plan.passes["least"], plan.passes["most"]
    assert least is not None
    assert most is not None
    assert least <= passes <= most, plan.passes


@pytest.mark.parametrize(("kind", "most"), [("prepared", 35), ("forgettable", 260)])
def test_the_bounds_of_a_prepared_request_are_near(runs: dict[str, uw.Run], kind: str, most: int) -> None:
    plan = runs[kind].preview(uw.draw("edges:0.1", runs[kind].data))
    assert plan.passes["least"] == 4
    assert plan.passes["most"] == most
    assert plan.at_minimum is (kind == "forgettable")
    assert "with the prepared curvature" in plan.how


@pytest.mark.parametrize(("method", "options"), [("retrain", {}), ("replay", {"share": 0.5})])
def test_what_a_polish_takes_is_told_by_the_first(
    runs: dict[str, uw.Run], method: str, options: dict[str, Any]
) -> None:
    run = runs["forgettable"]
    request = uw.draw("edges:0.05", run.data)
    plan = run.preview(request, method, **options)
    passes = run.forget(request, method, **options).receipts[-1].passes
    least, about = plan.passes["least"], plan.passes["about"]
    assert least is not None
    assert about is not None
    assert plan.passes["most"] is None
    assert least <= passes
    assert 0.5 * about <= passes <= 2 * about
    assert plan.retraining == 2 * EPOCHS + run.metrics["polish_passes"]
    later = run.forget(request).preview(uw.draw("nodes:0.1", run.data), method, **options)
    assert later.retraining is None, "scores of the first training are not kept"
    assert "what a retraining takes is not known" in str(later)
    assert "how many more is not known" in str(later)


def test_a_purge_is_planned_with_its_cost(runs: dict[str, uw.Run]) -> None:
    run = runs["prepared"]
    request = uw.draw("edges:0.1", run.data)
    plan, after = run.preview(request, purge=True), run.forget(request, purge=True)
    assert after.prepared is not None
    assert 0.5 * after.prepared.passes <= plan.preparing <= 2 * after.prepared.passes
    assert run.preview(request).preparing == 0
    least, most = plan.passes["least"], plan.passes["most"]
    assert least is not None
    assert most is not None
    both = [(number + plan.preparing) / (2 * EPOCHS) for number in (least, most)]
    assert plan.share == pytest.approx(both)


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("kind", ["plain", "prepared"])
@pytest.mark.parametrize(
    ("method", "options"), [("gif", {}), ("retrain", {}), ("replay", {"share": 0.1}), ("replay", {"share": 1})]
)
def test_what_would_be_purged_is_what_is(
    runs: dict[str, uw.Run], method: str, options: dict[str, Any], kind: str, purge: bool
) -> None:
    run = runs[kind]
    request = uw.draw("edges:0.1", run.data)
    planned = run.preview(request, method, purge=purge, **options).remembers
    receipts = run.forget(request, method, purge=purge, **options).receipts
    done = {trace["where"]: trace["state"] for receipt in receipts for trace in receipt.remembers}
    assert {trace["where"]: trace["state"] for trace in planned} == done


def test_it_says_what_the_receipt_says(runs: dict[str, uw.Run]) -> None:
    run = runs["prepared"]
    before = flatten(run.model).clone()
    for defer in (False, True):
        request = uw.Request(nodes=[3], edges=[(1, int(run.data.edge_index[1][run.data.edge_index[0] == 1][0]))])
        plan = run.preview(request, defer=defer)
        receipt = run.forget(request, defer=defer).receipts[-1]
        assert plan.request == receipt.request
        assert plan.removed == receipt.removed
        assert plan.graph == receipt.graph
        assert plan.region == receipt.region
        assert plan.method == receipt.method
        if defer:
            assert plan.passes["least"] == plan.passes["most"] == receipt.passes
        json.dumps(plan.to_dict(), allow_nan=False)
        for word in ("Asked", "Would go", "Affected", "Method", "Model", "Cost", "Remembers", "nothing was changed"):
            assert word in str(plan)
    assert torch.equal(flatten(run.model), before)
    assert run.receipts == ()


def test_whatever_forget_refuses_is_refused(runs: dict[str, uw.Run]) -> None:
    plain, prepared = runs["plain"], runs["prepared"]
    request = uw.draw("edges:0.1", plain.data)
    other = uw.train(uw.models.GCN(8, 3, hidden=5), plain.data, epochs=EPOCHS, checkpoints=(0.1,))
    trained = [int(node) for node in plain.data.train_mask.nonzero() if plain.data.y[node] == 0]
    cases: list[tuple[uw.Run, uw.Request, str, dict[str, Any]]] = [
        (plain, request, "gift", {}),
        (plain, request, "gif", {"steps": 0}),
        (plain, request, "gif", {"scale": 2}),
        (plain, uw.Request(nodes=[999]), "gif", {}),
        (plain, uw.Request(edges=[(0, 0)]), "gif", {}),
        (plain, uw.Request(nodes=trained), "gif", {}),
        (plain, request, "replay", {"share": 0.9}),
        (plain, request, "replay", {"share": 0.1, "lr": 0.5}),
        (plain, request, "replay", {"share": 0.1, "checkpoints": other.checkpoints}),
        (plain, request, "gif", {"prepared": runs["forgettable"].prepared}),
        (plain, request, "closed-form", {"memory_mib": 64}),
        (plain, request, "gif", {"memory_mib": -1}),
        (plain, request, "gif", {"defer": True}),
        (prepared, request, "gif", {"defer": True, "purge": True}),
        (plain, request, "eraser-blpa", {}),
    ]
    for run, wanted, method, options in cases:
        said = []
        for act in (run.forget, run.preview):
            with pytest.raises(uw.UnweaveError) as error:
                act(wanted, method, **options)
            said.append((type(error.value), str(error.value)))
        assert said[0] == said[1], (method, options)


class Fixed(nn.Module):
    """A model with a parameter that nobody can draw anew."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = GCNConv(8, 3), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index) * self.scale  # type: ignore[no-any-return]


def test_a_model_that_cannot_be_retrained_is_found_out() -> None:
    data = small_graph()
    run = uw.Run(Fixed(), data, recipe=uw.Recipe())
    for act in (run.preview, run.forget):
        with pytest.raises(uw.ModelError, match="'scale' was not drawn anew"):
            act(uw.draw("edges:0.1", data), "retrain")


def test_pending_requests_and_worn_curvature_come_first(runs: dict[str, uw.Run]) -> None:
    run = runs["prepared"]
    waiting = run.forget(uw.draw("edges:0.02", run.data), defer=True)
    plan = waiting.preview(uw.draw("nodes:0.1", waiting.data))
    assert "1 request that is pending would be verified" in plan.first[0]
    assert waiting.pending == 1
    worn = run.forget(uw.draw("edges:0.4", run.data))
    request = uw.draw("nodes:0.1", worn.data)
    plan, passes = worn.preview(request), worn.forget(request).receipts[-1].passes
    assert "computed anew" in plan.first[0]
    assert plan.passes["most"] is None
    assert plan.passes["least"] is not None
    assert plan.passes["least"] <= passes
    assert 0.5 * passes <= plan.preparing <= 2 * passes


def test_in_blocks_only_the_least_is_known(runs: dict[str, uw.Run]) -> None:
    run = runs["prepared"]
    request = uw.draw("edges:0.1", run.data)
    plan = run.preview(request, memory_mib=64)
    least = plan.passes["least"]
    assert least is not None
    assert plan.passes["most"] is None
    assert least <= run.forget(request, memory_mib=64).receipts[-1].passes


def test_shards() -> None:
    data = small_graph(nodes=90)
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, epochs=10)
    how = EraserBLPA.from_recipe(run.recipe, shards=3)
    sharded = uw.Run(how.setup(run.model, data, run.recipe), data, recipe=run.recipe)
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    plan, receipt = sharded.preview(request, how), sharded.forget(request, how).receipts[-1]
    assert plan.how == f"train {receipt.details['shards_retrained']} of 3 shards from scratch for 10 epochs"
    assert plan.passes["least"] is not None
    assert plan.passes["most"] is not None
    assert plan.passes["least"] <= receipt.passes <= plan.passes["most"]


class Unheard(Method):
    """A method of one's own that says nothing of its cost."""

    name = "unheard"

    def forget(self, problem: Problem) -> Outcome:
        raise AssertionError("a dry run forgets nothing")


def test_a_method_that_says_nothing_of_its_cost(runs: dict[str, uw.Run]) -> None:
    plan = runs["plain"].preview(uw.draw("edges:0.1", runs["plain"].data), Unheard())
    assert plan.passes == {"least": 7, "most": None, "about": None}
    assert "at least 7 passes, how many more is not known; at least 8.8% of a retraining" in str(plan)


@pytest.mark.usefixtures("embedded")
def test_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    made = ("train", "--data", "demo", "--model", "gcn", "--epochs", 10, "--checkpoints", "0.5", "--out", path)
    assert unweave(*made).exit_code == 0
    files = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()}
    how = ("forget", path, "--forget", "edges:0.05", "--method", "replay", "-o", "share=0.5")
    done = unweave(*how, "--dry-run", "--purge")
    assert done.exit_code == 0, done.stderr
    for words in (
        "Method     replay: train the last 5 of 10 epochs again, from epoch 5",
        "Cost       19 passes; 95.0% of a retraining (20 passes)",
        "Purged     the checkpoints of epoch 5",
    ):
        assert words in done.stdout
    told = json.loads(unweave(*how, "--dry-run", "--json").stdout)["plan"]
    assert told["passes"] == {"least": 19, "most": 19, "about": None}
    assert told["share"] == [0.95, 0.95]
    refused(unweave(*how[:-1], "share=0.9", "--dry-run"), "no checkpoint lies before")
    assert f"the run before ({path}): it has the old model" in done.stdout
    done = unweave(*how, "--dry-run", "--out", path, "--overwrite")
    assert f"the run before ({path}): replaced by this one" in done.stdout
    refused(unweave(*how, "--dry-run", "--out", path), "exists already")
    refused(unweave(*how), "say where the new run goes", code=2)
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()} == files
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    done = unweave(*how, "--out", tmp_path / "b", "--json")
    assert json.loads(done.stdout)["receipt"]["passes"] == 19
