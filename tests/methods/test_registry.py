"""Methods by name and as objects: both take what a run keeps, and an object's own wins."""

import dataclasses

import pytest
import torch

import unweave as uw
from unweave.methods import GIF, Auto, Replay, Retrain, make
from unweave.methods.registry import ready_for
from unweave.objective.parameters import flatten
from unweave.testing import small_graph


@pytest.fixture(scope="module")
def run() -> uw.Run:
    data = small_graph()
    model = uw.models.GCN(data.num_features, 3, hidden=4)
    return uw.train(model, data, seed=3, epochs=40, weight_decay=1e-3, checkpoints=(0.25, 0.1)).prepare()


def edge_of(run: uw.Run) -> uw.Request:
    u, v = run.data.edge_index[:, 0].tolist()
    return uw.Request(edges=[(u, v)])


def test_a_method_object_takes_the_prepared_state_of_the_run(run: uw.Run) -> None:
    """It used to compute its own curvature, at eight times the cost of the same method by name."""
    asked = edge_of(run)
    by_name, by_object = run.forget(asked, "gif", steps=3), run.forget(asked, GIF(steps=3))
    assert torch.equal(flatten(by_object.model), flatten(by_name.model))
    assert by_object.receipts[0].passes == by_name.receipts[0].passes
    assert by_object.prepared is not None
    assert by_object.prepared.age == 1


def test_a_plan_with_a_method_object_costs_what_it_will_cost(run: uw.Run) -> None:
    asked = edge_of(run)
    assert run.preview(asked, GIF(steps=3)).passes == run.preview(asked, "gif", steps=3).passes


def test_what_an_object_has_of_its_own_is_kept(run: uw.Run) -> None:
    assert run.prepared is not None
    own = dataclasses.replace(run.prepared, damping=2 * run.prepared.damping)
    assert ready_for(GIF(prepared=own), prepared=run.prepared) == {}
    assert make(GIF(prepared=own), {}).prepared is own  # type: ignore[attr-defined]
    with pytest.raises(uw.MethodError, match=r"prepared.*GIF"):
        make(GIF(prepared=own), {"prepared": run.prepared})


def test_options_still_go_into_an_object_itself(run: uw.Run) -> None:
    with pytest.raises(uw.MethodError, match=r"steps.*GIF\(…\)"):
        make(GIF(), {"steps": 3})


def test_a_ladder_given_as_an_object_knows_the_recipe_of_the_run(run: uw.Run) -> None:
    by_name, by_object = run.preview(edge_of(run), "auto"), run.preview(edge_of(run), Auto())
    assert by_object.how == by_name.how


def test_checkpoints_go_to_an_object_of_the_same_training_only(run: uw.Run) -> None:
    """A replay of a hundred epochs from states of a training of forty would be neither."""
    kept = {"checkpoints": run.checkpoints}
    same = Replay(share=0.25, epochs=run.recipe.epochs, lr=run.recipe.lr)
    assert make(same, kept, run.recipe) == dataclasses.replace(same, checkpoints=run.checkpoints)
    assert make(Replay(share=0.25), kept, run.recipe) == make(same, kept, run.recipe)
    assert make(Replay(share=0.25, epochs=100), kept, run.recipe).checkpoints == ()  # type: ignore[attr-defined]
    assert make(Retrain(), kept, run.recipe) == make("retrain", kept, run.recipe)
