"""What is written out for GCN and SGC is what autograd gives."""

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import Meter
from unweave.curvature.products import GaussNewton
from unweave.graph.neighbourhood import halo
from unweave.graph.view import GraphView
from unweave.models.reach import Reach
from unweave.models.sweep import sweep_of
from unweave.objective.losses import binary_cross_entropy, cross_entropy, squared_error, with_slope
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

MODELS = {"gcn": uw.models.GCN, "sgc": uw.models.SGC}
LOSSES = {"classes": cross_entropy, "labels": binary_cross_entropy, "numbers": squared_error}


def graph(kind: str, loss: str) -> Data:
    data, generator = small_graph(), torch.Generator().manual_seed(0)
    data.x = data.x.double()
    if kind == "sparse":
        data.x = data.x * (torch.rand(data.x.shape, generator=generator) < 0.04)
    if kind == "directed":
        loops = torch.tensor([[0, 3, 3], [0, 3, 3]])
        data.edge_index = torch.cat([data.edge_index[:, ::2], loops, data.edge_index[:, :4]], dim=1)
        data.edge_weight = torch.rand(data.edge_index.size(1), generator=generator, dtype=torch.float64)
    if loss != "classes":
        data.y = torch.rand(data.num_nodes, 3, generator=generator, dtype=torch.float64)
    return data


def objectives(name: str, data: Data, loss: str) -> tuple[Objective, Objective, Tensor]:
    """One that is swept, one that is differentiated, and where."""
    torch.manual_seed(1)
    model = MODELS[name](8, 3).double()
    theta = flatten(model) + 0.1 * torch.randn(flatten(model).shape, dtype=torch.float64)
    swept, plain = (
        Objective(model, data, LOSSES[loss], torch.full_like(theta, 1e-3), call, Meter(torch.device("cpu")))
        for _ in range(2)
    )
    plain._sweeper = None
    assert swept.swept(theta) is not None
    assert plain.swept(theta) is None
    return swept, plain, theta


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["dense", "sparse", "directed", "halo"])
@pytest.mark.parametrize("name", MODELS)
def test_written_out_and_differentiated_agree(name: str, kind: str, loss: str) -> None:
    data, roots = graph(kind, loss), None
    if kind == "halo":
        roots, view = 3, GraphView.of(data)
        around = halo(view, data.train_mask.nonzero().flatten()[-roots:], Reach(2), "merged")
        assert around.rings[0] < around.rings[1] < around.rings[2], "every step needs fewer rows"
        data = around.data(view)
    swept, plain, theta = objectives(name, data, loss)
    here, there = swept.look(theta), plain.look(theta)
    assert here.outputs.size(0) == (roots or data.num_nodes)
    torch.testing.assert_close(here.outputs, there.outputs[:roots])
    torch.testing.assert_close(here.losses, there.losses)
    torch.testing.assert_close(here.gradient(), there.gradient())
    assert here.value == pytest.approx(there.value)
    assert swept.meter.passes == plain.meter.passes == 2
    first, second = (GaussNewton(objective.at(theta)) for objective in (swept, plain))
    v, u = torch.randn_like(theta), torch.randn_like(first.slope)
    for operation, argument in (("push", v), ("bend", u), ("pull", u), ("__call__", v)):
        torch.testing.assert_close(getattr(first, operation)(argument), getattr(second, operation)(argument))


def test_a_request_is_the_same_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data = uw.load("demo")
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data, epochs=40)
    request = uw.draw("edges:0.05", data)

    def forget() -> uw.Unlearned:
        ready = uw.prepare(run.model, data, weight_decay=1e-4)
        return uw.unlearn(run.model, data, request, weight_decay=1e-4, prepared=ready)

    swept = forget()
    monkeypatch.setattr("unweave.objective.objective.sweep_of", lambda model, data: None)
    plain = forget()
    assert swept.receipt.passes == plain.receipt.passes
    torch.testing.assert_close(flatten(swept.model), flatten(plain.model), rtol=1e-3, atol=1e-4)


def test_what_is_not_as_it_was_built_is_differentiated() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3)
    assert sweep_of(model, data) is not None
    handle = model.conv1.register_forward_hook(lambda *_: None)
    assert sweep_of(model, data) is None
    handle.remove()
    assert sweep_of(model, data) is not None
    handle = model.conv2.register_message_forward_hook(lambda *_: None)
    assert sweep_of(model, data) is None
    handle.remove()
    model.conv2.add_self_loops = False
    assert sweep_of(model, data) is None
    model.conv2.add_self_loops = True
    model.forward = model.forward
    assert sweep_of(model, data) is None
    del model.forward
    assert sweep_of(model, data) is not None
    for more in (uw.models.GCN(8, 3, direct=2.0), uw.models.GCN(8, 3, layers=3)):
        for name, parameter in more.named_parameters():
            parameter.requires_grad_(name.startswith("conv"))
        assert sweep_of(more, data) is None, "what is frozen counts all the same"

    class Mine(uw.models.GCN):
        pass

    assert sweep_of(Mine(8, 3), data) is None
    assert sweep_of(uw.models.GAT(8, 3), data) is None
    model.conv1 = uw.models.SGC(8, 16)
    assert sweep_of(model, data) is None
    bare = uw.models.GCN(8, 3)
    bare.conv1.bias = None
    assert sweep_of(bare, data) is None
    objective = Objective(
        uw.models.GCN(8, 3),
        data,
        cross_entropy,
        torch.zeros(1),
        lambda m, d: m(d.x, d.edge_index),
        Meter(data.x.device),
    )
    assert objective.swept(torch.zeros(1)) is None


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_those_of_autograd(loss: str) -> None:
    data = graph("dense", loss)
    outputs = torch.randn(data.num_nodes, 3, dtype=torch.float64)
    losses, slope = with_slope(LOSSES[loss], outputs, data.y)
    leaf = outputs.clone().requires_grad_()
    expected = LOSSES[loss](leaf, data.y)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(expected.sum(), leaf)[0])
    assert not losses.requires_grad
