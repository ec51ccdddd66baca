"""``unweave reproduce``: the tables and figures of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli import names as known
from unweave.cli.options import Device, Root
from unweave.cli.output import progress_bar, reports_errors, say, split_methods, writable

__all__ = ["reproduce"]

RESULTS, PAGE = Path("results"), Path("docs/results.md")
QUICK = Path("results-quick")


@reports_errors
def reproduce(
    what: Annotated[list[str], typer.Argument(help=f"all, or some of: {', '.join(known.EXPERIMENTS)}.")],
    seeds: Annotated[
        int | None, typer.Option(help="Trials of each cell; 10, as in the paper, or 2 if quick.", min=1)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version on the embedded graph, in minutes.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only cells whose name has this word, e.g. cora or gcn; may be repeated.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Further registered methods, by commas; they join table2, efficacy and ratio.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Folder of the result files; results, or results-quick.")] = None,
    page: Annotated[Path | None, typer.Option(help="The page; docs/results.md, or beside the quick results.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes that share the device.", min=1)] = 1,
    device: Device = "cpu",
    root: Root = None,
) -> None:
    """Measure the paper's tables and figures anew, with every control, and put them on one page beside its numbers.

    Trials are written as they are done: the same command goes on where an interrupted one stopped.
    """
    from unweave.experiments.paper.reproduce import EXPERIMENTS, Plan, reproduce as measure, show
    from unweave.experiments.paper.results import Results
    from unweave.experiments.style import canvas

    named = tuple(dict.fromkeys(name for name in what if name != "all"))
    names = tuple(EXPERIMENTS) if "all" in what and not set(named) - set(EXPERIMENTS) else named
    plan = Plan(names, seeds or (2 if quick else 10), quick, tuple(only or ()), tuple(split_methods(methods)))
    folder = out or (QUICK if quick else RESULTS)
    path = page or (folder / "results.md" if quick else PAGE)
    writable(path)
    canvas(1, 1)  # without matplotlib, that is to be known before hours of measuring
    try:
        with progress_bar("trials", lines=20) as progress:
            measure(plan, folder, device=device, jobs=jobs, root=root, progress=progress)
    except KeyboardInterrupt:
        say(f"interrupted; what was measured is in {folder}, and the same command goes on from there")
        raise typer.Exit(1) from None
    # The page has every experiment that was ever measured, also those that were not asked for now.
    written = show({name: Results(folder, name) for name in EXPERIMENTS}, path)
    say(f"wrote {', '.join(str(file) for file in (folder, *written))}")
