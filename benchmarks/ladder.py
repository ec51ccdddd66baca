"""The ladder: do its intervals hold, and does a stream of requests drift?

    python benchmarks/ladder.py coverage --data cora,citeseer --models gcn,gat --ways ordinary --jobs 4
    python benchmarks/ladder.py stream --data cora,citeseer --requests 100 --jobs 16

coverage: how often the 90 % intervals of a calibration hold for deletions that are simulated apart from it.
stream: single requests of every kind one after another; how much of the gap to retraining is closed after some of them,
by ``auto`` with a wish, and by ``gif`` alone.

Every measurement is a line of ``PART.jsonl`` in ``--out`` as soon as it is done, and is not done again; the page
beside them, with its figure, is made from those alone (``page.py``).
"""

import argparse
import itertools
from statistics import fmean, median

import numpy as np
from pages.ladder import PAGE, key_of, part_of, read
from shared import DATA, MODELS, WAYS, Document, Gap, arguments, each, made, trained, write_lines
from soak import one_request
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import find_device
from unweave._core.tuning import TUNING
from unweave.experiments.paper.results import rounded
from unweave.methods.ladder.calibration import Calibration

LOOKS = (10, 50, 100)


def start(asked: argparse.Namespace) -> uw.Run:
    """A prepared run with checkpoints."""
    data = uw.load(asked.data, seed=asked.seed).to(find_device(asked.device))
    shares = () if asked.forgettable else TUNING.ladder.shares
    run = trained(asked.model, data, WAYS[asked.forgettable], seed=asked.seed, checkpoints=shares)
    return run if run.prepared is not None else run.prepare()


def known(run: uw.Run) -> Calibration:
    """Its calibration."""
    assert run.calibration is not None
    return run.calibration


def coverage(asked: argparse.Namespace) -> Document:
    """How often an interval of one set of deletions holds for another."""
    run = start(asked).calibrate(asked.deletions, seed=asked.seed)
    fresh = known(run.replace(calibration=None).calibrate(asked.fresh, seed=asked.seed + 1000))
    found, rows = known(run), dict[str, dict[str, float]]()
    for rung in found.rungs:
        held, errors = [], []
        for deletion, figures in fresh._known(rung):
            guess = found.estimate(rung, deletion.shape)
            assert guess.low is not None
            assert guess.high is not None
            held.append(guess.low <= figures.closed <= guess.high)
            errors.append(abs(guess.closed - figures.closed))
        rows[str(rung)] = {"held": fmean(held), "error": median(errors), "cost": found.typical_cost(rung)}
    return {"mean": fmean(row["held"] for row in rows.values()), "held_back": found.held_back, "rungs": rows}


def stream(asked: argparse.Namespace) -> Document:
    """Single requests one after another, with the ladder and without."""
    plain = first = start(asked)
    ladder = ready = first.calibrate(asked.deletions, seed=asked.seed)
    rng = np.random.default_rng([asked.seed, 5])
    looks, used, requests = list[Document](), dict[str, int](), list[uw.Request]()
    for number in range(1, asked.requests + 1):
        request = one_request(ladder.data, rng)
        requests.append(request)
        ladder = ladder.forget(request, "auto", at_least=asked.at_least, allow_class_loss=True)
        plain = plain.forget(request, "gif", allow_class_loss=True)
        told = ladder.receipts[-1].ladder
        assert told is not None
        used[told["rung"]] = used.get(told["rung"], 0) + 1
        if number in LOOKS or number == asked.requests:
            gap = left_by(first, requests, ladder.data)
            standing = told["standing"]
            size = sum(standing["shape"].values())
            looks.append(
                {
                    "requests": number,
                    "ladder": gap.closed(ladder.model),
                    "gif": gap.closed(plain.model),
                    "believed": 1.0 if not size else 1 - standing["left"] / size,
                    "passes": [sum(r.passes for r in run.receipts) for run in (ladder, plain)],
                    "used": dict(used),
                }
            )
    return {"looks": looks, "retrain_passes": known(ready).retrain_passes}


def left_by(first: uw.Run, requests: list[uw.Request], data: Data) -> Gap:
    """The gap between a model that nothing was done to and one retrained without some requests, on what they left."""
    retrained = uw.unlearn(
        first.model,
        first.data,
        uw.Request.merged(requests),
        "retrain",
        weight_decay=first.recipe.weight_decay,
        recipe=first.recipe,
        allow_class_loss=True,
    )
    kept = (data.x.abs().sum(dim=1) > 0) | data.train_mask | data.test_mask
    return Gap(retrained.model, data, first.model, kept)


PARTS = {"coverage": coverage, "stream": stream}
SETTINGS = ("part", "data", "model", "forgettable", "seed", "deletions", "fresh", "requests", "at_least", "device")


def measure(asked: argparse.Namespace) -> Document:
    """One measurement, with where and how it was made."""
    which = f"--data {asked.data} --models {asked.model} --ways {WAYS[asked.forgettable]}"
    document = {
        **{key: getattr(asked, key) for key in SETTINGS},
        **PARTS[asked.part](asked),
        "command": f"python benchmarks/ladder.py {asked.part} {which}",
        **made(asked.device),
    }
    return dict(rounded(document))


def wanted(asked: argparse.Namespace) -> list[argparse.Namespace]:
    """Every measurement that was asked for, the dearest first."""
    found = [
        argparse.Namespace(**vars(asked) | {"forgettable": way == "forgettable", "model": m, "data": d, "seed": s})
        for way, m, d, s in itertools.product(asked.ways, asked.models, asked.data, asked.seeds)
    ]
    return sorted(found, key=lambda a: (a.model not in ("gat", "gin"), not a.forgettable))


def main() -> None:
    """Measure what is missing of one part, and make the page of all."""
    given = {"data": DATA[:2], "models": MODELS, "ways": WAYS, "seeds": (0,)}
    sizes = {"deletions": 24, "fresh": 20, "requests": 100, "at_least": 0.9}
    parser = arguments(__doc__, "ladder", **given, **sizes, device="cpu", jobs=1)
    parser.add_argument("part", choices=tuple(PARTS))
    asked = parser.parse_args()
    found = read(asked.out)
    done = {key_of(document) for document in found}
    todo = [one for one in wanted(asked) if key_of(vars(one)) not in done]
    for document in each(measure, todo, asked.jobs):
        found.append(document)
        write_lines(asked.out / f"{asked.part}.jsonl", sorted(part_of(found, asked.part), key=key_of))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()
