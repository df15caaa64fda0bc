"""Numbers with a point: fixed precision, by hand and as tensors, in the clear and shared."""

import torch

import syft as sy

BASE, PRECISION_FRACTIONAL, Q = 10, 4, 293973345475167247070445277780365744413


def encode(x):
    return int(x * BASE**PRECISION_FRACTIONAL) % Q


def decode(x):
    return (x if x <= Q / 2 else x - Q) / BASE**PRECISION_FRACTIONAL


assert decode(encode(-3.5)) == -3.5
assert decode((encode(5.5) + encode(2.3)) % Q) == 7.8

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
crypto_provider = sy.VirtualWorker(hook, id="crypto_provider")

x = torch.tensor([0.1, 0.2, 0.3])
fixed = x.fix_prec()
print(fixed)
assert fixed.child.child.tolist() == [100, 200, 300]
assert torch.allclose((fixed + fixed).float_prec(), torch.tensor([0.2, 0.4, 0.6]))
assert torch.allclose((fixed * fixed).float_prec(), torch.tensor([0.01, 0.04, 0.09]), atol=1e-3)

shared = x.fix_prec().share(bob, alice, crypto_provider=crypto_provider)
assert torch.allclose((shared + shared).get().float_prec(), torch.tensor([0.2, 0.4, 0.6]))
assert torch.allclose((shared * 3).get().float_prec(), torch.tensor([0.3, 0.6, 0.9]), atol=2e-3)
assert torch.allclose((shared / 2).get().float_prec(), torch.tensor([0.05, 0.1, 0.15]), atol=2e-3)

# Comparisons are numbers: one and zero.
signed = torch.tensor([-1.5, 0.0, 2.5]).fix_prec().share(bob, alice, crypto_provider=crypto_provider)
sign = (signed > 0) - (signed < 0)
assert sign.get().float_prec().tolist() == [-1, 0, 1]
votes = (signed >= 0) + (signed >= 0) + (signed >= 0)
assert votes.get().float_prec().tolist() == [0, 3, 3]

# More digits.
fine = torch.tensor([3.14159]).fix_precision(precision_fractional=5)
assert fine.float_precision().item() - 3.14159 < 1e-6

# The sum of a matrix product stays right for negative numbers and three holders.
carol = sy.VirtualWorker(hook, id="carol")
m = torch.tensor([[-1.25, 2.5], [0.5, -4.0]])
secret = m.fix_prec().share(bob, alice, carol, crypto_provider=crypto_provider)
assert torch.allclose((secret @ secret).get().float_prec(), m @ m, atol=5e-3)
