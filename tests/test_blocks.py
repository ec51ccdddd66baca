"""Evaluation in blocks: the same numbers as on the whole graph, in bounded memory."""

import pytest
import torch

from tests.cases import LAYERS, LOSSES, Case
from unweave.blocks import Blocks, products
from unweave.localising import find_locality, find_locality_in_parts
from unweave.objective import call

AMPLE = 1024.0


def blocks_of(case: Case, size: int) -> tuple[Blocks, "object"]:
    built = case.build()
    whole = built.after
    locality = find_locality(whole)
    assert locality.refusal is None
    kinds = ("gradient", "losses", "outputs", "gauss-newton", "hessian", "gradient of some")
    sizes = dict.fromkeys(kinds, size)
    objective = Blocks(whole.model, locality, whole.loss, whole.decay, call, whole.meter, AMPLE, sizes)
    return objective, built


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("layer", LAYERS)
def test_blocks_of_any_size_agree_with_the_whole_graph(layer: str, loss: str, directed: bool, size: int) -> None:
    blocks, built = blocks_of(Case(layer, loss, "mixed", directed), size)
    whole = built.after
    here, there = blocks.at(built.theta), whole.at(built.theta)
    assert torch.equal(blocks.nodes, whole.nodes)
    assert here.value == pytest.approx(there.value, rel=1e-12)
    v = torch.linspace(-1, 1, built.theta.numel(), dtype=torch.float64)
    mask = torch.arange(built.data.num_nodes) % 2 == 0
    pairs = [
        (here.losses, there.losses),
        (here.outputs, there.outputs),
        (here.gradient(), there.gradient()),
        (here.loss_gradient(mask), there.loss_gradient(mask)),
        *((products(kind, here)(v), products(kind, there)(v)) for kind in ("gauss-newton", "hessian")),
    ]
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        assert blocks.at(built.theta).value == pytest.approx(there.value, rel=1e-12)
    assert len(blocks.found["gradient"]) == -(-blocks.nodes.numel() // size)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_border_is_found_without_the_whole_graph(layer: str, directed: bool) -> None:
    built = Case(layer, "cross-entropy", "edges", directed).build()
    wanted = find_locality(built.before)
    assert wanted.graph is not None
    found = find_locality_in_parts(
        built.model, wanted.graph, built.before.loss, built.before.decay, call, AMPLE * 2**20
    )
    assert (found.border, found.reach, found.refusal) == (wanted.border, wanted.reach, wanted.refusal)
    assert (found.training_nodes, found.classes) == (wanted.training_nodes, wanted.classes)
