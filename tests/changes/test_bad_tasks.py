"""Changes of tasks that make no sense: each is refused, with words that say what is wrong."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from tests.tasks.literature import WRITES, literature
from tests.tasks.pairs import ITEMS, USERS, graph, interactions, recommender
from tests.tasks.test_graphs import rings_and_stars
from unweave.graph.alteration import alter
from unweave.tasks import Graphs, Links, Relations

BAD: list[tuple[str, Any, str]] = [
    ("rec", lambda d: d.change(users=-1), "whole number from 0 on"),
    ("rec", lambda d: d.change(interactions=[(USERS, 0)]), "user 12 is not there"),
    ("rec", lambda d: d.change(interactions=[(0, ITEMS)]), "item 9 is not there"),
    ("rec", lambda d: d.change(interactions=[tuple(interactions()[0].tolist())]), "there already"),
    ("rec", lambda d: d.change(interactions=[(0, 8)]), "there already"),  # held out
    ("rec", lambda d: uw.Change(add={"edges": [[0, 1]]}), "one of a user and a item"),
    ("rec", lambda d: uw.Change(add={"edges": [[0, d.num_nodes - 1]]}), "no examples"),
    ("rec", lambda d: uw.Change(add={"edges": [[0, 10**6]]}), "not there"),
    ("rec", lambda d: uw.Change(add={"nodes": [{"features": [1.0]}]}), "there are user, item"),
    ("rec", lambda d: uw.Change(add={"nodes": [{"type": "song"}]}), "there are user, item"),
    ("rec", lambda d: uw.Change(add={"nodes": [{"type": "user", "features": [1.0]}]}), "users and items have none"),
    ("rec", lambda d: uw.Change(add={"nodes": [{"type": "user", "label": 1}]}), "nodes have no label"),
    ("rec", lambda d: uw.Change(correct={"features": {0: {0: 2.0}}}), "it has none"),
    ("rec", lambda d: uw.Change(correct={"labels": {d.num_nodes - 1: 0}}), "true or was drawn"),
    ("rec", lambda d: uw.Change(correct={"edge_weights": [[0, 12, 2.0]]}), "no data.edge_weight"),
    ("rec", lambda d: uw.Change(add={"graphs": [{"features": [[1.0]], "label": 0}]}), "no data set of graphs"),
    ("rec", lambda d: uw.Change(add={"edges": {"likes": [[0, 20]]}}), "one kind of pairs"),
    ("links", lambda d: d.change(pairs=[(3, 3)]), "a pair has two nodes"),
    ("links", lambda d: d.change(pairs=[(0, 99)]), "not there"),
    ("links", lambda d: d.change(nodes=[[1.0]]), "must be 4 numbers"),
    ("links", lambda d: d.change(features={0: {9: 1.0}}), "columns 0 … 3"),
    ("links", lambda d: uw.Change(correct={"features": {d.num_nodes - 1: {0: 1.0}}}), "it has none"),
    ("links", lambda d: uw.Change(add={"edges": [[*absent_pair(d), 2.0]]}), "no data.edge_weight"),
    ("graphs", lambda d: d.change(graphs=[Data(x=torch.ones(2, 3))]), "with x, edge_index and y"),
    ("graphs", lambda d: d.change(graphs=[ring(width=2)]), "3 features a node"),
    ("graphs", lambda d: d.change(graphs=[ring(label=7)]), "classes 0 … 1"),
    ("graphs", lambda d: d.change(labels={99: 1}), "not there"),
    ("graphs", lambda d: uw.Change(correct={"labels": {0: 1}}), "whole graphs that are there have labels"),
    ("graphs", lambda d: uw.Change(add={"nodes": [{"features": [0.0] * 3}]}), "add a whole one"),
    ("graphs", lambda d: uw.Change(add={"edges": [[0, d.num_nodes - 7]]}), "two nodes of one graph"),
    ("graphs", lambda d: uw.Change(correct={"features": {d.num_nodes - 1: {0: 1.0}}}), "it has none"),
    ("hetero", lambda d: d.change(nodes={"editor": [[1.0]]}), "no type of nodes"),
    ("hetero", lambda d: d.change(nodes={"author": [[1.0]]}), "nodes of type author have 4"),
    ("hetero", lambda d: d.change(nodes={"author": [{"features": [0.0] * 4, "label": 1}]}), "have no labels"),
    ("hetero", lambda d: d.change(edges={("author", "edits", "paper"): [(0, 0)]}), "no relation"),
    ("hetero", lambda d: d.change(edges={WRITES: [(0, 999)]}), "not there"),
    ("hetero", lambda d: d.change(edges={WRITES: [first_edge(d)]}), "there already"),
    ("hetero", lambda d: d.change(features={"venue": {0: [1.0] * 6}}), "columns 0 … 2"),
    ("hetero", lambda d: d.change(labels={0: 9}), "classes 0 … 2"),
    ("hetero", lambda d: d.change(edges={WRITES: [(0, 0, 2.0)]}), "have no weight"),
    ("hetero", lambda d: d.change(edge_weights={WRITES: [(0, 0, 2.0)]}), "no relation has weights"),
    ("hetero", lambda d: uw.Change(add={"edges": [[int(d.ids("venue")[0]), int(d.ids("author")[0])]]}), "is none of"),
    ("hetero", lambda d: uw.Change(correct={"labels": {int(d.ids("author")[0]): 1}}), "only nodes of type 'paper'"),
    (
        "hetero",
        lambda d: uw.Change(add={"nodes": [{"type": "author", "features": [0.0] * 4, "edges": [0]}]}),
        "relation",
    ),
]


def absent_pair(data: Links) -> tuple[int, int]:
    known = set(map(tuple, data.own_pairs().tolist()))
    return next((u, v) for u in range(14) for v in range(u + 1, 14) if (u, v) not in known)


def first_edge(data: Relations) -> tuple[int, ...]:
    return tuple(data.to_hetero_data()[WRITES].edge_index[:, 0].tolist())


def ring(width: int = 3, label: int = 0) -> Data:
    return Data(x=torch.ones(3, width), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), y=torch.tensor([label]))


MADE: dict[str, Any] = {
    "rec": recommender,
    "links": lambda: Links.of(graph(), test=0.0),
    "graphs": lambda: Graphs.of(rings_and_stars(12), train=range(12)),
    "hetero": lambda: Relations.of(literature(30)),
}


@pytest.mark.parametrize(("kind", "made", "wrong"), BAD)
def test_what_makes_no_sense_is_refused(kind: str, made: Any, wrong: str) -> None:
    data = MADE[kind]()
    with pytest.raises(uw.RequestError, match=wrong):
        alter(data, made(data))
