"""The key that a ledger is signed with: made on first use, readable for its owner alone, changed on demand."""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from unweave._core.writing import write_whole
from unweave.errors import LedgerError

__all__ = ["Keys", "fingerprint", "read_private", "signature_fits", "write_private"]

CURRENT, NEXT, OPENED = "signing.pem", "signing-next.pem", "ledger"


class Keys:
    """The private key of a ledger, in a folder that only its owner can read.

    Whoever changes files here holds the lock of the ledger's database.

    Args:
        folder: Where it lies.
        make: Whether to make what is missing.

    Raises:
        LedgerError: There is none, or one that others can read or replace.
    """

    def __init__(self, folder: str | Path, *, make: bool = True) -> None:
        self.folder = Path(folder)
        if make:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.path.lexists(self.folder / CURRENT) and self.ledger is None:  # a lost one is not replaced
                    _make(self.folder / CURRENT)
            except OSError as error:
                raise LedgerError(f"cannot make a key in {folder}: {error}") from error
        self._private = _load(self.folder / CURRENT)

    @property
    def public(self) -> str:
        """The public key, in hexadecimal digits."""
        return _public(self._private)

    @property
    def fingerprint(self) -> str:
        """What entries call it."""
        return fingerprint(self.public)

    def sign(self, purpose: str, digest: str) -> str:
        """A signature of a digest, for one purpose: one of an entry is none of a checkpoint."""
        return self._private.sign(_message(purpose, digest)).hex()

    def prepare_next(self) -> str:
        """Make the key that is to follow, or find one that no entry names yet; its public part."""
        for left in self.folder.glob(".signing*"):  # of a process that was killed while it made one
            left.unlink()
        path = self.folder / NEXT
        if not path.exists():
            _make(path)
        return _public(_load(path))

    @property
    def ledger(self) -> str | None:
        """The id of the ledger that this key has opened, if it has."""
        try:
            return (self.folder / OPENED).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise LedgerError(f"cannot read {self.folder / OPENED}: {error}") from error

    def opened(self, ledger: str) -> None:
        """Remember which ledger it is: another one in its place is then noticed."""
        write_whole(self.folder / OPENED, ledger + "\n")

    def follow(self, known: str) -> None:
        """Sign with the key that the ledger expects: another process may have changed it, or been stopped while it did.

        Args:
            known: Fingerprint of the key that the ledger expects.

        Raises:
            LedgerError: This is not the key of that ledger.
        """
        if known == self.fingerprint:
            return
        if (self.folder / NEXT).exists() and fingerprint(_public(_load(self.folder / NEXT))) == known:
            os.replace(self.folder / NEXT, self.folder / CURRENT)
            _settle(self.folder)
        self._private = _load(self.folder / CURRENT)
        if known != self.fingerprint:
            raise LedgerError(
                f"the ledger is signed with the key {known}, {self.folder} has {self.fingerprint}; restore the folder "
                "of keys that belongs to it"
            )


def fingerprint(public: str) -> str:
    """The SHA-256 of a public key."""
    return hashlib.sha256(bytes.fromhex(public)).hexdigest()


def signature_fits(public: str, purpose: str, digest: str, signature: str) -> bool:
    """Whether a signature is of this key, for this purpose, of this digest, and written in one way only."""
    try:
        raw, key = bytes.fromhex(signature), Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(raw, _message(purpose, digest))
    except (TypeError, ValueError, InvalidSignature):
        return False
    return raw.hex() == signature


def _message(purpose: str, digest: str) -> bytes:
    return f"unweave {purpose}\n{digest}".encode()


def _public(private: Ed25519PrivateKey) -> str:
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _make(path: Path) -> None:
    """A new key."""
    write_private(path, Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_private(path: Path, content: bytes) -> None:
    """A file, whole or not at all, and never readable for others, not even for a moment; one that is there stays."""
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # readable for its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first, and its key is used
            os.link(beside, path)
    finally:
        os.unlink(beside)
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Let the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_private(path: Path) -> bytes:
    """What a file holds that is readable for its owner alone."""
    try:
        if path.is_symlink():
            raise LedgerError(f"{path} is a link; a key is a file of its own, so that changing it leaves none behind")
        if path.stat().st_mode & 0o077:
            raise LedgerError(f"{path} can be read by others; make it readable for its owner alone: chmod 600 {path}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise LedgerError(f"there is no key {path}; restore the folder of keys from a backup") from error
    except OSError as error:
        raise LedgerError(f"cannot read the key {path}: {error}; restore it from a backup") from error


def _load(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(read_private(path), password=None)
    except (TypeError, ValueError) as error:
        raise LedgerError(f"{path} is no private key that can be read: {error}; restore it from a backup") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise LedgerError(f"{path} is no Ed25519 key; restore the one that was made for this ledger")
    return key
