"""The paper's experiments: measured once, resumed, joined by others, and shown; and the results that are committed."""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import unweave as uw
from tests.cli.test_cli import unweave
from tests.scripts import small_demo
from unweave.experiments.paper import setups, table2
from unweave.experiments.paper.ablation import Leaky
from unweave.experiments.paper.published_setup import PublishedNet, _Sampler, _weights, hops, train_published
from unweave.experiments.paper.reproduce import EXPERIMENTS, Plan, reproduce, show, text
from unweave.experiments.paper.results import Cell, Results
from unweave.experiments.trial import OTHER_SEED
from unweave.methods import Method, Outcome, Problem
from unweave.methods.registry import _METHODS
from unweave.testing import small_graph

ROOT = Path(__file__).parent.parent.parent
COMMITTED = {name: Results(ROOT / "results", name) for name in EXPERIMENTS}
SMALL = Plan(("ratio",), seeds=2, quick=True, only=("nodes:0.1",))
NAME = "gcn demo nodes:0.1"


@pytest.fixture(scope="module", autouse=True)
def part() -> Iterator[None]:
    """A part of the embedded graph is all of it."""
    with small_demo(400):
        yield


@contextmanager
def few_epochs() -> Iterator[None]:
    """The cells of the small version, trained briefly, and the published recursion, far the slowest, is short."""

    def shorter(cell: Cell) -> Cell:
        methods = (
            (label, re.sub(r"^(gif-published\(.*)\)$", r"\1,iterations=10)", how)) for label, how in cell.methods
        )
        return replace(cell, epochs=15, methods=tuple(methods))

    def brief(cells: Callable[[bool], list[Cell]], quick: bool) -> list[Cell]:
        return [shorter(cell) for cell in cells(quick)] if quick else cells(quick)

    with pytest.MonkeyPatch.context() as patch:
        for name, known in EXPERIMENTS.items():
            patch.setitem(EXPERIMENTS, name, replace(known, cells=partial(brief, known.cells)))
        yield


@pytest.fixture
def brief_cells() -> Iterator[None]:
    with few_epochs():
        yield


@pytest.fixture
def third_party() -> Iterator[str]:
    @uw.methods.register
    @dataclass(frozen=True)
    class Shrink(Method):
        name: ClassVar[str] = "shrink"
        by: float = 0.9

        def forget(self, problem: Problem) -> Outcome:
            return Outcome(problem.theta * self.by)

    yield "shrink(by=0.5)"
    _METHODS.pop("shrink")


@pytest.fixture(scope="module")
def begun(part: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small plan, stopped after its first seed."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    place = tmp_path_factory.mktemp("begun")
    with pytest.raises(KeyboardInterrupt), few_epochs():
        reproduce(SMALL, place, progress=stop)
    return place


@pytest.mark.usefixtures("brief_cells")
def test_a_run_is_resumed_and_joined(begun: Path, tmp_path: Path, third_party: str) -> None:
    calls: list[tuple[int, int]] = []
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    first = Results(tmp_path, "ratio")
    assert first.seeds(NAME) == [0]
    whole = reproduce(SMALL, tmp_path, progress=lambda *done: calls.append(done))["ratio"]
    assert calls == [(1, 1)]
    assert whole.seeds(NAME) == [0, 1]
    assert whole.values(NAME, "gif", "f1")[0] == first.values(NAME, "gif", "f1")[0]
    assert {"none", "finetune", "retrain", OTHER_SEED, "before", "if", "gif"} <= set(whole.methods(NAME))
    reproduce(SMALL, tmp_path, progress=lambda *done: calls.append(done))
    assert calls == [(1, 1)]  # nothing was left to do
    joined = reproduce(Plan(("ratio",), 2, True, ("nodes:0.1",), (third_party,)), tmp_path)["ratio"]
    page = show({"ratio": joined}, tmp_path / "results.md")[0].read_text()
    assert f"closed: {third_party}" in page
    assert len(joined.values(NAME, third_party, "gap_closed")) == 2
    assert joined.values(NAME, "finetune", "cost") == whole.values(NAME, "finetune", "cost")


@pytest.mark.usefixtures("brief_cells")
def test_a_method_that_joins_is_in_the_tables(tmp_path: Path, third_party: str) -> None:
    plan = Plan(("table2",), 1, True, ("gcn", "ordinary"), (third_party,))
    page = show(reproduce(plan, tmp_path), tmp_path / "results.md")[0].read_text()
    assert re.search(rf"\| GCN \| `{re.escape(third_party)}` \| 0\.\d", page)
    assert re.search(r"\| GCN \| eraser-blpa \| 0\.\d", page)


@pytest.mark.usefixtures("brief_cells", "workers")
def test_a_method_that_no_worker_knows_has_not_failed(tmp_path: Path, third_party: str) -> None:
    plan = Plan(("ratio",), 1, True, ("nodes:0.1",), (third_party,))
    with pytest.raises(uw.MethodError, match="unknown method 'shrink'"):
        reproduce(plan, tmp_path, jobs=2)
    assert not (tmp_path / "ratio.json").exists()


@pytest.mark.usefixtures("brief_cells")
def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    def again(done: int, total: int) -> None:
        with pytest.raises(uw.UnweaveError, match="another run writes"):
            reproduce(SMALL, tmp_path)

    reproduce(Plan(("ratio",), 1, True, ("nodes:0.1",)), tmp_path, progress=again)


@pytest.mark.usefixtures("brief_cells")
def test_a_row_is_not_continued_on_another_machine(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    before = Results(tmp_path, "ratio").values(NAME, "gif", "f1")
    assert before
    there = {"device_name": "elsewhere", "torch": "0"}
    monkeypatch.setattr("unweave.experiments.paper.reproduce.environment", lambda device: there)
    with pytest.raises(uw.UnweaveError, match="and this is elsewhere with torch 0"):
        reproduce(SMALL, tmp_path)
    assert Results(tmp_path, "ratio").values(NAME, "gif", "f1") == before


@pytest.mark.usefixtures("brief_cells")
def test_several_processes_measure_the_same(workers: int | None, tmp_path: Path) -> None:
    plan = Plan(("ratio",), 1, True, ("nodes:0.1",))
    with small_demo(workers):
        one, two = (reproduce(plan, tmp_path / f"{jobs}", jobs=jobs)["ratio"] for jobs in (1, 2))
    for method in ("none", "gif", "retrain"):
        # A worker has one thread, so sums round differently.
        assert one.values(NAME, method, "f1") == pytest.approx(two.values(NAME, method, "f1"), abs=0.03)
        assert len(two.values(NAME, method, "f1")) == 1


@pytest.mark.usefixtures("brief_cells")
def test_the_command(tmp_path: Path) -> None:
    done = unweave("reproduce", "efficacy", "--quick", "--seeds", "1", "--only", "crossed:0.5", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    folder = tmp_path / "results-quick"
    assert {p.name for p in folder.glob("[!.]*")} == {
        "efficacy.json",
        "efficacy.csv",
        "results.md",
        "results-efficacy.png",
    }
    assert "corrupted model, clean graph" in (folder / "results.md").read_text()
    assert "trials: 1 of 1" in done.stderr
    for arguments, says in (
        (("table9",), "unknown experiment 'table9'"),
        (("ratio", "--only", "mars"), "no cell of ratio has all of: mars"),
        (("ratio", "--methods", "gift"), "unknown method 'gift'"),
        (("ratio", "--methods", "gif(step=2)"), "does not take 'step'"),
        (("ratio", "--methods", "lbfgs(steps=2),gif"), "'gif' is part of the experiments already"),
        (("ratio", "--methods", "gif-published(scale=3)"), "is part of the experiments already"),
        (("scale", "--methods", "lbfgs"), "scale takes no further method; table2, efficacy, ratio do"),
        (("all", "tabel2"), "unknown experiment 'tabel2'"),
        (("ratio", "--methods", "eraser-blpa(epochs=a)"), "epochs must be a whole number"),
    ):
        refused = unweave("reproduce", *arguments, "--quick", cwd=tmp_path)
        assert refused.exit_code == 1
        assert says in refused.stderr


@pytest.mark.slow
def test_everything_in_small(tmp_path: Path) -> None:
    with small_demo(None):
        done = unweave("reproduce", "all", "--quick", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "results-quick" / "results.md").read_text()
    assert page.count("\n## ") == len(EXPERIMENTS)


# What is committed


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_committed_results_are_whole(name: str) -> None:
    results, plan = COMMITTED[name], Plan((name,))
    cells = plan.cells(name)
    assert {cell.name for cell in cells} == set(results)
    for cell in cells:
        config = results.config(cell.name)
        assert config | {"weight_decay": None} == cell.config | {"weight_decay": None}
        assert config["weight_decay"] == (cell.weight_decay or config["weight_decay"]) > 0
        controls = ("before", "none", "finetune", "retrain", OTHER_SEED) if EXPERIMENTS[name].open else ()
        for method in (*controls, *(label for label, _ in cell.methods)):
            assert results.seeds(cell.name, method) == list(range(EXPERIMENTS[name].most_seeds or 10)), (cell, method)
            measured = len(results.values(cell.name, method, "f1"))
            assert measured + len(results.failures(cell.name, method)) == (EXPERIMENTS[name].most_seeds or 10)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_committed_results_have_their_source_and_no_nan(name: str) -> None:
    document = json.loads((ROOT / "results" / f"{name}.json").read_text(), parse_constant=pytest.fail)
    for cell in document["cells"]:
        assert {"torch", "torch_geometric", "device_name"} <= set(cell["environment"])
        for row in cell["rows"]:
            assert row["settings"]
            assert row["commits"]
            assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in row["commits"])
            assert all(value is not None and math.isfinite(value) for value in row.get("f1", []))
            assert len(row["seeds"]) < 2 or isinstance(row["f1_std"], float)


def test_the_page_is_that_of_the_committed_results() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert page == text(COMMITTED)
    for figure in re.findall(r"\]\((results-[^)]+)\)", page):
        assert (ROOT / "docs" / figure).read_bytes().startswith(b"\x89PNG")


def test_every_difference_from_the_paper_says_what_was_tested() -> None:
    page = text(COMMITTED)
    found = list(table2.differences(COMMITTED["table2"]))
    assert found
    for model, data, method, ours, paper in found:
        (line,) = re.findall(rf"^- {model.upper()} {data}, {method}: {ours:.3f}, the paper {paper:.3f}.*$", page, re.M)
        untested = method.startswith("eraser") and data == "cs"
        assert ("not tested" in line) == untested


# The published set-up


def test_sampling_takes_few_neighbours_over_training_edges() -> None:
    data = small_graph(nodes=200)
    sampler = _Sampler(data, wrong_weights=False)
    batch = data.train_mask.nonzero().flatten()[:50]
    members, (outer, inner) = sampler.draw(batch)
    assert torch.equal(members[:50], batch)
    assert members.unique().numel() == members.numel()
    assert inner.targets == 50
    assert outer.targets == int(inner.edge_index[0].max()) + 1 or outer.targets >= 50
    known = {(int(u), int(v)): i for i, (u, v) in enumerate(data.edge_index.t().tolist())}
    weights = _weights(data.edge_index, data.num_nodes)
    for hop in (outer, inner):
        assert int(torch.bincount(hop.edge_index[1], minlength=1).max()) <= 5
        for (u, v), weight in zip(members[hop.edge_index].t().tolist(), hop.weight, strict=True):
            assert data.train_mask[u]
            assert data.train_mask[v]
            assert weight == weights[known[u, v]]
        pairs = hop.edge_index.t().tolist()
        assert len(set(map(tuple, pairs))) == len(pairs)
    inside = data.train_mask[data.edge_index].all(dim=0)
    degree = torch.bincount(data.edge_index[1][inside], minlength=data.num_nodes)
    drawn = torch.bincount(inner.edge_index[1], minlength=50)
    assert torch.equal(drawn, degree[batch].clamp(max=5))
    wrong = _Sampler(data, wrong_weights=True)
    assert not torch.equal(wrong._weights[: sampler._weights.numel()], sampler._weights)


@pytest.mark.parametrize("name", ["gcn", "gat", "sgc", "gin"])
def test_the_published_backbones_learn(name: str) -> None:
    data = small_graph(nodes=120)
    data.edge_index = data.edge_index[:, data.y[data.edge_index[0]] == data.y[data.edge_index[1]]]
    for sampled in (False, True):
        torch.manual_seed(0)
        model = train_published(name, data, epochs=40, sampled=sampled, wrong_weights=False)
        assert isinstance(model, PublishedNet)
        outputs = model(data.x, hops(data))
        assert outputs.shape == (120, 3)
        assert float((outputs.argmax(1) == data.y)[data.train_mask].double().mean()) > 0.5


def test_the_one_split_is_one() -> None:
    first, second = (setups._one_split(uw.load("demo", seed=seed)) for seed in (0, 1))
    assert torch.equal(first.test_mask, second.test_mask)
    assert int(first.test_mask.sum()) == math.ceil(first.num_nodes / 10)
    assert torch.equal(first.train_mask, ~first.test_mask)


def test_the_leak_is_a_leak_and_ours_has_none() -> None:
    data, changed = uw.load("demo"), uw.load("demo")
    changed.y[changed.test_mask] = (changed.y[changed.test_mask] + 1) % int(changed.num_classes)
    model = uw.models.GCN(data.num_features, data.num_classes)
    uw.train(model, data, epochs=30)
    request = uw.draw("edges:0.05", data)
    for method, same in ((Leaky(scale=5000.0), False), (uw.methods.GIFPublished(scale=5000.0), True)):
        one, two = (uw.unlearn(model, d, request, method, weight_decay=1e-4).model for d in (data, changed))
        assert torch.equal(one.conv1.lin.weight, two.conv1.lin.weight) is same
    assert "leaky" not in uw.methods.available()
