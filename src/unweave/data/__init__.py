"""Graphs to work on: the embedded ``demo``, and the usual benchmarks as PyG knows them."""

from unweave.data.loading import NAMES, load
from unweave.data.split import split

__all__ = ["NAMES", "load", "split"]
