"""What a receipt holds: plain values alone, with a digest, to and from canonical JSON."""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

import numpy
import scipy
import torch
import torch_geometric

from unweave._core.document import canonical_json
from unweave._core.version import __version__
from unweave.errors import RunError
from unweave.receipt.traces import Trace

__all__ = ["FORMAT", "KINDS", "STATUSES", "Record", "environment", "now"]

FORMAT = "unweave-receipt-2"
KINDS = ("request", "change", "verification", "purge")
STATUSES = ("done", "nothing to do", "partly gone already", "refused", "unverified")


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


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
class Record:
    """The values of a receipt.

    Attributes:
        kind: ``"request"``, ``"change"`` (of data that was added or corrected too), ``"verification"`` (of requests
            that were deferred) or ``"purge"``.
        status: ``"done"``, ``"nothing to do"``, ``"partly gone already"``, ``"refused"``, or ``"unverified"`` for a
            request that was deferred.
        time: When it was issued, in UTC.
        version: Of unweave.
        id: The requester's own name for the request.
        note: The requester's remark.
        asked: The request as it was received; of a change the ids, never a value (:meth:`unweave.Change.outline`).
        request_digest: SHA-256 of the request, or of the change with its values.
        request: What was carried out of it, in canonical form; empty where nothing was.
        reason: Why it was refused, why there was nothing to do, or what had gone already.
        speaks_of: Digests of the receipts that a verification or a purge is about.
        previous: Digest of the receipt before it in the run.
        removed: How many nodes, edges, feature rows and labels went; of a change also how many came and were corrected.
        graph: Size of the graph and of its training set, before and after.
        region: The nodes whose prediction can change, per hop, and how the hop count is known.
        method: Name and options.
        details: What the method reports of itself.
        solve: How its linear system was solved, or ``None``.
        objective: L0(θ0), L'(θ0), L'(θ̂), the change of the local problem Q, and the change of the function: mean
            KL(before ‖ after) of the outputs on the remaining nodes, for class probabilities.
        residual_influence: ‖∇Q(θ̂)‖ / ‖∇Q(θ0)‖: 1 is as doing nothing, 0 a solved local problem; ``None`` where no
            training loss changed, for a method that is not judged by Q, and until a deferred request is verified.
        step_norm: ‖θ̂ − θ0‖.
        anew: Whether the model was trained from the start on the remaining graph.
        parameters: Count, norm of θ0, digests before and after.
        seconds: Wall-clock per phase, and their total.
        passes: Sweeps over the graph; a sweep over a part of it is a part of one.
        peak_mib: Peak memory of the whole call.
        seed: The seed given.
        environment: Versions and device.
        warnings: What the reader should know.
        nearness: How near the answer is to retraining, in words, for a method that is not judged by Q.
        certificate: What is proved: its ``kind`` is ``"removal"``, ``"bound"``, ``"local"`` or ``"none"``, its
            ``statement`` says it in words, the rest are its figures and what was checked
            (:mod:`unweave.certificate.bound`).
        remembers: What else was made with what was removed, each with ``what``, ``where``, ``state`` (``purged``,
            ``rewritten`` or ``kept``) and ``why``. A run lists all its parts, :func:`unweave.unlearn` those of the
            model.
        ladder: What ``auto`` tried, what it believes and on what evidence.
        screening: What the request was predicted to do, beside random ones, where that was asked before.
    """

    kind: str = "request"
    status: str = "done"
    time: str = field(default_factory=now)
    version: str = __version__
    id: str | None = None
    note: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    request_digest: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    speaks_of: list[str] = field(default_factory=list)
    previous: str | None = None
    removed: dict[str, int] = field(default_factory=dict)
    graph: dict[str, Any] = field(default_factory=dict)
    region: dict[str, Any] = field(default_factory=dict)
    method: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    solve: dict[str, Any] | None = None
    objective: dict[str, Any] = field(default_factory=dict)
    residual_influence: float | None = None
    step_norm: float = 0.0
    anew: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"total": 0.0})
    passes: float = 0
    peak_mib: float = 0.0
    seed: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    nearness: str | None = None
    certificate: dict[str, Any] | None = None
    remembers: list[Trace] = field(default_factory=list)
    ladder: dict[str, Any] | None = None
    screening: dict[str, Any] | None = None

    @property
    def carried_out(self) -> bool:
        """Whether something of the graph was removed, or changed."""
        return self.kind in ("request", "change") and bool(self.request)

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON as it was issued, by which later receipts name it."""
        known: str | None = vars(self).get("_issued")
        return known or hashlib.sha256(self.to_json().encode()).hexdigest()

    def issued_as(self, digest: str) -> Self:
        """This receipt, read from where it was stored under a digest; its words may be told in another way by now."""
        object.__setattr__(self, "_issued", digest)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The receipt as a JSON document."""
        return {"format": FORMAT, **asdict(self)}

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no NaN; the same receipt always gives the same text."""
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote.

        Raises:
            RunError: It is not a receipt of this version, or its values are not of the kinds they have to be.
        """
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            found = document.get("format") if isinstance(document, dict) else type(document).__name__
            raise RunError(f"not a receipt of this version of unweave: format {found!r}")
        known = {f.name for f in fields(Record)}
        given = {name: value for name, value in document.items() if name in known}
        if missing := sorted(known - set(given)):
            raise RunError(f"the receipt lacks {missing[0]!r}; it was cut, or edited")
        receipt = cls(**given)
        _check(receipt)
        return receipt

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` wrote."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RunError(f"the receipt is not valid JSON: {error}") from None
        return cls.from_dict(document)


MAPPINGS = ("asked", "request", "removed", "graph", "region", "method", "details", "objective", "parameters", "seconds")
MAYBE_MAPPINGS = ("solve", "certificate", "ladder", "screening")
TEXTS = ("kind", "status", "time", "version")
MAYBE_TEXTS = ("id", "note", "request_digest", "reason", "previous", "nearness")
NUMBERS = ("step_norm", "passes", "peak_mib", "seed")


def _check(receipt: Record) -> None:
    """Refuse values of other kinds than receipts have: a folder may have been edited."""
    wanted: list[tuple[tuple[str, ...], tuple[type, ...]]] = [
        ((*MAPPINGS, "environment"), (dict,)),
        (MAYBE_MAPPINGS, (dict, type(None))),
        (TEXTS, (str,)),
        (MAYBE_TEXTS, (str, type(None))),
        (NUMBERS, (int, float)),
        (("residual_influence",), (int, float, type(None))),
        (("speaks_of", "warnings", "remembers"), (list,)),
        (("anew",), (bool,)),
    ]
    wrong = [name for names, kinds in wanted for name in names if not isinstance(getattr(receipt, name), kinds)]
    texts = [*receipt.speaks_of, *receipt.warnings] if not wrong else []
    parts = ("what", "where", "state", "why")
    if (
        wrong
        or receipt.kind not in KINDS
        or receipt.status not in STATUSES
        or not all(isinstance(text, str) for text in texts)
        or not all(isinstance(found, dict) and set(found) == set(parts) for found in receipt.remembers)
    ):
        raise RunError(f"{wrong[0] if wrong else 'a value'!r} of the receipt is not what a receipt has there")
