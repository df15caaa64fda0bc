"""A tensor type of one's own: it counts the operations that pass through it."""

import torch

import syft as sy
from syft.generic.frameworks.hook import hook_args
from syft.generic.frameworks.overload import overloaded
from syft.generic.tensor import AbstractTensor

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
calls = []


class CountingTensor(AbstractTensor):
    def __init__(self, owner=None, id=None, tags=None, description=None):
        super().__init__(id=id, owner=owner, tags=tags, description=description)

    @overloaded.method
    def add(self, _self, other):
        calls.append("add")
        return _self.add(other)

    @overloaded.method
    def mul(self, _self, other):
        calls.append("mul")
        return _self.mul(other)

    @staticmethod
    @overloaded.module
    def torch(module):
        def add(x, y):
            calls.append("torch.add")
            return x + y

        module.add = add

        @overloaded.module
        def nn(module):
            @overloaded.module
            def functional(module):
                @overloaded.function
                def relu(x):
                    calls.append("relu")
                    return torch.nn.functional.relu(x)

                module.relu = relu

            module.functional = functional

        module.nn = nn


hook_args.default_register_tensor(CountingTensor)

x = CountingTensor().on(torch.tensor([-1.0, 2.0]))
print(x)
assert type(x.child) is CountingTensor and x.child.child.tolist() == [-1, 2]
y = torch.nn.functional.relu(x * 2)
z = x + x
assert isinstance(y.child, CountingTensor)
assert y.child.child.tolist() == [0, 4]
assert z.child.child.tolist() == [-2, 4]
print(calls)
assert "mul" in calls and "relu" in calls and "add" in calls

# It can stand on top of others.
logged = sy.LoggingTensor().on(CountingTensor().on(torch.tensor([1.0])))
print(logged + logged)
assert logged.child.child.child.tolist() == [1]
