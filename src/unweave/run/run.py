"""A run: a trained model with its graph, recipe, scores and receipts, in memory and on disk.

:class:`Run` is the front of it. Its parts are a :class:`~unweave.run.state.State`, and what it does lies in files of
its own, each a function from one such state to the next: :mod:`unweave.run.forget`, :mod:`unweave.run.plan`,
:mod:`unweave.run.calibrate`, :mod:`unweave.run.stream` and the others.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave.auditing.before.screen import DRAWS, RATE, Screening
from unweave.changes import Change
from unweave.errors import InterruptedStream, UnweaveError
from unweave.inspection import Inspection
from unweave.inspection.inspect import inspect
from unweave.inspection.quantity import AnyQuantity
from unweave.methods import Method
from unweave.methods.changing import Asked
from unweave.objective.losses import AnyLoss
from unweave.objective.objective import Forward, call
from unweave.request import Request
from unweave.run.calibrate import DELETIONS, calibrate
from unweave.run.chain import check_chain
from unweave.run.files import state_of
from unweave.run.parts import Parts
from unweave.run.plan import Plan, preview
from unweave.run.purge import purge
from unweave.run.rehearse import Rehearsal, rehearse
from unweave.run.screen import screen_state
from unweave.run.state import State
from unweave.run.store import is_home, save
from unweave.run.stream import forget_all, listed, listed_changes
from unweave.run.verify import prepared_anew, verify
from unweave.run.wish import Wish
from unweave.training.adam import Progress
from unweave.training.recipe import AnyTrainer

__all__ = ["Run"]


class Run(Parts):
    """A trained model and everything that belongs to it. It never changes: what it does gives a new run.

    ``unweave.train`` makes one. For a model of your own, trained in your own way::

        run = uw.Run(model, data, weight_decay=5e-4)
        run = run.prepare().forget(uw.Request(nodes=[3]))

    How it was trained need not be known to forget; what has to train (``retrain``, ``finetune``, :meth:`calibrate`,
    a rehearsal, an audit) refuses until ``trainer`` or ``recipe`` says it.

    Args:
        model: The trained model.
        data: The graph it was trained on.
        weight_decay: What it was trained with (0 for none): a number, numbers by name of a parameter or module, or the
            torch optimiser that trained it. With a recipe, that of the recipe by default.
        loss: Per-node loss it was trained with.
        forward: How to call it on a graph, when not as ``model(x, edge_index[, edge_weight])``.
        trainer: Your own training, a function of (model, data) that trains the model in place, or its import path
            ``"package.module:function"``; only a path can be stored.
        recipe: How it was trained, where that was by full-batch Adam.
        seed: The one it was trained with, for what uses chance. With a recipe, that of the recipe.
        checkpoints: States of its training, for ``replay`` and ``retrace``.
        prepared: What :func:`unweave.prepare` found.
        metrics: Its scores.
    """

    def forget(
        self,
        request: Request | Iterable[Request],
        method: str | Method | None = None,
        *,
        out: str | Path | None = None,
        batch: bool = False,
        strict: bool = False,
        skip_invalid: bool = False,
        allow_class_loss: bool = False,
        defer: bool = False,
        memory_mib: float | None = None,
        purge: bool = False,
        screen: bool = False,
        progress: Progress | None = None,
        **options: Any,
    ) -> "Run":
        """A new run in which the model has forgotten; this one stays as it is.

        Several requests are carried out one after another, each on the result of the last. Every request has a receipt
        of its own, as it was received: of one that earlier requests took already the receipt says that there was
        nothing to do, so that a stream that was interrupted goes on when it is given again. All requests are looked at
        before the first is carried out, and every one that names what never was in the graph is told at once.

        A prepared state is computed anew once a fifth of the graph went since. Checkpoints stay as they are, unless the
        method trains: ``replay`` puts new ones in the place of those it passes, and ``retrain`` of all of them. The
        receipt says of each part of the run whether it still remembers what was removed (``remembers``).

        Args:
            request: What to forget: one request, or several in order, as a list or any iterable.
            method: Name of a method, or a method; ``"certified"`` by default for a run that was trained with
                ``certify``, ``"gif"`` for any other.
            out: A folder for the new run, written whole after each request in place of what it holds: what was done is
                not lost.
            batch: Carry all of them out as one request.
            strict: Refuse an answer that is worse than doing nothing by the receipt's own figures, or that moved
                nothing though there was something to forget.
            skip_invalid: Go on where a request cannot be carried out, with a receipt that says why it was refused.
            allow_class_loss: Allow the last training node of a class to go.
            defer: Take one prepared influence step from the region alone, and leave it to :meth:`verify` to find out
                what it was worth. Requests that are pending are verified before one that is not deferred.
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.
            purge: Leave nothing else in the run that was made with what is removed (:meth:`purge`), once all requests
                are carried out.
            screen: Refuse a request that is out of the ordinary (:meth:`screen`); the receipt has what was found.
            progress: Called with (requests done, requests).
            **options: Options of the method.

        Raises:
            UnweaveError: A request cannot be carried out. Where it was not the first, ``error.run`` is the run as far
                as it got.
            InterruptedStream: Ctrl-C; the same.
        """
        wished: dict[str, Any] = {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
        wish = self._wish(method, out, purge=purge, screen=screen, strict=strict, options=options, **wished)
        how: dict[str, Any] = {"batch": batch, "skip_invalid": skip_invalid, "progress": progress}
        return self._followed(listed(request), wish, out, **how)

    def _wish(self, method: str | Method | None, out: str | Path | None, **wished: Any) -> Wish:
        """How something is to be carried out."""
        return Wish(method=method, in_place=out is not None and is_home(self._state, Path(out)), **wished)

    def _followed(self, asked: list[Asked], wish: Wish, out: str | Path | None, **how: Any) -> "Run":
        """The run after some requests and changes."""
        try:
            return Run.of(forget_all(self._state, asked, wish, out=None if out is None else Path(out), **how))
        except (UnweaveError, InterruptedStream) as error:
            error.run = Run.of(error.run) if isinstance(error.run, State) else error.run
            raise

    def update(
        self,
        change: Change | Request | Iterable[Change | Request],
        method: str | Method | None = None,
        *,
        out: str | Path | None = None,
        graph: str | Path | None = None,
        strict: bool = False,
        skip_invalid: bool = False,
        allow_class_loss: bool = False,
        purge: bool = False,
        progress: Progress | None = None,
        **options: Any,
    ) -> "Run":
        """A new run whose model follows its data: what was added, corrected or forgotten; this one stays as it is.

        A change that only forgets does what :meth:`forget` does with its request. Several are carried out one after
        another, each on the graph that the last left, and all are looked at before the first is; each has a receipt of
        its own, which tells what came and went by its ids and holds no value. The folder of a run holds no graph
        either: a run whose data was added to or corrected is opened with the graph as it is now (:attr:`data`).

        Args:
            change: One change, or several in order; requests may be among them.
            method: ``"gif"`` by default; ``"retrain"``, ``"finetune"`` and ``"none"`` answer changes too.
            out: A folder for the new run, as of :meth:`forget`.
            graph: A ``.pt`` file for the graph as it is now, written after each change too: what to open the run with.
            strict: Refuse an answer that is worse than doing nothing.
            skip_invalid: Go on where a change cannot be carried out, with a receipt that says why it was refused.
            allow_class_loss: Allow the last training node of a class to go.
            purge: Leave nothing else in the run that was made with what is removed or corrected (:meth:`purge`).
            progress: Called with (changes done, changes).
            **options: Options of the method.

        Raises:
            UnweaveError: A change cannot be carried out. Where it was not the first, ``error.run`` is the run as far as
                it got.
        """
        wished: dict[str, Any] = {"allow_class_loss": allow_class_loss, "purge": purge, "strict": strict}
        wish = self._wish(method, out, options=options, **wished)
        file = None if graph is None else Path(graph)
        how: dict[str, Any] = {"graph": file, "skip_invalid": skip_invalid, "progress": progress}
        return self._followed(listed_changes(change), wish, out, **how)

    def preview(
        self,
        request: Request | Change,
        method: str | Method | None = None,
        *,
        out: str | Path | None = None,
        strict: bool = False,
        allow_class_loss: bool = False,
        defer: bool = False,
        memory_mib: float | None = None,
        purge: bool = False,
        **options: Any,
    ) -> Plan:
        """What :meth:`forget` or :meth:`update` would do and at what cost, without doing it; same arguments.

        Request and method are checked as they would be then, and refused with the same errors; that takes a few passes
        over the graph.
        """
        wished: dict[str, Any] = {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
        wish = self._wish(method, out, purge=purge, strict=strict, options=options, **wished)
        return preview(self._state, request, wish)

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
        return screen_state(self._state, request, seed=seed, draws=draws, rate=rate)

    def inspect(
        self,
        of: AnyQuantity = "validation",
        *,
        hops: int | None = None,
        memory_mib: float | None = None,
        progress: Progress | None = None,
    ) -> Inspection:
        """What a quantity would be without each node, label, edge and feature (:func:`unweave.inspect`).

        Nothing is removed. Without a prepared state the curvature is computed for this.

        Args:
            of: ``"validation"``, ``"node:17"``, ``"class:3"``, a gap between groups, or a function (outputs, data) → a
                number.
            hops: Message-passing steps of the model, where its layers do not tell.
            memory_mib: MiB that the removals that are worked on side by side may take.
            progress: Called with (items scored, items) while those of a kind are scored.
        """
        state = self._state if not self._state.pending else verify(self._state)
        return inspect(
            state.model,
            state.data,
            of,
            weight_decay=state.training.weight_decay,
            loss=state.loss,
            forward=state.forward,
            prepared=state.prepared and state.prepared.to(state.data.x.device),
            hops=hops,
            memory_mib=memory_mib,
            progress=progress,
        )

    def prepare(self, *, memory_mib: float | None = None) -> "Run":
        """The same run with the state that makes requests cheap, computed anew on the graph as it is now.

        Args:
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.
        """
        return self._next(prepared_anew(self._state, memory_mib))

    def calibrate(
        self,
        deletions: int = DELETIONS,
        *,
        seed: int | None = None,
        trainer: AnyTrainer | str | None = None,
        memory_mib: float | None = None,
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
            trainer: Your own training, instead of the recipe's or of the one the run knows; only a
                :class:`~unweave.Trainer` serves to replay.
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph;
                retraining is done in blocks of nodes then, and ways that cannot be are left out.
            progress: Called with (deletions done, deletions).
            keep: Called with the run after each deletion, e.g. to save it: what was measured then is not lost.
        """
        kept = None if keep is None else lambda state: keep(Run.of(state))
        return self._next(
            calibrate(self._state, deletions, seed, trainer, memory_mib=memory_mib, progress=progress, keep=kept)
        )

    def rehearse(
        self, forget: str = "nodes:0.05", *, seed: int = 0, trainer: AnyTrainer | str | None = None
    ) -> Rehearsal:
        """Draw a request, forget it, retrain without it from the same seed and from another one, and compare.

        It tells how near this model would come to a retrained one. It costs two retrainings, and leaves the run as it
        is.

        Args:
            forget: Random request, e.g. ``"edges:0.05"``.
            seed: Of the request.
            trainer: Your own training, as ``retrain`` takes it, instead of what the run knows; it must draw from
                torch's generator, not set its own seed.
        """
        return rehearse(self._state, forget, seed=seed, trainer=trainer)

    def verify(self, *, memory_mib: float | None = None) -> "Run":
        """A new run in which the deferred requests are verified, by one evaluation on the remaining graph.

        A receipt then has what only the whole graph tells, and further requests start from there.

        All receipts are checked as well: each follows the one before it, from where that left the parameters, and its
        digest is that of the request it names; the last one's parameters are those of the model, and its objective is
        what the model has on the graph. That finds accidents and careless edits; somebody who is able to write the
        folder can forge all of it, unless the digest of the last receipt (``run.receipts.digest``) is kept elsewhere.

        Args:
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.

        Raises:
            RunError: Something does not hold.
        """
        check_chain(self._state)
        return self._next(verify(self._state, memory_mib))

    def purge(self, *, out: str | Path | None = None, memory_mib: float | None = None) -> "Run":
        """A new run that keeps nothing, beside the model, that was made with what it has forgotten.

        Checkpoints and calibration go, unless training began anew with the last request, and a prepared state is
        computed anew on the remaining graph. A receipt says so, and has the cost. Requests that are pending are
        verified first. A run that has nothing to purge, or has forgotten nothing, is returned as it is.

        Args:
            out: A folder for the new run, written in place of what it holds.
            memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph.
        """
        folder = None if out is None else Path(out)
        at_home = folder is not None and is_home(self._state, folder)
        done = purge(self._state, memory_mib, in_place=at_home)
        return self._next(done if folder is None else save(done, folder, overwrite=True))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the run to a folder, whole or not at all.

        Args:
            path: The folder; refused when it exists.
            overwrite: Replace it when it exists. The folder that this run was opened from is replaced only while it is
                as it was then: where another process has saved there since, open it again and forget anew.

        Raises:
            RunError: Something else is there, or it cannot be written; what was there is there still.
        """
        save(self._state, path, overwrite=overwrite)
        return Path(path)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: nn.Module | None = None,
        data: Data | None = None,
        root: str | Path | None = None,
        loss: AnyLoss | None = None,
        forward: Forward = call,
    ) -> "Run":
        """Read a run that :meth:`save` wrote, checking every file.

        Args:
            path: The folder.
            model: Your own module, when the run does not hold a built-in one; its weights are loaded into it.
            data: Your own graph, when :func:`unweave.load` does not have it: as it remained, or as it was before
                anything was forgotten. After :meth:`update` the graph as it is now.
            root: Data folder for :func:`unweave.load`.
            loss: Your own loss, when one was used.
            forward: Your own way to call the model, when one was used.
        """
        return cls.of(state_of(Path(path), model, data, root, loss, forward))
