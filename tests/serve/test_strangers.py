"""Who may do what, route by route; and what comes from people who do not mean well."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import update

from tests.serve.test_attacks import SQLITE
from tests.serve.web import V1, Web, problem, raw
from unweave.serve import database
from unweave.serve.page.routes import router as page
from unweave.serve.service import Service
from unweave.serve.tables import models, tokens
from unweave.serve.tokens import SCOPES, new_token, revoke

NOBODY = "0" * 32
HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}


@dataclass(frozen=True)
class Row:
    """Who may use a route: these scopes, or everybody; ``foreign`` is what a token for another model is answered."""

    scopes: str
    body: Any = None
    foreign: int = 404


MODEL, REQUEST = f"{V1}/models/{{model}}", f"{V1}/requests/{{request}}"
TABLE = {
    ("GET", "/health"): Row("", foreign=200),
    ("GET", f"{V1}/openapi.json"): Row("", foreign=200),
    ("GET", "/metrics"): Row("read", foreign=200),
    ("GET", f"{V1}/models"): Row("read", foreign=200),
    ("POST", f"{V1}/models"): Row("administer", {"name": "x", "run": "x", "ids": {"a": 1}}, foreign=403),
    ("GET", MODEL): Row("read"),
    ("PUT", f"{MODEL}/policy"): Row("administer", {"method": "gif"}, foreign=403),
    ("PUT", f"{MODEL}/current"): Row("operate", {"version": 1}),
    ("GET", f"{MODEL}/versions"): Row("read"),
    ("GET", f"{MODEL}/versions/{{version}}/weights"): Row("read operate"),
    ("GET", f"{MODEL}/hooks"): Row("administer", foreign=403),
    ("POST", f"{MODEL}/hooks"): Row("administer", {"url": "https://a.test"}, foreign=403),
    ("DELETE", f"{MODEL}/hooks/{{hook}}"): Row("administer", foreign=403),
    ("POST", f"{MODEL}/requests"): Row("submit", {"subjects": ["person-5"]}),
    ("GET", f"{V1}/requests"): Row("read submit", foreign=200),
    ("GET", REQUEST): Row("read submit"),
    ("POST", f"{REQUEST}/approve"): Row("operate"),
    ("POST", f"{REQUEST}/refuse"): Row("operate", {"reason": "x"}),
    ("POST", f"{REQUEST}/retry"): Row("operate"),
    ("GET", f"{REQUEST}/receipts"): Row("read submit"),
    ("GET", f"{REQUEST}/audit"): Row("read"),
    ("GET", f"{REQUEST}/evidence"): Row("operate"),
    ("GET", f"{V1}/ledger"): Row("read", foreign=200),
    ("GET", f"{V1}/ledger/entries"): Row("read", foreign=403),
    ("GET", f"{V1}/ledger/checkpoint"): Row("read", foreign=200),
    ("POST", f"{V1}/ledger/verify"): Row("operate", foreign=200),
    ("GET", f"{V1}/tokens"): Row("administer", foreign=403),
    ("POST", f"{V1}/tokens"): Row("administer", {"name": "x", "scopes": ["read"]}, foreign=403),
    ("DELETE", f"{V1}/tokens/{{token}}"): Row("administer", foreign=403),
}


@pytest.fixture
def web(shop: Service) -> Web:
    return Web(shop, runs=shop.home)


def routes(found: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Method and path of every route, also of those that were included."""
    for route in found:
        if hasattr(route, "original_router"):
            yield from routes(route.original_router.routes)
        else:
            yield from ((method, route.path) for method in route.methods - {"HEAD"})


@SQLITE
def test_every_route_has_a_row(web: Web) -> None:
    pages = set(routes(page(web.service, web.settings).routes))
    assert set(routes(web.app.routes)) - pages == set(TABLE)
    described = {(m.upper(), path) for path, ms in web.get(f"{V1}/openapi.json", by=None)["paths"].items() for m in ms}
    assert described == set(TABLE) - {("GET", f"{V1}/openapi.json")}


@SQLITE
def test_every_route_is_for_its_scopes_alone(web: Web) -> None:
    request = web.submit("person-3", by="submit").json()["id"]
    outsiders, foreign = [None, "unweave_" + "x" * 43, *_useless(web).values()], _foreign(web)
    for (method, path), row in TABLE.items():
        how = {} if row.body is None else {"json": row.body}
        where = path.format(model="shop", version=1, request=request, hook=NOBODY, token=NOBODY)
        for token in outsiders if row.scopes else ():
            answer = web(method, where, by=token, **how)
            problem(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        for scope in SCOPES if row.scopes else (None,):
            answer = web(method, where, by=scope, **how)
            if scope is None or scope in row.scopes.split():
                assert answer.status_code not in (401, 403), (method, path, scope)
                assert answer.status_code < 500, (method, path, scope)
            else:
                assert row.scopes.split()[0] in problem(answer, 403)["detail"]
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert web(method, where, by=foreign, **how).status_code == row.foreign, (method, path)


def _useless(web: Web) -> dict[str, str]:
    """Tokens that served once."""
    found = {}
    for why in ("expired", "revoked"):
        name, found[why] = new_token(web.service, why, list(SCOPES))
        if why == "revoked":
            revoke(web.service, name)
            continue
        with database.writing(web.service.engine) as connection:
            connection.execute(update(tokens).where(tokens.c.id == name).values(expires=time.time() - 1))
    return found


def _foreign(web: Web) -> str:
    """A token for another model, with every scope that such a token can have."""
    with database.writing(web.service.engine) as connection:
        row = connection.execute(models.select()).one()._asdict()
        connection.execute(models.insert().values(**row | {"name": "other"}))
    return new_token(web.service, "foreign", ["read", "submit", "operate"], models=["other"])[1]


@SQLITE
@pytest.mark.parametrize(
    "said", ["", "Bearer", "Bearer ", "Basic {}", "bearer  {} x", "{}", "Bearer {}x", "Bearer \xff", "Bearer {}\0"]
)
def test_a_header_that_is_none_is_nobody(web: Web, said: str) -> None:
    header = said.format(web.tokens["all"]).encode("latin-1")
    assert raw(web, "GET", f"{V1}/models", [(b"authorization", header)])[0] == 401


@SQLITE
def test_two_tokens_are_nobodys(web: Web) -> None:
    header = (b"authorization", f"Bearer {web.tokens['all']}".encode())
    assert raw(web, "GET", f"{V1}/models", [header])[0] == 200
    assert raw(web, "GET", f"{V1}/models", [header, header])[0] == 401


@SQLITE
def test_an_answer_never_repeats_who_somebody_says_they_are(web: Web) -> None:
    headers = {"Host": "evil.test", "X-Forwarded-Host": "evil.test", "X-Forwarded-Proto": "gopher"}
    taken = web.submit("person-3", headers=headers)
    assert taken.headers["location"].startswith(f"{V1}/requests/")
    for path in ("models/", "/api/v1", "/health/"):
        answer = web("GET", path, headers=headers)
        assert answer.status_code == 404
        assert "evil" not in str(answer.headers) + answer.text
    status, told, _ = raw(web, "GET", "//evil.test/models", [(b"host", b"evil.test")])
    assert (status, told.get("location")) == (404, None)


def test_path_tricks_lead_nowhere(web: Web) -> None:
    header = [(b"authorization", f"Bearer {web.tokens['all']}".encode())]
    tricks = [
        "/api/v1/../../etc/passwd",
        "/api/v1//models",
        "/api/v1/models/\0",
        "/api/v1/models/../x",
    ]
    tricks += ["/api/v1/models/shop\0", "/api/v1/models/SHOP", "/api/v1/models/" + "a" * 65, "/api/v1/models/\ufffd"]
    tricks += [f"/api/v1/requests/{bad}" for bad in ("\0", "x" * 32, "0" * 33, "'; DROP TABLE requests; --", "é" * 32)]
    tricks += [f"/api/v1/models/shop/versions/{bad}/weights" for bad in ("0", "-1", "1e3", "٣", "9" * 30, "..", "1\0")]
    for trick in tricks:
        status, headers, _ = raw(web, "GET", trick, header)
        assert status in (404, 422), trick
        assert headers["content-type"] == "application/problem+json"
        assert raw(web, "DELETE", f"/api/v1/tokens/{trick[-8:]}", header)[0] in (404, 405, 422), trick


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "NaN": b'{"subjects": [NaN]}',
    "infinite": b'{"subjects": Infinity}',
    "a number": b"1" * 5000,
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep inside": b'{"subjects": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "not UTF-8": b'{"subjects": ["\xff\xfe"]}',
    "NUL": b'{"subjects": ["person-3\\u0000"]}',
    "NUL in a note": b'{"subjects": ["person-3"], "note": "\\u0000"}',
    "half a pair": b'{"subjects": ["\\ud800"]}',
    "half a pair as a key": b'{"\\ud800": 1, "features": {"\\udfff": "all"}}',
    "half a pair in a column": b'{"features": {"person-3": ["\\ud800"]}}',
    "unknown": b'{"subjects": ["person-3"], "extra": 1}',
    "of a class": b'{"__class__": "x", "subjects": ["person-3"]}',
    "a triple": b'{"edges": [["person-1", "person-2", "person-3"]]}',
    "too long an id": b'{"subjects": ["' + b"x" * 256 + b'"]}',
    "too many": json.dumps({"subjects": [f"{n}" for n in range(10_001)]}).encode(),
    "too many in all": json.dumps({k: [f"{n}" for n in range(9_000)] for k in ("subjects", "labels")}).encode(),
    "nobody": b"{}",
}


def test_bodies_that_are_no_requests(web: Web) -> None:
    before = web.get("ledger")["head"]
    headers = {"Content-Type": "application/json"}
    for what, body in BODIES.items():
        answer = web("POST", "models/shop/requests", content=body, headers=headers)
        assert answer.status_code in (400, 422), what
        problem(answer, answer.status_code)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "\xff/\xff", ""):
        sent: Any = {"Content-Type": kind.encode("latin-1")}
        problem(web("POST", "models/shop/requests", content=b'{"subjects": ["person-3"]}', headers=sent), 422)
    for path, body in (("models/shop/current", b'{"version": 1e400}'), ("tokens", b'{"seconds": 1e999}')):
        problem(web("PUT" if "current" in path else "POST", path, content=body, headers=headers), 422)
    for number in ("9" * 20, "9" * 400, "9" * 5000, "-1", "0", "true", "1.5", '"1"'):
        answer = web("PUT", "models/shop/current", content=f'{{"version": {number}}}'.encode(), headers=headers)
        assert answer.status_code in (400, 422), number
    assert web.get("ledger")["head"] == before, "nothing of it was done"


def test_texts_that_a_database_would_not_take(web: Web) -> None:
    name = web.submit("person-3").json()["id"]
    for reason in ("\0", "a\0b", "\x1b[2J", "", "x" * 2001):
        problem(web("POST", f"requests/{name}/refuse", json={"reason": reason}), 422)
    problem(web("POST", "tokens", json={"name": "a\0", "scopes": ["read"]}), 422)
    problem(web("POST", "models/shop/hooks", json={"url": "https://a.test/\0"}), 422)
    problem(web("POST", "tokens", json={"name": "a", "scopes": ["read"], "models": ["\0"]}), 422)
    assert web("POST", f"requests/{name}/refuse", json={"reason": "two\nlines, 'quoted'; é"}).status_code == 200
