"""The page of screening: false alarms, attacks that are seen, and predicted against real damage, from the file."""

from statistics import correlation, fmean
from typing import Any

from unweave.experiments.experiment import number, table

GROUPS = ("validation", "other")
WHO = ("random and chosen", "random alone")
HEAD = [f"{group}: {what}" for group in GROUPS for what in ("predicted", "limit", "real")]


def page(document: dict[str, Any]) -> str:
    """The whole page."""
    seeds, setting = document["seeds"], document["setting"]
    if not seeds:
        return "# Screening\n\nNothing has been run yet.\n"
    environment = document["environment"]
    lines = [
        "# Screening",
        "",
        f"Made by `python benchmarks/screening.py` from `screening.json`: {setting['model']} on {setting['data']}, "
        f"ordinary training, prepared, {len(seeds)} seeds of split and training; torch {environment['torch']}, commit "
        f"{document['commit'][:12]}. What is predicted and when a request is flagged is said in "
        "[Proof of forgetting](../../../docs/audit.md#abnormal-requests).",
        "",
        "## Random requests",
        "",
        f"The limit is set at {setting['rate']:.0%} by {setting['draws']} random requests. Flagged, of random requests "
        f"like them ({setting['count']} of each kind and size and seed, compared with {setting['draws']} of the others "
        "many times over), mean over the seeds:",
        "",
        *table(["request", "flagged"], [[name, number(rate, ".1%")] for name, rate in rates(document).items()]),
        "",
        f"Over all kinds and sizes {fmean(rates(document).values()):.1%}.",
        "",
        "## Chosen requests",
        "",
        "*Validation*: every item was tried alone and those of largest predicted damage taken together, which needs "
        "the model and the validation labels. *Elsewhere*: the same for the test nodes, with the labels that the model "
        "gives them. *Hubs*: of highest degree. *One class*: training nodes of the smallest class, or edges between "
        "them. For the validation nodes and for the others that were not trained on: the predicted change of the mean "
        "loss, the limit, and what retraining without the request really did. Means over the seeds.",
        "",
        *table(["request", "attacker", "flagged", *HEAD, "passes"], _chosen(seeds)),
        "",
        "## Predicted and real damage",
        "",
        "Correlation of predicted damage with what retraining did, over requests of the larger size, mean over the "
        "seeds; over random ones alone it is that of small differences, part of which is the luck of the retrained "
        "model.",
        "",
        *table(["request", *(f"{group}, {who}" for group in GROUPS for who in WHO)], _correlations(seeds)),
    ]
    return "\n".join(lines) + "\n"


def rates(document: dict[str, Any]) -> dict[str, float]:
    """How often random requests are flagged, by kind and size."""
    names = document["seeds"][0]["rates"]
    return {name: fmean(found["rates"][name] for found in document["seeds"]) for name in names}


def _correlations(seeds: list[dict[str, Any]]) -> list[list[str]]:
    """How predicted and real damage agree, by kind."""
    rows = []
    for kind in dict.fromkeys(pair["kind"] for pair in seeds[0]["pairs"]):
        largest = max(row["size"] for row in seeds[0]["chosen"] if row["kind"] == kind)
        found = []
        for group in GROUPS:
            for only in (False, True):
                each = []
                for seed in seeds:
                    some = [(p["damage"][group], p["real"][group]) for p in seed["pairs"] if p["kind"] == kind]
                    chosen = [row for row in seed["chosen"] if (row["kind"], row["size"]) == (kind, largest)]
                    some += [] if only else [(row[group]["damage"], row["real"][group]) for row in chosen]
                    each.append(correlation(*zip(*some, strict=True)))
                found.append(number(fmean(each), ".2f"))
        rows.append([f"{kind} {largest}", *found])
    return rows


def _chosen(seeds: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for place, first in enumerate(seeds[0]["chosen"]):
        some = [seed["chosen"][place] for seed in seeds]
        means = []
        for group in GROUPS:
            figures = [[row[group]["damage"], row[group]["high"], row["real"][group]] for row in some]
            means += [number(fmean(column), "+.3f") for column in zip(*figures, strict=True)]
        flagged = f"{sum(row['flagged'] for row in some)} of {len(some)}"
        rows.append([f"{first['kind']} {first['size']}", first["attacker"], flagged, *means, f"{first['passes']:g}"])
    return rows
