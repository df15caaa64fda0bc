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
# # 7. Plans and training plans
#
# Operation by operation, a remote program sends one message per torch call. A *plan* is a function that was traced
# once: it travels, and from then on a call is one message. A plan can be printed, saved, searched for, differentiated
# and run on secret shares.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob", log_msgs=True)


# %%
@sy.func2plan(args_shape=[(-1, 4)])  # -1: any number of rows
def standardise(x):
    centred = x - x.mean(dim=0)
    return centred / (centred.std(dim=0) + 1e-6)


print(standardise)

# %% [markdown]
# Each line is one operation. Called on a local tensor, it runs here. Sent to bob, it runs there.

# %%
x = 5 + 3 * torch.randn(50, 4)
there = standardise.send(bob)
result = there(x.send(bob))
assert torch.allclose(result.get(), standardise(x))

# %% [markdown]
# ## What cannot be a plan
#
# A plan has no `if` on values: the values are not known while it is traced. This is refused when the plan is built,
# with the file and the line.

# %%
try:
    sy.func2plan(args_shape=[(-1, 4)])(lambda x: x if x.sum() > 0 else -x)
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## A model as a plan
#
# Parameters become the plan's *state* and travel with it.

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
plan = sy.func2plan(args_shape=[(-1, 4)])(model)
plan.tag("#classifier").describe("four readings, three classes")
kept = plan.send(bob)

(found,) = bob.search("#classifier")
assert torch.allclose(found(x.send(bob)).get(), model(x))

# %% [markdown]
# ## A training plan
#
# Forward pass, loss, backward pass and the optimizer's step become one plan: one message per batch.

# %%
torch.manual_seed(1)
data = torch.randn(64, 4)
target = data[:, :3].argmax(1)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
training = sy.Plan.training(
    model, F.cross_entropy, optimizer, args_shape=[(-1, 4), (-1,)], args_dtype=[torch.float32, torch.int64]
)
remote = training.send(bob)
data_there, target_there = data.send(bob), target.send(bob)

before = len(bob.msg_history)
losses = [remote(data_there, target_there) for _ in range(20)]
messages = len(bob.msg_history) - before
losses = [loss.get().item() for loss in losses]
training.get_()  # parameters and the optimizer's state come back
print(f"20 steps took {messages} messages; loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert messages == 20 and losses[-1] < losses[0] / 2

# %% [markdown]
# ## Save and load

# %%
saved = sy.serde.serialize(plan)
loaded = sy.serde.deserialize(saved)
assert torch.equal(loaded(x), plan(x))
print(f"{len(saved)} bytes, operations and parameters; no Python code in them")

# %% [markdown]
# Next: [encrypted inference with its bill](08_encrypted_inference.ipynb). More: [Plans](../plans.md).
