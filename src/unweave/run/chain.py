"""The chain of a run's receipts: each follows from the one before, and the last is that of the model.

What this proves: that receipts, requests, model and the parts beside it were written together and not changed one by
one: by a mistake, by a file copied from another run, or by somebody who edited one place and not all others. What it
does not prove: that nobody rewrote all of it. Who can write the folder can compute every digest anew; only a signature
with a key that is kept elsewhere can tell. Copy the digest of the last receipt (``run.receipts.digest``) to a place
that others cannot write: it stands for all receipts up to that one.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from unweave._core.digest import tensor_digest
from unweave._core.kinds import fits
from unweave._core.text import printable
from unweave._core.version import __version__
from unweave.certificate.bound import Bound
from unweave.certificate.gaussian import epsilon_of, ratio_of
from unweave.errors import ModelError, RequestError, RunError
from unweave.receipt.changed import is_change
from unweave.receipt.receipt import Receipt
from unweave.request import ALL, Request
from unweave.run.receipts import MALFORMED, Receipts
from unweave.run.state import State

__all__ = ["check_chain"]

SAME = 1e-6
"""Relative difference up to which a figure is the one that follows from others."""


def check_chain(state: State) -> None:
    """Check that a run's receipts follow from each other, and that its parts belong to its model.

    Every receipt is read: its digest, the one before it, its request against the request's digest and against what the
    graph is rebuilt by, the parameters it found and left, the sizes of the graph, the figures of its certificate as far
    as they follow from each other. The last must have left the parameters that the model has.

    Raises:
        RunError: The first receipt or part that does not fit, and what does not.
    """
    receipts, digest = state.receipts, tensor_digest(state.model.named_parameters())
    left: dict[str, Any] = {}
    digests: set[str] = set()
    certified = {"models": 0, "others": 0, "spread": 0.0}
    known = {digest}
    for number, (receipt, (took, undirected)) in enumerate(zip(receipts, receipts.log.took(), strict=True)):
        try:
            wrong = next(_wrong(receipts, number, receipt, took, undirected, left, digests, certified), None)
        except (*MALFORMED, RequestError) as error:
            wrong = f"cannot be followed: {error!r}"
        if wrong is not None:
            raise RunError(
                f"receipt {number + 1} {printable(wrong)}; the run was edited, or its files are not of one run. What "
                "can be relied on is a copy from before"
            )
        digests.add(receipts.log.digest(number))
        known |= {receipt.parameters["digest_before"], receipt.parameters["digest_after"]}
    if receipts and left["digest"] != digest:
        raise RunError("the parameters of the model are not those that the last receipt tells of")
    if left.get("stored_edges", edges := state.stored_edges) != edges:
        raise RunError(f"the graph has {edges} stored edges, and the last receipt left {left['stored_edges']}")
    _check_parts(state, digest, known)


def _wrong(
    receipts: Receipts,
    number: int,
    receipt: Receipt,
    took: dict[str, Any],
    undirected: bool,
    left: dict[str, Any],
    digests: set[str],
    certified: dict[str, Any],
) -> Iterator[str]:
    """What is wrong with a receipt; what those before it left is brought to where it leaves it."""
    line = receipts.log.line(number)
    first = b'"format":"unweave-receipt-1"' in line
    if not first and receipt.previous != (receipts.log.digest(number - 1) if number else None):
        yield "does not name the one before it"
    if not first and receipt.version == __version__ and receipt.to_json().encode() != line:
        yield "says something else than follows from its figures"
    if not set(receipt.speaks_of) <= digests:
        yield "speaks of receipts that are not before it"
    if took != receipt.request or (receipt.carried_out and undirected != receipt.graph["undirected"]):
        yield "has another request than requests.jsonl, by which the graph is rebuilt"
    if receipt.kind == "change":
        yield from _wrong_change(receipt)
    if receipt.kind == "request":
        asked = Request.from_dict(receipt.asked)
        if not first and asked.digest != receipt.request_digest:
            yield "has a digest that is not that of the request"
        if receipt.carried_out and not _is_part(Request.from_dict(receipt.request), asked):
            yield "tells of more than was asked for"
    found = receipt.parameters
    if left.get("digest", found["digest_before"]) != found["digest_before"]:
        yield "starts from other parameters than the one before it left"
    left["digest"] = found["digest_after"]
    if not receipt.carried_out and found["digest_before"] != found["digest_after"]:
        yield "carried out nothing, and left other parameters"
    if receipt.carried_out:
        for what in ("stored_edges", "training_nodes"):
            before, after = (receipt.graph[f"{what}_{when}"] for when in ("before", "after"))
            if left.get(what, before) != before or not 0 <= after <= (after if receipt.kind == "change" else before):
                yield f"starts from {before} {what.replace('_', ' ')}, and the one before it left {left.get(what)}"
            left[what] = after
        went = receipt.graph["stored_edges_before"] - receipt.graph["stored_edges_after"]
        went += receipt.removed.get("added_stored_edges", 0)
        took = receipt.request.get("forget", {}) if receipt.kind == "change" else receipt.request
        if receipt.removed["stored_edges"] != went or receipt.removed["nodes"] < len(took.get("nodes", ())):
            yield "counts something else as removed than is gone"
    if receipt.certificate is not None:
        yield from _wrong_figures(receipt.certificate)
        yield from () if first else _wrong_sequence(receipt.certificate, certified)
    removal = not first and (receipt.certificate or {}).get("kind") == "removal"
    certified["others"] += receipt.carried_out and not removal


def _wrong_change(receipt: Receipt) -> Iterator[str]:
    """What of a change does not follow from what was asked. Its values are not kept, so its digest is not checked."""
    asked, done, told = receipt.asked, receipt.request, receipt.removed
    if not is_change(asked) or not set(asked) <= {"add", "correct", "forget"}:
        yield "tells of a change that changes nothing"
    if not receipt.carried_out:
        return
    add, new = asked.get("add", {}), done.get("add", {})
    edges = len(add.get("edges", ())) + sum(map(len, add.get("neighbours", ())))
    came = tuple(len(new.get(kind, ())) for kind in ("nodes", "edges", "graphs"))
    counted = told["added_nodes"], told["added_edges"], told.get("added_graphs", 0)
    if came != (add.get("nodes", 0), edges, add.get("graphs", 0)) or came != counted:
        yield "adds something else than was asked for"
    if set(done.get("correct", {})) != set(asked.get("correct", {})):
        yield "corrects something else than was asked for"
    if "forget" in done and (
        "forget" not in asked or not _is_part(Request.from_dict(done["forget"]), Request.from_dict(asked["forget"]))
    ):
        yield "tells of more than was asked for"


def _is_part(done: Request, asked: Request) -> bool:
    """Whether what was carried out is among what was asked for."""
    edges = {tuple(sorted(edge)) for edge in asked.edges}
    return (
        set(done.nodes) <= set(asked.nodes)
        and set(done.labels) <= set(asked.labels)
        and {tuple(sorted(edge)) for edge in done.edges} <= edges
        and all(
            node in asked.features and (asked.features[node] == ALL or set(columns) <= set(asked.features[node]))
            for node, columns in done.features.items()
        )
    )


def _wrong_figures(told: dict[str, Any]) -> Iterator[str]:
    """Figures of a certificate that do not follow from each other."""
    if told["kind"] not in ("removal", "bound", "local", "none") or not fits(told["statement"], str):
        yield "has a certificate of no kind that there is"
    numbers = [value for value in told.values() if isinstance(value, int | float)]
    if not all(fits(value, float) and value >= 0 for value in numbers):
        yield "has a certificate with figures that are none"
    if told["kind"] in ("bound", "removal"):
        bound = Bound(told["gradient_norm"], told["rounding"], told["mu"])
        if not math.isclose(bound.distance, told["distance"], rel_tol=SAME):
            yield "claims another distance than its certificate's own figures give"


def _wrong_sequence(told: dict[str, Any], certified: dict[str, Any]) -> Iterator[str]:
    """What a certified removal says of itself and of the models before it."""
    if told["kind"] != "removal":
        return
    if not (told["epsilon"] > 0 and 0 < told["delta"] < 1 and told["residual"] <= told["tolerance"]):
        yield "claims a certified removal that its own figures do not give"
    certified["models"] += 1
    certified["spread"] += ratio_of(told["epsilon"], told["delta"]) ** 2
    together = told.get("together") or {"models": 1, "epsilon": told["epsilon"]}
    epsilon = told["epsilon"] if certified["models"] == 1 else epsilon_of(told["delta"], math.sqrt(certified["spread"]))
    if (
        any(not math.isclose(told["sequence"][key], certified[key], rel_tol=SAME) for key in certified)
        or together["models"] != certified["models"]
        or not math.isclose(together["epsilon"], epsilon, rel_tol=SAME)
    ):
        yield "says something else than all certified models together give away"


def _check_parts(state: State, digest: str, known: set[str]) -> None:
    """Prepared state, calibration and checkpoints are those of this model, or of what it was."""
    prepared, calibration = state.prepared, state.calibration
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("prepared state", lambda: prepared is None or prepared.parameters == digest),
        (
            "calibration",
            lambda: (
                calibration is None or (calibration.parameters in known and calibration.requests <= len(state.receipts))
            ),
        ),
        ("checkpoints", lambda: all(_fits_model(checkpoint, state.model) for checkpoint in state.checkpoints)),
    ]
    for what, holds in checks:
        if not holds():
            raise RunError(f"the {what} in the run belongs to another model; it was copied there, or edited")


def _fits_model(checkpoint: Any, model: nn.Module) -> bool:
    try:
        checkpoint.check_model(model)
    except ModelError:
        return False
    return True
