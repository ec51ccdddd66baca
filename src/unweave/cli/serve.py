"""``unweave serve``, ``work``, ``register``, ``token``, ``backup``, ``request``: run a service, and ask it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.cli.options import Json
from unweave.cli.output import print_json, reports_errors, say
from unweave.errors import ServiceError

if TYPE_CHECKING:
    from unweave.client import Client
    from unweave.serve.settings import Settings

__all__ = ["backup", "register", "request", "serve", "token", "work"]

NEEDED = ("alembic", "cryptography", "fastapi", "jinja2", "prometheus_client", "sqlalchemy", "uvicorn")

LONGEST = 7 * 86400.0
"""Seconds that somebody waits for a request."""

Home = Annotated[Path | None, typer.Option(help="Folder of the service.", show_default="service")]
Database = Annotated[str | None, typer.Option(help="URL of another database than SQLite in the folder.")]
File = Annotated[Path | None, typer.Option("--settings", help="TOML file with settings.")]


@reports_errors
def serve(
    home: Home = None,
    database: Database = None,
    settings: File = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 for any that is free.", show_default="8722")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that work.", show_default="1")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate for TLS.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    behind_proxy: Annotated[
        bool | None, typer.Option("--behind-proxy", help="A proxy in front has TLS; needed beyond this machine.")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder whose runs the API may register.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="With a model of the embedded graph, and requests.")] = False,
) -> None:
    """Run a service: a page and an API for requests from people, and workers that carry them out."""
    _needed()
    from unweave.serve.demo import set_up
    from unweave.serve.running import log_to, serve as run
    from unweave.serve.service import Service
    from unweave.serve.tokens import first_token

    found = _settings(
        settings,
        home=home if home is not None or not demo else Path("service-demo"),
        database=database,
        host=host,
        port=port,
        workers=workers,
        certificate=certificate,
        private_key=private_key,
        behind_proxy=behind_proxy,
        runs=runs,
    )
    log_to(found)
    service = Service.at(found.home, found.database)
    try:
        token = first_token(service)
        if demo:
            say("Training a model of the embedded graph …")
            set_up(service)
        if token is not None:
            say(f"Your token, which is shown this once:  {token}")

        def ready(address: str) -> None:
            say(f"Open {address} and sign in with a token. Ctrl-C stops it.")

        run(found, service, ready)
    finally:
        service.close()


@reports_errors
def work(home: Home = None, database: Database = None, settings: File = None) -> None:
    """Carry out the requests of a service, in a process of its own; as many as you like may run."""
    _needed()
    from unweave.serve.running import work as run

    run(_settings(settings, home=home, database=database))


@reports_errors
def register(
    name: Annotated[str, typer.Argument(help="What the model is to be called.")],
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    ids: Annotated[Path, typer.Option(help="CSV file with the header id,node: your own ids of the nodes.")],
    columns: Annotated[Path | None, typer.Option(help="Names of the features, one a line.")] = None,
    graph: Annotated[Path | None, typer.Option("--data", help="Where the graph is your own: its file.")] = None,
    model: Annotated[str | None, typer.Option(help="Where the model is your own: package.module:factory.")] = None,
    budget: Annotated[str | None, typer.Option(help="At most this share of a retraining, e.g. 5%.")] = None,
    at_least: Annotated[float | None, typer.Option(help="Close at least this share of the gap, e.g. 0.9.")] = None,
    method: Annotated[str | None, typer.Option(help="auto, certified, gif, replay, retrace or retrain.")] = None,
    within: Annotated[str | None, typer.Option(help="How long a request may wait for others, e.g. 24h.")] = None,
    batch: Annotated[int | None, typer.Option(help="How many are carried out as one, at most.")] = None,
    deadline: Annotated[str | None, typer.Option(help="When a request must be done, e.g. 30d.")] = None,
    screen: Annotated[bool | None, typer.Option(help="Let abnormal requests wait for an approval.")] = None,
    audit: Annotated[str | None, typer.Option(help="off, quick or full.")] = None,
    purge: Annotated[bool | None, typer.Option(help="Delete all else in the run that remembers.")] = None,
    keep: Annotated[int | None, typer.Option(help="Superseded versions that stay.")] = None,
    memory_mib: Annotated[float | None, typer.Option(help="MiB that evaluating may hold at a time.")] = None,
    home: Home = None,
    database: Database = None,
    settings: File = None,
) -> None:
    """Give a service a model: its run is copied, and is the first version."""
    _needed()
    from unweave.serve.policy import Policy
    from unweave.serve.registry import register as take
    from unweave.serve.service import Service
    from unweave.serve.subjects import read_ids

    found = _settings(settings, home=home, database=database)
    said = {
        "method": method,
        "budget": budget,
        "at_least": at_least,
        "within": within,
        "batch": batch,
        "deadline": deadline,
        "screen": screen,
        "audit": audit,
        "purge": purge,
        "keep": keep,
        "memory_mib": memory_mib,
    }
    policy = Policy.of({key: value for key, value in said.items() if value is not None})
    names = [] if columns is None else _lines(columns)
    table = read_ids(ids)
    service = Service.at(found.home, found.database)
    try:
        take(service, name, run, ids=table, columns=names, policy=policy, graph=graph, factory=model)
    finally:
        service.close()
    say(f"{name} is registered with {len(table):,} ids. The service keeps none of them as they are.")


@reports_errors
def token(
    name: Annotated[str, typer.Argument(help="Whom it is for.")],
    scope: Annotated[list[str], typer.Option(help="submit, read, operate or administer; repeatable.")],
    model: Annotated[list[str] | None, typer.Option(help="For this model only; repeatable.")] = None,
    expires: Annotated[str | None, typer.Option(help="After which it no longer serves, e.g. 90d.")] = None,
    home: Home = None,
    database: Database = None,
    settings: File = None,
) -> None:
    """Make a token for a service, where its folder can be read; it is shown this once."""
    _needed()
    from unweave.serve.policy import seconds
    from unweave.serve.service import Service
    from unweave.serve.tokens import new_token

    found = _settings(settings, home=home, database=database)
    service = Service.at(found.home, found.database, make=False)
    try:
        _, made = new_token(service, name, scope, models=model, seconds=None if expires is None else seconds(expires))
    finally:
        service.close()
    typer.echo(made)


@reports_errors
def backup(
    out: Annotated[Path, typer.Argument(help="New folder for the copy.")],
    home: Home = None,
    database: Database = None,
    settings: File = None,
) -> None:
    """Copy a service while it runs. What is in PostgreSQL is not copied: dump that too."""
    _needed()
    from unweave.serve.backup import backup as copy
    from unweave.serve.service import Service

    found = _settings(settings, home=home, database=database)
    service = Service.at(found.home, found.database, make=False)
    try:
        count = copy(service, out)
    finally:
        service.close()
    say(f"Copied to {out}, with {count} versions. It has keys and open requests: keep it as closed as the service.")


@reports_errors
def request(
    model: Annotated[str, typer.Argument(help="Which model is to forget.")],
    subject: Annotated[list[str] | None, typer.Option(help="Id of whom everything is to go; repeatable.")] = None,
    edge: Annotated[list[str] | None, typer.Option(help="Two ids with a comma between; repeatable.")] = None,
    feature: Annotated[list[str] | None, typer.Option(help="id:column,column or id:all; repeatable.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Id whose label may no longer be used; repeatable.")] = None,
    change: Annotated[
        Path | None, typer.Option(help='JSON file of what comes and is put right, {"add": …, "correct": …}, by ids.')
    ] = None,
    note: Annotated[str | None, typer.Option(help="A remark; it goes with the ids.")] = None,
    key: Annotated[str | None, typer.Option(help="Your own key: the same again is the same request.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended.")] = False,
    evidence: Annotated[Path | None, typer.Option(help="File for the evidence; waits for it.")] = None,
    url: Annotated[str, typer.Option(envvar="UNWEAVE_URL", help="Of the service.")] = "http://127.0.0.1:8722",
    json: Json = False,
) -> None:
    """Ask a service to forget, to add or to correct. Your token is taken from the variable UNWEAVE_TOKEN."""
    more = {} if change is None else _document(change)
    found = _client(url).submit(
        model,
        subjects=subject or [],
        edges=[_pair(text) for text in edge or []],
        features=dict(_feature(text) for text in feature or []),
        labels=label or [],
        add=more.get("add"),
        correct=more.get("correct"),
        note=note,
        key=key,
    )
    if wait or evidence is not None:
        found = _client(url).wait(found["id"], LONGEST)
    if evidence is not None:
        _client(url).evidence(found["id"], evidence)
    if json:
        print_json(found)
        return
    say(f"Request {found['id']} {found['words']}.")
    if found.get("gone"):
        say(f"Gone already: {', '.join(found['gone'])}.")
    if evidence is not None:
        say(f"Evidence in {evidence}. Check it anywhere: unweave ledger verify {evidence}")


def _client(url: str) -> "Client":
    from unweave.client import Client

    token = os.environ.get("UNWEAVE_TOKEN")
    if not token:
        raise ServiceError("set the variable UNWEAVE_TOKEN to your token; on the command line others could read it")
    return Client(url, token)


def _document(path: Path) -> dict[str, Any]:
    from json import loads

    try:
        found = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--change: cannot read {path}: {error}") from error
    if not isinstance(found, dict) or not set(found) <= {"add", "correct"}:
        raise typer.BadParameter(f"--change: {path} must hold an object with add and correct")
    return found


def _pair(text: str) -> tuple[str, str]:
    one, comma, other = text.partition(",")
    if not comma:
        raise typer.BadParameter(f"--edge takes two ids with a comma between, got {text}")
    return one.strip(), other.strip()


def _feature(text: str) -> tuple[str, Any]:
    name, colon, columns = text.rpartition(":")
    if not colon:
        raise typer.BadParameter(f"--feature takes id:column,column or id:all, got {text}")
    return name, "all" if columns == "all" else [column.strip() for column in columns.split(",")]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"cannot read {path}: {error}") from error


def _settings(file: Path | None, **given: Any) -> "Settings":
    from unweave.serve.settings import Settings

    return Settings.read(file, **given)


def _needed() -> None:
    """Say what to install, before any work."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in NEEDED):
        raise ServiceError("this needs more than is installed: pip install 'unweave[serve]'")
