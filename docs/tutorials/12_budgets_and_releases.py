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
# # 12. Budgets and releases
#
# A hospital lets people compute on its data. They may fetch nothing: neither rows nor anything computed from them.
# One door is open: *releases*, statistics with noise. Each costs epsilon from a budget, and when the budget is spent
# the door closes.
#
# You need: `pip install 'resyft[dp,plot]'`.

# %%
import matplotlib.pyplot as plt
import torch

import syft as sy

hook = sy.TorchHook(torch)
hospital = sy.VirtualWorker(hook, id="hospital")

torch.manual_seed(0)
ages = (45 + 14 * torch.randn(5000)).clamp(0, 100)

# %% [markdown]
# ## The owner
#
# The tensor is private to `owner`. Every user gets an epsilon of 2, and all of them together 3: users may collude.

# %%
private = ages.unsqueeze(1).private_tensor(allowed_users=("owner",)).tag("#ages").send(hospital, user="owner")
hospital.set_budget(dataset="#ages", epsilon=2.0)
hospital.set_budget(dataset="#ages", together=True, epsilon=3.0)

# %% [markdown]
# ## Ann computes and cannot fetch

# %%
(found,) = hospital.search("#ages")
old = found > 65
try:
    old.sum().get(user="ann")
except sy.exceptions.GetNotPermittedError as error:
    print(error)
else:
    raise AssertionError("a private value was fetched")

# %% [markdown]
# ## Ann asks for releases

# %%
mean = hospital.release(found[:, 0], "mean", epsilon=0.5, bounds=(0, 100), user="ann")
count = hospital.release(found[:, 0] > 65, "count", epsilon=0.5, user="ann")
print(f"mean {mean:.2f} (true {ages.mean():.2f}), older than 65: {count:.0f} (true {(ages > 65).sum()})")
assert abs(mean - ages.mean()) < 2 and abs(count - (ages > 65).sum()) < 60

state = hospital.budget("ann", "#ages")
print(f"spent {state.spent}, left {state.left}")
assert state.left == 1.0

# %% [markdown]
# ## The budget ends
#
# A release that costs more than is left is refused, and nothing is charged.

# %%
try:
    hospital.release(found[:, 0], "mean", epsilon=1.5, bounds=(0, 100), user="ann")
except sy.exceptions.BudgetExceededError as error:
    print(error)
else:
    raise AssertionError("more was released than the budget allows")
assert hospital.budget("ann", "#ages").left == 1.0

# %% [markdown]
# Ben has a budget of his own, and what he and Ann learn together is bounded by 3.

# %%
hospital.release(found[:, 0], "mean", epsilon=2.0, bounds=(0, 100), user="ben")
try:
    hospital.release(found[:, 0], "mean", epsilon=0.5, bounds=(0, 100), user="ann")
except sy.exceptions.BudgetExceededError as error:
    print(error)
else:
    raise AssertionError("two users together learned more than the owner allowed")

# %% [markdown]
# ## How much noise is an epsilon?
#
# The same mechanism, outside of any worker: 300 noisy means for three values of epsilon.

# %%
from syft.dp import mechanisms

sample = ages[:200].numpy()
figure, axes = plt.subplots(figsize=(6, 3.2))
spreads = {}
for epsilon in (0.1, 0.5, 2.0):
    noisy = [mechanisms.bounded_mean(sample, bounds=(0, 100), epsilon=epsilon) for _ in range(300)]
    axes.hist(noisy, bins=40, alpha=0.6, label=f"epsilon {epsilon}")
    spreads[epsilon] = torch.tensor(noisy).std().item()
axes.axvline(sample.mean(), color="black")
axes.set(xlabel="released mean of 200 ages", title="the black line is the true mean")
axes.legend()
plt.show()
print({epsilon: round(spread, 2) for epsilon, spread in spreads.items()})
assert spreads[0.1] > spreads[0.5] > spreads[2.0]

# %% [markdown]
# Next: [PATE](13_pate.ipynb). Every rule of a budget: [Budgets and releases](../budgets.md).
