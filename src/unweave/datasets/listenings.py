"""LastFM, a recommender's listenings: who listens to which artist (HetRec 2011)."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unweave.datasets.catalogue import Entry
from unweave.datasets.files import fetch, known_sum, refuse
from unweave.tasks.recommendation import Recommendation

__all__ = ["LASTFM", "load_lastfm"]

LASTFM = Entry(
    "LastFM",
    {
        "data1.txt": ("c82af3228cbbda2f55a39244de09ed93292894f1d0d9f1908ebb57e27598fded",),
        "test1.txt": ("de4417c0e6123284ce59a0934bcf5288ec1ec8774a18a1eef453c9952dfa48f9",),
    },
)
"""As LightGCN's authors prepared it: a file to train with and one to test with."""

USERS, ITEMS = 1892, 4489


def load_lastfm(root: Path, seed: int) -> Recommendation:
    """1,892 users, 4,489 artists, 42,135 listenings to train and validate with and 10,533 to test with.

    Args:
        root: The data folder.
        seed: Of the tenth that is held out for validation, and of the artists drawn for each listening.
    """
    raw = fetch("lastfm", LASTFM, root)
    own, test = (_read(raw / file, accepted) for file, accepted in LASTFM.files.items())
    return Recommendation.of(own, test=test, users=USERS, items=ITEMS, seed=seed)


def _read(path: Path, accepted: tuple[str, ...]) -> Tensor:
    """Pairs of a user and an artist, from 0 on; how often is left out."""
    if not known_sum(path, accepted):
        raise refuse(path)
    return torch.from_numpy(np.loadtxt(path, delimiter="\t", usecols=(0, 1), dtype=np.int64) - 1)
