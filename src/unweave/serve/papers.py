"""Receipts and reports of audits: kept by the digest of their text, which the ledger names."""

import hashlib
from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from unweave.errors import ServiceError
from unweave.serve.tables import documents

__all__ = ["keep", "read", "read_all"]


def keep(connection: Connection, kind: str, model: str, version: int, text: str) -> str:
    """Keep a document; its digest."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    if connection.execute(select(documents.c.digest).where(documents.c.digest == digest)).one_or_none() is None:
        connection.execute(insert(documents).values(digest=digest, kind=kind, model=model, version=version, text=text))
    return digest


def read(connection: Connection, digest: str) -> str:
    """The text of a document.

    Raises:
        ServiceError: It is not there, or was changed.
    """
    text = connection.scalar(select(documents.c.text).where(documents.c.digest == digest))
    if text is None:
        raise ServiceError(f"there is no document {digest}", status=404)
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise ServiceError(f"the document {digest} was changed in the database", status=500)
    return str(text)


def read_all(connection: Connection, digests: Sequence[str]) -> dict[str, str]:
    """Several documents by their digests."""
    return {digest: read(connection, digest) for digest in digests}
