"""Pointers to a websocket worker: the same program, with a network in between."""

import torch
from torch import nn, optim

import syft as sy
from syft.workers.websocket_client import WebsocketClientWorker
from syft.workers.websocket_server import WebsocketServerWorker

hook = sy.TorchHook(torch)
torch.manual_seed(0)
server = WebsocketServerWorker(hook=hook, host="localhost", port=0, id="bob")
server.start(block=False)
bob = WebsocketClientWorker(
    hook=hook, host="localhost", port=server.port, id="bob", log_msgs=False, verbose=False
)

x = torch.tensor([1.0, 2, 3]).send(bob)
y = torch.tensor([1.0, 1, 1]).send(bob)
assert (x + y).get().tolist() == [2, 3, 4]
print(bob.list_objects_remote(), bob.objects_count_remote())

rows = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]]).tag("#rows").send(bob)
(data,) = bob.search("#rows")
assert data.location is bob
target = torch.tensor([[0], [0], [1], [1.0]]).send(bob)
model = nn.Linear(2, 1)
opt = optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model.send(bob)
    opt.zero_grad()
    loss = ((model(data) - target) ** 2).sum()
    loss.backward()
    opt.step()
    model.get()
final = loss.get().item()
print(final)
assert final < 0.2
bob.close()
server.stop()
