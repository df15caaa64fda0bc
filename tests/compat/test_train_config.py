"""TrainConfig, FederatedClient and training at workers as programs of 2020 use them, TorchScript included."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import forked
import syft as sy
from syft.exceptions import ChainError, ObjectNotFoundError
from syft.federated.federated_client import FederatedClient
from syft.federated.train_config import TrainConfig
from syft.frameworks.torch.fl import utils
from syft.generic.object_storage import ObjectStorage

#: torch says that torch.jit will go one day; programs of 2020 use it.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*"),
]

XOR = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
XOR_TARGETS = torch.tensor([[1.0], [1.0], [0.0], [0.0]])


class Net(nn.Module):
    def __init__(self, inputs: int = 2, outputs: int = 1) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, 20)
        self.fc2 = nn.Linear(20, 10)
        self.fc3 = nn.Linear(10, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def squares(target: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:
    return ((target.view(pred.shape).float() - pred.float()) ** 2).mean()


def cross_entropy(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(input=pred, target=target)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# -- TrainConfig ---------------------------------------------------------------------------------------------


def test_a_config_has_an_id_and_an_owner_and_says_so(me: Any, bob: Any) -> None:
    config = TrainConfig(model=nn.Linear(2, 1), loss_fn=squares)
    assert config.owner is me
    assert str(config) == (
        f"<TrainConfig id:{config.id} owner:me epochs: 1 batch_size: 32 optimizer_args: {{'lr': 0.1}}>"
    )
    assert repr(config) == str(config)
    other = TrainConfig(None, None, owner=bob, id="mine", batch_size=7, loss_fn_id=5, model_id="m")
    assert (other.owner, other.id, other.batch_size) == (bob, "mine", 7)
    assert (other._loss_fn_id, other._model_id) == (5, "m")
    assert TrainConfig(None, None).id != TrainConfig(None, None).id


def test_no_optimizer_args_are_the_optimizers_own() -> None:
    assert TrainConfig(None, None, optimizer_args=None).optimizer_args == {}
    client = FederatedClient({"xor": sy.BaseDataset(XOR, XOR_TARGETS)})
    client.set_obj(TrainConfig(Net(), squares, optimizer_args=None))
    client.fit("xor")
    assert (
        client.optimizer is not None
        and client.optimizer.defaults["lr"] == torch.optim.SGD([XOR]).defaults["lr"]
    )
    with pytest.raises(TypeError, match="they are a dict"):
        TrainConfig(None, None, optimizer_args=0.1)  # type: ignore[arg-type]


def test_a_config_is_kept_at_the_worker_with_the_ids_of_model_and_loss(bob: Any) -> None:
    config = TrainConfig(batch_size=3, id="config", model=None, loss_fn=None)
    config.send(bob)
    kept = bob._objects["config"]
    assert isinstance(kept, TrainConfig) and kept.id == "config" and kept.batch_size == 3
    assert kept._model_id == config._model_id == config.model_ptr.id_at_location
    assert kept._loss_fn_id == config._loss_fn_id == config.loss_fn_ptr.id_at_location
    assert {config.model_ptr.id_at_location, config.loss_fn_ptr.id_at_location} <= set(bob._objects)
    bob.add_dataset(sy.BaseDataset(XOR, XOR_TARGETS), "xor")
    with pytest.raises(ValueError, match="has no model"):
        bob.fit("xor")
    del config, kept
    assert len(bob._objects) == 0


def test_settings_come_through_bytes_as_they_were(me: Any) -> None:
    config = TrainConfig(
        None, None, batch_size=2, epochs=3, optimizer="Adam", optimizer_args={"lr": 0.5}, id=100,
        max_nr_batches=4, shuffle=False, loss_fn_id=5, model_id=6, seed=7,
    )  # fmt: skip
    back = sy.serde.deserialize(sy.serde.serialize(config))
    assert isinstance(back, TrainConfig)
    assert TrainConfig.simplify(me, back) == TrainConfig.simplify(me, config)
    assert TrainConfig.detail(me, TrainConfig.simplify(me, config)).owner is me
    with pytest.raises(sy.serde.SerdeError):
        sy.serde.detail(me, ("TrainConfig", 1, 2))
    with pytest.raises(ValueError, match="Name one of"):
        TrainConfig.detail(me, (6, 5, 2, 3, "__import__", {}, 100, 4, False, 7))


def test_get_names_the_worker_or_leaves_it_out(alice: Any, bob: Any) -> None:
    config = TrainConfig(Net(), squares).send(location=bob)
    with pytest.raises(ChainError, match=r"sent to worker 'bob'.*'alice'"):
        config.get(alice)
    assert config.get(bob) is config and isinstance(config.model, Net)
    again = config.send(bob)
    assert isinstance(again.get_model(), Net) and again.get_model() is again.model
    assert again.get_loss_fn() is squares and len(bob._objects) == 0


# -- FederatedClient -----------------------------------------------------------------------------------------


def test_a_client_keeps_objects_and_its_config(me: Any) -> None:
    client = FederatedClient()
    assert isinstance(client, ObjectStorage)
    config = TrainConfig(id=100, model=None, loss_fn=None)
    client.set_obj(config)
    assert client.train_config is config and client.train_config.id == 100
    data = torch.tensor(42)
    data.id = 43  # type: ignore[attr-defined]
    client.set_obj(data)
    assert len(client._objects) == 1 and client._objects[43] == data
    client.set_obj(sy.ObjectWrapper(print, id=7))
    assert client.get_obj(7).obj is print
    with pytest.raises(TypeError, match="without an id"):
        client.set_obj([1, 2])
    with pytest.raises(ValueError, match="no TrainConfig"):
        FederatedClient()._check_train_config()
    client._check_train_config()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_fit_and_evaluate_with_a_traced_model_that_the_config_names_by_its_id(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    data, target = utils.create_gaussian_mixture_toy_data(nr_samples=100)
    client = FederatedClient()
    client.add_dataset(sy.BaseDataset(data, target), key="gaussian_mixture")
    model = torch.jit.trace(Net(2, 2), data)
    client.set_obj(sy.ObjectWrapper(obj=model, id=0))
    client.set_obj(sy.ObjectWrapper(obj=cross_entropy, id=1))
    client.set_obj(
        sy.TrainConfig(
            batch_size=8,
            model=None,
            loss_fn=None,
            model_id=0,
            loss_fn_id=1,
            optimizer="SGD",
            optimizer_args={"lr": 0.1, "weight_decay": 0.01},
            epochs=1,
        )
    )
    client.optimizer = None
    before = cross_entropy(pred=model(data), target=target).item()
    for _round in range(3):
        loss = client.fit(dataset_key="gaussian_mixture", device=device)
    assert loss.shape == ()
    with pytest.raises(ValueError, match="No data set 'another'"):
        client.fit(dataset_key="another")
    new_model = client.get_obj(0)
    assert cross_entropy(pred=new_model.obj(data), target=target).item() < before / 2
    result = client.evaluate("gaussian_mixture", return_histograms=True, nr_bins=2, device=device)
    assert result["nr_correct_predictions"] > 90 and result["nr_predictions"] == 100
    assert result["histogram_target"].tolist() == [50, 50] and result["loss"] < before / 2


def test_iris_is_learnt_by_name_of_the_optimizer() -> None:
    data, target = utils.iris_data_partial()
    client = FederatedClient({"iris": sy.BaseDataset(data, target)})
    scripted = torch.jit.script(cross_entropy)
    client.set_obj(
        TrainConfig(Net(4, 3), scripted, optimizer="Adam", optimizer_args={"lr": 0.02}, batch_size=10)
    )
    for _ in range(40):
        client.fit("iris")
    figures = client.evaluate("iris", return_histograms=True, nr_bins=3)
    assert figures["nr_correct_predictions"] >= 28
    assert figures["histogram_target"].tolist() == [10, 10, 10]


def test_the_optimizer_goes_on_until_it_is_set_to_none() -> None:
    client = FederatedClient({"xor": sy.BaseDataset(XOR, XOR_TARGETS)})
    model = Net()
    client.set_obj(TrainConfig(model, squares, optimizer="Adam", optimizer_args={"lr": 0.1}))
    client.fit("xor")
    first = client.optimizer
    client.fit("xor")
    assert client.optimizer is first is client._build_optimizer("Adam", model, {"lr": 0.1})
    client.optimizer = None
    client.fit("xor")
    assert client.optimizer is not first
    assert type(client._build_optimizer("RMSprop", model, {})) is torch.optim.RMSprop
    with pytest.raises(ValueError, match="Name one of"):
        client._build_optimizer("Nothing", model, {})
    with pytest.raises(TypeError, match="set it to None"):
        client.optimizer = first


def test_the_batches_of_a_client_are_those_of_its_config() -> None:
    rows = torch.arange(10.0).view(10, 1)
    client = FederatedClient({"rows": sy.BaseDataset(rows, rows)})
    with pytest.raises(ValueError, match="no TrainConfig"):
        client._create_data_loader("rows")
    client.set_obj(TrainConfig(None, None, batch_size=4))
    loader = client._create_data_loader(dataset_key="rows", shuffle=False)
    assert len(loader) == 3
    assert [data.flatten().tolist() for data, _target in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    shuffled = client._create_data_loader("rows", shuffle=True)
    orders = [torch.cat([data for data, _target in shuffled]).flatten() for _ in range(2)]
    assert not torch.equal(*orders) and all(torch.equal(o.sort()[0], rows.flatten()) for o in orders)


def test_fit_of_2020_trains_the_model_that_it_is_given() -> None:
    client = FederatedClient({"xor": sy.BaseDataset(XOR, XOR_TARGETS)})
    client.set_obj(TrainConfig(None, None, epochs=60, batch_size=4, optimizer_args={"lr": 0.1}))
    model = Net()
    before = squares(XOR_TARGETS, model(XOR))
    loss = client._fit(model=model, dataset_key="xor", loss_fn=torch.jit.script(squares))
    assert loss < before and squares(XOR_TARGETS, model(XOR)) < before


# -- at workers of this process --------------------------------------------------------------------------------


def test_a_tutorial_trains_a_traced_model_with_a_scripted_loss_at_a_virtual_worker(alice: Any) -> None:
    loss_fn = torch.jit.script(squares)
    traced_model = torch.jit.trace(Net(), XOR)
    loss_before = loss_fn(target=XOR_TARGETS, pred=traced_model(XOR))
    alice.add_dataset(sy.BaseDataset(XOR, XOR_TARGETS), key="xor")
    assert list(alice.datasets) == ["xor"]
    train_config = sy.TrainConfig(
        model=traced_model, loss_fn=loss_fn, batch_size=1, shuffle=True, optimizer_args={"lr": 0.1}
    )
    train_config.send(alice)
    for _epoch in range(30):
        loss = alice.fit(dataset_key="xor")
    assert loss.shape == ()
    new_model = train_config.model_ptr.get()
    loss_after = loss_fn(target=XOR_TARGETS, pred=new_model.obj(XOR))
    assert loss_after < loss_before / 2
    assert torch.equal(new_model(XOR), new_model.obj(XOR))
    assert torch.equal(loss_before, loss_fn(target=XOR_TARGETS, pred=traced_model(XOR))), "a copy was trained"


def test_what_the_owner_puts_on_a_worker_is_trained_in_place(bob: Any) -> None:
    bob.add_dataset(sy.BaseDataset(XOR, XOR_TARGETS), "xor")
    model = Net()
    bob.set_obj(sy.ObjectWrapper(model, id=3))
    bob.set_obj(sy.ObjectWrapper(squares, id=4))
    config = TrainConfig(
        None, None, model_id=3, loss_fn_id=4, id="here", optimizer_args={"lr": 0.2}, epochs=50
    )
    with pytest.raises(ValueError, match="sent no TrainConfig"):
        bob.fit("xor")
    bob.set_obj(config)
    assert bob._objects["here"] is config
    before = squares(XOR_TARGETS, model(XOR)).item()
    assert bob.fit("xor") < before and squares(XOR_TARGETS, model(XOR)).item() < before
    assert bob.evaluate("xor", return_raw_accuracy=False)["loss"] < before


def test_one_user_does_not_train_with_the_config_of_another(bob: Any) -> None:
    bob.add_dataset(sy.BaseDataset(XOR, XOR_TARGETS), "xor")
    config = TrainConfig(Net(), squares).send(bob, user="ann")
    with pytest.raises(ValueError, match="sent no TrainConfig"):
        bob.fit("xor", user="eve")
    assert bob.fit("xor", user="ann") > 0
    del config


def test_a_config_refers_to_what_is_at_the_worker_already(bob: Any) -> None:
    bob.add_dataset(sy.BaseDataset(XOR, XOR_TARGETS), "xor")
    first = TrainConfig(Net(), squares, optimizer_args={"lr": 0.2}).send(bob)
    ids = {"model_id": first.model_ptr.id_at_location, "loss_fn_id": first.loss_fn_ptr.id_at_location}
    second = TrainConfig(None, None, optimizer_args={"lr": 0.2}, epochs=20, **ids).send(bob)
    loss = bob.fit("xor")
    del second
    assert isinstance(first.get().model, Net), "it was not the second's to delete"
    assert squares(XOR_TARGETS, first.model(XOR)) <= loss + 0.1
    gone = TrainConfig(None, None, model_id=1, loss_fn_id=2)
    with pytest.raises(ObjectNotFoundError):
        gone.send(bob)


def test_the_loss_gets_the_id_that_was_asked_for(bob: Any) -> None:
    bob.add_dataset(sy.BaseDataset(XOR, XOR_TARGETS), "xor")
    config = TrainConfig(Net(), squares).send(bob)
    assert bob.fit("xor", return_ids=[77]).id == 77
    assert asyncio.run(bob.async_fit(dataset_key="xor", return_ids=[78])).id == 78
    with pytest.raises(ValueError, match="one loss"):
        bob.fit("xor", return_ids=[1, 2])
    with pytest.raises(TypeError):
        bob.fit("xor", rounds=3)
    del config


# -- over websockets -------------------------------------------------------------------------------------------

SERVER = """
import sys, torch, syft as sy
hook = sy.TorchHook(torch)
server = sy.WebsocketServerWorker(hook, "127.0.0.1", int(sys.argv[1]), id=sys.argv[2])
data = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
target = torch.tensor([[1.0], [1.0], [0.0], [0.0]])
server.add_dataset(sy.BaseDataset(data, target), key="xor")
print("ready", flush=True)
server.start()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(hook: Any, me: Any) -> Iterator[Any]:
    """`served("alice")`: a client of a websocket server in a process of its own."""
    processes, clients = [], []

    def serve(*names: str) -> list[Any]:
        for name in names:
            port = free_port()
            process = forked.start("-c", SERVER, str(port), name, stdout=forked.PIPE, text=True)
            processes.append((process, name, port))
        for process, name, port in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            clients.append(_connected(hook, port, name))
        return clients

    yield serve
    for client in clients:
        client.close()
    for process, _name, _port in processes:
        process.terminate()
        process.communicate(timeout=800)


def _connected(hook: Any, port: int, name: str) -> Any:
    for _attempt in range(1200):  # two minutes, on a busy machine
        try:
            return sy.WebsocketClientWorker(hook, "127.0.0.1", port, id=name)
        except ConnectionError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


@pytest.mark.network
def test_a_tutorial_trains_over_a_websocket_with_torchscript(served: Any) -> None:
    (alice,) = served("alice")
    loss_fn = torch.jit.script(squares)
    model = Net()
    traced_model = torch.jit.trace(model, torch.zeros(1, 2))
    loss_before = loss_fn(target=XOR_TARGETS, pred=traced_model(XOR))
    assert str(alice.datasets["xor"]).startswith("torch.float32 of shape (-1, 2)")
    train_config = sy.TrainConfig(
        model=traced_model, loss_fn=loss_fn, batch_size=2, optimizer_args={"lr": 0.1}, epochs=10
    )
    train_config.send(alice)
    for _epoch in range(5):
        loss = alice.fit(dataset_key="xor")
    figures = alice.evaluate(dataset_key="xor", return_raw_accuracy=False)
    fetched = train_config.model_ptr.get()
    assert torch.equal(fetched(XOR), fetched.obj(XOR))
    loss_after = loss_fn(target=XOR_TARGETS, pred=fetched.obj(XOR))
    assert loss_after < loss_before / 2 and loss < loss_before
    assert figures["loss"] == pytest.approx(loss_after.item(), abs=1e-5)

    test_config = sy.TrainConfig(model=fetched.obj, loss_fn=loss_fn, batch_size=4, optimizer_args=None)
    test_config.send(alice)
    assert alice.evaluate("xor", return_raw_accuracy=False)["loss"] == pytest.approx(
        loss_after.item(), abs=1e-5
    )
    assert type(test_config.get_model()(XOR)) is torch.Tensor


@pytest.mark.network
def test_a_tutorial_trains_at_two_websocket_workers_at_the_same_time_and_averages(served: Any) -> None:
    clients = served("alice", "bob")
    loss_fn = torch.jit.script(squares)
    traced_model: Any = torch.jit.trace(Net(), torch.zeros(1, 2))
    before = loss_fn(target=XOR_TARGETS, pred=traced_model(XOR)).item()

    async def fit_model_on_worker(worker: Any, model: Any) -> tuple[Any, Any, Any]:
        train_config = sy.TrainConfig(
            model=model,
            loss_fn=loss_fn,
            batch_size=4,
            shuffle=True,
            max_nr_batches=10,
            epochs=40,
            optimizer="SGD",
            optimizer_args={"lr": 0.2},
        )
        train_config.send(worker)
        loss = await worker.async_fit(dataset_key="xor", return_ids=[0])
        return worker.id, train_config.model_ptr.get().obj, loss

    async def one_round(model: Any) -> Any:
        results = await asyncio.gather(*[fit_model_on_worker(worker, model) for worker in clients])
        assert all(loss < before for _id, _model, loss in results)
        return utils.federated_avg({worker_id: trained for worker_id, trained, _loss in results})

    for _round in range(2):
        traced_model = asyncio.run(one_round(traced_model))
    assert loss_fn(target=XOR_TARGETS, pred=traced_model(XOR)).item() < before / 2


@pytest.mark.network
def test_over_a_websocket_a_config_without_model_is_told_what_it_lacks(served: Any) -> None:
    (alice,) = served("alice")
    with pytest.raises(ValueError, match="has no model"):
        sy.TrainConfig(None, squares).send(alice)
    with pytest.raises(ValueError, match="has no loss"):
        sy.TrainConfig(Net(), None).send(alice)
    first = sy.TrainConfig(Net(), squares).send(alice)
    second = sy.TrainConfig(None, None, model_id=first.model_id, loss_fn_id=first.loss_fn_id, epochs=2).send(
        alice
    )
    assert alice.fit("xor").shape == ()
    del second
    assert isinstance(first.get().model, Net)
