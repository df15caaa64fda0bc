"""Programs as courses wrote them in 2019 and 2020 run unchanged."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, optim


def test_remote_tensors_and_their_gradients(bob: Any) -> None:
    x = torch.tensor([1, 2, 3, 4, 5.0], requires_grad=True).send(bob)
    y = torch.tensor([1, 1, 1, 1, 1.0], requires_grad=True).send(bob)
    z = (x + y).sum()
    z.backward()
    x = x.get()
    assert x.grad.tolist() == [1.0] * 5
    assert x.requires_grad


def test_a_model_visits_the_data_of_two_workers(alice: Any, bob: Any) -> None:
    torch.manual_seed(0)
    data = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]], requires_grad=True)
    target = torch.tensor([[0], [0], [1], [1.0]], requires_grad=True)
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(params=model.parameters(), lr=0.1)
    datasets = [(data[0:2].send(bob), target[0:2].send(bob)), (data[2:].send(alice), target[2:].send(alice))]
    for _ in range(20):
        for inputs, wanted in datasets:
            model.send(inputs.location)
            optimizer.zero_grad()
            loss = ((model(inputs) - wanted) ** 2).sum()
            loss.backward()
            optimizer.step()
            model.get()
    assert loss.get().item() < 0.1


def test_models_of_two_workers_are_averaged_by_a_third(alice: Any, bob: Any, charlie: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    bobs, alices = model.copy().send(bob), model.copy().send(alice)
    for worker, copy in ((bob, bobs), (alice, alices)):
        optimizer = optim.SGD(params=copy.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            ((copy(torch.ones(4, 2).send(worker)) - torch.zeros(4, 1).send(worker)) ** 2).sum().backward()
            optimizer.step()
    alices.move(charlie)
    bobs.move(charlie)
    with torch.no_grad():
        model.weight.set_(((alices.weight.data + bobs.weight.data) / 2).get())
        model.bias.set_(((alices.bias.data + bobs.bias.data) / 2).get())
    assert torch.equal(model.weight, bobs.get().weight)  # both started equal and saw the same data


def test_encrypted_integers_and_reals(alice: Any, bob: Any, charlie: Any) -> None:
    x = torch.tensor([25]).share(bob, alice, crypto_provider=charlie)
    y = torch.tensor([5]).share(bob, alice, crypto_provider=charlie)
    assert [(x + y).get().item(), (x - y).get().item(), (x * y).get().item()] == [30, 20, 125]
    assert [(x > y).get().item(), (x < y).get().item(), (x == y + 20).get().item()] == [1, 0, 1]
    a = torch.tensor([0.1, 0.2, 0.3]).fix_prec()
    assert torch.allclose((a + a).float_prec(), torch.tensor([0.2, 0.4, 0.6]))
    b = a.share(bob, alice, crypto_provider=charlie)
    assert torch.allclose((b * b).get().float_prec(), torch.tensor([0.01, 0.04, 0.09]), atol=2e-3)


def test_encrypted_training(alice: Any, bob: Any, charlie: Any) -> None:
    torch.manual_seed(0)
    options = {"crypto_provider": charlie, "requires_grad": True}
    data = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]]).fix_precision().share(bob, alice, **options)
    target = torch.tensor([[0], [0], [1], [1.0]]).fix_precision().share(bob, alice, **options)
    model = nn.Linear(2, 1).fix_precision().share(bob, alice, **options)
    optimizer = optim.SGD(params=model.parameters(), lr=0.1).fix_precision()
    for _ in range(15):
        optimizer.zero_grad()
        loss = ((model(data) - target) ** 2).sum()
        loss.backward()
        optimizer.step()
    assert loss.get().float_precision().item() < 0.1
    model.get().float_precision()
    assert isinstance(model.weight, nn.Parameter)
    assert model.weight.dtype == torch.float32
