"""Random requests like another: of the same kinds and sizes, from the same parts of the split."""

import numpy as np
import torch

import unweave as uw
from unweave.graph.index import distinct_edges
from unweave.graph.lookalikes import Resampler
from unweave.graph.removal import remove
from unweave.testing import small_graph


def ids(mask: torch.Tensor, count: int) -> list[int]:
    found: list[int] = mask.nonzero().flatten()[:count].tolist()
    return found


def test_kinds_sizes_and_parts_of_the_split_are_kept() -> None:
    data = small_graph()
    edges = [(u, v) for u, v in distinct_edges(data)[:7].tolist()]
    asked = uw.Request(
        nodes=[*ids(data.train_mask, 4), *ids(data.val_mask, 2), *ids(data.test_mask, 1)],
        edges=edges,
        features={ids(data.train_mask, 1)[0]: "all", ids(data.test_mask, 1)[0]: [0, 3]},
        labels=ids(data.train_mask, 5),
    )
    drawn = [Resampler(asked, data).draw(np.random.default_rng(seed)) for seed in range(20)]
    for other in drawn:
        assert [len(getattr(other, kind)) for kind in ("nodes", "edges", "features", "labels")] == [7, 7, 2, 5]
        assert [int(data[f"{part}_mask"][list(other.nodes)].sum()) for part in ("train", "val", "test")] == [4, 2, 1]
        assert data.train_mask[list(other.labels)].all()
        assert sorted(str(columns) for columns in other.features.values())[-1] == "all"
        assert sorted(len(columns) for columns in other.features.values()) == [2, 3]
        remove(data, other)  # all of it is there
    assert len({other.digest for other in drawn}) == 20
    assert drawn[3] == Resampler(asked, data).draw(np.random.default_rng(3))


def test_what_is_gone_is_not_drawn_and_features_are_there() -> None:
    data = small_graph()
    data.x = (data.x > 1).float()
    for mask in ("train_mask", "val_mask", "test_mask"):
        data[mask][:20] = False
    left = remove(data, uw.Request(nodes=list(range(15)))).data
    node = int((left.x.sum(dim=1) > 1).nonzero()[0])
    columns = left.x[node].nonzero().flatten().tolist()
    zero = int((left.x[node] == 0).nonzero()[0])
    asked = uw.Request(nodes=[16], features={node: [columns[0], zero]})
    for seed in range(20):
        other = Resampler(asked, left).draw(np.random.default_rng(seed))
        assert other.nodes[0] >= 15, "deleted nodes are in no part either"
        ((where, chosen),) = other.features.items()
        assert len(chosen) == 1
        assert left.x[where, int(chosen[0])] == 1, "one of the two was there"
