"""The items, graphs and models that an audit compares with."""

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from unweave._core.document import document_digest
from unweave.auditing.after.hard import memorisation, memorised_request
from unweave.auditing.after.relearning import relearning_tests
from unweave.auditing.audit import conclude
from unweave.auditing.case import Case, Size, build_case
from unweave.auditing.examination import Examination
from unweave.auditing.population import Upbringing, Variant, raise_models
from unweave.graph.index import distinct_edges
from unweave.graph.removal import remove
from unweave.models import Shards, build
from unweave.training.recipe import Training


def small(nodes: int = 1000) -> Data:
    """A part of the embedded graph that trains in no time."""
    data = uw.load("demo")
    return data.subgraph(torch.arange(data.num_nodes) < nodes)


def how(data: Data, epochs: int = 3) -> Upbringing:
    return Upbringing(build("sgc", data.num_features, int(data.y.max()) + 1), Training.by(uw.Recipe(epochs=epochs)))


def test_a_variant_is_the_graph_that_it_says() -> None:
    data = small()
    node = int(data.train_mask.nonzero()[0])
    held = int(data.val_mask.nonzero()[0])
    known = {tuple(pair) for pair in data.edge_index.t().tolist()}
    pair = next((0, v) for v in range(1, 1000) if (0, v) not in known and v != node)
    graph = Variant(0, uw.Request(labels=[node]), (held,), (pair,)).of(data)
    assert not graph.train_mask[node]
    assert graph.train_mask[held]
    assert not graph.val_mask[held]
    assert {tuple(p) for p in graph.edge_index.t().tolist()} == known | {pair, pair[::-1]}
    assert data.train_mask[node]
    assert data.val_mask[held]


def test_every_item_is_seen_by_half_of_the_shadows() -> None:
    data = small()
    edges = [(int(u), int(v)) for u, v in distinct_edges(data)[:40]]
    request = uw.Request(nodes=data.train_mask.nonzero().flatten()[:30].tolist(), edges=edges)
    case = build_case(data, request, how(data, 1), Size(references=2, shadows=6))
    assert case.targets == 30
    assert case.deleted == sum(not {*request.nodes} & {*edge} for edge in edges)
    nodes, links = (np.stack([getattr(s, kind) for s in case.shadows]) for kind in ("nodes", "links"))
    assert (nodes.sum(axis=0) == 3).all()
    assert (links.sum(axis=0) == 3).all()
    known = {tuple(sorted(pair)) for pair in data.edge_index.t().tolist()}
    assert not known & {tuple(sorted(pair)) for pair in case.links[case.deleted :].tolist()}
    assert data.val_mask[case.nodes[case.targets :]].all()


def test_rings_are_distances() -> None:
    data = Data(
        x=torch.ones(7, 1),
        edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4]]),
        y=torch.zeros(7, dtype=torch.long),
        train_mask=torch.ones(7, dtype=torch.bool),
    )
    removal = remove(data, uw.Request(labels=[0]))
    empty = torch.empty(0, dtype=torch.long)
    case = Case(data, removal, empty, 0, empty.reshape(0, 2), 0, (), (), (), how(data))
    assert case.rings.tolist() == [0, 1, 2, 3, -1, -1, -1]


def test_models_are_kept_and_an_interrupted_audit_goes_on(tmp_path: Path) -> None:
    data = small()
    variants = [Variant(seed) for seed in range(4)]
    first = raise_models(how(data), data, variants, cache=tmp_path)
    known = dict([next(first), next(first)])
    first.close()
    assert len(list(tmp_path.iterdir())) >= 1
    told: list[tuple[int, int]] = []
    again = dict(raise_models(how(data), data, variants, cache=tmp_path, progress=lambda *n: told.append(n)))
    assert told[-1] == (4, 4)
    for number, model in known.items():
        for a, b in zip(model.parameters(), again[number].parameters(), strict=True):
            assert torch.equal(a, b)
    places = sorted(tmp_path.iterdir())
    assert len(places) == 4
    places[0].write_bytes(b"torn")
    dates = {place: place.stat().st_mtime_ns for place in places[1:]}
    once_more = dict(raise_models(how(data), data, variants, cache=tmp_path))
    assert all(place.stat().st_mtime_ns == date for place, date in dates.items())
    for number in range(4):
        for a, b in zip(once_more[number].parameters(), again[number].parameters(), strict=True):
            assert torch.equal(a, b)
    other = Upbringing(how(data).model, Training.by(uw.Recipe(epochs=3, lr=0.02)))
    list(raise_models(other, data, variants[:1], cache=tmp_path))
    assert len(list(tmp_path.iterdir())) == 5, "another recipe is another model"


@pytest.mark.usefixtures("workers")
def test_two_processes_train_the_same_models() -> None:
    data = small()
    variants = [Variant(seed, uw.Request(labels=[int(data.train_mask.nonzero()[seed])])) for seed in range(2)]
    one, two = (dict(raise_models(how(data), data, variants, jobs=jobs)) for jobs in (1, 2))
    for number in range(2):
        for a, b in zip(one[number].parameters(), two[number].parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


class Own(nn.Module):
    """A model whose training is one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(600, 6)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_a_training_of_ones_own_is_used_and_must_draw_new_weights() -> None:
    data = small()

    def trainer(model: nn.Module, graph: Data) -> None:
        model.inner.reset_parameters()  # type: ignore[operator, union-attr]

    model = Upbringing(Own(), Training(0.0, trainer=trainer)).train(data, 3)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = nn.Linear(600, 6)
    assert torch.equal(model.inner.weight, expected.weight)  # type: ignore[union-attr]
    with pytest.raises(uw.ModelError, match="must draw them anew"):
        Upbringing(Own(), Training(0.0, trainer=lambda model, graph: None)).train(data, 3)
    with pytest.raises(uw.MethodError, match="recipe="):
        Upbringing(Own(), Training(0.0)).train(data, 3)


def test_what_is_memorised_is_what_has_a_wrong_label() -> None:
    data = copy.copy(small(700))
    wrong = data.train_mask.nonzero().flatten()[:28]
    data.y = data.y.clone()
    data.y[wrong] = (data.y[wrong] + 1) % 6
    nodes, scores = memorisation(how(data, 60), data, models=6)
    position = {int(node): float(score) for node, score in zip(nodes, scores, strict=True)}
    flipped = np.mean([position[int(node)] for node in wrong])
    rest = np.mean([score for node, score in position.items() if node not in set(wrong.tolist())])
    assert flipped > 2 * abs(rest)
    request = memorised_request(how(data, 60), data, 0.05)
    share = len(set(request.nodes) & set(wrong.tolist())) / len(request.nodes)
    assert share > 3 * 28 / nodes.numel()
    with pytest.raises(uw.RequestError, match="share"):
        memorised_request(how(data), data, 0.9)


def test_nothing_to_learn_from_is_nothing_to_audit() -> None:
    data = small()
    request = uw.Request(features={int(data.test_mask.nonzero()[0]): "all"})
    with pytest.raises(uw.RequestError, match="nothing to audit"):
        build_case(data, request, how(data), Size(2, 0))
    bare = copy.copy(data)
    bare.val_mask = bare.test_mask = torch.zeros(1000, dtype=torch.bool)
    with pytest.raises(uw.DataError, match="held out of training"):
        build_case(bare, uw.Request(nodes=[int(data.train_mask.nonzero()[0])]), how(data), Size(2, 0))


def test_what_the_request_names_is_not_compared_with() -> None:
    """Shadow models train on the labels of held-out nodes, and a deleted node has none."""
    data = small()
    trained, held = (mask.nonzero().flatten().tolist() for mask in (data.train_mask, data.val_mask))
    request = uw.Request(nodes=[*trained[:3], *held[:40]])
    case = build_case(data, request, how(data, 1), Size(references=2, shadows=2))
    assert not set(case.nodes[case.targets :].tolist()) & set(held[:40])
    assert "40 of the nodes in the request have no label that was trained on" in case.notes[0]
    edge = uw.Request(edges=[(int(u), int(v)) for u, v in distinct_edges(data)[:1]], features={held[0]: "all"})
    assert "1 of the nodes" in build_case(data, edge, how(data, 1), Size(2, 0)).notes[0]


def test_edges_of_deleted_nodes_go_with_them() -> None:
    """No shadow model can see such an edge without its node, nor get one that ends there."""
    data = small()
    edges = [(int(u), int(v)) for u, v in distinct_edges(data)[:40]]
    node = next(n for edge in edges for n in edge if data.train_mask[n])
    request = uw.Request(nodes=[node], edges=edges)
    case = build_case(data, request, how(data, 1), Size(references=2, shadows=4))
    assert case.deleted == sum(node not in edge for edge in edges) < len(edges)
    assert node not in case.links.flatten().tolist()


def test_one_edge_between_nodes_without_others_is_asked_about() -> None:
    data = copy.copy(small())
    alone = data.test_mask.nonzero().flatten()[:2].tolist()
    row, col = data.edge_index
    kept = ~(torch.isin(row, torch.tensor(alone)) | torch.isin(col, torch.tensor(alone)))
    pair = torch.tensor([alone, alone[::-1]])
    data.edge_index = torch.cat([data.edge_index[:, kept], pair], dim=1)
    case = build_case(data, uw.Request(edges=[(alone[0], alone[1])]), how(data, 1), Size(references=2, shadows=0))
    assert case.deleted == 1
    assert case.links.size(0) == 51
    data.edge_index = pair
    with pytest.raises(uw.RequestError, match="nothing to audit by them; too few pairs"):
        build_case(data, uw.Request(edges=[(alone[0], alone[1])]), how(data, 1), Size(references=2, shadows=0))


def test_every_edge_of_a_graph_can_go() -> None:
    data = small()
    request = uw.Request(edges=[(int(u), int(v)) for u, v in distinct_edges(data)])
    case = build_case(data, request, how(data, 1), Size(references=2, shadows=0))
    assert all(probe.group != "exposure" for probe in Examination(case).probes)


def test_learning_back_is_left_out_where_a_retrained_model_begins_at_the_goal() -> None:
    data = small()
    request = uw.Request(nodes=data.train_mask.nonzero().flatten()[:40].tolist())
    case = build_case(data, request, how(data, 20), Size(references=3, shadows=0))
    assert len(relearning_tests(case)) == 1
    mixed = replace(case, retrained=(*case.retrained[:2], case.trained[2]))
    assert relearning_tests(mixed) == []


def test_models_that_vote_are_not_learnt_back() -> None:
    data = small()
    request = uw.Request(nodes=data.train_mask.nonzero().flatten()[:40].tolist())
    case = build_case(data, request, how(data, 20), Size(references=3, shadows=0))
    voters = Shards([s.model for s in case.retrained], torch.zeros(1000, dtype=torch.long), "majority")
    found = Examination(case).of(case.trained[0], case.subject(voters))
    assert next(e for e in found if e.group == "relearning").after.value == 60
    told = conclude(Examination(case), case.trained[0].model, voters, seed=0, quick=True, receipt=None, start=0.0)
    assert any("not built as the one before" in note for note in told.notes)
    assert not told.carried.old, "what is trained on nearly the same data is like the old weights, and no copy of them"


RATE = 0.1


def lazy(model: nn.Module, graph: Data) -> None:
    """A trainer whose rate is set elsewhere."""
    model.inner.reset_parameters()  # type: ignore[operator, union-attr]
    model.inner.weight.data.mul_(RATE)  # type: ignore[operator, union-attr]


class Plain(Own):
    """The same to look at, and another function."""

    def __repr__(self) -> str:
        return repr(Own())

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


def test_a_cache_tells_apart_what_trains_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes between one audit and the next, under the same name."""

    def scaled(by: float) -> Callable[[nn.Module, Data], None]:
        return lambda model, graph: model.inner.weight.data.mul_(by)  # type: ignore[operator, union-attr]

    def known(model: nn.Module, training: Training, **options: Callable[..., torch.Tensor]) -> str:
        return document_digest(Upbringing(model, training, **options).identity)  # type: ignore[arg-type]

    def by(trainer: Callable[..., object]) -> Training:
        return Training(0.0, trainer=trainer)

    held = Own()
    held.register_buffer("held", torch.zeros(2))
    plain = Training.by(uw.Recipe(epochs=1))
    found = [
        known(Own(), plain),
        known(Own().double(), plain),
        known(Plain(), plain),
        known(held, plain),
        known(Own(), plain, forward=lambda model, data: model(data.x, data.edge_index)),
        known(Own(), by(lazy)),
        known(Own(), by(scaled(0.1))),
        known(Own(), by(scaled(0.2))),
        known(Own(), by(partial(lazy, extra=1))),
    ]
    held.held += 1  # type: ignore[operator]
    found.append(known(held, plain))
    assert found[6] == known(Own(), by(scaled(0.1)))
    monkeypatch.setattr(sys.modules[__name__], "RATE", 0.2)
    found.append(known(Own(), by(lazy)))
    monkeypatch.setattr(torch, "__version__", "0.0")
    found.append(known(Own(), plain))
    assert len(set(found)) == len(found)


def test_a_file_that_could_not_be_written_whole_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(uw.UnweaveError, match="no space left"):
        list(raise_models(how(small(), 1), small(), [Variant(0)], cache=tmp_path))
    assert list(tmp_path.iterdir()) == []


nameless = lambda model, graph: None  # noqa: E731 (it is one that cannot be imported)


def test_what_cannot_be_sent_to_another_process_is_said() -> None:
    with pytest.raises(uw.UnweaveError, match="must be importable"):
        list(
            raise_models(Upbringing(Own(), Training(0.0, trainer=nameless)), small(), [Variant(0), Variant(1)], jobs=2)
        )


def test_a_model_that_keeps_its_graph_is_refused() -> None:
    data = small()
    model = nn.Sequential(GCNConv(600, 6, cached=True))
    request = uw.Request(nodes=data.train_mask.nonzero().flatten()[:5].tolist())
    with pytest.raises(uw.ModelError, match="cached=True"):
        uw.audit(model, model, data=data, request=request, trainer=lambda model, graph: None, quick=True)


def fixed(model: nn.Module, graph: Data) -> None:
    """A trainer that sets a seed of its own."""
    torch.manual_seed(0)
    model.inner.reset_parameters()  # type: ignore[operator, union-attr]


def test_what_makes_the_yardstick_worse_is_noted() -> None:
    data = small()
    request = uw.Request(nodes=data.train_mask.nonzero().flatten()[:5].tolist())
    model = Own()
    model.inner.bias.requires_grad_(False)
    case = build_case(data, request, Upbringing(model, Training(0.0, trainer=fixed)), Size(references=2, shadows=0))
    assert "frozen parameters" in case.notes[0]
    assert "all the same, as if trainer= set a seed" in case.notes[1]
    assert build_case(data, request, how(data, 1), Size(references=2, shadows=0)).notes == ()
