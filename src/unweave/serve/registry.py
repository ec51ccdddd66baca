"""Models by name, and their versions: immutable folders, one of which is current."""

import copy
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from sqlalchemy import Connection, Row, func, insert, select, update
from torch import Tensor

from unweave._core.document import canonical_json
from unweave.datasets.own import graph_bytes, read_graph
from unweave.errors import ServiceError, UnweaveError
from unweave.request import Request
from unweave.run.factory import made_by
from unweave.run.run import Run
from unweave.serve import database
from unweave.serve.policy import Policy
from unweave.serve.service import MODELS, Service, iso, now
from unweave.serve.subjects import check_ids, enrol
from unweave.serve.tables import models, versions
from unweave.tasks.task import Task

__all__ = [
    "Written",
    "add_version",
    "find",
    "find_version",
    "go_back",
    "open_version",
    "purge_versions",
    "register",
    "set_policy",
    "superseded",
    "sweep",
    "sweep_unregistered",
    "weights_file",
    "write_version",
]

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
GONE = "gone-"
"""What the name of a folder begins with that is being deleted."""

HOUR = 3600.0
RUN, GRAPH, WEIGHTS = "run", "graph.safetensors", "weights.safetensors"
TASK = "graph.pt"
"""The graph of a task, which is more than tensors."""


@dataclass(frozen=True)
class Written:
    """A version on disk that nobody points to yet.

    Attributes:
        folder: Its name among those of the model.
        weights: SHA-256 of its weights.
        facts: What the list of versions says of it.
    """

    folder: str
    weights: str
    facts: Mapping[str, Any]


def register(
    service: Service,
    name: str,
    run: str | Path,
    *,
    ids: Mapping[str, int],
    columns: Sequence[str] = (),
    policy: Policy | None = None,
    graph: str | Path | None = None,
    factory: str | None = None,
) -> Row[Any]:
    """Take a run under a name: its files are copied, and are the first version.

    Args:
        service: Where.
        name: Of up to 64 small letters, digits and hyphens.
        run: Its folder.
        ids: The owner's id of each node that somebody may ask for.
        columns: Names of the features, in order; none where nobody asks for single ones.
        policy: How requests are carried out.
        graph: Its file, where the graph is the owner's own.
        factory: ``package.module:factory``, which gives the module where that is the owner's own.

    Raises:
        ServiceError: The name is taken or none, or ids and columns are not those of the graph.
        UnweaveError: The run cannot be opened.
    """
    if not NAME.fullmatch(name):
        raise ServiceError(f"a model's name has up to 64 small letters, digits and hyphens, got {name!r}", status=422)
    policy = policy or Policy()
    parts = {} if factory is None else made_by(factory)
    how = {key: parts[key] for key in ("model", "loss", "forward") if key in parts}
    found = Run.open(run, data=None if graph is None else read_graph(graph), **how)
    nodes, features = int(found.data.num_nodes), found.data.num_features
    if not ids:
        raise ServiceError("a model needs ids, or nobody could ask for anything", status=422)
    check_ids(ids)
    if strange := sorted(key for key, node in ids.items() if not 0 <= node < nodes):
        raise ServiceError(f"the graph has {nodes} nodes; {len(strange)} ids name others", status=422, unknown=strange)
    if columns and (len(columns) != features or len(set(columns)) != features):
        raise ServiceError(f"the graph has {features} features; name each once, or none", status=422)
    _check_policy(found, policy)
    with database.reading(service.engine) as connection:
        _refuse_taken(connection, name)
    made = write_version(service, name, 1, found, {"f1": found.metrics.get("test_f1"), "method": "training"})
    try:
        with database.writing(service.engine) as connection:
            database.take_turns(connection)
            _refuse_taken(connection, name)
            at = iso(now())
            row = {"name": name, "current": 1, "forgot": 0, "policy": policy.text, "at": at, "factory": factory}
            connection.execute(insert(models).values(**row, columns=canonical_json(list(columns))))
            add_version(service, connection, name, 1, 0, made)
            enrol(service, connection, name, ids)
            body = {"model": name, "version": 1, "weights": made.weights, "policy": json.loads(policy.text)}
            service.ledger.append(connection, "model registered", body | {"subjects": len(ids)})
            return find(connection, name)
    except BaseException:
        shutil.rmtree(service.folder(name) / made.folder, ignore_errors=True)
        raise


def _refuse_taken(connection: Connection, name: str) -> None:
    if connection.execute(select(models.c.name).where(models.c.name == name)).one_or_none() is not None:
        raise ServiceError(f"there is a model {name!r} already; choose another name")


def _check_policy(run: Run, policy: Policy) -> None:
    """Refuse a policy under which no request could be carried out."""
    certified = run.training.recipe is not None and run.training.recipe.certify is not None
    if certified != (policy.method == "certified"):
        what = "a run that was trained with --certify" if certified else "this run"
        raise ServiceError(
            f"{what} does not go with the method {policy.method}; "
            + ("choose certified" if certified else "choose another, or train it with --certify"),
            status=422,
        )
    if policy.audit != "off" or policy.method in ("retrain", "replay", "retrace"):
        run.training.require("this policy")
    try:
        some = Request(nodes=run.data.train_mask.nonzero().flatten().tolist()[:1])
        run.preview(some, policy.method, allow_class_loss=True, strict=True, **policy.how())
    except UnweaveError as error:
        raise ServiceError(f"under this policy no request could be carried out: {error}", status=422) from error


def write_version(service: Service, name: str, number: int, run: Run, facts: Mapping[str, Any]) -> Written:
    """Write run and graph to a new folder, which no row names yet."""
    folder = f"{number}-{secrets.token_hex(4)}"
    place = service.folder(name) / folder
    place.mkdir(mode=0o700, parents=True)
    run.save(place / RUN)
    found = run.data.to_dict()
    if isinstance(run.data, Task):
        _write(place / TASK, graph_bytes(copy.copy(run.data).cpu()))
    else:
        _write(place / GRAPH, save({k: v.cpu().contiguous() for k, v in found.items() if isinstance(v, Tensor)}))
    return Written(folder, _sha(place / RUN / WEIGHTS), facts)


def add_version(service: Service, connection: Connection, name: str, number: int, forgot: int, made: Written) -> None:
    """A row for a version that was written, and is there still."""
    if not (service.folder(name) / made.folder / RUN / WEIGHTS).is_file():
        raise ServiceError(f"the files of version {number} of {name} are gone; it is made again")
    row = {"model": name, "number": number, "folder": made.folder, "weights": made.weights, "forgot": forgot}
    connection.execute(
        insert(versions).values(**row, facts=canonical_json(dict(made.facts)), at=iso(now()), purged=False)
    )


def find(connection: Connection, name: str) -> Row[Any]:
    """The row of a model."""
    row = connection.execute(select(models).where(models.c.name == name)).one_or_none()
    if row is None:
        raise ServiceError(f"there is no model {name!r}", status=404)
    return row


def find_version(connection: Connection, name: str, number: int) -> Row[Any]:
    """The row of a version."""
    chosen = (versions.c.model == name, versions.c.number == number)
    row = connection.execute(select(versions).where(*chosen)).one_or_none()
    if row is None:
        raise ServiceError(f"{name} has no version {number}", status=404)
    return row


def open_version(service: Service, model: Row[Any], version: Row[Any]) -> Run:
    """The run of a version, with its graph.

    Raises:
        ServiceError: It was purged.
        UnweaveError: Its files are damaged.
    """
    _refuse_purged(version)
    place = service.folder(version.model) / version.folder
    parts = {} if model.factory is None else made_by(model.factory)
    how = {key: parts[key] for key in ("model", "loss", "forward") if key in parts}
    if _sha(place / RUN / WEIGHTS) != version.weights:
        raise ServiceError(f"the weights of {version.model}, version {version.number}, were changed on disk")
    graph = place / GRAPH if (place / GRAPH).is_file() else place / TASK
    return Run.open(place / RUN, data=read_graph(graph), **how)


def weights_file(service: Service, version: Row[Any]) -> Path:
    """The weights of a version, for whoever serves the model."""
    _refuse_purged(version)
    return service.folder(str(version.model)) / str(version.folder) / RUN / WEIGHTS


def _refuse_purged(version: Row[Any]) -> None:
    if version.purged:
        raise ServiceError(
            f"version {version.number} of {version.model} was purged: it remembered what was deleted since", status=410
        )


def set_policy(service: Service, name: str, policy: Policy) -> None:
    """Change how requests are carried out from now on; the ledger says so."""
    with database.reading(service.engine) as connection:
        model = find(connection, name)
        version = find_version(connection, name, model.current)
    _check_policy(open_version(service, model, version), policy)
    with database.writing(service.engine) as connection:
        find(connection, name)
        connection.execute(update(models).where(models.c.name == name).values(policy=policy.text))
        service.ledger.append(connection, "policy changed", {"model": name, "policy": json.loads(policy.text)})


def go_back(service: Service, name: str, number: int) -> None:
    """Make another version the current one.

    Raises:
        ServiceError: It remembers what was deleted since, or was purged.
    """
    with database.writing(service.engine) as connection:
        model, version = find(connection, name), find_version(connection, name, number)
        _refuse_purged(version)
        if version.forgot < model.forgot:
            raise ServiceError(
                f"version {number} remembers what {model.forgot - version.forgot} requests had deleted since; it is "
                "never served again"
            )
        if number != model.current:
            connection.execute(update(models).where(models.c.name == name).values(current=number))
            service.ledger.append(connection, "current moved", {"model": name, "version": number})


def purge_versions(service: Service, name: str, keep: int, worker: str) -> None:
    """Delete the files of versions that remember what was deleted, but for the newest ``keep`` of them.

    Rows go first: a version whose files are half gone is never opened.

    Raises:
        ServiceError: Files are still there.
    """
    with database.writing(service.engine) as connection:
        model = find(connection, name)
        there = versions.c.model == name, versions.c.purged.is_(False), versions.c.number != model.current
        old = connection.execute(
            select(versions).where(*there, versions.c.forgot < model.forgot).order_by(versions.c.number.desc())
        ).all()[keep:]
        numbers = sorted(row.number for row in old)
        if numbers:
            chosen = versions.c.model == name, versions.c.number.in_(numbers)
            connection.execute(update(versions).where(*chosen).values(purged=True))
            service.ledger.append(connection, "versions purged", {"model": name, "versions": numbers})
    sweep(service, name, worker)


def superseded(connection: Connection) -> list[str]:
    """Models that have more versions that remember than their policies keep."""
    old = versions.c.purged.is_(False), versions.c.forgot < models.c.forgot, versions.c.number != models.c.current
    query = select(models.c.name, models.c.policy, func.count()).join(versions, versions.c.model == models.c.name)
    found = connection.execute(query.where(*old).group_by(models.c.name, models.c.policy))
    return [name for name, policy, count in found if count > Policy.read(policy).keep]


def sweep(service: Service, name: str, worker: str) -> None:
    """Delete folders that no row names, or whose version was purged: of purges and of workers that were killed.

    Raises:
        ServiceError: The worker does not hold the model, so that a folder may be another one's; or files are still
            there.
    """
    folder = service.folder(name)
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    with database.writing(service.engine) as connection:
        held = connection.execute(
            update(models).where(models.c.name == name, models.c.worker == worker).values(worker=worker)
        )
        if held.rowcount != 1:
            raise ServiceError(f"{name} is held by another worker")
        kept = set(
            connection.scalars(select(versions.c.folder).where(versions.c.model == name, versions.c.purged.is_(False)))
        )
        gone = [_put_away(place) for place in there if place.name not in kept]  # while nobody else can take the model
    for place in gone:
        shutil.rmtree(place, ignore_errors=True)
    if left := [place.name for place in gone if place.exists()]:
        raise ServiceError(
            f"{len(left)} folders of {name} cannot be deleted, e.g. {left[0]}; look at their permissions"
        )


def _put_away(place: Path) -> Path:
    """Rename a folder that is to go, in one step."""
    if place.name.startswith(GONE):
        return place
    away = place.with_name(f"{GONE}{place.name}")
    try:
        return place.rename(away)
    except OSError as error:
        raise ServiceError(f"cannot delete {place.name}: {error}") from error


def sweep_unregistered(service: Service) -> None:
    """Delete what a registration left that was killed an hour ago or earlier."""
    with database.reading(service.engine) as connection:
        known = set(connection.scalars(select(models.c.name)))
    folder = service.home / MODELS
    for place in folder.iterdir() if folder.is_dir() else ():
        if place.name not in known and place.stat().st_mtime < now() - HOUR:
            shutil.rmtree(place, ignore_errors=True)


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sha(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ServiceError(f"cannot read {path.name} of a version: {error}; restore it from a backup") from error
