"""What a backward pass begins with is a known number: products with it cost little, and a write ends it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy

UNIT = 2.0**-16


@pytest.fixture
def share(hook: Any) -> Any:
    alice, bob, carol = (sy.VirtualWorker(hook, id=f"constant {name}", auto_add=False) for name in "abc")

    def shared(values: torch.Tensor) -> Any:
        fixed: Any = values.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
        return fixed.share(alice, bob, crypto_provider=carol)

    return shared


def _plain(secret: Any) -> torch.Tensor:
    found: torch.Tensor = secret.get().float_precision()
    return found


def test_a_product_with_ones_runs_no_program(share: Any, programs: list[str]) -> None:
    x = torch.tensor([1.5, -2.0, 0.25])
    secret = share(x)
    ones = torch.ones_like(secret)
    made = [secret * ones, ones * secret, secret * -ones, secret * torch.ones_like(secret[0])]
    assert not programs
    for found, sign in zip(made, (1, 1, -1, 1), strict=True):
        assert torch.equal(_plain(found), sign * x)


def test_a_known_number_divides_and_expands_without_a_program(share: Any, programs: list[str]) -> None:
    x = torch.tensor([[1.5, -2.0, 0.25], [3.0, 4.0, 5.0]])
    secret = share(x)
    third = (torch.ones_like(secret.sum()) / 3).expand(2, 3)
    assert not programs
    made = secret * third
    assert programs == ["truncate.rescale"]
    assert (_plain(made) - x / 3).abs().max() <= 1.1 * UNIT
    assert (_plain(third) - 1 / 3).abs().max() <= UNIT


def test_the_shape_of_a_product_is_that_of_both(share: Any) -> None:
    x = torch.tensor([1.5, -2.0, 0.25])
    secret = share(x)
    rows = torch.ones_like(torch.stack([secret, secret]))
    assert torch.equal(_plain(rows * secret), x.expand(2, 3))


@pytest.mark.parametrize("way", ["whole", "view", "base", "part"])
def test_a_write_ends_what_was_known(way: str, share: Any) -> None:
    x = torch.tensor([[1.5, -2.0], [0.25, 3.0]])
    secret = share(x)
    ones, expected = torch.ones_like(secret), torch.ones(2, 2)
    read, read_expected = ones, expected
    if way == "view":
        ones.t().add_(secret)
        expected.t().add_(x)
    elif way == "base":
        read, read_expected = ones.t(), expected.t()
        ones.mul_(secret)
        expected.mul_(x)
    elif way == "part":
        ones[0] = secret[1]
        expected[0] = x[1]
    else:
        ones.copy_(secret)
        expected.copy_(x)
    assert (_plain(secret * read) - x * read_expected).abs().max() <= 4 * UNIT


def test_a_write_through_a_view_that_is_older_ends_it(share: Any) -> None:
    x = torch.tensor([2.0, 3.0])
    secret = share(x)
    ones = torch.zeros_like(secret)
    view = ones[:]
    ones.copy_(torch.ones_like(secret))
    view.add_(secret)
    assert (_plain(secret * ones) - x * (1 + x)).abs().max() <= 2 * UNIT


def test_losses_multiply_no_gradient_by_one(share: Any, programs: list[str]) -> None:
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    secret = share(x).requires_grad_()
    loss = F.mse_loss(secret, share(y))
    programs.clear()
    loss.backward()
    assert programs == []
    leaf = x.requires_grad_()
    F.mse_loss(leaf, y).backward()
    assert leaf.grad is not None
    assert (_plain(secret.grad) - leaf.grad).abs().max() <= 4 * UNIT
    assert programs == ["truncate.truncate"]


def test_a_gradient_that_was_given_counts(share: Any) -> None:
    x = torch.tensor([1.0, 2.0])
    secret = share(x).requires_grad_()
    (secret * secret).sum().backward(share(torch.tensor(3.0)))
    assert (_plain(secret.grad) - 6 * x).abs().max() <= 8 * UNIT
