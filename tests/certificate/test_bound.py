"""The bound really bounds: against minimisers found by a dense Newton method in double precision."""

import copy
import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GCNConv, Linear, SGConv, TAGConv

import unweave as uw
from unweave._core.cost import Meter
from unweave.certificate import bound as module
from unweave.certificate.bound import Linear as Found, bound_of, examine
from unweave.graph.removal import remove
from unweave.objective.decay import decay_vector
from unweave.objective.losses import Loss, as_loss
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

DECAY = 1e-2


class OneLayer(nn.Module):
    """One graph convolution with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


class Headed(nn.Module):
    """A frozen encoder with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = GCNConv(8, 5).requires_grad_(False)
        self.head = Linear(5, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.encoder(x, edge_index).relu())  # type: ignore[no-any-return]


class Stacked(nn.Module):
    """Two linear layers: linear in each, not in both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Linear(8, 4, bias=False), GCNConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x), edge_index)  # type: ignore[no-any-return]


class Then(nn.Module):
    """One layer, and something after it."""

    def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.after = SGConv(8, 3), after

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.after(self.conv(x, edge_index))


LINEAR: dict[str, Callable[[], nn.Module]] = {
    "sgc": lambda: uw.models.SGC(8, 3),
    "gcn of one layer": OneLayer,
    "frozen encoder": Headed,
    "tag": lambda: _Wrapped(TAGConv(8, 3, K=2)),
}


class _Wrapped(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index)  # type: ignore[no-any-return]


def doubled(model: nn.Module, data: Data) -> tuple[nn.Module, Data]:
    data = copy.copy(data)
    data.x = data.x.double()
    return copy.deepcopy(model).double().eval(), data


def minimiser(model: nn.Module, data: Data, decay: float, loss: Loss = uw.losses.cross_entropy) -> Tensor:
    """θ* to 1e-10, by dense Newton steps on an objective written here from scratch."""
    model, data = doubled(model, data)
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    count = int(data.train_mask.sum())

    def objective(theta: Tensor) -> Tensor:
        pieces, at = {}, 0
        for name, parameter in named.items():
            pieces[name] = theta[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        out = functional_call(model, pieces, (data.x, data.edge_index))[data.train_mask]
        return loss(out, data.y[data.train_mask]).sum() + decay * count * theta.square().sum() / 2

    theta = torch.zeros(sum(p.numel() for p in named.values()), dtype=torch.float64)
    for _ in range(60):
        slope = grad(objective)(theta)
        if float(slope.norm()) < 1e-10:
            return theta
        step, length = torch.linalg.solve(hessian(objective)(theta), slope), 1.0
        while float(objective(theta - length * step)) > float(objective(theta)) and length > 1e-3:
            length /= 2
        theta = theta - length * step
    raise AssertionError("the reference did not converge")


def objective_of(model: nn.Module, data: Data, decay: float | dict[str, float] = DECAY, **how: object) -> Objective:
    loss, forward = how.get("loss", uw.losses.cross_entropy), how.get("forward", call)
    vector = decay_vector(model, decay)
    return Objective(model, data, as_loss(loss), vector, forward, Meter(torch.device("cpu")))  # type: ignore[arg-type]


@cache
def trained(name: str, seed: int) -> tuple[uw.Run, uw.Request, Tensor]:
    """A model, what it is to forget, and where it would best be then."""
    data = small_graph(seed=seed)
    torch.manual_seed(seed)
    model = LINEAR[name]()
    run = uw.train(model, data, seed=seed, epochs=60, weight_decay=DECAY)
    request = uw.draw("edges:0.05,nodes:0.05", data, seed=seed)
    return run, request, minimiser(model, remove(data, request).data, DECAY)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(8), marks=pytest.mark.slow)], ids=["three", "eight"])
@pytest.mark.parametrize("method", ["none", "gif", "finetune", "retrain"])
@pytest.mark.parametrize("name", LINEAR)
def test_the_bound_bounds(name: str, method: str, seeds: range) -> None:
    """Over seeds of graph, model and request; and where a method solves its problem it is not a wild one."""
    ratios = []
    for seed in seeds:
        run, request, best = trained(name, seed)
        done = run.forget(request, method)
        told = done.receipts[-1].certificate
        assert told is not None
        assert told["kind"] == "bound"
        away = float((flatten(done.model).double() - best).norm())
        assert away <= told["distance"]
        assert told["distance"] == pytest.approx((told["gradient_norm"] + told["rounding"]) / told["mu"])
        ratios.append(told["distance"] / away)
    assert sorted(ratios)[len(ratios) // 2] < 200


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 20))])
def test_the_bound_bounds_after_a_restart_at_a_minimum(seed: int) -> None:
    """One prepared restart, in single precision, down to where rounding matters."""
    data = small_graph(seed=seed)
    run = uw.train(uw.models.SGC(8, 3), data, seed=seed, weight_decay=DECAY, forgettable=True)
    done = run.forget(uw.draw("edges:0.05", data, seed=seed), steps=30)
    told = done.receipts[-1].certificate
    assert told is not None
    away = float((flatten(done.model).double() - minimiser(run.model, done.data, DECAY)).norm())
    assert 0 < away <= told["distance"] < 30 * away


@pytest.mark.parametrize("loss", [uw.losses.binary_cross_entropy, uw.losses.squared_error])
def test_other_convex_losses_are_bounded_too(loss: Loss) -> None:
    data = small_graph()
    data.y = torch.nn.functional.one_hot(data.y, 3).float()
    model = uw.models.SGC(8, 3)
    run = uw.train(model, data, epochs=30, weight_decay=DECAY, loss=loss)
    done = run.forget(uw.draw("edges:0.05", data))
    told = done.receipts[-1].certificate
    assert told is not None
    data64 = copy.copy(done.data)
    data64.y = data64.y.double()
    away = float((flatten(done.model).double() - minimiser(model, data64, DECAY, loss)).norm())
    assert told["kind"] == "bound"
    assert away <= told["distance"]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4])
def test_the_allowance_covers_the_rounding_of_the_gradient(scale: float) -> None:
    """Against the same gradient summed by math.fsum, which does not round on the way."""
    data = small_graph(seed=2)
    model, data = doubled(uw.models.SGC(8, 3), data)
    theta = scale * torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = examine(objective_of(model, data), theta)
    assert isinstance(found, Found)
    bound = bound_of(found, theta)
    eye = torch.eye(8, dtype=torch.float64)
    features = model.propagate(data.x @ eye, data.edge_index)[data.train_mask]
    slope = (features @ theta.view(3, 8).T).softmax(1)
    slope[torch.arange(len(slope)), data.y[data.train_mask]] -= 1
    count = len(slope)
    terms = [
        [float(f * s) for f, s in zip(features[:, j], slope[:, k], strict=True)] for k in range(3) for j in range(8)
    ]
    exact = [math.fsum([*row, DECAY * count * float(t)]) for row, t in zip(terms, theta, strict=True)]
    size = math.sqrt(math.fsum(e * e for e in exact))
    assert abs(bound.gradient_norm - size) <= bound.rounding
    assert bound.rounding < 1e-9 * max(size, scale)


@pytest.mark.parametrize(
    ("make", "decay", "how", "says"),
    [
        (lambda: uw.models.GCN(8, 3), DECAY, {}, "outputs of GCN are not linear"),
        (Stacked, DECAY, {}, "not linear in the parameters"),
        (lambda: Then(torch.relu), DECAY, {}, "not linear in the parameters"),
        (lambda: Then(torch.tanh), DECAY, {}, "not linear in the parameters"),
        (lambda: Then(lambda h: h.log_softmax(-1)), DECAY, {}, "ends in a softmax, leave that out"),
        (lambda: Then(torch.abs), DECAY, {}, "not linear in the parameters"),
        (OneLayer, {"conv.lin": DECAY}, {}, "'conv.bias' has no weight decay"),
        (lambda: uw.models.SGC(8, 3), 0.0, {}, "'linear.weight' has no weight decay"),
        (lambda: uw.models.SGC(8, 3), DECAY, {"loss": lambda o, y: o.sum(-1).sin()}, "not known to be convex"),
        (lambda: Then(BatchNorm(3)), DECAY, {}, r"running statistics \(after"),
        (lambda: Then(lambda h: h.half().float()), DECAY, {}, "not linear in the parameters"),
        (
            lambda: Then(lambda h: h @ torch.eye(3)),
            DECAY,
            {},
            "double precision",
        ),
    ],
)
def test_what_cannot_be_certified_says_why(
    make: Callable[[], nn.Module], decay: float | dict[str, float], how: dict[str, object], says: str
) -> None:
    model, data = make().eval(), small_graph()
    found = examine(objective_of(model, data, decay, **how), flatten(model))
    assert isinstance(found, str)
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(found)
    if "loss" not in how:
        with pytest.raises(uw.ModelError, match=says):
            uw.unlearn(
                model, data, uw.draw("edges:0.1", data), "certified", weight_decay=decay, epsilon=1.0, delta=1e-5
            )


def test_a_model_found_curved_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data, request = small_graph(), uw.draw("edges:0.1", small_graph())
    model = Then(torch.sinh)
    first, second = (uw.unlearn(model, data, request, "none", weight_decay=DECAY).receipt for _ in range(2))
    assert first.certificate == second.certificate
    assert "certify" in first.seconds
    assert "certify" not in second.seconds
    assert first.passes > second.passes
    monkeypatch.setattr(module, "REMEMBERED", 1)
    other = Then(torch.cosh).eval()
    examine(objective_of(other, data), flatten(other))
    assert len(module._FOUND) == 1


class Powers(nn.Module):
    """Linear for the power 1 and curved for others: the same class, the same modules, other settings."""

    def __init__(self, *powers: int) -> None:
        super().__init__()
        self.conv, self.powers = GCNConv(8, 3), powers

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        return sum((h**power for power in self.powers), torch.zeros_like(h))


def test_a_linear_model_tried_after_a_curved_one_of_its_class_gets_its_certificate() -> None:
    data = small_graph()
    for model, linear in ((Powers(2), False), (Powers(1), True), (Powers(2), False)):
        found = examine(objective_of(model.eval(), data), flatten(model))
        assert isinstance(found, Found) == linear


def test_a_forward_of_ones_own_is_part_of_what_decides() -> None:
    """Two functions of one code, made in a loop, may still differ in what they close over."""
    model, data = Powers(1).eval(), small_graph()

    def after(power: int) -> Forward:
        return lambda model, data: model(data.x, data.edge_index) ** power

    curved = examine(objective_of(model, data, forward=after(3)), flatten(model))
    assert isinstance(curved, str)
    assert isinstance(examine(objective_of(model, data, forward=after(1)), flatten(model)), Found)


def test_an_ordinary_gcn_costs_nothing_more() -> None:
    data = small_graph()
    receipt = uw.unlearn(uw.models.GCN(8, 3), data, uw.draw("edges:0.1", data), "none", weight_decay=DECAY).receipt
    assert receipt.certificate == {
        "kind": "none", "statement": "not certified: the outputs of GCN are not linear in its parameters"
    }  # fmt: skip
    assert "certify" not in receipt.seconds


def test_a_model_at_a_minimum_gets_the_local_statement() -> None:
    """With a single step it is the mean curvature along it, (∇L'(θ̂) − ∇L'(θ0))·d / ‖d‖²."""
    data = small_graph()
    data.x = data.x.double()
    run = uw.train(uw.models.GCN(8, 3, hidden=4).double(), data, weight_decay=3e-2, forgettable=True)
    done = run.forget(uw.draw("edges:0.05", data), steps=1)
    told = done.receipts[-1].certificate
    assert told is not None
    assert told["kind"] == "local"
    assert "nobody has checked" in told["statement"]
    objective = objective_of(done.model, done.data, 3e-2)
    start, end = flatten(run.model), flatten(done.model)
    before, after = (objective.evaluate(theta)[1] for theta in (start, end))
    step = end - start
    assert done.receipts[-1].details["steps"] == 1
    assert told["smallest_curvature_along_steps"] == pytest.approx(float((after - before) @ step / (step @ step)))
    assert told["gradient_norm"] == pytest.approx(float(after.norm()))
    assert "Local only" in str(done.receipts[-1])


def test_curvature_that_bends_down_is_no_statement() -> None:
    assert module.local(-0.5, 1.0, "it is curved")["kind"] == "none"
    assert "bends down" in module.local(-0.5, 1.0, "it is curved")["statement"]
    assert module.local(None, 1.0, "it is curved") == module.none("it is curved")


def test_a_deferred_or_bounded_request_is_not_certified() -> None:
    data = small_graph()
    run = uw.train(uw.models.SGC(8, 3), data, weight_decay=DECAY, forgettable=True)
    deferred = run.forget(uw.draw("edges:0.02", data), defer=True).receipts[-1].certificate
    bounded = run.forget(uw.draw("edges:0.02", data), memory_mib=10).receipts[-1].certificate
    for told, why in ((deferred, "deferred"), (bounded, "bounded memory")):
        assert told is not None
        assert told["kind"] in ("none", "local")
        assert why in told["statement"]


def test_a_frozen_encoder_stays_what_it_is_and_is_pointed_out() -> None:
    data = small_graph()
    model = Headed()
    encoder = model.encoder.lin.weight.detach().clone()
    run = uw.train(model, data, weight_decay=DECAY, certify=(1.0, 1e-5))
    again = run.forget(uw.draw("edges:0.05", data))
    retrained = again.forget(uw.draw("edges:0.05", again.data), "finetune")
    for found in (run, again, retrained):
        assert torch.equal(found.model.encoder.lin.weight, encoder)
    receipt = again.receipts[-1]
    assert receipt.parameters["count"] == 5 * 3 + 3
    assert receipt.certificate is not None
    assert any("of the trained parameters only: encoder.bias" in text for text in receipt.certificate["checked"])
    assert any(t["what"] == "frozen parameters" and "encoder.bias" in t["where"] for t in receipt.remembers)
