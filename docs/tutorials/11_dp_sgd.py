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
# # 11. DP-SGD with an epsilon curve
#
# A trained model can remember rows of its data. *Differential privacy* bounds that: whatever somebody concludes from
# the model, they would have concluded almost the same had one person's row not been there. *Almost* is a number,
# epsilon: small is private. DP-SGD clips the gradient of every example and adds noise to their sum.
#
# You need: `pip install 'resyft[dp,plot]'`.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import syft as sy
from syft.dp.dpsgd import make_private

torch.manual_seed(0)
x = torch.randn(2500, 8)
y = (x @ torch.linspace(-1, 1, 8) > 0).long()
train, x_test, y_test = TensorDataset(x[:2000], y[:2000]), x[2000:], y[2000:]

# %% [markdown]
# ## One call makes a training private
#
# `target_epsilon` and `epochs` decide how much noise there is. Epsilon after the last step is at most the target.


# %%
def train_privately(**privacy):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    training = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        DataLoader(train, batch_size=200),
        loss_fn=nn.CrossEntropyLoss(),
        max_grad_norm=1.0,
        **privacy,
    )
    curve = []
    for _ in range(4):
        for inputs, targets in training.loader:
            training.step(inputs, targets)
        curve.append(training.epsilon(1e-5))
    accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    return accuracy, curve, training


accuracy, curve, training = train_privately(target_epsilon=3.0, target_delta=1e-5, epochs=4)
print(f"accuracy {accuracy:.2f} at epsilon {curve[-1]:.2f}")
assert accuracy > 0.8 and curve[-1] <= 3.0

# %% [markdown]
# ## The price of privacy
#
# More noise, less epsilon, less accuracy. `noise_multiplier` is the standard deviation of the noise, in units of the
# clipping bound.

# %%
trials = [train_privately(noise_multiplier=noise) for noise in (8.0, 4.0, 2.0, 1.0)]
accuracies = [trial[0] for trial in trials]
epsilons = [trial[1][-1] for trial in trials]

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(range(1, 5), curve, marker="o")
left.axhline(3.0, linestyle="--", color="grey")
left.set(xlabel="epoch", ylabel="epsilon spent", title="never above the target")
right.plot(epsilons, accuracies, marker="o")
right.set(xscale="log", xlabel="epsilon", ylabel="accuracy", title="privacy costs accuracy")
plt.tight_layout()
plt.show()

# %%
assert all(a <= b for a, b in zip(curve, curve[1:], strict=False))
assert accuracies[-1] > 0.85

# %% [markdown]
# ## The training stops by itself
#
# A step beyond the plan is refused: it would cost more than was promised.

# %%
try:
    for inputs, targets in training.loader:
        training.step(inputs, targets)
except sy.exceptions.BudgetExceededError as error:
    print(error)
else:
    raise AssertionError("a step beyond the target was taken")

# %% [markdown]
# What `step` returns and accuracies on training data have no noise: do not publish them. The model you may publish.
#
# Next: [budgets and releases](12_budgets_and_releases.ipynb). The promise in detail:
# [Differential privacy](../differential_privacy.md).
