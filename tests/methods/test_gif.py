"""GIF and IF: the vector, the anchors where one step is retraining, the settings and their refusals."""

from statistics import median
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.cases import DECAY, LOSSES, TABLE, Case, dense_loss
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING, tuned
from unweave._core.tuning.steps import Dear
from unweave.curvature.products import GaussNewton
from unweave.curvature.solvers import conjugate_gradients
from unweave.graph.draw import draw
from unweave.graph.region import influenced_region
from unweave.graph.removal import remove
from unweave.models import SGC
from unweave.models.reach import find_reach
from unweave.objective.decay import decay_vector
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.scores import gap, log_probabilities


@pytest.mark.parametrize("case", TABLE)
def test_v_over_the_region_is_v_over_the_whole_graph(case: Case) -> None:
    """Outside the region every term of the forgotten loss cancels, for every layer, loss, request and direction."""
    built = case.build()
    reach = find_reach(built.model, lambda: built.model(built.data.x, built.data.edge_index))
    assert reach.steps is not None, "the layers of the table are all known"
    mask = influenced_region(built.data, built.removal, reach).mask
    mask[built.removal.labels] = True
    before, after = built.before.at(built.theta), built.after.at(built.theta)
    inside = before.loss_gradient(mask) - after.loss_gradient(mask)
    torch.testing.assert_close(inside, before.loss_gradient() - after.loss_gradient(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", TABLE)
def test_one_step_is_the_dense_solve(case: Case) -> None:
    """θ̂ = θ0 + (G + δI)⁻¹(∇L0 − ∇L'), with nothing of the method in the reference."""
    built = case.build()
    done = uw.unlearn(
        built.model, built.data, case.forget(built.data), "gif", weight_decay=DECAY, loss=LOSSES[case.loss],
        damping=1.0, tolerance=1e-13, iterations=2000,
    )  # fmt: skip
    v = grad(dense_loss(built.before))(built.theta) - grad(dense_loss(built.after))(built.theta)
    operator = GaussNewton(built.after.at(built.theta))
    matrix = torch.stack([operator(e) for e in torch.eye(v.numel(), dtype=v.dtype)])
    expected = built.theta + torch.linalg.solve(matrix + torch.eye(v.numel(), dtype=v.dtype), v)
    torch.testing.assert_close(flatten(done.model), expected, rtol=1e-9, atol=1e-10)


class Ridge(nn.Module):
    """A linear model on propagated features: with squared loss and L2 its minimum has a closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 2, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


def ridge_minimum(model: Ridge, data: Data, decay: float) -> Tensor:
    """Solve the normal equations, with the propagated features read off the model itself."""
    with torch.no_grad():
        columns = []
        for e in torch.eye(3, dtype=torch.float64):
            load_flat(model, torch.cat([e, torch.zeros(3, dtype=torch.float64)]))
            columns.append(model(data.x, data.edge_index)[data.train_mask, 0])
    a, y = torch.stack(columns, dim=1), data.y[data.train_mask]
    w = torch.linalg.solve(a.T @ a + decay * a.size(0) * torch.eye(3, dtype=torch.float64), a.T @ y)
    return w.T.reshape(-1)


@pytest.mark.parametrize("kind", ["nodes", "edges", "features", "labels", "mixed"])
@pytest.mark.parametrize("directed", [False, True])
def test_anchor_one_step_is_retraining_for_a_linear_model_with_squared_loss(kind: str, directed: bool) -> None:
    case = Case("gcn", "squared", kind, directed)
    data, model = case.graph(), Ridge().double()
    request = case.forget(data)
    retrained = ridge_minimum(model, remove(data, request).data, 0.05)
    load_flat(model, ridge_minimum(model, data, 0.05))
    done = uw.unlearn(
        model, data, request, "gif", weight_decay=0.05, loss=uw.losses.squared_error, damping=0.0, tolerance=1e-13
    )
    assert float((flatten(done.model) - retrained).abs().max()) < 1e-8
    assert done.receipt.residual_influence < 1e-8


def converge(data: Data, weight_decay: float) -> SGC:
    """Train SGC in float64 to the minimum of its convex objective by checked Newton steps."""
    model = SGC(data.num_features, int(data.num_classes)).double()
    objective = Objective(
        model, data, uw.losses.cross_entropy, decay_vector(model, weight_decay), call, Meter(torch.device("cpu"))
    )
    theta = torch.zeros_like(flatten(model))
    for _ in range(30):
        point = objective.at(theta)
        g = point.gradient()
        if float(g.norm()) < 1e-9:
            break
        step, _ = conjugate_gradients(GaussNewton(point), -g, tolerance=1e-4, iterations=400)
        length = 1.0
        while objective.at(theta + length * step).value > point.value and length > 1e-6:
            length /= 2
        theta = theta + length * step
    assert float(objective.at(theta).gradient().norm()) < 1e-8
    load_flat(model, theta)
    return model


def convex_gaps_closed(data: Data, weight_decay: float, seed: int = 0) -> tuple[float, float]:
    """Gap closed by one undamped step on converged SGC: curvature of the remaining graph, and the paper's."""
    data.x = data.x.double()
    request = draw("edges:0.05", data, seed=seed)
    start, retrained = converge(data, weight_decay), converge(remove(data, request).data, weight_decay)
    everyone = torch.ones(data.num_nodes, dtype=torch.bool)
    values = []
    for graph in ("remaining", "original"):
        done = uw.unlearn(start, data, request, "closed-form", weight_decay=weight_decay, graph=graph)
        target = log_probabilities(retrained, done.data)
        nothing = gap(target, log_probabilities(start, done.data), everyone)
        values.append(1 - gap(target, log_probabilities(done.model, done.data), everyone) / nothing)
    return values[0], values[1]


def test_converged_sgc_curvature_belongs_on_the_remaining_graph() -> None:
    """Demo graph, 5 % of the edges, both optima solved in float64.

    Measured with weight decay 2e-3: +0.973 (remaining) and +0.327 (original); with 5e-4, where the problem
    is stiffer: +0.467 and −0.796, so that the old graph's curvature does harm.
    """
    remaining, original = convex_gaps_closed(uw.load("demo"), 2e-3)
    assert remaining >= 0.95
    assert original <= 0.4
    remaining, original = convex_gaps_closed(uw.load("demo"), 5e-4)
    assert remaining >= 0.4
    assert original <= 0


@pytest.mark.slow
def test_converged_sgc_on_cora(real_data: object) -> None:
    """Cora, weight decay 5e-4, 5 % of the edges, eight splits and requests.

    Measured: median +0.974 (from +0.28, where the undamped step overshoots, to +0.99) with the remaining
    graph's curvature; median +0.25 (from −0.61 to +0.61) with the old graph's Hessian.
    """
    pairs = [convex_gaps_closed(uw.load("cora", seed=seed), 5e-4, seed) for seed in range(8)]
    remaining, original = zip(*pairs, strict=True)
    assert median(remaining) >= 0.95
    assert median(original) <= 0.3
    assert all(r > o for r, o in pairs)


def test_if_counts_the_touched_nodes_only() -> None:
    case = Case("gcn", "cross-entropy", "mixed", False)
    built = case.build()
    done = uw.unlearn(
        built.model, built.data, case.forget(built.data), "if", weight_decay=DECAY, damping=1.0, tolerance=1e-12
    )
    touched = built.removal.touched & built.data.train_mask
    assert 0 < int(touched.sum()) < int(built.data.train_mask.sum())
    outputs = built.model(built.data.x, built.data.edge_index)
    loss = uw.losses.cross_entropy(outputs[touched], built.data.y[touched]).sum()
    v = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(built.model.parameters()))])
    v = v + (built.before.mu - built.after.mu) * built.theta
    x, _ = conjugate_gradients(GaussNewton(built.before.at(built.theta)), v, damping=1.0, tolerance=1e-12)
    torch.testing.assert_close(flatten(done.model), built.theta + x, rtol=1e-8, atol=1e-9)


def test_if_keeps_what_its_own_objective_promises() -> None:
    """Without a damping given, the loss of the untouched nodes on the old graph falls by a quarter of the promise."""
    data = uw.load("demo")
    model = uw.models.GCN(data.num_features, data.num_classes)
    uw.train(model, data, epochs=60)
    request = uw.draw("edges:0.5", data)
    done = uw.unlearn(model, data, request, "if", weight_decay=1e-4)
    removal = remove(data, request)
    rest = data.train_mask & ~removal.touched

    def local(module: torch.nn.Module) -> float:
        theta, count = flatten(module), int(data.train_mask.sum())
        outputs = module(data.x, data.edge_index)
        value = uw.losses.cross_entropy(outputs[rest], data.y[rest]).sum() + count * 1e-4 * theta @ theta / 2
        return float((value - slope @ theta).detach())

    model.eval()
    outputs = model(data.x, data.edge_index)[data.train_mask]
    loss = uw.losses.cross_entropy(outputs, data.y[data.train_mask]).sum()
    slope = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    slope = slope + int(data.train_mask.sum()) * 1e-4 * flatten(model)
    assert local(done.model) < local(model) - 1
    plain = uw.unlearn(model, data, request, "if", weight_decay=1e-4, damping=1.0)
    assert plain.receipt.step_norm > done.receipt.step_norm


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 0}, "steps must be"),
        ({"steps": "many"}, "steps must be"),
        ({"steps": 3, "damping": 1.0}, "damping belongs to one influence step"),
        ({"tolerance": 1.0}, "tolerance must be below 1"),
        ({"damping": -1.0}, "damping must be"),
        ({"damping": float("nan")}, "damping must be"),
        ({"iterations": 0}, "iterations must be"),
        ({"iterations": 2.5}, "iterations must be a positive whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(uw.MethodError, match=says):
        uw.methods.GIF(**options)


@pytest.mark.parametrize("option", ["solver", "scale", "curvature", "graph"])
@pytest.mark.parametrize("method", ["gif", "if"])
def test_the_papers_own_options_say_where_they_went(method: str, option: str) -> None:
    with pytest.raises(uw.MethodError, match=rf"'{method}' does not take '{option}' any more: .*'gif-published'"):
        uw.methods.make(method, {option: "anything"})


def test_a_request_that_changes_no_training_loss_leaves_the_parameters_and_says_so() -> None:
    """An edge between two test nodes that no training node listens to."""
    data = Case("gcn", "cross-entropy", "edges", True).graph()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[12], [13]])], dim=1)
    data.train_mask[[12, 13]] = False
    model = Case("sage", "cross-entropy", "edges", True).model()
    done = uw.unlearn(model, data, uw.Request(edges=[(12, 13)]), "gif", weight_decay=DECAY)
    assert torch.equal(flatten(done.model), flatten(model))
    assert done.receipt.residual_influence is None
    assert any("already those of the remaining graph" in w for w in done.receipt.warnings)


@pytest.fixture(scope="module")
def demo() -> uw.Run:
    data = uw.load("demo")
    return uw.train(uw.models.GCN(data.num_features, data.num_classes), data)


def test_on_an_ordinary_model_no_given_damping_does_better_than_the_one_that_is_found(demo: uw.Run) -> None:
    """Demo graph, 10 % of the training nodes; measured: 0.37, with one step 0.38, with a given damping 0.29 at best."""
    request = uw.draw("nodes:0.1", demo.data)
    target = demo.forget(request, "retrain")

    def closed(**options: Any) -> float:
        done = demo.forget(request, "gif", **options)
        everyone = torch.ones(demo.data.num_nodes, dtype=torch.bool)
        reference = log_probabilities(target.model, target.data)
        nothing = gap(reference, log_probabilities(demo.model, target.data), everyone)
        return 1 - gap(reference, log_probabilities(done.model, target.data), everyone) / nothing

    best = max(closed(damping=damping) for damping in (1.0, 3.0, 10.0, 30.0, 100.0))
    assert min(closed(), closed(steps=1)) > max(best, 0.3)


def test_a_step_that_leaves_its_own_problem_worse_is_damped_until_it_does_not(demo: uw.Run) -> None:
    """Models that validation stopped early: a GAT on Cora closed −5.2 of the gap of 5 % of its edges before this."""
    data = demo.data
    model = uw.models.build("sage", data.num_features, data.num_classes)
    run, request = uw.train(model, data, epochs=20), uw.draw("nodes:0.05", data)
    with tuned(step={"falling": 1e9}):  # which would shorten both
        with tuned(damping={"rehearsals": 1}):
            whole = run.forget(request)
        done = run.forget(request)
    before, after = whole.receipts[-1], done.receipts[-1]
    assert before.residual_influence > 1
    assert after.residual_influence < TUNING.damping.left
    assert after.solve["settings"]["damping"] > before.solve["settings"]["damping"]
    target = run.forget(request, "retrain")
    kept = torch.ones(data.num_nodes, dtype=torch.bool)
    kept[list(request.nodes)] = False
    reference = log_probabilities(target.model, target.data)
    nothing, far, near = (
        gap(reference, log_probabilities(each.model, target.data), kept) for each in (run, whole, done)
    )
    assert far > nothing
    assert near < nothing


def test_the_damping_that_sets_itself_is_checked_and_told(demo: uw.Run) -> None:
    receipt = demo.forget(uw.draw("edges:0.05", demo.data)).receipts[-1]
    assert receipt.solve is not None
    assert receipt.solve["solver"] == "krylov"
    assert receipt.solve["relative_residual"] <= 0.05
    assert receipt.solve["settings"]["damping"] > 0.003 * receipt.solve["largest_curvature"] / 100
    assert 1 <= receipt.details["steps"] <= 8
    assert receipt.details["evaluations"] <= 9 + 14
    assert receipt.objective["function_change"] > 0
    assert "moved by" in str(receipt)
    assert not any("beyond what an influence step" in w for w in receipt.warnings)


def test_the_scale_of_a_model_does_not_matter_to_the_rule(demo: uw.Run) -> None:
    """The loss in other units: damping, curvature and gradients scale along, and the step stays what it was."""
    request = uw.draw("edges:0.05", demo.data)

    def hundredfold(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 100 * uw.losses.cross_entropy(outputs, targets)

    usual = uw.unlearn(demo.model, demo.data, request, weight_decay=1e-4, steps=1)
    scaled = uw.unlearn(demo.model, demo.data, request, weight_decay=1e-2, steps=1, loss=hundredfold)
    torch.testing.assert_close(flatten(scaled.model), flatten(usual.model), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("forget", ["nodes:0.3", "features:0.3", "edges:0.3"])
def test_a_large_request_on_an_ordinary_model_is_told_to_be_beyond_influence(demo: uw.Run, forget: str) -> None:
    receipt = demo.forget(uw.draw(forget, demo.data)).receipts[-1]
    assert any("beyond what an influence step" in w and "forgettable=True" in w for w in receipt.warnings)


def test_at_a_minimum_what_is_removed_does_not_change_the_slope() -> None:
    """With ∇L0(θ0) = 0 the step that sets itself and the paper's are for the same vector, nodes gone or not."""
    data = uw.load("demo")
    double = data.clone()
    double.x = data.x.double()
    model = uw.models.SGC(data.num_features, data.num_classes).double()
    run = uw.train(model, double, forgettable=True, weight_decay=1e-2)
    request = uw.draw("nodes:0.1", double)
    own = uw.unlearn(run.model, double, request, weight_decay=1e-2, steps=1, tolerance=1e-8, iterations=300)
    assert own.receipt.solve is not None
    damping = own.receipt.solve["settings"]["damping"]
    paper = uw.unlearn(run.model, double, request, weight_decay=1e-2, damping=damping, tolerance=1e-10)
    torch.testing.assert_close(flatten(own.model), flatten(paper.model), rtol=1e-5, atol=1e-7)


def test_a_restart_that_is_no_longer_cheap_must_promise_more_on_graphs_that_are_as_large() -> None:
    data = uw.load("demo", seed=0)
    run = uw.train(SGC(data.num_features, data.num_classes), data, forgettable=True, weight_decay=1e-4, examine=False)
    request = draw("edges:0.05", data)
    nodes = int(data.num_nodes)
    taken = []
    for rules in ((), (Dear(nodes + 1, 0.001, 3, 0.5),), (Dear(nodes, 0.001, 3, 0.5),), (Dear(0, 0.001, 4, 0.5),)):
        with tuned(step={"cheap": (Dear(0, 1.0, 1, 0.0), *rules)}):
            taken.append(run.forget(request).receipts[-1].details["evaluations"])
    assert taken[0] == taken[1] > 4
    assert taken[2:] == [4, 5]  # the one that it begins with, and three or four more
