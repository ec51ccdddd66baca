"""A run: a trained model with its graph, recipe, scores and receipts, in memory and on disk.

On disk a run is a folder of safetensors and JSON, written beside its place and moved there in one step.
``manifest.json`` holds the digest of every file, so a truncated or edited one is noticed. Nothing in a
run is ever executed.
"""

import copy
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import nn
from torch_geometric.data import Data

from unweave._digest import graph_digest, tensor_digest
from unweave.accounting import all_together
from unweave.bounded import bounded_objective
from unweave.calibrating import DELETIONS, calibrate
from unweave.calibration import Calibration
from unweave.checkpoints import Checkpoint, Trainer, read_checkpoints, write_checkpoints
from unweave.data import load
from unweave.deferral import settle
from unweave.errors import MethodError, RequestError, RunError
from unweave.fitting import Progress, Recipe
from unweave.folder import check_folder, read_folder, recover_folder, to_json, write_folder
from unweave.graph import MASKS, remove
from unweave.losses import Loss, cross_entropy
from unweave.meter import Meter
from unweave.methods import Method
from unweave.methods.registry import ready_for
from unweave.metrics import score, score_outputs
from unweave.models import MODELS
from unweave.objective import Forward, Objective, call, decay_vector, flatten
from unweave.planning import Plan, plan
from unweave.prepared import WORN, Prepared, prepare
from unweave.receipt import Receipt
from unweave.remembering import STATES, Trace, began_anew, fates, outside, replaced
from unweave.request import Request
from unweave.screening import DRAWS, RATE, Screening, screen_run, screened
from unweave.standing import Standing, standing_of
from unweave.streams import forget_all, noted, outstanding, refuse_gone
from unweave.unlearning import Unlearned, unlearn
from unweave.view import GraphView

__all__ = ["Run"]

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
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
        method trains: ``replay`` puts new ones in the place of those it passes, and ``retrain`` leaves none. The
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
            purge: Leave nothing else in the run that was made with what is removed: checkpoints go, unless training
                began anew, and a prepared state is computed anew on the remaining graph.
            screen: Refuse a request that is out of the ordinary (:meth:`screen`); the receipt has what was found.
            **options: Options of the method.
        """
        method = self._usual(defer) if method is None else method
        _check_purge(purge, defer)
        self._check_trainer(method, options)
        again: dict[str, Any] = {
            "allow_class_loss": allow_class_loss,
            "memory_mib": memory_mib,
            "purge": purge,
            **options,
        }
        if screen:
            return screened(self, request, method, defer=defer, **again)
        if isinstance(request, Request) and self.receipts:
            left, note = outstanding(request, self.receipts)
            if left is None:
                raise refuse_gone(request, note)
            if note:
                return noted(self.forget(left, method, defer=defer, **again), note)
        if self.pending and not defer:
            return self._verified(memory_mib).forget(request, method, **again)
        if self.prepared is not None and not defer and ready_for(method, prepared=self.prepared) and self._worn > WORN:
            here = self.prepare(memory_mib=memory_mib)
            new, told = here.forget(request, method, **again), here.prepared
            assert told is not None
            last = _with_cost(new.receipts[-1], "prepare", told)
            last = replace(last, details=last.details | {"prepared": f"anew for this request, {told.passes} passes"})
            return replace(new, receipts=(*new.receipts[:-1], last))
        done = unlearn(
            self.model,
            self.graph,
            request,
            method,
            weight_decay=self.recipe.weight_decay,
            loss=self.loss,
            forward=self.forward,
            seed=self.recipe.seed,
            allow_class_loss=allow_class_loss,
            recipe=self.recipe,
            defer=defer,
            memory_mib=memory_mib,
            **(self._ready_for(method) | options),
        )
        new = replace(
            self,
            model=done.model,
            graph=done.graph,
            metrics=self._scores(done),
            checkpoints=self.checkpoints if done.checkpoints is None else done.checkpoints,
        )
        anew = began_anew(done.checkpoints, done.receipt.details)
        receipt, fresh = done.receipt, {"checkpoints": "training began anew on the remaining graph"} if anew else {}
        if purge:
            new = new._purged(fresh, memory_mib)
            if new.prepared is not None:
                receipt = _with_cost(receipt, "purge", new.prepared)
                fresh["prepared"] = f"computed anew on the remaining graph, {new.prepared.passes} passes"
        else:
            new = replace(new, prepared=done.prepared if defer else self._aged(done, memory_mib))
        receipt = replace(receipt, remembers=[*receipt.remembers, *self._traces(vars(new), fresh)])
        return replace(new, receipts=(*self.receipts, _in_sequence(receipt, self.receipts)))

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

    def _purged(self, fresh: Collection[str], memory_mib: float | None) -> "Run":
        """This run, which has forgotten, without what was made before that; what a purge makes anew is made anew."""
        gone = [part.field for part in STATES if part.field not in fresh]
        own: dict[str, Any] = {field: type(self).__dataclass_fields__[field].default for field in gone}
        bare = replace(self, **own)
        return bare if self.prepared is None else bare.prepare(memory_mib=memory_mib)

    def _usual(self, defer: bool) -> str:
        """The method that is taken where none is named."""
        if self.recipe.certify is not None and defer:
            raise MethodError(
                "a deferred request cannot be certified, which this run was trained for; leave defer (--defer) out, or "
                "name method='gif' (--method gif) for a model that is not certified"
            )
        return "gif" if self.recipe.certify is None else "certified"

    def _check_trainer(self, method: str | Method, options: Mapping[str, Any]) -> None:
        """A recipe is that of Adam; a training whose states are those of another loop is not repeated by it."""
        others = {name for state in self.checkpoints for name, _ in state.parts} - {"Adam"}
        if method in ("retrain", "auto") and others and options.get("trainer") is None:
            raise MethodError(
                f"the checkpoints of this run were taken with {', '.join(sorted(others))}, not by our training, so its "
                "recipe would train another model; pass the trainer= that made it (in Python)"
            )

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
        _check_purge(purge, defer)
        method = self._usual(defer) if method is None else method
        self._check_trainer(method, options)
        given: dict[str, Any] = {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
        if isinstance(request, Request) and self.receipts:
            left, note = outstanding(request, self.receipts)
            if left is None:
                raise refuse_gone(request, note)
            if note:
                known = self.plan(left, method, purge=purge, **given, **options)
                return replace(known, first=[note, *known.first])
        if self.pending and not defer:
            here = self._verified(memory_mib)
            known = here.plan(request, method, allow_class_loss=allow_class_loss, purge=purge, **options)
            some = "1 request that is" if self.pending == 1 else f"{self.pending} requests that are"
            first = f"{some} pending would be verified, by one look at the whole graph"
            return replace(known, first=[first, *known.first])
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
            **options: As for :meth:`forget`.
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

    def _scores(self, done: Unlearned) -> dict[str, float]:
        if done.outputs is None:
            return {}
        labels = done.graph.labels if isinstance(done.graph, GraphView) else done.graph
        return score_outputs(done.outputs, labels, self.loss)

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
        retrained by the recipe, and every method tried. That costs some two retrainings a deletion, once; it uses no
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

    def _aged(self, done: Unlearned, memory_mib: float | None) -> Prepared | None:
        """The prepared state for the new model: its curvature one request older, its gradient new."""
        if self.prepared is None or done.prepared is not None:
            return done.prepared
        decay = decay_vector(done.model, self.recipe.weight_decay)
        if memory_mib is not None:
            rest = (self.recipe.weight_decay, self.loss, self.forward, Meter(decay.device), memory_mib)
            blocks = bounded_objective(done.model, done.graph, *rest)
            digest = done.receipt.parameters["digest_after"]
            state = self.prepared.moved(digest, *blocks.evaluate(flatten(done.model)))
            return replace(state, locality=blocks.locality)
        meter = Meter(done.data.x.device)
        objective = Objective(done.model, done.data, self.loss, decay, self.forward, meter)
        return self.prepared.moved(
            done.receipt.parameters["digest_after"], *objective.evaluate(flatten(done.model))
        ).on(done.data, self.loss, self.forward)

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
        write_folder(path, self.at(path)._files())
        return path

    def at(self, path: str | Path) -> "Run":
        """This run as a folder will hold it: its receipts know whether the run before is replaced."""
        if self.origin is None or Path(path).resolve() != self.origin[0].resolve():
            return self
        old, new = self.receipts[: self.origin[1]], self.receipts[self.origin[1] :]
        return replace(self, receipts=(*old, *(replace(r, remembers=replaced(r.remembers)) for r in new)))

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
        path = Path(path)
        files = read_folder(path)
        try:
            config, metrics = json.loads(files["config.json"]), json.loads(files["metrics.json"])
            recipe = Recipe(**config["recipe"])
            receipts = tuple(Receipt.from_json(files[n].decode()) for n in sorted(files) if n.startswith("receipts/"))
            requests = [Request.from_dict(receipt.request) for receipt in receipts]
            module = _module(path, config["model"], model)
            prepared = Prepared.from_files(files) if "prepared.json" in files else None
            states = read_checkpoints(files) if "checkpoints.json" in files else ()
            measured = files.get("calibration.json")
            calibration = None if measured is None else Calibration.from_json(measured)
        except (*MALFORMED, SafetensorError, RequestError, MethodError) as error:
            raise RunError(f"{path} does not hold what a run holds: {error}") from error
        if config["loss"] != _name(loss):
            raise RunError(f"{path} was trained with the loss {config['loss']!r}; pass it as loss=")
        graph = _graph(path, config["data"], data, root)
        wrong = RunError(
            f"the graph is not the one that {path} was made with; give as data= the original graph, or the one that "
            "remained"
        )
        known = config["data"]["digest"]
        for request in requests if graph_digest(graph) != known else []:
            try:
                graph = remove(graph, request).data
            except RequestError as error:
                raise wrong from error
        if graph_digest(graph) != known:
            raise wrong
        try:
            module.load_state_dict(load_tensors(files["weights.safetensors"]))
        except (RuntimeError, SafetensorError) as error:
            raise RunError(f"the weights of {path} do not fit the model: {error}") from error
        return cls(
            model=module.eval(),
            graph=graph,
            recipe=recipe,
            metrics=metrics,
            receipts=receipts,
            prepared=prepared and prepared.on(graph, loss, forward),
            loss=loss,
            forward=forward,
            checkpoints=states,
            origin=(path, len(receipts)),
            calibration=calibration,
        )

    def _files(self) -> dict[str, bytes]:
        name = next((key for key, cls in MODELS.items() if type(self.model) is cls), None)
        config = {
            "data": {
                "name": self.data.get("name"),
                "split_seed": self.data.get("split_seed"),
                "nodes": int(self.data.num_nodes),
                "digest": graph_digest(self.data),
            },
            "model": {
                "name": name or type(self.model).__qualname__,
                "built_in": name is not None,
                "config": self.model.config if name else None,
            },
            "recipe": asdict(self.recipe),
            "loss": _name(self.loss),
        }
        split = {
            mask.removesuffix("_mask"): self.data[mask].nonzero().flatten().tolist()
            for mask in MASKS
            if self.data.get(mask) is not None
        }
        weights = {key: value.detach().cpu().contiguous().clone() for key, value in self.model.state_dict().items()}
        files = {
            "weights.safetensors": save_tensors(weights),
            "config.json": to_json(config),
            "split.json": to_json(split),
            "metrics.json": to_json(dict(self.metrics)),
        }
        if self.prepared is not None:
            files |= self.prepared.to_files()
        if self.checkpoints:
            files |= write_checkpoints(self.checkpoints)
        if self.calibration is not None:
            files["calibration.json"] = to_json(self.calibration.to_dict())
        for number, receipt in enumerate(self.receipts, start=1):
            files[f"receipts/{number:04d}.json"] = to_json(receipt.to_dict())
        return files


def _in_sequence(receipt: Receipt, earlier: tuple[Receipt, ...]) -> Receipt:
    """The receipt of a certified request, with what all models since training give away when they are seen together."""
    told = [
        r.certificate for r in (*earlier, receipt) if r.certificate is not None and r.certificate["kind"] == "removal"
    ]
    if receipt.certificate is None or receipt.certificate not in told:
        return receipt
    if others := len(earlier) + 1 - len(told):
        models = "1 earlier model of this run is" if others == 1 else f"{others} earlier models of this run are"
        note = f"{receipt.certificate['statement']}; {models} not certified, and may give away what this one does not"
        receipt = replace(receipt, certificate=receipt.certificate | {"statement": note})
    if len(told) < 2:
        return receipt
    assert receipt.certificate is not None
    delta = receipt.certificate["delta"]
    epsilon = all_together([(known["epsilon"], known["delta"]) for known in told], delta)
    seen = {"models": len(told), "epsilon": epsilon, "delta": delta}
    return replace(receipt, certificate=receipt.certificate | {"together": seen})


def _served_best(state: Prepared, calibration: Calibration | None) -> Prepared:
    """A prepared state with the damping that served best, where that was measured."""
    factor = 1.0 if calibration is None else calibration.factor
    return replace(state, damping=factor * state.damping, raised=factor * state.raised)


def _check_purge(purge: bool, defer: bool) -> None:
    if purge and defer:
        raise MethodError(
            "purge (--purge) computes the prepared state anew, which looks at the whole graph, and a deferred request "
            "does not; leave defer (--defer) out, or purge with a later request, which verifies this one"
        )


def _with_cost(receipt: Receipt, phase: str, state: Prepared) -> Receipt:
    """The receipt of a request for which the state was computed anew."""
    seconds = receipt.seconds | {phase: state.seconds, "total": receipt.seconds["total"] + state.seconds}
    return replace(receipt, seconds=seconds, passes=receipt.passes + state.passes)


def _graph(path: Path, known: dict[str, Any], given: Data | None, root: str | Path | None) -> Data:
    if given is not None:
        return given
    if known["name"] is None:
        raise RunError(f"{path} was made with a graph of your own; pass it as data=")
    return load(known["name"], seed=known["split_seed"], root=root)


def _module(path: Path, known: dict[str, Any], given: nn.Module | None) -> nn.Module:
    if given is not None:
        return given
    if not known["built_in"]:
        raise RunError(f"{path} holds a model of your own ({known['name']}); pass one as model=")
    built: nn.Module = MODELS[known["name"]](**known["config"])
    return built


def _name(loss: Loss) -> str:
    return getattr(loss, "__name__", type(loss).__name__)
