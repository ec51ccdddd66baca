"""A small model of what ranks take: seconds for nodes and edges, latency and bandwidth of the network.

To add a vector of S bytes n ranks pass it round a ring twice, 2(n−1) messages of S/n bytes each; to gather S bytes in
all they pass it round once. With latency α and bandwidth β

    t_add = 2(n−1) α + 2(n−1)/n · S/β,     t_gather = (n−1) α + (n−1)/n · S/β.

An evaluation takes a roll call and its passes (adding 24 and 8 bytes), adds a vector of doubles as long as θ, and
gathers a number of each training node. Seconds of the slowest rank's halo are a·nodes + b·edges.
"""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from shared import Document

__all__ = ["network_fit", "predictions"]

Sizes = Mapping[int, Sequence[tuple[int, int]]]


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
        return {"latency": 5e-5, "bandwidth": 1e9, "off": float("nan")}
    a, t = np.array(rows), np.array(seconds)
    found = np.linalg.lstsq(a / t[:, None], np.ones_like(t), rcond=None)[0].clip(min=1e-12)
    return {"latency": float(found[0]), "bandwidth": float(1 / found[1]), "off": float(median(abs(a @ found / t - 1)))}


def communication(cell: Document, ranks: int, latency: float, bandwidth: float) -> float:
    """Seconds that an evaluation's messages take."""
    total = 0.0
    for kind, size in (("add", 24), ("add", 8), ("add", 8 * cell["parameters"]), ("gather", 4 * cell["training"])):
        messages, share = _messages(kind, ranks)
        total += messages * latency + share * size / bandwidth
    return total


def predictions(
    measured: Sequence[Document], fit: Mapping[str, float], sizes: Sizes, latency_us: float, gbit: float
) -> dict[str, list[Document]]:
    """Seconds of a gradient on so many machines: beside what was measured here, and on a network of another kind.

    Args:
        measured: Cells of the graph.
        fit: The network that they were measured on.
        sizes: Nodes and edges of the halos of some shares, by the number of ranks.
        latency_us: Latency of the other network.
        gbit: Its bandwidth.
    """
    of_one = [cell for cell in measured if cell["ranks"] == 0]
    spread = [cell for cell in measured if cell["ranks"] > 0]
    if not of_one or len(spread) < 2:
        raise SystemExit("measure this graph first, with two numbers of ranks or more")
    whole = of_one[-1]["found"][0]["gradient"]["seconds"]
    rows, seconds = [], []
    for cell in spread:
        for own in cell["found"]:
            rows.append([own["nodes"], own["edges"]])
            took = own["gradient"]
            seconds.append(took["seconds"] - took["wait"] - took["send"])
    cost = np.linalg.lstsq(np.array(rows, dtype=float), np.array(seconds), rcond=None)[0]
    known = {cell["ranks"]: max(own["gradient"]["seconds"] for own in cell["found"]) for cell in spread}
    answers: dict[str, list[Document]] = {}
    for name, latency, bandwidth in (
        ("this machine", fit["latency"], fit["bandwidth"]),
        (f"{gbit:g} Gbit/s, {latency_us:g} µs", latency_us * 1e-6, gbit * 1e9 / 8),
    ):
        told = []
        for count, parts in sizes.items():
            compute = max(float(cost @ np.array(part)) for part in parts)
            sent = communication(spread[0], count, latency, bandwidth)
            answer: Document = {"ranks": count, "compute": compute, "send": sent, "seconds": compute + sent}
            answer["speedup"] = whole / (compute + sent)
            answer["measured"] = known.get(count) if name == "this machine" else None
            told.append(answer)
        answers[name] = told
    return answers
