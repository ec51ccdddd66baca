"""How fast the deleted data is learnt back.

A model that only hides what it knows learns it back sooner than one that never saw it. Every model is trained on, on
the graph as it was, by the same optimiser without dropout, until the loss of the deleted items has fallen three
quarters of the way from where retrained models begin to where models are that were trained with them.
"""

import copy
from statistics import fmean

import torch
from torch import Tensor

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave.auditing.case import Case, Subject
from unweave.auditing.form import OPERATOR, Probe
from unweave.objective.decay import groups_of
from unweave.objective.losses import cross_entropy
from unweave.objective.parts.bounded import objective_within

__all__ = ["relearning_tests"]

EPOCHS = 60
NEAR = 0.25
NAME = "epochs to learn it back"


def relearning_tests(case: Case) -> list[Probe]:
    """The test, where models with and without the data differ in the loss of the items, which it is about.

    Where a retrained model is at the goal as it begins, the numbers of retrained models are a mixture of 0 and more
    that no normal distribution describes, and that 0, what a model which saw the data needs, is usual among.
    """
    nodes = _items(case)
    if not nodes.numel():
        return []
    without, having = ([_loss(s.whole, case, nodes) for s in group] for group in (case.retrained, case.trained))
    goal = fmean(having) + NEAR * (fmean(without) - fmean(having))
    if min(without) <= goal:
        return []
    return [
        Probe(
            NAME,
            "relearning",
            "Does the model learn the deleted data back sooner than one that never saw it?",
            OPERATOR,
            "epochs",
            lambda subject, _: _epochs(case, subject, nodes, goal),
        )
    ]


def _items(case: Case) -> Tensor:
    """The deleted nodes, and the training nodes at deleted edges."""
    ends = case.links[: case.deleted].flatten()
    found: Tensor = torch.unique(torch.cat([case.nodes[: case.targets], ends[case.data.train_mask[ends]]]))
    return found


def _loss(outputs: Tensor, case: Case, nodes: Tensor) -> float:
    return float(cross_entropy(outputs[nodes], case.data.y[nodes]).mean())


def _epochs(case: Case, subject: Subject, nodes: Tensor, goal: float) -> float:
    """Epochs until the loss of the items is at the goal, a part of the last one included; at most ``EPOCHS``."""
    model, how = copy.deepcopy(subject.model).eval(), case.how
    recipe = how.training.recipe
    decay, lr = (0.0, 0.01) if recipe is None else (recipe.weight_decay, recipe.lr)
    optimiser = torch.optim.Adam(groups_of(model, decay), lr=lr)
    before = _loss(subject.whole, case, nodes)
    if before <= goal:
        return 0.0
    meter = Meter(case.data.x.device)
    objective = objective_within(model, case.data, decay, how.loss, how.forward, meter, how.memory_mib)
    with torch.enable_grad():
        if ranks.budget(how.memory_mib) is None and not how.forward(model, case.data).requires_grad:
            return float(EPOCHS)  # votes of several models have no slope: nothing is learnt by descent
        for epoch in range(1, EPOCHS + 1):
            optimiser.zero_grad()
            objective.backward(model)
            optimiser.step()
            now = _loss(objective.predict(model), case, nodes)
            if now <= goal:
                return epoch - 1 + (before - goal) / (before - now)
            before = now
    return float(EPOCHS)
