"""Your own training loop takes part in replay and retrace: a function that trains from a state to a state."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data

import unweave as uw

EPOCHS, DECAY = 100, 5e-4


def train(model: uw.models.GCN, data: Data, start: uw.Checkpoint | None = None, until: int = EPOCHS) -> uw.Checkpoint:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=30, gamma=0.5)
    if start is None:
        model.conv1.reset_parameters()
        model.conv2.reset_parameters()
    else:
        start.restore(model, optimiser, schedule)
    model.train()
    for _ in range(start.epoch if start else 0, until):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
    return uw.Checkpoint.take(until, model, optimiser, schedule)


# Train with stops: the states there are what replay resumes and retrace walks along, with the gradient at each.
data = uw.load("demo", seed=0)
model = uw.models.GCN(data.num_features, data.num_classes)
torch.manual_seed(0)
states = [train(model, data, until=20)]
for epoch in (40, 60, 80, 90):
    states.append(train(model, data, start=states[-1], until=epoch))
train(model, data, start=states[-1])
path = uw.trace_path(states, model, data, weight_decay=DECAY)
run = uw.Run(model, data, recipe=uw.Recipe(seed=0, epochs=EPOCHS, weight_decay=DECAY), checkpoints=path)

# The last 20 epochs again, without what is to be forgotten.
request = uw.draw("edges:0.05", data)
print(run.forget(request, "replay", share=0.2, trainer=train).receipts[-1])

# Four gradients along the path, and the last 10 epochs again.
print(run.prepare().forget(request, "retrace", share=0.8, end=0.1, trainer=train).receipts[-1])

# From the start this is retraining, to the bit.
whole = run.forget(request, "replay", share=1, trainer=train)
retrained = run.forget(request, "retrain", trainer=train)
assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), retrained.model.parameters(), strict=True))
