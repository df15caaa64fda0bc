"""What the tests of the edges share: secrets of every form, and values spread over a range."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

PRECISIONS = [(2, 16), (10, 3)]
#: Where the integers are: here, or split among so many holders.
FORMS = {"local": 0, "two holders": 2, "three holders": 3}


class Secrets:
    """`secrets(tensor)`: a tensor in one of the forms and precisions."""

    def __init__(self, make_worker: Any, holders: int, precision: tuple[int, int]) -> None:
        self.workers = [make_worker(f"holder{i}") for i in range(holders)]
        self.provider = make_worker("provider") if holders else None
        self.base, self.digits = precision
        self.scale = self.base**self.digits
        self.unit = 1.0 / self.scale

    def __call__(self, tensor: Any) -> Any:
        if tensor.is_floating_point():
            tensor = tensor.fix_precision(base=self.base, precision_fractional=self.digits)
        return tensor.share(*self.workers, crypto_provider=self.provider) if self.workers else tensor

    def module(self, module: Any) -> Any:
        fixed = module.fix_precision(base=self.base, precision_fractional=self.digits)
        return fixed.share(*self.workers, crypto_provider=self.provider) if self.workers else fixed

    def plain(self, secret: Any) -> torch.Tensor:
        value: torch.Tensor = (secret.virtual_get() if self.workers else secret).float_precision()
        return value

    def encoded(self, tensor: torch.Tensor) -> torch.Tensor:
        """The nearest values that this precision has."""
        return (tensor.double() * self.scale).round() / self.scale


def spread(low: float, high: float, count: int, seed: int = 0) -> torch.Tensor:
    """Positive values of every size between two, and both ends."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(count, generator=generator, dtype=torch.float64)
    places[:2] = torch.tensor([0.0, 1.0])
    return torch.exp(places * (math.log(high) - math.log(low)) + math.log(low))


def both(function: Any, secrets: Secrets, *inputs: torch.Tensor) -> tuple[Any, Any]:
    """(values, gradients) of a function, of secrets and plainly, as pairs (got, wanted)."""
    exact = [secrets.encoded(x).requires_grad_() for x in inputs]
    hidden = [secrets(x.detach()).requires_grad_() for x in exact]
    wanted, got = function(*exact), function(*hidden)
    wanted.sum().backward()
    got.sum().backward()
    values = (secrets.plain(got.detach()), wanted.detach())
    return values, [(secrets.plain(h.grad), e.grad) for h, e in zip(hidden, exact, strict=True)]


def assert_close(pair: tuple[Any, Any], allowed: Any, where: torch.Tensor | None = None) -> None:
    got, wanted = pair
    excess = (got - wanted).abs() - allowed
    if excess.max() > 0:
        worst = int(excess.flatten().argmax())
        at = None if where is None else where.flatten()[worst].item()
        pytest.fail(f"at {at}: got {got.flatten()[worst].item()}, wanted {wanted.flatten()[worst].item()}")
