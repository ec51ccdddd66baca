"""The pages of the results, with their figures, made from the result files alone.

    python benchmarks/page.py soak speed
    python benchmarks/page.py all

``--results`` is the folder that has one for each page. A measuring script makes its own page when it is done.
"""

import argparse
from pathlib import Path

from pages import (
    audit,
    changes,
    decays,
    early,
    inspection,
    ladder,
    ladder_matrix,
    large,
    living,
    loops,
    matrix,
    minima,
    overfitted,
    poison,
    ranks,
    receipts,
    repair,
    screening,
    service,
    soak,
    speed,
    tasks,
    tasks_audit,
    tasks_graphs,
    wide,
    wide_audit,
    wide_f1,
    wide_memory,
    wide_stream,
)
from shared import RESULTS

PAGES = {
    "audit": audit.PAGE,
    "changes": changes.PAGE,
    "decays": decays.PAGE,
    "early": early.PAGE,
    "inspection": inspection.PAGE,
    "ladder": ladder.PAGE,
    "ladder_matrix": ladder_matrix.PAGE,
    "large": large.PAGE,
    "living": living.PAGE,
    "loops": loops.PAGE,
    "matrix": matrix.PAGE,
    "minima": minima.PAGE,
    "overfitted": overfitted.PAGE,
    "poison": poison.PAGE,
    "ranks": ranks.PAGE,
    "receipts": receipts.PAGE,
    "repair": repair.PAGE,
    "screening": screening.PAGE,
    "service": service.PAGE,
    "soak": soak.PAGE,
    "speed": speed.PAGE,
    "tasks": tasks.PAGE,
    "tasks_audit": tasks_audit.PAGE,
    "tasks_graphs": tasks_graphs.PAGE,
    "wide": wide.PAGE,
    "wide_audit": wide_audit.PAGE,
    "wide_f1": wide_f1.PAGE,
    "wide_memory": wide_memory.PAGE,
    "wide_stream": wide_stream.PAGE,
}


def main() -> None:
    """Make the pages that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=(*PAGES, "all"), metavar="NAME")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    for name in PAGES if "all" in asked.names else asked.names:
        PAGES[name].write(asked.results / name)


if __name__ == "__main__":
    main()
