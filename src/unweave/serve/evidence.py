"""Evidence for one request, in a file that anybody can check offline: what was done, when, and by which receipts.

It is a plain zip of texts, written in one way only, so that a file of which one byte was changed is not the file that
its own texts would give. It has the entries of the ledger from the request on, a checkpoint, the receipts, the reports
of audits, and a signed list of all of them. It has nothing personal.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unweave._core.document import canonical_json, document_digest
from unweave.errors import LedgerError, ServiceError
from unweave.serve import database, queue
from unweave.serve.ledger import Checkpoint, Entry, Signed, Verified, fingerprint, read_checkpoint, verify
from unweave.serve.ledger.entries import read_canonical
from unweave.serve.ledger.keys import signature_fits
from unweave.serve.ledger.ledger import lines_of
from unweave.serve.papers import read_all
from unweave.serve.queue import ENDED, STATES
from unweave.serve.service import Service

__all__ = ["Evidence", "package", "verify_package"]

PURPOSE = "evidence"
README, LEDGER, MANIFEST = "README.txt", "ledger.jsonl", "manifest.json"
LARGEST = 1 << 30
"""Bytes of a package that is looked at."""


@dataclass(frozen=True)
class Evidence:
    """A package that was found in order.

    Attributes:
        request: Which request.
        model: Of which model.
        outcome: How it ended.
        at: When.
        receipts: Verdicts of its receipts, in words.
        ledger: The part of the ledger.
    """

    request: str
    model: str
    outcome: str
    at: str
    receipts: tuple[str, ...]
    ledger: Verified


def package(service: Service, name: str) -> bytes:
    """The evidence for a request that has ended.

    Raises:
        ServiceError: There is no such request, or it has not ended.
    """
    with database.reading(service.engine) as connection:
        row = queue.one(connection, name)
        if row.state not in ENDED:
            raise ServiceError(f"request {name} {STATES[row.state]}; there is evidence once it has ended")
    point = service.ledger.checkpoint()
    with database.reading(service.engine) as connection:
        told = queue.timeline(connection, name)
        lines = [line for line in lines_of(connection, start=row.received) if line.entry.sequence <= point.sequence]
        papers = {
            f"{kind}s/{digest}.json": text
            for kind, digests in _named(told).items()
            for digest, text in read_all(connection, digests).items()
        }
    files = {LEDGER: "\n".join([*(line.line for line in lines), point.text]) + "\n", **papers}
    files[README] = _readme(name, told, papers, point)
    said = {
        "request": name,
        "model": row.model,
        "ledger": point.ledger,
        "files": {path: _sha(text) for path, text in files.items()},
        "signer": point.signer,
    }
    signature = service.ledger.keys.sign(PURPOSE, document_digest(said))
    files[MANIFEST] = canonical_json({"evidence": said, "signature": signature}) + "\n"
    return _zip(files)


def verify_package(path: str | Path, *, checkpoints: tuple[Checkpoint, ...] = (), key: str | None = None) -> Evidence:
    """Check a package; nothing else is needed.

    Args:
        path: The file.
        checkpoints: What was published of the ledger, as far as it is of entries in the package.
        key: Fingerprint of the key that must have opened the ledger.

    Raises:
        LedgerError: Something of it was changed, or does not belong together.
    """
    files = _read(Path(path))
    manifest = _document(files.pop(MANIFEST, ""), MANIFEST)
    said, signature = manifest.get("evidence"), manifest.get("signature")
    if not isinstance(said, dict) or not isinstance(signature, str) or LEDGER not in files:
        raise LedgerError(f"{path} is no evidence: its list of files is missing")
    if said.get("files") != {name: _sha(text) for name, text in files.items()}:
        raise LedgerError(f"{path}: a file is not the one that was signed, or one is missing or was added")
    *lines, end = files[LEDGER].removesuffix("\n").split("\n")
    point, told = read_checkpoint(end), list[Entry]()

    def passed() -> Any:
        for text in lines:
            line = Signed.read(text)
            if line.entry.body.get("request") == said["request"]:
                told.append(line.entry)
            yield line

    found = verify(passed(), checkpoints=(*checkpoints, point), key=key, whole=False)
    fits = said.get("signer") == fingerprint(found.public) and found.ledger == said.get("ledger") == point.ledger
    if not fits or not signature_fits(found.public, PURPOSE, document_digest(said), signature):
        raise LedgerError(f"{path}: the list of its files is not signed with the key of the ledger")
    if found.entries != point.sequence:
        raise LedgerError(f"{path}: entries are missing between the request and the checkpoint")
    return _told(said, told, files, found)


def _told(said: Mapping[str, Any], told: list[Entry], files: Mapping[str, str], found: Verified) -> Evidence:
    """What the entries say, where the documents they name are all there and no others are."""
    if not told or told[0].kind != "request received" or told[-1].kind not in ("request done", "request refused"):
        raise LedgerError("the entries do not tell of a request from its beginning to its end")
    if {entry.body.get("model") for entry in told} != {said["model"]}:
        raise LedgerError("the entries are of another model")
    named = {f"{kind}s/{digest}.json": digest for kind, digests in _named(told).items() for digest in digests}
    if set(named) != set(files) - {README, LEDGER} or any(_sha(files[name]) != named[name] for name in named):
        raise LedgerError("the receipts and reports are not those that the ledger names")
    verdicts = tuple(str(_document(files[name], name).get("verdict")) for name in named if name.startswith("receipts/"))
    last = told[-1]
    outcome = last.body.get("outcome") or f"refused: {last.body.get('reason')}"
    return Evidence(str(said["request"]), str(said["model"]), str(outcome), last.at, verdicts, found)


def _named(told: list[Entry]) -> dict[str, list[str]]:
    """Digests of the documents that entries name."""
    receipts = [digest for entry in told for digest in entry.body.get("receipts", [])]
    audits = [entry.body["report"] for entry in told if "report" in entry.body]
    return {"receipt": list(dict.fromkeys(receipts)), "audit": list(dict.fromkeys(audits))}


def _readme(name: str, told: list[Entry], papers: Mapping[str, str], point: Checkpoint) -> str:
    happened = "\n".join(f"  {entry.at[:19].replace('T', ' ')} UTC  {entry.kind}" for entry in told)
    verdicts = [
        f"  {document['verdict']}"
        for path, text in papers.items()
        if path.startswith("receipts/") and "verdict" in (document := json.loads(text))
    ]
    counts = ", ".join(f"{count} {what}" for what, count in told[0].body.get("counts", {}).items()) or "nothing new"
    return "\n".join(
        [
            f"Evidence for request {name}",
            "",
            f"Model: {told[0].body.get('model')}",
            f"Asked to be forgotten: {counts}",
            "",
            "What happened:",
            happened,
            "",
            "What the receipts say:",
            *(verdicts or ["  There is none: nothing was carried out."]),
            "",
            "Check it, offline:  unweave ledger verify evidence.zip",
            "A checkpoint of the ledger that was published elsewhere (--checkpoint) shows that nothing was rewritten.",
            f"The ledger is {point.ledger}; at entry {point.sequence} its digest is {point.digest}.",
            "",
            "No file in here names anybody. The receipts have numbers of nodes; which person had which number is no",
            "longer known to the service.",
            "",
        ]
    )


def _zip(files: Mapping[str, str]) -> bytes:
    """A zip that the same texts always give."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as into:
        for name in sorted(files):
            about = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            about.create_system, about.external_attr = 3, 0o100644 << 16
            into.writestr(about, files[name].encode())
    return held.getvalue()


def _read(path: Path) -> dict[str, str]:
    """The texts of a package that is written as :func:`_zip` writes it."""
    wrong = LedgerError(f"{path} is no evidence, or was changed; give the file as it was downloaded")
    try:
        if path.stat().st_size > LARGEST:
            raise wrong
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as found:
            if sum(each.file_size for each in found.infolist()) > len(content):
                raise wrong
            files = {each.filename: found.read(each).decode() for each in found.infolist()}
        if _zip(files) != content:
            raise wrong
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    except (zipfile.BadZipFile, UnicodeDecodeError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise wrong from error
    return files


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        return read_canonical(text.removesuffix("\n"))
    except LedgerError as error:
        raise LedgerError(f"{name} is missing, or was changed") from error


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
