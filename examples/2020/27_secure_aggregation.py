"""Federated learning whose average nobody sees the parts of: weights are shared, added up, and only the sum opens."""

import torch
from sklearn.datasets import load_diabetes
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
james = sy.VirtualWorker(hook, id="james")
compute_nodes = [bob, alice]
torch.manual_seed(0)

data, target = load_diabetes(return_X_y=True)
data = torch.tensor(data, dtype=torch.float32) * 20
target = (torch.tensor(target, dtype=torch.float32) - 150) / 80
remote_dataset = (list(), list())
batch_size = 64
for number, start in enumerate(range(0, 384, batch_size)):
    part = slice(start, start + batch_size)
    node = number % 2
    remote_dataset[node].append(
        (data[part].send(compute_nodes[node]), target[part].send(compute_nodes[node]))
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x))).view(-1)


bobs_model, alices_model = Net(), Net()
alices_model.load_state_dict(bobs_model.state_dict())
models = [bobs_model, alices_model]
params = [list(model.parameters()) for model in models]
optimizers = [optim.SGD(model.parameters(), lr=0.05) for model in models]


def update(data, target, model, optimizer):
    model.send(data.location)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    return loss.get()


losses = []
for epoch in range(8):
    for index in range(len(remote_dataset[0])):
        for node in range(2):
            last = update(*remote_dataset[node][index], models[node], optimizers[node])
        new_params = []
        for i in range(len(params[0])):
            secret = [
                params[node][i].copy().get().fix_precision().share(bob, alice, crypto_provider=james)
                for node in range(2)
            ]
            new_params.append((secret[0] + secret[1]).get().float_precision() / 2)
        with torch.no_grad():
            for model in params:
                for param in model:
                    param *= 0
            for model in models:
                model.get()
            for node in range(2):
                for i in range(len(params[node])):
                    params[node][i].set_(new_params[i])
    losses.append(last.item())
    print("epoch", epoch, last.item())

assert losses[-1] < losses[0]
for mine, theirs in zip(params[0], params[1], strict=True):
    assert torch.equal(mine, theirs)
