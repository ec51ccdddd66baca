"""GNNDelete (Cheng et al., ICLR'23) for models of pairs, to stand beside: an operator behind the embeddings.

The trained weights stay. Embeddings of the nodes near a deleted pair go through a matrix that is trained for two aims,
half and half, as the authors' program has them: deleted pairs score as random ones do (*deleted edge consistency*), and
other pairs of the neighbourhood keep their probability (*neighbourhood influence*). Here the matrix acts on the last
layer alone and starts as the identity, and of the pairs of the neighbourhood its edges and as many random ones count.
The model that results is another one than retraining gives, and its parameters still hold all that was learnt.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import k_hop_subgraph

import unweave as uw
from unweave.tasks import Links

EPOCHS, RATE, HOPS = 1000, 1e-3, 2
"""Of its training, and the reach of the models that it is tried on."""


class Deleted(nn.Module):
    """A model with other embeddings."""

    def __init__(self, model: nn.Module, z: Tensor) -> None:
        super().__init__()
        self.z = z
        if hasattr(model, "decode"):
            self.decode = model.decode

    def get_embedding(self, messages: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """As they are."""
        return self.z


def scored(model: nn.Module, z: Tensor, pairs: Tensor) -> Tensor:
    """Scores of pairs by a model's own decoder, or by the product."""
    decode: Any = getattr(model, "decode", None)
    found: Tensor = decode(z, pairs) if decode is not None else (z[pairs[0]] * z[pairs[1]]).sum(dim=1)
    return found


def gnndelete(model: nn.Module, before: Links, after: Links, request: uw.Request, seed: int = 0) -> nn.Module:
    """The model after GNNDelete; nodes that go are forgotten as their pairs."""
    at = before.layout
    gone = torch.tensor(before.complete(request).nodes, dtype=torch.long, device=before.x.device)
    lost = torch.isin(at.examples, gone) & before.train_mask[at.examples]
    if before.spec["binary"]:
        lost &= before.y[at.examples] == 1
    pairs = torch.stack([at.head, before.true_tails()])[:, lost]
    pairs = pairs[:, (pairs >= 0).all(dim=0)]
    with torch.no_grad():
        model.eval()
        then, now = before.encode(model), after.encode(model)
    near, *_ = k_hop_subgraph(torch.unique(pairs), HOPS, at.messages, num_nodes=then.size(0))
    draw = torch.Generator().manual_seed(seed)
    inside = torch.zeros(then.size(0), dtype=torch.bool, device=near.device)
    inside[near] = True
    left = after.layout.messages
    joined = left[:, inside[left].all(dim=0)]
    others = near[torch.randint(near.numel(), tuple(joined.shape), generator=draw).to(near.device)]
    around = torch.cat([joined, others], dim=1)
    with torch.no_grad():
        wanted = scored(model, then, around).sigmoid()
    operator = torch.eye(then.size(1), device=then.device, requires_grad=True)
    adam = torch.optim.Adam([operator], lr=RATE)
    for _ in range(EPOCHS):
        z = now.index_copy(0, near, now[near] @ operator)
        random = torch.randint(then.size(0), tuple(pairs.shape), generator=draw).to(pairs.device)
        gone_apart = F.mse_loss(scored(model, z, pairs), scored(model, z, random))
        loss = (gone_apart + F.mse_loss(scored(model, z, around).sigmoid(), wanted)) / 2
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return Deleted(model, now.index_copy(0, near, now[near] @ operator).detach())
