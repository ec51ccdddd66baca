"""The client of the API, on :mod:`urllib`."""

import hashlib
import http.client
import json
import os
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from unweave.errors import ServiceError

__all__ = ["Client"]

ENDED = ("done", "refused")
FIRST, SLOWEST = 0.2, 5.0
"""Seconds between two looks at a request, at first and at most."""

AT_ONCE = 1 << 20
BUSY = (429, 503)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token goes to nobody but whom it was meant for."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """A service, and a token for it.

    Args:
        url: Where it is, such as ``https://forget.example.org``.
        token: What it was given by whoever runs the service.
        timeout: Seconds that an answer may take.
        certificate: A file with the certificate that the service's own is signed with, where that is not a usual one.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 30.0, certificate: str | Path | None = None) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ServiceError(
                f"a service has an address that begins with https:// or http://, got {url!r}", status=422
            )
        self.url, self.timeout = url.rstrip("/"), timeout
        self._token = token
        try:
            context = ssl.create_default_context(cafile=None if certificate is None else str(certificate))
        except OSError as error:
            raise ServiceError(f"cannot read the certificate {certificate}: {error}", status=422) from error
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))

    def models(self) -> list[dict[str, Any]]:
        """All models that the token is for."""
        return list(self._json("GET", "/models")["items"])

    def submit(
        self,
        model: str,
        *,
        subjects: Sequence[str] = (),
        edges: Sequence[tuple[str, str]] = (),
        features: Mapping[str, str | Sequence[str]] | None = None,
        labels: Sequence[str] = (),
        add: Mapping[str, Any] | None = None,
        correct: Mapping[str, Any] | None = None,
        note: str | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Submit a request: what is to go, and what comes or is put right.

        Args:
            model: Which model is to follow.
            subjects: Ids of whom everything is to go.
            edges: Pairs of ids.
            features: By id, ``"all"`` or names of columns.
            labels: Ids whose label may no longer be used.
            add: ``{"nodes": [{"id": "customer 9", "features": {"age": 41, …}, "label": 1, "edges": ["customer 2"]}],
                "edges": [["customer 3", "customer 4"]]}``.
            correct: ``{"features": {"customer 3": {"age": 42}}, "labels": {"customer 4": 2}, "edge_weights": …}``.
            note: A remark; it is as personal as the ids.
            key: Sent again with the same key, it is answered with the same request.

        Raises:
            ServiceError: It is refused; ``details`` may have ``unknown``, the ids that were never there.
        """
        chosen = {k: v if isinstance(v, str) else list(v) for k, v in (features or {}).items()}
        body: dict[str, Any] = {"subjects": list(subjects), "edges": [list(edge) for edge in edges]}
        body |= {"features": chosen, "labels": list(labels), "add": add, "correct": correct, "note": note}
        headers = {} if key is None else {"Idempotency-Key": key}
        sent = {name: value for name, value in body.items() if value}
        return self._json("POST", f"/models/{_quoted(model)}/requests", sent, headers)

    def request(self, name: str) -> dict[str, Any]:
        """All that is known of a request."""
        return self._json("GET", f"/requests/{_quoted(name)}")

    def wait(self, name: str, timeout: float) -> dict[str, Any]:
        """Wait until a request has ended; a service that is busy meanwhile is asked again.

        Raises:
            ServiceError: It has not ended in so many seconds (408), or cannot be asked for.
        """
        until, pause, state = time.monotonic() + timeout, FIRST, "not known"
        while True:
            try:
                found = self.request(name)
                state = found["state"]
                if state in ENDED:
                    return found
            except ServiceError as error:
                if error.status not in BUSY:
                    raise
            left = until - time.monotonic()
            if left <= 0:
                raise ServiceError(f"request {name} is {state} after {timeout:g} seconds; ask again later", status=408)
            time.sleep(min(pause, left))
            pause = min(SLOWEST, 1.5 * pause)

    def approve(self, name: str) -> dict[str, Any]:
        """Let a request that waits for an approval be carried out."""
        return self._json("POST", f"/requests/{_quoted(name)}/approve")

    def refuse(self, name: str, reason: str) -> dict[str, Any]:
        """Refuse a request for good."""
        return self._json("POST", f"/requests/{_quoted(name)}/refuse", {"reason": reason})

    def retry(self, name: str) -> dict[str, Any]:
        """Try a request that was set aside once more."""
        return self._json("POST", f"/requests/{_quoted(name)}/retry")

    def receipts(self, name: str) -> list[dict[str, Any]]:
        """The receipts of a request."""
        return [item["receipt"] for item in self._json("GET", f"/requests/{_quoted(name)}/receipts")["items"]]

    def evidence(self, name: str, path: str | Path) -> Path:
        """Write the evidence for a request that has ended to a file."""
        with self._answer("GET", f"/requests/{_quoted(name)}/evidence") as answer:
            _write(self._pieces(answer), Path(path), length=answer.headers["Content-Length"])
        return Path(path)

    def versions(self, model: str) -> Iterator[dict[str, Any]]:
        """The versions of a model, the newest first."""
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            query = f"?{urlencode({'before': page['next']})}" if page["next"] else ""
            page = self._json("GET", f"/models/{_quoted(model)}/versions{query}")
            yield from page["items"]

    def weights(self, model: str, path: str | Path, version: int | str = "current") -> bool:
        """Write the weights of a version to a file, whole or not at all; whether they are other ones than it had.

        Raises:
            ServiceError: The version was purged (410), or what came is not what the service has.
        """
        path = Path(path)
        headers = {"If-None-Match": f'"{_sha(path)}"'} if path.exists() else {}
        where = f"/models/{_quoted(model)}/versions/{_quoted(str(version))}/weights"
        try:
            with self._answer("GET", where, headers=headers) as answer:
                wanted = str(answer.headers["ETag"]).strip('"')
                _write(self._pieces(answer), path, length=answer.headers["Content-Length"], wanted=wanted)
        except ServiceError as error:
            if error.status != 304:
                raise
            return False
        return True

    def _json(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        with self._answer(method, path, body, headers) as answer:
            content = b"".join(self._pieces(answer))
            try:
                found = json.loads(content)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                raise ServiceError(f"{self.url} did not answer as a service of unweave does", status=502)
            return found

    @contextmanager
    def _answer(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        asked = urllib.request.Request(f"{self.url}/api/v1{path}", content, sent, method=method)
        with self._told():
            answer = self._opener.open(asked, timeout=self.timeout)
        with answer:
            yield answer

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong on the way, in our words."""
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(f"{self.url} does not answer: {error}; try again later", status=503) from error

    def _pieces(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            with self._told():
                piece = answer.read(AT_ONCE)
            if not piece:
                return
            yield piece


def _refused(error: urllib.error.HTTPError) -> ServiceError:
    """What a problem document says."""
    try:
        found = json.loads(error.read())
    except (OSError, ValueError, http.client.HTTPException):
        found = None
    if not isinstance(found, dict):
        found = {}
    known = ("type", "title", "status", "detail", "message", "self")
    details = {key: value for key, value in found.items() if key not in known}
    return ServiceError(str(found.get("detail", f"answered {error.code}")), status=error.code, **details)


def _write(pieces: Iterator[bytes], path: Path, *, length: str | None, wanted: str | None = None) -> None:
    """Write an answer to a file, whole or not at all."""
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if length is not None and os.path.getsize(name) != int(length):
            raise ServiceError("the answer was cut; ask again", status=502)
        if wanted is not None and digest.hexdigest() != wanted:
            raise ServiceError("what came is not what the service has; ask again", status=502)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _quoted(text: str) -> str:
    return quote(text, safe="")
