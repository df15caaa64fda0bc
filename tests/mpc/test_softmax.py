"""Softmax and its logarithm as one program: what it costs, that it is right, and what a backward pass uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from syft.mpc.group import Group
from syft.mpc.protocols import softmax as protocol

UNIT = 2.0**-16
ERROR = 2.0**-18 + 2 * UNIT


@pytest.fixture
def workers(hook: Any) -> list[Any]:
    return [sy.VirtualWorker(hook, id=f"softmax {name}", auto_add=False) for name in "abc"]


def _shared(values: torch.Tensor, workers: list[Any], **options: Any) -> Any:
    *holders, provider = workers
    fixed: Any = values.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    return fixed.share(*holders, crypto_provider=provider, **options)


def _plain(secret: Any) -> torch.Tensor:
    found: torch.Tensor = secret.get().float_precision()
    return found


@pytest.mark.parametrize(("name", "rounds"), [("softmax", 9), ("log_softmax", 7)])
def test_one_program_of_few_rounds_makes_it(
    name: str, rounds: int, workers: list[Any], programs: list[str]
) -> None:
    x = torch.randn(32, 10)
    secret = _shared(x, workers)
    programs.clear()
    group = Group.of(workers[:2], workers[2])
    group.reset_costs()
    found = getattr(torch, name)(secret, 1)
    assert programs == [f"softmax.{name}"]
    assert group.online.rounds == rounds
    assert (_plain(found) - getattr(x, name)(1)).abs().max() <= ERROR + 2 * UNIT  # of the input, too


@pytest.mark.parametrize("classes", [1, 2, 3, 10, 11, 15, 16, 62, 63, 64])
@pytest.mark.parametrize("dim", [0, -1])
def test_it_is_right_on_both_sides_of_every_limit(classes: int, dim: int, workers: list[Any]) -> None:
    torch.manual_seed(classes)
    shape = (classes, 3) if dim == 0 else (3, classes)
    x = (torch.randn(shape) * 6).mul_(2**16).round_().mul_(UNIT).double()
    secret = _shared(x, workers)
    assert (_plain(torch.softmax(secret, dim)) - x.softmax(dim)).abs().max() <= ERROR
    assert (_plain(torch.log_softmax(secret, dim)) - x.log_softmax(dim)).abs().max() <= ERROR


def test_powers_of_all_pairs_and_those_below_a_maximum_are_the_same(
    workers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = (torch.randn(2, 7, 9) * 8).mul_(2**16).round_().mul_(UNIT).double()
    x[0, :, :3] = x[0, 2, 1]  # some are equal
    x[1, :, 0] = 2.0**44
    secret = _shared(x, workers)
    group = Group.of(workers[:2], workers[2])
    for most, rounds in ((1 << 12, 9), (0, 13)):
        monkeypatch.setattr(protocol, "_MOST_POWERS", most)
        group.reset_costs()
        found = torch.softmax(secret, 1)
        assert group.online.rounds == rounds
        assert (_plain(found) - x.softmax(1)).abs().max() <= ERROR
        errors = (_plain(torch.log_softmax(secret, 1)) - x.log_softmax(1)).abs()
        assert (errors <= ERROR + 2.0**21 * (x.amax(1, keepdim=True) > 2**40)).all()


@pytest.mark.parametrize("distance", [10.0, 21.4, 21.6, 22.3, 50.0, 1e4, 2.0**44])
def test_powers_far_below_the_largest_vanish(distance: float, workers: list[Any]) -> None:
    x = torch.tensor([[0.0, -distance], [-distance, 0.0], [distance, 0.0], [-distance, -distance]]).double()
    assert (_plain(torch.softmax(_shared(x, workers), 1)) - x.softmax(1)).abs().max() <= ERROR
    # To 1 part in 2^23 in a logarithm as large as that.
    found = _plain(torch.log_softmax(_shared(x, workers), 1))
    assert ((found - x.log_softmax(1)).abs() <= ERROR + x.abs() * 2.0**-23).all()


def test_many_sums_take_the_way_of_few_bytes(workers: list[Any], programs: list[str]) -> None:
    x = torch.randn(700, 10)
    programs.clear()
    found = torch.softmax(_shared(x, workers), 1)
    assert "divide.divide_bounded" in programs
    assert (_plain(found) - x.softmax(1)).abs().max() <= ERROR + 2 * UNIT


@pytest.mark.parametrize("options", [{}, {"protocol": "fss"}, {"protocol": "spdz2k"}])
def test_every_protocol_has_it(options: dict[str, Any], workers: list[Any]) -> None:
    x = torch.randn(4, 5)
    secret = _shared(x, workers, **options)
    assert (_plain(torch.softmax(secret, 1)) - x.softmax(1)).abs().max() <= ERROR + 2 * UNIT
    assert (_plain(torch.log_softmax(secret, 1)) - x.log_softmax(1)).abs().max() <= ERROR + 3 * UNIT


def test_the_backward_pass_makes_no_second_exponential(workers: list[Any], programs: list[str]) -> None:
    x, labels = torch.randn(6, 5), F.one_hot(torch.tensor([0, 4, 1, 1, 2, 3]), 5).float()
    secret = _shared(x, workers).requires_grad_()
    programs.clear()
    F.cross_entropy(secret, _shared(labels, workers)).backward()
    assert [name for name in programs if name.startswith("softmax.")] == [
        "softmax.log_softmax",
        "softmax.log_softmax_backward",
    ]
    assert "exponential.exponential" not in programs
    leaf = x.requires_grad_()
    F.cross_entropy(leaf, labels).backward()
    assert leaf.grad is not None
    assert (_plain(secret.grad) - leaf.grad).abs().max() <= 6 * UNIT


def test_a_backward_pass_without_the_powers_finds_the_same(workers: list[Any]) -> None:
    x, grad = torch.randn(3, 4), torch.randn(3, 4)
    output = _shared(x.log_softmax(1), workers)  # of another process, say: nothing is known of it
    found = torch.ops.aten._log_softmax_backward_data.default(
        _shared(grad, workers), output, 1, torch.float32
    )
    expected = grad - x.softmax(1) * grad.sum(1, keepdim=True)
    assert (_plain(found) - expected).abs().max() <= 16 * UNIT
