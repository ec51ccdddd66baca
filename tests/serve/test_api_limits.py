"""How much and how often anybody may send."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.serve.test_attacks import SQLITE
from tests.serve.test_strangers import HEADERS
from tests.serve.web import V1, Web, problem, raw
from unweave.serve.api.limits import MOST, Buckets, address
from unweave.serve.service import Service


@pytest.fixture
def web(shop: Service) -> Web:
    return Web(shop)


@SQLITE
def test_a_body_that_is_too_long_is_not_read(web: Web) -> None:
    web = Web(web.service, body_kib=8)
    long = b'{"subjects": ["person-3"], "note": "' + b"x" * 9000 + b'"}'
    headers, pieces = {"Content-Type": "application/json"}, 0

    async def streamed() -> AsyncIterator[bytes]:
        nonlocal pieces
        for _ in range(1000):
            pieces += 1
            yield b" " * 1024

    answer = web("POST", "models/shop/requests", content=long, headers=headers)
    assert "8 KiB" in problem(answer, 413)["detail"]
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    problem(web("POST", "models/shop/requests", content=streamed(), headers=headers), 413)
    assert pieces < 20, "it was counted while it came"
    problem(
        web("POST", "/signin", content=streamed(), headers={"Content-Type": "application/x-www-form-urlencoded"}), 413
    )
    header = [(b"authorization", f"Bearer {web.tokens['all']}".encode()), (b"content-type", b"application/json")]
    for length in (b"-1", b"x", b"1e3", b"\xb2"):
        assert raw(web, "POST", f"{V1}/models/shop/requests", [*header, (b"content-length", length)], long)[0] == 400
    two = [(b"content-length", b"1"), (b"content-length", b"2")]
    assert raw(web, "POST", f"{V1}/models/shop/requests", [*header, *two], long)[0] == 400
    for length in (b"9" * 30, b"10000"):
        assert raw(web, "POST", f"{V1}/models/shop/requests", [*header, (b"content-length", length)])[0] == 413
    lie = [*header, (b"content-length", b"10")]
    assert raw(web, "POST", f"{V1}/models/shop/requests", lie, long)[0] == 413


@SQLITE
def test_who_asks_too_often_is_told_when_to_come_back(web: Web) -> None:
    web = Web(web.service, rate=0.01, burst=3)

    def asked(by: str | None) -> list[int]:
        return [web("GET", "models", by=by).status_code for _ in range(5)]

    assert asked("read") == [200, 200, 200, 429, 429]
    assert asked("all") == [200, 200, 200, 429, 429], "each token has its own measure"
    assert asked(None) == [401, 401, 401, 429, 429]
    assert asked("unweave_guess") == [429] * 5, "guesses are counted by their address"
    answer: httpx.Response = web("GET", "models", by="read")
    problem(answer, 429)
    assert 90 <= int(answer.headers["retry-after"]) <= 100
    assert web("GET", "/health", by=None).status_code == 200


def test_buckets_fill_again_and_are_not_kept_for_ever() -> None:
    at = 0.0
    buckets = Buckets(2.0, 4, clock=lambda: at)
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 0, 1]
    at = 1.0
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 1]
    for number in range(2 * MOST):
        buckets.take(f"{number}")
    assert len(buckets._level) == MOST


def test_addresses_of_one_network_count_as_one() -> None:
    def of(host: str) -> str:
        return address({"client": (host, 1)})

    assert of("2001:db8::1") == of("2001:db8::ffff:1") != of("2001:db8:0:1::1")
    assert of("192.0.2.1") != of("192.0.2.2")
    assert address({"client": None}) == "unknown"
    assert of("testclient") == "testclient"
