"""The sandbox: six workers with tagged data, and a grid to search them."""

import torch

import syft as sy

sy.create_sandbox(globals(), verbose=False)

# What it made for us:
print(workers)
assert {w.id for w in workers} == {"bob", "theo", "jason", "alice", "andy", "jon"}

# Data is found by its tags, wherever it is.
x = (
    torch.tensor([1, 2, 3, 4, 5])
    .tag("#fun", "#house")
    .describe("The input datapoints to the housing dataset.")
)
x_ptr = x.send(bob)
found = bob.search(["#fun", "#house"])
assert len(found) == 1 and found[0].id_at_location == x.id
print(found[0])

results = grid.search("#diabetes", "#data")
print({worker: len(pointers) for worker, pointers in results.items()})
assert len(results) >= 2

boston_data = grid.search("#boston", "#data")
boston_target = grid.search("#boston", "#target")
assert set(boston_data) == set(boston_target) and len(boston_data) >= 2

# Train on every part where it lies.
n_features = boston_data["alice"][0].shape[1]
assert n_features == 13
model = torch.nn.Linear(n_features, 1)
with torch.no_grad():
    model.weight.zero_()
first, last = None, None
for i in range(15):
    for name in boston_data:
        data, target = boston_data[name][0], boston_target[name][0]
        mean, std = data.mean(0), data.std(0)
        model.send(data.location)
        optimizer = torch.optim.SGD(params=model.parameters(), lr=0.05)
        optimizer.zero_grad()
        pred = model((data - mean) / (std + 1e-6))
        loss = ((pred.view(-1) - target.view(-1)) ** 2).mean()
        loss.backward()
        optimizer.step()
        model.get()
        last = loss.get().item()
        first = last if first is None else first
print("loss", first, "->", last)
assert last < first / 2
for worker in workers:
    worker.clear_objects()
