"""Graphs to work on: the embedded ``demo``, and the usual benchmarks as PyG knows them."""

from unweave.datasets.folder import load_folder, save_folder
from unweave.datasets.loading import NAMES, load
from unweave.datasets.split import split

__all__ = ["NAMES", "load", "load_folder", "save_folder", "split"]
