"""The built-in models: as the paper has them, by name, and in the form that has a minimum."""

import pytest
import torch
from torch_geometric.nn import GATConv, GINConv

import unweave as uw
from unweave.graph.removal import remove
from unweave.models import structure
from unweave.testing import small_graph


def test_by_name_and_in_two_forms() -> None:
    assert isinstance(uw.models.build("gat", 8, 3).conv1, GATConv)
    gin = uw.models.build("gin", 8, 3)
    assert isinstance(gin, uw.models.GIN)
    assert isinstance(gin.conv1, GINConv)
    assert gin.config["aggregation"] == "sum"
    assert uw.models.build("gin", 8, 3, forgettable=True).config["aggregation"] == "mean"
    assert uw.models.build("gat", 8, 3, forgettable=True).config["temperature"] == 10
    for name in ("gcn", "sgc"):
        plain, forgettable = (uw.models.build(name, 8, 3, forgettable=f) for f in (False, True))
        assert plain.config == forgettable.config
    assert uw.models.build("lightgcn", 30, 3, forgettable=True, nodes=20_000).config["width"] == 256
    assert uw.models.build("linker", 30, 3, forgettable=True, nodes=20_000, hidden=9).config["width"] == 9
    for name in set(uw.models.MODELS) - {"lightgcn", "linker"}:
        wide = uw.models.build(name, 30, 3, forgettable=True, nodes=20_000)
        assert wide.config["unit"]
        assert wide.config.get("hidden", 256) == 256
        assert wide.config.get("activation", "tanh") == "tanh"
        direct = 0.0 if name in ("sgc", "pooled-sign") else 10.0
        assert wide.config.get("direct", 0.0) == direct, "of few features"
        for features, nodes, few in ((100, 20_000, True), (101, 20_000, False), (600, 20_000_000, False)):
            other = uw.models.build(name, features, 3, forgettable=True, nodes=nodes)
            assert other.config.get("direct", 0.0) == (direct if few else 0.0)
        short = uw.models.build(name, 3, 3, forgettable=True, nodes=20_000)
        assert not short.config["unit"], "of three numbers the length tells too much"
    assert uw.models.build("sage", 8, 3, forgettable=True, nodes=100, hidden=7, activation=None).config["hidden"] == 7
    with pytest.raises(uw.ModelError, match="unknown model"):
        uw.models.build("gcm", 8, 3)
    for name in ("sign", "gin"):
        for direct in (float("nan"), float("inf"), -1.0, "10"):
            with pytest.raises(uw.ModelError, match="direct must be a number of at least 0"):
                uw.models.build(name, 8, 3, direct=direct)


def test_a_high_temperature_makes_attention_uniform_and_leaves_its_sum() -> None:
    data = small_graph()
    torch.manual_seed(0)
    hot, cold = uw.models.GAT(8, 3, temperature=1e6), uw.models.GAT(8, 3, temperature=0.1)
    cold.load_state_dict(hot.state_dict())
    _, (edges, even) = hot.conv1(data.x, data.edge_index, return_attention_weights=True)
    _, (_, uneven) = cold.conv1(data.x, data.edge_index, return_attention_weights=True)
    degree = torch.bincount(edges[1], minlength=60)
    torch.testing.assert_close(even, (1 / degree[edges[1]])[:, None].expand_as(even), rtol=1e-4, atol=1e-5)
    sums = torch.zeros(60, 8).index_add(0, edges[1], uneven)
    torch.testing.assert_close(sums, torch.ones(60, 8))
    assert float((uneven - even).detach().abs().max()) > 0.1


def test_mean_aggregation_does_not_grow_with_the_degree() -> None:
    x = torch.ones(5, 8)
    star = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    model = uw.models.GIN(8, 3, aggregation="mean").eval()
    single = torch.tensor([[1], [0]])
    torch.testing.assert_close(model(x, star)[0], model(x, single)[0])
    total = uw.models.GIN(8, 3).eval()
    assert not torch.allclose(total(x, star)[0], total(x, single)[0])


@pytest.mark.parametrize(
    "build",
    [
        lambda: uw.models.GAT(8, 3, temperature=0.0),
        lambda: uw.models.GIN(8, 3, activation="step"),
        lambda: uw.models.GIN(8, 3, aggregation="max"),  # type: ignore[arg-type]
        lambda: uw.models.GIN(8, 3, perceptron=3),
        lambda: uw.models.GCN(8, 3, activation="step"),
        lambda: uw.models.GCN(8, 3, layers=1),
        lambda: uw.models.GAT(8, 3, attention="some"),  # type: ignore[arg-type]
        lambda: uw.models.SIGN(8, 3, layers=0),
        lambda: uw.models.build("sgc", 8, 3, hidden=4),
    ],
)
def test_options_that_make_no_sense_are_refused(build) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(uw.ModelError):
        build()


@pytest.mark.parametrize("name", ["gat", "gin"])
def test_how_far_messages_travel_is_known_in_both_forms(name: str) -> None:
    data = small_graph()
    model = uw.models.build(name, 8, 3, forgettable=True)
    uw.train(model, data, epochs=3)
    done = uw.unlearn(model, data, uw.Request(edges=[tuple(data.edge_index[:, 0].tolist())]), weight_decay=1e-4)
    assert done.receipt.region["steps"] == 2


@pytest.fixture(autouse=True)
def _same_choice_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether features are taken as sparse depends on the machine; not here."""
    monkeypatch.setattr(structure, "densest", lambda device: 0.4)


@pytest.mark.parametrize("kind", ["undirected", "directed", "parallel", "loops"])
def test_what_is_patched_after_a_request_is_what_would_be_built_anew(kind: str) -> None:
    data = small_graph()
    data.x = data.x * (torch.rand(data.x.shape, generator=torch.Generator().manual_seed(0)) < 0.1)
    if kind == "directed":
        data.edge_index = data.edge_index[:, ::3].contiguous()
    if kind == "parallel":
        data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :40]], dim=1)
    if kind == "loops":
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[3, 5], [3, 5]])], dim=1)
    structure.features(data.x)
    first = structure.normalised(data.edge_index, None, 60, torch.float32)
    staged, turned = first.copy(), first.side(True)  # the transpose is patched too
    assert turned.shape == (60, 60)
    graphs = [data]  # a graph that is gone has nothing to be patched
    for seed, forget in enumerate(["edges:0.05", "nodes:0.05", "features:0.1", "edges:0.2", "edges:0.5"]):
        data = remove(data, uw.draw(forget, data, seed=seed)).data
        graphs.append(data)
        matrix = structure.normalised(data.edge_index, None, 60, torch.float32)
        anew = structure.normalised(data.edge_index.clone(), None, 60, torch.float32)
        for flipped in (False, True):
            found, expected = matrix.side(flipped).to_dense(), anew.side(flipped).to_dense()
            torch.testing.assert_close(found, expected)
        assert torch.equal(matrix.pattern.col, anew.pattern.col), "nothing is kept of what went"
        staged.load(matrix)
        for flipped in (False, True):
            torch.testing.assert_close(staged.side(flipped).to_dense(), matrix.side(flipped).to_dense())
        known = structure.features(data.x)
        assert known is not None
        torch.testing.assert_close(known.side(False).to_dense(), data.x)


@pytest.mark.parametrize("name", uw.models.MODELS)
def test_an_option_that_a_model_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="hiden"):
        uw.models.MODELS[name](8, 3, hiden=32)
    with pytest.raises(uw.errors.ModelError, match=r"hiden.*leave that option out"):
        uw.models.build(name, 8, 3, hiden=32)
