"""Integers mod 2^110 in tensors: five limbs of 22 bits, in int64, least significant first.

A limb has room for 41 bits more, so sums, and products of two limbs summed up to 2^16 times, need no carry at once;
`normal` carries. Only that is done here which is linear in one wide operand: the other one is public. Imports nothing
of ours.

`lo, hi` is the packed form: 64 bits, and the 46 above them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

LIMB = 22
COUNT = 5
BITS = LIMB * COUNT
EXTRA = BITS - 64
"""The bits above a word: s in SPDZ2k."""
_MASK = (1 << LIMB) - 1
_EXTRA_MASK = (1 << EXTRA) - 1
_OVER = 64 - 2 * LIMB  # bits of the third limb that are in the low word

Limbs = tuple[torch.Tensor, ...]
Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def unpacked(lo: torch.Tensor, hi: torch.Tensor) -> Limbs:
    """The limbs of a packed number; bits of `hi` beyond the 46 are left out."""
    third = (lo >> (2 * LIMB)).bitwise_and_((1 << _OVER) - 1)
    third.bitwise_or_(hi.bitwise_and(_MASK >> _OVER).bitwise_left_shift_(_OVER))
    rest = LIMB - _OVER
    return (
        lo & _MASK,
        (lo >> LIMB).bitwise_and_(_MASK),
        third,
        (hi >> rest).bitwise_and_(_MASK),
        (hi >> (rest + LIMB)).bitwise_and_(_MASK),
    )


def packed(limbs: Limbs) -> tuple[torch.Tensor, torch.Tensor]:
    """`lo, hi` of any limbs."""
    a, b, c, d, e = normal(limbs)
    rest = LIMB - _OVER
    hi = (c >> _OVER).bitwise_or_(d << rest).bitwise_or_(e << (rest + LIMB))
    return low_word((a, b, c)), hi


def normal(limbs: Sequence[torch.Tensor]) -> Limbs:
    """The same number with limbs from 0 to 2^22 - 1."""
    out, carry = [], None
    for limb in limbs:
        total = limb if carry is None else limb + carry
        out.append(total & _MASK)
        carry = total >> LIMB
    return tuple(out)


def low_word(limbs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The number mod 2^64, of any limbs."""
    return (limbs[1] << LIMB).add_(limbs[0]).add_(limbs[2] << (2 * LIMB))


def of_public(value: torch.Tensor) -> Limbs:
    """An int64 as a number: three limbs, the last with its sign."""
    return value & _MASK, (value >> LIMB).bitwise_and_(_MASK), value >> (2 * LIMB)


def product(op: Op, x: Sequence[torch.Tensor], y: Sequence[torch.Tensor]) -> Limbs:
    """op(x, y) for a bilinear `op`, one operand public, limb by limb; the result is normal."""
    out: list[torch.Tensor | None] = [None] * COUNT
    for i, left in enumerate(x):
        for j, right in enumerate(y[: COUNT - i]):
            part = op(left, right)
            found = out[i + j]
            out[i + j] = part if found is None else found.add_(part)
    first = next(part for part in out if part is not None)
    return normal([torch.zeros_like(first) if part is None else part for part in out])


def add(x: Sequence[torch.Tensor], y: Sequence[torch.Tensor]) -> Limbs:
    """x + y, not normal; y may have fewer limbs."""
    return tuple(a + y[k] if k < len(y) else a for k, a in enumerate(x))


def sub(x: Sequence[torch.Tensor], y: Sequence[torch.Tensor]) -> Limbs:
    return tuple(a - y[k] if k < len(y) else a for k, a in enumerate(x))


def shifted_by_word(limbs: Limbs) -> Limbs:
    """2^64 times the number."""
    zero = torch.zeros_like(limbs[0])
    return normal((zero, zero, *(limb << _OVER for limb in limbs[: COUNT - 2])))


def as_integer(limbs: Sequence[torch.Tensor]) -> int:
    """The residue of one number."""
    return sum(int(limb) << (LIMB * k) for k, limb in enumerate(limbs)) % (1 << BITS)


def of_integer(value: int) -> Limbs:
    """The limbs of one residue."""
    return tuple(torch.tensor((value >> (LIMB * k)) & _MASK) for k in range(COUNT))
