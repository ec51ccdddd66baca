"""The parts of a run, and what follows from them alone.

Every verb of a run is a function from one :class:`State` to the next; :class:`~unweave.Run` hands its own to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch_geometric.data import Data

from unweave._core.mapped import mapped
from unweave.curvature.prepared import Prepared
from unweave.graph.view import GraphView, labels_of
from unweave.methods import Method
from unweave.methods.changing import Asked
from unweave.methods.ladder.calibration import Calibration
from unweave.methods.registry import ready_for as taken_by
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.parts.propagating import FOLDER
from unweave.receipt.receipt import Receipt
from unweave.receipt.traces import Trace, fates, outside
from unweave.run.receipts import Receipts
from unweave.training.checkpoints import Checkpoint
from unweave.training.recipe import Training
from unweave.unlearning import Unlearned, unlearn

__all__ = ["Origin", "State", "ready_for", "traces", "unlearn_state", "with_receipt", "worn"]


class Origin(NamedTuple):
    """Where a run was opened from.

    Attributes:
        path: The folder.
        receipts: How many it had there.
        digest: That of the folder's manifest: what may be replaced by this run.
    """

    path: Path
    receipts: int
    digest: str


@dataclass(frozen=True)
class State:
    """A trained model and everything that belongs to it.

    Attributes:
        model: The model.
        graph: The graph as it is now, without what was forgotten; after a deferred request a view of it.
        training: How the model was trained, as far as it is known.
        metrics: Scores on the three masks; none while requests are unverified.
        receipts: One for each request carried out, oldest first.
        prepared: What makes requests cheap, where it was computed; it still depends on all that was trained on.
        loss: Per-node loss it was trained with.
        forward: How the model is called.
        checkpoints: States of training that ``replay`` can resume; they remember what was trained on until then.
        origin: The folder it was opened from.
        calibration: What each way to forget was found to be worth on this model, where that was measured.
        seed: For what uses chance: the one the model was trained with.
    """

    model: nn.Module
    graph: Data | GraphView
    training: Training
    metrics: Mapping[str, float]
    receipts: Receipts = field(default_factory=Receipts)
    prepared: Prepared | None = None
    loss: Loss = cross_entropy
    forward: Forward = call
    checkpoints: tuple[Checkpoint, ...] = ()
    origin: Origin | None = None
    calibration: Calibration | None = None
    seed: int = 0

    @property
    def data(self) -> Data:
        """The graph as it is now; after a deferred request it is built when asked for."""
        return self.graph.data if isinstance(self.graph, GraphView) else self.graph

    @property
    def whole(self) -> Data | GraphView:
        """The graph as it is now, for who takes either: what is left of a folder stays a view and is not copied."""
        return self.graph if isinstance(self.graph, GraphView) and self.graph.mapped else self.data

    @property
    def stored_edges(self) -> int:
        """Stored edges of the graph as it is now."""
        return self.graph.stored_edges if isinstance(self.graph, GraphView) else int(self.graph.edge_index.size(1))

    @property
    def base(self) -> Data:
        """The graph, or what its view is a view of: for what is the same of both."""
        return self.graph.base if isinstance(self.graph, GraphView) else self.graph

    @property
    def pending(self) -> int:
        """Deferred requests that are not verified."""
        return 0 if self.prepared is None or self.prepared.pending is None else self.prepared.pending.requests


def worn(state: State) -> float:
    """The share of the graph that went since the curvature was computed."""
    if state.prepared is None:
        return 0.0
    return state.prepared.worn(state.stored_edges, int(labels_of(state.graph).train_mask.sum()))


def ready_for(state: State, method: str | Method) -> dict[str, Any]:
    """Of what a run keeps, what a method takes."""
    found = taken_by(
        method,
        prepared=state.prepared,
        checkpoints=state.checkpoints,
        calibration=state.calibration,
        receipts=state.receipts,
        trainer=state.training.trainer,
    )
    if "trainer" in found:
        found["trainer"] = state.training.resolve_trainer()
    return found


def unlearn_state(state: State, request: Asked, method: str | Method, **how: Any) -> Unlearned:
    """Let a method forget a request on this model and graph, trained as they were; ``how`` goes to ``unlearn``."""
    return unlearn(
        state.model,
        state.graph,
        request,
        method,
        weight_decay=state.training.weight_decay,
        loss=state.loss,
        forward=state.forward,
        recipe=state.training.recipe,
        **({"seed": state.seed} | how),
    )


def with_receipt(state: State, receipt: Receipt) -> State:
    """A run that has issued one more receipt, which names the one before it. None is ever changed after that."""
    return replace(state, receipts=state.receipts.plus(receipt))


def traces(
    state: State, after: Mapping[str, Any], fresh: Mapping[str, str], *, in_place: bool = False, change: bool = False
) -> list[Trace]:
    """What else remembers a request that a run carries out.

    Args:
        state: The run before.
        after: The parts of the run that it leaves, by field.
        fresh: Those that were made anew on the remaining graph alone, and how.
        in_place: Whether the new run takes the place of the one before.
        change: Whether data was added or corrected too.
    """
    opened, file = None if state.origin is None else str(state.origin.path), mapped(state.base.x)
    place: dict[str, str] = {}
    if file is not None:
        derived = file.path.parent / FOLDER
        place = {"folder": str(derived.parent)} | ({"derived": str(derived)} if derived.exists() else {})
    return [
        *fates(vars(state), after, fresh),
        *outside(state.base.get("name"), len(state.receipts) + 1, opened, replaced=in_place, change=change, **place),
    ]
