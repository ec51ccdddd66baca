"""A service to look at: a model of the embedded graph, with people to ask for."""

from pathlib import Path
from tempfile import TemporaryDirectory

from unweave.datasets import load
from unweave.models import build
from unweave.run.train import train
from unweave.serve import database, queue
from unweave.serve.policy import Policy
from unweave.serve.registry import register
from unweave.serve.service import Service
from unweave.serve.tables import models

__all__ = ["MODEL", "set_up"]

MODEL = "papers"
"""What the model is called."""

DECAY = 3e-3
"""Of a GCN on the embedded graph: what validation chooses there."""


def set_up(service: Service) -> None:
    """Train a model that can forget, take it, and submit three requests; nothing where that was done before."""
    with database.reading(service.engine) as connection:
        if connection.execute(models.select()).first() is not None:
            return
    data = load("demo")
    ids = {f"author-{node:04d}": node for node in range(int(data.num_nodes))}
    model = build("gcn", data.num_features, int(data.num_classes), forgettable=True)
    run = train(model, data, forgettable=True, weight_decay=DECAY, examine=False)
    with TemporaryDirectory() as place:
        run.save(Path(place) / "run")
        register(
            service,
            MODEL,
            Path(place) / "run",
            ids=ids,
            columns=[f"word-{number:03d}" for number in range(data.num_features)],
            policy=Policy(deadline=30 * 86400),
        )
    one, other = (f"author-{node:04d}" for node in data.edge_index[:, 0].tolist())
    queue.submit(service, MODEL, {"subjects": ["author-0042"], "note": "letter of 3 November"})
    queue.submit(service, MODEL, {"edges": [[one, other]]})
    queue.submit(service, MODEL, {"features": {"author-0007": ["word-001", "word-002"]}, "labels": ["author-0007"]})
