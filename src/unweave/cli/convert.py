"""``unweave convert``: write a graph as a folder that is mapped, not read."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Json, Root, Seed
from unweave.cli.output import print_json, reports_errors, say
from unweave.cli.own import graph_named
from unweave.errors import DataError

__all__ = ["convert"]


@reports_errors
def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A .pt or .safetensors file, a folder of OGB's, a data set; or a folder of arrays to seal."
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(help="The new folder; none where arrays are sealed in place.")
    ] = None,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="Of OGB's folders: write the reverse of every edge too.")
    ] = False,
    seed: Seed = 0,
    root: Root = None,
    json: Json = False,
) -> None:
    """Write a graph as a folder of arrays that may be larger than memory.

    With one folder alone the arrays that you wrote there are checked and sealed, or one that is sealed is verified.
    """
    from unweave.datasets.folder import read_sizes, renew_seal, save_folder, seal_folder, written
    from unweave.datasets.ogb import is_ogb, write_ogb

    place, left_out = Path(source), list[int]()
    ogb = place.is_dir() and is_ogb(place)
    if both_ways and not ogb:
        raise DataError("--both-ways is for folders of OGB's, whose loader adds reverse edges; leave it out")
    if folder is None:
        if not place.is_dir() or ogb:
            raise DataError(f"say which folder to write {source} to: unweave convert {source} FOLDER")
        folder = place
        if (place / "graph.json").exists():
            renew_seal(place)
        else:
            seal_folder(place)
    elif ogb:
        written(folder, lambda work: left_out.append(write_ogb(place, work, both_ways=both_ways)))
    else:
        save_folder(graph_named(source, seed, root), folder)
    sizes = read_sizes(folder)
    facts = {key: sizes[key] for key in ("nodes", "edges", "features", "classes", "undirected")}
    if json:
        print_json({"folder": str(folder), **facts, "left_out": sum(left_out)})
        return
    ways = "undirected" if facts["undirected"] else "directed"
    say(
        f"{folder}: {facts['nodes']:,} nodes, {facts['edges']:,} stored edges ({ways}), "
        f"{facts['features']:,} features, {facts['classes']} classes"
    )
    if sum(left_out):
        say(f"left out {sum(left_out):,} edges that were there more than once")
    say(f"next: unweave train --data {folder} --model sign --memory-mib 1024 --out RUN")
