"""Screen what a run has not yet forgotten of a request, and refuse one that is out of the ordinary."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unweave.auditing.before.screen import Screening, screen
from unweave.errors import MethodError
from unweave.request import Request
from unweave.run.stream import outstanding, refuse_gone

if TYPE_CHECKING:
    from unweave.methods import Method
    from unweave.run.run import Run

__all__ = ["screen_run", "screened"]


def screen_run(run: "Run", request: Request, **how: Any) -> Screening:
    """The same for what a run has not yet forgotten of a request; see :meth:`unweave.Run.screen`."""
    if isinstance(request, Request) and run.receipts:
        left, note = outstanding(request, run.receipts)
        if left is None:
            raise refuse_gone(request, note)
        request = left
    return screen(
        run.model,
        run.data,
        request,
        weight_decay=run.recipe.weight_decay,
        loss=run.loss,
        forward=run.forward,
        prepared=run.prepared and run.prepared.to(run.data.x.device),
        **how,
    )


def screened(run: "Run", request: Request, method: "str | Method | None", **how: Any) -> "Run":
    """A run that has forgotten a request, unless that is out of the ordinary; the receipt has what screening took."""
    if how.get("memory_mib") is not None:
        raise MethodError(
            "screening looks at the whole graph at once; leave screen (--screen) out, or memory_mib (--memory-mib)"
        )
    found = screen_run(run, request)
    found.refuse()
    done = run.forget(request, method, **how)
    last = done.receipts[-1]
    seconds = last.seconds | {"screen": found.seconds, "total": last.seconds["total"] + found.seconds}
    told = {key: value for key, value in found.to_dict().items() if key != "request"}
    last = replace(last, screening=told, seconds=seconds, passes=last.passes + found.passes)
    return replace(done, receipts=(*done.receipts[:-1], last))
