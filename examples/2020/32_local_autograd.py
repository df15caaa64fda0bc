"""Autograd as a visible link of the chain: locally, over a pointer, and over shares."""

import torch

import syft as sy
from syft.frameworks.torch.tensors.interpreters.autograd import AutogradTensor

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
james = sy.VirtualWorker(hook, id="james")

a = AutogradTensor().on(torch.tensor([[3.0, 2], [-1, 2]]))
b = AutogradTensor().on(torch.tensor([[2.0, 4], [3, 2]]))
c = a * b
c.backward()
assert a.child.grad is not None
assert torch.equal(
    torch.as_tensor(a.grad.child.child if a.grad.is_wrapper else a.grad), torch.tensor([[2.0, 4], [3, 2]])
)

# Over a pointer: the graph is kept here, the values there.
x = torch.tensor([[3.0, 2], [-1, 2]]).send(bob, local_autograd=True)
assert isinstance(x.child, AutogradTensor) and isinstance(x.child.child, sy.PointerTensor)
y = torch.tensor([[1.0, 1], [1, 1]]).send(bob, local_autograd=True)
(x * y).sum().backward()
grad = x.grad
while grad.is_wrapper or isinstance(grad.child if hasattr(grad, "child") else None, sy.PointerTensor):
    grad = grad.get()
assert grad.tolist() == [[1, 1], [1, 1]]

# Over shares.
s = torch.tensor([1.5, -2.0]).fix_prec().share(bob, alice, crypto_provider=james, requires_grad=True)
assert isinstance(s.child, AutogradTensor)
loss = (s * s).sum()
loss.backward()
assert torch.allclose(s.grad.get().float_prec(), torch.tensor([3.0, -4.0]), atol=1e-2)
