"""A model that was to be able to forget, and will not: whoever trains it is told, once, wherever that is."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

import unweave as uw
from unweave.cli.app import app
from unweave.curvature.prepared import Prepared
from unweave.curvature.solvers import LowRank
from unweave.testing import small_graph
from unweave.training.agreement import Agreement, shortcomings

GOOD = Prepared(LowRank(torch.ones(1), torch.eye(3, 1)), torch.zeros(3), torch.zeros(3), 1.0, "", agreement=1.0)


def test_every_shortcoming_says_what_to_do() -> None:
    scores = {"train_f1": 0.9, "val_f1": 0.8}
    assert shortcomings(GOOD, scores, scores, 100) == ()
    assert shortcomings(replace(GOOD, agreement=None), {}, {}, 0) == ()
    (seeds,) = shortcomings(replace(GOOD, agreement=0.4), scores, scores, 100)
    assert seeds.startswith("another training would not give the same model: widen it, or give it more weight decay")
    assert "agreement of 0.40 of 1" in seeds
    (saddle,) = shortcomings(replace(GOOD, bend=-0.5), scores, scores, 100)
    assert "no minimum was reached" in saddle
    (more,) = shortcomings(GOOD, scores, {"train_f1": 1.0, "val_f1": 0.7}, 100)
    assert "fell from 0.800 to 0.700" in more and "more weight decay" in more  # noqa: PT018
    assert not shortcomings(GOOD, scores, {"train_f1": 1.0, "val_f1": 0.7}, 40), "four nodes may be chance"
    (less,) = shortcomings(GOOD, scores, {"train_f1": 0.5, "val_f1": 0.4}, 100)
    assert "training F1 too: give it less weight decay" in less


@pytest.mark.usefixtures("examined", "brief")
def test_training_in_python_warns_and_the_command_line_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    data = small_graph()
    warnings.simplefilter("always")
    run = uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-2, epochs=20)
    assert not recwarn.list
    monkeypatch.setattr("unweave.training.agreement.agreement_of", _other_seeds)
    with pytest.warns(uw.UnweaveWarning, match=r"another training would not give .* agreement of 0\.50 of 1") as told:
        run = uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-2, epochs=20)
    assert [warning.filename for warning in told] == [__file__], "told where it was called"
    assert run.prepared is not None
    assert run.prepared.agreement == 0.5
    made = ["train", "--data", "demo", "--model", "sgc", "--forgettable", "--weight-decay", "1e-2", "--epochs", "20"]
    said = CliRunner().invoke(app, [*made, "--out", f"{tmp_path}/a"])
    assert said.exit_code == 0, said.output
    assert said.output.count("another training would not give the same model") == 1
    assert CliRunner().invoke(app, ["show", f"{tmp_path}/a"]).stdout.count("would not give the same model") == 1
    said = CliRunner().invoke(app, [*made, "--json", "--out", f"{tmp_path}/b"])
    assert "agreement of 0.50 of 1" in json.loads(said.stdout)["warnings"][0]
    assert not recwarn.list, "and no warning beside what is printed"


def _other_seeds(*_: object) -> object:
    """What a model of many minima gives."""
    return Agreement(0.5, 1.0)


def test_a_training_as_usual_promises_nothing(recwarn: pytest.WarningsRecorder) -> None:
    data: Data = small_graph()
    uw.train(uw.models.SGC(8, 3), data, epochs=2)
    assert not recwarn.list


@pytest.mark.usefixtures("brief")
def test_columns_that_rows_of_length_one_leave_little_of_are_named() -> None:
    data = small_graph()
    how = {"weight_decay": 1e-2, "epochs": 5, "forgettable": True, "examine": False}
    wide = uw.models.build("sage", 8, 3, forgettable=True, nodes=40, unit=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", uw.UnweaveWarning)
        warnings.filterwarnings("ignore", "no minimum was reached")
        uw.train(wide, data, **how)
        data.x[:, 3] *= 1e-6
        data.x[5:, 2] = 0  # a rare one is no smaller
        data.x[:, 4] = 0  # nor is one that is never there
        with pytest.raises(uw.UnweaveWarning, match=r"of length 1.*divide every column by its size first, or build"):
            uw.train(wide, data, **how)
        few = uw.models.build("sage", 8, 3, forgettable=True, nodes=40)  # too few columns for rows of length 1
        with pytest.raises(uw.UnweaveWarning, match=r"one weight decay.*divide every column by its size first$"):
            uw.train(few, data, **how)


def test_features_too_long_for_the_steps_of_training_are_named_and_built_for() -> None:
    data = small_graph()
    data.x = torch.cat([data.x, torch.ones(data.num_nodes, 300)], dim=1)
    for name in ("gcn", "sage", "gin", "gat", "sign"):
        assert uw.models.build(name, 308, 3, x=data.x).config["unit"], name
        assert not uw.models.build(name, 308, 3, x=data.x, unit=False).config["unit"]
        assert not uw.models.build(name, 308, 3, x=data.x / 10).config["unit"]
        assert not uw.models.build(name, 308, 3, x=data.x - data.x.mean(dim=0)).config["unit"], "as many go down as up"
    assert not uw.models.build("sgc", 308, 3, x=data.x).config["unit"], "no units"
    assert not uw.models.build("gcn", 8, 3, x=1000 * data.x[:, :8]).config["unit"], "too few columns"
    with warnings.catch_warnings():
        warnings.simplefilter("error", uw.UnweaveWarning)
        with pytest.raises(
            uw.UnweaveWarning, match=r"rate 0.01\) moves a unit by 3 for all .* or unit=True of this model"
        ):
            uw.train(uw.models.GCN(308, 3), data, epochs=30)
        uw.train(uw.models.GCN(308, 3), data, epochs=30, lr=0.003)
        uw.train(uw.models.build("gcn", 308, 3, x=data.x), data, epochs=30)
