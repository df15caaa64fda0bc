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
# # 5. Strategies and drop-outs
#
# Clients differ: in their data, in how long they take, and in whether they can be trusted. A *strategy* says how the
# server turns updates into a new model. This tutorial compares four of them on data that is far from evenly spread,
# then lets clients fail and cheat.
#
# You need: `pip install 'resyft[plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from syft.federated import FedProx, Trainer, label_table, partition_dirichlet
from syft.federated.records import FitResult

torch.manual_seed(0)
centres = 1.6 * torch.randn(4, 6)
labels = torch.randint(4, (800,))
inputs = centres[labels] + torch.randn(800, 6)
train, test = TensorDataset(inputs[:600], labels[:600]), TensorDataset(inputs[600:], labels[600:])

# %% [markdown]
# ## Uneven clients
#
# A Dirichlet distribution with a small `alpha` gives most clients one or two of the four classes.

# %%
parts = partition_dirichlet(
    labels[:600], 6, alpha=0.2, min_size=20, generator=torch.Generator().manual_seed(3)
)
print(label_table(parts, labels[:600]))
clients = {f"client-{i}": Subset(train, part) for i, part in enumerate(parts)}

# %% [markdown]
# ## Four strategies


# %%
def accuracy(output, target):
    return (output.argmax(1) == target).float().mean()


def train_with(strategy, clients=clients, rounds=5, **options):
    torch.manual_seed(1)
    trainer = Trainer(
        nn.Linear(6, 4),
        nn.CrossEntropyLoss(),
        clients,
        strategy=strategy,
        epochs=1,
        batch_size=25,
        optimizer_args={"lr": 0.05},
        evaluate=test,
        metrics={"accuracy": accuracy},
        seed=1,
        **options,
    )
    return trainer.fit(rounds)


histories = {
    "FedAvg": train_with("fedavg"),
    "FedProx, mu=0.5": train_with(FedProx(mu=0.5)),
    "SCAFFOLD": train_with("scaffold"),
    "FedAdam": train_with("fedadam"),
}
figure, axes = plt.subplots(figsize=(6, 3.4))
for name, history in histories.items():
    axes.plot(*history.curve("accuracy"), marker="o", label=name)
axes.set(xlabel="round", ylabel="accuracy", title="six clients with one or two classes each")
axes.legend()
plt.show()

# %%
final = {name: history.curve("accuracy")[1][-1] for name, history in histories.items()}
print({name: round(value, 3) for name, value in final.items()})
assert final["FedAvg"] > 0.7 and final["SCAFFOLD"] > 0.7

# %% [markdown]
# ## Clients that fail
#
# A client may raise an error, hang, or send NaN. The round goes on with the others and its report says who is missing
# and why. With fewer than `min_clients` usable updates the round is refused and the model stays as it was.


# %%
class Broken:
    """A client of your own has `fit` and `evaluate`; this one's line is dead."""

    def fit(self, instructions):
        raise ConnectionError("the line is dead")

    def evaluate(self, instructions):
        return None


history = train_with("fedavg", {**clients, "client-6": Broken()}, rounds=1, min_clients=5)
print(history.rounds[0])
assert [failure.client for failure in history.rounds[0].failures] == ["client-6"]

# %% [markdown]
# ## Clients that cheat
#
# A client that sends any numbers it likes can ruin a mean. It cannot ruin a median.


# %%
class Liar(Broken):
    """Sends an update of huge numbers, and claims to have many examples."""

    def fit(self, instructions):
        update = {name: 100 * torch.randn_like(value) for name, value in instructions.state.items()}
        return FitResult(instructions.round, update, num_examples=1000, steps=1)


with_liar = {**clients, "client-6": Liar()}
mean = train_with("fedavg", with_liar, rounds=3).curve("accuracy")[1][-1]
median = train_with("median", with_liar, rounds=3).curve("accuracy")[1][-1]
print(f"with one liar: mean {mean:.2f}, median {median:.2f}")
assert median > mean + 0.1

# %% [markdown]
# Next: [secure aggregation](06_secure_aggregation.ipynb). All strategies: [Training in rounds](../trainer.md).
