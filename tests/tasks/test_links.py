"""Link predictors: pairs of two classes or ranked lists, encoders and decoders of anyone's, and a closed form."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, hessian
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv

import unweave as uw
from tests.tasks.pairs import graph, linked, objective, recommender
from unweave.curvature.products import GaussNewton, Hessian
from unweave.errors import DataError, ModelError, RequestError
from unweave.graph.removal import remove
from unweave.models import Linker
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import log_probabilities
from unweave.tasks import Links
from unweave.tasks.pairs import drawn
from unweave.tasks.ranking import auc, hits_at

FORMS = [{"binary": True}, {"binary": True, "negatives": 3}, {"binary": False}, {"binary": False, "negatives": 4}]
"""Two classes; more negatives; BPR; a sampled softmax."""


class Encoder(nn.Module):
    """Somebody's own, as in PyG's examples: encode and decode."""

    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.conv = SAGEConv(features, 3)
        self.last = nn.Linear(3, 1)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.tanh(self.conv(x, edge_index))  # type: ignore[no-any-return]

    def decode(self, z: Tensor, pairs: Tensor) -> Tensor:
        return self.last(z[pairs[0]] * z[pairs[1]]).view(-1)  # type: ignore[no-any-return]


class Plain(nn.Module):
    """An encoder alone: pairs are scored by dot products."""

    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.conv = SAGEConv(features, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return kind().double()


def by_hand(model: nn.Module, task: Links) -> list[tuple[int, Tensor]]:
    """Label and scores of every training example, one pair after the other."""
    at = task.layout
    x, edges = task.x[at.real], task.edge_index[:, task.edge_type == 0]
    z = model.encode(x, edges) if hasattr(model, "encode") else model(x, edges)  # type: ignore[operator]
    found = []
    for number in task.train_mask[at.examples].nonzero().flatten().tolist():
        head = int(at.head[number])
        pairs = torch.tensor([[head, int(t)] for t in at.tails[number]]).t()
        scores = model.decode(z, pairs) if hasattr(model, "decode") else (z[pairs[0]] * z[pairs[1]]).sum(dim=1)  # type: ignore[operator]
        found.append((int(task.y[at.examples[number]]), scores))
    return found


@pytest.mark.parametrize("form", FORMS, ids=["two classes", "three negatives", "BPR", "softmax"])
@pytest.mark.parametrize("kind", [Encoder, Plain, lambda: Linker(4, 3)], ids=["decoder", "dot", "linker"])
def test_the_objective_is_the_sum_over_pairs_and_so_are_its_derivatives(form: Any, kind: Any) -> None:
    task, model = linked(**form), made(kind)
    here, theta = objective(model, task), flatten(model)
    total = torch.zeros((), dtype=torch.float64)
    for label, scores in by_hand(model, task):
        if form["binary"]:
            total += F.binary_cross_entropy_with_logits(scores[0], torch.tensor(float(label), dtype=torch.float64))
        else:
            total -= F.log_softmax(scores, dim=0)[label]
    total = total.detach() + 0.01 * int(task.train_mask.sum()) * theta.square().sum() / 2
    point = here.at(theta)
    assert math.isclose(point.value, float(total), rel_tol=1e-12)

    def dense(flat: Tensor) -> Tensor:
        losses = here.node_losses(here.outputs(flat))
        return losses.sum() + (here.mu * flat.square()).sum() / 2

    torch.testing.assert_close(point.gradient(), grad(dense)(theta))
    v = torch.randn(theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(Hessian(point)(v), hessian(dense)(theta) @ v)
    assert float(v @ GaussNewton(point)(v)) > 0


@pytest.mark.parametrize("form", FORMS[1:3], ids=["two classes", "BPR"])
def test_a_deleted_edge_takes_its_examples_and_what_was_drawn_for_them(form: Any) -> None:
    task, model = linked(**form), made(Encoder)
    at = task.layout
    first = int(task.train_mask[at.examples].nonzero()[0])
    u, v = int(at.head[first]), int(task.true_tails()[first])
    for request in (
        task.request(pairs=[(u, v)]),
        task.request(pairs=[(v, u)]),
        uw.Request(nodes=[int(at.examples[first])]),
    ):
        left = remove(task, request).data
        assert isinstance(left, Links)
        gone = int(task.train_mask.sum()) - int(left.train_mask.sum())
        assert gone == (4 if form["binary"] else 1)
        stored = {tuple(pair) for pair in left.edge_index[:, left.edge_type == 0].t().tolist()}
        assert not {(u, v), (v, u)} & stored
        kept = left.train_mask
        torch.testing.assert_close(left.y[kept], task.y[kept])
        others = torch.isin(at.examples, kept.nonzero().flatten())
        torch.testing.assert_close(left.layout.tails[others], at.tails[others])
    assert math.isfinite(objective(model, left).evaluate(flatten(model))[0])


def test_a_deleted_node_takes_every_pair_that_has_it() -> None:
    task = linked(binary=True, negatives=2)
    node = int(task.edge_index[0, 0])
    left = remove(task, task.request(nodes=[node])).data
    assert isinstance(left, Links)
    at = left.layout
    used = left.train_mask[at.examples] | left.val_mask[at.examples] | left.test_mask[at.examples]
    assert (at.head[used] != node).all()
    assert (at.tails[used] != node).all()
    assert (at.tails[used] >= 0).all()


def test_held_out_edges_carry_no_messages() -> None:
    task = linked(val=0.2, test=0.2)
    at, tail = task.layout, task.true_tails()
    messages = {tuple(pair) for pair in task.edge_index[:, task.edge_type == 0].t().tolist()}
    for part, there in (("train", True), ("val", False), ("test", False)):
        mask = task[f"{part}_mask"][at.examples] & (task.y[at.examples] == 1)
        assert mask.any()
        for u, v in zip(at.head[mask].tolist(), tail[mask].tolist(), strict=True):
            assert ((u, v) in messages) == there
            assert ((v, u) in messages) == there


def test_negatives_depend_on_seed_and_pair_alone() -> None:
    pairs = torch.randint(0, 50, (200, 2), generator=torch.Generator().manual_seed(0))
    pool = torch.arange(50)
    found = drawn(pairs, 3, 20, pool)
    assert (found != pairs[:, 1:]).all()
    torch.testing.assert_close(drawn(pairs[60:70], 3, 20, pool), found[60:70])
    assert not torch.equal(drawn(pairs, 4, 20, pool), found)
    counts = torch.bincount(found.flatten(), minlength=50).double()
    assert (counts / counts.mean() - 1).abs().max() < 0.35  # 80 of each expected, standard deviation 9
    assert torch.equal(torch.unique(found), pool)


def test_a_linear_link_predictor_has_a_closed_form_that_unlearning_reaches() -> None:
    """Scores wᵀ(x_u ∘ x_v) with a squared error: the ridge regression of the pairs that remain."""

    class Bilinear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, dtype=torch.float64))

        def reset_parameters(self) -> None:
            nn.init.zeros_(self.weight)

        def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x

        def decode(self, z: Tensor, pairs: Tensor) -> Tensor:
            return (z[pairs[0]] * z[pairs[1]]) @ self.weight

    def ridge(task: Links) -> Tensor:
        at = task.layout
        used = task.train_mask[at.examples]
        rows = task.x[at.head[used]] * task.x[task.true_tails()[used]]
        y = task.y[at.examples[used]].double()
        return torch.linalg.solve(rows.T @ rows + 0.05 * len(y) * torch.eye(4, dtype=torch.float64), rows.T @ y)

    loss = uw.Loss(lambda outputs, y: (outputs[:, 1] - y).square() / 2, "squared", convex=True)
    task, model = linked(binary=True, negatives=2), Bilinear()
    model.weight.data.copy_(ridge(task))
    for request in (uw.draw("edges:0.2", task), task.request(nodes=[3])):
        done = uw.unlearn(model, task, request, weight_decay=0.05, loss=loss)
        assert isinstance(done.data, Links)
        expected = ridge(done.data)
        assert (expected - model.weight).norm() > 1e-3
        torch.testing.assert_close(done.model.weight.detach(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("examined")
def test_a_linker_forgets_as_if_retrained() -> None:
    draw = torch.Generator().manual_seed(3)
    groups = torch.randint(0, 4, (120,), generator=draw)
    x = F.one_hot(groups, 4) + 0.3 * torch.randn(120, 4, generator=draw)
    x = torch.cat([x, 0.3 * torch.randn(120, 12, generator=draw)], dim=1)
    close = torch.where(groups[:, None] == groups, 0.15, 0.01)
    edges = (torch.rand(120, 120, generator=draw) < close).triu(1).nonzero().t()
    task = Links.of(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1)))
    run = uw.train(Linker(16, 64), task, forgettable=True, weight_decay=1e-3)
    assert run.metrics["agreement"] > 0.99
    assert run.metrics["test_auc"] > 0.7
    for request in (uw.draw("edges:0.05", task), task.request(nodes=[7])):
        after, retrained = run.forget(request), run.forget(request, "retrain")
        used = retrained.data.train_mask | retrained.data.test_mask
        p, a, n = (
            log_probabilities(m, retrained.data)[used].double() for m in (retrained.model, after.model, run.model)
        )
        none, left = (float((p.exp() * (p - q)).sum()) for q in (n, a))
        assert left < 0.05 * none


def test_auc_and_hits_are_what_they_are_by_hand() -> None:
    positive, negative = torch.tensor([3.0, 1.0, 1.0]), torch.tensor([2.0, 1.0, 0.0, 0.0])
    wins = [(p > n) + 0.5 * (p == n) for p in positive.tolist() for n in negative.tolist()]
    assert math.isclose(auc(positive, negative), sum(wins) / 12)
    assert hits_at(1, positive, negative) == 1 / 3
    assert hits_at(3, positive, negative) == 1.0
    assert hits_at(9, positive, negative) == 1.0


BAD_GRAPHS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("no graph", [1, 2], {}, "plain"),
    ("several types", HeteroData(), {}, "plain"),
    ("links of links", linked(), {}, "plain"),
    ("no features", Data(edge_index=graph().edge_index, num_nodes=14), {}, "x and edge_index"),
    ("no edges", Data(x=torch.ones(3, 2), edge_index=torch.zeros(2, 0, dtype=torch.long)), {}, "no edges"),
    ("unknown node", Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [7]])), {}, "outside"),
    ("whole numbers", Data(x=torch.ones(3, 2).long(), edge_index=torch.tensor([[0], [1]])), {}, "floating-point"),
    ("short numbers", Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]]).int()), {}, "int64"),
    (
        "edge_attr",
        Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(1, 2)),
        {},
        "attr",
    ),
    ("all held out", graph(), {"val": 0.5, "test": 0.5}, "below 1"),
    ("share below zero", graph(), {"val": -0.1}, "below 1"),
    ("no negatives", graph(), {"negatives": 0}, "above 0"),
    ("seed below zero", graph(), {"seed": -3}, "at least 0"),
]


@pytest.mark.parametrize(
    ("data", "options", "says"), [row[1:] for row in BAD_GRAPHS], ids=[row[0] for row in BAD_GRAPHS]
)
def test_graphs_that_have_no_links_to_learn_are_refused(data: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Links.of(data, **options)


def _held(task: Links) -> tuple[int, int]:
    at = task.layout
    number = int(task.test_mask[at.examples].nonzero()[0])
    return int(at.head[number]), int(task.true_tails()[number])


BAD_REQUESTS: list[tuple[str, Any, str]] = [
    ("no edge", lambda t: t.request(pairs=[(0, 0)]), "not in the graph"),
    ("both ways", lambda t: uw.Request(edges=[(0, 13), (99, 0)]), "not in the graph"),
    ("an example's edge", lambda t: uw.Request(edges=[(0, 20)]), "example"),
    ("beyond", lambda t: uw.Request(nodes=[9_999]), "not in the graph"),
    ("column", lambda t: t.request(features={0: [17]}), "out of range"),
    ("everything", lambda t: t.request(nodes=range(14)), "every training node"),
]


@pytest.mark.parametrize(("ask", "says"), [row[1:] for row in BAD_REQUESTS], ids=[row[0] for row in BAD_REQUESTS])
def test_requests_that_make_no_sense_are_refused(ask: Any, says: str) -> None:
    task, model = linked(), made(Encoder)
    with pytest.raises(RequestError, match=says):
        uw.unlearn(model, task, ask(task), weight_decay=0.01)


def test_decoders_and_encoders_that_do_not_fit_are_refused() -> None:
    task = linked()

    class Short(Encoder):
        def decode(self, z: Tensor, pairs: Tensor) -> Tensor:
            return super().decode(z, pairs)[1:]

    with pytest.raises(ModelError, match="one score for each"):
        task.call(Short().double())
    with pytest.raises(ModelError, match="a decoder of dot, mlp"):
        Linker(4, decoder="cosine")
    with pytest.raises(ModelError, match="cached"):
        uw.unlearn(Cached().double(), task, uw.draw("edges:0.2", task), weight_decay=0.01)


class Cached(Plain):
    """Keeps the first graph it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.conv.cached = True


def test_a_part_of_the_graph_gives_the_same_scores() -> None:
    """So memory can be bounded, and a request deferred: what is asked of a task is read off its tensors."""
    task, model = linked(), made(Encoder)
    whole = Objective(
        model, task, uw.losses.cross_entropy, torch.full_like(flatten(model), 0.01), call, objective(model, task).meter
    )
    request = uw.draw("edges:0.1", task)
    plain = uw.unlearn(model, task, request, weight_decay=0.01)
    bounded = uw.unlearn(model, task, request, weight_decay=0.01, memory_mib=64)
    torch.testing.assert_close(flatten(bounded.model), flatten(plain.model), rtol=1e-4, atol=1e-6)
    assert whole.nodes.numel() == int(task.train_mask.sum())


def test_a_pair_asked_for_from_its_other_end_is_gone_already() -> None:
    task = linked(val=0.1)
    u, v = task.edge_index[:, 0].tolist()
    run = uw.Run(made(Encoder), task, weight_decay=0.01)
    after = run.forget([task.request(pairs=[(u, v)]), task.request(pairs=[(v, u)])])
    assert [receipt.status for receipt in after.receipts] == ["done", "nothing to do"]
    after.verify()
    held = run.forget(task.request(pairs=[_held(task)]))
    assert int(held.data.test_mask.sum()) == int(task.test_mask.sum()) - 2  # with the pair drawn for it


def test_models_of_pairs_take_graphs_of_pairs() -> None:
    plain = graph()
    plain.y, plain.train_mask = torch.zeros(14).long(), torch.ones(14).bool()
    for model in (uw.models.LightGCN(14, 2).double(), Linker(4, 2).double()):
        with pytest.raises(ModelError, match=r"unweave\.tasks\.Links"):
            uw.train(model, plain)


def test_tables_are_those_with_a_row_for_every_node() -> None:
    task = recommender()
    model = nn.Module()
    model.nodes, model.words = nn.Embedding(21, 2), nn.Embedding(5, 2)
    assert list(task.tables(model)) == ["nodes.weight"]
    assert torch.equal(task.tables(model)["nodes.weight"][0], torch.arange(21))


def test_an_example_whose_pair_is_gone_can_be_evaluated_alone() -> None:
    task, model = linked(), Linker(4, 8).double()
    removal = remove(task, uw.draw("edges:0.2", task))
    gone = removal.nodes[:1]
    part = removal.data.subgraph(gone)
    torch.testing.assert_close(part.call(model), removal.data.call(model)[gone])
