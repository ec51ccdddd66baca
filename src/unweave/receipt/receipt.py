"""What was done, how well and at what cost: a record for people and for machines."""

import json
import platform
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy
import scipy
import torch
import torch_geometric

from unweave._core.digest import canonical_json
from unweave.errors import RunError
from unweave.receipt.traces import Trace
from unweave.receipt.words import in_words
from unweave.request import Request

__all__ = [
    "Receipt",
    "describe_graph",
    "describe_region",
    "describe_removed",
    "describe_traces",
    "environment",
]


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and device of this process."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "device": str(device),
        "device_name": name,
        "threads": torch.get_num_threads(),
    }


@dataclass(frozen=True)
class Receipt:
    """The record of one request. ``str(receipt)`` is for people, ``receipt.to_json()`` for machines.

    Attributes:
        request: The request in canonical form.
        request_digest: Its SHA-256.
        removed: How many nodes, edges, feature rows and labels went.
        graph: Size of the graph and of its training set, before and after.
        region: The nodes whose prediction can change, per hop, and how the hop count is known.
        method: Name and options.
        details: What the method reports of itself.
        solve: How its linear system was solved, or ``None``.
        objective: L0(θ0), L'(θ0), L'(θ̂), the change of the local problem Q, and the change of the function: mean
            KL(before ‖ after) of the outputs on the remaining nodes, for class probabilities.
        residual_influence: ‖∇Q(θ̂)‖ / ‖∇Q(θ0)‖: 1 is as doing nothing, 0 a solved local problem; ``None`` where no
            training loss changed, and for a method that is not judged by Q.
        step_norm: ‖θ̂ − θ0‖.
        parameters: Count, norm of θ0, digests before and after.
        seconds: Wall-clock per phase, and their total.
        passes: Sweeps over the graph; a sweep over a part of it is a part of one.
        peak_mib: Peak memory of the whole call.
        seed: The seed given.
        environment: Versions and device.
        warnings: What the reader should know.
        nearness: How near the answer is to retraining, in words, for a method that is not judged by Q.
        remembers: What else was made with what was removed, each with ``what``, ``where``, ``state`` (``purged``,
            ``rewritten`` or ``kept``) and ``why``. A run lists all its parts, :func:`unweave.unlearn` those of the
            model.
        verified: Whether the answer was checked on the whole graph. Until a deferred request is, what only that tells
            is not in ``objective``, and ``residual_influence`` is ``None``.
        certificate: What is proved: its ``kind`` is ``"removal"``, ``"bound"``, ``"local"`` or ``"none"``, its
            ``statement`` says it in words, the rest are its figures and what was checked
            (:mod:`unweave.certificate.bound`). ``None`` in receipts from before there were any.
        ladder: What ``auto`` tried, what it believes and on what evidence; ``verdict`` says it in words.
        screening: What the request was predicted to do, beside random ones, where that was asked before.
    """

    request: dict[str, Any]
    request_digest: str
    removed: dict[str, int]
    graph: dict[str, Any]
    region: dict[str, Any]
    method: dict[str, Any]
    details: dict[str, Any]
    solve: dict[str, Any] | None
    objective: dict[str, Any]
    residual_influence: float | None
    step_norm: float
    parameters: dict[str, Any]
    seconds: dict[str, float]
    passes: float
    peak_mib: float
    seed: int
    environment: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    nearness: str | None = None
    verified: bool = True
    certificate: dict[str, Any] | None = None
    remembers: list[Trace] = field(default_factory=list)
    ladder: dict[str, Any] | None = None
    screening: dict[str, Any] | None = None

    @property
    def verdict(self) -> str | None:
        """What ``auto`` did, how near it is believed to be, on what evidence, and what still remembers."""
        if self.ladder is None:
            return None
        return " ".join(in_words(self.ladder, self.remembers, self.certificate))

    def to_dict(self) -> dict[str, Any]:
        """The receipt as a JSON document."""
        told = {} if self.ladder is None else {"verdict": self.verdict}
        return {"format": "unweave-receipt-1", **asdict(self), **told}

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no NaN; the same receipt always gives the same text."""
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Receipt":
        """Read what :meth:`to_dict` wrote."""
        fields = dict(document)
        fields.pop("verdict", None)
        if fields.pop("format", None) != "unweave-receipt-1":
            raise RunError(f"not a receipt of this version of unweave: format {document.get('format')!r}")
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str) -> "Receipt":
        """Read what :meth:`to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        return "\n".join(f"{title:<11}{text}" for title, text in self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        lines = [
            ("Asked", f"{Request.from_dict(self.request).describe()}  (request {self.request_digest[:12]})"),
            ("Forgotten", describe_removed(self.removed)),
            ("Graph", describe_graph(self.graph)),
            ("Affected", describe_region(self.region)),
            *([("Screened", str(self.screening["statement"]))] if self.screening else []),
            ("Method", self._method()),
        ]
        if self.solve:
            settings = ", ".join(f"{k} {_short(v)}" for k, v in self.solve["settings"].items())
            lines.append(
                (
                    "Solved",
                    f"{self.solve['solver']} ({settings}): {self.solve['iterations']} iterations, "
                    f"the linear system to {self.solve['relative_residual']:.2g}",
                )
            )
        share = self.step_norm / max(self.parameters["norm_before"], 1e-30)
        lines += [
            (
                "Moved",
                f"{self.parameters['count']:,} parameters by {self.step_norm:.4g} ({share:.2%} of their length); "
                f"{self.parameters['digest_before'][:12]} → {self.parameters['digest_after'][:12]}",
            ),
            ("Objective", self._objective()),
            ("How near", self._nearness()),
            *([("Certified", self._certified())] if self.certificate else []),
            (
                "Cost",
                f"{self.seconds['total']:.3g} s, {_number(self.passes)} passes over the graph, "
                f"peak {self.peak_mib:.0f} MiB on {self.environment['device_name']} ({self.environment['device']})",
            ),
        ]
        lines += describe_traces(self.remembers)
        if self.ladder is not None:
            words = in_words(self.ladder, self.remembers, self.certificate)
            lines += [("Verdict" if i == 0 else "", text) for i, text in enumerate(words)]
        lines += [("Warning" if i == 0 else "", text) for i, text in enumerate(self.warnings)]
        return lines

    def _certified(self) -> str:
        assert self.certificate is not None
        text, together = str(self.certificate["statement"]), self.certificate.get("together")
        if not together:
            return text
        return f"{text}; all {together['models']} models since training seen together: ε {together['epsilon']:.3g}"

    def _objective(self) -> str:
        before, after = (self.objective.get(f"remaining_{when}") for when in ("before", "after"))
        if after is None:
            return "not evaluated"
        moved = self.objective.get("function_change")
        return (
            ("" if before is None else f"{before:.6g} → ")
            + f"{after:.6g} on the remaining graph"
            + (f"; outputs there moved by {moved:.3g} nats on average" if moved is not None else "")
        )

    def _method(self) -> str:
        details = ", ".join(f"{key.replace('_', ' ')} {_short(value)}" for key, value in self.details.items())
        return str(self.method["name"]) + (f" ({details})" if details else "")

    def _nearness(self) -> str:
        if self.nearness is not None or self.method["name"] == "retrain":
            return self.nearness or "this is the retrained model itself"
        if not self.verified:
            return "unverified: run `unweave verify RUN` (in Python, Run.verify)"
        left, together = self.residual_influence, self.details.get("verified_together", 1)
        if left is None and "local_change" not in self.objective and "deferred" not in self.details:
            return "not measured"
        if left is None:
            return "no training loss depends on what was removed, so there is no influence to measure"
        verdict = ", larger than before" if left > 1 else ""
        return (
            f"residual {left:.3f} of the undamped local problem (1 = nothing done, 0 = solved){verdict}"
            + (f", of {together} requests together. " if together > 1 else ". ")
            + "The distance to a retrained model was not measured here; unweave.rehearse measures it"
        )


def describe_removed(removed: dict[str, int]) -> str:
    """What a request takes, in words."""
    went = [
        _count(removed["nodes"], "node"),
        _count(removed["edges"], "edge"),
        f"the features of {_count(removed['feature_rows'], 'node')}" if removed["feature_rows"] else "",
        _count(removed["labels"], "label"),
    ]
    return ", ".join(filter(None, went)) + ("; deleted nodes take theirs along" if removed["nodes"] else "")


def describe_graph(graph: dict[str, Any]) -> str:
    """The size of a graph before and after, in words."""
    return (
        f"{graph['nodes']:,} nodes, {graph['stored_edges_before']:,} → {graph['stored_edges_after']:,} stored "
        f"edges, {graph['training_nodes_before']:,} → {graph['training_nodes_after']:,} training nodes"
    )


def describe_region(region: dict[str, Any]) -> str:
    """The nodes whose prediction can change, in words."""
    if region["steps"] is None:
        return f"the whole graph is taken as affected ({region['source']})"
    hops = " + ".join(f"{n:,}" for n in region["sizes"])
    return (
        f"{region['nodes']:,} nodes can see their prediction change, {region['training_nodes']:,} of them in "
        f"training ({hops} by hops 0 … {region['steps']}; {region['source']})"
        + (f"; {region['halo_nodes']:,} nodes were looked at" if "halo_nodes" in region else "")
    )


def describe_traces(remembers: list[Trace]) -> list[tuple[str, str]]:
    """What is gone, what was made anew and what still remembers, in words, under a title each."""
    lines = []
    for state, title in (("purged", "Purged"), ("rewritten", "Rewritten"), ("kept", "Remembers")):
        some = [f"{t['what']} ({t['where']}): {t['why']}" for t in remembers if t["state"] == state]
        lines += [(title if i == 0 else "", text) for i, text in enumerate(some)]
    return lines


def _count(number: int, noun: str) -> str:
    if not number:
        return ""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _number(passes: float) -> str:
    return str(passes) if isinstance(passes, int) else f"{passes:.3g}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
