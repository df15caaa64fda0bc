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
# # 3. Federated learning in five minutes
#
# Several owners have data of the same kind. None gives it away. A *federated* training sends the model to the
# owners, each trains it on their own rows, and only the updates come back to be averaged.
#
# You need: `pip install 'resyft[plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy
from syft.federated import Trainer

torch.manual_seed(0)
x = torch.randn(1000, 10)
y = (x @ torch.linspace(-1, 1, 10) > 0).long()
test = TensorDataset(x[800:], y[800:])

# %% [markdown]
# ## Five hospitals
#
# Each worker gets a part of the rows. In a real project they have their rows already (tutorial 4).

# %%
hook = sy.TorchHook(torch)
hospitals = [sy.VirtualWorker(hook, id=f"hospital-{i}") for i in range(5)]
federated = TensorDataset(x[:800], y[:800]).federate(hospitals)
print(federated)

# %% [markdown]
# ## Train in rounds


# %%
def accuracy(output, target):
    return (output.argmax(1) == target).float().mean()


model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
trainer = Trainer(
    model,
    nn.CrossEntropyLoss(),
    federated,
    strategy="fedavg",
    epochs=1,
    batch_size=20,
    optimizer_args={"lr": 0.1},
    evaluate=test,
    metrics={"accuracy": accuracy},
    seed=1,
)
history = trainer.fit(rounds=6)
for report in history.rounds:
    print(report)

# %%
final = history.curve("accuracy")[1][-1]
assert final > 0.93

# %%
axes = history.plot()
axes.set_title("one model, five hospitals")
plt.show()

# %% [markdown]
# ## The loop by hand
#
# `Trainer` is made of parts that you can use yourself. This is the classic loop: a loader yields batches of pointers,
# and the model travels to where each batch is.

# %%
loader = sy.FederatedDataLoader(federated, batch_size=40, shuffle=True)
by_hand = nn.Linear(10, 2)
optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.5)
for data, target in loader:
    by_hand.send(data.location)
    optimizer.zero_grad()
    nn.functional.cross_entropy(by_hand(data), target).backward()
    optimizer.step()
    by_hand.get()
by_hand_accuracy = accuracy(by_hand(x[800:]), y[800:]).item()
print(f"after one epoch by hand: {by_hand_accuracy:.2f}")
assert by_hand_accuracy > 0.9

# %% [markdown]
# By default the server sees every hospital's update. Tutorial 6 hides them in a sum.
#
# Next: [the same over three real processes](04_three_processes.ipynb). All options: [Training in rounds](../trainer.md).
