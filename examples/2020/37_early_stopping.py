"""Federated loader with a schedule, clipping, early stopping and a saved best model."""

import copy

import torch
from torch import nn, optim

import syft as sy
from syft.frameworks.torch.fl import utils

torch.manual_seed(5)
hook = sy.TorchHook(torch)
w = [sy.VirtualWorker(hook, id=i) for i in ("w1", "w2", "w3")]
X = torch.randn(90, 5)
y = (X.sum(1) > 0).long()
train = sy.BaseDataset(X[:72], y[:72]).federate(w)
loader = sy.FederatedDataLoader(train, batch_size=8, shuffle=True, drop_last=True)
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 2))
best, best_loss, wait = None, 1e9, 0
optimizer = optim.SGD(net.parameters(), lr=0.2, momentum=0.5)
scheduler = optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
for epoch in range(12):
    net.train()
    for i, (data, target) in enumerate(loader):
        net.send(data.location)
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(data), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        net.get()
        if i % 4 == 0:
            print(f"epoch {epoch} batch {i} loss {loss.get().item():.3f}")
    scheduler.step()
    net.eval()
    with torch.no_grad():
        val = nn.functional.cross_entropy(net(X[72:]), y[72:]).item()
    if val < best_loss:
        best, best_loss, wait = copy.deepcopy(net.state_dict()), val, 0
    else:
        wait += 1
    if wait > 3:
        break
net.load_state_dict(best)
acc = (net(X[72:]).argmax(1) == y[72:]).float().mean()
assert acc > 0.7, acc
models = {i.id: copy.deepcopy(net) for i in w}
avg = utils.federated_avg(models)
assert torch.allclose(avg[0].weight, net[0].weight)
