"""Scores are what forgetting an item and training without it does."""

import copy
from typing import Any

import pytest
import torch
from scipy.optimize import root
from torch import Tensor, nn
from torch.func import functional_call, hessian
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.inspection.graphs import Plain, graph, look, minimum, objective, trained, validation
from unweave.graph.removal import remove
from unweave.inspection import direction, leverage, ripples, scoring
from unweave.objective.losses import Loss, cross_entropy, squared_error
from unweave.objective.parameters import flatten


@pytest.fixture(autouse=True)
def exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solve to the end, so that nothing is compared but what scores are made of."""
    monkeypatch.setattr(direction, "TOLERANCE", 1e-11)
    monkeypatch.setattr(leverage, "EXACT", 1e-10)
    monkeypatch.setattr(scoring, "NEAR", 0.0)
    monkeypatch.setattr(scoring, "CLOSE", -1.0)
    monkeypatch.setattr(scoring, "SWUNG", -1.0)
    monkeypatch.setattr(scoring, "FELT", -1.0)
    monkeypatch.setattr(ripples, "QUIET", -1.0)


def dense_scores(model: nn.Module, data: Data, requests: list[uw.Request]) -> list[float]:
    """[q(θ; G') − q(θ; G)] + Σ_u ⟨s_u, Jᵀr − J'ᵀr''⟩ + Σ_u≠w ⟨heed_u, δ_w⟩ with dense matrices, one after the other."""
    here = objective(model, data)
    theta, nodes, steps = flatten(model), data.train_mask.nonzero().flatten().tolist(), range(int(data.num_classes))

    def total(at: Tensor) -> Tensor:
        losses = cross_entropy(here.outputs(at)[data.train_mask], data.y[data.train_mask])
        return losses.sum() + (here.mu * at.square()).sum() / 2

    def quantity(at: Tensor) -> Tensor:
        return cross_entropy(here.outputs(at)[data.val_mask], data.y[data.val_mask]).mean()

    def slopes(z: Tensor) -> Tensor:
        return torch.softmax(z, dim=-1) - torch.nn.functional.one_hot(data.y, len(steps))

    def equation(x: Any, start: Tensor, free: Tensor, one: Tensor) -> Any:
        """x − z' − J' H₋⁻¹ (Jᵀ r − J'ᵀ r(x))."""
        z = torch.from_numpy(x)
        return (z - start + free @ (torch.softmax(z, dim=-1) - one)).numpy()

    s = torch.linalg.solve(hessian(total)(theta), torch.func.grad(quantity)(theta))
    z, jacobian = here.outputs(theta), torch.func.jacrev(here.outputs)(theta)
    r, p = slopes(z), torch.softmax(z, dim=-1)
    bend = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    whole = torch.einsum("nci,ncd,ndj->ij", *((t[data.train_mask]) for t in (jacobian, bend, jacobian)))
    whole = whole + here.mu.diag()
    without = {u: torch.linalg.inv(whole - jacobian[u].T @ bend[u] @ jacobian[u]) for u in nodes}
    more = {u: without[u] @ jacobian[u].T @ bend[u] @ jacobian[u] @ s for u in nodes}
    found = []
    for request in requests:
        left = remove(data, request)
        there = objective(model, left.data)
        after, moved = there.outputs(theta), torch.func.jacrev(there.outputs)(theta)
        effect = validation(model, left.data, data, left.nodes) - validation(model, data, data, left.nodes)
        effect += float(s @ ((here.mu - there.mu) * theta))
        lone, heeds, gives = [], [], []  # each training node's step by itself, and how it heeds those of others
        for u in nodes:
            pull, gone = jacobian[u].T @ r[u], jacobian[u].T @ bend[u] @ jacobian[u]
            effect += float(jacobian[u] @ (s + more[u]) @ r[u])
            if left.data.train_mask[u]:
                one = torch.eye(len(steps), dtype=z.dtype)[data.y[u]]
                felt = moved[u] @ without[u]
                free, start = felt @ moved[u].T, after[u] + felt @ jacobian[u].T @ r[u]
                last = torch.from_numpy(root(equation, after[u].numpy(), (start, free, one), tol=1e-12).x)
                share = torch.softmax(last, dim=-1)
                effect -= float(moved[u] @ (s + more[u]) @ (share - one))
                pull -= moved[u].T @ (share - one)
                gone = gone - moved[u].T @ (share.diag() - share[:, None] * share) @ moved[u]
            lone.append(without[u] @ pull)
            heeds.append(whole @ torch.linalg.solve(whole - gone, gone @ s))
            gives.append(torch.linalg.solve(whole - gone, gone))
        step, counted = torch.stack(lone).sum(dim=0), data.val_mask.clone()
        first = sum(float(heed @ (step - own)) for heed, own in zip(heeds, lone, strict=True))
        again = [give @ (step - own) for give, own in zip(gives, lone, strict=True)]
        last = torch.stack(again).sum(dim=0)
        second = sum(float(heed @ (last - own)) for heed, own in zip(heeds, again, strict=True))
        share = first / (first - second) if first * second < 0 else 1.0
        effect, step = effect + first + share * second, step + share * last
        effect -= float((r * (jacobian @ step))[counted].sum()) / int(data.val_mask.sum())
        counted[left.nodes] = False  # a deleted node has no part in the quantity
        effect += float((slopes(after) * (moved @ step))[counted].sum()) / int(data.val_mask.sum())
        found.append(effect)
    return found


def requests(data: Data, kind: str, found: Any) -> list[uw.Request]:
    if kind == "edges":
        return [uw.Request(edges=[(a, b)]) for a, b in found.edge_index.t().tolist()]
    if kind == "labels":
        return [uw.Request(labels=[i]) for i in data.train_mask.nonzero().flatten().tolist()]
    if kind == "rows":
        return [uw.Request(features={i: "all"}) for i in data.x.any(dim=1).nonzero().flatten().tolist()]
    return [uw.Request(nodes=[i]) for i in range(data.num_nodes)]


def chosen(data: Data, kind: str, found: Any) -> list[float]:
    scores: Tensor = found.scores(kind)
    mask = {"labels": data.train_mask, "rows": data.x.any(dim=1)}.get(kind)
    picked: list[float] = (scores if mask is None else scores[mask]).tolist()
    return picked


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["sgc", "gcn", "sage"])
def test_the_formula_with_a_dense_hessian(name: str, every: int) -> None:
    """Of every kind each eighth item, and, being slow, each."""
    data = graph(24, 4)
    model = trained(name, data, **({} if name == "sgc" else {"hidden": 3, "activation": "tanh"}))
    found = look(model, data)
    assert found.subject.direction.curvature == "hessian"
    kinds = ("nodes", "labels", "edges", "rows")
    asked = [request for kind in kinds for request in requests(data, kind, found)[::every]]
    scores = [score for kind in kinds for score in chosen(data, kind, found)[::every]]
    assert scores == pytest.approx(dense_scores(model, data, asked), abs=1e-7)


@pytest.mark.parametrize("kind", ["nodes", "labels", "edges", "rows"])
def test_retraining_a_convex_model(kind: str) -> None:
    """An error of second order: in a graph of four copies an item is a quarter of it, and the error a sixteenth."""
    once = graph(30, 4)
    errors = []
    for copies in (1, 4):
        data = together([once] * copies)
        model = trained("sgc", data)
        found = look(model, data)
        asked = requests(data, kind, found)
        ends = dict(zip(map(str, asked), chosen(data, kind, found), strict=True))
        some = asked[:6]
        actual = []
        for request in some:
            left = remove(data, request)
            after = validation(minimum(model, left.data), left.data, data, left.nodes)
            actual.append(after - validation(model, data, data, left.nodes))
        predicted = torch.tensor([ends[str(request)] for request in some])
        wanted = torch.tensor(actual)
        assert torch.corrcoef(torch.stack([predicted, wanted]))[0, 1] > 0.95
        errors.append(float((predicted - wanted).norm() * copies))
    assert errors[1] < 0.45 * errors[0]


def together(graphs: list[Data]) -> Data:
    """Graphs side by side as one."""
    size = graphs[0].num_nodes
    parts = {key: torch.cat([g[key] for g in graphs]) for key in ("x", "y", "train_mask", "val_mask", "test_mask")}
    edges = torch.cat([g.edge_index + i * size for i, g in enumerate(graphs)], dim=1)
    return Data(**parts, edge_index=edges, num_classes=graphs[0].num_classes)


def test_relabelling_nodes_relabels_scores() -> None:
    data = graph(30)
    model = trained("gcn", data, hidden=4, activation="tanh")
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    other = Data(**{key: data[key][order] for key in ("x", "y", "train_mask", "val_mask", "test_mask")})
    other.edge_index = place[data.edge_index]
    one, two = look(model, data), look(model, other)
    assert two.value == pytest.approx(one.value)
    for kind in ("nodes", "labels", "rows"):
        assert torch.allclose(two.scores(kind), one.scores(kind)[order], atol=1e-8)
    pairs = {tuple(sorted(pair)): score for pair, score in zip(one.edge_index.t().tolist(), one.edges, strict=True)}
    for (a, b), score in zip(order[two.edge_index].t().tolist(), two.edges, strict=True):
        assert float(score) == pytest.approx(
            float(pairs[min(a, b), max(a, b)]), abs=1e-6
        )  # J' x is in single precision


@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_chunks_do_not_change_scores(name: str) -> None:
    data = graph(30)
    model = uw.models.build(name, data.num_features, data.num_classes, hidden=4).double()
    one, two = look(model, data), look(model, data, memory_mib=1.0)
    assert two.subject.leverage is not None
    for kind in ("nodes", "edges"):
        assert torch.allclose(one.scores(kind), two.scores(kind), atol=1e-9)


def test_any_module_has_the_scores_of_ours() -> None:
    """PyG's layers by copies of neighbourhoods, and ours by their layers, are the same model."""
    data = graph(30)
    ours = trained("gcn", data, hidden=4, activation="tanh")
    other = Plain(data.num_features, data.num_classes).double()
    names = {"conv1": "first", "conv2": "second"}
    renamed = {f"{names[key.partition('.')[0]]}.{key.partition('.')[2]}": v for key, v in ours.state_dict().items()}
    other.load_state_dict(renamed)
    one, two = look(ours, data), look(other, data)
    for kind in ("nodes", "edges", "labels", "features", "rows"):
        assert torch.allclose(one.scores(kind), two.scores(kind), atol=1e-7)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("name", ["sgc", "gcn", "sage", "sign"])
def test_columns_followed_through_the_layers_are_those_by_differences(name: str, unit: bool) -> None:
    """A function of the user's may read the features, so that it is differentiated as a whole."""
    data = graph(30)
    torch.manual_seed(0)
    how = {} if name == "sgc" else {"hidden": 4, "activation": "tanh"}
    model = uw.models.build(name, data.num_features, data.num_classes, unit=unit, **how).double()

    def loss(outputs: Tensor, data: Data) -> Tensor:
        return cross_entropy(outputs[data.val_mask], data.y[data.val_mask]).mean()

    assert torch.allclose(look(model, data).features, look(model, data, loss).features, rtol=1e-5, atol=1e-8)


def test_regression() -> None:
    data = graph(30)
    data.y = (data.x @ torch.linspace(-1, 1, data.num_features, dtype=torch.float64))[:, None]
    torch.manual_seed(0)
    model = minimum(Plain(data.num_features, 1), data, squared_error)
    node = int(data.val_mask.nonzero()[0])
    found = look(model, data, f"node:{node}", loss=squared_error)
    assert found.value == pytest.approx(float(model(data.x, data.edge_index)[node].detach()))
    best = found.top("labels", 1)[0]
    left = remove(data, uw.Request(labels=[best.item]))
    after = minimum(model, left.data, squared_error)(data.x, data.edge_index)[node]
    assert float(after.detach()) - found.value == pytest.approx(best.effect, rel=0.35)


def test_float32_gives_the_scores_of_float64() -> None:
    data = graph(30)
    model = trained("gcn", data, hidden=4, activation="tanh")
    single = data.clone()
    single.x = data.x.float()
    one, two = look(model, data), look(copy.deepcopy(model).float(), single)
    for kind in ("nodes", "labels", "edges"):
        assert torch.corrcoef(torch.stack([one.scores(kind), two.scores(kind)]))[0, 1] > 0.999


def test_quantities() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    with torch.no_grad():
        outputs = model(data.x, data.edge_index)
    first, second = outputs[3].topk(2)[0].tolist()
    margin = look(model, data, "node:3")
    assert margin.value == pytest.approx(first - second)
    assert margin.nodes[3] == 0
    groups = data.x[:, 0] > 0.5
    gap = look(model, data, uw.Gap(groups, ~groups))
    losses = cross_entropy(outputs, data.y)
    wanted = losses[groups & data.val_mask].mean() - losses[~groups & data.val_mask].mean()
    assert gap.value == pytest.approx(float(wanted))
    parity = look(model, data, uw.Gap(groups, ~groups, of=1))
    shares = outputs.softmax(dim=-1)[:, 1]
    assert parity.value == pytest.approx(float(shares[groups].mean() - shares[~groups].mean()))
    label = int(data.y[data.val_mask][0])
    mine = data.val_mask & (data.y == label)
    assert look(model, data, f"class:{label}").value == pytest.approx(float(losses[mine].mean()))


def test_a_function_of_the_users_is_scored_by_its_slope() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    own = look(model, data, lambda outputs, data: cross_entropy(outputs[data.val_mask], data.y[data.val_mask]).mean())
    ready = look(model, data)
    assert own.value == pytest.approx(ready.value)
    assert torch.allclose(own.labels, ready.labels, atol=1e-9)
    assert torch.corrcoef(torch.stack([own.edges, ready.edges]))[0, 1] > 0.98


def test_test_labels_are_never_read() -> None:
    data = graph(40)
    model = trained("gcn", data, hidden=4, activation="tanh")
    hidden = data.clone()
    hidden.y = torch.where(data.test_mask, -1, data.y)
    one, two = look(model, data), look(model, hidden)
    for kind in ("nodes", "labels", "edges", "features"):
        assert torch.equal(one.scores(kind), two.scores(kind))


def test_a_group_is_a_set_and_not_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLOSE", "SWUNG"):  # a group is not looked at closely
        monkeypatch.setattr(scoring, name, torch.inf)
    data = graph(30)
    model = trained("gcn", data, hidden=4, activation="tanh")
    found = look(model, data)
    for kind in ("labels", "edges", "rows"):
        one = found.top(kind, 1)
        assert found.group(one) == pytest.approx(one[0].effect, rel=0.05)  # in which nodes answer each by itself
    pair = found.top("edges", 3)
    assert abs(found.group(pair) - sum(one.effect for one in pair)) > 1e-6


def test_functional_call_is_what_is_inspected() -> None:
    """The reference of these tests is the model itself."""
    data = graph(24, 4)
    model = trained("sgc", data)
    named = dict(model.named_parameters())
    torch.testing.assert_close(
        functional_call(model, named, (data.x, data.edge_index)), objective(model, data).outputs(flatten(model))
    )


def test_columns_of_a_group_are_added_up() -> None:
    """Weights on a column go with it; a step on the graph without it does not know that, and goes far beyond."""
    data = graph(80, 12)
    found = look(trained("sgc", data), data)
    best = found.top("features", 3)
    assert found.group(best) == found.group(found.request(best)) == pytest.approx(sum(one.effect for one in best))
    with pytest.raises(uw.RequestError):
        found.group(uw.Request(features={0: [data.num_features]}))
    rows = dict(found.request(best[0]).features)
    rows.pop(next(iter(rows)))
    assert found.group(uw.Request(features=rows)) != pytest.approx(best[0].effect)  # one node keeps it: a step
    edge = found.top("edges", 1)[0]
    mixed = pytest.approx(sum(one.effect for one in best) + found.group(edge))
    assert found.group([*best, edge]) == mixed, "whole columns by their scores, the rest by a step without it"
    confirmed = found.confirm(3, "features")
    assert confirmed.together.predicted == found.group(best)
    off = step = 0.0
    for one, done in zip(best, confirmed.each, strict=True):
        left = remove(found.subject.data, found.request(one))
        straight = found.subject.scorer.together(*found.subject.outputs(left.data), left.nodes, left.labels)
        off, step = off + abs(one.effect - done.actual), step + abs(straight - done.actual)
    assert off < 0.5 * step


def test_a_regression_whose_outputs_are_one_number_a_node_is_served() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(4, 1)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.conv(x, edge_index).squeeze(-1)
            return out

    data = graph()
    data.x, data.y = data.x[:, :4].float(), data.x[:, 0].float()
    run = uw.Run(Flat(), data, weight_decay=1e-2, loss=nn.MSELoss())
    assert torch.isfinite(run.inspect("validation").labels).all()
    assert run.forget(uw.Request(nodes=[5]), "gif").receipts[-1].status == "done"


def test_outputs_of_one_number_may_have_an_axis_or_not() -> None:
    data = graph(24, features=3)
    data.y = data.x.sum(dim=1)

    class Number(nn.Module):
        def __init__(self, *, axis: bool) -> None:
            super().__init__()
            self.layer, self.axis = GCNConv(3, 1), axis

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            found: Tensor = self.layer(x, edge_index)
            return found if self.axis else found[:, 0]

    torch.manual_seed(0)
    without, axis = Number(axis=False).double(), Number(axis=True).double()
    axis.load_state_dict(without.state_dict())
    loss = Loss(lambda outputs, y: (outputs.reshape(y.shape) - y).square())
    found = [look(model, data, loss=loss) for model in (without, axis)]
    for kind in ("labels", "nodes", "edges", "rows"):
        torch.testing.assert_close(*(each.scores(kind) for each in found))
