"""Somebody who uses the pages."""

import asyncio
import html
import re
from typing import Any

import httpx
from fastapi import FastAPI

from unweave.serve import tokens
from unweave.serve.page.routes import router
from unweave.serve.service import Service
from unweave.serve.settings import Settings


def app_of(service: Service, **settings: Any) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.include_router(router(service, Settings(**settings)))
    return app


class Person:
    """Somebody with a token, and a browser without a screen: it keeps cookies, and the seal of the last form."""

    def __init__(self, service: Service, *scopes: str, models: list[str] | None = None, **settings: Any) -> None:
        self.app, self.base = app_of(service, **settings), "https://service.test" if settings else "http://service.test"
        self.id, self.token = tokens.new_token(service, "Ada", scopes or list(tokens.SCOPES), models=models)
        self.cookies, self.seal = httpx.Cookies(), ""

    def sign_in(self) -> "Person":
        self.get("/signin")
        answer = self.post("/signin", token=self.token)
        assert answer.status_code == 303, answer.text
        self.get(answer.headers["location"])
        return self

    def get(self, path: str, **headers: str) -> httpx.Response:
        answer = self.ask("GET", path, headers=headers)
        found = re.search(r'name="seal" value="([0-9a-f]+)"', answer.text)
        self.seal = found[1] if found else self.seal
        return answer

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        return self.ask("POST", path, data={"seal": self.seal, **fields}, headers=headers)

    def ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        return asyncio.run(self._ask(method, path, how))

    async def _ask(self, method: str, path: str, how: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url=self.base, cookies=self.cookies) as client:
            answer = await client.request(method, path, **how)
            self.cookies = client.cookies
        return answer

    def submit(self, **fields: str) -> str:
        answer = self.post("/requests/new", **{"model": "shop", "key": "k", **fields})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])


def words(answer: httpx.Response) -> str:
    """What a page says."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


HOSTILE = "<script>alert(1)</script>\"'><img src=x>"
PAGES = ("/", "/requests/new", "/models", "/models/shop", "/ledger", "/tokens")
