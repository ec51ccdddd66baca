"""Backdoors: a pattern of features that goes with a label which the neighbours contradict.

Whoever plants a backdoor gives nodes of other classes a small pattern of features and the label of a target class. The
model learns the pattern, so that what it says of such a node unseen agrees with the label. But the neighbours do not.
So, for each class, look at the nodes that carry its label while their neighbours' labels speak
for another class, and ask which columns they have more often than nodes of either class do. In a sound graph none; a
column of a trigger is there in nearly all of them.
"""

from dataclasses import dataclass

import torch
from scipy.stats import binom, poisson
from torch import Tensor
from torch_geometric.data import Data

from unweave.repairing.labels import Labels

__all__ = ["Trigger", "find_triggers"]

HIGH = 0.95
"""A value that so many of a column are below is a sign; of a column that is mostly zero, any other value."""

LEVEL = 0.01
"""Probability, over all columns and classes, of finding a pattern where there is none."""


@dataclass(frozen=True)
class Trigger:
    """A pattern and who carries it.

    Attributes:
        target: The class that it stands for.
        columns: Of the features.
        nodes: Training nodes of that label that carry at least half of it.
        wrong: The share of them that would not be expected to by chance.
    """

    target: int
    columns: tuple[int, ...]
    nodes: tuple[int, ...]
    wrong: float


def find_triggers(data: Data, labels: Labels) -> list[Trigger]:
    """The patterns that are found, at most one a class."""
    train, y = data.train_mask.cpu(), data.y.cpu().clamp(min=0)
    classes = labels.log_p.size(1)
    said = labels.around.cpu().argmax(dim=1)
    known = train & (labels.count.cpu() > 0)
    share = torch.zeros(classes, data.num_features, dtype=torch.double)
    signs = _signs(data.x.cpu())
    for label in range(classes):
        sound = known & (y == label) & (said == label)
        # As if two more nodes had been seen, one with the sign: what is rare is not taken to be impossible.
        share[label] = (signs[sound].double().sum(dim=0) + 1) / (int(sound.sum()) + 2)
    found = []
    for label in range(classes):
        odd = (known & (y == label) & (said != label)).nonzero().flatten()
        if odd.numel() < 2:
            continue
        usual = torch.maximum(share[label], share[said[odd]]).sum(dim=0)
        count = signs[odd].double().sum(dim=0)
        tail = torch.from_numpy(poisson.sf(count.numpy() - 1, usual.numpy()))
        columns = (tail * classes * data.num_features <= LEVEL).nonzero().flatten()
        if not columns.numel():
            continue
        least = (columns.numel() + 1) // 2
        mine = (train & (y == label)).nonzero().flatten()
        carriers = mine[signs[mine][:, columns].sum(dim=1) >= least]
        usual_share = float(share[:, columns].max(dim=0).values.mean())
        expected = mine.numel() * float(binom.sf(least - 1, columns.numel(), usual_share))
        wrong = max(0.0, 1 - expected / carriers.numel()) if carriers.numel() else 0.0
        found.append(Trigger(label, tuple(columns.tolist()), tuple(carriers.tolist()), wrong))
    return found


def _signs(x: Tensor) -> Tensor:
    """Where a value is among the highest of its column."""
    least = x.float().kthvalue(max(1, round(HIGH * x.size(0))), dim=0).values
    positive = torch.where(x > 0, x, torch.inf).min(dim=0).values.float()
    return x >= torch.maximum(least, torch.where(positive.isfinite(), positive, least))
