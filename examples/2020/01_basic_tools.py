"""The basic tools: a tensor goes to another machine, is computed on there, and comes back."""

import torch

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")

# A tensor is sent away; what stays here is a pointer.
x = torch.tensor([1, 2, 3, 4, 5])
x_ptr = x.send(bob)
print(x_ptr)
print(bob._objects)
assert x_ptr.location == bob
assert x_ptr.owner == sy.local_worker == hook.local_worker
assert x_ptr.id_at_location == x.id
assert list(bob._objects) == [x.id]
assert x_ptr.get().tolist() == [1, 2, 3, 4, 5]
assert len(bob._objects) == 0

# Arithmetic with pointers happens where the data is.
x = torch.tensor([1, 2, 3, 4, 5]).send(bob)
y = torch.tensor([1, 1, 1, 1, 1]).send(bob)
z = x + y
assert z.location is bob
assert z.get().tolist() == [2, 3, 4, 5, 6]
assert torch.add(x, y).get().tolist() == [2, 3, 4, 5, 6]
assert (x - 1).get().tolist() == [0, 1, 2, 3, 4]

# So do gradients.
x = torch.tensor([1, 2, 3, 4, 5.0], requires_grad=True).send(bob)
y = torch.tensor([1, 1, 1, 1, 1.0], requires_grad=True).send(bob)
z = (x + y).sum()
z.backward()
x = x.get()
assert x.grad.tolist() == [1, 1, 1, 1, 1]

# A first model, trained entirely at bob's.
inputs = torch.tensor([[1.0, 1], [0, 1], [1, 0], [0, 0]], requires_grad=True).send(bob)
target = torch.tensor([[1.0], [1], [0], [0]], requires_grad=True).send(bob)
weights = torch.tensor([[0.0], [0.0]], requires_grad=True).send(bob)
for _ in range(20):
    pred = inputs.mm(weights)
    loss = ((pred - target) ** 2).sum()
    loss.backward()
    weights.data.sub_(weights.grad * 0.1)
    weights.grad *= 0
    print(loss.get().data)
weights = weights.get()
assert abs(weights[0].item()) < 0.1 and abs(weights[1].item() - 1) < 0.1

# Several machines at once: a multi-pointer.
alice = sy.VirtualWorker(hook, id="alice")
both = torch.tensor([1, 2, 3, 4, 5]).send(bob, alice)
assert [t.tolist() for t in (both + both).get()] == [[2, 4, 6, 8, 10]] * 2
assert both.get(sum_results=True).tolist() == [2, 4, 6, 8, 10]
