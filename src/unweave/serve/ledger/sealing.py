"""Personal parts of entries: encrypted with a key of their own, and beyond reach once that is destroyed."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unweave._core.document import canonical_json
from unweave.errors import LedgerError

__all__ = ["digest_of", "new_key", "seal", "unseal"]

NONCE = 12


def new_key() -> tuple[str, bytes]:
    """An id that means nothing, and a key of 256 bits."""
    return os.urandom(16).hex(), AESGCM.generate_key(256)


def seal(key: bytes, where: str, personal: Mapping[str, Any]) -> bytes:
    """Encrypt a document (AES-GCM); it can be opened at the same place of the same ledger alone."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, canonical_json(dict(personal)).encode(), where.encode())


def unseal(key: bytes, where: str, sealed: bytes) -> dict[str, Any]:
    """The document again."""
    try:
        text = AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], where.encode())
    except (InvalidTag, TypeError, ValueError) as error:
        raise LedgerError("the personal part of an entry was changed, or belongs to another one") from error
    return dict(json.loads(text))


def digest_of(sealed: bytes) -> str:
    """What an entry says of its personal part."""
    return hashlib.sha256(sealed).hexdigest()
