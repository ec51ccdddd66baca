"""Scores of an inspection against what removal really does.

    python benchmarks/inspection.py --data cora --models gcn,sage,sgc,sign
    python benchmarks/inspection.py --part largest --data cora --models gcn
    python benchmarks/inspection.py --part fast --data pubmed --models gcn,sgc --device cuda
    python benchmarks/inspection.py --part fast --data made-1000000 --models sgc --threads 16
    python benchmarks/inspection.py --part own --data demo --models gat,sage,transformer,gcn
    python benchmarks/inspection.py --part scores --data cora --models sgc

One graph and one model is one cell; a cell that is done is not done again, each kind of items by itself. Run as many
processes as there are cores, each with its own ``--out`` or its own cells. ``scores`` scores the items of cells that
are done anew, after a change of how scores are made, of kinds whose number is not 0; what really happens to them is as
it was.

For single nodes, edges and columns drawn at random, and for random halves of the training labels, the predicted change
of the mean validation loss stands beside the real one. Real is the model at its minimum on the remaining graph: the
minimisation goes on from the trained model until the next step promises less than a ten-millionth of its whole fall.
The trained model is polished on beforehand, ``--polishes`` times 240 gradients at most.
For some items the model is also trained from scratch. Ordinary models are trained again from the same seed.

``largest`` looks at the ten largest scores, where a linear step is worst: of the validation loss and of the margins of
ten nodes that are predicted wrongly, at the decay that validation chooses. Items are forgotten by ``gif``, as
``inspect --confirm`` does. What one linear step would have said stands beside it.

``own`` times modules of one's own, two layers of PyG's, which are called on copies of what removals change: with all
that they do not change shared among them, and with copies of that too, in one process.

The name is not ``inspect.py``, as Python's own module is called so and scripts look in their folder first.
"""

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from generated import planted
from page import PAGES
from shared import Document, append, arguments, lines, made, write_lines
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, TransformerConv

import unweave as uw
from unweave._core.cost import Meter, peak_memory
from unweave.curvature.solvers import minimise
from unweave.graph.removal import remove
from unweave.inspection import Inspection
from unweave.inspection.copies import Copies
from unweave.models import build
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import duplicate, flatten, load_flat

DECAYS = {"forgettable": 1e-3, "ordinary": 1e-4}
SETTLED, EVALUATIONS = 1e-7, 300
STATIONARY = 1e-13
"""What is left of a model's way then moves the quantity by less than an edge does."""
TOP, WRONG, DRAWN = 10, 10, 20
"""Largest scores, wrongly predicted nodes, and items drawn at random, of the part that looks at these."""
KINDS = ("nodes", "edges", "features", "labels")
LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "gat": GATConv,
    "sage": SAGEConv,
    "transformer": TransformerConv,
    "gcn": GCNConv,
}
HIDDEN, ROOM = 16, 4096
"""Hidden units of modules of one's own, and MiB: for those that share nothing, so that many of them are side by side,
and for scores, so that how nodes answer is told of wide models too."""
Requested = tuple[str, float, uw.Request]
"""What it is, its score and the request that forgets it."""


def graph_of(name: str) -> Data:
    """A graph by its name; ``made-1000000`` is one with planted classes and so many nodes."""
    if not name.startswith("made-"):
        return uw.load(name, seed=0)
    nodes = int(name.removeprefix("made-"))
    data = planted(nodes, 5 * nodes, features=64, classes=10)
    data.name = name
    return data


def train(name: str, data: Data, way: str, polishes: int, seed: int = 0) -> uw.Run:
    """A model in double precision; a forgettable one is polished on, as real effects are of the size of rounding."""
    nodes, forgettable = int(data.train_mask.sum()), way == "forgettable"
    torch.manual_seed(seed)
    model = build(name, data.num_features, int(data.num_classes), forgettable=forgettable, nodes=nodes)
    model = model.double().to(data.x.device)
    how: dict[str, Any] = {"seed": seed, "weight_decay": DECAYS[way], "examine": False}
    if not forgettable:
        return uw.train(model, data, epochs=100, **how).prepare()
    run = uw.train(model, data, forgettable=True, **how)
    for _ in range(polishes):
        better = uw.polish(run.model, data, weight_decay=DECAYS[way], evaluations=240, examine=False)
        run = run.replace(model=better.model, prepared=better.prepared)
        if better.prepared.stationarity <= STATIONARY:
            break
    return run


def objective(model: nn.Module, data: Data, way: str) -> Objective:
    """The objective on some graph."""
    return Objective(model, data, cross_entropy, decay_vector(model, DECAYS[way]), call, Meter(data.x.device))


def loss(model: nn.Module, left: Data, whole: Data, gone: Tensor) -> float:
    """The quantity: the mean validation loss, of which deleted nodes have no part."""
    counted = whole.val_mask.clone()
    counted[gone] = False
    with torch.no_grad():
        outputs = model.eval()(left.x, left.edge_index)
    return float(cross_entropy(outputs[counted], whole.y[counted]).sum() / whole.val_mask.sum())


def followed(run: uw.Run, left: Data, way: str) -> nn.Module:
    """The model at its minimum on the remaining graph, from where it is."""
    model = duplicate(run.model)
    there, theta = objective(model, left, way), flatten(model)
    value, gradient = there.evaluate(theta)
    assert run.prepared is not None
    theta, _ = minimise(
        there.evaluate,
        theta,
        value,
        gradient,
        run.prepared.curvature.solve,
        evaluations=EVALUATIONS,
        tolerance=0.0,
        settled=SETTLED,
    )
    load_flat(model, theta)
    return model


def chosen(found: Inspection, data: Data, kind: str, count: int) -> list[Requested]:
    """Random items of a kind, with their scores."""
    draw = np.random.default_rng(KINDS.index(kind))
    scores = found.scores(kind)  # type: ignore[arg-type]
    pool = np.arange(scores.numel())
    if kind == "labels":
        pool = data.train_mask.nonzero().flatten().cpu().numpy()
    if kind == "features":
        pool = (data.x != 0).any(dim=0).nonzero().flatten().cpu().numpy()
    picked = draw.choice(pool, min(count, pool.size), replace=False).tolist()
    items = [found.item(kind, number) for number in picked]  # type: ignore[arg-type]
    return [(item.name, item.effect, found.request(item)) for item in items]


def halves(found: Inspection, data: Data, count: int) -> list[Requested]:
    """Random halves of the training labels, each with the sum of its scores."""
    draw, nodes = np.random.default_rng(7), data.train_mask.nonzero().flatten().cpu().numpy()
    drawn = [sorted(draw.choice(nodes, nodes.size // 2, replace=False).tolist()) for _ in range(count)]
    return [(f"half {i}", float(found.labels[some].sum()), uw.Request(labels=some)) for i, some in enumerate(drawn)]


def real(run: uw.Run, asked: Requested, way: str, anew: bool, polishes: int) -> float:
    """What a removal really changes."""
    _, _, request = asked
    removal = remove(run.data, request)
    if anew or way == "ordinary":
        model = train(run_name(run), removal.data, way, polishes).model
    else:
        model = followed(run, removal.data, way)
    return loss(model, removal.data, run.data, removal.nodes) - loss(run.model, run.data, run.data, removal.nodes)


def run_name(run: uw.Run) -> str:
    """The name of a built-in model."""
    return type(run.model).__name__.lower()


def measure(
    data: Data, name: str, way: str, polishes: int, counts: dict[str, int], keep: Callable[[Document], None]
) -> None:
    """All of one model on one graph; every kind is kept once it is done."""
    begun = time.perf_counter()
    run = train(name, data, way, polishes)
    trained = time.perf_counter() - begun
    found = run.inspect("validation", memory_mib=ROOM)
    for kind, count in counts.items():
        if not count:
            continue
        anew = kind.startswith("anew ")
        plain = kind.removeprefix("anew ")
        asked = halves(found, data, count) if plain == "halves" else chosen(found, data, plain, count)
        begun = time.perf_counter()
        pairs = [(one[1], real(run, one, way, anew, polishes)) for one in asked]
        keep(
            {
                "part": "items",
                "data": data.name,
                "model": name,
                "way": way,
                "kind": kind,
                "predicted": [pair[0] for pair in pairs],
                "real": [pair[1] for pair in pairs],
                "items": [one[0] for one in asked],
                "decay": DECAYS[way],
                "stationarity": run.prepared.stationarity if run.prepared else None,
                "train_seconds": trained,
                "seconds": time.perf_counter() - begun,
            }
        )


def rescore(stored: list[Document], device: str, polishes: int, keep: Callable[[], None]) -> None:
    """Score the items of cells that are done anew; what really happens to them stays as it was measured."""
    cells = dict.fromkeys((d["data"], d["model"], d["way"]) for d in stored)
    for graph, name, way in cells:
        data = uw.load(graph, seed=0).to(device)
        data.x = data.x.double()
        found = train(name, data, way, polishes).inspect("validation", memory_mib=ROOM)
        for document in (d for d in stored if (d["data"], d["model"], d["way"]) == (graph, name, way)):
            kind, count = document["kind"].removeprefix("anew "), len(document["items"])
            asked = halves(found, data, count) if kind == "halves" else chosen(found, data, kind, count)
            assert [one[0] for one in asked] == document["items"], "another draw"
            document |= {"predicted": [one[1] for one in asked], "scored": made(device)["commit"]}
        keep()


def fast(data: Data, name: str, keep: Callable[[Document], None]) -> None:
    """Time and passes of scoring everything, beside those of one training, in single precision as users have it.

    One thread is timed by its processor, which others on the machine do not slow down.
    """
    now = time.process_time if torch.get_num_threads() == 1 and not data.x.is_cuda else time.perf_counter
    model = build(name, data.num_features, int(data.num_classes), forgettable=True, nodes=int(data.train_mask.sum()))
    model = model.to(data.x.device)
    begun = now()
    run = uw.train(model, data, weight_decay=DECAYS["forgettable"], forgettable=True, examine=False)
    trained = now() - begun
    document: Document = {"part": "fast", "data": data.name, "model": name, "train_seconds": trained}
    begun = now()
    found = run.inspect("validation")
    document["solve_seconds"] = now() - begun
    begun = now()
    if found.subject.leverage is not None:
        found.subject.leverage.pushed.sum().item()
    document["answers_seconds"] = now() - begun
    for kind in ("labels", "features", "nodes", "edges"):
        with peak_memory(data.x.device) as peak:
            begun = now()
            found.scores(kind).sum().item()  # a GPU is waited for
            document[f"{kind}_seconds"] = now() - begun
        document[f"{kind}_peak_mib"] = peak[0]
    lever = found.subject.leverage
    document |= {"threads": torch.get_num_threads(), "samples": 0 if lever is None else lever.directions.size(0)}
    keep(document | {"passes": found.passes, "nodes": int(data.num_nodes), "edges": int(found.edge_index.size(1))})


class Own(nn.Module):
    """Two layers of a kind."""

    def __init__(self, kind: str, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = LAYERS[kind](features, HIDDEN), LAYERS[kind](HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The outputs of all nodes."""
        return self.second(torch.tanh(self.first(x, edge_index)), edge_index)  # type: ignore[no-any-return]


def own(data: Data, name: str, keep: Callable[[Document], None]) -> None:
    """Time of scoring all nodes and edges of a module of one's own, with what removals leave shared and not."""
    torch.manual_seed(0)
    model = Own(name, data.num_features, int(data.num_classes)).to(data.x.device)
    begun = time.process_time()
    run = uw.train(model, data, weight_decay=DECAYS["forgettable"], forgettable=True, examine=False)
    document: Document = {"part": "own", "data": data.name, "model": name}
    document["train_seconds"] = time.process_time() - begun
    begun = time.process_time()
    ways = {"shared": run.inspect("validation"), "apart": run.inspect("validation", memory_mib=ROOM)}
    document["solve_seconds"] = (time.process_time() - begun) / 2
    begun = time.process_time()
    lever = ways["shared"].subject.leverage
    document["answers_seconds"] = time.process_time() - begun
    vars(ways["apart"].subject)["leverage"] = lever
    for way, found in ways.items():
        engine = found.subject.engine
        assert isinstance(engine, Copies)
        assert engine.shared
        engine.shared = way == "shared"
        for kind in ("nodes", "edges"):
            with peak_memory(data.x.device) as peak:
                begun = time.process_time()
                document[kind] = found.scores(kind).numel()
                document[f"{way}_{kind}_seconds"] = time.process_time() - begun
            document[f"{way}_{kind}_peak_mib"] = peak[0]
    pairs = [[found.scores(kind) for found in ways.values()] for kind in ("nodes", "edges")]
    document["apart"] = max(float((one - two).abs().max() / two.abs().max()) for one, two in pairs)
    keep(document | {"samples": 0 if lever is None else lever.directions.size(0)})


def largest(data: Data, name: str, keep: Callable[[Document], None]) -> None:
    """The largest scores of several quantities beside what happens, and beside those of one linear step."""
    data = copy.copy(data)
    data.x = data.x.float()
    model = build(name, data.num_features, int(data.num_classes), forgettable=True, nodes=int(data.train_mask.sum()))
    run = uw.train(model.to(data.x.device), data, forgettable=True, examine=False)
    with torch.no_grad():
        guesses = run.model.eval()(data.x, data.edge_index).argmax(dim=1)
    wrong = ((guesses != data.y) & (data.val_mask | data.test_mask)).nonzero().flatten()[:WRONG].tolist()
    known: dict[str, Tensor] = {}
    for of in ("validation", *(f"node:{node}" for node in wrong)):
        ways = {"corrected": run.inspect(of), "linear": run.inspect(of)}
        vars(ways["linear"].subject)["leverage"] = None
        for kind in ("nodes", "edges", "labels"):
            scores = {way: found.scores(kind) for way, found in ways.items()}
            draw = np.random.default_rng(0).choice(int(scores["linear"].count_nonzero()), DRAWN, replace=False)
            items = {way: score.abs().argsort(descending=True)[:TOP].tolist() for way, score in scores.items()}
            items["random"] = scores["linear"].nonzero().flatten()[draw].tolist()
            document: Document = {"part": "largest", "data": data.name, "model": name, "of": of, "kind": kind}
            for which, numbers in items.items():
                real = [_forgotten(ways["corrected"], kind, number, known) for number in numbers]
                said = {way: score[numbers].tolist() for way, score in scores.items()}
                document[which] = said | {"real": real}
            keep(document | {"decay": run.recipe.weight_decay})


def _forgotten(found: Inspection, kind: str, number: int, known: dict[str, Tensor]) -> float:
    """The change of a quantity by forgetting an item; what models give afterwards is remembered."""
    item, subject = found.item(kind, number), found.subject  # type: ignore[arg-type]
    objective = subject.objective
    if item.name not in known:
        done = uw.unlearn(
            objective.model, objective.data, found.request(item), "gif", weight_decay=found.weight_decay,
            allow_class_loss=True, prepared=subject.prepared,
        )  # fmt: skip
        with torch.no_grad():
            known[item.name] = done.model.eval()(done.data.x, done.data.edge_index)
    gone = torch.tensor([item.item] if kind == "nodes" else [], dtype=torch.long, device=subject.data.x.device)
    with torch.no_grad():
        before = objective.model(objective.data.x, objective.data.edge_index)
        values = [float(subject.quantity.value(z.double(), subject.data, gone)) for z in (known[item.name], before)]
    return values[0] - values[1]


def main() -> None:
    """Measure what was asked for, one line a kind."""
    parser = arguments(
        __doc__, "inspection", part="items", data=("cora",), models=("sgc", "gcn", "sage", "sign"),
        ways=("forgettable",), nodes=200, edges=200, features=200, labels=0, halves=0, anew=0,
        polishes=10, device="cpu", threads=1,
    )  # fmt: skip
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    path: Path = asked.out / "inspection.jsonl"
    done = {(d["part"], d["data"], d["model"], d.get("way"), d.get("kind")) for d in lines(path)}

    def keep(document: Document) -> None:
        append(path, document | made(asked.device))
        PAGES["inspection"].write(asked.out)

    if asked.part == "scores":
        every = lines(path)
        items = [d for d in every if d["part"] == "items"]

        def count(kind: str) -> int:
            return int(getattr(asked, kind.removeprefix("anew ")))

        def rewrite() -> None:
            write_lines(path, every)
            PAGES["inspection"].write(asked.out)

        some = [d for d in items if d["data"] in asked.data and d["model"] in asked.models and count(d["kind"])]
        rescore(some, asked.device, asked.polishes, rewrite)
        return
    for graph in asked.data:
        data = graph_of(graph).to(asked.device)
        if asked.part not in ("fast", "own"):
            data.x = data.x.double()
        for name in asked.models:
            if asked.part in ("fast", "own"):
                if (asked.part, graph, name) not in {cell[:3] for cell in done}:
                    (fast if asked.part == "fast" else own)(data, name, keep)
                continue
            if asked.part == "largest":
                if ("largest", graph, name) not in {cell[:3] for cell in done}:
                    found: list[Document] = []
                    largest(data, name, found.append)
                    for document in found:
                        keep(document)
                continue
            for way in asked.ways:
                counts = {kind: getattr(asked, kind) for kind in (*KINDS, "halves")}
                counts |= {f"anew {kind}": asked.anew for kind in KINDS[:3]} if way == "forgettable" else {}
                left = {kind: n for kind, n in counts.items() if ("items", graph, name, way, kind) not in done}
                if any(left.values()):
                    measure(data, name, way, asked.polishes, left, keep)


if __name__ == "__main__":
    main()
