"""A PyG model of your own, trained by your own loop, forgets: nothing of unweave is needed until the request comes."""

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import unweave as uw

# Your side: any Data with masks, any module, any training loop.
data = uw.load("demo", seed=0)
torch.manual_seed(0)
model = GraphSAGE(data.num_features, hidden_channels=16, num_layers=2, out_channels=data.num_classes, dropout=0.5)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(100):
    model.train()
    optimiser.zero_grad()
    loss = F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
    torch.autograd.backward(loss)
    optimiser.step()

# The request: one person asks to be deleted, one edge was poisoned, one node may no longer use two of its features.
u, v = data.edge_index[:, 0].tolist()
person = int(data.train_mask.nonzero()[10])
request = uw.Request(nodes=[person], edges=[(u, v)], features={int(data.train_mask.nonzero()[20]): [3, 17]})
done = uw.unlearn(model, data, request, method="gif", weight_decay=5e-4)

print(done.receipt)
assert done.data.num_nodes == data.num_nodes, "ids stay what they were"
assert not done.data.x[person].any()
