"""Three websocket workers train at the same time; their models are averaged, and one of them evaluates."""

import asyncio

import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.frameworks.torch.fl import utils
from syft.workers.websocket_client import WebsocketClientWorker
from syft.workers.websocket_server import WebsocketServerWorker

hook = sy.TorchHook(torch)
torch.manual_seed(1)
features, labels = utils.create_gaussian_mixture_toy_data(240)
features, labels = torch.as_tensor(features).float(), torch.as_tensor(labels).long()

servers = []
for index, name in enumerate(("alice", "bob", "charlie")):
    server = WebsocketServerWorker(hook=hook, host="localhost", port=0, id=name)
    part = slice(index * 60, (index + 1) * 60)
    server.add_dataset(sy.BaseDataset(features[part], labels[part]), key="mixture")
    servers.append(server.start(block=False) or server)
testing = WebsocketServerWorker(hook=hook, host="localhost", port=0, id="testing")
testing.add_dataset(sy.BaseDataset(features[180:], labels[180:]), key="mixture_test")
testing.start(block=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


@torch.jit.script
def loss_fn(pred, target):
    return F.nll_loss(input=pred, target=target)


async def fit_model_on_worker(worker, traced_model, batch_size, lr):
    train_config = sy.TrainConfig(
        model=traced_model,
        loss_fn=loss_fn,
        batch_size=batch_size,
        shuffle=True,
        max_nr_batches=10,
        epochs=1,
        optimizer="SGD",
        optimizer_args={"lr": lr},
    )
    train_config.send(worker)
    loss = await worker.async_fit(dataset_key="mixture", return_ids=[0])
    model = train_config.model_ptr.get().obj
    return worker.id, model, loss


async def main():
    workers = [
        WebsocketClientWorker(hook=hook, host="localhost", port=s.port, id=s.id, verbose=False)
        for s in servers
    ]
    judge = WebsocketClientWorker(hook=hook, host="localhost", port=testing.port, id="testing")
    traced_model = torch.jit.trace(Net(), torch.zeros(1, 2))
    for round_number in range(6):
        results = await asyncio.gather(*[fit_model_on_worker(w, traced_model, 10, 0.3) for w in workers])
        models = {worker_id: model for worker_id, model, loss in results if model is not None}
        traced_model = utils.federated_avg(models)
        print("round", round_number, {worker_id: float(loss) for worker_id, _, loss in results})

    train_config = sy.TrainConfig(
        model=traced_model, loss_fn=loss_fn, batch_size=10, optimizer="SGD", optimizer_args={}
    )
    train_config.send(judge)
    result = judge.evaluate(
        dataset_key="mixture_test",
        return_histograms=True,
        nr_bins=2,
        return_loss=True,
        return_raw_accuracy=True,
    )
    print(result["loss"], result["nr_correct_predictions"], "of", result["nr_predictions"])
    assert result["nr_correct_predictions"] / result["nr_predictions"] > 0.85
    for worker in (*workers, judge):
        worker.close()


asyncio.run(main())
for server in (*servers, testing):
    server.stop()
