"""Which page stands at which address."""

from fastapi import APIRouter
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response

from unweave.errors import ServiceError
from unweave.serve.page.frame import STATIC, Frame, Handler
from unweave.serve.page.ledger import LedgerPages
from unweave.serve.page.models import Models
from unweave.serve.page.requests import SEE, Requests
from unweave.serve.page.session import Visit
from unweave.serve.page.signing import Signing
from unweave.serve.page.submission import Submission
from unweave.serve.page.tokens import Tokens
from unweave.serve.service import Service
from unweave.serve.settings import Settings

__all__ = ["router"]

KINDS = {"css": "text/css; charset=utf-8", "svg": "image/svg+xml"}


def router(service: Service, settings: Settings) -> APIRouter:
    """The pages of a service, to be mounted at ``/``.

    Args:
        service: What they show.
        settings: Of the service.
    """
    frame, found = Frame(service, settings), APIRouter(include_in_schema=False)
    requests, submission, models = Requests(frame), Submission(frame), Models(frame)
    ledger, tokens, signing = LedgerPages(frame), Tokens(frame), Signing(frame)
    pages: list[tuple[str, str, Handler, tuple[str, ...]]] = [
        ("GET", "/", requests.queue, ()),
        ("GET", "/requests/new", submission.form, ("submit",)),
        ("POST", "/requests/new", submission.submit, ("submit",)),
        ("GET", "/requests/{name}", requests.show, SEE),
        ("POST", "/requests/{name}/approve", requests.approve, ("operate",)),
        ("POST", "/requests/{name}/retry", requests.retry, ("operate",)),
        ("GET", "/requests/{name}/refuse", requests.ask_why, ("operate",)),
        ("POST", "/requests/{name}/refuse", requests.refuse, ("operate",)),
        ("GET", "/requests/{name}/evidence", requests.evidence, ("operate",)),
        ("GET", "/audits/{digest}", requests.audit, ("read",)),
        ("GET", "/models", models.every, ("read",)),
        ("GET", "/models/{name}", models.one, ("read",)),
        ("GET", "/ledger", ledger.show, ("read",)),
        ("POST", "/ledger", ledger.check, ("operate",)),
        ("GET", "/ledger/export", ledger.export, ("read",)),
        ("GET", "/tokens", tokens.every, ("administer",)),
        ("POST", "/tokens", tokens.make, ("administer",)),
        ("POST", "/tokens/{name}/revoke", tokens.revoke, ("administer",)),
        ("POST", "/signout", signing.sign_out, ()),
    ]
    for method, path, handler, scopes in pages:
        found.add_api_route(path, frame.endpoint(handler, *scopes), methods=[method], response_model=None)
    for method, handler in (("GET", signing.form), ("POST", signing.sign_in)):
        found.add_api_route("/signin", frame.endpoint(handler, public=True), methods=[method], response_model=None)
    for path, handler in (("/static/{name}", _static), ("/{path:page}", _missing)):
        found.add_api_route(path, frame.endpoint(handler, public=True), methods=["GET"], response_model=None)
    return found


class _Page(PathConvertor):
    """Any address but those of programs, which are answered in another way."""

    regex = r"(?!api/|health$|metrics$).*"


register_url_convertor("page", _Page())


def _missing(visit: Visit, path: str) -> Response:
    raise ServiceError("there is nothing at this address", status=404)


def _static(visit: Visit, name: str) -> Response:
    if name not in STATIC:
        raise ServiceError(f"there is no file {name!r}", status=404)
    kept = {"Cache-Control": "public, max-age=3600"}
    return Response(STATIC[name], media_type=KINDS[name.rpartition(".")[2]], headers=kept)
