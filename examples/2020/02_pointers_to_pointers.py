"""Advanced remote execution: pointers to pointers, and who deletes what."""

import torch

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")

# The pointer to bob's tensor is itself sent to alice.
x = torch.tensor([1, 2, 3, 4])
x_ptr = x.send(bob)
pointer_to_x_ptr = x_ptr.send(alice)
assert len(bob._objects) == 1 and len(alice._objects) == 1

# get() peels one level at a time.
x_ptr = pointer_to_x_ptr.get()
assert len(alice._objects) == 0
assert x_ptr.location is bob
assert x_ptr.get().tolist() == [1, 2, 3, 4]

# Operations run at the far end of the chain.
p2p2x = torch.tensor([1, 2, 3, 4, 5]).send(bob).send(alice)
y = p2p2x + p2p2x
assert len(bob._objects) == 2 and len(alice._objects) == 2
assert y.get().get().tolist() == [2, 4, 6, 8, 10]
assert p2p2x.get().get().tolist() == [1, 2, 3, 4, 5]
assert len(bob._objects) == len(alice._objects) == 0

# remote_get() pulls the data one machine nearer; the result may be dropped.
far = torch.tensor([5.0, 6]).send(bob).send(alice)
far.remote_get()
assert len(bob._objects) == 0 and len(alice._objects) == 1
assert far.get().tolist() == [5, 6]

# move() carries data from worker to worker; it never comes here.
here = torch.tensor([7.0, 8]).send(bob)
moved = here.move(alice)
assert moved.location is alice and len(bob._objects) == 0 and len(alice._objects) == 1
assert moved.get().tolist() == [7, 8]

# When the pointer goes, what it points to goes.
x = torch.tensor([1, 2, 3, 4]).send(bob)
assert len(bob._objects) == 1
del x
assert len(bob._objects) == 0
x = torch.tensor([1, 2, 3, 4]).send(bob)
x = "something else"
assert len(bob._objects) == 0

# Unless it is told not to.
x = torch.tensor([1, 2, 3, 4]).send(bob)
assert x.child.garbage_collect_data
x.garbage_collection = False
kept_id = x.id_at_location
del x
assert kept_id in bob._objects
bob.clear_objects()

# A loop leaves one result behind, not a hundred.
x = torch.tensor([1, 2, 3, 4]).send(bob)
for _ in range(100):
    total = x + x
assert len(bob._objects) == 2
