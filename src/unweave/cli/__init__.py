"""The command line: one file a command, no logic of its own."""

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``unweave`` command."""
    try:
        from unweave.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit("the command line needs typer and rich; install unweave[cli]")
    app()
