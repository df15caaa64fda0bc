"""More kinds of correlated randomness: functions of a mask, for functions of what it masks.

One duty: as in `correlations`. A kind here deals a function of r, from which the holders make that of x = z - r once z is
open. May import `correlations`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from syft.mpc import ring
from syft.mpc.correlations import Comparison, Correlation, Field, Tensors


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


@dataclass(frozen=True)
class DigitPowers(Correlation):
    """r uniform, and (degree + 1, count, size): for k = 0, 1, ..., column hi is (-lo / 2^shift)^k at `bits` bits where r
    mod (size 2^shift) is hi 2^shift + lo, and 0 elsewhere. `size` is a power of two.
    """

    count: int
    shift: int
    size: int
    degree: int
    bits: int

    def __post_init__(self) -> None:
        if self.size < 1 or self.size & (self.size - 1):
            raise ValueError(f"A digit has a power of two of values, got {self.size}.")
        if self.shift < 1 or self.shift + self.size.bit_length() > 63:
            raise ValueError(f"A digit of {self.size} values above {self.shift} bits is not inside a word.")
        if not 0 <= self.degree <= 16 or not 1 <= self.bits <= 52:
            raise ValueError(f"Powers of a rest have degree 0 to 16 and 1 to 52 bits, got {self}.")

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.count,)),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((self.degree + 1, self.count, self.size)),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        (r,) = base
        rest = (r & ((1 << self.shift) - 1)).to(torch.float64).mul_(-(0.5**self.shift))
        exponents = torch.arange(self.degree + 1, device=r.device).unsqueeze_(1)
        made = torch.pow(rest, exponents).mul_(1 << self.bits).round_().to(torch.int64)
        column = (r >> self.shift).bitwise_and_(self.size - 1).expand(made.shape).unsqueeze(2)
        rows = torch.zeros(self.derived[0].shape, dtype=torch.int64, device=r.device)
        return (rows.scatter_(2, column, made.unsqueeze_(2)),)


@dataclass(frozen=True)
class MaskedNibbles(Correlation):
    """r uniform, the products of the bits of each of its 16 nibbles, Boolean-shared (as in `Comparison`), a mask m of
    something to multiply with, and m r.
    """

    count: int

    @cached_property
    def tree(self) -> Comparison:
        """Tells how elements lie in words, and makes the products."""
        return Comparison(self.count, 4, False)

    @property
    def base(self) -> tuple[Field, ...]:
        return self.tree.base[0], Field((self.count,))

    @property
    def derived(self) -> tuple[Field, ...]:
        return self.tree.derived[0], Field((self.count,))

    def derive(self, *base: torch.Tensor) -> Tensors:
        r, mask = base
        return self.tree.monomials(r), mask * r[: self.count]


@dataclass(frozen=True)
class MaskedPlace(Correlation):
    """Eight bits and a number below 8 for each element, uniform, as two Boolean-shared bytes, those of all elements one
    after the other; the bits as numbers (count, 8), and the one-hot row of the number (count, 8).
    """

    count: int

    @property
    def base(self) -> tuple[Field, ...]:
        words = -(-self.count // ring.WORD_BYTES)
        return Field((words,), True), Field((words,), True)

    @property
    def derived(self) -> tuple[Field, ...]:
        return Field((self.count, 8)), Field((self.count, 8))

    def derive(self, *base: torch.Tensor) -> Tensors:
        bits, number = (words.view(torch.uint8)[: self.count].to(torch.int64).unsqueeze(1) for words in base)
        places = torch.arange(8, device=bits.device)
        return (bits >> places).bitwise_and_(1), (number.bitwise_and_(7) == places).to(torch.int64)


@dataclass(frozen=True)
class PowersOfFraction(Correlation):
    """r uniform; for q in [-1, 1), what the 63 lowest bits of r say, at `bits` bits: q, ..., q^degree, then 1, q, ...,
    q^degree where r's highest bit is 0, and -1, -q, ..., -q^degree where it is 1.
    """

    count: int
    degree: int
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= 16 or not 1 <= self.bits <= 52:
            raise ValueError(f"Powers of a fraction have degree 1 to 16 and 1 to 52 bits, got {self}.")

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.count,)),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((2 * self.degree + 1, self.count)),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        (r,) = base
        q = centred(r).to(torch.float64).mul_(2.0**-63)
        made = torch.empty(self.derived[0].shape, dtype=torch.int64, device=r.device)
        power = torch.ones_like(q)
        turn = (r >> 63).bitwise_or_(1)  # -1 where the highest bit is 1
        made[self.degree] = turn << self.bits
        for exponent in range(1, self.degree + 1):
            power.mul_(q)
            row = made[exponent - 1]
            row.copy_(torch.mul(power, 1 << self.bits).round_())
            torch.mul(row, turn, out=made[self.degree + exponent])
        return (made,)


def centred(words: torch.Tensor) -> torch.Tensor:
    """q 2^63 for the q in [-1, 1) that the 63 lowest bits say: 0 of them is -1."""
    return (words << 1).bitwise_xor_(ring.MIN)


@dataclass(frozen=True)
class Waves(Correlation):
    """r uniform; for a = 2 pi r / 2^width and each amplitude A, of m = 1, 3, 5, ...: A cos(m a), -A sin(m a).

    The amplitudes and what is dealt have AMPLITUDE_BITS and `bits` fractional bits.
    """

    count: int
    width: int
    bits: int
    amplitudes: tuple[int, ...]

    AMPLITUDE_BITS: ClassVar[int] = 40

    def __post_init__(self) -> None:
        most = 2 << self.AMPLITUDE_BITS
        if not 1 <= len(self.amplitudes) <= 32 or any(abs(one) > most for one in self.amplitudes):
            raise ValueError(f"There are 1 to 32 waves, each of an amplitude up to 2, got {self.amplitudes}.")
        if not 2 <= self.width <= 62 or not 1 <= self.bits <= 50:
            raise ValueError(
                f"Angles have 2 to 62 bits, and waves up to 50, got {self.width} and {self.bits}."
            )

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.count,)),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((len(self.amplitudes), 2, self.count)),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        (r,) = base
        angle = (r & ((1 << self.width) - 1)).to(torch.float64).mul_(2 * math.pi / (1 << self.width))
        made = torch.empty(self.derived[0].shape, dtype=torch.int64, device=r.device)
        cosine, sine = angle.cos(), angle.sin_().neg_()
        twice = cosine.square().mul_(4).sub_(2)  # 2 cos(2 a)
        wave, before = torch.stack([cosine, sine]), torch.stack([cosine, -sine])
        for amplitude, rows in zip(self.amplitudes, made, strict=True):
            rows.copy_(torch.mul(wave, amplitude * 2.0 ** (self.bits - self.AMPLITUDE_BITS)).round_())
            # cos((m + 2) a) = 2 cos(2 a) cos(m a) - cos((m - 2) a), and the same for sines
            wave, before = torch.addcmul(-before, twice, wave), wave
        return (made,)
