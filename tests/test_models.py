"""The built-in models: as the paper has them, and in the form that can be trained to a minimum."""

import pytest
import torch
from torch_geometric.nn import GATConv, GINConv

import unweave as uw
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
    with pytest.raises(uw.ModelError, match="unknown model"):
        uw.models.build("gcm", 8, 3)


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
