"""The page of speed: every target, what was measured, and whether it is reached, all from the result files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from unweave.experiments.experiment import number, table

Cells = dict[str, Any]
Found = dict[str, Cells]
Results = dict[str, Found]

PREPARED = "gif, prepared"
ENOUGH = 0.95
GIB = 1024
WHOLE = {"passes": 16, "forgettable": 4, "request": 32, "edge": 3, "products": 1, "million": 1}
"""Cells of each measurement; a target is not reached before all are there."""


@dataclass(frozen=True)
class Line:
    """One target on one machine.

    Attributes:
        measured: What was found, in words.
        reached: Whether that is enough, where it was measured.
    """

    measured: str
    reached: bool | None


@dataclass(frozen=True)
class Target:
    """A row of the table.

    Attributes:
        what: What is aimed at.
        target: The number.
        source: The measurement behind it.
        judge: From the cells of that measurement to what was found.
        cuda: Whether it speaks of a GPU only.
    """

    what: str
    target: str
    source: str
    judge: Callable[[Cells], Line | None]
    cuda: bool = False


def good(cells: Cells) -> Cells:
    """Cells that were measured."""
    return {name: cell for name, cell in cells.items() if "error" not in cell}


def row(cell: dict[str, Any], method: str = PREPARED) -> dict[str, Any]:
    """The row of a method in a cell of the bench."""
    found: dict[str, Any] = next(row for row in cell["rows"] if row["method"] == method)
    return found


def summary(figures: dict[str, float], form: str, short: list[str], total: int) -> str:
    """Best, median and worst of some figures, and the cells that miss."""
    values = sorted(figures.values())
    spread = f"{number(values[0], form)} … {number(median(values), form)} … {number(values[-1], form)}"
    missed = f"; not in {', '.join(short)}" if 0 < len(short) <= 6 else ""
    return f"{spread}; {total - len(short)} of {total} cells{missed}"


def ordinary_passes(cells: Cells) -> Line | None:
    """Passes, and how much less of the gap is closed than by the converged step."""
    passes, behind, short = {}, {}, []
    for name, cell in good(cells).items():
        seeds = cell["seeds"]
        if any("failure" in seed["prepared"] for seed in seeds):
            short.append(f"{name} (fails)")
            continue
        passes[name] = fmean(seed["prepared"]["passes"] for seed in seeds)
        pairs = [(s["prepared"]["gap_closed"], s["converged"].get("gap_closed")) for s in seeds]
        behind[name] = fmean((b if b is not None else 0.0) - a for a, b in pairs)
        if passes[name] > 10 or behind[name] > 0.02:
            short.append(f"{name} ({passes[name]:.0f}, {number(-behind[name])})")
    if not passes:
        return None
    gaps = [-value for value in behind.values()]
    text = f"passes {summary(passes, '.0f', short, len(good(cells)))}; gap closed less that of the converged step "
    return Line(text + f"{number(min(gaps))} … {number(median(gaps))} … {number(max(gaps))}", not short)


def forgettable_passes(cells: Cells) -> Line | None:
    """Passes to a gap closed of 0.95."""
    passes, short = {}, []
    for name, cell in good(cells).items():
        ends = [seed["path"][-1] for seed in cell["seeds"]]
        if any((end.get("gap_closed") or 0.0) < ENOUGH for end in ends):
            short.append(f"{name} (never)")
            continue
        passes[name] = fmean(end["passes"] for end in ends)
        if passes[name] > 16:
            short.append(f"{name} ({passes[name]:.0f})")
    if not passes and not short:
        return None
    text = summary(passes, ".0f", short, len(good(cells))) if passes else f"not in {', '.join(short)}"
    return Line(text, not short)


def prepare(cells: Cells) -> Line | None:
    """Time of ``prepare`` over that of the training."""
    found = {name: cell["once"]["prepare_of_training"] for name, cell in good(cells).items()}
    short = [f"{name} ({figure:.2f})" for name, figure in found.items() if figure > 1]
    return Line(summary(found, ".2f", short, len(found)), not short) if found else None


def request(models: tuple[str, ...], faster: float, share: float) -> Callable[[Cells], Line | None]:
    """Speed-up over the published procedure and share of retraining, ordinary and forgettable."""

    def judge(cells: Cells) -> Line | None:
        found = {name: row(cell) for name, cell in good(cells).items() if name.split()[1] in models}
        if not found:
            return None
        fails = [name for name in found if row(cells[name], "gif-published").get("failure") is not None]
        ups = {name: figures["faster_than_published"] for name, figures in found.items() if name not in fails}
        costs = {name: figures["cost"] for name, figures in found.items()}
        slow = [f"{name} ({ups[name]:.1f})" for name in ups if ups[name] < faster]
        dear = [f"{name} ({costs[name]:.0%})" for name in found if costs[name] > share]
        parts = []
        if ups:
            same = [found[name]["faster_than_sped_up"] for name in ups]
            parts += [
                f"faster {summary(ups, '.1f', slow, len(ups))} (than on the fast layers {number(min(same), '.1f')} … "
                f"{number(median(same), '.1f')} … {number(max(same), '.1f')})"
            ]
        if fails:
            parts += [f"the published procedure diverges in {len(fails)} cells ({', '.join(fails)})"]
        text = "; ".join([*parts, f"of retraining {summary(costs, '.1%', dear, len(found))}"])
        return Line(text, not slow and not dear)

    return judge


def milliseconds(cells: Cells) -> Line | None:
    """Absolute time of GCN on Cora and CS."""
    limits = {"cora": 5.0, "cs": 10.0}
    known = good(cells)
    found = {
        (way, data): row(known[f"{way} gcn {data}"])["seconds"] * 1e3
        for way in ("ordinary", "forgettable")
        for data in limits
        if f"{way} gcn {data}" in known
    }
    if not found:
        return None
    text = "; ".join(f"{way} {data} {value:.1f} ms" for (way, data), value in found.items())
    return Line(text, all(value <= limits[data] for (_, data), value in found.items()))


def memory(cells: Cells) -> Line | None:
    """Peak memory of a request on CS."""
    known = {name: cell for name, cell in good(cells).items() if name.endswith(" cs")}
    if not known:
        return None
    found = {name: row(cell)["peak_mib"] / GIB for name, cell in known.items()}
    published = max(row(cell, "gif-published").get("peak_mib", 0.0) for cell in known.values()) / GIB
    short = [f"{name} ({figure:.1f})" for name, figure in found.items() if figure > 1]
    return Line(f"GiB {summary(found, '.2f', short, len(found))}; published up to {published:.1f}", not short)


def polish(cells: Cells) -> Line | None:
    """Time of the polish over that of the epochs before it."""
    known = good(cells)
    found = {
        name: known[name]["once"] for name in ("forgettable gcn cora", "forgettable gcn citeseer") if name in known
    }
    if not found:
        return None
    text = "; ".join(
        f"{name.split()[-1]} {once['polish_of_adam']:.1f} × (to {once['stationarity']:.0e} of the objective)"
        for name, once in found.items()
    )
    return Line(text, all(once["polish_of_adam"] <= 3 for once in found.values()))


def edge(cells: Cells) -> Line | None:
    """How the time for one edge grows with the graph, beside the training."""
    known = sorted(good(cells).values(), key=lambda cell: int(cell["nodes"]))
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    trained = last["train_seconds"] / first["train_seconds"]
    way = "deferred" if all("seconds" in cell["deferred"] for cell in known) else "whole"
    grown = last[way]["seconds"] / first[way]["seconds"]
    shares = " / ".join(f"{cell[way]['seconds'] / cell['train_seconds']:.2%}" for cell in known)
    note = "" if way == "deferred" else f" (checked on the whole graph: {first['deferred']['failure']})"
    text = (
        f"{grown:.1f} × from {first['nodes']:,} to {last['nodes']:,} nodes{note}, training {trained:.0f} ×; {shares} "
        f"of training of {last['epochs']} epochs; on the whole graph "
        f"{last['whole']['seconds'] / first['whole']['seconds']:.1f} ×; prepare "
        f"{' / '.join(format(cell['prepare_seconds'] / cell['train_seconds'], '.1f') for cell in known)} × training"
    )
    far = int(last["nodes"]) >= 1_000_000 and trained >= 10 * grown  # where training hardly grows, nothing is shown
    return Line(text, way == "deferred" and grown <= 3 and far)


def products(cells: Cells) -> Line | None:
    """A request on a graph of the size of ogbn-products."""
    known = good(cells)
    if not known:
        return None
    cell = next(iter(known.values()))
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
    return Line("; ".join(texts), bool(whole) and whole["seconds"] <= 2 and whole["cost"] <= 0.05 and held <= 80)


def million(cells: Cells) -> Line | None:
    """Peak resident memory of a whole process."""
    known = good(cells)
    if not known:
        return None
    cell = next(iter(known.values()))
    if "failure" in cell:
        return Line(f"{cell['failure']}, at {cell['peak_gib']:.1f} GiB", False)
    text = (
        f"{cell['peak_gib']:.1f} GiB with {cell['threads']} threads, {cell['epochs']} epochs; prepare "
        f"{cell['prepare_of_training']:.2f} and request {cell['request_of_training']:.1%} of training"
    )
    return Line(text, cell["peak_gib"] <= 8 and cell["epochs"] >= 100)


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
        request(("gcn", "sgc"), 30, 0.05),
    ),
    Target("the same, GAT and GIN", "≥ 20; ≤ 10 %", "request", request(("gat", "gin"), 20, 0.10)),
    Target("the same, absolute, GCN on Cora / CS", "≤ 5 ms / ≤ 10 ms", "request", milliseconds, cuda=True),
    Target("peak memory of a request on CS", "≤ 1 GiB", "request", memory),
    Target("polish of a GCN / its 100 epochs of Adam, Cora and CiteSeer", "≤ 3", "request", polish),
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


def page(results: Results) -> str:
    """The whole page."""
    if not any(results.values()):
        return "# Speed\n\nNothing has been measured yet.\n"
    lines = [
        "# Speed",
        "",
        "Made by `python benchmarks/speed.py` from the JSON files beside it, one for each machine; every cell"
        " there has its environment, commit and command. Ratios are medians over five rounds in which every "
        "method runs once, in one process; three numbers with … between them are the least, the median and "
        "the largest over the cells. Requests are 5 % of the edges of Cora, CiteSeer, PubMed and CS unless "
        "said; forgettable models have a weight decay of 1e-2. The published procedure runs on PyG's layers, as "
        "published; beside it stands the same on our fast layers, which everything else here uses, retraining "
        "included. What is not reached is listed as not reached.",
        "",
        *table(["what", "target", "machine, measurement", "measured", "reached?"], list(_targets(results))),
    ]
    for machine, found in results.items():
        if found.get("request"):
            lines += ["", f"## 5 % of the edges, {machine}", "", *_requests(found["request"], machine != "cpu")]
        lines += ["", *_sources(machine, found)]
    return "\n".join(lines) + "\n"


def _targets(results: Results) -> Iterator[list[str]]:
    for target in TARGETS:
        seen = False
        for machine, found in results.items():
            cells = found.get(target.source, {})
            line = None if target.cuda and machine == "cpu" else target.judge(cells)
            errors = [cell["error"] for cell in cells.values() if "error" in cell]
            if line is None and not errors:
                continue
            seen = True
            measured = " ".join([*([line.measured] if line else []), *(f"Error: {error}" for error in errors[:1])])
            reached = "yes" if line and line.reached and not errors else "no"
            missing = WHOLE[target.source] - len(good(cells))
            if reached == "yes" and missing:
                reached = f"{missing} cells are not measured"
            place = f"{machine}, `--only {target.source}`"
            yield [target.what, target.target, place, measured.replace("|", "/"), reached]
        if not seen:
            yield [target.what, target.target, "–", "not measured", "–"]


def _requests(cells: Cells, cuda: bool) -> list[str]:
    head = ["", *["ms"] * cuda, "of retraining", "faster than published", "than that on fast layers", "passes"]
    head += ["times the floor", "peak MiB"]
    head += ["gap closed", "without prepare", "fine-tune", "published", "prepare / training", "polish / Adam"]
    rows = []
    for name, cell in good(cells).items():
        own, once = row(cell), cell["once"]
        others = [number(row(cell, method).get("gap_closed")) for method in ("gif", "finetune", "gif-published")]
        rows.append(
            [
                name,
                *([f"{own['seconds'] * 1e3:.1f}"] * cuda),
                number(own["cost"], ".1%"),
                number(own["faster_than_published"], ".1f"),
                number(own["faster_than_sped_up"], ".1f"),
                number(own.get("passes"), ".0f"),
                number(own.get("times_the_floor"), ",.0f"),
                number(own.get("peak_mib"), ",.0f"),
                number(own.get("gap_closed")),
                *others,
                number(once["prepare_of_training"], ".2f"),
                number(once.get("polish_of_adam"), ".1f"),
            ]
        )
    text = "Gap closed by `gif` with the prepared state, without it, by fine-tuning for as long, and as published."
    return [text, "", *table(head, rows)]


def _sources(machine: str, found: Found) -> list[str]:
    places, lines = set(), []
    for cells in found.values():
        for cell in cells.values():
            place = cell["environment"]
            places.add(
                f"{place['device_name']}, {place['threads']} threads, torch {place['torch']}, PyG "
                f"{place['torch_geometric']}, commit `{cell['commit'][:12]}`"
            )
            lines.append(cell["command"])
    commands = ", ".join(f"`{command}`" for command in dict.fromkeys(lines))
    return [f"*{machine}*: {commands} on {'; '.join(sorted(places))}."]
