"""The page of ``screening.py``: false alarms, attacks that are seen, and predicted against real damage."""

from itertools import product
from pathlib import Path
from statistics import correlation, fmean

from shared import Document, documents

from pages.parts import Blocks, Page, columns, number, places, table

GROUPS = ("validation", "other")
WHO = {"random and chosen": True, "random alone": False}


def read(out: Path) -> Document:
    """What was measured."""
    return documents(out).get("screening", {})


def blocks(found: Document) -> Blocks:
    """What was found."""
    seeds, setting = found["seeds"], found["setting"]
    yield (
        f"Made by `python benchmarks/screening.py` from `screening.json`: {setting['model']} on {setting['data']}, "
        f"ordinary training, prepared, {len(seeds)} seeds of split and training; "
        f"{places([found], 'torch {torch}, commit {commit:.12}')}. What is predicted and when a request is flagged is "
        "said in [Proof of forgetting](../../../docs/audit.md#abnormal-requests)."
    )
    yield "## Random requests"
    yield (
        f"The limit is set at {setting['rate']:.0%} by {setting['draws']} random requests. Flagged, of random requests "
        f"like them ({setting['count']} of each kind and size and seed, compared with {setting['draws']} of the others "
        "many times over), mean over the seeds:"
    )
    yield columns(
        rates(found).items(), {"request": lambda pair: pair[0], "flagged": lambda pair: number(pair[1], ".1%")}
    )
    yield f"Over all kinds and sizes {fmean(rates(found).values()):.1%}."
    yield "## Chosen requests"
    yield (
        "*Validation*: every item was tried alone and those of largest predicted damage taken together, which needs "
        "the model and the validation labels. *Elsewhere*: the same for the test nodes, with the labels that the model "
        "gives them. *Hubs*: of highest degree. *One class*: training nodes of the smallest class, or edges between "
        "them. For the validation nodes and for the others that were not trained on: the predicted change of the mean "
        "loss, the limit, and what retraining without the request really did. Means over the seeds."
    )
    head = [f"{group}: {what}" for group in GROUPS for what in ("predicted", "limit", "real")]
    yield table(["request", "attacker", "flagged", *head, "passes"], _chosen(seeds))
    yield "## Predicted and real damage"
    yield (
        "Correlation of predicted damage with what retraining did, over requests of the larger size, mean over the "
        "seeds; over random ones alone it is that of small differences, part of which is the luck of the retrained "
        "model."
    )
    yield table(["request", *(f"{group}, {who}" for group, who in product(GROUPS, WHO))], _correlations(seeds))


def rates(found: Document) -> dict[str, float]:
    """How often random requests are flagged, by kind and size."""
    return {name: fmean(seed["rates"][name] for seed in found["seeds"]) for name in found["seeds"][0]["rates"]}


def _chosen(seeds: list[Document]) -> list[list[str]]:
    rows = []
    for some in zip(*(seed["chosen"] for seed in seeds), strict=True):
        first, flagged = some[0], sum(row["flagged"] for row in some)
        row = [f"{first['kind']} {first['size']}", first["attacker"], f"{flagged} of {len(some)}"]
        for group in GROUPS:
            figures = [(row[group]["damage"], row[group]["high"], row["real"][group]) for row in some]
            row += [number(fmean(column), "+.3f") for column in zip(*figures, strict=True)]
        rows.append([*row, f"{first['passes']:g}"])
    return rows


def _correlations(seeds: list[Document]) -> list[list[str]]:
    """How predicted and real damage agree, by kind."""
    rows = []
    for kind in dict.fromkeys(pair["kind"] for pair in seeds[0]["pairs"]):
        largest = max(row["size"] for row in seeds[0]["chosen"] if row["kind"] == kind)
        row = [f"{kind} {largest}"]
        for group, too in product(GROUPS, WHO.values()):
            each = []
            for seed in seeds:
                some = [(p["damage"][group], p["real"][group]) for p in seed["pairs"] if p["kind"] == kind]
                chosen = [c for c in seed["chosen"] if too and (c["kind"], c["size"]) == (kind, largest)]
                some += [(c[group]["damage"], c["real"][group]) for c in chosen]
                each.append(correlation(*zip(*some, strict=True)))
            row.append(number(fmean(each), ".2f"))
        rows.append(row)
    return rows


PAGE = Page("Screening", read, blocks)
