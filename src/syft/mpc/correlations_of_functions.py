"""More kinds of correlated randomness: functions of a mask, for functions of what it masks.

One duty: as in `correlations`. A kind here deals a function of r, from which the holders make that of x = z - r once z is
open. May import `correlations`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from syft.mpc.correlations import Correlation, Field, Tensors


@dataclass(frozen=True)
class InverseExponential(Correlation):
    """r uniform, and (count, size): column hi is e^(-lo / scale) at `bits` bits where r mod (size 2^shift) is
    hi 2^shift + lo, and 0 elsewhere. `size` is a power of two.
    """

    count: int
    shift: int
    size: int
    scale: int
    bits: int

    def __post_init__(self) -> None:
        if self.size < 1 or self.size & (self.size - 1) or self.scale < 1 or not 0 < self.bits < 53:
            raise ValueError(
                f"An exponential has 2^k digits, a positive scale and up to 52 bits, got {self}."
            )
        if self.shift < 1 or self.shift + self.size.bit_length() > 63:
            raise ValueError(f"A digit of {self.size} values above {self.shift} bits is not inside a word.")

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.count,)),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((self.count, self.size)),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        (r,) = base
        low = (r & ((1 << self.shift) - 1)).to(torch.float64)
        inverse = low.mul_(-1 / self.scale).exp_().mul_(1 << self.bits).round_().to(torch.int64)
        column = (r >> self.shift).bitwise_and_(self.size - 1)
        rows = torch.zeros((self.count, self.size), dtype=torch.int64, device=r.device)
        return (rows.scatter_(1, column.unsqueeze_(1), inverse.unsqueeze_(1)),)
