"""What ``unweave show`` says of a run of a task: how many there are of what the user has, not of what stands for it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

import unweave as uw
from tests.cli.test_cli import unweave
from tests.tasks.literature import heterogeneous, literature
from tests.tasks.test_graphs import Pooled, rings_and_stars
from unweave.models import Linker
from unweave.tasks import Graphs, Links, Relations
from unweave.tasks.task import Task
from unweave.testing import small_graph


def of_graphs() -> tuple[nn.Module, Task, str]:
    graphs = rings_and_stars(20)
    data = Graphs.of(graphs)
    nodes, trained = sum(graph.num_nodes for graph in graphs), int(data.train_mask.sum())
    return Pooled(), data, f"20 graphs, {nodes} nodes, {trained} training graphs"


def of_links() -> tuple[nn.Module, Task, str]:
    graph = small_graph()
    data = Links.of(graph)
    pairs, trained = int(data.num_nodes) - int(graph.num_nodes), int(data.train_mask.sum())
    return Linker(8, 4), data, f"{pairs} examples, {graph.num_nodes} nodes, {trained} training examples"


def of_relations() -> tuple[nn.Module, Task, str]:
    hetero = literature()
    trained = int(hetero["paper"].train_mask.sum())
    counts = ", ".join(f"{hetero[kind].num_nodes} {kind}s" for kind in sorted(hetero.node_types))
    return heterogeneous(hetero), Relations.of(hetero), f"{counts}, {trained} training papers"


@pytest.mark.parametrize("made", [of_graphs, of_links, of_relations])
def test_a_run_of_a_task_is_counted_as_its_user_does(
    made: Callable[[], tuple[nn.Module, Task, str]], tmp_path: Path
) -> None:
    model, data, size = made()
    uw.train(model, data, epochs=2).save(tmp_path / "run")
    shown = unweave("show", tmp_path / "run")
    assert shown.exit_code == 0, shown.stderr
    assert f"Data       own: {size}\n" in shown.stdout
