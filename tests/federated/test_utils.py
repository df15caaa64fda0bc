"""Averages of models are means, and nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy
from syft.exceptions import TensorsNotCollocatedException
from syft.federated.utils import accuracy, add_model, extract_batches_per_worker, federated_avg, scale_model


class Net(nn.Module):
    """With running statistics, a counter, a mask and a tied weight."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(3, 4)
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.tensor([True, seed == 1, False]))
        for _ in range(seed + 1):
            self.norm(self.first(torch.randn(8, 3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x))


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_the_average_is_the_weighted_mean_with_buffers_and_mutates_nothing() -> None:
    models = [Net(0), Net(1), Net(2)]
    before = [snapshot(m) for m in models]
    made = federated_avg(models, weights=[1, 2, 5])
    for name, value in made.state_dict().items():
        parts = torch.stack([b[name].double() for b in before])
        mean = torch.einsum("i,i...->...", torch.tensor([1.0, 2, 5], dtype=torch.float64) / 8, parts)
        if value.dtype is torch.bool:
            assert torch.equal(value, mean >= 0.5)
        elif not value.is_floating_point():
            assert torch.equal(value, mean.round().to(value.dtype))
        else:
            assert torch.allclose(value.double(), mean, atol=1e-7)
    assert made.norm.num_batches_tracked.item() == 2  # (1 * 1 + 2 * 2 + 5 * 3) / 8 = 2.5, to the even
    assert made.mask.tolist() == [True, False, False]
    assert made.second.weight is made.first.weight
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_equal_weights_and_names() -> None:
    models = {"alice": Net(0), "bob": Net(1)}
    even = federated_avg(models).first.weight
    assert torch.allclose(even, (models["alice"].first.weight + models["bob"].first.weight) / 2)
    named = federated_avg(models, weights={"bob": 0, "alice": 7})
    assert torch.equal(named.first.weight, models["alice"].first.weight)


def test_the_result_is_a_model_that_learns_and_has_no_gradient_yet() -> None:
    models = [Net(0), Net(1)]
    models[0](torch.randn(4, 3)).sum().backward()
    made = federated_avg(models)
    assert all(p.grad is None and p.requires_grad and p.is_leaf for p in made.parameters())
    assert models[0].first.weight.grad is not None
    made(torch.randn(4, 3)).sum().backward()
    assert made.first.weight.grad is not None


def test_a_mean_of_many_half_precision_models_is_not_rounded_on_the_way() -> None:
    models = [nn.Linear(2, 2).half() for _ in range(50)]
    for number, model in enumerate(models):
        nn.init.constant_(model.weight, 1000.0 + number % 2)
    assert federated_avg(models).weight.flatten()[0] == torch.tensor(1000.5).half()


def test_sums_and_multiples_are_new_models() -> None:
    one, other = Net(0), Net(1)
    before = snapshot(one)
    total, double = add_model(one, other), scale_model(one, 2.0)
    assert torch.allclose(total.first.weight, one.first.weight + other.first.weight)
    assert torch.allclose(total.norm.running_mean, one.norm.running_mean + other.norm.running_mean)
    assert torch.equal(double.first.weight, one.first.weight * 2)
    assert torch.equal(scale_model(one, 0.1).mask, one.mask)
    assert all(torch.equal(value, before[name]) for name, value in one.state_dict().items())


def test_models_on_a_worker_are_averaged_there(bob: Any) -> None:
    models = [Net(0), Net(1)]
    expected = federated_avg([copy.deepcopy(m) for m in models], weights=[3, 1])
    for model in models:
        model.send(bob)
    made = federated_avg(models, weights=[3, 1])
    assert made.location is bob
    made.get()
    for name, value in made.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name
    del made
    for model in models:
        model.get()
    assert len(bob._objects) == 0


def test_models_in_two_places_or_of_two_kinds_are_refused(alice: Any, bob: Any) -> None:
    with pytest.raises(TensorsNotCollocatedException, match=r"federated_avg .* 'alice' .* 'bob'"):
        federated_avg([nn.Linear(2, 2).send(alice), nn.Linear(2, 2).send(bob)])
    with pytest.raises(TensorsNotCollocatedException, match="on this machine"):
        add_model(nn.Linear(2, 2), nn.Linear(2, 2).send(bob))
    with pytest.raises(ValueError, match="differ in bias"):
        federated_avg([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])
    with pytest.raises(ValueError, match=r"weight is \(2, 2\) in the first and \(2, 3\) in model 1"):
        federated_avg([nn.Linear(2, 2), nn.Linear(3, 2)])


@pytest.mark.parametrize(
    ("models", "weights", "said"),
    [
        ([], None, "no model"),
        ([nn.Linear(1, 1)], [1, 2], "1 models and 2 weights"),
        ([nn.Linear(1, 1)], [0], "not all 0"),
        ([nn.Linear(1, 1)], [-1], "at least 0"),
        ([nn.Linear(1, 1)], [float("nan")], "at least 0"),
        ([nn.Linear(1, 1)], {"bob": 1}, "do not name the models"),
    ],
)
def test_bad_weights_are_refused(models: Any, weights: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federated_avg(models, weights)


def test_batches_by_worker(alice: Any, bob: Any) -> None:
    federated = TensorDataset(torch.randn(10, 2), torch.arange(10)).federate((alice, bob))
    for options in ({}, {"iter_per_worker": True}):
        batches = extract_batches_per_worker(sy.FederatedDataLoader(federated, batch_size=2, **options))
        assert list(batches) == [alice, bob]
        assert [t.get().tolist() for _d, t in batches[bob]] == [[5, 6], [7, 8], [9]]


def test_accuracy_here_and_there(bob: Any) -> None:
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    target = torch.tensor([[1], [0], [0], [0]])
    assert accuracy(scores, target) == 0.75
    there = accuracy(scores.send(bob), target.send(bob))
    assert there.location is bob and there.get() == 0.75
    with pytest.raises(ValueError, match="4 rows and 3 targets"):
        accuracy(scores, target[:3])
