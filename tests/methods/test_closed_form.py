"""The closed form for one graph convolution, against dense automatic differentiation in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, hessian
from torch_geometric.nn import GCNConv, GINConv, SGConv

import unweave as uw
from tests.cases import DECAY, FEATURES, LAYERS, LOSSES, OUTPUTS, REQUESTS, Case, Net, dense_loss
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.graph.removal import remove
from unweave.methods.baselines.closed_form import _pose, exact_hessian, forgotten
from unweave.methods.problem import Problem
from unweave.objective.decay import decay_vector
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph


class Turned(nn.Module):
    """A weight matrix stored as [features, classes], square on request, and a bias that is propagated along."""

    def __init__(self, outputs: int = OUTPUTS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))
        self.pass_on = SGConv(outputs, outputs, K=1, bias=False)
        self.pass_on.lin.weight = None
        self.pass_on.lin.forward = lambda x: x

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.pass_on(x @ self.weight + self.bias, edge_index)  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "sgc": lambda: uw.models.SGC(FEATURES, OUTPUTS),
    "sgconv": LAYERS["sgc"],
    "gcn": lambda: Net(GCNConv(FEATURES, OUTPUTS)),
    "gcn-without-bias": lambda: Net(GCNConv(FEATURES, OUTPUTS, bias=False)),
    "gin": lambda: Net(GINConv(nn.Linear(FEATURES, OUTPUTS))),
    "turned": Turned,
    "square": lambda: Turned(FEATURES),
}


def pose(name: str, request: str = "mixed", directed: bool = False) -> Problem:
    case = Case("sgc", "cross-entropy", request, directed)
    torch.manual_seed(1)
    model = MODELS[name]().double().eval()
    data, meter, decay = case.graph(), Meter(torch.device("cpu")), decay_vector(model, DECAY)
    removal = remove(data, case.forget(data))
    before, after = (Objective(model, d, LOSSES["cross-entropy"], decay, call, meter) for d in (data, removal.data))
    return Problem(before, after, flatten(model), removal, 0, meter)


def propagated(problem: Problem) -> Tensor:
    """(D + I)^−½ (A + I) (D + I)^−½ written down with dense matrices."""
    data = problem.original.data
    adjacency = torch.eye(data.num_nodes, dtype=torch.float64)
    for u, v in data.edge_index.t().tolist():
        adjacency[v, u] += 1
    scale = adjacency.sum(dim=1).rsqrt()
    return scale[:, None] * adjacency * scale


def as_flat(index: Tensor, matrix: Tensor) -> Tensor:
    """A vector or a matrix over the entries of W, in the order of θ."""
    order = index.reshape(-1).argsort()
    flat = matrix.reshape(*[index.numel()] * (matrix.dim() // 2))
    return flat[order] if flat.dim() == 1 else flat[order][:, order]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ["sgc", "sgconv", "gcn", "gcn-without-bias", "turned", "square"])
def test_the_propagated_features_are_recovered(name: str, directed: bool) -> None:
    problem = pose(name, directed=directed)
    step, x, ones = propagated(problem), problem.original.data.x, torch.ones(14, 1, dtype=torch.float64)
    expected = {
        "sgc": step @ step @ x,
        "sgconv": torch.cat([step @ step @ x, ones], dim=1),
        "gcn": torch.cat([step @ x, ones], dim=1),
        "gcn-without-bias": step @ x,
        "turned": step @ torch.cat([x, ones], dim=1),
        "square": step @ torch.cat([x, ones], dim=1),
    }[name]
    index, original, _ = _pose(problem)
    torch.testing.assert_close(original.features, expected[problem.original.nodes], rtol=1e-12, atol=1e-14)
    outputs = problem.at_original.outputs.detach()[problem.original.nodes]
    torch.testing.assert_close(original.features @ problem.theta[index], outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_hessian_is_the_dense_one_and_the_papers_is_its_diagonal_blocks(name: str, directed: bool) -> None:
    problem = pose(name, directed=directed)
    index, *both = _pose(problem)
    for at, objective in zip(both, (problem.original, problem.remaining), strict=True):
        dense = hessian(dense_loss(objective))(problem.theta)
        exact = exact_hessian(at)
        torch.testing.assert_close(as_flat(index, exact), dense)
        V = torch.randn(index.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(at.product(V), torch.einsum("ajbk,bk->aj", exact, V))
        for j in range(index.size(1)):
            torch.testing.assert_close(at.block(j), exact[:, j, :, j])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("request_kind", REQUESTS)
@pytest.mark.parametrize("name", MODELS)
def test_the_parts_add_up_and_each_step_is_a_dense_solve(name: str, request_kind: str, directed: bool) -> None:
    """v is ∇L0 − ∇L'; with the old graph's Hessian the step is the paper's Theorem 2, undamped."""
    problem = pose(name, request_kind, directed)
    index, original, remaining = _pose(problem)
    W = problem.theta[index]
    v = as_flat(index, sum(forgotten(original, remaining, W).values()))
    torch.testing.assert_close(v, problem.forgotten_gradient, rtol=1e-9, atol=1e-11)
    before, after = dense_loss(problem.original), dense_loss(problem.remaining)
    expected = grad(before)(problem.theta) - grad(after)(problem.theta)
    for graph, loss in (("original", before), ("remaining", after)):
        dense = hessian(loss)(problem.theta)
        done = uw.methods.ClosedForm(graph=graph).forget(problem)
        torch.testing.assert_close(
            done.theta - problem.theta, torch.linalg.solve(dense, expected), rtol=1e-7, atol=1e-9
        )
        blocks = torch.zeros_like(dense)
        for column in index.T:
            blocks[column[:, None], column] = dense[column[:, None], column]
        done = uw.methods.ClosedForm("block-diagonal", graph).forget(problem)
        torch.testing.assert_close(
            done.theta - problem.theta, torch.linalg.solve(blocks, expected), rtol=1e-7, atol=1e-9
        )


@pytest.mark.parametrize("request_kind", REQUESTS)
def test_it_is_the_undamped_step_of_gif(request_kind: str) -> None:
    case = Case("sgc", "cross-entropy", request_kind, False)
    data, model = case.graph(), case.model()
    request = case.forget(data)
    own = uw.unlearn(model, data, request, "closed-form", weight_decay=DECAY)
    gif = uw.unlearn(model, data, request, "gif", weight_decay=DECAY, damping=0, tolerance=1e-12, iterations=2000)
    torch.testing.assert_close(flatten(own.model), flatten(gif.model), rtol=1e-8, atol=1e-10)
    assert own.receipt.solve is not None
    assert own.receipt.solve["relative_residual"] <= 1e-10
    assert own.receipt.details["neighbourhood_pull"] >= 0


def test_weight_decay_by_name_is_kept_apart() -> None:
    case = Case("sgc", "cross-entropy", "mixed", False)
    data, model = case.graph(), case.model()
    options = {"weight_decay": {"layers.0.lin.weight": 0.1, "layers.0.lin.bias": 0.02}}
    own = uw.unlearn(model, data, case.forget(data), "closed-form", **options)
    gif = uw.unlearn(model, data, case.forget(data), "gif", damping=0, tolerance=1e-12, **options)
    torch.testing.assert_close(flatten(own.model), flatten(gif.model), rtol=1e-8, atol=1e-10)


def test_a_float32_model_is_solved_in_float64() -> None:
    data = uw.load("demo")
    model = uw.models.SGC(data.num_features, data.num_classes)
    uw.train(model, data, weight_decay=5e-3)
    done = uw.unlearn(model, data, uw.draw("edges:0.02", data), "closed-form", weight_decay=5e-3)
    assert flatten(done.model).dtype == torch.float32
    assert done.receipt.solve is not None
    assert done.receipt.solve["relative_residual"] <= 1e-10
    assert done.receipt.residual_influence is not None
    assert done.receipt.residual_influence < 0.5


def test_a_request_that_no_training_node_feels_leaves_the_parameters() -> None:
    data = Case("gcn", "cross-entropy", "edges", True).graph()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[12], [13]])], dim=1)
    data.train_mask[[12, 13]] = False
    model = Net(GINConv(nn.Linear(FEATURES, OUTPUTS))).double()
    done = uw.unlearn(model, data, uw.Request(edges=[(12, 13)]), "closed-form", weight_decay=DECAY)
    assert torch.equal(flatten(done.model), flatten(model))
    assert any("already those" in warning for warning in done.receipt.warnings)


class Bent(nn.Module):
    """One weight matrix, and not linear in it."""

    def __init__(self, bend: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.bend = GCNConv(FEATURES, OUTPUTS), bend

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.bend(self.conv(x, edge_index))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (LAYERS["gcn"], "not one weight matrix for 2 classes"),
        (LAYERS["gat"], "not one weight matrix for 2 classes"),
        (lambda: Net(GCNConv(FEATURES, OUTPUTS), nn.BatchNorm1d(OUTPUTS)), "not one weight matrix"),
        (lambda: Bent(torch.tanh), "not linear in the parameters"),
        (lambda: Bent(torch.relu), "not linear in the parameters"),
        (lambda: Bent(lambda z: z.log_softmax(dim=1)), "leave that out"),
    ],
)
def test_other_models_are_refused_and_sent_to_gif(model: Callable[[], nn.Module], says: str) -> None:
    case = Case("gcn", "cross-entropy", "edges", False)
    data = case.graph()
    forward = call if says != "not one weight matrix" else lambda net, d: net.layers[0](d.x, d.edge_index)
    with pytest.raises(uw.ModelError, match=says) as caught:
        uw.unlearn(model().double(), data, case.forget(data), "closed-form", weight_decay=DECAY, forward=forward)
    assert "use method='gif'" in str(caught.value)


def test_other_losses_and_options_are_refused() -> None:
    case = Case("sgc", "squared", "edges", False)
    data = case.graph()
    with pytest.raises(uw.ModelError, match="is for cross-entropy"):
        uw.unlearn(case.model(), data, case.forget(data), "closed-form", weight_decay=DECAY, loss=LOSSES["squared"])
    with pytest.raises(uw.MethodError, match="hessian must be one of exact, block-diagonal"):
        uw.methods.ClosedForm("dense")
    with pytest.raises(uw.MethodError, match="graph must be one of"):
        uw.methods.ClosedForm(graph="new")


@pytest.mark.parametrize(("kind", "says"), [("exact", "exact Hessian is singular"), ("block-diagonal", "class 0 is")])
def test_too_few_nodes_without_weight_decay_are_refused(kind: str, says: str) -> None:
    data = small_graph(features=80)
    model = uw.models.SGC(80, 3)
    request = uw.Request(nodes=data.train_mask.nonzero().flatten()[:3].tolist())
    with tuned(baselines={"exact_iterations": 1000}):  # four times the unknowns
        uw.unlearn(model, data, request, "closed-form", weight_decay=1e-4, hessian=kind)  # which is enough
        with pytest.raises(uw.SolverError, match=says) as caught:
            uw.unlearn(model, data, request, "closed-form", weight_decay=0.0, hessian=kind)
    assert "weight_decay above 0" in str(caught.value)
