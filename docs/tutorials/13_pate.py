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
# # 13. PATE: learning from teachers who vote
#
# Fifty hospitals each train a *teacher* on their own patients. For each public example the teachers vote, noise is
# added to the counts, and only the winner is published. A *student* learns from the winners. The student never meets the
# patients, and one patient can change at most one vote.
#
# You need: `pip install 'resyft[dp,plot]'`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from syft.frameworks.torch.dp import pate

torch.manual_seed(0)
centres = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])


def people(count):
    kinds = torch.randint(3, (count,))
    return centres[kinds] + 0.7 * torch.randn(count, 2), kinds


# %% [markdown]
# ## The teachers vote
#
# A teacher can be any model. Here it is the least-squares fit of the classes.


# %%
def teacher():
    x, kinds = people(40)
    weights = torch.linalg.lstsq(
        nn.functional.pad(x, (0, 1), value=1.0), nn.functional.one_hot(kinds, 3).float()
    )
    return lambda questions: nn.functional.pad(questions, (0, 1), value=1.0) @ weights.solution


teachers = [teacher() for _ in range(50)]
questions, truth = people(60)  # public and without labels; `truth` is for this tutorial only
votes = torch.stack([vote(questions).argmax(1) for vote in teachers]).numpy()
print("teachers x questions:", votes.shape)

# %% [markdown]
# ## Noise, and the winner
#
# `sigma` is the standard deviation of the noise on each count.

# %%
from syft.dp import gnmax

sigma = 8.0
counts = np.stack([(votes == kind).sum(0) for kind in range(3)])
noisy = counts + np.random.default_rng(0).normal(0, sigma, counts.shape)
answers = torch.from_numpy(noisy.argmax(0))
right = (answers == truth).float().mean().item()
print(f"{right:.0%} of the noisy answers are right")
assert right > 0.8

# %%
figure, axes = plt.subplots(figsize=(6, 3))
places = np.arange(3)
axes.bar(places - 0.2, counts[:, 0], 0.4, label="votes (private)")
axes.bar(places + 0.2, noisy[:, 0], 0.4, label="with noise")
axes.set(xticks=places, xlabel="class", title="question 0: only the winner is told")
axes.legend()
plt.show()

# %% [markdown]
# This noise is for the picture. With real votes, `worker.release(ballots, "gnmax", ...)` draws it from the operating
# system and charges a budget first: see [PATE with teachers elsewhere](../pate_remote.md).
#
# ## The student

# %%
student = nn.Linear(2, 3)
optimizer = torch.optim.SGD(student.parameters(), lr=0.5)
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(student(questions), answers).backward()
    optimizer.step()
x_test, y_test = people(500)
accuracy = (student(x_test).argmax(1) == y_test).float().mean().item()
print(f"student's accuracy: {accuracy:.2f}")
assert accuracy > 0.85

# %% [markdown]
# ## What it cost

# %%
analysis = gnmax.analyse(votes, np.arange(60), sigma=sigma, num_classes=3)
print(f"epsilon by the number of questions: {analysis.data_independent_epsilon:.2f} (may be published)")
print(f"epsilon by how clear the votes were: {analysis.not_releasable_epsilon}")
assert float(analysis.not_releasable_epsilon) <= analysis.data_independent_epsilon

# %% [markdown]
# The second figure is smaller, but it was computed from the votes, so it is private itself and says so when printed.
# Courses of 2019 used `perform_analysis`, with Laplace noise. It is here, too:

# %%
dependent, independent = pate.perform_analysis(
    teacher_preds=votes, indices=np.arange(60), noise_eps=0.1, delta=1e-5, moments=20, num_classes=3
)
print(f"{dependent} / {independent:.2f}")
assert dependent <= independent

# %% [markdown]
# Next: [your own tensor type](14_own_tensor_type.ipynb).
