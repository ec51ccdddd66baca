"""Evidence for one request, in a file that anybody can check offline: what was done, when, and by which receipts.

It is a plain zip of texts, written in one way only, so that a file of which one byte was changed is not the file that
its own texts would give. It has the entries of the ledger from the beginning of the request to its end, those that name
keys, the receipts, the reports of audits, and a signed list of all of them. It has nothing personal.
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
from unweave.serve.ledger import Checkpoint, Entry, Signed, Verified, fingerprint, verify
from unweave.serve.ledger.entries import DESTROYED, check_parts, read_canonical
from unweave.serve.ledger.keys import signature_fits
from unweave.serve.ledger.ledger import lines_of
from unweave.serve.papers import read_all
from unweave.serve.queue import ENDED, STATES
from unweave.serve.service import Service

__all__ = ["Evidence", "package", "verify_package"]

PURPOSE = "evidence"
ORDER = ("received", "screened", "applied", "verified", "audited", "done")
"""What happens to a request that is carried out, once each."""

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
    point = service.ledger.checkpoint()  # which is signed with the key in force
    with database.reading(service.engine) as connection:
        told = queue.timeline(connection, name)
        lines = list(lines_of(connection, start=row.received, end=told[-1].sequence, until=point.sequence))
        papers = {
            f"{kind}s/{digest}.json": text
            for kind, digests in _named(told).items()
            for digest, text in read_all(connection, digests).items()
        }
    files = {LEDGER: "".join(f"{line.line}\n" for line in lines), **papers}
    files[README] = _readme(name, told, papers)
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
    try:
        check_parts(manifest, {"evidence": dict, "signature": str})
        check_parts(manifest["evidence"], {"request": str, "model": str, "ledger": str, "files": dict, "signer": str})
    except LedgerError as error:
        raise LedgerError(f"{path} is no evidence: its list of files is missing") from error
    said, signature = manifest["evidence"], manifest["signature"]
    if said.get("files") != {name: _sha(text) for name, text in files.items()}:
        raise LedgerError(f"{path}: a file is not the one that was signed, or one is missing or was added")
    lines = [Signed.read(text) for text in files.get(LEDGER, "").removesuffix("\n").split("\n")]
    found = verify(lines, checkpoints=checkpoints, key=key, whole=False)
    fits = said["signer"] == fingerprint(found.public) and found.ledger == said["ledger"]
    if not fits or not signature_fits(found.public, PURPOSE, document_digest(said), signature):
        raise LedgerError(f"{path}: the list of its files is not signed with the key of the ledger")
    entries = [line.entry for line in lines]
    told = _of(said["request"], entries)
    _check_story(said, told)
    return _told(said, told, files, found)


def _of(request: str, entries: list[Entry]) -> list[Entry]:
    """The entries that tell of a request, and the one that tells that its key was destroyed."""
    own = [entry for entry in entries if entry.body.get("request") == request]
    keys = {entry.sealed["key"] for entry in own if entry.sealed is not None and "key" in entry.sealed}
    gone = [entry for entry in entries if entry.kind == DESTROYED and entry.body.get("key") in keys]
    return sorted([*own, *gone], key=lambda entry: entry.sequence)


def _check_story(said: Mapping[str, Any], told: list[Entry]) -> None:
    """A request is received first and ends last, and what must be in between is, once and in order."""
    kinds = [entry.kind.removeprefix("request ") for entry in told]
    refused = kinds[-1:] == ["refused"]
    counted = ("received", "applied", "done", "refused") if refused else (*ORDER, "refused")
    steps = [kind for kind in kinds if kind in counted]
    empty = bool(told) and not told[0].body.get("counts")  # earlier requests had taken all of it
    wanted = ["received", "refused"] if refused else ["received", "done"] if empty else list(ORDER)
    if steps != wanted or kinds[0] != wanted[0] or kinds[-1] != wanted[-1]:
        raise LedgerError("the entries do not tell of a request from its beginning to its end")
    if {entry.body.get("model") for entry in told if entry.kind != DESTROYED} != {said["model"]}:
        raise LedgerError("the entries are of another model")
    if told[0].sealed is not None and DESTROYED not in kinds:
        raise LedgerError("the key of what is personal in the request was not destroyed")
    applied = next((entry for entry in told if entry.kind == "request applied"), None)
    if applied is not None and not applied.body.get("receipts"):
        raise LedgerError("the request was carried out without a receipt")


def _told(said: Mapping[str, Any], told: list[Entry], files: Mapping[str, str], found: Verified) -> Evidence:
    """What the entries say, where the documents they name are all there and no others are."""
    named = {f"{kind}s/{digest}.json": digest for kind, digests in _named(told).items() for digest in digests}
    if set(named) != set(files) - {README, LEDGER} or any(_sha(files[name]) != named[name] for name in named):
        raise LedgerError("the receipts and reports are not those that the ledger names")
    if files.get(README) != _readme(str(said["request"]), told, {name: files[name] for name in named}):
        raise LedgerError(f"{README} does not say what the entries say")
    verdicts = tuple(str(_document(files[name], name).get("verdict")) for name in named if name.startswith("receipts/"))
    last = told[-1]
    outcome = last.body.get("outcome") or f"refused: {last.body.get('reason')}"
    return Evidence(str(said["request"]), str(said["model"]), str(outcome), last.at, verdicts, found)


def _named(told: list[Entry]) -> dict[str, list[str]]:
    """Digests of the documents that entries name."""
    receipts = [digest for entry in told for digest in entry.body.get("receipts", [])]
    audits = [entry.body["report"] for entry in told if "report" in entry.body]
    return {"receipt": list(dict.fromkeys(receipts)), "audit": list(dict.fromkeys(audits))}


def _readme(name: str, told: list[Entry], papers: Mapping[str, str]) -> str:
    happened = "\n".join(f"  {entry.at[:19].replace('T', ' ')} UTC  {entry.kind}" for entry in told)
    verdicts = [
        f"  {document['verdict']}"
        for path, text in papers.items()
        if path.startswith("receipts/") and "verdict" in (document := json.loads(text))
    ]
    counts = (
        ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in told[0].body.get("counts", {}).items())
        or "nothing new"
    )
    return "\n".join(
        [
            f"Evidence for request {name}",
            "",
            f"Model: {told[0].body.get('model')}",
            f"Asked to be {'changed' if told[0].body.get('change') else 'forgotten'}: {counts}",
            "",
            "What happened:",
            happened,
            "",
            "What the receipts say:",
            *(verdicts or ["  There is none: nothing was carried out."]),
            "",
            "Check it, offline:  unweave ledger verify evidence.zip",
            "A checkpoint of the ledger that was published elsewhere (--checkpoint) shows that nothing was rewritten.",
            f"The ledger is {told[0].ledger}; the request is in its entries {told[0].sequence} to {told[-1].sequence}.",
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
