"""Data sets that are spread over workers, and loaders over them."""

import torch

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")

# By hand: one part each.
alice_part = sy.BaseDataset(torch.tensor([3, 4, 5, 6.0]), torch.tensor([3, 4, 5, 6.0])).send(alice)
bob_part = sy.BaseDataset(torch.tensor([1, 2.0]), torch.tensor([1, 2.0])).send(bob)
assert alice_part.location is alice and alice_part.data.location is alice
fed_dataset = sy.FederatedDataset([alice_part, bob_part])
print(fed_dataset)
assert fed_dataset.workers == ["alice", "bob"]
assert len(fed_dataset) == 6
assert len(fed_dataset["alice"]) == 4

loader = sy.FederatedDataLoader(fed_dataset, batch_size=2)
assert len(loader) == 3
seen = []
for epoch in range(2):
    for data, target in loader:
        assert data.location is target.location
        seen += data.get().tolist()
        target.get()
assert sorted(seen) == sorted([1, 2, 3, 4, 5, 6] * 2)

# One batch, as notebooks look at it.
data, target = next(iter(loader))
assert data.shape == torch.Size([2])

# A part can be brought home.
back = fed_dataset["bob"].get()
assert back.data.tolist() == [1, 2]

# From one set: parts of equal size, in order.
whole = sy.BaseDataset(torch.arange(10.0).view(10, 1), torch.arange(10))
parts = whole.federate((bob, alice))
assert [len(parts[w]) for w in ("bob", "alice")] == [5, 5]

# Any torch data set can do that.
points = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
fed = points.federate([bob, alice])
together = [(d.location.id, len(t)) for d, t in sy.FederatedDataLoader(fed, batch_size=3, drop_last=True)]
assert together == [("bob", 3), ("alice", 3)]

# One batch of every worker at a time.
for batch in sy.FederatedDataLoader(fed, batch_size=2, iter_per_worker=True):
    assert {worker.id if hasattr(worker, "id") else worker for worker in batch} == {"bob", "alice"}

# A transform runs where the data is.
doubled = sy.BaseDataset(torch.tensor([1.0, 2]), torch.tensor([1, 2]), transform=lambda v: v * 2)
assert doubled[1][0] == 4
