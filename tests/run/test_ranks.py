"""What several ranks do together is what one process does."""

from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GCNConv

import unweave as uw
from tests.spread import spread
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.auditing import population
from unweave.curvature.products import products
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.parts import sharing
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import objective_within

DECAY = 1e-2
FEW = {"rank": 4, "per_class": 1.0, "spare": 2, "bend_products": 4}
"""Every product takes all ranks, and whether they give the same is seen from few of them."""


def graph(kind: str, nodes: int = 120) -> Data:
    """A graph on which halos are less than all of it: near a ring, with a hub and isolated nodes."""
    generator = torch.Generator().manual_seed(0)
    near = torch.arange(nodes - 4)  # the last four have no edges
    pairs = torch.stack([near.repeat(2), torch.cat([near + 1, near + 3]) % (nodes - 4)])
    hub = torch.stack([torch.full((30,), 7), torch.arange(20, 50)])
    forth = torch.cat([pairs, hub], dim=1)
    directed = kind != "plain"
    edges = forth if directed else torch.cat([forth, forth.flip(0)], dim=1)
    y = torch.randint(3, (nodes,), generator=generator)
    x = torch.randn(nodes, 5, generator=generator, dtype=torch.float64) + torch.eye(3, 5, dtype=torch.float64)[y]
    data = Data(x=x, edge_index=edges, y=y, num_nodes=nodes)
    if kind == "weighted":
        data.edge_weight = torch.rand(edges.size(1), generator=generator, dtype=torch.float64) + 0.5
    data.num_classes = 3
    return uw.split(data, seed=0)


def model(kind: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    if kind == "sage":
        return uw.models.SAGE(5, 3, hidden=6, dropout=0.0, direct=3.0).to(dtype)
    return uw.models.GCN(5, 3, hidden=6, dropout=0.0, activation="tanh").to(dtype)


def everything(
    kind: str, layer: str, dtype: torch.dtype, memory_mib: float | None = None, device: str = "cpu"
) -> dict[str, Tensor]:
    """All that evaluates the objective, as tensors to compare."""
    data = graph(kind).to(device)
    data.x = data.x.to(dtype)
    if "edge_weight" in data:
        data.edge_weight = data.edge_weight.to(dtype)
    found: dict[str, Any] = {}
    with tuned(spectrum=FEW, polish={"evaluations": 40}):
        net = model(layer, dtype).to(device)
        meter = Meter(data.x.device)
        objective = objective_within(net, data, DECAY, cross_entropy, call, meter, memory_mib)
        theta = flatten(net)
        point = objective.at(theta)
        v = torch.linspace(-1, 1, theta.numel(), dtype=dtype, device=device)
        found |= {"losses": point.losses, "gradient": point.gradient(), "outputs": point.outputs}
        found |= {kind: products(kind, point)(v) for kind in ("gauss-newton", "hessian")}
        found["some"] = point.loss_gradient(torch.arange(data.num_nodes, device=device) % 2 == 0)
        run = uw.train(net, data, epochs=8, weight_decay=DECAY, examine=False, memory_mib=memory_mib)
        found |= {"trained": flatten(run.model), "scores": _numbers(run.metrics)}
        run = run.prepare(memory_mib=memory_mib)
        ready = run.prepared
        assert ready is not None
        found["prepare passes"] = torch.tensor(float(ready.passes))
        found |= {"values": ready.curvature.values, "slope": ready.gradient, "damping": torch.tensor(ready.damping)}
        for method in ("gif", "retrain"):
            after = run.forget(uw.Request(nodes=[40], edges=[(7, 21)], labels=[3]), method, memory_mib=memory_mib)
            told = after.receipts[-1]
            found |= {method: flatten(after.model), f"{method} scores": _numbers(after.metrics)}
            found[f"{method} receipt"] = torch.tensor([told.objective["remaining_after"], told.step_norm])
        found["retrain passes"] = torch.tensor(float(told.passes))
        one = int(data.train_mask.nonzero()[9])
        later = run.forget(uw.Request(labels=[one]), defer=True).verify(memory_mib=memory_mib)
        found["verified"] = torch.tensor([later.receipts[-1].residual_influence, *flatten(later.model).tolist()])
    return {key: value.detach().cpu().clone() for key, value in found.items()}


def in_pieces(kind: str, layer: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The same where blocks are cut into pieces that fit a cache, as those of large graphs are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "PIECE", 800)
        patch.setattr(sharing, "OVERLAP", float("inf"))
        own = objective_within(
            model(layer, dtype), graph(kind), DECAY, cross_entropy, call, Meter(torch.device("cpu")), None
        )
        assert isinstance(own, Blocks)
        own.at(flatten(own.model)).gradient()
        assert len(own.found["gradient"]) > 1
        return everything(kind, layer, dtype)


def _numbers(metrics: Any) -> Tensor:
    return torch.tensor([value for key, value in sorted(metrics.items()) if "seconds" not in key])


CASES = [("plain", "gcn", torch.float64), ("directed", "sage", torch.float64), ("weighted", "gcn", torch.float32)]
QUICK = [(0, 2, everything), (1, 3, in_pieces)]
TABLE = [
    pytest.param(*case, count, work, marks=[] if (number, count, work) in QUICK else [pytest.mark.slow])
    for number, case in enumerate(CASES)
    for count in (1, 2, 3, 4)
    for work in (everything, in_pieces)
]


@pytest.mark.parametrize(("kind", "layer", "dtype", "count", "work"), TABLE)
def test_ranks_agree_with_one_process(
    kind: str,
    layer: str,
    dtype: torch.dtype,
    count: int,
    work: Callable[..., dict[str, Tensor]],
    warm: ForkServerContext,
    tmp_path: Path,
) -> None:
    wanted = everything(kind, layer, dtype)
    answers = spread(warm, count, tmp_path, work, kind, layer, dtype)
    near = 1e-10 if dtype == torch.float64 else 1e-5
    for rank, answer in enumerate(answers):
        assert "found" in answer, answer
        for key, value in wanted.items():
            own = answer["found"][key]
            # Ranks do not look at the whole graph first, and check the curvature on one block of it.
            within = 3.0 if "passes" in key else near
            torch.testing.assert_close(own, value, rtol=near, atol=within, msg=lambda m, k=key: f"{k}: {m}")
            assert torch.equal(own, answers[0]["found"][key]), f"{key} of rank {rank} is not that of the first"


def uneven() -> dict[str, Tensor]:
    """A graph most of whose nodes are trained on, and none of the last: a piece of theirs has no loss."""
    data = graph("plain")
    data.train_mask = torch.arange(data.num_nodes) < 80
    data.val_mask, data.test_mask = ~data.train_mask, torch.zeros_like(data.train_mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "PIECE", 800)
        patch.setattr(sharing, "OVERLAP", float("inf"))
        how = (DECAY, cross_entropy, call, Meter(data.x.device), None)
        net = model("gcn", torch.float64)
        point = objective_within(net, data, *how).at(flatten(net))
        found = {kind: products(kind, point)(torch.ones_like(point.theta)) for kind in ("gauss-newton", "hessian")}
        return found | {"gradient": point.gradient(), "outputs": point.outputs.detach()}


def test_pieces_without_training_nodes(warm: ForkServerContext, tmp_path: Path) -> None:
    wanted = uneven()
    for answer in spread(warm, 1, tmp_path, uneven):
        for key, value in wanted.items():
            torch.testing.assert_close(answer["found"][key], value, rtol=1e-10, atol=1e-10)


def proved(dtype: torch.dtype) -> dict[str, Any]:
    """What is proved of a linear model, and a certified one; the noise differs from call to call."""
    data = graph("plain")
    data.x = data.x.to(dtype)
    torch.manual_seed(0)
    run = uw.train(uw.models.SGC(5, 3).to(dtype), data, epochs=8, weight_decay=DECAY)
    told = run.forget(uw.Request(nodes=[40]), "gif").receipts[-1].certificate
    assert told is not None
    found = {"kind": told["kind"], "bound": torch.tensor([told[key] for key in ("distance", "gradient_norm", "mu")])}
    sure = uw.train(uw.models.SGC(5, 3).to(dtype), data, weight_decay=DECAY, certify=(1.0, 1e-5))
    after = run.forget(uw.Request(nodes=[40]), "certified", epsilon=1.0, delta=1e-5, noise_seed=3)
    removal = sure.forget(uw.Request(nodes=[41])).receipts[-1].certificate
    assert removal is not None
    return found | {"released": flatten(after.model), "noisy": flatten(sure.model), "removal": removal["kind"]}


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
def test_what_is_proved_is_the_same(dtype: torch.dtype, warm: ForkServerContext, tmp_path: Path) -> None:
    wanted, answers = proved(dtype), spread(warm, 2, tmp_path, proved, dtype)
    near = 1e-10 if dtype == torch.float64 else 1e-5
    for answer in answers:
        assert "found" in answer, answer
        own = answer["found"]
        assert (own["kind"], own["removal"]) == (wanted["kind"], wanted["removal"]) == ("bound", "removal")
        for key in ("bound", "released"):
            torch.testing.assert_close(own[key], wanted[key], rtol=near, atol=near)
        assert torch.equal(own["noisy"], answers[0]["found"]["noisy"]), "the noise is that of the first rank"


def audited(folder: Path) -> dict[str, Tensor]:
    """The figures of an audit."""
    from unweave.auditing import audit as module  # noqa: PLC0415 (it is changed here)
    from unweave.auditing.case import Size  # noqa: PLC0415

    module.QUICK = Size(references=4, shadows=0)
    data = graph("plain", nodes=200)
    data.val_mask = torch.arange(200) >= 140
    data.train_mask, data.test_mask = ~data.val_mask, torch.zeros(200, dtype=torch.bool)
    run = uw.train(model("gcn", torch.float64), data, epochs=30, weight_decay=DECAY)
    found = uw.audit(run, run.forget(uw.Request(nodes=[40, 52, 66])), quick=True, cache=folder / "models", jobs=2)
    readings = [one for test in found.evidence for one in (test.before, test.after, *test.retrained, *test.trained)]
    figures = [reading.value for reading in readings]
    return {"figures": torch.tensor(figures, dtype=torch.float64)}


@pytest.mark.slow
def test_an_audit_finds_the_same(
    warm: ForkServerContext, tmp_path: Path, few_references: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unweave.auditing.population._trained", _in_turn)
    wanted = audited(tmp_path / "one")
    for answer in spread(warm, 2, tmp_path, audited, tmp_path / "two"):
        assert "found" in answer, answer
        torch.testing.assert_close(answer["found"]["figures"], wanted["figures"], rtol=1e-10, atol=1e-10)
    names = [sorted(path.name for path in (tmp_path / place / "models").iterdir()) for place in ("one", "two")]
    assert names[0] == names[1], "one file for each model"


def _in_turn(how: Any, data: Data, variants: Any, jobs: int) -> Any:
    for number, variant in variants.items():
        yield number, population._weights(how.train(variant.of(data), variant.seed))


def few_trained(kind: str) -> Data:
    data = graph(kind)
    data.train_mask &= torch.arange(data.num_nodes) % 3 == 0
    return data


def alone(memory_mib: float | None) -> dict[str, Tensor]:
    """Few of the nodes are trained on, so that their halos are made without the others, which have their own."""
    data = few_trained("plain")
    run = uw.train(model("gcn", torch.float64), data, epochs=6, weight_decay=DECAY, memory_mib=memory_mib)
    after = run.forget(uw.Request(nodes=[40, 42]), memory_mib=memory_mib)
    told = after.receipts[-1]
    found = {"theta": flatten(after.model), "scores": _numbers(after.metrics)}
    return found | {"receipt": torch.tensor([told.objective["remaining_after"], told.objective["function_change"]])}


@pytest.mark.parametrize(("count", "memory_mib"), [pytest.param(3, None, marks=pytest.mark.slow), (2, 0.05)])
def test_a_budget_and_few_training_nodes_change_nothing(
    count: int, memory_mib: float | None, warm: ForkServerContext, tmp_path: Path
) -> None:
    wanted = alone(None)
    for answer in spread(warm, count, tmp_path, alone, memory_mib):
        assert "found" in answer, answer
        for key, value in wanted.items():
            torch.testing.assert_close(answer["found"][key], value, rtol=1e-10, atol=1e-10)


def shuffled(nodes: int = 300) -> Data:
    """The same graph with ids that tell nothing of who is near whom."""
    data = graph("plain", nodes)
    new = torch.randperm(nodes, generator=torch.Generator().manual_seed(1))
    data.edge_index = new[data.edge_index]
    for key in ("x", "y", "train_mask", "val_mask", "test_mask"):
        data[key] = data[key][new.argsort()]
    return data


def ordered() -> dict[str, Tensor]:
    """A request where most nodes are trained on, and where few are, in whatever order ranks cut them."""
    found: dict[str, Tensor] = {}
    for few in (False, True):
        data = shuffled()
        data.train_mask &= torch.arange(data.num_nodes) % 3 == 0 if few else data.train_mask
        net = model("gcn", torch.float64)
        objective = objective_within(net, data, DECAY, cross_entropy, call, Meter(data.x.device), None)
        point = objective.at(flatten(net))
        run = uw.train(net, data, epochs=6, weight_decay=DECAY, examine=False)
        after = run.forget(uw.Request(nodes=[40, 42]))
        found |= {f"losses {few}": point.losses, f"outputs {few}": point.outputs, f"slope {few}": point.gradient()}
        found |= {f"theta {few}": flatten(after.model), f"scores {few}": _numbers(after.metrics)}
        if isinstance(objective, Blocks):
            share = objective.shares.of()
            assert share.place is not None
            assert max(share.work) < 0.7 * (data.num_nodes + data.num_edges)
    return {key: value.detach().clone() for key, value in found.items()}


def test_ids_that_tell_nothing_are_put_in_order(warm: ForkServerContext, tmp_path: Path) -> None:
    wanted = ordered()
    for answer in spread(warm, 2, tmp_path, ordered):
        assert "found" in answer, answer
        for key, value in wanted.items():
            torch.testing.assert_close(answer["found"][key], value, rtol=1e-10, atol=1e-10)


def refusals() -> list[str]:
    """What cannot be done by ranks says so."""
    data, said = graph("plain"), []
    run = uw.train(model("gcn", torch.float64), data, epochs=2, weight_decay=DECAY)
    ways: list[Any] = [
        lambda: run.forget(uw.Request(nodes=[40]), "gif-published"),
        lambda: run.forget(uw.Request(nodes=[40]), "finetune", seconds=1.0),
        lambda: run.forget(uw.Request(nodes=[40]), "retrain", trainer=lambda model, data: None),
        lambda: run.update(uw.Change(forget=uw.Request(nodes=[40]), add={"edges": [[1, 50]]})),
        lambda: uw.train(Normed(), data, epochs=2),
    ]
    for way in ways:
        with pytest.raises(uw.UnweaveError) as error:
            way()
        said.append(str(error.value))
    return said


class Normed(nn.Module):
    """A layer that keeps statistics of the whole graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = GCNConv(5, 3).double(), BatchNorm(3).double()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.norm(self.conv(x, edge_index))  # type: ignore[no-any-return]


def test_what_ranks_cannot_do_is_refused_with_the_way_out(warm: ForkServerContext, tmp_path: Path) -> None:
    for answer in spread(warm, 2, tmp_path, refusals):
        assert "found" in answer, answer
        assert [text.count("without torchrun") for text in answer["found"]] == [1, 0, 1, 1, 1]
        assert "give epochs, not seconds" in answer["found"][1]
