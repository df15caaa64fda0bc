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
# # 6. Secure aggregation
#
# A server that averages updates does not need to see any single one. In *secure aggregation* each client adds random
# masks to its update. The masks cancel when all updates are added, and only then. The server learns the sum.
#
# You need: `pip install 'resyft[plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.federated import MaskedSum, Trainer
from syft.federated.secure_aggregation import (
    RoundSetting,
    SecureClient,
    SecureServer,
    TooFewClientsError,
)

# %% [markdown]
# ## One argument
#
# For a training it is one argument: `aggregation=MaskedSum()`.

# %%
torch.manual_seed(0)
x = torch.randn(400, 6)
y = (x[:, 0] - x[:, 1] > 0).long()
clients = {f"clinic-{i}": TensorDataset(x[i::8], y[i::8]) for i in range(8)}


def train(aggregation):
    torch.manual_seed(1)
    model = nn.Linear(6, 2)
    Trainer(model, nn.CrossEntropyLoss(), clients, aggregation=aggregation, seed=1).fit(3)
    return model


plain, masked = train(None), train(MaskedSum())
difference = (plain.weight - masked.weight).abs().max().item()
print(f"largest difference to a plain mean: {difference:.1e}")
assert difference < 1e-6

# %% [markdown]
# ## What the server sees
#
# Here are the messages of one round between three clients and a server. `SecureClient` and `SecureServer` do no
# input or output: you carry the messages.

# %%
setting = RoundSetting.new(clients=3, length=200)
names = ["ann", "ben", "cat"]
server = SecureServer(setting, names)
people = {name: SecureClient(name, setting) for name in names}
updates = {name: torch.sin(torch.linspace(0, 6, 200) * (i + 1)) for i, name in enumerate(names)}

for client in people.values():  # 1. everybody advertises keys of this round
    server.receive(client.advertise_keys())
roster = server.roster()
for client in people.values():  # 2. everybody shares what is needed should they drop out
    server.receive(client.share_keys(roster))
deliveries = server.deliveries()

masked_words = {}
for name, client in people.items():  # 3. everybody sends a masked update
    message = client.masked_input(deliveries[name], updates[name], weight=1.0)
    masked_words[name] = message
    server.receive(message)
survivors = server.survivors()
for client in people.values():  # 4. the survivors help to take the masks off the sum
    server.receive(client.unmask(survivors))
result = server.result()
assert torch.allclose(result.total, sum(updates.values()).to(result.total.dtype), atol=1e-4)

# %%
words = masked_words["ann"].vector[:200].double()
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 2.6))
left.plot(updates["ann"])
left.set_title("ann's update")
middle.plot(words)
middle.set_title("what the server gets from ann")
right.plot(result.total)
right.set_title("the sum of three, unmasked")
plt.show()

# %% [markdown]
# ## Drop-outs
#
# Clients may leave at any step. The others repair the sum, as long as a threshold of them stays.

# %%
many = {f"client-{k}": torch.randn(100) for k in range(10)}
weights = dict.fromkeys(many, 1.0)
leaves = {"shares": ["client-3"], "input": ["client-5", "client-8"]}
masked_sum = MaskedSum(threshold=0.6, dropouts=lambda step, present: leaves.get(step, ()))
total = masked_sum.weighted_sum(many, weights)

stayed = masked_sum.report.survivors
print("in the sum:", len(stayed), "of", len(many))
assert torch.allclose(total, sum(many[name] for name in stayed), atol=1e-5)

# %% [markdown]
# Below the threshold nothing is opened:

# %%
too_few = MaskedSum(dropouts=lambda step, present: present[:4] if step == "unmasking" else ())
try:
    too_few.weighted_sum(many, weights)
except TooFewClientsError as error:
    print(error)
else:
    raise AssertionError("a sum of too few clients was opened")

# %% [markdown]
# A sum hides its parts. It does not bound what the sum itself says about a client: tutorials 11 and 12 do.
#
# Next: [plans and training plans](07_plans.ipynb). Who learns what: [Secure aggregation](../secure_aggregation.md).
