"""Federated learning, the toy: a linear model visits two owners of data."""

import torch
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
torch.manual_seed(1)

data = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]], requires_grad=True)
target = torch.tensor([[0], [0], [1], [1.0]], requires_grad=True)
model = nn.Linear(2, 1)


def train_here() -> float:
    opt = optim.SGD(params=model.parameters(), lr=0.1)
    for _ in range(20):
        opt.zero_grad()
        loss = ((model(data) - target) ** 2).sum()
        loss.backward()
        opt.step()
    return loss.item()


assert train_here() < 0.1

# The same with the data at bob's and alice's.
data_bob, target_bob = data[0:2].send(bob), target[0:2].send(bob)
data_alice, target_alice = data[2:].send(alice), target[2:].send(alice)
datasets = [(data_bob, target_bob), (data_alice, target_alice)]
model = nn.Linear(2, 1)
opt = optim.SGD(params=model.parameters(), lr=0.1)


def train() -> list:
    losses = []
    for _ in range(20):
        for data, target in datasets:
            model.send(data.location)
            opt.zero_grad()
            pred = model(data)
            loss = ((pred - target) ** 2).sum()
            loss.backward()
            opt.step()
            model.get()
            losses.append(loss.get().item())
    return losses


losses = train()
print(losses[-2:])
assert max(losses[-2:]) < 0.05
assert not isinstance(model.weight.data, sy.PointerTensor)
