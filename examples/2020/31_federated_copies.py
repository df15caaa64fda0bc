"""The loop of the tutorials with copies: every owner trains a copy at the same time, and copies are averaged."""

import torch
from torch import nn, optim

import syft as sy
from syft.frameworks.torch.fl import utils

hook = sy.TorchHook(torch)
torch.manual_seed(4)
workers = [sy.VirtualWorker(hook, id=name) for name in ("ann", "ben", "cem")]
X = torch.randn(300, 4)
y = (X @ torch.tensor([1.0, -2.0, 0.5, 3.0]) > 0).float()
federated = sy.BaseDataset(X, y).federate(workers)
loader = sy.FederatedDataLoader(federated, batch_size=25, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

for round_number in range(5):
    copies = {w.id: model.copy().send(w) for w in workers}
    opts = {name: optim.Adam(copy.parameters(), lr=0.05) for name, copy in copies.items()}
    for data, target in loader:
        name = data.location.id
        opts[name].zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(copies[name](data).view(-1), target)
        loss.backward()
        opts[name].step()
    model = utils.federated_avg({name: copy.get() for name, copy in copies.items()})
    print("round", round_number, loss.get().item())

accuracy = ((model(X).view(-1) > 0).float() == y).float().mean().item()
print("accuracy", accuracy)
assert accuracy > 0.9
assert float(utils.accuracy(torch.softmax(torch.cat([-model(X), model(X)], 1), 1), y.long())) > 0.9
