"""The audit of wide models on large graphs: is it gone after ``gif``, and would the audit have seen it?

    python benchmarks/wide_audit.py --device cuda --data dblp --model gcn --decay 3e-4 --jobs 4

A line of ``cells.jsonl`` is a graph, a model and a method, with the verdict and what every test said. ``none``, which
takes the data out of the graph and keeps the parameters, is the control that must be seen; a retrained model is the
other, which must be left alone. The models that all three are compared with are trained once.
"""

from tempfile import TemporaryDirectory

from pages.wide_audit import PAGE
from shared import append, arguments, lines, made
from wide import loaded

import unweave as uw
from unweave.models import build

METHODS = ("gif", "none", "retrain")


def main() -> None:
    """Audit what is asked for and not there."""
    parser = arguments(
        __doc__, "wide_audit", data="dblp", model="gcn", decay=3e-4, forget="edges:0.05", device="cpu", jobs=1
    )
    parser.add_argument("--quick", action="store_true", help="leave out what needs shadow models")
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    cell = {key: getattr(asked, key) for key in ("data", "model", "forget", "quick")}
    done = [line["method"] for line in lines(path) if cell.items() <= line.items()]
    graph = loaded(asked.data).to(asked.device)
    nodes = int(graph.train_mask.sum())
    model = build(asked.model, graph.num_features, graph.num_classes, forgettable=True, nodes=nodes).to(asked.device)
    run = uw.train(model, graph, forgettable=True, weight_decay=asked.decay, examine=False)
    request = uw.draw(asked.forget, graph)
    with TemporaryDirectory() as cache:
        for method in (method for method in METHODS if method not in done):
            after = run.forget(request, method, allow_class_loss=True)
            audit = uw.audit(run, after, quick=asked.quick, jobs=asked.jobs, cache=cache)
            tests = {e.name: {k: getattr(e, k) for k in ("finding", "effect", "effect_before")} for e in audit.evidence}
            told = {"verdict": audit.verdict, "sentence": audit.sentence, "noticeable": audit.noticeable}
            append(
                path,
                cell | {"method": method, "asked": request.describe(), **told, "tests": tests} | made(asked.device),
            )
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()
