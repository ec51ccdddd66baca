"""Change files of a run and seal it again, as somebody would who can write the folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

from unweave._core.document import canonical_json, document_digest
from unweave.run.log import INDEX, LINES, Log

__all__ = ["reseal", "reseal_receipts", "seal"]


def seal(path: Path, manifest: dict[str, Any]) -> None:
    """Give a manifest, as it is now, the digest of what it says."""
    manifest.pop("digest", None)
    (path / "manifest.json").write_text(json.dumps(manifest | {"digest": document_digest(manifest)}))


def reseal(path: Path, changes: dict[str, bytes]) -> None:
    """Write files, and the digests that the manifest has of them."""
    manifest = json.loads((path / "manifest.json").read_text())
    for name, content in changes.items():
        (path / name).write_bytes(content)
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
    seal(path, manifest)


def reseal_receipts(path: Path, documents: list[Any], *, linked: bool = False) -> None:
    """Write other receipts, and all that is said of them elsewhere; ``linked`` also as the one before in the next."""
    log = Log()
    for document in documents:
        request, graph = (document.get(key) if isinstance(document, dict) else None for key in ("request", "graph"))
        undirected = graph.get("undirected", False) if isinstance(graph, dict) else True
        if linked:
            document["previous"] = log.digest(len(log) - 1) if len(log) else None
        request = request if isinstance(request, dict) else {}
        log = log.plus(canonical_json(document).encode(), request, bool(undirected))
    (path / LINES).write_bytes(b"".join(log.lines_from(0)))
    (path / INDEX).write_bytes(log.index_from(0))
    seal(path, json.loads((path / "manifest.json").read_text()) | {"receipts": log.extent.to_dict()})
