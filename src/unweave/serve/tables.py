"""The tables of a service beside those of its ledger: models, versions, subjects, requests, tokens, hooks."""

from sqlalchemy import Boolean, Column, Float, ForeignKeyConstraint, Index, Integer, String, Table, Text

from unweave.serve.database import METADATA

__all__ = ["deliveries", "documents", "events", "hooks", "models", "requests", "subjects", "tokens", "versions"]

models = Table(
    "models",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("current", Integer, nullable=False),
    Column("forgot", Integer, nullable=False),
    Column("policy", Text, nullable=False),
    Column("columns", Text, nullable=False),
    Column("factory", Text),
    Column("at", String(32), nullable=False),
    Column("worker", String(32)),
    Column("until", Float),
)
"""``forgot``: requests carried out; ``columns``: names of features; ``worker`` holds the model until ``until``."""

versions = Table(
    "versions",
    METADATA,
    Column("model", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("folder", String(128), nullable=False),
    Column("weights", String(64), nullable=False),
    Column("forgot", Integer, nullable=False),
    Column("facts", Text, nullable=False),
    Column("at", String(32), nullable=False),
    Column("purged", Boolean, nullable=False),
    ForeignKeyConstraint(["model"], ["models.name"]),
)
"""Never changed, but for ``purged``: then its files are gone."""

subjects = Table(
    "subjects",
    METADATA,
    Column("model", String(64), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("node", Integer),
    ForeignKeyConstraint(["model"], ["models.name"]),
    Index("subjects_by_node", "model", "node"),
)
"""Who is which node: a keyed digest of the owner's id, and no node once that was deleted."""

requests = Table(
    "requests",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("model", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("received", Integer, nullable=False, unique=True),
    Column("at", Float, nullable=False),
    Column("what", Text, nullable=False),
    Column("token", String(32)),
    Column("idempotency", String(64)),
    Column("key", String(32)),
    Column("attempts", Integer, nullable=False),
    Column("not_before", Float, nullable=False),
    Column("batch", String(32)),
    Column("version", Integer),
    Column("reason", Text),
    Column("alone", Boolean, nullable=False),
    ForeignKeyConstraint(["model"], ["models.name"]),
    Index("requests_by_key", "token", "idempotency", unique=True),
    Index("requests_by_model", "model", "state", "received"),
    Index("requests_in_order", "model", "received"),
    Index("requests_by_state", "state", "received"),
    Index("requests_by_batch", "batch"),
)
"""``received``: the entry of the ledger that has what was asked; ``alone``: in no batch, since it spoilt one."""

events = Table(
    "events",
    METADATA,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("request", String(32), nullable=False, index=True),
)
"""Which entries of the ledger tell of which request."""

tokens = Table(
    "tokens",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("models", Text),
    Column("made", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Boolean, nullable=False),
)

hooks = Table(
    "hooks",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("model", String(64), nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("made", Float, nullable=False),
    ForeignKeyConstraint(["model"], ["models.name"]),
)

deliveries = Table(
    "deliveries",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("hook", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("not_before", Float, nullable=False, index=True),
    Column("said", Text),
    ForeignKeyConstraint(["hook"], ["hooks.id"], ondelete="CASCADE"),
)
"""What is still to be told; a row goes when it was heard."""

documents = Table(
    "documents",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("model", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Index("documents_by_version", "model", "version"),
)
"""Receipts and reports of audits, by the SHA-256 of their text."""
