"""A relu before a maximum over windows comes after it where no gradients are asked for, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.mpc.group import Group

SHIFT = 2.0**16


@pytest.fixture
def workers(hook: Any) -> list[Any]:
    return [sy.VirtualWorker(hook, id=f"pooling {name}", auto_add=False) for name in "abc"]


@pytest.fixture
def share(workers: list[Any]) -> Callable[..., Any]:
    *holders, provider = workers

    def shared(values: Any, **options: Any) -> Any:
        fixed = values.fix_precision(base=2, precision_fractional=16)
        return fixed.share(*holders, crypto_provider=provider, **options)

    return shared


def _plain(secret: Any) -> torch.Tensor:
    found: torch.Tensor = secret.get().float_precision()
    return found


def _pictures(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.randn(shape) - 0.7).mul(SHIFT).round().div(SHIFT)


GEOMETRIES: list[dict[str, Any]] = [
    dict(kernel_size=2),
    dict(kernel_size=3, stride=2, padding=1),
    dict(kernel_size=3, stride=1, padding=1),
    dict(kernel_size=(1, 3), stride=(1, 2)),
    dict(kernel_size=2, stride=2, ceil_mode=True),
    dict(kernel_size=2, dilation=2),
    dict(kernel_size=1),
]


@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
def test_the_result_is_exact(options: dict[str, Any], share: Callable[..., Any]) -> None:
    x = _pictures(2, 3, 7, 7)
    with torch.no_grad():
        assert torch.equal(
            _plain(F.max_pool2d(torch.relu(share(x)), **options)), F.max_pool2d(x.relu(), **options)
        )


@pytest.mark.parametrize("options", [{"protocol": "fss"}, {"protocol": "spdz2k"}])
def test_every_protocol_has_it(options: dict[str, Any], share: Callable[..., Any]) -> None:
    x = _pictures(1, 2, 4, 4)
    with torch.no_grad():
        assert torch.equal(
            _plain(F.max_pool2d(torch.relu(share(x, **options)), 2)), F.max_pool2d(x.relu(), 2)
        )


@pytest.mark.parametrize(("size", "rounds"), [(8, 6), (160, 18)])
def test_one_program_makes_both(
    size: int, rounds: int, workers: list[Any], share: Callable[..., Any], programs: list[str]
) -> None:
    x = _pictures(1, 1, size, size)
    secret, group = share(x), Group.of(workers[:2], workers[2])
    group.reset_costs()
    with torch.no_grad():
        found = F.max_pool2d(torch.relu(secret), 2)
    assert programs == ["derived.relu_of_windows"]
    assert group.online.rounds <= rounds
    assert torch.equal(_plain(found), F.max_pool2d(x.relu(), 2))


def test_gradients_need_the_relu_first(share: Callable[..., Any], programs: list[str]) -> None:
    x = _pictures(1, 2, 4, 4)
    secret = share(x).requires_grad_()
    F.max_pool2d(torch.relu(secret), 2).sum().backward()
    assert programs[:2] == ["derived.positive_part", "derived.maximum_of_windows"]
    leaf = x.requires_grad_()
    F.max_pool2d(torch.relu(leaf), 2).sum().backward()
    assert leaf.grad is not None and torch.equal(_plain(secret.grad), leaf.grad)


def test_places_are_those_in_the_relu(share: Callable[..., Any]) -> None:
    x = torch.tensor([[-1.0, -2.0, 3.0, 1.0], [-3.0, -0.5, 2.0, 5.0]]).view(1, 1, 2, 4)
    with torch.no_grad():
        values, places = F.max_pool2d(torch.relu(share(x)), 2, return_indices=True)
        assert _plain(values).flatten().tolist() == [0.0, 5.0]
        assert places.get().flatten().tolist() == [0, 7]  # the first of equals


def test_a_relu_that_is_used_otherwise_is_computed(share: Callable[..., Any], programs: list[str]) -> None:
    x = _pictures(1, 2, 4, 4)
    with torch.no_grad():
        made = torch.relu(share(x))
        assert not programs, "it waits for what comes next"
        assert torch.equal(_plain(made + made), 2 * x.relu())
        assert programs == ["derived.positive_part"]
        assert torch.equal(_plain(F.max_pool2d(made, 2)), F.max_pool2d(x.relu(), 2))
    assert programs == ["derived.positive_part", "derived.maximum_of_windows"]


@pytest.mark.parametrize("what", ["source", "result", "in place"])
def test_a_write_in_between_counts_where_it_should(what: str, share: Callable[..., Any]) -> None:
    x = _pictures(1, 2, 4, 4)
    secret = share(x)
    with torch.no_grad():
        made, expected = torch.relu(secret), torch.relu(x)
        if what == "source":
            secret.mul_(0)
        elif what == "result":
            made.sub_(1)
            expected.sub_(1)
        else:
            made, expected = torch.relu_(secret), torch.relu_(x)
        assert torch.equal(_plain(F.max_pool2d(made, 2)), F.max_pool2d(expected, 2))


def test_nothing_is_left_of_a_relu_that_nobody_uses(
    share: Callable[..., Any], workers: list[Any], programs: list[str]
) -> None:
    secret = share(_pictures(1, 2, 4, 4))
    held = [len(worker._objects) for worker in workers]
    with torch.no_grad():
        torch.relu(secret)
    assert not programs and [len(worker._objects) for worker in workers] == held


def test_a_model_after_its_first_call(share: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 2, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 2)),
    ).eval()
    x = _pictures(2, 1, 8, 8)
    expected = model(x).detach()
    secret = share(model)
    with torch.no_grad():
        for _ in range(3):
            assert (_plain(secret(share(x))) - expected).abs().max() < 1e-3
