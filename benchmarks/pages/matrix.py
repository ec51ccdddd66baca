"""The page of ``matrix.py``: tables and the targets."""

from pathlib import Path
from statistics import fmean

from shared import REQUESTS, WAYS, Cell, Document, cells

from pages.parts import Blocks, Page, places, table

Results = dict[Cell, Document]

COLUMNS = {
    "none": "none",
    "finetune": "fine-tune",
    "if": "IF",
    "published": "published",
    "gif(steps=1)": "gif 1",
    "gif(steps=3)": "3",
    "gif(steps=7)": "7",
    "gif(steps=15)": "15",
    "gif": "**gif**",
    "lbfgs(steps=3)": "plain 3",
    "lbfgs(steps=7)": "7",
    "lbfgs(steps=15)": "15",
    "retrain (other seed)": "other seed",
    "retrain(disturbed=0.001)": "chaos",
}
BEST_OF = {"published": "gif-published", "best": "gif(damping="}
"""The best of the methods that begin so: the published scales, and the fixed dampings."""

RANDOM = REQUESTS[:3]
CHECKS = (
    ("seed floor at least 0.9", ("gcn", "sgc"), REQUESTS, "retrain (other seed)", 0.9),
    ("gif within 8 gradients at least 0.9", ("gcn",), RANDOM, "gif(steps=7)", 0.9),
    ("gif within 16 gradients at least 0.97", ("gcn",), RANDOM, "gif(steps=15)", 0.97),
    ("gif within 16 gradients at least 0.9", ("gcn",), ("flipped:0.2",), "gif(steps=15)", 0.9),
    ("gif within 16 gradients at least 0.999", ("sgc",), REQUESTS, "gif(steps=15)", 0.999),
    ("gif within 16 gradients at least 0.8", ("gat", "gin"), REQUESTS, "gif(steps=15)", 0.8),
)
"""Of models at a minimum: what, of which models and requests, by which method, at least."""


def read(out: Path) -> Results:
    """The cells that are done."""
    return cells(*(out / f"{way}.jsonl" for way in WAYS))


def value(document: Document, method: str, key: str = "gap_closed_mean") -> float | None:
    """A figure of a method, or of the best of some."""
    start = BEST_OF.get(method)
    rows = (row for row in document["rows"] if (row["method"].startswith(start) if start else row["method"] == method))
    return max((row[key] for row in rows if row[key] is not None), default=None)


def number(figure: float | None, form: str = "+.2f") -> str:
    """A figure in a table; what is far below 0 only as such, and of a small one its sign too."""
    return "–" if figure is None else "< −9" if figure < -9 else format(figure, form).replace("-", "−")


def blocks(found: Results) -> Blocks:
    """What was found."""
    first = next(iter(found.values()))
    where = places([first], "{device_name}, torch {torch}, PyG {torch_geometric}")
    yield (
        f"Made by `python benchmarks/matrix.py --device cuda --jobs 15` on {where}: {first['config']['seeds']} seeds, "
        f"{first['config']['epochs']} epochs. All of it, with spreads, times and passes, is in `ordinary.jsonl` and "
        "`forgettable.jsonl`."
    )
    yield (
        "Gap closed, mean over the seeds: 0 as doing nothing, 1 indistinguishable from retraining with the same "
        "seed. `gif 1, 3, 7, 15`: so many gradients after the first, and on ordinary models up to 60 curvature "
        "products before them; **gif**: with no option. `plain`: L-BFGS from the trained parameters that knows "
        "nothing of the curvature. `published`: the paper's procedure, the better of scale 500 and 1000 over the "
        "seeds where it does not diverge; – where it always does, and seed-averaged where it ever does. `best "
        "damping`: the paper's single step with the best of eight dampings in hindsight. `other seed`: retrained "
        "from another seed; `chaos`: retrained from the same, initial weights disturbed by 0.1 %. `IF` was measured "
        "when it did not check its step. Fine-tuning runs as long as gif. Cost: time of gif / time of retraining, "
        "under the load of all processes. Decay: weight decay."
    )
    ordinary, forgettable = ({cell: found[cell] for cell in sorted(found) if cell[0] == way} for way in WAYS)
    if ordinary:
        columns = COLUMNS | {"best": "best damping"}
        yield "## As the paper trains"
        yield [
            *_ordinary(ordinary, "gap_closed_mean", "gap closed"),
            *_ordinary(ordinary, "mean_gap_closed", "seed-averaged gap closed"),
        ]
        yield _table(ordinary, columns, "gap_closed_mean")
        yield "The same for predictions averaged over the seeds (`mean_gap_closed`):"
        yield _table(ordinary, columns, "mean_gap_closed")
    if forgettable:
        yield "## Trained to a minimum"
        yield [_f1(forgettable, found), *_checks(forgettable)]
        yield _table(forgettable, COLUMNS, "gap_closed_mean")


def _table(found: Results, columns: dict[str, str], key: str) -> list[str]:
    rows = [
        [
            _name(cell),
            *(number(value(document, method, key)) for method in columns),
            number(value(document, "gif", "cost_median"), ".0%"),
            number(value(document, "gif", "f1_mean"), ".3f"),
            format(document["config"]["weight_decay"], "g"),
        ]
        for cell, document in found.items()
    ]
    return table(["cell", *columns.values(), "cost", "F1", "decay"], rows)


def _name(cell: Cell) -> str:
    return f"{cell[2]} {cell[1]} {cell[3]}"


def _listed(found: list[str]) -> str:
    return f": {'; '.join(found)}" if found else ""


def _ordinary(found: Results, key: str, title: str) -> list[str]:
    """How gif does by one figure, and in which cells controls are ahead of it."""
    known = {cell: figure for cell, d in found.items() if (figure := value(d, "gif", key)) is not None}

    def against(other: str, margin: float = 0.0) -> list[str]:
        rivals = {cell: value(found[cell], other, key) for cell in known}
        return [
            f"{_name(cell)} ({number(figure)} against {number(rival)})"
            for cell, figure in known.items()
            if (rival := rivals[cell]) is not None and rival > figure + margin
        ]

    def mean(method: str) -> str:
        figures = [max(f, -1.0) for d in found.values() if (f := value(d, method, key)) is not None]
        return number(fmean(figures) if figures else None)

    below = [f"{_name(c)} ({number(f)})" for c, f in known.items() if f < 0]
    far, published, tuned = against("best", 0.05), against("published"), against("finetune")
    lines = (
        f"mean of gif {number(fmean(known.values()))} over {len(known)} cells, of the best fixed damping in hindsight "
        f"{mean('best')}, of the published procedure where it gives numbers {mean('published')}, of fine-tuning "
        f"{mean('finetune')} (cells below −1 counted as −1).",
        f"{len(below)} cells of gif below 0{_listed(below)}.",
        f"gif within 0.05 of the best fixed damping, or above it, in {1 - len(far) / max(len(known), 1):.0%} of the "
        f"cells; not in{_listed(far)}.",
        f"the published procedure is ahead of gif in {len(published)} cells{_listed(published)}.",
        f"time-matched fine-tuning is ahead of gif in {len(tuned)} cells{_listed(tuned)}.",
    )
    return [f"- By {title}: {line}" for line in lines]


def _f1(found: Results, everything: Results) -> str:
    """What training to a minimum does to F1, before anything is forgotten."""
    pairs = [(d, everything.get(("ordinary", *cell[1:]))) for cell, d in found.items() if cell[3] in RANDOM]
    before = [[value(d, "none", "f1_mean") or 0 for d in (own, usual)] for own, usual in pairs if usual is not None]
    f1 = [own - usual for own, usual in before]
    if not f1:
        return "- F1 against ordinary training: not measured."
    return f"- F1 before forgetting, against ordinary training, mean over {len(f1)} cells: {number(fmean(f1), '+.4f')}."


def _checks(found: Results) -> list[str]:
    lines = []
    for title, models, requests, method, least in CHECKS:
        figures = {c: value(d, method) for c, d in found.items() if c[2] in models and c[3] in requests}
        short = [f"{_name(c)} ({number(f, '+.3f')})" for c, f in figures.items() if f is None or f < least]
        lines.append(
            f"- {' and '.join(m.upper() for m in models)}, {' / '.join(requests)}: {title} in "
            f"{len(figures) - len(short)} of {len(figures)} cells{'; not in ' * bool(short)}{'; '.join(short)}."
        )
    return lines


PAGE = Page("The matrix", read, blocks)
