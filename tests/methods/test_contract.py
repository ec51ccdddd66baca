"""Every method keeps the contract, and so does one that a third party registers."""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import unweave as uw
from unweave.methods import Method, Outcome, Problem
from unweave.methods.registry import _METHODS, make
from unweave.objective.parameters import flatten
from unweave.testing import MethodContract, small_graph

KEPT: dict[tuple[object, ...], uw.Run] = {}
SOLVED: dict[tuple[object, ...], tuple[nn.Module, Data, uw.Unlearned]] = {}


class Contract(MethodContract):
    """The contract, with models that are trained once for all methods; each test works on a copy.

    What is forgotten as usual is forgotten once for all who only look at it; TestGif has the contract as it is.
    """

    epochs: ClassVar = 40
    shares: ClassVar[tuple[float, ...]] = ()

    def solve(
        self, data: Data | None = None, request: uw.Request | None = None
    ) -> tuple[nn.Module, Data, uw.Unlearned]:
        data = small_graph() if data is None else data
        if request is not None:
            return super().solve(data, request)
        key = (type(self), *data.y.tolist())
        if key not in SOLVED:
            SOLVED[key] = super().solve(data)
        return SOLVED[key]

    def test_same_call_same_result(self) -> None:
        first, second = self.solve(), super().solve()
        assert first[2] is not second[2]
        assert torch.equal(flatten(first[2].model), flatten(second[2].model))

    def trained(self, data: Data) -> uw.Run:
        model = self.model(data)
        key = (type(model), self.epochs, self.shares, *data.y.tolist())
        if key not in KEPT:
            how = {"epochs": self.epochs, "checkpoints": self.shares}
            KEPT[key] = uw.train(model, data, seed=3, weight_decay=1e-3, **how)  # type: ignore[arg-type]
        return KEPT[key]

    def deploy(self, data: Data) -> tuple[nn.Module, uw.Recipe]:
        run = self.trained(data)
        method = make(self.method, self.options, run.recipe)
        return method.setup(copy.deepcopy(run.model), data, run.recipe), run.recipe


class TestGif(MethodContract):
    method = "gif"


class TestGifWithAGivenDamping(Contract):
    method = "gif"
    options: ClassVar = {"damping": 5.0}


class TestGifContinued(Contract):
    method = "gif"
    options: ClassVar = {"steps": 5}


class TestIf(Contract):
    method = "if"


class TestGifPublished(Contract):
    method = "gif-published"
    options: ClassVar = {"scale": 1000.0, "iterations": 20}


class TestGifPublishedWithDecay(Contract):
    method = "gif-published"
    options: ClassVar = {"scale": "auto", "decay": "counted", "graph": "remaining", "curvature": "gauss-newton"}


class TestLbfgs(Contract):
    method = "lbfgs"
    options: ClassVar = {"steps": 3}


class TestRetrain(Contract):
    method = "retrain"
    options: ClassVar = {"epochs": 15}


class TestReplay(Contract):
    method = "replay"
    options: ClassVar = {"share": 0.25}
    shares: ClassVar = (0.25, 0.1)

    def deploy(self, data: Data) -> tuple[nn.Module, uw.Recipe]:
        run = self.trained(data)
        self.checkpoints = run.checkpoints
        return copy.deepcopy(run.model), run.recipe

    def forget(
        self, model: nn.Module, data: Data, recipe: uw.Recipe, request: uw.Request | None = None
    ) -> uw.Unlearned:
        how = uw.methods.Replay.from_recipe(recipe, checkpoints=self.checkpoints, **self.options)
        return uw.unlearn(
            model, data, request or self.request(data), how, weight_decay=recipe.weight_decay, recipe=recipe
        )


class TestRetrace(TestReplay):
    method = "retrace"
    options: ClassVar = {"share": 0.25, "end": 0.1}

    def deploy(self, data: Data) -> tuple[nn.Module, uw.Recipe]:
        model, recipe = super().deploy(data)
        self.prepared = uw.prepare(model, data, weight_decay=recipe.weight_decay)
        return model, recipe

    def forget(
        self, model: nn.Module, data: Data, recipe: uw.Recipe, request: uw.Request | None = None
    ) -> uw.Unlearned:
        kept = {"checkpoints": self.checkpoints, "prepared": self.prepared}
        how = uw.methods.Retrace.from_recipe(recipe, **kept, **self.options)
        return uw.unlearn(
            model, data, request or self.request(data), how, weight_decay=recipe.weight_decay, recipe=recipe
        )


class TestReplayFromTheStart(Contract):
    method = "replay"
    options: ClassVar = {"share": 1}


class TestFinetune(Contract):
    method = "finetune"
    options: ClassVar = {"epochs": 4}


class TestAuto(Contract):
    method = "auto"


class TestAutoThatRetrains(Contract):
    method = "auto"
    options: ClassVar = {"at_least": 0.9}


class TestNone(Contract):
    method = "none"


class TestEraserBlpa(Contract):
    method = "eraser-blpa"
    epochs: ClassVar = 8  # of every shard
    options: ClassVar = {"shards": 4}


class TestEraserBekm(Contract):
    method = "eraser-bekm"
    epochs: ClassVar = 8  # of every shard
    options: ClassVar = {"shards": 5, "aggregation": "learned"}


class TestClosedForm(Contract):
    method = "closed-form"

    def model(self, data: Data) -> nn.Module:
        return uw.models.SGC(data.num_features, int(data.num_classes))


class TestCertified(Contract):
    method = "certified"
    options: ClassVar = {"epsilon": 1.0, "delta": 1e-5, "noise_seed": 1}

    def model(self, data: Data) -> nn.Module:
        return uw.models.SGC(data.num_features, int(data.num_classes))


class TestClosedFormOfThePaper(TestClosedForm):
    options: ClassVar = {"hessian": "block-diagonal", "graph": "original"}


@uw.methods.register
@dataclass(frozen=True)
class Halfway(Method):
    """A third party's method: a gradient step of a length of its own."""

    name: ClassVar[str] = "halfway"
    length: float = 0.01

    def forget(self, problem: Problem) -> Outcome:
        v = problem.forgotten_gradient
        return Outcome(problem.theta + self.length * v / v.norm(), details={"length": self.length})


class TestThirdParty(MethodContract):
    method = "halfway"
    options: ClassVar = {"length": 0.02}


def test_every_built_in_method_is_under_contract() -> None:
    tests = [value for name, value in globals().items() if name.startswith("Test")]
    tested = {cls.method for cls in tests}
    assert set(uw.methods.available()) <= tested


def test_unknown_methods_and_options_are_refused() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3)
    request = uw.draw("edges:0.1", data)
    with pytest.raises(
        uw.MethodError, match="unknown method 'gift'; known: auto, certified, closed-form, eraser-bekm, eraser-blpa"
    ):
        uw.unlearn(model, data, request, "gift", weight_decay=0.0)
    with pytest.raises(uw.MethodError, match="'gif' does not take 'epochs'; it takes damping"):
        uw.unlearn(model, data, request, "gif", weight_decay=0.0, epochs=3)
    with pytest.raises(uw.MethodError, match="it takes no options"):
        uw.unlearn(model, data, request, "none", weight_decay=0.0, damping=3)
    with pytest.raises(uw.MethodError, match="go into the method itself"):
        uw.unlearn(model, data, request, uw.methods.GIF(), weight_decay=0.0, damping=3)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(uw.MethodError, match="registered already"):

        @uw.methods.register
        @dataclass(frozen=True)
        class Impostor(Method):
            name: ClassVar[str] = "gif"

            def forget(self, problem: Problem) -> Outcome:
                return Outcome(problem.theta)


def test_an_entry_point_is_found_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugged.py").write_text(
        "from dataclasses import dataclass\n"
        "from unweave.methods import Method, Outcome\n"
        "@dataclass(frozen=True)\n"
        "class Plugged(Method):\n"
        "    name = 'plugged'\n"
        "    def forget(self, problem):\n"
        "        return Outcome(problem.theta * 0.5)\n"
    )
    info = tmp_path / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unweave.methods]\nplugged = plugged:Plugged\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert "plugged" in uw.methods.available()
        data = small_graph()
        done = uw.unlearn(uw.models.GCN(8, 3), data, uw.draw("edges:0.1", data), "plugged", weight_decay=0.0)
        assert done.receipt.method["name"] == "plugged"
    finally:
        _METHODS.pop("plugged", None)
        sys.modules.pop("plugged", None)
