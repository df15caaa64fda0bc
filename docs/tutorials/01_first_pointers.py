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
# # 1. First pointers
#
# A *pointer* is a tensor whose values are on another machine. You compute with it as with any other tensor. The
# computation happens where the values are. In this tutorial you send a tensor away, compute on it, fetch a result,
# and read the error you get when two tensors are in different places.
#
# You need: `pip install resyft`. Time: five minutes.

# %%
import torch

import syft as sy

hook = sy.TorchHook(torch)  # adds send(), get(), tag() and others to torch's tensors
bob = sy.VirtualWorker(hook, id="bob")
bob

# %% [markdown]
# `bob` is a *worker*: a place that stores tensors and runs operations. A `VirtualWorker` lives in this process and
# follows the rules of a remote machine, so it is good for learning and for tests. Tutorial 4 uses real processes.
#
# ## Send

# %%
temperatures = torch.tensor([36.6, 38.9, 37.1, 39.4])
pointer = temperatures.send(bob)
print(pointer)
print("on bob:", len(bob._objects), "object; shape:", tuple(pointer.shape))

# %% [markdown]
# The output shows who owns the pointer (`me`) and where it points (`bob`), each with the id of the object. It shows
# no values. The shape is known without asking bob.
#
# ## Compute
#
# Write ordinary torch. Each line sends bob an instruction and returns a new pointer at once.

# %%
fahrenheit = pointer * 9 / 5 + 32
fever = pointer > 38
print(fahrenheit)

# %% [markdown]
# ## Fetch
#
# `get()` brings the value here and removes it from bob.

# %%
print(fahrenheit.get())
print("patients with fever:", fever.sum().get().item())

# %%
assert torch.allclose((pointer * 2).get(), temperatures * 2)

# %% [markdown]
# ## Two places in one operation
#
# Nothing is ever sent without you saying so. An operation on a pointer and a local tensor is an error, and the error
# names both tensors and both remedies.

# %%
try:
    pointer + torch.ones(4)
except sy.exceptions.TensorsNotCollocatedException as error:
    print(error)

# %% [markdown]
# ## Find data by its tags
#
# The owner of a tensor gives it tags and a description. Others search for them.

# %%
torch.tensor([120.0, 135.0, 118.0]).tag("#pressure").describe("Blood pressure at admission.").send(
    bob, garbage_collect_data=False
)

(found,) = bob.search("#pressure")
print(found)
print("mean:", found.mean().get().item())

# %% [markdown]
# ## Clean up
#
# When the last reference to a pointer disappears, bob deletes the object. Nothing accumulates. Tagged data that was
# sent with `garbage_collect_data=False` stays.

# %%
del fahrenheit, fever, pointer
assert len(bob._objects) == 1
bob

# %% [markdown]
# **You can now** send, compute, fetch and search. Next: [remote training](02_remote_training.ipynb).
# The full rules: [Pointers](../pointers.md).
