"""Who has more? Comparisons, maxima and decisions on shared numbers."""

import torch
import torch.nn.functional as F

import syft as sy

hook = sy.TorchHook(torch)
alice = sy.VirtualWorker(hook, id="alice")
bob = sy.VirtualWorker(hook, id="bob")
james = sy.VirtualWorker(hook, id="james")
share = {"crypto_provider": james}

# Two millionaires.
anns, berts = torch.tensor([5_000_000]), torch.tensor([7_300_000])
ann = anns.share(alice, bob, **share)
bert = berts.share(alice, bob, **share)
assert (bert > ann).get().item() == 1
assert (ann >= bert).get().item() == 0

# A table of scores.
scores = torch.tensor([[3, 9, 4], [8, 1, 2]]).share(alice, bob, **share)
assert scores.max().get().item() == 9
assert scores.argmax(dim=1).get().tolist() == [1, 0]
values, indices = scores.max(dim=1)
assert values.get().tolist() == [9, 8] and indices.get().tolist() == [1, 0]
assert (scores == 9).sum().get().item() == 1
assert F.relu(scores - 4).get().tolist() == [[0, 5, 0], [4, 0, 0]]

# With a point, and as a mask.
x = torch.tensor([-2.5, 0.5, 3.0]).fix_prec().share(alice, bob, **share)
positive = x > 0
assert (x * positive).get().float_prec().tolist() == [0, 0.5, 3]
assert x.relu().get().float_prec().tolist() == [0, 0.5, 3]
assert abs(x.max().get().float_prec().item() - 3) < 1e-3

# A secret cannot decide an `if`.
try:
    if x > 0:
        pass
except ValueError as error:
    print("as expected:", error)
else:
    raise AssertionError("a secret decided an if")
