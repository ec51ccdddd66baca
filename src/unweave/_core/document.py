"""Documents as canonical JSON, and the digests that identify them. Without torch: a command that refuses needs none."""

import hashlib
import json
from typing import Any

__all__ = ["canonical_json", "document_digest", "to_json"]


def canonical_json(document: Any) -> str:
    """JSON with sorted keys and no spaces: equal documents give equal text. Refuses NaN."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def to_json(document: Any) -> bytes:
    """A document as the bytes of a file."""
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def document_digest(document: Any) -> str:
    """SHA-256 of the canonical JSON of a document."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
