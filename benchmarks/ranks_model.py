"""A small model of what ranks take: what each does alone, what it does by its share, latency and bandwidth.

To add a vector of S bytes n ranks pass it round a ring twice, 2(n−1) messages of S/n bytes each; to gather S bytes in
all they pass it round once. With latency α and bandwidth β

    t_add = 2(n−1) α + 2(n−1)/n · S/β,     t_gather = (n−1) α + (n−1)/n · S/β.

What is added and gathered in a gradient, a product or a request was counted. Computing takes A + B·w seconds, with w
the nodes and edges of a rank's halo as a share of those of the graph, and A what every rank does for all of it, by
least squares of relative errors. On one machine that is longer by what as many copies of one process lose side by side
(the control); on machines of their own it is not. What was measured is predicted from other numbers of ranks alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

import numpy as np
from scipy.optimize import nnls
from shared import Document

__all__ = ["network_fit", "predictions"]


def _messages(kind: str, ranks: int) -> tuple[float, float]:
    """How many messages one after another, and the share of the bytes that goes over a link."""
    rounds = (2 if kind == "add" else 1) * (ranks - 1)
    return rounds, rounds / ranks


def network_fit(cells: Sequence[Document]) -> dict[str, float]:
    """Latency in seconds and bandwidth in bytes a second, by least squares of relative errors; and how far off."""
    rows, seconds = [], []
    for cell in cells:
        for time in cell["found"][0]["times"]:
            messages, share = _messages(time["kind"], cell["ranks"])
            rows.append([messages, share * time["bytes"]])
            seconds.append(time["seconds"])
    if not rows:
        raise SystemExit("measure the network first, with two ranks or more")
    a, t = np.array(rows), np.array(seconds)
    found = nnls(a / t[:, None], np.ones_like(t))[0].clip(min=1e-12)
    return {"latency": float(found[0]), "bandwidth": float(1 / found[1]), "off": float(median(abs(a @ found / t - 1)))}


def sending(sent: Iterable[Sequence[object]], ranks: int, latency: float, bandwidth: float) -> float:
    """Seconds that some messages take: of what kind, how many bytes, how often."""
    total = 0.0
    for kind, size, times in sent:
        messages, share = _messages(str(kind), ranks)
        total += int(times) * (messages * latency + share * int(size) / bandwidth)  # type: ignore[call-overload]
    return total


def _compute(cells: Sequence[Document], part: str, slower: Mapping[int, float]) -> list[tuple[float, float]]:
    """Share of the graph and seconds of computing of the mean rank, less what the machine makes of so many."""
    found = []
    for cell in cells:
        own = [told[part] for told in cell["found"]]
        work = fmean(told["nodes"] + told["edges"] for told in cell["found"]) / (cell["nodes"] + cell["edges"])
        took = fmean(told["seconds"] - told["wait"] - told["send"] for told in own)
        found.append((work, took / slower.get(cell["ranks"], 1.0)))
    return found


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    a = np.array([[1 / seconds, work / seconds] for work, seconds in points])
    alone, by_share = nnls(a, np.ones(len(points)))[0]
    return float(alone), float(by_share)


def slowed(latest: Mapping[tuple[str, int], Document], one: Document, part: str) -> dict[int, float]:
    """How much longer copies of the one process take side by side, by how many there are."""
    control = {count: cell["found"] for (kind, count), cell in latest.items() if kind == "control"}
    alone = one["found"][0][part]["seconds"]
    return {count: fmean(told[part]["seconds"] for told in found) / alone for count, found in control.items()}


def predictions(
    cells: Sequence[Document], fit: Mapping[str, float], sizes: Mapping[int, int], latency_us: float, gbit: float
) -> list[Document]:
    """Seconds with so many ranks: on this machine, beside what was measured, and on as many machines.

    Args:
        cells: Those of the graph.
        fit: The network that they were measured on.
        sizes: Nodes and edges of a rank's halo, by the number of ranks.
        latency_us: Latency of the network between machines.
        gbit: Its bandwidth.
    """
    latest = {(cell["part"], cell["ranks"]): cell for cell in cells}
    spread = [cell for (part, count), cell in latest.items() if part == "measure" and count]
    one = latest.get(("measure", 0))
    if one is None or len(spread) < 3:
        raise SystemExit("measure this graph first, with three numbers of ranks or more")
    whole, answers = one["nodes"] + one["edges"], list[Document]()
    for part in (name for name in ("gradient", "product", "request") if name in one["found"][0]):
        alone = one["found"][0][part]["seconds"]
        slower = slowed(latest, one, "product" if part == "product" else "gradient")
        sent = max(spread, key=lambda cell: int(cell["ranks"]))["found"][0][part]["sent"]
        for count, size in sizes.items():
            others = [cell for cell in spread if cell["ranks"] != count]
            known = latest.get(("measure", count))
            told: Document = {"part": part, "ranks": count, "measured": None, "here": None}
            if known is not None:
                steady, share = _fit(_compute(others, part, slower))
                here = (steady + share * size / whole) * slower.get(count, 1.0)
                told["here"] = here + sending(sent, count, fit["latency"], fit["bandwidth"])
                told["measured"] = max(own[part]["seconds"] for own in known["found"])
            steady, share = _fit(_compute(spread, part, slower))
            told["compute"] = steady + share * size / whole
            told["send"] = sending(sent, count, latency_us * 1e-6, gbit * 1e9 / 8)
            told["efficiency"] = alone / (told["compute"] + told["send"]) / count
            answers.append(told)
    return answers
