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
# # 14. Your own tensor type
#
# A tensor in resyft can carry a *chain* of types, each of which may change what an operation does: a pointer sends it
# away, a share runs a protocol. You can add a type of your own. It is one class, one overload, one registration.

# %%
import torch
import torch.nn.functional as F

import syft as sy
from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.core.overload import overloaded

# %% [markdown]
# ## The smallest one
#
# `log` of 0 is minus infinity. This type never lets that happen.


# %%
class SafeLog(AbstractTensor):
    @overloaded.method
    def log(self, _self, *args, **kwargs):
        return _self.clamp(min=1e-6).log(*args, **kwargs)


default_register_tensor(SafeLog)

x = SafeLog().on(torch.tensor([0.0, 1.0, 2.0]))
print(x)
print(x.log())
print(torch.log(x))  # the function reaches the overload as well
assert torch.isfinite(x.log().child.child).all()

# %% [markdown]
# `self` is the link of the chain, `_self` what is below it. Everything that you do not overload passes through, and
# gradients need no code:

# %%
w = SafeLog().on(torch.tensor([0.5, 2.0])).requires_grad_()
(w.log() * 3).sum().backward()
print(w.grad)

# %% [markdown]
# ## A type with memory
#
# This one counts multiplications. What results must share is a constructor argument and an entry of
# `get_class_attributes`.


# %%
class Counting(AbstractTensor):
    def __init__(self, counter=None, **kwargs):
        super().__init__(**kwargs)
        self.counter = counter if counter is not None else {"multiplications": 0}

    def get_class_attributes(self):
        return {"counter": self.counter}

    @overloaded.method
    def mul(self, _self, other):
        self.counter["multiplications"] += 1
        return _self.mul(other)


default_register_tensor(Counting)

counted = Counting().on(torch.ones(3))
result = (counted * 2) * counted + 1
print(result, result.child.counter)
assert result.child.counter == {"multiplications": 2}

# %% [markdown]
# ## Chains
#
# Types stack. This one logs every call, then counts, then runs at bob's.

# %%
hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")

stacked = sy.LoggingTensor().on(Counting().on(torch.tensor([1.0, -2.0]).send(bob)))
print(stacked)
out = F.relu(stacked * 3)
print(out.child.child.child.get())
assert out.child.child.counter == {"multiplications": 1}

# %% [markdown]
# Next: [running a worker for your hospital](15_owner.ipynb). Functions of modules, rules for aten operations:
# [Your own tensor type](../extending.md); the picture of a chain: [The chain](../chain.md).
