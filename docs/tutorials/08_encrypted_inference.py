# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8. Encrypted inference of a CNN, with its bill
#
# A clinic has an X-ray it may not show. A company has a model it will not show. Both split their numbers into random
# *shares*: each of two servers gets one, and one share alone says nothing. The servers compute the answer on shares,
# and only the answer is put together.
#
# You need: `pip install 'resyft[plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
alice, bob, provider = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "provider"))

# %% [markdown]
# ## Shares

# %%
x = torch.tensor([1.5, -2.0, 0.25])
secret = x.fix_precision().share(alice, bob, crypto_provider=provider)
for pointer in secret.child.child.pointers:
    print(pointer.location.id, "holds", pointer.location.get_obj(pointer.id_at_location).tolist())
print("product, opened:", (secret * secret).get().float_precision())

# %% [markdown]
# `fix_precision()` writes numbers as integers. `share()` splits them. The *crypto provider* deals random numbers that
# the two need for products; it learns shapes, and nothing of the values.
#
# ## A small CNN
#
# It tells horizontal from vertical stripes, and is trained in the open.

# %%
torch.manual_seed(0)


def stripes(count):
    kinds = torch.randint(2, (count,))
    wave = (torch.arange(8) % 4 < 2).float().expand(8, 8)
    pictures = torch.stack([wave if kind else wave.T for kind in kinds])
    return (pictures + 0.3 * torch.randn(count, 8, 8)).unsqueeze(1), kinds


model = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(36, 16),
    nn.ReLU(),
    nn.Linear(16, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(40):
    pictures, kinds = stripes(64)
    optimizer.zero_grad()
    F.cross_entropy(model(pictures), kinds).backward()
    optimizer.step()
model.eval()

# %% [markdown]
# ## Encrypt both sides

# %%
pictures, kinds = stripes(8)
with torch.no_grad():
    expected = model(pictures)

precision = {"base": 2, "precision_fractional": 16}
model.fix_precision(**precision).share(alice, bob, crypto_provider=provider)
encrypted = pictures.fix_precision(**precision).share(alice, bob, crypto_provider=provider)

with torch.no_grad(), sy.mpc.measure() as bill:
    answer = model(encrypted)
answer = answer.get().float_precision()

error = (answer - expected).abs().max().item()
print("predicted:", answer.argmax(1).tolist())
print("true:     ", kinds.tolist())
print(f"largest error against the open model: {error:.5f}")
assert answer.argmax(1).tolist() == expected.argmax(1).tolist() and error < 0.01

# %% [markdown]
# ## The bill
#
# Computing on shares costs messages. `measure()` counts rounds (how often the two wait for each other) and bytes.

# %%
print(bill)

# %%
lan, wan = bill.on(network=sy.mpc.LAN), bill.on(network=sy.mpc.WAN)
print(
    f"eight pictures, {bill.total.rounds} rounds: {lan:.2f} s on a local network, {wan:.2f} s across a continent"
)
assert wan > lan

bill.plot()
plt.tight_layout()
plt.show()

# %% [markdown]
# Rounds, not bytes, decide on a slow network: send many pictures in one batch. The next pictures are cheaper, because
# the masked weights are kept.
#
# **Who learns what:** alice, bob and the provider learn shapes. Whoever calls `get()` learns the answer. If alice and bob
# put their shares together, they learn everything; so does either of them together with the provider. Choose parties who
# will not. `protocol="spdz2k"` also catches a server
# that sends wrong numbers.
#
# Next: [encrypted training](09_encrypted_training.ipynb). More: [Secrets](../secrets.md),
# [on a network](../secrets_network.md), [on a GPU](../secrets_gpu.md).
