"""The ledger: its end, its entries, and the keys of what is personal in them."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "ledger",
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("public", sa.String(64), nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(64), nullable=False, index=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("signature", sa.String(128), nullable=False),
        sa.Column("key", sa.String(32), index=True),
        sa.Column("sealed", sa.LargeBinary),
    )
    op.create_table(
        "subject_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
