"""What the measuring scripts share: options, processes, result files, training, and the gap to a retrained model."""

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave.experiments.paper.results import commit, rounded
from unweave.models import build
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.receipt.record import environment

RESULTS = Path(__file__).parent / "results"
DATA = ("cora", "citeseer", "pubmed")
MODELS = ("gcn", "gat", "sgc", "gin")
REQUESTS = ("edges:0.05", "nodes:0.1", "features:0.1", "flipped:0.2")
WAYS = ("ordinary", "forgettable")
EPOCHS = 100
"""Of a training, as in the paper."""

DECAYS = {"ordinary": 1e-4, "forgettable": 1e-2}
"""Weight decay of each way of training, where validation does not choose it."""

HELP = {
    "jobs": "processes that share the device",
    "deletions": "simulated deletions of each calibration",
    "count": "random requests of each kind and size",
}

Document = dict[str, Any]
Cell = tuple[str, str, str, str]
"""Way of training, data, model and request."""

A = TypeVar("A")
B = TypeVar("B")


def arguments(about: str | None, name: str, **options: Any) -> argparse.ArgumentParser:
    """Options by their defaults, those of a tuple separated by commas; ``--out`` is the folder of the results."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in options.items():
        kind = _listed(type(default[0])) if isinstance(default, tuple) else type(default)
        parser.add_argument(f"--{option.replace('_', '-')}", type=kind, default=default, help=HELP.get(option))
    parser.add_argument("--out", type=Path, default=RESULTS / name)
    return parser


def _listed(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(map(kind, text.split(",")))


def each(work: Callable[[A], B], tasks: list[A], jobs: int) -> Iterator[B]:
    """What each task gives, in whatever order they are done; counted aloud once the caller has kept it."""
    torch.set_num_threads(1)
    if jobs == 1:
        yield from _counted(map(work, tasks), len(tasks))
    else:
        with multiprocessing.get_context("spawn").Pool(jobs, torch.set_num_threads, (1,)) as pool:
            yield from _counted(pool.imap_unordered(work, tasks), len(tasks))


def _counted(found: Iterable[B], total: int) -> Iterator[B]:
    for done, one in enumerate(found, start=1):
        yield one
        print(f"{done} of {total}", flush=True)


def lines(*paths: Path) -> list[Document]:
    """The documents of some files with one in each line; a file that is not there has none."""
    texts = (path.read_text(encoding="utf-8") for path in paths if path.exists())
    return [json.loads(line) for text in texts for line in text.splitlines()]


def documents(out: Path) -> dict[str, Document]:
    """The JSON files of a folder by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))}


def write(path: Path, text: str) -> None:
    """A file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def write_lines(path: Path, found: Iterable[Document]) -> None:
    """One document a line."""
    write(path, "".join(json.dumps(document, allow_nan=False) + "\n" for document in found))


def write_document(path: Path, document: Document) -> None:
    """One document, for people too."""
    write(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def append(path: Path, document: Document) -> None:
    """One line more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(document, allow_nan=False) + "\n")


def made(device: str) -> Document:
    """By what and where something is measured."""
    return {"commit": commit(), "environment": environment(torch.device(device))}


def cells(*paths: Path) -> dict[Cell, Document]:
    """The comparisons that are done."""
    return {cell_of(document): document for document in lines(*paths)}


def cell_of(document: Document) -> Cell:
    """The cell that a comparison is of."""
    config = document["config"]
    return WAYS[config["forgettable"]], config["data"], config["model"], config["forget"]


def compared(cell: tuple[str, ...], **options: Any) -> Document:
    """A cell as ``unweave compare`` measures it."""
    way, data, model, forget = cell
    found = uw.compare(data, model, forget, forgettable=way == "forgettable", **{"epochs": EPOCHS} | options)
    document: Document = rounded(found.to_dict())
    return document


def trained(model: str, data: Data, way: str, **options: Any) -> uw.Run:
    """A built-in model, trained in one of the two ways where its graph is."""
    forgettable = way == "forgettable"
    module = build(model, data.num_features, int(data.num_classes), forgettable=forgettable).to(data.x.device)
    usual = {"weight_decay": DECAYS[way], "epochs": EPOCHS, "examine": False}
    return uw.train(module, data, forgettable=forgettable, **usual | options)


class Gap:
    """The distance of models from a retrained one, over some nodes of a graph.

    Attributes:
        none: That of the model that nothing was done to.
    """

    def __init__(self, retrained: nn.Module, data: Data, start: nn.Module, kept: Tensor | None = None) -> None:
        self.data = data
        self.kept = torch.ones(int(data.num_nodes), dtype=torch.bool, device=data.x.device) if kept is None else kept
        self.target = log_probabilities(retrained, data)
        self.none = self.of(start)

    def of(self, model: nn.Module) -> float:
        """The distance of a model."""
        return gap(self.target, log_probabilities(model, self.data), self.kept)

    def closed(self, model: nn.Module) -> float | None:
        """The share of the gap that a model closes."""
        return closed(self.of(model), self.none)


def resident_mib(pid: int | str = "self") -> float:
    """Resident memory of a process; 0 where the system does not tell, or when it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * 4096 / 2**20
    except (OSError, IndexError):
        return 0.0
