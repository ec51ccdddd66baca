"""Many models of one kind, trained with and without parts of a graph: in parallel, kept on disk, resumed.

An audit compares with models that were retrained, with models that were not, and with shadow models that saw half of
what is in question. Each is one training. Those that a cache folder holds are read, not trained again; every other one
is written there as soon as it is done, so that an audit that was interrupted goes on where it stopped. The models of a
cache were trained with data that was to be deleted: the folder remembers, until it is deleted.
"""

import copy
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch
import torch_geometric
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.digest import graph_digest, tensor_digest
from unweave._core.document import document_digest
from unweave._core.version import __version__
from unweave.auditing.identity import code_of, model_code
from unweave.errors import ModelError, UnweaveError
from unweave.graph.edit import MASKS, mask_of
from unweave.graph.index import is_undirected
from unweave.graph.removal import remove
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.scores import log_probabilities
from unweave.request import Request
from unweave.training.adam import Progress, seeded
from unweave.training.fit import train_model
from unweave.training.recipe import Training
from unweave.training.trainer import as_trainer

__all__ = ["Upbringing", "Variant", "raise_models"]


@dataclass(frozen=True)
class Variant:
    """A graph to train on, as it differs from the one there was, and a seed.

    Attributes:
        seed: Of the training.
        without: What is left out.
        labelled: Held-out nodes whose labels are trained on.
        linked: Pairs of nodes that get an edge.
    """

    seed: int
    without: Request | None = None
    labelled: tuple[int, ...] = ()
    linked: tuple[tuple[int, int], ...] = ()

    def of(self, data: Data) -> Data:
        """The graph to train on."""
        graph = data if self.without is None else remove(data, self.without).data
        if not (self.labelled or self.linked):
            return graph
        graph = copy.copy(graph)
        if self.labelled:
            used = mask_of(torch.tensor(self.labelled, device=data.x.device), data.num_nodes)
            for name in MASKS:
                if graph.get(name) is not None:
                    graph[name] = graph[name] | used if name == "train_mask" else graph[name] & ~used
        if self.linked:
            edges = torch.tensor(self.linked, dtype=torch.long, device=data.edge_index.device).t()
            both = [edges, edges.flip(0)] if is_undirected(data) else [edges]
            graph.edge_index = torch.cat([graph.edge_index, *both], dim=1)
        return graph


@dataclass(frozen=True)
class Upbringing:
    """How the models of a population are trained.

    Attributes:
        model: One of them; its parameters do not matter.
        training: How the model was trained; the seed of a recipe does not matter. A trainer of one's own is called with
            a copy of the model, whose weights have been erased, and the graph, as by ``retrain``.
        loss: Per-node loss.
        forward: How the model is called.
        memory_mib: What evaluating a model may hold at a time.
    """

    model: nn.Module
    training: Training
    loss: Loss = cross_entropy
    forward: Forward = call
    memory_mib: float | None = None

    def train(self, data: Data, seed: int) -> nn.Module:
        """A model trained from scratch."""
        self.training.require("training models to compare with")
        model, trainer, recipe = copy.deepcopy(self.model), self.training.resolve_trainer(), self.training.recipe
        if trainer is not None:
            with seeded(seed, data.x.device):
                as_trainer(trainer).train(model, data, None if recipe is None else recipe.epochs)
            return model.eval()
        assert recipe is not None
        options = asdict(recipe) | {"seed": seed, "memory_mib": self.memory_mib}
        return train_model(model, data, loss=self.loss, forward=self.forward, **options).model.eval()

    def outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Log-probabilities of every node on a graph, in double."""
        return log_probabilities(model, data, self.forward, memory_mib=self.memory_mib).double()

    @property
    def identity(self) -> dict[str, object]:
        """What tells one upbringing from another, as a document."""
        recipe, trainer = self.training.recipe, self.training.resolve_trainer()
        kept = [(n, p) for n, p in self.model.named_parameters() if not p.requires_grad] + [*self.model.named_buffers()]
        return {
            "versions": {name: here.__version__ for name, here in (("torch", torch), ("pyg", torch_geometric))},
            "unweave": __version__,
            "model": repr(self.model),
            "code": model_code(self.model),
            "config": repr(getattr(self.model, "config", None)),
            "kept": tensor_digest(kept) if kept else None,
            "recipe": None if recipe is None or trainer is not None else asdict(recipe) | {"seed": None},
            "trainer": None if trainer is None else code_of(trainer),
            "loss": [self.loss.settings, code_of(self.loss.function)],
            "forward": code_of(self.forward),
            "memory_mib": self.memory_mib,
            "device": next(self.model.parameters()).device.type,
        }


def raise_models(
    how: Upbringing,
    data: Data,
    variants: Sequence[Variant],
    *,
    jobs: int = 1,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[int, nn.Module]]:
    """Train a model for every variant, and give each with its number as soon as it is there.

    Args:
        how: The kind of model and its training.
        data: The graph as it was.
        variants: What each is trained on.
        jobs: Processes; with more than one, a script must be importable (``if __name__ == "__main__":``).
        cache: Folder of models that were trained before.
        progress: Called with (models there, models).
    """
    if jobs < 1:
        raise ModelError(f"jobs must be at least 1, got {jobs}")
    base = document_digest({"graph": graph_digest(data), **how.identity})
    places = [None if cache is None else cache / f"{_key(base, variant, data)}.safetensors" for variant in variants]
    done, missing = 0, []
    for number, place in enumerate(places):
        found = None if place is None else _read(how.model, place)
        with ranks.together(f"model {number} is {'missing' if found is None else 'there'}"):
            pass
        if found is None:
            missing.append(number)
            continue
        done += 1
        yield number, found
        if progress is not None:
            progress(done, len(variants))
    for number, weights in _trained(how, data, {n: variants[n] for n in missing}, jobs):
        model = _loaded(how.model, weights)
        place = places[number]
        if place is not None:
            content = save({key: value.contiguous().cpu() for key, value in weights.items()})
            ranks.first(partial(_write, place, content))
        done += 1
        yield number, model
        if progress is not None:
            progress(done, len(variants))


def _trained(
    how: Upbringing, data: Data, variants: Mapping[int, Variant], jobs: int
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    if jobs == 1 or len(variants) < 2 or ranks.joined():  # ranks train each model together
        for number, variant in variants.items():
            yield number, _weights(how.train(variant.of(data), variant.seed))
        return
    try:
        with ProcessPoolExecutor(
            min(jobs, len(variants)), get_context("spawn"), initializer=_settle_in, initargs=(how, data)
        ) as pool:
            work: dict[Future[bytes], int] = {pool.submit(_one, variant): n for n, variant in variants.items()}
            try:
                for finished in as_completed(work):
                    yield work[finished], load(finished.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except Exception as error:
        if isinstance(error, BrokenProcessPool) or "pickle" in str(error):  # of a type that depends on what it is
            raise UnweaveError(
                "the processes that train shadow models could not be started, or were killed: model, loss, forward and "
                'trainer must be importable, a script must guard its work by `if __name__ == "__main__":`, and there '
                "must be memory for all of them; or use jobs=1"
            ) from error
        raise


_here: dict[str, tuple[Upbringing, Data]] = {}


def _settle_in(how: Upbringing, data: Data) -> None:
    """Make ready to train, and not outlive whoever asked for it."""
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    _here["work"] = how, data


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _one(variant: Variant) -> bytes:
    how, data = _here["work"]
    return save({k: v.contiguous().cpu() for k, v in _weights(how.train(variant.of(data), variant.seed)).items()})


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def _loaded(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    fresh = copy.deepcopy(model)
    fresh.load_state_dict(dict(weights))
    return fresh.eval()


def _key(base: str, variant: Variant, data: Data) -> str:
    """What tells one model from another; of labels that a graph's digest leaves out, those that are trained on."""
    return document_digest(
        {
            "base": base,
            "seed": variant.seed,
            "without": None if variant.without is None else variant.without.to_dict(),
            "labelled": [[node, int(data.y[node])] for node in variant.labelled],
            "linked": [list(pair) for pair in variant.linked],
        }
    )


def _read(model: nn.Module, place: Path) -> nn.Module | None:
    try:
        return _loaded(model, load(place.read_bytes()))
    except (OSError, SafetensorError, RuntimeError):
        return None  # not there, or not whole: it is trained again


def _write(place: Path, content: bytes) -> None:
    beside: Path | None = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=place.parent, delete=False) as file:
            beside = Path(file.name)
            file.write(content)
        os.replace(beside, place)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)  # it remembers, and nobody would look for it
        raise UnweaveError(f"cannot write the cache of shadow models {place.parent}: {error}") from error
