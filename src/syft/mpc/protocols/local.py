"""Programs without rounds: what every holder does to its own share, where it has to be one program."""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.kernels import Bilinear
from syft.mpc.party import Party, Program, zeros_like
from syft.mpc.programs import OUTLINES, party_program


@party_program
def add(party: Party, x: torch.Tensor, y: torch.Tensor) -> Program[torch.Tensor]:
    """The sum of two secrets."""
    return x + y
    yield  # pragma: no cover  (makes this a party program)


@party_program
def zeros(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """Zeros like a secret."""
    return zeros_like(x)
    yield  # pragma: no cover


@party_program
def negate(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """The opposite of a secret."""
    return -x
    yield  # pragma: no cover


@party_program
def public_product(
    party: Party, x: torch.Tensor, factor: torch.Tensor, op: Bilinear, from_left: bool = False
) -> Program[torch.Tensor]:
    """op(x, factor), or op(factor, x), of a secret and a public value."""
    return op(factor, x) if from_left else op(x, factor)
    yield  # pragma: no cover


def _outline_product(_ask: Any, make: Any, args: Any, kwargs: Any) -> Any:
    """From shapes alone: a client need not multiply on the CPU what holders multiply on a card."""
    x, factor, op = args
    left, right = (factor, x) if dict(kwargs).get("from_left") else (x, factor)
    return [], make(op.output_shape(left.shape, right.shape), torch.int64)


OUTLINES["local.public_product"] = _outline_product
