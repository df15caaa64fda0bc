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
# # 9. Encrypted training
#
# Two banks want one model for fraud, trained on the customers of both. Neither shows its customers, and nobody is to
# see the model while it is trained. They share data *and* model; torch's autograd and optimizers run on the shares.
#
# You need: `pip install 'resyft[plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
alice, bob, provider = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "provider"))

# %% [markdown]
# ## The data of two banks
#
# Each bank splits its own rows. Each server puts its shares of both tables below each other, and nobody sees a row.

# %%
torch.manual_seed(0)
weights = torch.tensor([[1.0], [-2.0], [0.5], [1.5]])


def customers(count):
    x = torch.randn(count, 4)
    return x, (x @ weights > 0).float()


def share(tensor):
    return tensor.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=provider)


(x_one, y_one), (x_two, y_two) = customers(60), customers(60)
x = torch.cat([share(x_one), share(x_two)])
y = torch.cat([share(y_one), share(y_two)])
print(x)

# %% [markdown]
# ## Train
#
# The loop is that of plain torch. The loss is opened every few steps, because we want to see a curve. What is opened is
# no secret any more.

# %%
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
model.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=provider)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)

losses = []
for step in range(24):
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        losses.append(loss.get().float_precision().item())
print([round(value, 3) for value in losses])

# %%
figure, axes = plt.subplots(figsize=(5, 3))
axes.plot(range(0, 24, 3), losses, marker="o")
axes.set(xlabel="step", ylabel="loss, opened", title="training on shares")
plt.show()

# %% [markdown]
# ## Open the model
#
# When both banks agree, the trained model is opened and used like any other.

# %%
model.get().float_precision()
x_test, y_test = customers(200)
accuracy = ((model(x_test) > 0) == y_test.bool()).float().mean().item()
print(f"accuracy on new customers: {accuracy:.2f}")
assert accuracy > 0.9
assert losses[-1] < losses[0] / 2

# %% [markdown]
# ## Find the right precision
#
# Arithmetic on shares is that of 64-bit integers, and an overflow is silent: nobody sees the values. `checked()` runs
# each operation a second time on plain numbers and raises where the two differ. Use it on made-up data.

# %%
large = torch.tensor([5000.0]).fix_precision(base=2, precision_fractional=20)
large = large.share(alice, bob, crypto_provider=provider)
try:
    with sy.mpc.checked():
        large * large
except sy.mpc.SecretOverflowError as error:
    print(error)
else:
    raise AssertionError("an overflow went unnoticed")

# %% [markdown]
# Next: [a Hugging Face model](10_hugging_face.ipynb). Which layers, losses and optimizers work, and how exactly:
# [What works on secrets](../secrets_coverage.md).
