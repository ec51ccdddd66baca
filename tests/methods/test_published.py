"""The published procedure and the options that lead from it to ours."""

from typing import Any

import pytest
import torch
from torch.func import grad

import unweave as uw
from tests.cases import DECAY, Case, dense_loss
from unweave.curvature.products import products
from unweave.objective.parameters import flatten

COUNTED = {"decay": "counted", "graph": "remaining", "curvature": "gauss-newton"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scale": 0.0}, "scale must be a positive number"),
        ({"scale": "large"}, "scale must be a positive number"),
        ({"iterations": 0}, "iterations must be a positive whole number"),
        ({"curvature": "fisher", "decay": "counted"}, "curvature must be one of"),
        ({"graph": "new", "decay": "counted"}, "graph must be one of"),
        ({"decay": "some"}, "decay must be one of ignored, counted"),
        ({"graph": "remaining"}, "give decay='counted'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(uw.MethodError, match=says):
        uw.methods.GIFPublished(**options)


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian"])
@pytest.mark.parametrize("graph", ["original", "remaining"])
def test_with_weight_decay_counted_it_solves_for_the_same_vector_as_gif(graph: str, curvature: str) -> None:
    """Enough iterations of the recursion are the dense solve with the curvature that was asked for."""
    case = Case("sgc", "cross-entropy", "edges", False)
    built = case.build()
    options: dict[str, Any] = {"decay": "counted", "graph": graph, "curvature": curvature, "scale": "auto"}
    done = uw.unlearn(
        built.model,
        built.data,
        case.forget(built.data),
        "gif-published",
        weight_decay=DECAY,
        iterations=600,
        **options,
    )
    v = grad(dense_loss(built.before))(built.theta) - grad(dense_loss(built.after))(built.theta)
    operator = products(curvature, (built.before if graph == "original" else built.after).at(built.theta))
    matrix = torch.stack([operator(e) for e in torch.eye(v.numel(), dtype=v.dtype)])
    torch.testing.assert_close(flatten(done.model), built.theta + torch.linalg.solve(matrix, v), rtol=1e-3, atol=1e-4)
    assert done.receipt.details["curvature_on"] == f"{graph} graph"


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sgc"])
def test_the_scale_that_sets_itself_converges_where_a_smaller_one_diverges(name: str) -> None:
    case = Case(name, "cross-entropy", "edges", False)
    built = case.build()
    request = case.forget(built.data)
    options: dict[str, Any] = {"weight_decay": DECAY, "iterations": 500, **COUNTED}
    done = uw.unlearn(built.model, built.data, request, "gif-published", scale="auto", **options)
    solve = done.receipt.solve
    assert solve is not None
    assert solve["relative_residual"] < 0.05
    top = solve["settings"]["scale"]
    with pytest.raises(uw.DivergenceError):
        uw.unlearn(built.model, built.data, request, "gif-published", scale=0.45 * top, **options)


def test_no_scale_can_help_where_the_curvature_is_negative() -> None:
    case = Case("gcn", "cross-entropy", "edges", False)
    built = case.build()
    with pytest.raises(uw.NegativeCurvatureError, match="gauss-newton"):
        uw.unlearn(
            built.model,
            built.data,
            case.forget(built.data),
            "gif-published",
            weight_decay=0.0,
            decay="counted",
            graph="remaining",
            scale="auto",
            iterations=20000,
        )
