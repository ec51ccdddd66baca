"""The cells of the record of answers that change nothing: questions, and what is refused."""

from functools import partial
from typing import Any

from answers_given import (
    DECAY,
    EPOCHS,
    SHARES,
    Own,
    fitted,
    little,
    requests,
)
from answers_interface import (
    CROSS_ENTROPY,
    Cells,
    Figures,
    Request,
    Run,
    after,
    audited,
    compared,
    demo,
    drawn,
    explained,
    forget,
    forgotten,
    planned,
    poisoned,
    prepared,
    projected,
    rehearsed,
    screened,
    trained,
    unlearned,
)
from torch_geometric.nn import GCNConv


def questions() -> Cells:
    """What changes nothing: plans, explanations, screenings, rehearsals, draws, comparisons, audits."""
    data, whole, wide = little(), demo(), little(nodes=300)
    asked = requests(data)
    run = prepared(trained("gcn", data, seed=8, epochs=EPOCHS, weight_decay=DECAY, checkpoints=SHARES))
    flat = trained("sgc", data, seed=8, epochs=EPOCHS, weight_decay=1e-2, forgettable=True)
    before = trained("gcn", wide, seed=8, epochs=EPOCHS, weight_decay=DECAY)

    def why(at: Run, request: Request) -> Figures:
        told, nodes = explained(at.model, data, request, weight_decay=at.recipe.weight_decay)
        return told | {"nodes": [projected(each, 2) for each in nodes]}

    def draws(spec: str) -> Figures:
        named = {"little": data, "demo": whole}
        return {f"{name}/{seed}": _brief(drawn(spec, graph, seed)) for name, graph in named.items() for seed in (0, 1)}

    def poisonous(spec: str) -> Figures:
        graph, request, success = poisoned(spec, data, 2)
        bad = trained("gcn", graph, seed=0, epochs=EPOCHS, weight_decay=DECAY)
        good = forget(bad, request, "gif", allow_class_loss=True)
        attacks = [success(bad.model, graph), success(good.model, good.data)]
        return {"request": _brief(request), "attack": attacks, **after(good)}

    def audit(spec: str, **how: Any) -> Figures:
        return audited(before, forget(before, drawn(spec, wide, 5), "gif"), **how)

    ways: dict[str, Figures] = {
        "retrain": {},
        "none": {},
        "gif": {},
        "gif/defer": {"defer": True},
        "gif/purge": {"purge": True},
    }
    for name, at in {"gcn": run, "sgc": flat}.items():
        for kind, request in asked.items():
            yield f"screen/{name}/{kind}", partial(screened, at, request, draws=12, seed=1)
            yield f"explain/{name}/{kind}", partial(why, at, request)
        for way, options in ways.items():
            yield f"plan/{name}/{way}", partial(planned, at, asked["mixed"], way.partition("/")[0], **options)
        yield f"rehearse/{name}", partial(rehearsed, at, "nodes:0.05", seed=2)
    yield "plan/gcn/replay", partial(planned, run, asked["edges"], "replay", share=0.4)
    yield "plan/gcn/retrace", partial(planned, run, asked["edges"], "retrace", share=0.8, end=0.1)
    for spec in ("edges:0.05", "nodes:0.1", "features:0.02,labels:0.03", "edges:0.01,nodes:0.02"):
        yield f"draw/{spec}", partial(draws, spec)
    for spec in ("flipped:0.2", "crossed:0.3", "triggered:0.2", "flipped:0.2@0.5"):
        yield f"poison/{spec}", partial(poisonous, spec)
    some, minimum = ("none", "if", "gif", "lbfgs", "retrain"), {"forgettable": True, "weight_decay": 1e-2}
    own_graphs = partial(compared, lambda seed: little(seed=100 + seed))
    yield "compare/demo", partial(compared, demo, "gcn", "edges:0.05", some, seeds=1, epochs=EPOCHS)
    yield "compare/little", partial(own_graphs, "sgc", "nodes:0.1", ("gif", "replay(share=0.2)"), seeds=3, epochs=20)
    yield "compare/flipped", partial(own_graphs, "gcn", "flipped:0.2", ("gif",), seeds=2, epochs=30)
    yield "compare/minimum", partial(own_graphs, "gcn", "edges:0.1", ("gif",), seeds=2, epochs=30, **minimum)
    yield "audit/quick/nodes", partial(audit, "nodes:0.15", quick=True, seed=1)
    yield "audit/quick/edges", partial(audit, "edges:0.1", quick=True, seed=1)
    yield "audit/full", partial(audit, "nodes:0.1,edges:0.1", seed=2)


def _brief(request: Request) -> list[int]:
    """A large request in a few numbers."""
    told = request.nodes, request.labels, list(request.features), [n for pair in request.edges for n in pair]
    return [number for ids in told for number in (len(ids), sum(i * n for i, n in enumerate(ids, start=1)))]


def refusals() -> Cells:
    """What is refused, and by which error."""
    data = little()
    run, one = trained("gcn", data, seed=0, epochs=10), Request(nodes=[1])
    cached = fitted(lambda: Own(partial(GCNConv, cached=True), (data.num_features, 8, 3)), data, CROSS_ENTROPY, 2)
    there = set(map(tuple, data.edge_index.t().tolist()))
    absent = next((0, n) for n in range(1, data.num_nodes) if (0, n) not in there)
    everyone = data.train_mask.nonzero().flatten()
    whole_class = Request(nodes=everyone[data.y[everyone] == 0].tolist())
    yield "no-such-edge", partial(forgotten, run, Request(edges=[absent]))
    yield "no-such-node", partial(forgotten, run, Request(nodes=[data.num_nodes]))
    yield "empty", lambda: forgotten(run, Request())
    yield "class-loss", partial(forgotten, run, whole_class)
    yield "class-loss/allowed", partial(forgotten, run, whole_class, allow_class_loss=True)
    yield "unknown-method", partial(forgotten, run, one, "nothing")
    yield "unknown-option", partial(forgotten, run, one, "gif", colour=1)
    yield "not-prepared", partial(forgotten, run, one, "gif", defer=True)
    yield "no-checkpoints", partial(forgotten, run, one, "replay", share=0.2)
    yield "too-little-memory", partial(forgotten, run, one, "gif", memory_mib=1e-4)
    yield "no-closed-form", partial(forgotten, run, one, "closed-form")
    yield "twice", lambda: forgotten(forget(run, one), one)
    yield "cached", partial(unlearned, cached, data, one, weight_decay=DECAY)
    yield "diverging", partial(forgotten, run, requests(data)["nodes"], "gif-published", scale=1e-3)
    yield "bad-draw", lambda: {"drawn": _brief(drawn("edges:2", data, 0))}
