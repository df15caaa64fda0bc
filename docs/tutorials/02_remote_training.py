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
# # 2. Remote training
#
# The data is on bob's machine and may not leave it. You send a model there, train it with torch's own autograd and
# optimizer, and bring it back. The result is equal, bit for bit, to training on your own machine.
#
# You need: `pip install 'resyft[plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")

torch.manual_seed(0)
x = torch.randn(200, 2)
y = (x[:, 0] * x[:, 1] > 0).long()  # two classes, in opposite quadrants


def new_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


# %% [markdown]
# ## The training loop
#
# `model.send(bob)` moves the parameters to bob, in place. After that the loop is the one you know: the forward pass,
# `backward()` and `optimizer.step()` all run at bob's. `loss.get()` fetches one number.

# %%
data, target = x.send(bob), y.send(bob)

model = new_model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

model.send(bob)
losses = []
for _ in range(60):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.get().item())
model.get()
print(f"loss: {losses[0]:.3f} -> {losses[-1]:.3f}")

# %%
accuracy = (model(x).argmax(1) == y).float().mean().item()
print(f"accuracy: {accuracy:.2f}")
assert accuracy > 0.95

# %% [markdown]
# ## Is it the same as local training?

# %%
local = new_model()
local_optimizer = torch.optim.Adam(local.parameters(), lr=0.05)
for _ in range(60):
    local_optimizer.zero_grad()
    F.cross_entropy(local(x), y).backward()
    local_optimizer.step()

identical = all(torch.equal(a, b) for a, b in zip(model.parameters(), local.parameters(), strict=True))
print("all parameters identical:", identical)
assert identical

# %% [markdown]
# ## A look at it

# %%
side = torch.linspace(-3, 3, 60)
grid = torch.cartesian_prod(side, side)
with torch.no_grad():
    surface = model(grid).softmax(1)[:, 1].reshape(60, 60)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
left.plot(losses)
left.set(xlabel="step", ylabel="loss", title="training at bob's")
right.contourf(side, side, surface.T, levels=8, cmap="RdBu")
right.scatter(x[:, 0], x[:, 1], c=y, cmap="RdBu", edgecolors="black", s=12)
right.set(title="what the model learned")
plt.show()

# %% [markdown]
# **What bob sees:** the data (it is his) and the model. **What you see:** the model and the losses that you fetch. A
# model can remember rows: [SECURITY](../security.md) says what follows from that, and tutorial 11 bounds it.
#
# Next: [federated learning in five minutes](03_federated_five_minutes.ipynb).
