"""The built-in models give what PyG's layers give: parameters, outputs, derivatives, training."""

import copy
import gc
import pickle
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jvp
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv

import unweave as uw
from tests.plain import PLAIN
from unweave._core.cost import Meter
from unweave.curvature.products import GaussNewton, Hessian
from unweave.models import structure
from unweave.objective.decay import decay_vector
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn": ("gcn", {"hidden": 4}),
    "sgc": ("sgc", {}),
    "gin": ("gin", {"hidden": 4}),
    "gin-forgettable": ("gin", {"hidden": 7, "activation": "tanh", "aggregation": "mean"}),
    "gat": ("gat", {"hidden": 3, "heads": 2}),
    "gat-forgettable": ("gat", {"hidden": 3, "heads": 2, "temperature": 10.0}),
    "gcn-wide": ("gcn", {"hidden": 7, "activation": "tanh", "unit": True}),
    "gcn-deep": ("gcn", {"hidden": 4, "activation": "silu", "layers": 4}),
    "gcn-beside": ("gcn", {"hidden": 4, "activation": "tanh", "layers": 4, "beside": True}),
    "sgc-wide": ("sgc", {"unit": True}),
    "gin-wide": ("gin", {"hidden": 7, "activation": "silu", "aggregation": "mean", "perceptron": 1, "unit": True}),
    "gat-wide": ("gat", {"hidden": 7, "heads": 1, "activation": "tanh", "attention": "features", "unit": True}),
    "gat-deep": ("gat", {"hidden": 3, "heads": 2, "layers": 3}),
    "gat-beside": ("gat", {"hidden": 4, "heads": 1, "attention": "features", "layers": 3, "beside": True}),
    "sage": ("sage", {"hidden": 4}),
    "sage-wide": ("sage", {"hidden": 7, "activation": "tanh", "layers": 3, "unit": True, "beside": True}),
    "gcn-direct": ("gcn", {"hidden": 4, "activation": "tanh", "layers": 3, "beside": True, "direct": 3.0}),
    "sage-direct": ("sage", {"hidden": 7, "activation": "tanh", "unit": True, "direct": 3.0}),
    "gin-direct": ("gin", {"hidden": 4, "aggregation": "mean", "layers": 3, "direct": 3.0}),
    "gat-direct": ("gat", {"hidden": 4, "heads": 1, "attention": "features", "layers": 3, "direct": 3.0}),
    "sign-direct": ("sign", {"hidden": 4, "direct": 3.0}),
    "sign": ("sign", {"hidden": 4}),
    "sign-wide": ("sign", {"hidden": 7, "layers": 2, "unit": True}),
}
WEIGHTED = ("gcn", "sgc", "sign", "gcn-wide", "gcn-beside", "gcn-direct", "sign-direct", "sgc-wide")
Forms = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True)
def _same_choice_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether features are taken as sparse depends on the machine; not here."""
    monkeypatch.setattr(structure, "densest", lambda device: 0.4)


def pair(form: str, *, features: int = 5, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """A built-in model and PyG's, each from the same seed, in float64."""
    name, options = FORMS[form]
    torch.manual_seed(seed)
    ours = uw.models.MODELS[name](features, 3, **options)
    torch.manual_seed(seed)
    theirs = PLAIN[name](
        features, 3, **{k: v for k, v in ours.config.items() if k not in ("in_channels", "out_channels")}
    )
    return ours.double().eval(), theirs.double().eval()


def odd_graph(*, directed: bool, weighted: bool = False, sparse: bool = True, nodes: int = 12) -> Data:
    """Self-loops, parallel edges, a node without edges and one without features."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(nodes, 5, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(nodes, 5, generator=generator) < (0.25 if sparse else 2))
    x[3] = 0
    edges = torch.randint(nodes - 1, (2, 24), generator=generator)
    edges = torch.cat([edges, torch.tensor([[2, 2, 0, 0], [2, 2, 1, 1]])], dim=1)
    if not directed:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    data = Data(x=x, edge_index=edges, y=torch.arange(nodes) % 3, train_mask=torch.arange(nodes) < nodes - 2)
    if weighted:
        data.edge_weight = torch.rand(edges.size(1), generator=generator, dtype=torch.float64) + 0.1
    return data


def objective_of(model: nn.Module, data: Data) -> Objective:
    decay = decay_vector(model, 0.01)
    return Objective(model, data, uw.losses.cross_entropy, decay, call, Meter(torch.device("cpu")))


@Forms
def test_parameters_their_names_and_the_random_stream_are_those_of_pyg(form: str) -> None:
    ours, theirs = pair(form)
    after = torch.rand(3)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    pair(form)[1]
    assert torch.equal(torch.rand(3), after)
    kinds = {GCNConv, GINConv, GATConv, APPNP}
    for name, layer in theirs.named_modules():
        kind = next((k for k in kinds if isinstance(layer, k)), None)
        if kind is not None:
            assert isinstance(ours.get_submodule(name), kind)


@Forms
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
def test_outputs_gradients_and_products_are_those_of_pyg(
    form: str, sparse: bool, directed: bool, weighted: bool
) -> None:
    if weighted and form not in WEIGHTED:
        pytest.skip("takes no weights")
    data = odd_graph(directed=directed, weighted=weighted, sparse=sparse)
    assert (structure.features(data.x) is not None) == sparse
    ours, theirs = pair(form)
    theta = flatten(ours)
    v = torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here, there = objective_of(ours, data).at(theta), objective_of(theirs, data).at(theta)
    torch.testing.assert_close(here.outputs, there.outputs)
    torch.testing.assert_close(here.gradient(), there.gradient())
    for operator in (GaussNewton, Hessian):
        torch.testing.assert_close(operator(here)(v), operator(there)(v))
    with torch.no_grad():
        torch.testing.assert_close(call(ours, data), there.outputs.detach())
    with torch.inference_mode():
        torch.testing.assert_close(call(ours, data), there.outputs.detach())


@Forms
@pytest.mark.parametrize("edges", [0, 3])
def test_graphs_with_next_to_nothing_in_them(form: str, edges: int) -> None:
    x, edge_index = torch.zeros(4, 5, dtype=torch.float64), torch.arange(2 * edges).view(2, -1) % 3
    ours, theirs = pair(form)
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))


@Forms
def test_the_first_call_may_be_inside_a_transform(form: str) -> None:
    """What is remembered then is as good afterwards, and the other way round."""
    ours, theirs = pair(form)
    data = odd_graph(directed=True)
    weights = dict(ours.named_parameters())
    name = next(name for name in weights if name.endswith("bias") or name == "linear.weight")
    value = weights[name].detach()

    def loss(model: nn.Module, value: Tensor) -> Tensor:
        return functional_call(model, {name: value}, (data.x, data.edge_index)).tanh().square().sum()

    torch.testing.assert_close(hessian(partial(loss, ours))(value), hessian(partial(loss, theirs))(value))
    for model in (ours, theirs):
        assert torch.isfinite(jvp(partial(loss, model), (value,), (value + 1,))[1])
    slopes = [torch.autograd.grad(loss(m, m.get_parameter(name)), m.get_parameter(name))[0] for m in (ours, theirs)]
    torch.testing.assert_close(*slopes)
    structure.normalised(data.edge_index, None, 12, torch.float64)
    torch.testing.assert_close(hessian(partial(loss, ours))(value), hessian(partial(loss, theirs))(value))


@Forms
def test_derivatives_by_features_and_by_edge_weights_are_those_of_pyg(form: str) -> None:
    data = odd_graph(directed=True, weighted=form in WEIGHTED)
    ours, theirs = pair(form)
    found = []
    for model in (ours, theirs):
        inputs = {"x": data.x.clone().requires_grad_()}
        if form in WEIGHTED:
            inputs["edge_weight"] = data.edge_weight.clone().requires_grad_()
        total = model(edge_index=data.edge_index, **inputs).tanh().square().sum()
        found.append(torch.autograd.grad(total, list(inputs.values())))
    torch.testing.assert_close(*found)
    tangent = torch.ones_like(data.x)
    forward = [jvp(lambda x, m=m: m(x, data.edge_index), (data.x,), (tangent,))[1] for m in (ours, theirs)]
    torch.testing.assert_close(*forward)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(data.x, tangent)
        seen = torch.autograd.forward_ad.unpack_dual(ours(dual, data.edge_index)).tangent
    torch.testing.assert_close(seen, forward[1])


@Forms
def test_explainers_and_hooks_see_the_messages(form: str) -> None:
    data = odd_graph(directed=True)
    ours, _ = pair(form)
    before = ours(data.x, data.edge_index)
    explainer = Explainer(
        ours,
        GNNExplainer(epochs=3),
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type="attributes",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(data.x, data.edge_index, index=0)
    assert float(explanation.edge_mask.max()) > 0
    torch.testing.assert_close(ours(data.x, data.edge_index), before)
    alike = FORMS[form][1].get("attention") == "features"
    name = "gat-wide" if alike else form.partition("-")[0]
    layer = ours.get_submodule({"sgc": "propagate", "sign": "step"}.get(name, "conv1"))
    calls: list[str] = []
    handle = layer.register_propagate_forward_pre_hook(lambda *_: calls.append("propagate"))  # type: ignore[operator, union-attr]
    torch.testing.assert_close(ours(data.x, data.edge_index), before)
    assert calls
    handle.remove()
    linear = {
        "gat-wide": "conv1.lin_rel",
        "gin": "conv1.nn.0",
        "sage": "conv1.lin_l",
        "sgc": "linear",
        "sign": "distances.0",
    }
    ours.get_submodule(linear.get(name, "conv1.lin")).register_forward_hook(lambda *_: calls.append("linear"))
    torch.testing.assert_close(ours(data.x, data.edge_index), before)
    assert "linear" in calls


@Forms
@pytest.mark.parametrize("what", ["x", "edge_index", "edge_weight"])
def test_a_write_to_the_graph_is_noticed(form: str, what: str) -> None:
    if what == "edge_weight" and form not in WEIGHTED:
        pytest.skip("takes no weights")
    data = odd_graph(directed=True, weighted=form in WEIGHTED)
    ours, theirs = pair(form)
    before = call(ours, data)
    torch.testing.assert_close(before, call(theirs, data))
    if what == "x":
        data.x[0] = torch.arange(5)
    elif what == "edge_index":
        data.edge_index[:, 0] = torch.tensor([3, 0])
    else:
        data.edge_weight.mul_(torch.arange(1, data.edge_weight.numel() + 1))
    after = call(ours, data)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, call(theirs, data))


@Forms
def test_copies_moves_and_types(form: str) -> None:
    data = odd_graph(directed=False)
    ours, theirs = pair(form)
    expected = theirs(data.x, data.edge_index)
    ours(data.x, data.edge_index)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours.to("cpu")):
        torch.testing.assert_close(again(data.x, data.edge_index), expected)
    single = copy.deepcopy(ours).float()(data.x.float(), data.edge_index)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-4)


def test_what_is_remembered_goes_with_the_graph() -> None:
    data = odd_graph(directed=False)
    uw.models.GCN(5, 3).double()(data.x, data.edge_index).sum().backward()
    gone = [
        weakref.ref(structure.features(data.x)),
        weakref.ref(structure.normalised(data.edge_index, None, 12, torch.float64)),
    ]
    gc.disable()
    del data
    assert [there() for there in gone] == [None, None]
    gc.enable()


@Forms
def test_an_edge_to_nowhere_is_refused(form: str) -> None:
    ours, _ = pair(form)
    with pytest.raises(uw.DataError, match="edge_index names nodes 0 to 9"):
        ours(torch.ones(4, 5, dtype=torch.float64), torch.tensor([[0, 1], [1, 9]]))


def trained_alike(ours: nn.Module, theirs: nn.Module, data: Data, epochs: int) -> list[Tensor]:
    for model in (ours, theirs):
        uw.train(model, data, seed=3, epochs=epochs, weight_decay=1e-3)
    return [flatten(model) for model in (ours, theirs)]


@Forms
def test_training_from_a_seed_is_that_of_pyg(form: str) -> None:
    data = small_graph()
    data.x = data.x.double()
    ours, theirs = pair(form, features=8)
    torch.testing.assert_close(*trained_alike(ours, theirs, data, 20), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", [f for f in FORMS if "-" not in f or "forgettable" in f])
def test_on_a_real_graph(form: str, real_data: Path) -> None:
    data = uw.split(uw.load("cora", root=real_data), seed=0)
    data.x = data.x[:, ::4].double()
    name, options = FORMS[form]
    ours = uw.models.MODELS[name](data.num_features, 7, **options).double()
    config = {k: v for k, v in ours.config.items() if k not in ("in_channels", "out_channels")}
    theirs = PLAIN[name](data.num_features, 7, **config).double()
    torch.testing.assert_close(*trained_alike(ours, theirs, data, 3), rtol=1e-6, atol=1e-8)
    theta = flatten(ours)
    points = [objective_of(model, data).at(theta) for model in (ours, theirs)]
    torch.testing.assert_close(points[0].outputs, points[1].outputs)
    torch.testing.assert_close(*(GaussNewton(point)(theta) for point in points), rtol=1e-8, atol=1e-8)


def test_a_layer_that_was_set_to_something_else_is_pygs() -> None:
    data = small_graph()
    ours = uw.models.GCN(8, 3).eval()
    theirs = PLAIN["gcn"](
        8, 3, hidden=16, layers=2, dropout=0.5, activation="relu", unit=False, beside=False, direct=0.0
    ).eval()
    theirs.load_state_dict(ours.state_dict())
    for model in (ours, theirs):
        model.conv1.add_self_loops = False
        model.conv2.bias = None
    torch.testing.assert_close(ours(data.x, data.edge_index), theirs(data.x, data.edge_index))
