"""Calibration: what each rung is worth is measured on simulated deletions, kept, resumed, and estimated."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import unweave as uw
from unweave.methods.ladder.calibration import Calibration, Deletion, Figures
from unweave.methods.ladder.jackknife import Jackknife
from unweave.methods.ladder.rung import GIF, RETRAIN, Rung
from unweave.methods.ladder.size import Shape
from unweave.request import KINDS
from unweave.run.calibrate import simulate
from unweave.testing import small_graph
from unweave.training.checkpoints import Checkpoint

HALF, FIFTH = (Rung.of("replay", share=share) for share in (0.5, 0.2))


def trained(*, seed: int = 0) -> uw.Run:
    data = small_graph(nodes=90)
    return uw.train(uw.models.GCN(8, 3, hidden=8), data, seed=seed, epochs=20, checkpoints=(0.1, 0.5))


@pytest.fixture(scope="module")
def calibrated() -> uw.Run:
    return trained().calibrate(6)


def known(calibration: uw.Run | None) -> Calibration:
    assert calibration is not None
    assert calibration.calibration is not None
    return calibration.calibration


def without_times(calibration: Calibration) -> list[object]:
    """All that does not depend on the clock."""
    return [
        (d.shape, d.gap, d.passes, {k: (f.closed, f.passes, f.residual) for k, f in d.rungs.items()})
        for d in calibration.deletions
    ]


def test_every_rung_is_measured_against_retraining(calibrated: uw.Run) -> None:
    found = known(calibrated)
    names = {
        "gif(steps=1)",
        "gif",
        "finetune(epochs=1)",
        "finetune(epochs=2)",
        "replay(share=0.1)",
        "replay(share=0.5)",
    }
    assert names <= {str(rung) for rung in found.rungs}
    deletion = found.deletions[1]
    request = simulate(calibrated.data, 1)
    assert len(request.edges) / (calibrated.data.num_edges / 2) == pytest.approx(deletion.shape.edges)
    retrained = calibrated.forget(request, "retrain", allow_class_loss=True)
    replayed = calibrated.forget(request, "replay", share=0.5, allow_class_loss=True)
    target, near, start = (
        torch.log_softmax(m(retrained.data.x, retrained.data.edge_index), dim=-1).double().detach()
        for m in (retrained.model, replayed.model, calibrated.model)
    )

    def divergence(other: torch.Tensor) -> float:
        return float((target.exp() * (target - other)).sum(dim=-1).mean())

    assert deletion.gap == pytest.approx(divergence(start), rel=1e-4)
    assert deletion.rungs[HALF].closed == pytest.approx(1 - divergence(near) / divergence(start), abs=1e-3)
    assert deletion.rungs[HALF].passes > deletion.rungs[Rung.of("replay", share=0.1)].passes


def test_deletions_are_of_every_kind_and_many_sizes_and_never_those_of_a_drawn_request() -> None:
    data = uw.load("demo")
    drawn = [simulate(data, number) for number in range(40)]
    for number, request in enumerate(drawn):
        assert [kind for kind in KINDS if getattr(request, kind)] == [KINDS[number % 4]]
    sizes = [len(request.edges) for request in drawn[1::4]]
    assert min(sizes) < 20
    assert max(sizes) > 100
    assert max(sizes) <= 0.2 * data.num_edges / 2
    assert simulate(data, 5) == drawn[5]
    assert simulate(data, 5, seed=1) != drawn[5]
    training = set(data.train_mask.nonzero().flatten().tolist())
    assert set(drawn[0].nodes) | set(drawn[2].features) | set(drawn[3].labels) <= training


def test_no_test_label_is_used() -> None:
    data = small_graph(nodes=90)
    other = small_graph(nodes=90)
    other.y[~other.train_mask] = (other.y[~other.train_mask] + 1) % 3
    found = [known(uw.train(uw.models.GCN(8, 3, hidden=4), graph, epochs=10).calibrate(2)) for graph in (data, other)]
    assert without_times(found[0]) == without_times(found[1])


def test_it_goes_on_where_it_stopped(calibrated: uw.Run, tmp_path: Path) -> None:
    part = trained().calibrate(2)
    path = part.save(tmp_path / "run")
    opened = uw.Run.open(path, model=uw.models.GCN(8, 3, hidden=8), data=small_graph(nodes=90))
    assert without_times(known(opened)) == without_times(known(part))
    seen: list[tuple[int, int]] = []
    done = opened.calibrate(6, progress=lambda *at: seen.append(at))
    assert seen == [(n, 6) for n in range(3, 7)]
    assert known(done).deletions[:2] == known(part).deletions
    for one, other in zip(known(done).deletions, known(calibrated).deletions, strict=True):
        assert one.shape == other.shape
        assert one.gap == pytest.approx(other.gap, rel=0.05, abs=1e-6)
    bare = opened.replace(calibration=None)
    assert known(bare.calibrate(1, seed=1)).deletions != known(opened).deletions[:1]
    moved = opened.forget(uw.draw("edges:0.05", opened.data))
    assert len(known(moved).deletions) == 2
    anew = known(moved.calibrate(1))
    assert len(anew.deletions) == 1, "another model is measured anew"
    assert anew.requests == 1


def test_a_file_has_rungs_by_names_that_people_read(calibrated: uw.Run) -> None:
    document = json.loads(json.dumps(known(calibrated).to_dict()))
    names = set(document["deletions"][1]["rungs"])
    assert {"gif(steps=1)", "gif", "gif@0.316", "gif@3.16", "replay(share=0.5)"} <= names
    assert Calibration.from_dict(document) == known(calibrated)


@pytest.mark.parametrize(
    "name", ["gif", "gif(steps=1)@0.316", "finetune(epochs=2)", "retrace(share=0.333333, end=0.05, steps=5)", "retrain"]
)
def test_a_rung_is_read_as_it_is_written(name: str) -> None:
    rung = Rung.read(name)
    assert str(rung) == name
    assert Rung.read(str(rung)) == rung
    assert Rung.of("replay", share=1 / 3) == Rung.read("replay(share=0.333333)")
    assert RETRAIN.at(3.0) == RETRAIN


def test_runs_without_a_calibration_open(tmp_path: Path) -> None:
    path = trained().save(tmp_path / "run")
    assert not (path / "calibration.json").exists()
    opened = uw.Run.open(path, model=uw.models.GCN(8, 3, hidden=8), data=small_graph(nodes=90))
    assert opened.calibration is None
    calibrated = opened.calibrate(1).save(path, overwrite=True)
    (calibrated / "calibration.json").write_text("{}")
    with pytest.raises(uw.RunError, match="digest"):
        uw.Run.open(path, model=uw.models.GCN(8, 3, hidden=8), data=small_graph(nodes=90))


def made_up(slope: float, noise: float, *, count: int = 40, seed: int = 0, helps: float = 1.0) -> Calibration:
    """Deletions whose gap closed follows the size of the request, and kind by kind."""
    rng = np.random.default_rng(seed)
    deletions = []
    for number in range(count):
        size = 10 ** rng.uniform(-3, -0.7)
        kind = KINDS[number % 4]
        left = np.exp(slope * (np.log10(size) + 2) - 1 + (kind == "nodes") + noise * rng.standard_normal())
        rungs = {
            GIF: Figures(1 - left, 0.05, 0.05, 0.5),
            GIF.at(10**-0.5): Figures(1 - left / helps, 0.05, 0.05, 0.5),
            GIF.at(10**0.5): Figures(1 - left * 1.5, 0.05, 0.05, 0.5),
            FIFTH: Figures(1 - left / 2, 0.2 + 0.01 * rng.random(), 0.2, None),
        }
        deletions.append(Deletion(Shape(**{kind: size}), rungs, 0.1, 1.0, 200.0, 2.0))
    return Calibration("digest", 0, tuple(deletions), damping=2.0)


def test_the_estimate_follows_kind_and_size() -> None:
    found = made_up(0.5, 0.05)
    small, large = (found.estimate(GIF, Shape(edges=size)).closed for size in (0.002, 0.15))
    assert small > large + 0.2
    assert found.estimate(GIF, Shape(edges=0.02)).closed > found.estimate(GIF, Shape(nodes=0.02)).closed + 0.2
    mixed = found.estimate(GIF, Shape(edges=0.01, nodes=0.01)).closed
    assert found.estimate(GIF, Shape(nodes=0.02)).closed < mixed < found.estimate(GIF, Shape(edges=0.02)).closed
    assert found.rungs == (GIF, FIFTH)
    assert found.cost(FIFTH, Shape(edges=0.1)) == pytest.approx(0.205, abs=0.005)
    assert found.estimate(RETRAIN, Shape(nodes=0.5)).low == 1


def test_intervals_hold_nine_times_in_ten() -> None:
    """Forty deletions to learn from, two hundred to try, and noise that does not follow the model."""
    held, total = 0, 0
    for seed in range(10):
        found, fresh = made_up(0.3, 0.4, seed=seed), made_up(0.3, 0.4, seed=100 + seed, count=20)
        for deletion in fresh.deletions:
            guess = found.estimate(GIF, deletion.shape)
            assert guess.low is not None
            assert guess.high is not None
            assert guess.low <= guess.closed <= guess.high <= 1
            held += guess.low <= deletion.rungs[GIF].closed <= guess.high
            total += 1
    assert 0.85 <= held / total <= 0.95
    assert 0.8 <= found.held_back["coverage"] <= 1
    assert found.held_back["tested"] == 80
    assert 0 < found.held_back["error"] < 0.3


def test_intervals_hold_for_small_and_for_large_requests() -> None:
    """What is left of a single item is told with more doubt than what is left of a tenth of the graph."""

    def noisy(seed: int, count: int) -> Calibration:
        rng = np.random.default_rng([seed, 7])
        plain = made_up(0.3, 0.0, seed=seed, count=count)
        deletions = []
        for d in plain.deletions:
            off = np.exp(rng.standard_normal() * 0.02 / d.shape.size**0.5)
            closed = 1 - (1 - d.rungs[GIF].closed) * off
            deletions.append(replace(d, rungs={GIF: replace(d.rungs[GIF], closed=closed)}))
        return replace(plain, deletions=tuple(deletions))

    held: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(20):
        found = noisy(seed, 24)
        for deletion in noisy(100 + seed, 24).deletions:
            guess = found.estimate(GIF, deletion.shape)
            assert guess.low is not None
            assert guess.high is not None
            held[deletion.shape.size > 0.02].append(guess.low <= deletion.rungs[GIF].closed <= guess.high)
    assert all(0.85 <= np.mean(group) <= 0.97 for group in held.values())


def test_the_cost_is_that_of_requests_of_its_kind() -> None:
    found = made_up(0.3, 0.1)
    dear = tuple(
        replace(d, rungs={GIF: replace(d.rungs[GIF], cost=0.09 if d.shape.nodes else 0.03)}) for d in found.deletions
    )
    found = replace(found, deletions=dear)
    assert found.cost(GIF, Shape(nodes=0.05)) == 0.09
    assert found.cost(GIF, Shape(edges=0.05)) == 0.03


def test_few_deletions_give_no_interval_and_say_so() -> None:
    found = made_up(0.3, 0.1, count=8)
    guess = found.estimate(GIF, Shape(edges=0.01))
    assert guess.low is guess.high is None
    assert "too few simulated deletions, 8," in str(guess)
    assert found.held_back == {}
    assert made_up(0.3, 0.1, count=9).estimate(GIF, Shape(edges=0.01)).low is not None


def test_the_damping_that_serves_best_is_used() -> None:
    assert made_up(0.3, 0.1).factor == 1
    better = made_up(0.3, 0.1, helps=2.0)
    assert better.factor == pytest.approx(10**-0.5)
    assert better.estimate(GIF, Shape(edges=0.01)).closed > made_up(0.3, 0.1).estimate(GIF, Shape(edges=0.01)).closed
    run = trained().prepare()
    assert run.prepared is not None
    again = run.replace(calibration=better).prepare()
    assert again.prepared is not None
    assert again.prepared.damping == pytest.approx(run.prepared.damping * 10**-0.5)


def test_the_calibrated_damping_is_kept_in_the_prepared_state(calibrated: uw.Run) -> None:
    assert calibrated.prepared is not None
    found = known(calibrated)
    assert calibrated.prepared.damping == pytest.approx(found.damping * found.factor)
    assert known(calibrated.calibrate(6)).damping == found.damping


def test_jackknife_predicts_each_example_without_it() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(15), rng.standard_normal(15)])
    targets, penalty = rng.standard_normal(15), np.array([0.01, 0.1])
    fit = Jackknife(rows, targets, penalty)
    keep = np.arange(15) != 4
    weights = np.linalg.solve(rows[keep].T @ rows[keep] + np.diag(penalty), rows[keep].T @ targets[keep])
    assert fit.errors[4] == pytest.approx(abs(targets[4] - rows[4] @ weights))
    assert Jackknife(rows[:8], targets[:8], penalty).interval(rows[0]) is None


def test_a_model_at_a_minimum_is_calibrated_too() -> None:
    data = small_graph(nodes=90)
    run = uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-2, epochs=30).calibrate(4)
    found = known(run)
    assert Rung.of("gif", steps=40) in found.rungs
    assert all(rung.factor == 1 for d in found.deletions for rung in d.rungs)
    assert found.estimate(GIF, Shape(edges=0.05)).closed > 0.9
    assert run.prepared is not None
    assert run.prepared.at_minimum


def test_ones_own_training_is_the_reference() -> None:
    data = small_graph(nodes=90)

    def trainer(model: torch.nn.Module, graph: object, start: Checkpoint | None = None, until: int = 12) -> Checkpoint:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-3)
        if start is None:
            for module in model.modules():
                if module is not model and hasattr(module, "reset_parameters"):
                    module.reset_parameters()
        else:
            start.restore(model, optimiser)
        for _ in range(until - (0 if start is None else start.epoch)):
            optimiser.zero_grad()
            out = model(graph.x, graph.edge_index)[graph.train_mask]  # type: ignore[attr-defined]
            torch.nn.functional.cross_entropy(out, graph.y[graph.train_mask]).backward()  # type: ignore[attr-defined, no-untyped-call]
            optimiser.step()
        return Checkpoint.take(until, model, optimiser)

    model = uw.models.SGC(8, 3)
    torch.manual_seed(0)
    middle = trainer(model, data, None, 6)
    trainer(model, data, middle, 12)
    run = uw.Run(model.eval(), data, recipe=uw.Recipe(epochs=12, weight_decay=1e-3), checkpoints=(middle,))
    found = known(run.calibrate(2, trainer=trainer))
    assert HALF in found.rungs
    assert found.deletions[0].gap > 0


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(uw.ModelError, match="deletions must be at least 1"):
        trained().calibrate(0)
    data = small_graph()
    data.y = data.y.float()[:, None]
    run = uw.train(uw.models.SGC(8, 1), data, epochs=3, loss=uw.losses.squared_error)
    with pytest.raises(uw.ModelError, match="class probabilities"):
        run.calibrate(1)
