"""The command line: one file a command, no logic of its own."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``unweave`` command.

    Torch asks the system for every large tensor anew, and the system clears it page by page, which takes as long as the
    arithmetic on a graph of millions of nodes. In pages of 2 MiB, where the system has them, it takes less than half.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        from unweave.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit("the command line needs typer and rich; install unweave[cli]")
    app()
