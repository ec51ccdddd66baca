"""Models that can forget: trained to a minimum, prepared once, restarted on the remaining graph."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.production import production
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING, tuned
from unweave.curvature.prepared import Prepared
from unweave.objective.decay import decay_vector
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.scores import gap, log_probabilities
from unweave.testing import small_graph
from unweave.training.agreement import descend
from unweave.training.minimum import polish_objective, without_some

pytestmark = pytest.mark.usefixtures("part")


@pytest.fixture(scope="module")
def data() -> Data:
    return uw.load("demo", seed=0)


@pytest.fixture(scope="module")
def run(data: Data) -> uw.Run:
    with tuned(polish={"evaluations": 120}):
        return uw.train(uw.models.GCN(data.num_features, data.num_classes), data, forgettable=True, weight_decay=3e-3)


@pytest.fixture(scope="module")
def retrained(run: uw.Run, data: Data) -> uw.Run:
    with tuned(polish={"evaluations": 120}):
        return run.forget(uw.draw("edges:0.05", data), "retrain")


def closed(run: uw.Run, done: uw.Unlearned | uw.Run, retrained: uw.Unlearned | uw.Run) -> float:
    everyone = torch.ones(run.data.num_nodes, dtype=torch.bool)
    target = log_probabilities(retrained.model, retrained.data)
    nothing = gap(target, log_probabilities(run.model, retrained.data), everyone)
    return 1 - gap(target, log_probabilities(done.model, retrained.data), everyone) / nothing


def test_training_ends_at_a_minimum_and_keeps_its_quality(run: uw.Run) -> None:
    assert run.prepared is not None
    assert run.prepared.at_minimum
    assert run.metrics["gradient_norm"] < 0.05 * run.metrics["gradient_norm_before_polish"]
    assert run.metrics["val_f1"] >= run.metrics["val_f1_before_polish"] - 0.02
    assert run.recipe.forgettable


def test_ordinary_training_does_not_end_at_a_minimum(data: Data) -> None:
    model = uw.models.GCN(data.num_features, data.num_classes)
    uw.train(model, data)
    assert not uw.prepare(model, data, weight_decay=1e-4).at_minimum


def test_it_forgets_almost_as_if_retrained(run: uw.Run, retrained: uw.Run, data: Data) -> None:
    """Demo graph, 5 % of the edges: measured +0.99 within 16 gradients; ordinary training gives about +0.45."""
    request = uw.draw("edges:0.05", data)
    done = run.forget(request)
    details = done.receipts[-1].details
    assert details["objective"] == "L'"
    assert details["prepared"] == "after training"
    assert details["evaluations"] <= 34
    assert closed(run, done, retrained) > 0.95
    few = run.forget(request, "gif", steps=7)
    assert few.receipts[-1].details["evaluations"] <= 8
    assert closed(run, few, retrained) > 0.85


def test_steps_without_preparation_say_what_they_cost(run: uw.Run, data: Data) -> None:
    request = uw.draw("edges:0.05", data)
    done = uw.unlearn(run.model, data, request, weight_decay=3e-3, steps=7)
    assert done.receipt.details["prepared"].startswith("for this request, ")
    assert done.receipt.residual_influence is not None
    assert done.receipt.residual_influence < 0.3


def test_converged_sgc_agrees_with_retraining_to_many_digits() -> None:
    double = small_graph(nodes=200)
    double.x = double.x.double()
    model = uw.models.SGC(8, 3).double()
    run = uw.train(model, double, forgettable=True, weight_decay=1e-3)
    request = uw.draw("edges:0.05", double)
    once = run.forget(request, "gif", steps=300)
    again = uw.polish(once.model, once.data, weight_decay=1e-3)
    fresh = uw.models.SGC(8, 3).double()
    target = uw.train(fresh, once.data, forgettable=True, weight_decay=1e-3, seed=5)
    target_polished = uw.polish(target.model, once.data, weight_decay=1e-3)
    assert float((flatten(once.model) - flatten(target_polished.model)).abs().max()) < 1e-6
    assert again.report["gradient_norm"] <= 1e-6


def test_polish_takes_a_model_of_ones_own_and_leaves_it_alone() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, weight_decay=1e-2)
    before = flatten(model).clone()
    told: list[int] = []
    done = uw.polish(model, data, weight_decay=1e-2, evaluations=100, progress=lambda at, _: told.append(at))
    assert torch.equal(flatten(model), before)
    assert done.report["objective"] < done.report["objective_before"]
    assert done.report["gradient_norm"] < done.report["gradient_norm_before"]
    assert done.report["passes"] > 2 * done.report["evaluations"] > 0
    assert done.report["products"] >= 40
    assert {"val_f1", "val_f1_before", "test_f1", "test_f1_before", "smallest_curvature"} <= set(done.report)
    assert told[-1] == done.report["evaluations"]
    ready = uw.unlearn(done.model, data, uw.draw("edges:0.05", data), weight_decay=1e-2, prepared=done.prepared)
    assert ready.receipt.method["name"] == "gif"


def test_a_prepared_state_serves_only_its_own_model(run: uw.Run, data: Data) -> None:
    other = uw.models.GCN(data.num_features, data.num_classes)
    uw.train(other, data, epochs=3)
    with pytest.raises(uw.MethodError, match="belongs to other parameters"):
        uw.unlearn(other, data, uw.draw("edges:0.05", data), weight_decay=1e-4, prepared=run.prepared)


def test_options_of_one_step_are_refused_with_several() -> None:
    with pytest.raises(uw.MethodError, match="belongs to one influence step"):
        uw.methods.GIF(steps=3, damping=1.0)
    with pytest.raises(uw.MethodError, match="steps must be"):
        uw.methods.GIF(steps=0)


def test_an_option_of_the_single_step_asks_for_that_step(run: uw.Run, data: Data) -> None:
    """A forgettable run must not swallow the damping it is given."""
    receipt = run.forget(uw.draw("edges:0.05", data), damping=50.0).receipts[-1]
    assert receipt.solve is not None
    assert receipt.solve["settings"]["damping"] == 50.0


def test_a_run_keeps_its_prepared_state_and_ages_it(run: uw.Run, data: Data, tmp_path: Path) -> None:
    again = uw.Run.open(run.save(tmp_path / "a"))
    assert again.prepared is not None
    assert run.prepared is not None
    assert again.prepared.parameters == run.prepared.parameters
    torch.testing.assert_close(again.prepared.curvature.vectors, run.prepared.curvature.vectors)
    once = again.forget(uw.draw("edges:0.02", data))
    twice = once.forget(uw.draw("nodes:0.02", once.data))
    assert once.prepared is not None
    assert once.prepared.age == 1
    assert twice.receipts[-1].details["prepared"] == "after training, 1 request ago"


@pytest.mark.parametrize("name", [pytest.param("demo", marks=pytest.mark.slow), "small"])
def test_weight_decay_is_the_usual_one_unless_validation_speaks_against_it(
    name: str, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the embedded graph it does, on the small one it does not."""
    for module in ("fit", "polish"):
        monkeypatch.setattr(f"unweave.training.{module}.FIRST_PHASE", 20)
    data = small_graph(nodes=300) if name == "small" else data

    def train(decay: float | None) -> uw.Run:
        model = uw.models.SGC(data.num_features, data.num_classes)
        with tuned(polish={"evaluations": 15}):
            return uw.train(model, data, forgettable=True, weight_decay=decay)

    chosen = train(None).recipe.weight_decay
    tried = {decay: train(decay).metrics["val_f1"] for decay in (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)}
    best = max(tried.values())
    error = (best * (1 - best) / int(data.val_mask.sum())) ** 0.5
    assert (tried[1e-2] >= best - error) == (name == "small")
    assert (chosen == 1e-2) == (name == "small")
    assert tried[chosen] >= best - error
    assert all(tried[decay] < best for decay in tried if decay > chosen)


def test_a_model_at_a_minimum_is_recognised_without_preparation(run: uw.Run, retrained: uw.Run, data: Data) -> None:
    request = uw.draw("edges:0.05", data)
    done = uw.unlearn(run.model, data, request, weight_decay=3e-3)
    assert done.receipt.details["objective"] == "L'"
    assert done.receipt.details["prepared"].startswith("for this request")
    assert closed(run, done, retrained) > 0.9


def test_what_the_polish_reports(run: uw.Run) -> None:
    assert run.prepared is not None
    assert run.metrics["smallest_curvature"] > 0
    assert run.prepared.bend > -0.01
    assert run.metrics["stationarity"] < 2e-3


@pytest.mark.parametrize("name", ["gat", "gin"])
def test_gat_and_gin_have_a_form_that_can_forget(name: str, data: Data) -> None:
    """Measured at weight decay 1e-2: GAT +0.99, where the usual form has +0.12, and GIN (demo graph) +0.97 and +0.6."""
    data = small_graph(nodes=150) if name == "gat" else data
    model = uw.models.build(name, data.num_features, data.num_classes, hidden=8, forgettable=True)
    run = uw.train(model, data, forgettable=True, weight_decay=1e-2, epochs=40)
    assert run.prepared is not None
    assert run.prepared.at_minimum
    request = uw.draw("edges:0.05", data)
    assert closed(run, run.forget(request), run.forget(request, "retrain")) > 0.8


def test_requests_of_a_single_edge_are_followed(run: uw.Run, data: Data) -> None:
    """The pull of one edge may be smaller than the gradient that the polish left."""
    pairs = data.edge_index[:, data.edge_index[0] < data.edge_index[1]].t().tolist()
    for u, v in pairs[::180]:
        done = run.forget(uw.Request(edges=[(u, v)]))
        assert not torch.equal(flatten(done.model), flatten(run.model))
        before, after = (done.receipts[-1].objective[f"remaining_{when}"] for when in ("before", "after"))
        assert after < before * (1 + 1e-6), "but for rounding"


def test_a_polish_holds_running_statistics_and_so_ends_at_a_minimum() -> None:
    """Statistics that followed it undid what it gained: no minimum, and −0.03 of a gap closed."""
    data = small_graph(nodes=300)

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(data.num_features, 16), GCNConv(16, data.num_classes)
            self.norm = nn.BatchNorm1d(16)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(torch.tanh(self.norm(self.conv1(x, edge_index))), edge_index)  # type: ignore[no-any-return]

    run = uw.train(Normed(), data, forgettable=True, weight_decay=1e-2, epochs=30, examine=False)
    assert run.prepared is not None
    assert run.prepared.at_minimum
    request = uw.draw("edges:0.05", data)
    assert closed(run, run.forget(request), run.forget(request, "retrain")) > 0.5


def test_hidden_validation_labels_leave_the_usual_decay() -> None:
    hidden = small_graph()
    hidden.y[hidden.val_mask] = -1
    run = uw.train(uw.models.SGC(8, 3), hidden, forgettable=True, epochs=5)
    assert run.recipe.weight_decay == 1e-2


def test_a_prepared_state_serves_only_its_own_objective(run: uw.Run, data: Data) -> None:
    with pytest.raises(uw.MethodError, match="another objective"):
        uw.unlearn(run.model, data, uw.draw("edges:0.05", data), weight_decay=1e-2, prepared=run.prepared)
    polished = uw.Polished(run.model, run.prepared, {}, 3e-3)  # type: ignore[arg-type]
    with pytest.raises(uw.MethodError, match="got Polished"):
        uw.unlearn(run.model, data, uw.draw("edges:0.05", data), weight_decay=3e-3, prepared=polished)


def test_polish_warns_where_quality_is_lost() -> None:
    data = small_graph(nodes=150)
    data.val_mask = ~(data.train_mask | data.test_mask)
    model = uw.models.GAT(data.num_features, data.num_classes, hidden=4, heads=2)
    uw.train(model, data, weight_decay=5e-4)
    done = uw.polish(model, data, weight_decay=5e-4, evaluations=60, examine=False)
    lost = (done.report["val_f1_before"] - done.report["val_f1"]) * int(data.val_mask.sum())
    fell = round(lost) > 4  # fewer may be chance
    assert any("validation F1 fell" in w for w in done.warnings) == fell
    assert any("no minimum" in w for w in done.warnings) == (not done.prepared.at_minimum)
    assert done.warnings


def test_the_decay_of_an_optimiser_serves_the_polished_copy() -> None:
    """AdamW, class weights, label smoothing, LayerNorm, a residual: a model as people have it."""
    data = small_graph()
    run = production(data)
    receipt = run.forget(uw.draw("edges:0.1", data)).receipts[-1]
    assert receipt.details["objective"] == "L'"
    assert receipt.objective["remaining_after"] < receipt.objective["remaining_before"]


def test_a_polish_in_bounded_memory_ends_at_the_same_place() -> None:
    data = small_graph()
    data.x = data.x.double()
    model = uw.models.GCN(8, 3, activation="tanh").double()
    uw.train(model, data, epochs=20)
    with tuned(spectrum={"rank": 4, "per_class": 1.0, "spare": 2, "bend_products": 4}):
        whole, parts = (
            uw.polish(model, data, weight_decay=1e-2, evaluations=3, examine=False, memory_mib=memory)
            for memory in (None, 0.12)
        )
    assert torch.allclose(flatten(whole.model), flatten(parts.model), atol=1e-8)
    assert parts.report["val_f1_before"] == whole.report["val_f1_before"]
    assert parts.report["passes"] > whole.report["passes"]  # halos overlap


def test_running_statistics_cannot_be_had_in_bounded_memory() -> None:
    data = small_graph()
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(uw.errors.ModelError, match=r"LayerNorm does not\); leave memory_mib"):
        uw.polish(model, data, weight_decay=1e-2, memory_mib=1.0, forward=lambda m, d: m(d.x))


def test_a_polish_ends_when_going_on_moves_little_beside_a_deletion() -> None:
    data, ends = small_graph(nodes=100), []
    for pays in (1.0, 1e-6):
        model = uw.models.GCN(data.num_features, data.num_classes, activation="tanh")
        with tuned(polish={"evaluations": 300, "refresh": 20, "pays": pays, "tolerance": 0.0}):
            run = uw.train(model, data, forgettable=True, weight_decay=3e-3, epochs=30)
        ends.append((run.metrics["polish_evaluations"], run.metrics["gradient_norm"]))
    (few, larger), (many, smaller) = ends
    assert few < many
    assert larger > smaller


def test_where_curvature_is_small_a_polish_goes_on_a_little(data: Data) -> None:
    """A small gradient is no small fall then, and two trainings would end as far apart as one node moves the model."""
    ends = {}
    for further in (0.0, TUNING.polish.further):
        model = uw.models.SGC(data.num_features, data.num_classes)
        with tuned(polish={"further": further, "evaluations": 300}):
            run = uw.train(model, data, forgettable=True, weight_decay=1e-6, examine=False)
        ends[further] = (run.metrics["polish_evaluations"], run.metrics["stationarity"])
    (few, far), (more, near) = ends.values()
    assert few < more <= (1 + TUNING.polish.further) * few
    assert near < far / 20


def test_what_requests_leave_does_not_add_up(run: uw.Run, data: Data) -> None:
    """A request keeps the gradient that training left, and makes good what those before it did."""
    assert isinstance(run.prepared, Prepared)
    mass = run.prepared.mass
    assert torch.equal(run.prepared.slope, run.prepared.gradient / mass)
    theta = flatten(run.model)
    load_flat(run.model, theta + 1e-3 * theta.abs().max() * torch.ones_like(theta))
    off = uw.prepare(run.model, data, weight_decay=3e-3)
    request = uw.Request(edges=[tuple(data.edge_index[:, 0].tolist())])
    left, distant = list[float](), list[float]()
    for slope in (off.slope, run.prepared.slope):
        done = uw.unlearn(run.model, data, request, weight_decay=3e-3, prepared=replace(off, slope=slope))
        assert done.prepared is not None
        left.append(float((done.prepared.gradient - mass * slope).norm()))
        assert torch.equal(done.prepared.slope, slope)
        distant.append(float((done.prepared.gradient - mass * run.prepared.slope).norm()))
    load_flat(run.model, theta)
    assert off.at_minimum
    far = float((off.gradient - mass * run.prepared.slope).norm())
    assert max(left) < far / 10
    assert distant[1] < far / 10 < far / 2 < distant[0]


def test_what_pulls_less_than_what_training_left_is_forgotten_all_the_same(data: Data) -> None:
    """Gradients that polish what training left lead away from a retraining, which leaves as much."""
    nodes = int(data.train_mask.sum())
    model = uw.models.build("sgc", data.num_features, data.num_classes, forgettable=True, nodes=nodes)
    run = uw.train(model, data, forgettable=True, weight_decay=1e-6, examine=False)
    assert run.prepared is not None
    assert run.prepared.at_minimum
    for edge in uw.draw("edges:0.05", data).edges[:3]:
        request = uw.Request(edges=[edge])
        retrained, done = run.forget(request, "retrain"), run.forget(request, "gif")
        assert closed(run, done, retrained) > 0.7


def test_a_polish_goes_on_while_it_pays_beside_a_deletion_that_is_followed() -> None:
    """With little decay a quadratic model of the deletion promises far more than following it brings."""
    data = uw.load("demo", seed=0)
    torch.manual_seed(0)
    model = uw.models.GCN(data.num_features, data.num_classes, activation="tanh", unit=True)
    objective = Objective(model, data, as_loss(cross_entropy), decay_vector(model, 1e-5), call, Meter(data.x.device))
    descend(objective, seed=0, epochs=100, lr=0.01)
    with tuned(polish={"evaluations": 600}):
        ended = polish_objective(objective)["objective"]
    more = ended - polish_objective(objective, evaluations=180)["objective"]
    remaining, theta = without_some(objective), flatten(model)
    assert remaining is not None
    there = remaining.of(model)
    followed = remaining.evaluate(theta)[0] - polish_objective(there, evaluations=60)["objective"]
    assert more < TUNING.polish.pays * followed
