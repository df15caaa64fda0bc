"""Secret sharing, first by hand with Python's integers, then with tensors."""

import random

import torch

import syft as sy

Q = 121639451781281043402593


def encrypt(x, n_shares=3):
    shares = [random.randrange(Q) for _ in range(n_shares - 1)]
    return (*shares, (x - sum(shares)) % Q)


def decrypt(shares):
    return sum(shares) % Q


def add(a, b):
    return tuple((i + j) % Q for i, j in zip(a, b, strict=True))


assert decrypt(add(encrypt(5), encrypt(10))) == 15

# The same with tensors. Each machine holds one share.
hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
bill = sy.VirtualWorker(hook, id="bill")

x = torch.tensor([25])
shared = x.share(bob, alice, bill)
print(shared)
assert len(bob._objects) == len(alice._objects) == len(bill._objects) == 1

# Shares are random numbers that add up to the secret, modulo the size of the field.
parts = [list(worker._objects.values())[0] for worker in (bob, alice, bill)]
assert sum(int(part) for part in parts) % shared.child.field == 25
assert all(int(part) != 25 for part in parts)
total = parts[0] + parts[1] + parts[2]
assert (total % shared.child.field).item() == 25
assert shared.get().item() == 25

crypto_provider = sy.VirtualWorker(hook, id="crypto_provider")
x = torch.tensor([25]).share(bob, alice, crypto_provider=crypto_provider)
y = torch.tensor([5]).share(bob, alice, crypto_provider=crypto_provider)
assert (x + y).get().item() == 30
assert (x - y).get().item() == 20
assert (x * y).get().item() == 125
assert (x > y).get().item() == 1
assert (x < y).get().item() == 0
assert (x == y).get().item() == 0
assert (x == y + 20).get().item() == 1
assert (x % 7).get().item() == 4

# Matrices.
a = torch.tensor([[1, 2], [3, 4]]).share(bob, alice, crypto_provider=crypto_provider)
b = torch.tensor([[2, 0], [0, 2]]).share(bob, alice, crypto_provider=crypto_provider)
assert a.mm(b).get().tolist() == [[2, 4], [6, 8]]
