"""``unweave inspect``: a newcomer finds what made one prediction wrong, with one command."""

import json
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

import unweave as uw
from tests.scripts import part_of_demo
from unweave.cli.app import app

DECAY = 3e-3


def graph_of(data: Data, edge: tuple[int, int] | None) -> Data:
    """The graph with one edge more."""
    more = data.clone()
    if edge is not None:
        pair = torch.tensor([edge, edge[::-1]]).t()
        more.edge_index = torch.cat([data.edge_index, pair], dim=1)
    return more


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, tuple[int, int], int]:
    """A run on a graph with one wrong edge, the node whose prediction it turns, and the class that was right."""
    folder = tmp_path_factory.mktemp("planted")
    data = uw.split(part_of_demo(500), seed=0)
    clean = uw.train(uw.models.GCN(data.num_features, 6), data, weight_decay=DECAY, forgettable=True, examine=False)
    with torch.no_grad():
        outputs = clean.model(data.x, data.edge_index)
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    right = data.val_mask & (outputs.argmax(dim=1) == data.y) & (degree <= 2)
    sure = outputs.softmax(dim=1).max(dim=1).values
    for node in right.nonzero().flatten()[sure[right].argsort()].tolist():
        others = (data.train_mask & (data.y != data.y[node]) & (degree <= 3)).nonzero().flatten()
        other = int(others[sure[others].argmax()])
        wrong = graph_of(data, (min(node, other), max(node, other)))
        run = uw.train(uw.models.GCN(data.num_features, 6), wrong, weight_decay=DECAY, forgettable=True, examine=False)
        with torch.no_grad():
            given = int(run.model(wrong.x, wrong.edge_index)[node].argmax())
        if given != int(data.y[node]):
            run.save(folder / "run")
            torch.save(wrong.to_dict(), folder / "graph.pt")
            return folder, node, (min(node, other), max(node, other)), int(data.y[node])
    raise AssertionError("no edge of those tried turns a prediction")


def test_the_planted_cause_of_a_wrong_prediction_is_found_by_one_command(
    planted: tuple[Path, int, tuple[int, int], int],
) -> None:
    folder, node, edge, right = planted
    command = ["inspect", str(folder / "run"), "--data", str(folder / "graph.pt"), "--of", f"node:{node}"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    rows = done.output[done.output.index("edges") :].splitlines()
    assert f"edge {edge[0]}–{edge[1]}  (it would no longer be class " in rows[0]
    plot = folder / "found.png"
    done = CliRunner().invoke(app, [*command, "--confirm", "1", "--rehearse", "labels", "--plot", str(plot), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["top"]["edges"][0]["item"] == list(edge)
    (proof,) = told["confirmed"]["each"]
    assert len(told["rehearsed"]["removals"]) == 12
    assert proof["actual"] < -told["value"] < 0, "without it the prediction is another"
    assert f"class {right}, which it is given" not in told["title"]
    assert plot.stat().st_size > 10_000


def test_what_cannot_be_asked_is_refused(planted: tuple[Path, int, tuple[int, int], int]) -> None:
    folder = planted[0]
    command = ["inspect", str(folder / "run"), "--data", str(folder / "graph.pt"), "--of"]
    for of, says in (("node:9999", "0 … 499"), ("nonsense", "'validation'")):
        done = CliRunner().invoke(app, [*command, of])
        assert done.exit_code == 1
        assert says in done.output
    done = CliRunner().invoke(app, [*command, "validation", "--rehearse", "everything"])
    assert done.exit_code == 1
    assert "nodes, labels, edges" in done.output
    done = CliRunner().invoke(app, [*command, "validation", "--kinds", "rows,shoes"])
    assert done.exit_code == 1
    assert "nodes, labels, edges" in done.output


def test_only_the_kinds_that_are_asked_for_are_told_and_confirmed(
    planted: tuple[Path, int, tuple[int, int], int],
) -> None:
    folder, node = planted[:2]
    command = ["inspect", str(folder / "run"), "--data", str(folder / "graph.pt"), "--of", f"node:{node}"]
    done = CliRunner().invoke(app, [*command, "--kinds", "rows,labels", "--confirm", "2", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert set(told["top"]) == {"rows", "labels"}
    assert not any(one["name"].startswith(("edge", "node", "column")) for one in told["confirmed"]["each"])
