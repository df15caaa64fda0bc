"""Federated learning with a trusted aggregator: models meet at a third machine, and only their average comes back."""

import torch
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
secure_worker = sy.VirtualWorker(hook, id="secure_worker")
for worker, others in (
    (bob, [alice, secure_worker]),
    (alice, [bob, secure_worker]),
    (secure_worker, [alice, bob]),
):
    worker.add_workers(others)

torch.manual_seed(7)
data = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]], requires_grad=True)
target = torch.tensor([[0], [0], [1], [1.0]], requires_grad=True)
bobs_data, bobs_target = data[0:2].send(bob), target[0:2].send(bob)
alices_data, alices_target = data[2:].send(alice), target[2:].send(alice)
model = nn.Linear(2, 1)

for _ in range(10):
    bobs_model = model.copy().send(bob)
    alices_model = model.copy().send(alice)
    bobs_opt = optim.SGD(params=bobs_model.parameters(), lr=0.1)
    alices_opt = optim.SGD(params=alices_model.parameters(), lr=0.1)
    for _ in range(10):
        bobs_opt.zero_grad()
        bobs_loss = ((bobs_model(bobs_data) - bobs_target) ** 2).sum()
        bobs_loss.backward()
        bobs_opt.step()
        bobs_loss = bobs_loss.get().data

        alices_opt.zero_grad()
        alices_loss = ((alices_model(alices_data) - alices_target) ** 2).sum()
        alices_loss.backward()
        alices_opt.step()
        alices_loss = alices_loss.get().data
    alices_model.move(secure_worker)
    bobs_model.move(secure_worker)
    assert alices_model.location is secure_worker
    with torch.no_grad():
        model.weight.set_(((alices_model.weight.data + bobs_model.weight.data) / 2).get())
        model.bias.set_(((alices_model.bias.data + bobs_model.bias.data) / 2).get())
    print("Bob:", bobs_loss, "Alice:", alices_loss)

loss = ((model(data) - target) ** 2).sum()
print(model(data), loss)
assert loss.item() < 0.2
