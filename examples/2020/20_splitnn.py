"""A net in two halves: alice has the data and the first half, bob the labels and the second."""

import torch
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
torch.manual_seed(0)
alice = sy.VirtualWorker(hook, id="alice")
bob = sy.VirtualWorker(hook, id="bob")

data = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]])
target = torch.tensor([[0], [0], [1], [1.0]])
models = [
    nn.Sequential(nn.Linear(2, 3), nn.Tanh()),
    nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()),
]
optimizers = [optim.SGD(params=model.parameters(), lr=1.0) for model in models]
models[0].send(alice)
models[1].send(bob)
data = data.send(alice)
target = target.send(bob)


def train():
    for opt in optimizers:
        opt.zero_grad()
    a = models[0](data)
    # What crosses the cut is a leaf of its own.
    remote_a = a.detach().move(bob).requires_grad_()
    pred = models[1](remote_a)
    loss = ((pred - target) ** 2).sum()
    loss.backward()
    # The gradient goes back the same way.
    grad_a = remote_a.grad.copy().move(alice)
    a.backward(grad_a)
    for opt in optimizers:
        opt.step()
    return loss.detach().get()


losses = [train().item() for _ in range(100)]
print(losses[0], losses[-1])
assert losses[-1] < 0.05 < losses[0]
models[0].get()
models[1].get()
