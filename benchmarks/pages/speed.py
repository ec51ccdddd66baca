"""The page of ``speed.py``: every target, what was measured, and whether it is reached."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from shared import Document, documents

from pages.parts import Blocks, Page, columns, number, places, table

Cells = dict[str, Any]
"""What was found, by the name of a cell."""

Line = tuple[str, bool]
"""What was found, in words, and whether that is enough."""

PREPARED, PUBLISHED = "gif, prepared", "gif-published"
ENOUGH = 0.95
GIB = 1024
WHOLE = {"passes": 16, "forgettable": 4, "request": 32, "edge": 3, "products": 1, "million": 1}
"""Cells of each measurement; a target is not reached before all are there."""


@dataclass(frozen=True)
class Target:
    """A row of the table.

    Attributes:
        what: What is aimed at.
        target: The number.
        source: The measurement behind it.
        judge: From the cells of that measurement to what was found.
        of: The cells that it speaks of, by their names.
        cuda: Whether it speaks of a GPU only.
    """

    what: str
    target: str
    source: str
    judge: Callable[[Cells], Line | None]
    of: Callable[[str], bool] = lambda name: True
    cuda: bool = False


def good(cells: Cells) -> Cells:
    """Cells that were measured."""
    return {name: cell for name, cell in cells.items() if "error" not in cell}


def row(cell: Document, method: str = PREPARED) -> Document:
    """The row of a method in a cell of the bench."""
    found: Document = next(row for row in cell["rows"] if row["method"] == method)
    return found


def spread(values: Iterable[float], form: str) -> str:
    """Least, median and largest."""
    found = list(values)
    return " … ".join(number(value, form) for value in (min(found), median(found), max(found)))


def summary(figures: dict[str, float], form: str, short: list[str], total: int | None = None) -> str:
    """The spread of some figures, and the cells that miss."""
    total = len(figures) if total is None else total
    missed = f"; not in {', '.join(short)}" if 0 < len(short) <= 6 else ""
    return f"{spread(figures.values(), form)}; {total - len(short)} of {total} cells{missed}"


def above(figures: dict[str, float], most: float, form: str) -> list[str]:
    """Those that are too large."""
    return [f"{name} ({figure:{form}})" for name, figure in figures.items() if figure > most]


def ordinary_passes(cells: Cells) -> Line | None:
    """Passes, and how much less of the gap is closed than by the converged step."""
    passes, gaps, short = {}, {}, []
    for name, cell in cells.items():
        seeds = cell["seeds"]
        if any("failure" in seed["prepared"] for seed in seeds):
            short.append(f"{name} (fails)")
            continue
        passes[name] = fmean(seed["prepared"]["passes"] for seed in seeds)
        pairs = [(s["prepared"]["gap_closed"], s["converged"].get("gap_closed")) for s in seeds]
        gaps[name] = -fmean((b if b is not None else 0.0) - a for a, b in pairs)
        if passes[name] > 10 or gaps[name] < -0.02:
            short.append(f"{name} ({passes[name]:.0f}, {number(gaps[name])})")
    if not passes:
        return None
    text = f"passes {summary(passes, '.0f', short, len(cells))}; gap closed less that of the converged step "
    return text + spread(gaps.values(), "+.2f"), not short


def forgettable_passes(cells: Cells) -> Line:
    """Passes to a gap closed of 0.95."""
    ends = {name: [seed["path"][-1] for seed in cell["seeds"]] for name, cell in cells.items()}
    never = [name for name, some in ends.items() if any((end.get("gap_closed") or 0.0) < ENOUGH for end in some)]
    passes = {name: fmean(end["passes"] for end in some) for name, some in ends.items() if name not in never}
    short = [*(f"{name} (never)" for name in never), *above(passes, 16, ".0f")]
    return summary(passes, ".0f", short, len(cells)) if passes else f"not in {', '.join(short)}", not short


def prepare(cells: Cells) -> Line:
    """Time of ``prepare`` over that of the training."""
    found = {name: cell["once"]["prepare_of_training"] for name, cell in cells.items()}
    short = above(found, 1, ".2f")
    return summary(found, ".2f", short), not short


def request(faster: float, share: float) -> Callable[[Cells], Line]:
    """Speed-up over the published procedure and share of retraining, ordinary and forgettable."""

    def judge(cells: Cells) -> Line:
        found = {name: row(cell) for name, cell in cells.items()}
        fails = [name for name, cell in cells.items() if row(cell, PUBLISHED).get("failure") is not None]
        ups = {name: figures["faster_than_published"] for name, figures in found.items() if name not in fails}
        costs = {name: figures["cost"] for name, figures in found.items()}
        slow = [f"{name} ({up:.1f})" for name, up in ups.items() if up < faster]
        dear, parts = above(costs, share, ".0%"), []
        if ups:
            same = spread((found[name]["faster_than_sped_up"] for name in ups), ".1f")
            parts.append(f"faster {summary(ups, '.1f', slow)} (than on the fast layers {same})")
        if fails:
            parts.append(f"the published procedure diverges in {len(fails)} cells ({', '.join(fails)})")
        return "; ".join([*parts, f"of retraining {summary(costs, '.1%', dear)}"]), not slow and not dear

    return judge


def milliseconds(cells: Cells) -> Line:
    """Absolute time of GCN on Cora and CS."""
    limits = {"cora": 5.0, "cs": 10.0}
    names = (f"{way} gcn {data}" for way in ("ordinary", "forgettable") for data in limits)
    found = {tuple(name.split()[::2]): row(cells[name])["seconds"] * 1e3 for name in names if name in cells}
    text = "; ".join(f"{way} {data} {value:.1f} ms" for (way, data), value in found.items())
    return text, all(value <= limits[data] for (_, data), value in found.items())


def memory(cells: Cells) -> Line:
    """Peak memory of a request on CS."""
    found = {name: row(cell)["peak_mib"] / GIB for name, cell in cells.items()}
    published = max(row(cell, PUBLISHED).get("peak_mib", 0.0) for cell in cells.values()) / GIB
    short = above(found, 1, ".1f")
    return f"GiB {summary(found, '.2f', short)}; published up to {published:.1f}", not short


def polish(cells: Cells) -> Line:
    """Time of the polish over that of the epochs before it."""
    names = (f"forgettable gcn {data}" for data in ("cora", "citeseer"))
    found = {name.split()[-1]: cells[name]["once"] for name in names if name in cells}
    text = "; ".join(
        f"{name} {once['polish_of_adam']:.1f} × (to {once['stationarity']:.0e} of the objective)"
        for name, once in found.items()
    )
    return text, all(once["polish_of_adam"] <= 3 for once in found.values())


def edge(cells: Cells) -> Line | None:
    """How the time for one edge grows with the graph, beside the training."""
    known = sorted(cells.values(), key=lambda cell: int(cell["nodes"]))
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    trained = last["train_seconds"] / first["train_seconds"]
    way = "deferred" if all("seconds" in cell["deferred"] for cell in known) else "whole"
    grown, whole = (last[key]["seconds"] / first[key]["seconds"] for key in (way, "whole"))
    shares = " / ".join(f"{cell[way]['seconds'] / cell['train_seconds']:.2%}" for cell in known)
    prepared = " / ".join(f"{cell['prepare_seconds'] / cell['train_seconds']:.1f}" for cell in known)
    note = "" if way == "deferred" else f" (checked on the whole graph: {first['deferred']['failure']})"
    text = (
        f"{grown:.1f} × from {first['nodes']:,} to {last['nodes']:,} nodes{note}, training {trained:.0f} ×; {shares} "
        f"of training of {last['epochs']} epochs; on the whole graph {whole:.1f} ×; prepare {prepared} × training"
    )
    far = int(last["nodes"]) >= 1_000_000 and trained >= 10 * grown  # where training hardly grows, nothing is shown
    return text, way == "deferred" and grown <= 3 and far


def products(cells: Cells) -> Line:
    """A request on a graph of the size of ogbn-products."""
    cell = next(iter(cells.values()))
    ways = {way: cell[way] for way in ("whole", "deferred") if "seconds" in cell[way]}
    texts = [
        f"{way}: {figures['seconds']:.2f} s, {figures['cost']:.1%} of retraining, {figures['gib']:.1f} GiB, gap closed "
        f"{number(figures['gap_closed'])}"
        for way, figures in ways.items()
    ]
    texts += [f"{way}: {cell[way]['failure']}" for way in ("whole", "deferred") if way not in ways]
    texts.append(f"training {cell['train_gib']:.1f} GiB, prepare {cell['prepare_gib']:.1f} GiB")
    whole = ways.get("whole", {})
    held = max(cell["train_gib"], cell["prepare_gib"], whole.get("gib", 0.0))
    return "; ".join(texts), bool(whole) and whole["seconds"] <= 2 and whole["cost"] <= 0.05 and held <= 80


def million(cells: Cells) -> Line:
    """Peak resident memory of a whole process."""
    cell = next(iter(cells.values()))
    if "failure" in cell:
        return f"{cell['failure']}, at {cell['peak_gib']:.1f} GiB", False
    text = (
        f"{cell['peak_gib']:.1f} GiB with {cell['threads']} threads, {cell['epochs']} epochs; prepare "
        f"{cell['prepare_of_training']:.2f} and request {cell['request_of_training']:.1%} of training"
    )
    return text, cell["peak_gib"] <= 8 and cell["epochs"] >= 100


TARGETS = (
    Target(
        "passes per request after `prepare`, ordinary model, and gap closed against the converged influence step",
        "≤ 10, within 0.02",
        "passes",
        ordinary_passes,
    ),
    Target("the same, forgettable GCN, to a gap closed of 0.95", "≤ 16", "forgettable", forgettable_passes),
    Target("one-off `prepare` / training", "≤ 1", "request", prepare),
    Target(
        "5 % of the edges, GCN and SGC: times as fast as the published procedure; share of retraining",
        "≥ 30; ≤ 5 %",
        "request",
        request(30, 0.05),
        lambda name: name.split()[1] in ("gcn", "sgc"),
    ),
    Target(
        "the same, GAT and GIN",
        "≥ 20; ≤ 10 %",
        "request",
        request(20, 0.10),
        lambda name: name.split()[1] in ("gat", "gin"),
    ),
    Target(
        "the same, absolute, GCN on Cora / CS",
        "≤ 5 ms / ≤ 10 ms",
        "request",
        milliseconds,
        lambda name: name.endswith((" gcn cora", " gcn cs")),
        cuda=True,
    ),
    Target("peak memory of a request on CS", "≤ 1 GiB", "request", memory, lambda name: name.endswith(" cs")),
    Target(
        "polish of a GCN / its 100 epochs of Adam, Cora and CiteSeer",
        "≤ 3",
        "request",
        polish,
        lambda name: name in ("forgettable gcn cora", "forgettable gcn citeseer"),
    ),
    Target("one edge, from 10 thousand to 1 million nodes of degree 10", "≤ 3 × the time", "edge", edge),
    Target(
        "1,000 edges of 2.4 million nodes and 62 million stored edges, three layers of 256",
        "≤ 2 s, ≤ 5 % of retraining, within 80 GiB",
        "products",
        products,
        cuda=True,
    ),
    Target(
        "train, prepare and forget 1,000 edges, 1 million nodes, 10 million stored edges, 128 features, 2 CPU cores",
        "within 8 GiB",
        "million",
        million,
    ),
)


def blocks(results: dict[str, dict[str, Cells]]) -> Blocks:
    """What was found, by machine and measurement."""
    yield (
        "Made by `python benchmarks/speed.py` from the JSON files beside it, one for each machine; every cell"
        " there has its environment, commit and command. Ratios are medians over five rounds in which every "
        "method runs once, in one process; three numbers with … between them are the least, the median and "
        "the largest over the cells. Requests are 5 % of the edges of Cora, CiteSeer, PubMed and CS unless "
        "said; forgettable models have a weight decay of 1e-2. The published procedure runs on PyG's layers, as "
        "published; beside it stands the same on our fast layers, which everything else here uses, retraining "
        "included. What is not reached is listed as not reached."
    )
    rows = [line for target in TARGETS for line in _rows(target, results)]
    yield table(["what", "target", "machine, measurement", "measured", "reached?"], rows)
    for machine, found in results.items():
        if found.get("request"):
            yield f"## 5 % of the edges, {machine}"
            yield (
                "Gap closed by `gif` with the prepared state, without it, by fine-tuning for as long, and as published."
            )
            yield _requests(good(found["request"]), machine != "cpu")
        cells = [cell for some in found.values() for cell in some.values()]
        commands = ", ".join(f"`{command}`" for command in dict.fromkeys(cell["command"] for cell in cells))
        form = "{device_name}, {threads} threads, torch {torch}, PyG {torch_geometric}, commit `{commit:.12}`"
        yield f"*{machine}*: {commands} on {places(cells, form)}."


def _rows(target: Target, results: dict[str, dict[str, Cells]]) -> Iterator[list[str]]:
    """What every machine found of a target."""
    seen = False
    for machine, found in results.items():
        cells = found.get(target.source, {})
        known = {name: cell for name, cell in good(cells).items() if target.of(name)}
        line = target.judge(known) if known and not (target.cuda and machine == "cpu") else None
        errors = [f"Error: {cell['error']}" for cell in cells.values() if "error" in cell]
        if line is None and not errors:
            continue
        seen = True
        measured = " ".join([*([line[0]] if line else []), *errors[:1]])
        reached = "yes" if line and line[1] and not errors else "no"
        missing = WHOLE[target.source] - len(good(cells))
        if reached == "yes" and missing:
            reached = f"{missing} cells are not measured"
        place = f"{machine}, `--only {target.source}`"
        yield [target.what, target.target, place, measured.replace("|", "/"), reached]
    if not seen:
        yield [target.what, target.target, "–", "not measured", "–"]


def _requests(cells: Cells, cuda: bool) -> list[str]:
    milliseconds: dict[str, Callable[[Any], object]] = {"ms": lambda r: f"{r[2]['seconds'] * 1e3:.1f}"}
    return columns(
        [(name, cell, row(cell)) for name, cell in cells.items()],
        {
            "": lambda r: r[0],
            **(milliseconds if cuda else {}),
            "of retraining": lambda r: number(r[2]["cost"], ".1%"),
            "faster than published": lambda r: number(r[2]["faster_than_published"], ".1f"),
            "than that on fast layers": lambda r: number(r[2]["faster_than_sped_up"], ".1f"),
            "passes": lambda r: number(r[2].get("passes"), ".0f"),
            "times the floor": lambda r: number(r[2].get("times_the_floor"), ",.0f"),
            "peak MiB": lambda r: number(r[2].get("peak_mib"), ",.0f"),
            "gap closed": lambda r: number(r[2].get("gap_closed")),
            "without prepare": lambda r: number(row(r[1], "gif").get("gap_closed")),
            "fine-tune": lambda r: number(row(r[1], "finetune").get("gap_closed")),
            "published": lambda r: number(row(r[1], PUBLISHED).get("gap_closed")),
            "prepare / training": lambda r: number(r[1]["once"]["prepare_of_training"], ".2f"),
            "polish / Adam": lambda r: number(r[1]["once"].get("polish_of_adam"), ".1f"),
        },
    )


PAGE = Page("Speed", documents, blocks)
