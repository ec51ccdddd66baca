"""The page of ``inspection.py``: scores beside what removal really does, and what they cost."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

from scipy.stats import pearsonr, spearmanr
from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

ORDER = ("nodes", "edges", "features", "labels", "halves")
NAMES = {"halves": "halves of the training labels (LDS)"}


def read(out: Path) -> list[Document]:
    """What was measured."""
    return lines(out / "inspection.jsonl")


def agreement(document: Document) -> float:
    """Spearman's correlation of predicted and real changes."""
    return float(spearmanr(document["predicted"], document["real"])[0])


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    items = [document for document in found if document["part"] == "items"]
    yield (
        "Made by `python benchmarks/inspection.py` from `inspection.jsonl`; "
        f"{places(found, 'torch {torch}, commit {commit:.12}')}. The quantity is the mean validation loss. A score is "
        "its predicted change if the item is forgotten and the model trained without it; *real* is the model at its "
        "minimum on the remaining graph, followed from the trained model until a step promises less than 1e-7 of the "
        f"whole fall{_later(items)}. What a score is made of is said in [Inspect](../../../docs/inspect.md)."
    )
    yield "## Models trained to a minimum"
    yield columns(_rows(items, "forgettable", anew=False), CELLS)
    scratch = _rows(items, "forgettable", anew=True)
    if scratch:
        yield "The same where real is a training from scratch on the remaining graph, which costs as much as the first:"
        yield columns(scratch, CELLS)
    ordinary = _rows(items, "ordinary", anew=False)
    if ordinary:
        yield "## Models trained as usual"
        yield (
            "100 epochs, weight decay 1e-4; real is the same training, from the same seed, on the remaining graph. "
            "Where training ends is then partly luck, and `inspect` says that its scores are not to be trusted."
        )
        yield columns(ordinary, CELLS)
    most = [document for document in found if document["part"] == "largest"]
    if most:
        yield "## The largest scores"
        yield (
            "Of the validation loss, and of the margins of ten nodes that are predicted wrongly, at the decay that "
            "validation chooses: the ten items of largest score, forgotten one by one by `gif`. *Off* is the sum of "
            "|score − real| over the sum of |real|; *wrong* the share of scores that are off by more than half of "
            "what happened; Spearman is over 20 items drawn at random. Means over the quantities. *Linear* is one "
            "linear step, as it would be if training nodes did not answer; its ten largest are its own."
        )
        yield columns(_largest(most), LARGEST)
    quick = [document for document in found if document["part"] == "fast"]
    if quick:
        yield "## Cost"
        yield (
            "Time of scoring everything, as a share of one training to a minimum; both measured once, in one process "
            "of one thread. On a CPU it is the processor's own time where the memory is given; elsewhere that of the "
            "clock, with other processes beside it. The model is in single precision and its state prepared; *samples* "
            "is how many directions tell how nodes answer, and with 0 scores are of one linear step, as more would not "
            "fit into the default `memory_mib`. *Memory* is the most that any of the parts held at once. Rows "
            "of aarch64, of a million nodes on x86_64 and of SIGN are from before columns shared solves."
        )
        yield columns(quick, COSTS)
    mine = [document for document in found if document["part"] == "own"]
    if mine:
        yield "## Modules of one's own"
        yield (
            "Two layers of PyG's with 16 hidden units, scored by calling them on copies of what each removal changes. "
            "*Before* is with copies of all that these depend on, in eight times the memory; *now* with that shared "
            "among all removals. Both are the processor's time in one process of one thread, one after the other. "
            "*Differ* is the largest difference between the scores of the two, as a share of the largest score."
        )
        yield columns(mine, MINE)


def _later(items: list[Document]) -> str:
    commits = sorted({d["scored"][:12] for d in items if "scored" in d})
    return f"; items were scored anew at commit {', '.join(commits)}" if commits else ""


def _rows(items: list[Document], way: str, *, anew: bool) -> list[Document]:
    some = [d for d in items if d["way"] == way and d["kind"].startswith("anew ") == anew]
    return sorted(some, key=lambda d: (d["data"], d["model"], ORDER.index(d["kind"].removeprefix("anew "))))


def _error(document: Document) -> float:
    pairs = zip(document["predicted"], document["real"], strict=True)
    return float(median(abs(score - value) / abs(value) for score, value in pairs if value))


def _largest(found: list[Document]) -> list[Document]:
    """One row a graph, model, kind of quantity and of items."""
    groups: dict[tuple[str, ...], list[Document]] = {}
    for document in found:
        what = "validation loss" if document["of"] == "validation" else "margins"
        key = (document["data"], document["model"], what, document["kind"])
        groups.setdefault(key, []).append(document)
    rows = []
    for (data, model, what, kind), some in groups.items():
        row: Document = {"data": data, "model": model, "of": what, "kind": kind, "decay": some[0]["decay"]}
        for way in ("linear", "corrected"):
            pairs = [list(zip(d[way][way], d[way]["real"], strict=True)) for d in some]
            off = [sum(abs(s - r) for s, r in each) / sum(abs(r) for _, r in each) for each in pairs]
            wrong = [sum(abs(s - r) > abs(r) / 2 for s, r in each) / len(each) for each in pairs]
            rank = [float(spearmanr(d["random"][way], d["random"]["real"])[0]) for d in some]
            row[way] = [mean(off), mean(wrong), mean(rank)]
        rows.append(row)
    return rows


def _of(way: str, place: int, form: str) -> Callable[[Document], str]:
    return lambda d: number(d[way][place], form)


LARGEST = {
    "graph": lambda d: d["data"],
    "model": lambda d: d["model"],
    "decay": lambda d: f"{d['decay']:g}",
    "of": lambda d: d["of"],
    "items": lambda d: d["kind"],
    "off, linear": _of("linear", 0, ".2f"),
    "off": _of("corrected", 0, ".2f"),
    "wrong, linear": _of("linear", 1, ".0%"),
    "wrong": _of("corrected", 1, ".0%"),
    "Spearman, linear": _of("linear", 2, ".3f"),
    "Spearman": _of("corrected", 2, ".3f"),
}

CELLS = {
    "graph": lambda d: d["data"],
    "model": lambda d: d["model"],
    "items": lambda d: NAMES.get(kind := d["kind"].removeprefix("anew "), kind),
    "how many": lambda d: len(d["real"]),
    "Spearman": lambda d: number(agreement(d), ".3f"),
    "Pearson": lambda d: number(float(pearsonr(d["predicted"], d["real"])[0]), ".3f"),
    "median relative error": lambda d: number(_error(d), ".0%"),
}


def _share(*parts: str) -> Callable[[Document], str]:
    return lambda d: number(sum(d.get(f"{part}_seconds", 0.0) for part in parts) / d["train_seconds"], ".1%")


def _peaks(document: Document) -> list[float]:
    return [value for key, value in document.items() if key.endswith("_peak_mib")]


COSTS = {
    "graph": lambda d: d["data"],
    "model": lambda d: d["model"],
    "nodes": lambda d: f"{d['nodes']:,}",
    "edges": lambda d: f"{d['edges']:,}",
    "on": lambda d: d["environment"]["device_name"],
    "training": lambda d: f"{d['train_seconds']:.0f} s",
    "solve": _share("solve"),
    "samples": lambda d: d.get("samples", "–"),
    "how nodes answer": _share("answers"),
    "all labels": _share("labels"),
    "all columns": _share("features"),
    "all nodes": _share("nodes"),
    "all edges": _share("edges"),
    "all but labels and columns": _share("solve", "answers", "nodes", "edges"),
    "memory": lambda d: f"{peak:,.0f} MiB" if (peak := max(_peaks(d), default=0.0)) else "–",
}


def _times(way: str) -> Callable[[Document], str]:
    return lambda d: f"{sum(d[f'{way}_{kind}_seconds'] for kind in ('nodes', 'edges')):.1f} s"


def _each(kind: str) -> Callable[[Document], str]:
    return lambda d: " → ".join(f"{1000 * d[f'{way}_{kind}_seconds'] / d[kind]:.1f}" for way in ("apart", "shared"))


def _all(document: Document) -> float:
    parts = ("solve", "answers", "shared_nodes", "shared_edges")
    return sum(float(document[f"{part}_seconds"]) for part in parts)


MINE = {
    "graph": lambda d: d["data"],
    "layers": lambda d: d["model"],
    "training": lambda d: f"{d['train_seconds']:.0f} s",
    "all nodes and edges, before": _times("apart"),
    "now": _times("shared"),
    "ms a node": _each("nodes"),
    "ms an edge": _each("edges"),
    "with the solve and how nodes answer": lambda d: number(_all(d) / d["train_seconds"], ".0%"),
    "memory": lambda d: f"{max(d[f'shared_{kind}_peak_mib'] for kind in ('nodes', 'edges')):,.0f} MiB",
    "differ": lambda d: f"{d['apart']:.0e}" if d["apart"] else "0",
}

PAGE = Page("Inspect", read, blocks)
