"""A run: a trained model with its graph, recipe, scores and receipts, in memory and on disk.

What it does lies in files of its own: it forgets in :mod:`unweave.run.forget`, plans in :mod:`unweave.run.plan`,
calibrates in :mod:`unweave.run.calibrate`, and takes requests one after another in :mod:`unweave.run.stream`.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave.auditing.before.screen import DRAWS, RATE, Screening
from unweave.curvature.prepared import Prepared, prepare
from unweave.errors import MethodError, RunError
from unweave.graph.view import GraphView
from unweave.methods import Method
from unweave.methods.deferred import settle
from unweave.methods.ladder.calibration import Calibration
from unweave.methods.ladder.debt import Standing, standing_of
from unweave.methods.registry import ready_for
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call, decay_vector, flatten
from unweave.objective.scores import score
from unweave.receipt.receipt import Receipt
from unweave.receipt.traces import Trace, fates, outside, replaced
from unweave.request import Request
from unweave.run.calibrate import DELETIONS, calibrate
from unweave.run.files import files_of, parts_of
from unweave.run.folder import check_folder, recover_folder, write_folder
from unweave.run.forget import forget
from unweave.run.plan import Plan, plan
from unweave.run.purge import purge
from unweave.run.screen import screen_run, screened
from unweave.run.stream import forget_all
from unweave.training.adam import Progress, Recipe
from unweave.training.checkpoints import Checkpoint, Trainer
from unweave.unlearning import Unlearned, unlearn

__all__ = ["Run"]

SAME = 1e-3
"""Relative difference up to which two values of an objective, perhaps from two devices, are the same."""


@dataclass(frozen=True)
class Run:
    """A trained model and everything that belongs to it.

    Attributes:
        model: The model.
        graph: The graph as it is now, without what was forgotten; after a deferred request a view of it.
        recipe: How the model was trained.
        metrics: Scores on the three masks; none while requests are unverified.
        receipts: One for each request carried out, oldest first.
        prepared: What makes requests cheap, where it was computed; it still depends on all that was trained on.
        loss: Per-node loss it was trained with.
        forward: How the model is called.
        checkpoints: States of training that ``replay`` can resume; they remember what was trained on until then.
        origin: The folder it was opened from, and how many receipts it had there.
        calibration: What each way to forget was found to be worth on this model, where that was measured.
    """

    model: nn.Module
    graph: Data | GraphView
    recipe: Recipe
    metrics: Mapping[str, float]
    receipts: tuple[Receipt, ...] = ()
    prepared: Prepared | None = None
    loss: Loss = cross_entropy
    forward: Forward = call
    checkpoints: tuple[Checkpoint, ...] = ()
    origin: tuple[Path, int] | None = None
    calibration: Calibration | None = None

    @property
    def data(self) -> Data:
        """The graph as it is now, without what was forgotten; after a deferred request it is built when asked for."""
        return self.graph.data if isinstance(self.graph, GraphView) else self.graph

    @property
    def pending(self) -> int:
        """Deferred requests that are not verified."""
        return 0 if self.prepared is None or self.prepared.pending is None else self.prepared.pending.requests

    @property
    def _worn(self) -> float:
        """The share of the graph that went since the curvature was computed."""
        if self.prepared is None:
            return 0.0
        if isinstance(self.graph, GraphView):
            return self.prepared.worn(self.graph.stored_edges, int(self.graph.labels.train_mask.sum()))
        return self.prepared.worn(int(self.graph.edge_index.size(1)), int(self.graph.train_mask.sum()))

    def forget(
        self,
        request: Request,
        method: str | Method | None = None,
        *,
        allow_class_loss: bool = False,
        defer: bool = False,
        memory_mib: float | None = None,
        purge: bool = False,
        screen: bool = False,
        **options: Any,
    ) -> "Run":
        """A new run in which the model has forgotten; this one stays as it is.

        A prepared state is computed anew once a fifth of the graph went since. Checkpoints stay as they are, unless the
        method trains: ``replay`` puts new ones in the place of those it passes, and ``retrain`` of all of them. The
        receipt says of each part of the run whether it still remembers what was removed (``remembers``). What earlier
        requests took already is left out, with a note in the receipt.

        Args:
            request: What to forget.
            method: Name of a method, or a method; ``"certified"`` by default for a run that was trained with
                ``certify``, ``"gif"`` for any other.
            allow_class_loss: Allow the last training node of a class to go.
            defer: Take one prepared influence step from the region alone, and leave it to :meth:`verify` to find out
                what it was worth. Requests that are pending are verified before one that is not deferred.
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.
            purge: Leave nothing else in the run that was made with what is removed (:meth:`purge`).
            screen: Refuse a request that is out of the ordinary (:meth:`screen`); the receipt has what was found.
            **options: Options of the method.
        """
        given: dict[str, Any] = {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
        if screen:
            return screened(self, request, method, purge=purge, **given, **options)
        return forget(self, request, method, **given, purge=purge, options=options)

    def screen(self, request: Request, *, seed: int = 0, draws: int = DRAWS, rate: float = RATE) -> Screening:
        """What a request is predicted to do to nodes not trained on, and whether random ones like it do as much.

        Deletion can itself be an attack. Nothing is changed; it takes some two sweeps over the graph for each request
        that is drawn, and uses no test label.

        Args:
            request: What would be forgotten; what is gone already is left out.
            seed: Of the random requests.
            draws: How many of them, at least 10.
            rate: Probability with which a random request is flagged.
        """
        return screen_run(self, request, seed=seed, draws=draws, rate=rate)

    def purge(self, *, memory_mib: float | None = None) -> "Run":
        """A new run that keeps nothing, beside the model, that was made with what it has forgotten.

        Checkpoints and calibration go, unless training began anew with the last request, and a prepared state is
        computed anew on the remaining graph. The last receipt says so, and has the cost. Requests that are pending are
        verified first. A run that has nothing to purge, or has forgotten nothing, is returned as it is.

        Args:
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.
        """
        return purge(self, memory_mib)

    def plan(
        self,
        request: Request,
        method: str | Method | None = None,
        *,
        allow_class_loss: bool = False,
        defer: bool = False,
        memory_mib: float | None = None,
        purge: bool = False,
        **options: Any,
    ) -> Plan:
        """What :meth:`forget` would do and what it would cost, without doing it; the arguments are the same.

        Request and method are checked as they would be then, and refused with the same errors; that takes a few passes
        over the graph.
        """
        given: dict[str, Any] = {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
        return plan(self, request, method, **given, purge=purge, options=options)

    def _traces(self, after: Mapping[str, Any], fresh: Mapping[str, str]) -> list[Trace]:
        """What else remembers a request that this run carries out.

        Args:
            after: The parts of the run that it leaves, by field.
            fresh: Those that were made anew on the remaining graph alone, and how.
        """
        return [
            *fates(vars(self), after, fresh),
            *outside(self._name_of_data, len(self.receipts) + 1, None if self.origin is None else str(self.origin[0])),
        ]

    @property
    def _name_of_data(self) -> str | None:
        base = self.graph.base if isinstance(self.graph, GraphView) else self.graph
        name: str | None = base.get("name")
        return name

    def forget_all(
        self,
        requests: Sequence[Request],
        method: str | Method | None = "auto",
        *,
        batch: bool = False,
        out: str | Path | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> "Run":
        """A new run in which the model has forgotten several requests, one after another on the result of the last.

        What an earlier request took is left out of a later one, with a note in its receipt; a request of which nothing
        is left is noted in the receipt before it. So a stream that was interrupted goes on when it is given again.

        Args:
            requests: What to forget, in order.
            method: Name of a method, or a method; ``None`` for what :meth:`forget` takes by default.
            batch: Carry all of them out as one request.
            out: A folder, written whole after each request in place of what it holds: what was done is not lost.
            progress: Called with (requests done, requests).
            **options: As for :meth:`forget`; ``purge`` once, when all of them are carried out.
        """
        return forget_all(self, requests, method, batch=batch, out=out, progress=progress, **options)

    @property
    def standing(self) -> Standing:
        """What was asked of this model since it was trained, and how much of it is believed left."""
        return standing_of(self.receipts)

    def _ready_for(self, method: str | Method) -> dict[str, Any]:
        """Of what this run keeps, what a method takes."""
        return ready_for(
            method,
            prepared=self.prepared,
            checkpoints=self.checkpoints,
            calibration=self.calibration,
            receipts=self.receipts,
        )

    def _unlearn(self, request: Request, method: str | Method, **how: Any) -> Unlearned:
        """Let a method forget a request on this model and graph, trained as they were; ``how`` goes to ``unlearn``."""
        return unlearn(
            self.model,
            self.graph,
            request,
            method,
            weight_decay=self.recipe.weight_decay,
            loss=self.loss,
            forward=self.forward,
            recipe=self.recipe,
            **how,
        )

    def prepare(self, *, memory_mib: float | None = None) -> "Run":
        """The same run with the state that makes requests cheap, computed anew on the graph as it is now.

        Args:
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.
        """
        here = self._verified(memory_mib)
        state = prepare(
            here.model,
            here.data,
            weight_decay=here.recipe.weight_decay,
            loss=here.loss,
            forward=here.forward,
            memory_mib=memory_mib,
        )
        return replace(here, prepared=_served_best(state, self.calibration))

    def calibrate(
        self,
        deletions: int = DELETIONS,
        *,
        seed: int | None = None,
        trainer: Trainer | None = None,
        progress: Progress | None = None,
        keep: "Callable[[Run], None] | None" = None,
    ) -> "Run":
        """The same run, with what every way to forget closes on it and costs, measured on simulated deletions.

        Deletions of every kind, from a single item to a fifth of them, are drawn from the graph; for each the model is
        retrained by the recipe, and every method tried. That costs two to four retrainings a deletion, once; it uses no
        test label. The run is prepared first, where it is not, and the damping that served best is kept.

        Args:
            deletions: How many in all; those that were measured before are not done again.
            seed: Of the deletions; that of those measured before, or 0, where none is given.
            trainer: Your own training, instead of the recipe's: a :class:`~unweave.Trainer`.
            progress: Called with (deletions done, deletions).
            keep: Called with the run after each deletion, e.g. to save it: what was measured then is not lost.
        """
        here = self._verified(None) if self.prepared is not None else self.prepare()

        def with_found(found: Calibration) -> "Run":
            assert here.prepared is not None
            usual = replace(here.prepared, damping=found.damping, raised=found.raised)
            return replace(here, calibration=found, prepared=_served_best(usual, found))

        found = calibrate(
            here,
            deletions,
            seed=seed,
            trainer=trainer,
            progress=progress,
            keep=None if keep is None else lambda found: keep(with_found(found)),
        )
        return with_found(found)

    def verify(self) -> "Run":
        """A new run in which the deferred requests are verified, by one evaluation on the remaining graph.

        Their receipts then have what only the whole graph tells, and further requests start from there. Where none is
        pending, the last receipt is checked again: its parameters are those of the model, and its objective is what
        the model has on the graph.
        """
        if not self.pending or self.prepared is None:
            self._recheck()
            return self
        prepared, receipts = settle(
            self.model,
            self.data,
            self.prepared,
            self.receipts,
            weight_decay=self.recipe.weight_decay,
            loss=self.loss,
            forward=self.forward,
        )
        metrics = score(self.model, self.data, self.loss, self.forward)
        return replace(self, graph=self.data, metrics=metrics, receipts=receipts, prepared=prepared)

    def _recheck(self) -> None:
        if not self.receipts:
            return
        last = self.receipts[-1]
        if last.parameters["digest_after"] != tensor_digest(self.model.named_parameters()):
            raise RunError("the parameters of the model are not those that the last receipt tells of")
        known = last.objective.get("remaining_after")
        decay = decay_vector(self.model, self.recipe.weight_decay)
        objective = Objective(self.model, self.data, self.loss, decay, self.forward, Meter(self.data.x.device))
        now = objective.at(flatten(self.model)).value
        if known is not None and abs(known - now) > SAME * abs(known):
            raise RunError(f"the objective is {now:.6g} on the remaining graph, and {known:.6g} in the last receipt")

    def _verified(self, memory_mib: float | None) -> "Run":
        """This run without pending requests, which no budget may hold."""
        if self.pending and memory_mib is not None:
            raise MethodError(
                "verifying the deferred requests that are pending looks at the whole graph at once; call Run.verify "
                "(unweave verify) first, or leave memory_mib (--memory-mib) out"
            )
        return self.verify() if self.pending else self

    def to(self, device: torch.device) -> "Run":
        """The same run on another device."""
        data = copy.copy(self.data).to(device)
        return replace(
            self,
            model=copy.deepcopy(self.model).to(device),
            graph=data,
            prepared=None if self.prepared is None else self.prepared.to(device).on(data, self.loss, self.forward),
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the run to a folder, whole or not at all.

        Where that is the folder it was opened from, its new receipts say that the run before is gone (:meth:`at`).

        Args:
            path: The folder; refused when it exists.
            overwrite: Replace it when it exists.
        """
        path = Path(path)
        recover_folder(path)
        if path.exists() and not overwrite:
            raise RunError(f"{path} exists already; choose another folder, or ask to overwrite it")
        if path.exists():
            check_folder(path)  # only a run is ever overwritten
        write_folder(path, files_of(self.at(path)))
        return path

    def at(self, path: str | Path) -> "Run":
        """This run as a folder will hold it: its receipts know whether the run before is replaced."""
        if self.origin is None or Path(path).resolve() != self.origin[0].resolve():
            return self
        here = str(self.origin[0])
        return replace(self, receipts=tuple(replace(r, remembers=replaced(r.remembers, here)) for r in self.receipts))

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: nn.Module | None = None,
        data: Data | None = None,
        root: str | Path | None = None,
        loss: Loss = cross_entropy,
        forward: Forward = call,
    ) -> "Run":
        """Read a run that :meth:`save` wrote, checking every file.

        Args:
            path: The folder.
            model: Your own module, when the run does not hold a built-in one; its weights are loaded into it.
            data: Your own graph, when :func:`unweave.load` does not have it: as it remained, or as it was before
                anything was forgotten.
            root: Data folder for :func:`unweave.load`.
            loss: Your own loss, when one was used.
            forward: Your own way to call the model, when one was used.
        """
        return cls(**parts_of(Path(path), model, data, root, loss, forward))


def _served_best(state: Prepared, calibration: Calibration | None) -> Prepared:
    """A prepared state with the damping that served best, where that was measured."""
    factor = 1.0 if calibration is None else calibration.factor
    return replace(state, damping=factor * state.damping, raised=factor * state.raised)
