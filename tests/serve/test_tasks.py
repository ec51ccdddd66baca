"""Models of tasks in a service: users of a recommender ask to be deleted, by the owner's ids."""

from pathlib import Path

import torch

import unweave as uw
from tests.serve.test_service import state_of, work
from tests.tasks.pairs import ITEMS, USERS, interactions
from unweave.datasets.own import writing_graph
from unweave.serve import database, queue
from unweave.serve.policy import Policy
from unweave.serve.registry import find, find_version, open_version, register
from unweave.serve.service import Service
from unweave.tasks import Recommendation


def test_a_user_of_a_recommender_is_deleted(service: Service, tmp_path: Path) -> None:
    graph = Recommendation.of(interactions(), users=USERS, items=ITEMS, negatives=3)
    model = uw.models.LightGCN(USERS + ITEMS, width=8)
    uw.train(model, graph, forgettable=True, weight_decay=1e-2, examine=False).save(tmp_path / "run")
    with writing_graph(graph, tmp_path / "graph.pt"):
        pass
    users = graph.nodes_of("user").tolist()
    ids = {f"user-{number}": node for number, node in enumerate(users)}
    how = {"graph": tmp_path / "graph.pt", "policy": Policy(method="gif", screen=False)}
    register(service, "music", tmp_path / "run", ids=ids, **how)  # type: ignore[arg-type]
    for user in (3, 5):  # the second on the version that the first left
        answer = queue.submit(service, "music", {"subjects": [f"user-{user}"]})
        work(service)
        assert state_of(service, answer.row.id) == "done"
    with database.reading(service.engine) as connection:
        current = find(connection, "music")
        run = open_version(service, current, find_version(connection, "music", current.current))
    assert (current.current, type(run.data)) == (3, Recommendation)
    assert not (run.data.edge_index[:, run.data.own_edges()] == users[5]).any()
    table = run.model.table.weight
    assert not table[[3, 5]].any()
    assert torch.equal(run.data.table_row, graph.table_row)
