"""The ladder: the best rung within a budget, the cheapest for a wish, the next where one fails, and a verdict."""

from dataclasses import replace

import pytest
import torch

import unweave as uw
from tests.methods.test_calibration import known, made_up, trained
from unweave._core.tuning import tuned
from unweave.curvature.prepared import Prepared
from unweave.methods import GIF, Auto, Outcome, Problem
from unweave.methods.ladder.auto import read_share
from unweave.methods.ladder.calibration import Calibration, Figures
from unweave.methods.ladder.choice import Choice
from unweave.methods.ladder.debt import Standing
from unweave.methods.ladder.rung import Rung
from unweave.methods.ladder.size import Shape
from unweave.objective.parameters import flatten
from unweave.receipt.estimate import Estimate
from unweave.testing import small_graph

TENTH = Rung.of("replay", share=0.1)


@pytest.fixture(scope="module")
def run() -> uw.Run:
    return trained().prepare()


def calibrated(closed: dict[str, float], cost: dict[str, float]) -> Calibration:
    """Deletions in which every rung closes and costs what it is told, with a little noise."""
    template = made_up(0.0, 0.0, count=20)
    deletions = [
        replace(
            deletion,
            rungs={
                Rung.read(name): Figures(1 - (1 - share) * (1 + 0.1 * (number % 3 - 1)), cost[name], cost[name], 50.0)
                for name, share in closed.items()
            },
        )
        for number, deletion in enumerate(template.deletions)
    ]
    return Calibration("digest", 0, tuple(deletions))


COST = {
    "gif(steps=1)": 0.02,
    "gif": 0.05,
    "finetune(epochs=2)": 0.08,
    "replay(share=0.1)": 0.1,
    "replay(share=0.5)": 0.5,
}
CLOSED = {
    "gif(steps=1)": 0.3,
    "gif": 0.5,
    "finetune(epochs=2)": 0.55,
    "replay(share=0.1)": 0.4,
    "replay(share=0.5)": 0.92,
}


def rung_for(run: uw.Run, calibration: Calibration | None, **options: object) -> str:
    request = uw.draw("edges:0.05", run.data)
    done = run.replace(calibration=calibration).forget(request, "auto", **options)
    receipt = done.receipts[-1]
    assert receipt.ladder is not None
    assert receipt.details["rung"] == receipt.ladder["rung"]
    assert uw.Receipt.from_json(receipt.to_json()) == receipt
    rung: str = receipt.ladder["rung"]
    return rung


@pytest.mark.parametrize(
    ("options", "rung"),
    [
        ({"budget": 0.02}, "gif(steps=1)"),
        ({"budget": "5%"}, "gif"),
        ({"budget": 0.2}, "finetune(epochs=2)"),
        ({"budget": 0.6}, "replay(share=0.5)"),
        ({"budget": 1.0}, "retrain"),
        ({"at_least": 0.25}, "gif(steps=1)"),
        ({"at_least": 0.45}, "gif"),
        ({"at_least": 0.9}, "replay(share=0.5)"),
        ({"at_least": 0.97}, "retrain"),
        ({"at_least": 0.45, "budget": 0.06}, "gif"),
        ({"at_least": 0.9, "budget": 0.06}, "gif"),
        ({}, "finetune(epochs=2)"),
    ],
)
def test_it_takes_the_best_within_a_budget_and_the_cheapest_for_a_wish(
    run: uw.Run, options: dict[str, object], rung: str
) -> None:
    assert rung_for(run, calibrated(CLOSED, COST), **options) == rung


def test_the_answer_is_that_of_the_rung(run: uw.Run) -> None:
    request = uw.draw("edges:0.05", run.data)
    ready = run.replace(calibration=calibrated(CLOSED, COST))
    for options, (method, given) in (
        ({"budget": 0.05}, ("gif", {})),
        ({"budget": 0.6}, ("replay", {"share": 0.5})),
        ({"at_least": 0.97}, ("retrain", {})),
    ):
        done, plain = ready.forget(request, "auto", **options), run.forget(request, method, **given)
        assert torch.allclose(flatten(done.model), flatten(plain.model), atol=1e-5)
        assert [c.epoch for c in done.checkpoints] == [c.epoch for c in plain.checkpoints]
    assert "retrained model itself" in str(done.receipts[-1])


def test_two_rungs_that_are_alike_cost_the_cheaper_one(run: uw.Run) -> None:
    closed = CLOSED | {"replay(share=0.5)": 0.556}
    assert rung_for(run, calibrated(closed, COST), budget=0.6) == "finetune(epochs=2)"


def test_of_two_rungs_that_promise_alike_the_surer_is_used(run: uw.Run) -> None:
    found = calibrated(CLOSED | {"replay(share=0.1)": 0.57}, COST)
    assert rung_for(run, found, budget=0.2) == "replay(share=0.1)"
    wild = tuple(
        replace(
            d,
            rungs=d.rungs | {TENTH: replace(d.rungs[TENTH], closed=(0.97, -0.2, 0.8)[n % 3])},
        )
        for n, d in enumerate(found.deletions)
    )
    unsure = replace(found, deletions=wild)
    assert unsure.estimate(TENTH, Shape(edges=0.05)).closed > 0.6
    assert rung_for(run, unsure, budget=0.2) == "finetune(epochs=2)"


def test_one_that_closes_little_for_sure_is_not_preferred_to_one_that_closes_much_with_doubt() -> None:
    def choice(rung: str, closed: float, low: float) -> Choice:
        return Choice(Rung.read(rung), 0.1, None, Standing().anew(Shape(edges=0.05), Estimate(closed, low, 0.95)))

    assert choice("gif", 0.65, -0.6).prudent > choice("replay(share=0.02)", 0.06, 0.02).prudent
    assert choice("gif", 0.65, 0.3).prudent > choice("retrace(share=0.8, end=0.1)", 0.66, -0.6).prudent
    assert choice("finetune(epochs=5)", 0.45, -4.0).prudent < 0


def test_a_budget_for_nothing_names_the_cheapest(run: uw.Run) -> None:
    with pytest.raises(uw.MethodError, match=r"too small: the cheapest rung, gif\(steps=1\), costs 2.0%"):
        rung_for(run, calibrated(CLOSED, COST), budget=0.01)
    harmful = CLOSED | {"gif(steps=1)": -0.5, "gif": -0.2}
    with pytest.raises(uw.MethodError, match="do better than leaving the parameters"):
        rung_for(run, calibrated(harmful, COST), budget=0.05)


def fails_as(way: str) -> object:
    def forget(self: GIF, problem: Problem) -> Outcome:
        if way == "nan":
            return Outcome(torch.full_like(problem.theta, torch.nan))
        raise uw.NoProgressError("no step lowers it")

    return forget


@pytest.mark.parametrize(("way", "says"), [("error", "no step lowers it"), ("nan", "not finite")])
def test_a_rung_that_fails_is_followed_by_the_next_and_counted(
    run: uw.Run, monkeypatch: pytest.MonkeyPatch, way: str, says: str
) -> None:
    monkeypatch.setattr(GIF, "forget", fails_as(way))
    request = uw.draw("edges:0.05", run.data)
    ready = run.replace(calibration=calibrated(CLOSED, COST))
    receipt = ready.forget(request, "auto", at_least=0.45).receipts[-1]
    assert receipt.ladder is not None
    assert [t["rung"] for t in receipt.ladder["tried"]] == ["gif", "finetune(epochs=2)"]
    assert says in receipt.ladder["tried"][0]["given_up"]
    assert "gif was tried first" in " ".join(receipt.grounds)
    with pytest.raises(uw.NoProgressError, match=r"no rung gave an answer: gif: .* budget above 5.5%"):
        ready.forget(request, "auto", budget=0.055)


def test_evidence_against_an_answer_makes_it_climb(run: uw.Run) -> None:
    """Every simulated deletion left nothing of the local gradient, and this request leaves something."""
    found = calibrated(CLOSED, COST)
    sure = replace(
        found,
        deletions=tuple(
            replace(d, rungs={name: replace(f, residual=1e-9) for name, f in d.rungs.items()}) for d in found.deletions
        ),
    )
    request = uw.draw("edges:0.05", run.data)
    receipt = run.replace(calibration=sure).forget(request, "auto", at_least=0.52).receipts[-1]
    assert receipt.ladder is not None
    assert receipt.ladder["rung"] == "retrain"
    assert [t["rung"] for t in receipt.ladder["tried"]] == ["finetune(epochs=2)", "replay(share=0.5)", "retrain"]
    assert "more than in any simulated deletion" in receipt.ladder["tried"][0]["given_up"]
    alone = run.replace(calibration=calibrated(CLOSED, COST)).forget(request, "auto", at_least=0.97).receipts[-1]
    assert receipt.passes > alone.passes + 4 * 2
    doubted = run.replace(calibration=sure).forget(request, "auto", budget=0.05).receipts[-1]
    assert "Against it speaks" in " ".join(doubted.grounds)


def test_the_verdict_says_what_is_believed_why_and_what_remembers(run: uw.Run) -> None:
    request = uw.draw("edges:0.05", run.data)
    receipt = run.replace(calibration=calibrated(CLOSED, COST)).forget(request, "auto", budget=0.6).receipts[-1]
    grounds = " ".join(receipt.grounds)
    for words in (
        "at most 0.6 of a retraining",
        "replay(share=0.5)",
        "Believed to close 0.92 (0.9",
        "20 simulated deletions",
        "within their interval in",
        "Not certified",
        "What still remembers: the prepared state",
        "the checkpoints of epoch 10",
    ):
        assert words in grounds, grounds
    assert receipt.grade == "believed"
    assert "believed to have come 0.92 (0.9" in receipt.verdict
    assert receipt.to_dict()["verdict"] == receipt.verdict
    short = run.replace(calibration=calibrated(CLOSED, COST)).forget(request, "auto", budget=0.06, at_least=0.9)
    assert "No rung within the budget" in " ".join(short.receipts[-1].grounds)


def test_without_a_calibration_it_says_what_it_does_not_know(run: uw.Run) -> None:
    request = uw.draw("edges:0.05", run.data)
    receipt = run.forget(request, "auto", budget=0.6).receipts[-1]
    assert receipt.details["rung"] == "retrace(share=0.5, end=0.1)"
    assert "It is not known how much of the gap" in " ".join(receipt.grounds)
    bare = run.replace(prepared=None).forget(request, "auto", budget=0.8)
    assert bare.receipts[-1].details["rung"] == "replay(share=0.5)"
    assert run.forget(request, "auto", budget=0.12).receipts[-1].details["rung"] == "gif(steps=1)"
    assert run.forget(request, "auto", at_least=0.5).receipts[-1].details["rung"] == "retrain"
    with pytest.raises(uw.MethodError, match="too small: the cheapest rung"):
        run.forget(request, "auto", budget=0.01)
    bare = run.replace(prepared=None, checkpoints=())
    assert bare.forget(request, "auto").receipts[-1].details["rung"] == "retrain", "cheaper than fresh curvature here"
    with pytest.raises(uw.MethodError, match="unweave prepare"):
        bare.forget(request, "auto", budget=0.05)


def test_a_calibration_in_which_nothing_changed_is_none(run: uw.Run) -> None:
    found = calibrated(CLOSED, COST)
    empty = replace(found, deletions=tuple(replace(d, rungs={}, gap=0.0, seconds=0.0) for d in found.deletions))
    assert empty.retrainings == 0
    assert rung_for(run, empty, at_least=0.5) == "retrain"
    assert rung_for(run, empty, budget=0.27) == rung_for(run, None, budget=0.27)


def test_without_a_recipe_neither_budget_nor_retraining_is_known() -> None:
    data = small_graph()
    model = uw.train(uw.models.GCN(8, 3, hidden=4), data, epochs=20).model
    request = uw.draw("edges:0.05", data)
    done = uw.unlearn(model, data, request, "auto", weight_decay=1e-4)
    assert done.receipt.details["rung"] == "gif"
    assert "an unknown share" in " ".join(done.receipt.grounds)
    with pytest.raises(uw.MethodError, match="recipe="):
        uw.unlearn(model, data, request, "auto", weight_decay=1e-4, budget=0.5)
    with pytest.raises(uw.MethodError, match="how to retrain is not known"):
        uw.unlearn(model, data, request, "auto", weight_decay=1e-4, at_least=0.9)


@pytest.fixture(scope="module")
def minimum() -> uw.Run:
    data = small_graph(nodes=90)
    return uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-2, epochs=30)


@pytest.fixture(scope="module")
def ready(minimum: uw.Run) -> uw.Run:
    return minimum.calibrate(12)


def test_at_a_minimum_gif_is_believed_and_its_gradient_checked(
    minimum: uw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = uw.draw("edges:0.05", minimum.data)
    receipt = minimum.forget(request, "auto", at_least=0.9).receipts[-1]
    assert receipt.ladder is not None
    assert receipt.ladder["rung"] == "gif"
    assert receipt.ladder["evidence"]["stationarity"] < 2e-3
    assert "would still fall" in " ".join(receipt.grounds)

    def still(self: GIF, problem: Problem) -> Outcome:
        return Outcome(problem.theta + 0.5)

    monkeypatch.setattr(GIF, "forget", still)
    receipt = minimum.forget(request, "auto", at_least=0.9).receipts[-1]
    assert receipt.ladder is not None
    assert [t["rung"] for t in receipt.ladder["tried"]] == ["gif", "gif(steps=40)", "retrain"]


def test_a_step_that_cannot_be_believed_is_climbed_from(minimum: uw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(self: GIF, problem: Problem) -> Outcome:
        return Outcome(problem.theta, details={"too_long": True})

    monkeypatch.setattr(GIF, "forget", too_long)
    receipt = minimum.forget(uw.draw("edges:0.05", minimum.data), "auto", at_least=0.9).receipts[-1]
    assert receipt.ladder is not None
    assert receipt.ladder["rung"] == "retrain"
    assert receipt.ladder["tried"][0]["given_up"] == "its step cannot be believed however short"


def test_where_training_had_not_come_to_rest_no_step_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    run = uw.train(uw.models.GCN(8, 3, hidden=8), small_graph(nodes=90), epochs=40).prepare()

    def restless(self: GIF, problem: Problem) -> Outcome:
        return Outcome(problem.theta + 0.01, details={"restless": True})

    monkeypatch.setattr(GIF, "forget", restless)
    request = uw.draw("edges:0.05", run.data)
    climbed, within = (run.forget(request, "auto", **how).receipts[-1] for how in ({}, {"budget": 0.9}))
    assert climbed.ladder is not None
    assert [t["rung"] for t in climbed.ladder["tried"]] == ["gif", "retrain"]
    assert climbed.ladder["tried"][0]["given_up"].startswith("training had not come to rest")
    assert within.ladder is not None
    assert (within.ladder["rung"], within.grade) == ("gif", "doubtful")


def test_a_restart_that_ended_early_says_so_and_is_climbed_from(minimum: uw.Run) -> None:
    request = uw.draw("edges:0.05", minimum.data)
    with tuned(step={"steps": 2}):
        receipt = minimum.forget(request, "gif").receipts[-1]
        climbed = minimum.forget(request, "auto", at_least=0.9).receipts[-1]
        within = minimum.forget(request, "auto", budget=0.5).receipts[-1]
    assert any("more steps come nearer" in warning for warning in receipt.warnings)
    assert climbed.ladder is not None
    assert [t["rung"] for t in climbed.ladder["tried"]] == ["gif", "gif(steps=40)"]
    assert climbed.ladder["tried"][0]["given_up"].startswith("it ended after")
    assert within.ladder is not None
    assert len(within.ladder["tried"]) == 1


def test_a_minimum_that_seeds_do_not_agree_on_promises_no_more_than_they_do(minimum: uw.Run) -> None:
    request = uw.draw("edges:0.05", minimum.data)
    assert isinstance(minimum.prepared, Prepared)
    for agreement, rung in ((0.95, "gif"), (0.8, "retrain"), (None, "gif")):
        run = minimum.replace(prepared=replace(minimum.prepared, agreement=agreement))
        assert run.forget(request, "auto", at_least=0.9).receipts[-1].details["rung"] == rung


def test_it_works_without_a_run(ready: uw.Run) -> None:
    assert isinstance(ready.prepared, Prepared)
    options = {"prepared": ready.prepared, "calibration": known(ready)}
    recipe = ready.recipe
    done = uw.unlearn(
        ready.model,
        ready.data,
        uw.draw("edges:0.05", ready.data),
        "auto",
        weight_decay=recipe.weight_decay,
        recipe=recipe,
        at_least=0.9,
        **options,
    )
    assert done.receipt.ladder is not None
    assert done.receipt.ladder["estimate"]["closed"] > 0.9
    assert done.receipt.ladder["estimate"]["low"] is not None
    again = uw.unlearn(
        done.model,
        done.data,
        uw.draw("nodes:0.05", done.data),
        "auto",
        weight_decay=recipe.weight_decay,
        recipe=recipe,
        at_least=0.9,
        receipts=[done.receipt],
        **(options | {"prepared": done.prepared}),
    )
    assert again.receipt.ladder is not None
    assert again.receipt.ladder["standing"]["requests"] == 2


def test_at_a_minimum_what_cannot_be_told_apart_is_enough(ready: uw.Run) -> None:
    """A single edge closes little of next to nothing; larger requests must reach the wish."""
    found = known(ready)
    assert 0 < found.floor < max(d.gap for d in found.told)
    shapes = [Shape(edges=size) for size in (0.003, 0.1)]
    assert found.gap(shapes[0]) < found.gap(shapes[1])
    # What each closes and costs is set: how long a rung takes on a graph so small is chance.
    told = {"gif(steps=1)": (0.2, 0.02), "gif": (0.2, 0.05), "gif(steps=40)": (0.99, 0.3)}
    set_to = {Rung.read(name): figures for name, figures in told.items()}
    poor = replace(
        found,
        deletions=tuple(
            replace(d, rungs={n: replace(d.rungs[n], closed=c, cost=p) for n, (c, p) in set_to.items() if n in d.rungs})
            for d in found.deletions
        ),
    )
    high = replace(poor, deletions=tuple(replace(d, gap=100 * d.gap) for d in poor.deletions))
    request = uw.Request(edges=[next((u, v) for u, v in ready.data.edge_index.t().tolist() if u < v)])
    for calibration, rung in ((poor, "gif(steps=1)"), (high, "gif(steps=40)")):
        vars(calibration)["floor"] = 2 * poor.gap(Shape(edges=1 / (ready.data.num_edges // 2)))
        receipt = ready.replace(calibration=calibration).forget(request, "auto", at_least=0.9).receipts[-1]
        assert receipt.details["rung"] == rung
    assert known(trained().calibrate(1)).floor == 0


def test_options_that_make_no_sense_are_refused() -> None:
    assert read_share("5%") == read_share("0.05") == read_share(0.05) == 0.05
    for bad in ("5", 0, -1, 1.1, "much", True, "200%"):
        with pytest.raises(uw.MethodError, match="budget must be a share"):
            Auto(budget=bad)  # type: ignore[arg-type]
    with pytest.raises(uw.MethodError, match="calibration must be"):
        Auto(calibration="yes")  # type: ignore[arg-type]
    with pytest.raises(uw.MethodError, match="told when to stop"):
        Auto(trainer=lambda model, data, start, until: None)
