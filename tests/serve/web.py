"""An application asked in the process of the test, without a network."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from unweave.serve.api.app import create_app
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.tokens import SCOPES, new_token

V1 = "/api/v1"


class Web:
    """A service over HTTP; ``tokens`` has one of each scope, and ``all`` for one with every scope."""

    def __init__(self, service: Service, **settings: Any) -> None:
        self.service = service
        self.settings = Settings(home=service.home, **{"rate": 1e6, "burst": 10**6, **settings})
        self.app: FastAPI = create_app(service, self.settings)
        self.tokens = {scope: new_token(service, scope, [scope])[1] for scope in SCOPES}
        self.tokens["all"] = new_token(service, "all", list(SCOPES))[1]

    def __call__(
        self, method: str, path: str, *, by: str | None = "all", headers: dict[str, str] | None = None, **how: Any
    ) -> httpx.Response:
        """Ask; ``by`` is one of the scopes, a token, or ``None``."""
        sent = dict(headers or {})
        if by is not None:
            sent["Authorization"] = f"Bearer {self.tokens.get(by, by)}"
        return asyncio.run(self._ask(method, path if path.startswith("/") else f"{V1}/{path}", sent, how))

    async def _ask(self, method: str, path: str, headers: dict[str, str], how: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service.test") as client:
            return await client.request(method, path, headers=headers, **how)

    def get(self, path: str, **how: Any) -> Any:
        """What is answered to a question that must be answered."""
        answer = self("GET", path, **how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def submit(self, *subjects: str, by: str = "all", **how: Any) -> httpx.Response:
        """Submit a request to the shop."""
        return self("POST", "models/shop/requests", by=by, json={"subjects": list(subjects)}, **how)


def raw(
    web: Web, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """Ask in a way that no honest client would; status, headers and body of the answer."""
    sent: list[dict[str, Any]] = []
    scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
    scope |= {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    scope |= {"root_path": "", "client": ("192.0.2.1", 1), "server": ("service.test", 80)}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(web.app(scope, receive, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, b"".join(message.get("body", b"") for message in sent[1:])


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """What an answer says is wrong, which it must say as RFC 9457 has it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["type"] == "about:blank"
    assert found["title"]
    assert found["detail"]
    assert str(Path.cwd()) not in answer.text
    return found
