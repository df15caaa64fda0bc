"""Plans: a function is recorded once, sent once, and then called with one message."""

import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
sy.local_worker.is_client_worker = False
server = hook.local_worker
device_1 = sy.VirtualWorker(hook, id="device_1", data=(torch.tensor([-1.0, 2.0]).tag("input_data"),))
device_2 = sy.VirtualWorker(hook, id="device_2", data=(torch.tensor([-3.0, 4.0]).tag("input_data"),))
devices = device_1, device_2


@sy.func2plan()
def plan_double_abs(x):
    x = x + x
    return torch.abs(x)


assert not plan_double_abs.is_built
try:
    plan_double_abs.send(device_1)
except RuntimeError as error:
    print("as expected:", error)
else:
    raise AssertionError("an unbuilt plan was sent")
plan_double_abs.build(torch.tensor([1.0, -2.0]))
assert plan_double_abs.is_built
print(plan_double_abs)

pointer_plan = plan_double_abs.send(device_1)
pointer_to_data = device_1.search("input_data")[0]
pointer_to_result = pointer_plan(pointer_to_data)
print(pointer_to_result)
assert pointer_to_result.location is device_1
assert pointer_to_result.get().tolist() == [2, 4]


# Built where it is written, by the shapes of its arguments; other shapes fit as well.
@sy.func2plan(args_shape=[(-1, 1)])
def plan_triple(x):
    return x + x + x


assert plan_triple.is_built
triple_ptr = plan_triple.send(device_1)
for shape in ((-1, 1), (2, 1), (5, 1)):
    x = torch.ones(tuple(abs(n) for n in shape)).send(device_1)
    assert torch.equal(triple_ptr(x).get(), plan_triple(torch.ones(tuple(abs(n) for n in shape))))


# A net as a plan, with its weights as state.
class Net(sy.Plan):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 3)
        self.fc2 = nn.Linear(3, 2)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = self.fc2(x)
        return F.log_softmax(x, dim=0)


net = Net()
net.build(torch.tensor([1.0, 2.0]))
results = []
for device in devices:
    pointer_to_net = net.send(device)
    data = device.search("input_data")[0]
    results.append(pointer_to_net(data).get())
assert torch.allclose(results[0], net(torch.tensor([-1.0, 2.0])), atol=1e-6)
assert torch.allclose(results[1], net(torch.tensor([-3.0, 4.0])), atol=1e-6)

# One plan for several places.
both = plan_double_abs.send(device_1, device_2)
a, b = (d.search("input_data")[0] for d in devices)
assert both(a).get().tolist() == [2, 4] and both(b).get().tolist() == [6, 8]
sy.local_worker.is_client_worker = True
server.clear_objects()
for device in devices:
    device.clear_objects()
