"""Put the commands together."""

from typing import Annotated

import typer

from unweave._core.version import __version__
from unweave.cli.adopt import adopt
from unweave.cli.audit import audit
from unweave.cli.bench import bench
from unweave.cli.calibrate import calibrate
from unweave.cli.compare import compare
from unweave.cli.convert import convert
from unweave.cli.demo import demo
from unweave.cli.explain import explain
from unweave.cli.forget import forget
from unweave.cli.inspect import inspect
from unweave.cli.ledger import ledger
from unweave.cli.plan import plan
from unweave.cli.prepare import prepare
from unweave.cli.rehearse import rehearse
from unweave.cli.repair import repair
from unweave.cli.reproduce import reproduce
from unweave.cli.serve import backup, register, request, serve, token, work
from unweave.cli.show import show
from unweave.cli.train import train
from unweave.cli.update import update
from unweave.cli.verify import verify

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    demo,
    train,
    adopt,
    convert,
    plan,
    prepare,
    calibrate,
    rehearse,
    inspect,
    explain,
    forget,
    update,
    repair,
    verify,
    audit,
    compare,
    bench,
    reproduce,
    show,
    serve,
    register,
    request,
    work,
    token,
    backup,
):
    app.command()(command)
app.add_typer(ledger, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unweave {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Make a trained graph neural network forget."""
