"""Screen what a run has not yet forgotten of a request: is it out of the ordinary?"""

from dataclasses import replace
from typing import Any

from unweave.auditing.before.screen import Screening, screen
from unweave.errors import EmptyRequestError
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.gone import outstanding
from unweave.run.state import State

__all__ = ["screen_state", "with_screening"]


def screen_state(state: State, request: Request, **how: Any) -> Screening:
    """What a request is predicted to do; see :meth:`unweave.Run.screen`."""
    if isinstance(request, Request):
        left, note = outstanding(request, state.receipts)
        if left is None:
            raise EmptyRequestError(f"there is nothing to forget of this request ({request.describe()}): {note}")
        request = left
    return screen(
        state.model,
        state.data,
        request,
        weight_decay=state.training.weight_decay,
        loss=state.loss,
        forward=state.forward,
        prepared=state.prepared and state.prepared.to(state.data.x.device),
        **how,
    )


def with_screening(receipt: Receipt, found: Screening) -> Receipt:
    """The receipt of a request that was screened before: what was found, and what that took."""
    seconds = receipt.seconds | {"screen": found.seconds, "total": receipt.seconds["total"] + found.seconds}
    told = {key: value for key, value in found.to_dict().items() if key != "request"}
    return replace(receipt, screening=told, seconds=seconds, passes=receipt.passes + found.passes)
