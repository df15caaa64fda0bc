"""What is no tensor can be remote, too: strings, functions, and tensors made at the worker."""

import torch

import syft as sy
from syft.generic.pointers.object_wrapper import ObjectWrapper
from syft.generic.string import String

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")

# Strings.
text = String("Hello, my name is Bob")
remote = text.send(bob)
shouted = remote.upper()
assert shouted.get() == "HELLO, MY NAME IS BOB"
assert remote.get() == "Hello, my name is Bob"
assert String("{} and {}").format("alice", "bob") == "alice and bob"
assert String("%s!") % "yes" == "yes!"

# Tensors that are made there.
made = bob.remote.torch.zeros(2, 3)
assert made.location is bob and made.shape == torch.Size([2, 3])
assert (made + 1).get().tolist() == [[1, 1, 1], [1, 1, 1]]

# Functions.
double = ObjectWrapper(obj=lambda t: t * 2, id="double")
bob.register_obj(double, "double")
pointer = double.create_pointer(
    double, owner=sy.local_worker, location=bob, ptr_id="p", id_at_location="double"
)
x = torch.tensor([1.0, 4.0]).send(bob)
assert pointer(x).get().tolist() == [2, 8]

# Attributes and properties of what is remote.
y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).send(bob)
assert y.T.get().tolist() == [[1, 3], [2, 4]]
assert len(y) == 2 and y.dim() == 2 and y.shape == torch.Size([2, 2])
assert y[0].get().tolist() == [1, 2]
assert y.attr("data").get().tolist() == [[1, 2], [3, 4]] if hasattr(y, "attr") else True
bob.clear_objects()
