"""States of a training that is not over, in one file: a training that was interrupted goes on from the last of them."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from unweave._core import ranks
from unweave._core.digest import graph_digest
from unweave._core.document import document_digest
from unweave._core.version import __version__
from unweave.errors import RunError
from unweave.objective.decay import decays_in
from unweave.objective.objective import Objective
from unweave.objective.parameters import trained
from unweave.training.checkpoints import FILES, Checkpoint, read_checkpoints, write_checkpoints

__all__ = ["Resume", "key_of"]


@dataclass(frozen=True)
class Resume:
    """A file of states. It remembers the graph, as every state does; whoever is done deletes it.

    Attributes:
        path: The file.
    """

    path: Path

    def known(self, key: str) -> list[Checkpoint]:
        """The states of a training that are kept; of another one, or of a file that is not whole, none."""
        with ranks.together("reading the states kept"):
            try:
                content = self.path.read_bytes()
                held = load(content)
                fits = bytes(held["key"].tolist()).decode() == key
                states = read_checkpoints({name: bytes(held[name].numpy()) for name in FILES}) if fits else ()
            except (OSError, SafetensorError, KeyError, ValueError):
                states = ()
        with ranks.together(f"{len(states)} states kept"):  # whoever sees another file is found out
            return list(states)

    def keep(self, key: str, states: Sequence[Checkpoint]) -> None:
        """Write states in place of those that are kept, in one step."""
        ranks.first(lambda: self._write(key, states))

    def done(self) -> None:
        """Delete the file."""
        ranks.first(lambda: self.path.unlink(missing_ok=True))

    def _write(self, key: str, states: Sequence[Checkpoint]) -> None:
        files = {name: _bytes(content) for name, content in write_checkpoints(states).items()}
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(save({"key": _bytes(key.encode()), **files}))
            os.replace(beside, self.path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            raise RunError(f"cannot keep states of the training in {self.path}: {error}") from error


def key_of(objective: Objective, *, seed: int, epochs: int, lr: float, stops: Sequence[int]) -> str:
    """What tells one training from another."""
    model = objective.model
    return document_digest(
        {
            "versions": [__version__, torch.__version__],
            "graph": graph_digest(objective.data),
            "model": [repr(model), str(getattr(model, "config", None))],
            "parameters": [[name, str(p.dtype), list(p.shape)] for name, p in trained(model).items()],
            "loss": str(objective.loss),
            "decay": decays_in(model, objective.decay),
            "how": [seed, epochs, lr, list(stops), ranks.size()],
        }
    )


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
