"""How alembic reaches the database: by the connection it is given."""

from alembic import context

from unweave.serve.database import METADATA, VERSION

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA, version_table=VERSION)
with context.begin_transaction():
    context.run_migrations()
