"""How alembic reaches the database: by the connection it is given."""

from alembic import context

from unweave.serve.database import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
