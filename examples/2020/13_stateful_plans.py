"""Plans with state, fetched by another worker, also encrypted."""

import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
alice = sy.VirtualWorker(hook, id="alice")
bob = sy.VirtualWorker(hook, id="bob")
charlie = sy.VirtualWorker(hook, id="charlie")


# A function with a state.
@sy.func2plan(args_shape=[(1,)], state=(torch.tensor([1.0]),))
def add_bias(x, state):
    (bias,) = state.read()
    return x + bias


assert add_bias(torch.tensor([2.0])).tolist() == [3]
assert len(add_bias.parameters()) == 1
on_bob = add_bias.send(bob)
assert on_bob(torch.tensor([10.0]).send(bob)).get().tolist() == [11]


# A model, put on a server, fetched from there, and used on a device.
class Net(sy.Plan):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(1, 2)
        self.fc2 = nn.Linear(2, 1)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc2(x)


torch.manual_seed(0)
net = Net()
net.build(torch.zeros(1, 1))
expected = net(torch.tensor([[0.5]]))
plan_ptr = net.send(bob)
fetched = alice.fetch_plan(net.id, bob, copy=True)
assert fetched.is_built and fetched.forward is None
assert torch.allclose(fetched(torch.tensor([[0.5]])), expected)
back = plan_ptr.get()
assert torch.allclose(back(torch.tensor([[0.5]])), expected)

# The same, with weights and input encrypted.
secret_net = Net()
secret_net.build(torch.zeros(1, 1))
expected = secret_net(torch.tensor([[0.5]]))
secret_net.fix_precision_().share_(alice, bob, crypto_provider=charlie)
x = torch.tensor([[0.5]]).fix_precision().share(alice, bob, crypto_provider=charlie)
result = secret_net(x).get().float_precision()
print(result, expected)
assert torch.allclose(result, expected, atol=5e-3)
secret_net.get_().float_precision_()
