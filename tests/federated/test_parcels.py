"""What goes to a client in another process: each thing once, as bytes where it can be, and the same task at the end."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from ray_parts import Noisy
from syft.federated.clients import DatasetClient, Work
from syft.federated.engines.base import Task
from syft.federated.engines.parcels import SHELVES, Kept, Packer, Settings, Simulator
from syft.federated.records import ClientFailure, FitInstructions, FitResult
from syft.serde import deserialize
from trainer_parts import Fixed, classes, line, net, same


class Store:
    """A carrier that carries nowhere."""

    def __init__(self) -> None:
        self.put_things: list[Any] = []

    def put(self, thing: Any) -> int:
        self.put_things.append(thing)
        return len(self.put_things) - 1

    @property
    def byte_counts(self) -> list[int]:
        return [len(thing) for thing in self.put_things if isinstance(thing, bytes)]


@pytest.fixture
def store() -> Store:
    return Store()


class There:
    """A process that is this one."""

    def __init__(self, store: Store) -> None:
        self.store, self.kept, self.handed_over = store, Kept(), 0
        self.simulator = Simulator(Settings.of_this_process(torch.get_num_threads(), "cpu", True))

    def run(self, packer: Packer, task: Task) -> Any:
        parcel, places = packer.pack(task, None, self.kept)
        self.handed_over += len(places)
        return deserialize(self.simulator.run(parcel, [self.store.put_things[place] for place in places]))


@pytest.fixture
def there(store: Store) -> There:
    return There(store)


def instructions(model: nn.Module, **options: Any) -> FitInstructions:
    return FitInstructions(1, 5, {n: t.clone() for n, t in model.state_dict().items()}, **options)


def test_a_task_does_the_same_there(store: Store, there: There) -> None:
    model, part = net(), classes()["client 0"]
    work = Work(model, nn.CrossEntropyLoss())
    packer = Packer(store.put)
    for dataset in (part, Subset(part, [4, 2, 9]), Subset(Subset(part, [4, 2, 9]), [1, 0]), Noisy(part)):
        for inner in (dataset, Subset(dataset, [1, 0])):
            task = Task("a", DatasetClient(inner, work), instructions(model, optimizer_args={"lr": 0.1}))
            found, here = there.run(packer, task), task.run()
            assert isinstance(found, FitResult) and same(found.update, here.update)
            assert found.metrics == here.metrics and found.num_examples == here.num_examples


def test_each_thing_is_put_once_and_what_is_shared_is_handed_over_once(store: Store, there: There) -> None:
    model = net()
    work, shared = Work(model, nn.CrossEntropyLoss()), classes(rows=500)["client 0"]
    packer, order = Packer(store.put), instructions(model)
    clients = {str(i): DatasetClient(Subset(shared, [i, i + 1]), work) for i in range(20)}
    for _ in range(2):
        for name, client in clients.items():
            there.run(packer, Task(name, client, replace(order, seed=int(name))))
    assert there.handed_over == 3 + 2 * 20
    assert len(store.put_things) == 1 + 1 + 1 + 20  # the state, the work, the data set; and the rows of each
    assert max(store.byte_counts) > 500 * 6 * 4
    assert max(sorted(store.byte_counts)[:20]) < 1000


def test_a_slice_of_a_tensor_takes_its_own_rows_only(store: Store) -> None:
    x = torch.randn(1000, 64)
    client = DatasetClient(TensorDataset(x[10:20], x[10:20, :1]), Work(line(0.0), nn.MSELoss()))
    Packer(store.put).pack(Task("a", client, FitInstructions(1, 0, {})), None, Kept())
    assert max(store.byte_counts) < 10 * 65 * 4 + 1000


def test_data_that_was_changed_in_place_is_put_again(store: Store, there: There) -> None:
    x, y = torch.ones(4, 1), torch.ones(4, 1)
    task = Task(
        "a",
        DatasetClient(TensorDataset(x, y), Work(line(0.5), nn.MSELoss())),
        instructions(line(0.5), optimizer_args={"lr": 0.1}),
    )
    packer = Packer(store.put)
    there.run(packer, task)
    x.mul_(3)
    assert same(there.run(packer, task).update, task.run().update)


def test_what_nobody_needs_any_more_is_forgotten(store: Store) -> None:
    packer = Packer(store.put)
    for number in range(5):
        task = Task("a", Fixed(float(number)), FitInstructions(number, 0, {"w": torch.ones(3)}))
        packer.pack(task, None, Kept())
        del task
        gc.collect()
        assert len(packer._stored) == 2  # this round's state, and this client


def test_a_process_keeps_few_things(store: Store, there: There) -> None:
    model, packer = net(), Packer(store.put)
    for number in range(12):
        client = DatasetClient(Subset(classes()["client 0"], [number]), Work(net(), nn.CrossEntropyLoss()))
        task = Task("a", client, instructions(model))
        there.run(packer, task)
    assert len(there.simulator._kept) == sum(SHELVES.values())


def test_what_fails_there_is_told(store: Store, there: There) -> None:
    class Odd(Fixed):
        def fit(self, instructions: FitInstructions) -> Any:
            return object()

    packer = Packer(store.put)
    odd = there.run(packer, Task("a", Odd(1.0), FitInstructions(1, 0, {})))
    assert isinstance(odd, ClientFailure) and odd.kind == "malformed" and "a object" in odd.why
    parcel, _ = packer.pack(Task("b", Fixed(1.0), FitInstructions(1, 0, {})), None, Kept())
    lost = deserialize(there.simulator.run(parcel, []))
    assert isinstance(lost, ClientFailure) and lost.kind == "error" and "could not be unpacked" in lost.why
