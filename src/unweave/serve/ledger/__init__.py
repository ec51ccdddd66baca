"""What happened, in an order that cannot be changed unnoticed, and no longer to whom.

An entry has the digest of the one before it and a signature. What is personal in it is encrypted with a key of its own;
when that key is destroyed, what remains proves that something was done, when, and by which receipt, but not for whom.
"""

from unweave.serve.ledger.chain import Checkpoint, Verified, read_checkpoint, verify
from unweave.serve.ledger.entries import Entry, Signed
from unweave.serve.ledger.export import export, verify_file
from unweave.serve.ledger.keys import Keys, fingerprint
from unweave.serve.ledger.ledger import Ledger, database_of, verify_database

__all__ = [
    "Checkpoint",
    "Entry",
    "Keys",
    "Ledger",
    "Signed",
    "Verified",
    "database_of",
    "export",
    "fingerprint",
    "read_checkpoint",
    "verify",
    "verify_database",
    "verify_file",
]
