"""Very many requests to one run on disk: does a request, or opening the run, take longer the more there were?

    python benchmarks/receipts.py
    python benchmarks/receipts.py --requests 1000

Each takes one feature from one node of a small graph, is carried out by ``gif`` and saved in the place of the run, as
a stream is. The folder is deleted in the end.
"""

import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from generated import planted
from pages.receipts import PAGE
from shared import Document, arguments, made, write_document

import unweave as uw
from unweave.models import build

NODES, FEATURES, CLASSES = 500, 256, 3
TENTHS = 10


def stream(requests: int, home: Path) -> Document:
    """Carry them out, and say how long each tenth of them took, and what is there in the end."""
    data = planted(NODES, 6 * NODES, features=FEATURES, classes=CLASSES)
    uw.train(build("sgc", FEATURES, CLASSES), data, epochs=20).prepare().save(home)
    order = torch.randperm(NODES * FEATURES, generator=torch.Generator().manual_seed(0))[:requests].tolist()
    asked = [uw.Request(features={cell // FEATURES: [cell % FEATURES]}) for cell in order]
    marks = [time.perf_counter()]

    def tell(done: int, total: int) -> None:
        if done * TENTHS // total > (done - 1) * TENTHS // total:
            marks.append(time.perf_counter())
            print(f"{done} of {total}", flush=True)

    uw.Run.open(home, data=data).forget(asked, "gif", out=home, progress=tell)
    begin = time.perf_counter()
    run = uw.Run.open(home, data=data)
    opened = time.perf_counter() - begin
    assert len(run.receipts) == requests
    each, files = requests / TENTHS, [home / name for name in ("receipts.jsonl", "requests.jsonl")]
    return {
        "requests": requests,
        "milliseconds": [round(1e3 * (b - a) / each, 1) for a, b in pairwise(marks)],
        "opened_seconds": round(opened, 2),
        "bytes_a_receipt": round(sum(file.stat().st_size for file in files) / requests),
        **made("cpu"),
    }


def main() -> None:
    """Measure, and make the page."""
    parser = arguments(__doc__, "receipts", requests=100_000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = stream(asked.requests, Path(folder) / "run")
    write_document(asked.out / "receipts.json", found)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()
