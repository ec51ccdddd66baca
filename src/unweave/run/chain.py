"""Do the receipts of a run hold together, each with the one before, with its request, and with the model?

Whoever can write the folder of a run can write a chain that does: this finds accidents and careless edits, and proves
nothing against somebody who is able to forge. Keep the digest of the last receipt (``run.receipts.digest``) elsewhere,
or sign it, to notice that.
"""

import math
from typing import Any

from unweave.errors import RequestError, RunError
from unweave.receipt.receipt import Receipt
from unweave.request import ALL, Request
from unweave.run.state import State

__all__ = ["check_chain"]

FIGURES = ("gradient_norm", "rounding", "mu", "distance")
"""What a bound is made of, and the bound."""


def check_chain(state: State) -> None:
    """Check every receipt; it reads all of them.

    Raises:
        RunError: One does not fit the one before it, its own request, the training or the checkpoints.
    """
    previous, parameters, digests = None, None, set[str]()
    for number, receipt in enumerate(state.receipts, start=1):
        here, before, after = f"receipt {number}", *_parameters(receipt)
        if receipt.previous != previous:
            raise RunError(f"{here} does not follow the one before it; one was edited, left out or put in between")
        if parameters not in (None, before):
            raise RunError(f"{here} begins with other parameters than the one before it ended with")
        if not digests.issuperset(receipt.speaks_of):
            raise RunError(f"{here} speaks of receipts that are not among those before it")
        if receipt.kind == "request":
            _check_request(here, receipt)
        if receipt.certificate is not None:
            _check_certificate(here, receipt.certificate)
        previous, parameters = state.receipts.log.digest(number - 1), after
        digests.add(previous)
    _check_checkpoints(state)


def _parameters(receipt: Receipt) -> tuple[Any, Any]:
    return receipt.parameters.get("digest_before"), receipt.parameters.get("digest_after")


def _check_request(here: str, receipt: Receipt) -> None:
    """What was carried out is part of what was asked, and the digest is that of what was asked."""
    try:
        asked = Request.from_dict(receipt.asked)
        done = Request.from_dict(receipt.request) if receipt.request else None
    except RequestError as error:
        raise RunError(f"the request of {here} is none: {error}") from error
    if asked.digest != receipt.request_digest:
        raise RunError(f"the digest of the request of {here} is not that of what was asked")
    if done is not None and not _within(done, asked):
        raise RunError(f"{here} says that more was carried out than was asked")


def _within(done: Request, asked: Request) -> bool:
    edges = {edge for u, v in asked.edges for edge in ((u, v), (v, u))}
    columns = {node: some if some == ALL else set(some) for node, some in asked.features.items()}
    return (
        set(done.nodes) <= set(asked.nodes)
        and set(done.labels) <= set(asked.labels)
        and set(done.edges) <= edges
        and all(
            node in columns and (columns[node] == ALL or (some != ALL and set(some) <= set(columns[node])))
            for node, some in done.features.items()
        )
    )


def _check_certificate(here: str, certificate: dict[str, Any]) -> None:
    """A certificate says what its own figures give."""
    try:
        if certificate.get("kind") in ("removal", "bound"):
            gradient, rounding, mu, told = (float(certificate[key]) for key in FIGURES)
            if not math.isclose((gradient + rounding) / mu, told, rel_tol=1e-6):
                raise RunError(f"the certificate of {here} states another distance than its figures give")
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RunError(f"the certificate of {here} lacks its figures: {error!r}") from error


def _check_checkpoints(state: State) -> None:
    """Checkpoints are states of this model."""
    known = {name: tuple(value.shape) for name, value in state.model.state_dict().items()}
    for kept in state.checkpoints:
        if {name: tuple(value.shape) for name, value in kept.model.items()} != known:
            raise RunError(f"the checkpoint of epoch {kept.epoch} is of another model than this one")
