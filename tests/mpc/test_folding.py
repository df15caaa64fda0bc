"""A batch norm after a convolution costs nothing from the second inference on, and nothing is used that has changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mpc.resnet import ResNet18, trained_like
from syft.mpc.group import Group
from syft.workers.virtual import VirtualWorker

HALF = dict(base=2, precision_fractional=16)


@pytest.fixture(params=[2, 3])
def holders(request: Any, hook: Any, me: Any) -> list[Any]:
    """Holders, and the provider last."""
    return [VirtualWorker(hook, id=f"folding-{request.param}-{n}") for n in range(request.param + 1)]


def shared(value: Any, holders: list[Any], **digits: Any) -> Any:
    return value.fix_precision(**(digits or HALF)).share(*holders[:-1], crypto_provider=holders[-1])


def two_layers(**options: Any) -> nn.Sequential:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, **options), nn.BatchNorm2d(4))
    with torch.no_grad():
        model[1].running_mean.uniform_(-1, 1)
        model[1].running_var.uniform_(0.01, 4)
        model[1].weight.uniform_(-2, 2)
        model[1].bias.uniform_(-1, 1)
    return model.eval()


def error(model: Any, x: Any, expected: torch.Tensor) -> float:
    return float((model(x).get().float_precision() - expected).abs().max())


def rounds(holders: list[Any], call: Callable[[], Any]) -> tuple[int, int]:
    group = Group.of(holders[:-1], holders[-1])
    group.reset_costs()
    made = call()
    del made
    return group.online.rounds, sum(group.online.bytes_sent)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"stride": 2, "padding": 1}])
@pytest.mark.parametrize("digits", [HALF, {"base": 10, "precision_fractional": 3}])
def test_the_second_inference_pays_for_the_convolution_only(
    holders: list[Any], options: Any, digits: Any
) -> None:
    plain = two_layers(**options)
    model = shared(copy.deepcopy(plain), holders, **digits)
    alone = shared(copy.deepcopy(plain)[0], holders, **digits)
    x = torch.randn(2, 3, 6, 6)
    data = shared(x, holders, **digits)
    with torch.no_grad():
        expected = plain(x)
        tolerance = 3e-4 if digits is HALF else 0.15  # a thousandth in each of 27 weights and inputs
        assert error(model, data, expected) < tolerance
        assert error(model, data, expected) < tolerance
        alone(data).get()
        assert rounds(holders, lambda: model(data)) == rounds(holders, lambda: alone(data) + 0)


def test_a_norm_without_parameters(holders: list[Any]) -> None:
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)).eval()
    x = torch.randn(1, 3, 5, 5)
    with torch.no_grad():
        expected = plain(x)
        model = shared(plain, holders)
        for _ in range(2):
            assert error(model, shared(x, holders), expected) < 3e-4


CHANGES: dict[str, Callable[[nn.Sequential], None]] = {
    "weight": lambda model: model[0].weight.add_(0.25),
    "bias": lambda model: model[0].bias.add_(0.25),
    "norm's weight": lambda model: model[1].weight.mul_(2.0),
    "norm's bias": lambda model: model[1].bias.add_(0.5),
    "mean": lambda model: model[1].running_mean.add_(0.5),
    "variance": lambda model: model[1].running_var.add_(1.0),
    "one element": lambda model: model[0].weight[1, 2].add_(0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_folded_follows_every_part_of_it(holders: list[Any], change: str) -> None:
    plain = two_layers()
    model = shared(copy.deepcopy(plain), holders)
    x = torch.randn(1, 3, 5, 5)
    data = shared(x, holders)
    with torch.no_grad():
        assert error(model, data, plain(x)) < 3e-4
        CHANGES[change](plain)
        CHANGES[change](model)
        assert error(model, data, plain(x)) < 3e-4
        assert error(model, data, plain(x)) < 3e-4


def test_running_statistics_that_training_changes(holders: list[Any]) -> None:
    plain = two_layers()
    model = shared(copy.deepcopy(plain), holders)
    x = torch.randn(8, 3, 6, 6)
    data = shared(x, holders)
    for _ in range(2):
        with torch.no_grad():
            for one in (plain, model):
                one.train()
            plain(x), model(data)
            for one in (plain, model):
                one.eval()
            assert error(model, data, plain(x)) < 1e-3


def test_the_convolution_itself_can_be_looked_at(holders: list[Any]) -> None:
    plain = two_layers()
    model = shared(copy.deepcopy(plain), holders)
    x = torch.randn(1, 3, 5, 5)
    data = shared(x, holders)
    with torch.no_grad():
        for _ in range(2):
            assert error(model, data, plain(x)) < 3e-4
        middle = model[0](data)
        out = model[1](middle)
        assert float((middle.get().float_precision() - plain[0](x)).abs().max()) < 3e-4
        assert float((out.get().float_precision() - plain(x)).abs().max()) < 3e-4
        assert error(model, data, plain(x)) < 3e-4


@pytest.mark.parametrize("written", ["input", "weight"])
def test_a_convolution_that_is_not_done_yet_has_the_values_of_its_call(
    holders: list[Any], written: str
) -> None:
    plain = two_layers()
    model = shared(copy.deepcopy(plain), holders)
    x = torch.randn(1, 3, 5, 5)
    data = shared(x, holders)
    with torch.no_grad():
        for _ in range(2):
            model(data)
        middle = model[0](data)
        (data if written == "input" else model[0].weight).add_(1.0)
        assert float((model[1](middle).get().float_precision() - plain(x)).abs().max()) < 3e-4


def test_with_gradients_nothing_is_folded(holders: list[Any]) -> None:
    plain = two_layers()
    model = shared(copy.deepcopy(plain), holders)
    x = torch.randn(1, 3, 5, 5)
    data = shared(x, holders)
    with torch.no_grad():
        model(data)
    model(data).sum().backward()
    plain(x).sum().backward()
    found = model[0].weight.grad.get().float_precision()
    assert float((found - plain[0].weight.grad).abs().max()) < 1e-2


def test_resnet_18_needs_120_rounds_and_half_the_bytes_the_second_time(hook: Any, me: Any) -> None:
    holders = [VirtualWorker(hook, id=f"resnet-{n}") for n in range(3)]
    model = trained_like(ResNet18(width=8))
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
        shared(model, holders)
        data = [shared(x, holders) for _ in range(3)]
        first = rounds(holders, lambda: model(data[0]))
        second = rounds(holders, lambda: model(data[1]))
        assert error(model, data[2], expected) < 5e-3
    # 20 convolutions and truncations, 17 comparisons of 4 rounds, the pooling's truncation, the last layer
    assert second[0] == 20 * 2 + 17 * 4 + 1 + 2 <= 120
    assert second[1] < first[1] / 2
