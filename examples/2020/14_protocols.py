"""A protocol: plans for several workers, run one after the other, by us or by a coordinator."""

import torch

import syft as sy

hook = sy.TorchHook(torch)
alice = sy.VirtualWorker(hook, id="alice")
bob = sy.VirtualWorker(hook, id="bob")
coordinator = sy.VirtualWorker(hook, id="coordinator")


@sy.func2plan(args_shape=[(1,)])
def inc1(x):
    return x + 1


@sy.func2plan(args_shape=[(1,)])
def inc2(x):
    return x + 1


@sy.func2plan(args_shape=[(1,)])
def inc3(x):
    return x + 1


# Workers are named now, or given later.
protocol = sy.Protocol([("worker1", inc1), ("worker2", inc2), ("worker3", inc3)])
protocol.deploy(alice, bob, alice)
x = torch.tensor([1.0])
result = protocol.run(x)
print(result)
assert result.location is alice
assert result.get().tolist() == [4]

# With workers from the start there is nothing to deploy.
direct = sy.Protocol([(alice, inc1), (bob, inc2)])
assert direct.run(torch.tensor([5.0])).get().tolist() == [7]

# The coordinator runs it for us.
coordinated = sy.Protocol([(alice, inc1), (bob, inc2), (alice, inc3)])
coordinated.tag("increments")
pointer = coordinated.send(coordinator)
found = coordinator.search([coordinated.id])
assert len(found) == 1
x = torch.tensor([10.0]).send(coordinator)
result = coordinated.run(x)
print(result)
assert result.location is coordinator
value = result.get()
while not isinstance(value, torch.Tensor) or (hasattr(value, "child") and value.is_wrapper):
    value = value.get()
assert value.tolist() == [13]
for worker in (alice, bob, coordinator):
    worker.clear_objects()
