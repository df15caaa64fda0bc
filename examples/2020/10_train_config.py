"""Federated learning over websocket workers: a traced model and a scripted loss go out in a TrainConfig."""

import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.workers.websocket_client import WebsocketClientWorker
from syft.workers.websocket_server import WebsocketServerWorker

hook = sy.TorchHook(torch)
torch.manual_seed(0)

# A worker with a data set of its own. (On another machine this would be another program.)
server = WebsocketServerWorker(hook=hook, host="localhost", port=0, id="alice", verbose=False)
data = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
target = torch.tensor([[1.0], [1.0], [0.0], [0.0]])
server.add_dataset(sy.BaseDataset(data, target), key="xor")
server.start(block=False)


@torch.jit.script
def loss_fn(pred, target):
    return ((target.view(pred.shape).float() - pred.float()) ** 2).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 20)
        self.fc2 = nn.Linear(20, 10)
        self.fc3 = nn.Linear(10, 1)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return torch.sigmoid(self.fc3(x))


alice = WebsocketClientWorker(hook=hook, host="localhost", port=server.port, id="alice", verbose=False)
traced_model = torch.jit.trace(Net(), torch.zeros(1, 2))
before = loss_fn(traced_model(data), target).item()

train_config = sy.TrainConfig(
    model=traced_model,
    loss_fn=loss_fn,
    batch_size=2,
    shuffle=True,
    optimizer="SGD",
    optimizer_args={"lr": 0.9},
    epochs=20,
    max_nr_batches=-1,
)
train_config.send(alice)
for epoch in range(10):
    loss = alice.fit(dataset_key="xor")
    print("epoch", epoch, "loss", loss.item())

model = train_config.model_ptr.get()
after = loss_fn(model(data), target).item()
print(before, "->", after)
assert after < before / 4
assert (model(data) > 0.5).float().tolist() == target.tolist()
alice.close()
server.stop()
