"""What forgetting would do and what it would cost, without doing it."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from unweave._core import ranks
from unweave._core.tuning import TUNING
from unweave.certificate.bound import most_passes
from unweave.changes import Change
from unweave.errors import EmptyRequestError
from unweave.methods import Expected, Method
from unweave.methods.account import graph_of, options_of, region_of, types_in
from unweave.methods.changing import Asked, as_asked, check_answers
from unweave.methods.posing import meter_for
from unweave.methods.registry import make
from unweave.objective.parts.blocks import Blocks
from unweave.receipt.changed import describe_asked, describe_changed, is_change
from unweave.receipt.lines import describe_graph, describe_region, describe_removed, describe_traces
from unweave.receipt.traces import STATES, Trace
from unweave.request import Request
from unweave.run.gone import outstanding
from unweave.run.state import State, ready_for, traces, unlearn_state, worn
from unweave.run.verify import verified
from unweave.run.wish import Wish
from unweave.training.checkpoints import Checkpoint
from unweave.unlearning import check_kinds, pose_for

__all__ = ["Plan", "preview"]

LATER = "one prepared step from the neighbourhood of what goes, left unverified"


@dataclass(frozen=True)
class Plan:
    """What :meth:`unweave.Run.forget` would do with a request. ``str(plan)`` is for people, ``to_dict`` for machines.

    The request and the method were checked as they would be then, for the price of a few passes over the graph.

    Attributes:
        status: ``"to be done"``, ``"partly gone already"`` or ``"nothing to do"``.
        request: What would be carried out, in canonical form; empty where there is nothing to do.
        removed: How many nodes, edges, feature rows and labels would go.
        graph: Size of the graph and of its training set, before and after.
        region: The nodes whose prediction can change.
        method: Name and options.
        how: What the method would do, in words.
        at_minimum: Whether training ended at a minimum; ``None`` for a run that was not prepared.
        passes: Sweeps over the graph that the receipt would tell of, ``least`` and ``most`` (``None`` where not known),
            and ``about`` where the first training tells how many.
        preparing: About how many more for computing the prepared state anew, by what it took before.
        retraining: Sweeps that training takes; ``None`` where not known.
        remembers: What else would be purged, rewritten or kept, as in the receipt.
        first: What would be done before.
        warnings: What the reader should know.
    """

    status: str
    request: dict[str, Any]
    removed: dict[str, int]
    graph: dict[str, Any]
    region: dict[str, Any]
    method: dict[str, Any]
    how: str
    at_minimum: bool | None
    passes: dict[str, float | None]
    preparing: float
    retraining: float | None
    remembers: list[Trace]
    first: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def share(self) -> tuple[float, float | None] | None:
        """All passes, with those for preparing, as a share of a retraining, at least and at most, where it is known."""
        least, most = self.passes["least"], self.passes["most"] or self.passes["about"]
        if self.retraining is None or least is None:
            return None
        low, high = (None if n is None else (n + self.preparing) / self.retraining for n in (least, most))
        assert low is not None
        return low, high

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON document."""
        return {"format": "unweave-plan-2", **asdict(self), "share": None if self.share is None else list(self.share)}

    def __str__(self) -> str:
        if self.status == "nothing to do":
            return f"{'Asked':<11}nothing to do: {self.first[0]}"
        where: dict[bool | None, str] = {
            True: "training ended at a minimum",
            False: "training did not end at a minimum",
            None: "whether training ended at a minimum is not known; prepare tells",
        }
        lines = [
            ("Asked", f"{self._asked}; nothing was changed or written"),
            *(
                describe_changed(self.removed, ("To add", "To correct", "To forget"))
                if is_change(self.request)
                else [("Would go", describe_removed(self.removed))]
            ),
            ("Graph", describe_graph(self.graph)),
            ("Affected", describe_region(self.region)),
            ("Method", str(self.method["name"]) + (f": {self.how}" if self.how else "")),
            ("Model", where[self.at_minimum]),
            ("Cost", self._cost()),
            *describe_traces(self.remembers),
            *((("First" if i == 0 else ""), text) for i, text in enumerate(self.first)),
            *((("Warning" if i == 0 else ""), text) for i, text in enumerate(self.warnings)),
        ]
        return "\n".join(f"{title:<11}{text}" for title, text in lines)

    @property
    def _asked(self) -> str:
        return describe_asked(self.request) if is_change(self.request) else Request.from_dict(self.request).describe()

    def _cost(self) -> str:
        least, most, about = (self.passes[key] for key in ("least", "most", "about"))
        if most is not None:
            text = f"{least:.3g} passes" if least == most else f"{least:.3g} to {most:.3g} passes"
        elif about is not None:
            text = f"about {about:.4g} passes (at least {least:.3g})"
        else:
            text = f"at least {least:.3g} passes, how many more is not known"
        text += f", and about {self.preparing:.3g} to prepare anew" if self.preparing else ""
        if self.share is None:
            return f"{text}; what a retraining takes is not known"
        low, high = self.share
        ends = f"at least {low:.1%}" if high is None else f"{high:.1%}" if low == high else f"{low:.1%} to {high:.1%}"
        return f"{text}; {ends} of a retraining ({self.retraining:.4g} passes)"


def preview(state: State, request: Asked, wish: Wish) -> Plan:
    """What a run would do with a request or a change; see :meth:`unweave.Run.preview`."""
    meter_for(state.model, state.base, request)
    request = as_asked(request)
    method = wish.method_for(state)
    left, note = outstanding(request, state.receipts)
    if left is None:
        return _nothing(note)
    first, status = ([note], "partly gone already") if note else ([], "to be done")
    if state.pending and not wish.defer:
        some = "1 request that is" if state.pending == 1 else f"{state.pending} requests that are"
        first.append(f"{some} pending would be verified, by one look at the whole graph")
        state = verified(state, wish.memory_mib)
    given = ready_for(state, method) | dict(wish.options)
    recipe = state.training.recipe
    how = make(method, given, recipe)
    if isinstance(left, Change):
        check_answers(how, defer=wish.defer, bounded=ranks.budget(wish.memory_mib) is not None)
    old = not wish.defer and "prepared" in given and worn(state) > TUNING.minimum.worn
    if old:
        first.append("the prepared state would be computed anew, as a fifth of the graph went since")
    try:
        facts, expected, limits = (_deferred if wish.defer else _posed)(state, left, how, wish)
    except EmptyRequestError as error:
        return _nothing(str(error))
    polish = state.metrics.get("polish_passes") if recipe is not None and recipe.forgettable else 0
    least, most = limits[0], None if old or math.isinf(limits[1]) else limits[1]
    about = least + polish if expected.polishes and polish is not None else None
    again = old + (wish.purge and state.prepared is not None)
    prepared, certified = state.prepared, recipe is not None and recipe.certify is not None
    after, fresh = _after(state, expected.checkpoints, anew=expected.anew, purge=wish.purge)
    return Plan(
        status=status,
        **facts,
        how=expected.how,
        at_minimum=certified or None if prepared is None else prepared.at_minimum,
        passes={"least": least, "most": most, "about": about},
        preparing=again * prepared.passes if prepared is not None else 0,
        retraining=None if polish is None or certified or recipe is None else 2 * recipe.epochs + polish,
        remembers=traces(state, after, fresh, in_place=wish.in_place, change=isinstance(left, Change)),
        first=first,
    )


def _nothing(why: str) -> Plan:
    """The plan for a request of which nothing is left to do."""
    none = {"least": 0.0, "most": 0.0, "about": None}
    return Plan("nothing to do", {}, {}, {}, {}, {}, "nothing", None, none, 0, None, [], first=[why])


def _posed(
    state: State, request: Asked, how: Method, wish: Wish
) -> tuple[dict[str, Any], Expected, tuple[float, float]]:
    """The problem that the request poses, and what the method says of it."""
    decay, graph = state.training.weight_decay, state.graph
    memory_mib = ranks.budget(wish.memory_mib)
    bounded = memory_mib is not None
    check_kinds(how, decay, state.training.recipe, None, defer=False, bounded=bounded, strict=wish.strict)
    meter = meter_for(state.model, state.base, request)
    with torch.enable_grad():
        problem, region, notes = pose_for(
            state.model,
            graph,
            request,
            how,
            None,
            memory_mib,
            weight_decay=decay,
            loss=state.loss,
            forward=state.forward,
            seed=state.seed,
            allow_class_loss=wish.allow_class_loss,
            meter=meter,
        )
        spent = meter.passes
        expected = how.expect(problem)
    look = 2 if how.local else 1
    least = spent + expected.least + (0 if expected.settled else look)
    most = spent + look + (math.inf if expected.most is None else expected.most) + most_passes(problem.remaining)
    if isinstance(problem.remaining, Blocks):
        least, most = spent, math.inf  # a sweep in blocks is more than one
    facts = {
        "request": problem.removal.content,
        "removed": problem.removal.counts | types_in(problem.removal),
        "graph": graph_of(region, problem),
        "region": region_of(region, problem),
        "method": {"name": how.name, "options": options_of(how)},
        "warnings": notes,
    }
    return facts, expected, (math.floor(least), most if math.isinf(most) else math.ceil(most))


def _deferred(
    state: State, request: Asked, how: Method, wish: Wish
) -> tuple[dict[str, Any], Expected, tuple[float, float]]:
    """A deferred request is so cheap that it is carried out to see what it would do."""
    given: dict[str, Any] = {"allow_class_loss": wish.allow_class_loss, "memory_mib": wish.memory_mib}
    told = unlearn_state(state, request, how, defer=True, strict=wish.strict, **given).receipt
    if not told.carried_out:
        raise EmptyRequestError(str(told.reason))
    facts = {key: getattr(told, key) for key in ("request", "removed", "graph", "region", "method", "warnings")}
    return facts, Expected(LATER), (told.passes, told.passes)


def _after(
    state: State, checkpoints: tuple[Checkpoint, ...] | None, *, anew: bool, purge: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of a run as they would be, and how those come about that would be made anew."""
    parts: dict[str, Any] = {part.field: getattr(state, part.field) for part in STATES}
    parts["checkpoints"] = parts["checkpoints"] if checkpoints is None else checkpoints
    fresh = {"checkpoints": "training begins anew on the remaining graph"} if anew else {}
    for part in STATES if purge else ():
        if part.anew and parts[part.field]:
            fresh[part.field] = "computed anew on the remaining graph"
        elif part.field not in fresh:
            parts[part.field] = None
    return parts, fresh
