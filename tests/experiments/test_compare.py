"""The comparison: complete, in its format, with its controls, and drawn."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from tests.scripts import WARM_UP
from tests.tasks.literature import heterogeneous, literature
from unweave.cli.compare import show_comparison
from unweave.experiments.compare import OTHER_SEED, Comparison, _averaged
from unweave.experiments.plots import plot_comparison
from unweave.experiments.trial import Setting, Trial
from unweave.methods import Method, Outcome, Problem
from unweave.methods.registry import _METHODS
from unweave.testing import small_graph

KEYS = {
    "method", "f1_mean", "f1_std", "gap_closed_mean", "gap_closed_std", "mean_gap_closed", "forget_gap_closed_mean",
    "param_gap_closed_mean", "residual_influence_mean", "seconds_mean", "prepare_seconds_mean", "cost_mean",
    "passes_mean", "failures",
}  # fmt: skip


def graphs(seed: int) -> Data:
    data = small_graph(nodes=100)
    return uw.split(data, seed=seed)


def small(features: int, classes: int) -> torch.nn.Module:
    return uw.models.GCN(features, classes, hidden=4)


@pytest.fixture(scope="module")
def result() -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Setting, "warm_up", WARM_UP)
        return uw.compare(graphs, small, "edges:0.1,nodes:0.05", seeds=2, epochs=20)


def test_rows_and_format(result: Comparison, tmp_path: Path) -> None:
    document = json.loads(result.save(tmp_path / "sub" / "c.json").read_text())
    assert [row["method"] for row in document["rows"]] == ["none", "finetune", "if", "gif", "retrain", OTHER_SEED]
    assert all(set(row) >= KEYS for row in document["rows"])
    assert {"data", "model", "forget", "seeds", "epochs", "device"} <= set(document["config"])
    assert {"torch", "torch_geometric", "device_name", "threads"} <= set(document["environment"])
    assert document["config"]["finetune"] == "as long as gif"
    assert not any("attack" in row for row in document["rows"]), "nothing was poisoned"


def test_reference_points(result: Comparison) -> None:
    none, retrain = result.row("none"), result.row("retrain")
    for key in ("gap_closed_mean", "mean_gap_closed", "forget_gap_closed_mean", "param_gap_closed_mean"):
        assert none[key] == 0
        assert retrain[key] == 1
    assert (retrain["cost_mean"] + result.row(OTHER_SEED)["cost_mean"]) / 2 == pytest.approx(1, rel=0.2)
    assert none["residual_influence_mean"] == pytest.approx(1, abs=1e-4)
    assert retrain["passes_mean"] >= 40
    assert result.row(OTHER_SEED)["gap_closed_mean"] < 1


@pytest.mark.usefixtures("warmed_up")
def test_every_method_runs_once_before_any_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to run pays for what the others find ready."""
    ran: list[str] = []
    really, measured = Setting._unlearn, Setting.trial

    def listening(self: Setting, run: uw.Run, request: uw.Request, name: str, *rest: Any, **options: Any) -> Any:
        ran.append(name)
        return really(self, run, request, name, *rest, **options)

    def trial(self: Setting, *seeds: int) -> Trial:
        assert set(ran) == {"none", "finetune", "if", "gif", "retrain"}
        assert len(ran) == len(set(ran))
        return measured(self, *seeds)

    monkeypatch.setattr(Setting, "_unlearn", listening)
    monkeypatch.setattr(Setting, "trial", trial)
    uw.compare(graphs, small, "edges:0.1", seeds=1, epochs=3)
    assert len(ran) > 5


def test_controls_are_added_and_a_failing_method_is_counted() -> None:
    @uw.methods.register
    @dataclass(frozen=True)
    class Refuses(Method):
        name: ClassVar[str] = "refuses"

        def forget(self, problem: Problem) -> Outcome:
            raise uw.SolverError("never")

    try:
        result = uw.compare(graphs, small, "edges:0.1", methods=["refuses"], seeds=1, epochs=3)
    finally:
        _METHODS.pop("refuses")
    row = result.row("refuses")
    assert row["failures"] == 1
    assert row["failure"] == "never"
    assert row["f1_mean"] is None
    assert row["mean_gap_closed"] is None
    assert [r["method"] for r in result.rows] == ["none", "finetune", "refuses", "retrain", OTHER_SEED]


def test_replay_finds_its_checkpoints_and_from_the_start_it_is_retraining() -> None:
    methods = ["replay(share=0.25)", "replay(share=0.5)", "replay(share=1)"]
    found = uw.compare(graphs, small, "edges:0.1,nodes:0.05", methods=methods, seeds=1, epochs=20)
    rows = [found.row(name) for name in methods]
    assert [row["failures"] for row in rows] == [0, 0, 0]
    assert [row["passes_mean"] - found.row("none")["passes_mean"] for row in rows] == [12, 24, 44], (
        "with a gradient for each state from there on"
    )
    assert rows[2]["gap_closed_mean"] == 1
    assert rows[0]["gap_closed_mean"] < 1
    with pytest.raises(uw.MethodError, match="share must be"):
        uw.compare(graphs, small, "edges:0.1", methods=["replay(share=5)"], seeds=1)


def relational() -> torch.nn.Module:
    return heterogeneous(literature(40), 4)


def with_a_loss() -> dict[str, Any]:
    return {"model": relational(), "loss": "mse"}


def test_a_file_and_a_model_of_ones_own(tmp_path: Path) -> None:
    torch.save(uw.tasks.Relations.of(literature(40)), tmp_path / "papers.pt")
    how: dict[str, Any] = {"seeds": 1, "epochs": 5, "methods": ("gif", "retrace"), "averaged": False}
    found = uw.compare(str(tmp_path / "papers.pt"), f"{__name__}:relational", "edges:0.1", **how)
    assert not any(row["failures"] for row in found.rows)
    with pytest.raises(uw.ModelError, match="gives loss too"):
        uw.compare(str(tmp_path / "papers.pt"), f"{__name__}:with_a_loss", "edges:0.1", **how)


def test_bad_arguments() -> None:
    with pytest.raises(uw.MethodError, match="unknown method"):
        uw.compare("demo", "gcn", "edges:0.1", methods=["gift"])
    with pytest.raises(uw.ModelError, match="unknown model"):
        uw.compare("demo", "gcm", "edges:0.1")
    with pytest.raises(uw.DataError, match="seeds"):
        uw.compare("demo", "gcn", "edges:0.1", seeds=0)
    if not torch.cuda.is_available():
        with pytest.raises(uw.UnweaveError, match="no CUDA device"):
            uw.compare("demo", "gcn", "edges:0.1", device="cuda")


def test_controls_alone() -> None:
    result = uw.compare(graphs, small, "edges:0.1", methods=["none"], seeds=1, epochs=3)
    assert result.config["finetune"] == "for 10 epochs"
    assert [r["method"] for r in result.rows] == ["none", "finetune", "retrain", OTHER_SEED]


def test_places_that_cannot_be_written(result: Comparison, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(uw.UnweaveError, match="cannot write"):
        result.save(tmp_path / "file" / "c.json")
    for path in (tmp_path / "file" / "c.png", tmp_path / "c.foo"):
        with pytest.raises(uw.UnweaveError, match="cannot draw"):
            plot_comparison(result, path)


def test_plot(result: Comparison, tmp_path: Path) -> None:
    path = plot_comparison(result, tmp_path / "c.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_seed_averages_survive_probabilities_that_underflow() -> None:
    """A confident model gives log-probabilities whose exponential is 0; the average must stay finite."""
    sure = torch.tensor([[0.0, -2000.0], [-2000.0, 0.0]])
    other = torch.tensor([[-0.1, -2.3], [-2000.0, 0.0]])
    trial = Trial(outputs={"retrain": sure, "none": other, "m": sure}, remaining=torch.tensor([True, True]))
    assert _averaged("m", [trial, trial]) == pytest.approx(1)


def test_only_a_method_that_uses_the_prepared_state_is_charged_for_it() -> None:
    result = uw.compare(
        graphs,
        small,
        "edges:0.1",
        methods=["if", "gif(damping=10)", "gif"],
        seeds=1,
        epochs=20,
        forgettable=True,
        weight_decay=1e-2,
    )
    assert result.row("gif")["prepare_seconds_mean"] > 0
    assert all(row["prepare_seconds_mean"] == 0 for row in result.rows if row["method"] != "gif")


def test_methods_take_options_and_a_poisoned_request_tells_what_is_recovered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    methods = ["gif(steps=1)", "gif(damping=1000)", "retrain(disturbed=0.001)"]
    spaced = [" finetune", *(f" {name} " for name in methods)]
    result = uw.compare(graphs, small, "flipped:0.3", methods=spaced, seeds=2, epochs=60, averaged=False)
    assert [row["method"] for row in result.rows] == ["none", "finetune", *methods, "retrain", OTHER_SEED]
    f1 = {row["method"]: row["f1_mean"] for row in result.rows}
    lost = f1["retrain"] - f1["none"]
    for name, found in f1.items():
        expected = (found - f1["none"]) / lost if lost > 0 else None
        assert result.row(name)["recovery"] == expected
        assert result.row(name)["attack_before"] == result.row("none")["attack"], "asked on the same graph"
        assert 0 <= result.row(name)["attack"] <= 1
    assert result.row("retrain")["attack"] < result.row("none")["attack"]
    assert result.row("retrain")["attack_std"] >= 0
    show_comparison(result)
    shown = capsys.readouterr().out
    assert re.search(r"method +F1 +recovery +attack ", shown)
    assert f"{result.row('none')['attack']:.3f} before" in shown
    assert all(row["mean_gap_closed"] is None for row in result.rows)
    chaos = result.row("retrain(disturbed=0.001)")["gap_closed_mean"]
    assert result.row("gif(damping=1000)")["gap_closed_mean"] < chaos < 1
    assert result.row("gif(steps=1)")["gap_closed"] != result.row("gif(damping=1000)")["gap_closed"]
    assert result.receipts["gif(damping=1000)"].method["options"]["damping"] == 1000


@pytest.mark.parametrize(
    "text",
    ["gif(", "gif()", "gif(steps)", "gif(steps=1,steps=2)", "gif)", "gif(steps=0)", "gif(step=3)", "lbfgs(steps=x)"],
)
def test_methods_that_cannot_be_read(text: str) -> None:
    with pytest.raises(uw.MethodError):
        uw.compare(graphs, small, "edges:0.1", methods=[text], seeds=1)


def test_auto_is_given_what_it_decides_by() -> None:
    result = uw.compare(
        graphs, small, "edges:0.1", methods=["gif", "auto(budget=0.9)"], seeds=1, epochs=20, averaged=False, deletions=2
    )
    row, receipt = result.row("auto(budget=0.9)"), result.receipts["auto(budget=0.9)"]
    assert receipt.ladder is not None
    assert receipt.ladder["calibration"]["deletions"] == 2
    assert row["failures"] == 0
    assert row["gap_closed_mean"] > 0
    assert row["prepare_seconds_mean"] > result.row("gif")["prepare_seconds_mean"] > 0
    assert result.config["deletions"] == 2


@pytest.mark.usefixtures("embedded")
def test_a_comparison_says_whether_its_training_had_ended(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = (uw.compare("demo", "gcn", "edges:0.01", methods=["none"], seeds=1, epochs=n) for n in (5, 120))
    assert not short.config["training_ended"]
    assert long.config["training_ended"]
    show_comparison(short)
    assert "training had not ended after 5 epochs" in capsys.readouterr().out
