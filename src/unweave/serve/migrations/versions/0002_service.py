"""The service: models, versions, subjects, requests, tokens, hooks."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "models",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("current", sa.Integer, nullable=False),
        sa.Column("forgot", sa.Integer, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("columns", sa.Text, nullable=False),
        sa.Column("factory", sa.Text),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("worker", sa.String(32)),
        sa.Column("until", sa.Float),
    )
    op.create_table(
        "versions",
        sa.Column("model", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("folder", sa.String(128), nullable=False),
        sa.Column("weights", sa.String(64), nullable=False),
        sa.Column("forgot", sa.Integer, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("purged", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.name"]),
    )
    op.create_table(
        "subjects",
        sa.Column("model", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("node", sa.Integer),
        sa.ForeignKeyConstraint(["model"], ["models.name"]),
    )
    op.create_index("subjects_by_node", "subjects", ["model", "node"])
    op.create_table(
        "requests",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("received", sa.Integer, nullable=False, unique=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("token", sa.String(32)),
        sa.Column("idempotency", sa.String(64)),
        sa.Column("key", sa.String(32)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False),
        sa.Column("batch", sa.String(32)),
        sa.Column("version", sa.Integer),
        sa.Column("reason", sa.Text),
        sa.Column("alone", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.name"]),
    )
    op.create_index("requests_by_key", "requests", ["token", "idempotency"], unique=True)
    op.create_index("requests_by_model", "requests", ["model", "state", "received"])
    op.create_index("requests_in_order", "requests", ["model", "received"])
    op.create_index("requests_by_state", "requests", ["state", "received"])
    op.create_index("requests_by_batch", "requests", ["batch"])
    op.create_table(
        "events",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("request", sa.String(32), nullable=False, index=True),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("models", sa.Text),
        sa.Column("made", sa.Float, nullable=False),
        sa.Column("expires", sa.Float),
        sa.Column("revoked", sa.Boolean, nullable=False),
    )
    op.create_table(
        "hooks",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("model", sa.String(64), nullable=False, index=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("made", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.name"]),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("hook", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False, index=True),
        sa.Column("said", sa.Text),
        sa.ForeignKeyConstraint(["hook"], ["hooks.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "documents",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("documents_by_version", "documents", ["model", "version"])
