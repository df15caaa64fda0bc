"""The documented loop is centralised training on the same batches, bit for bit, and leaves nothing behind."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy

ROWS, BATCH = 120, 8


def net(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12, 4),
    )


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(ROWS, 16), torch.randint(4, (ROWS,))


def step(model: nn.Module, opt: torch.optim.Optimizer, data: Any, target: Any) -> Any:
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(data), target)
    loss.backward()
    opt.step()
    return loss


def epoch(model: Any, opt: torch.optim.Optimizer, loader: Any) -> list[torch.Tensor]:
    """As the documents write it."""
    losses = []
    for data, target in loader:
        model.send(data.location)
        loss = step(model, opt, data, target)
        model.get()
        losses.append(loss.get().detach())
    return losses


@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("kind", "optimizer"), [("mlp", "sgd"), ("mlp", "adam"), ("cnn", "momentum")])
def test_the_loop_equals_centralised_training(
    make_worker: Any, data: Any, count: int, shuffle: bool, kind: str, optimizer: str
) -> None:
    inputs, targets = data
    places = [make_worker(f"w{number}") for number in range(count)]
    loader = sy.FederatedDataLoader(
        TensorDataset(inputs, targets).federate(places), batch_size=BATCH, shuffle=shuffle
    )
    model, expected = net(kind), net(kind)
    opt, plain = OPTIMIZERS[optimizer](model.parameters()), OPTIMIZERS[optimizer](expected.parameters())
    part = -(-ROWS // count)
    for number in range(2):
        torch.manual_seed(number)
        losses = iter(epoch(model, opt, loader))
        torch.manual_seed(number)
        orders = [torch.randperm(part) if shuffle else torch.arange(part) for _ in range(count)]
        for start, order in zip(range(0, ROWS, part), orders, strict=True):
            for rows in (order + start).split(BATCH):
                assert torch.equal(next(losses), step(expected, plain, inputs[rows], targets[rows]).detach())
        assert next(losses, None) is None
    theirs = expected.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in model.state_dict().items())


def live_tensors() -> int:
    gc.collect()
    # NB: by type, not isinstance, which would ask lazily loaded modules of others for their class.
    return sum(issubclass(type(obj), torch.Tensor) for obj in gc.get_objects())


@pytest.mark.parametrize("lazy", [False, True])
def test_memory_and_stores_are_flat_over_twenty_epochs(alice: Any, bob: Any, data: Any, lazy: bool) -> None:
    federated = TensorDataset(*data).federate((alice, bob), lazy=lazy)
    loader = sy.FederatedDataLoader(federated, batch_size=32, shuffle=True)
    model = net("mlp")
    opt = OPTIMIZERS["momentum"](model.parameters())
    counts = []
    for number in range(20):
        epoch(model, opt, loader)
        # The momentum stays at the worker where it was used last.
        stored = len(alice._objects) + len(bob._objects)
        if number in (1, 9, 19):
            counts.append((stored, len(alice._waiting_deletes), live_tensors()))
    assert counts[0] == counts[1] == counts[2]
    del opt, model, loader, federated
    gc.collect()
    assert len(alice._objects) == len(bob._objects) == 0


def test_the_loop_over_dicts_trains_one_model_per_worker(alice: Any, bob: Any, data: Any) -> None:
    """The shape of the older "parallel" tutorials: models stay, and are averaged."""
    federated = TensorDataset(*data).federate((alice, bob))
    loader = sy.FederatedDataLoader(federated, batch_size=20, iter_per_worker=True)
    models = {worker: net("mlp").send(worker) for worker in (alice, bob)}
    optimizers = {worker: OPTIMIZERS["sgd"](m.parameters()) for worker, m in models.items()}
    for batches in loader:
        for worker, (inputs, targets) in batches.items():
            step(models[worker], optimizers[worker], inputs, targets)
    averaged = sy.federated.federated_avg({w.id: m.get() for w, m in models.items()})
    expected = net("mlp")
    plain = OPTIMIZERS["sgd"](expected.parameters())
    for start in (0, 20, 40):
        step(expected, plain, data[0][start : start + 20], data[1][start : start + 20])
    alices = models[alice].state_dict()
    assert all(torch.equal(value, alices[name]) for name, value in expected.state_dict().items())
    assert not torch.equal(averaged[0].weight, expected[0].weight)
