"""Products of int64 made of products of doubles, exact mod 2^64. Imports nothing of ours.

NOTE [Products in doubles]
torch multiplies matrices of int64 with AVX-512, or one number at a time: without it `mm` of 1024 takes 5 s, and 0.05 s
for doubles. A ring element is low + 2^22 middle + 2^44 high, where low and middle are at most 2^21 in size and high is
at most 2^19 + 1. Of the nine products of such limbs, three have a weight of 2^66 and more, which is 0 in the ring. The
others are added up by weight:

    low low    +    2^22 (low middle + middle low)    +    2^44 (low high + middle middle + high low)

A sum of n such terms is at most 2 n 2^42 in size. Doubles know all integers up to 2^53, in whatever order they are added
up, so n = 1024 terms are exact; a longer sum is made in pieces. With the limbs of x as low, middle, high along the
dimension that is summed over and those of y as high, middle, low, each of the three sums is one product of slices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import torch

_BITS = 22
_TERMS = 1024


@lru_cache(maxsize=1)
def are_faster() -> bool:
    """Whether this machine multiplies matrices of doubles, six times over, in less time than one of int64."""
    integers = torch.arange(64 * 64).reshape(64, 64)
    return _shortest(integers) > 6 * _shortest(integers.double())


def _shortest(square: torch.Tensor) -> float:
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        torch.mm(square, square)
        times.append(time.perf_counter() - begun)
    return min(times)


def pay_for(rows: int, inner: int, columns: int, batch: int = 1) -> bool:
    """Whether a product of int64 of this size takes less time in doubles, the limbs to be made included.

    NB: a product in int64 takes 4 ns for each multiplication, in doubles 0.4 ns; limbs take 10 ns for each element, and
    three products of any size 0.2 ms.
    """
    work, touched = rows * inner * columns, rows * inner + inner * columns + rows * columns
    return batch * (work - 8 * touched) > 1 << 17 and are_faster()


def are_exact_for(terms: int) -> bool:
    """Whether so many products can be added up for one place of the dimension that is summed over."""
    return terms <= _TERMS


def contracted(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
    dims: tuple[int, int],
    terms: int = 1,
    groups: int = 1,
) -> torch.Tensor:
    """product(x, y) of int64, where `product` sums over dimension dims[0] of x and dims[1] of y.

    `terms` are added up for each place of that dimension: more than one in a convolution. With groups it is cut into
    so many parts in x, and in y too where it is as long there.
    """
    if not are_exact_for(terms):
        raise ValueError(f"{terms} products have no exact sum in doubles, at most {_TERMS} have.")
    length = x.shape[dims[0]] // groups
    if y.shape[dims[1]] not in (length, length * groups):
        return product(x, y)  # torch says what is wrong
    step = _TERMS // terms
    made = None
    for start in range(0, length, step):
        count = min(step, length - start)
        left = _Limbs(x, dims[0], groups, start, count, low_first=True)
        right = _Limbs(y, dims[1], y.shape[dims[1]] // length, start, count, low_first=False)
        total = product(left.part(0, 3), right.part(0, 3)).long().bitwise_left_shift_(_BITS)
        total.add_(product(left.part(0, 2), right.part(1, 3)).long()).bitwise_left_shift_(_BITS)
        total.add_(product(left.part(0, 1), right.part(2, 3)).long())
        made = total if made is None else made.add_(total)
    return product(x, y) if made is None else made


class _Limbs:
    """`count` places of a dimension, from `start` of each group on, as three limbs each, side by side in every group."""

    def __init__(
        self, x: torch.Tensor, dim: int, groups: int, start: int, count: int, *, low_first: bool
    ) -> None:
        self.dim, self.count = dim % x.ndim, count
        grouped = x.unflatten(self.dim, (groups, -1)).narrow(self.dim + 1, start, count)
        shape = list(grouped.shape)
        shape[self.dim + 1] *= 3
        self.all = torch.empty(shape, dtype=torch.double)
        low, middle, high = (self._at(place) for place in ((0, 1, 2) if low_first else (2, 1, 0)))
        signed = 64 - _BITS
        limb = torch.bitwise_left_shift(grouped, signed).bitwise_right_shift_(signed)
        low.copy_(limb)
        rest = torch.sub(grouped, limb).bitwise_right_shift_(_BITS)
        torch.bitwise_left_shift(rest, signed, out=limb).bitwise_right_shift_(signed)
        middle.copy_(limb)
        high.copy_(rest.sub_(limb).bitwise_right_shift_(_BITS))

    def _at(self, place: int) -> torch.Tensor:
        return self.all.narrow(self.dim + 1, place * self.count, self.count)

    def part(self, first: int, end: int) -> torch.Tensor:
        """The limbs from `first` to before `end`, groups one after the other again."""
        taken = self.all.narrow(self.dim + 1, first * self.count, (end - first) * self.count)
        return taken.flatten(self.dim, self.dim + 1)
