"""e^x from one opening.

NOTE [Exponentials of what is masked]
e^x = e^z e^-r for x = z - r: what is open times what the provider deals. z = x + r is opened modulo `size` digits of
2^shift units each, and r is uniform there, so z is, too. Digit by digit, for z = zh 2^shift + zl and r = rh 2^shift + rl,

    e^x = e^(2^shift (zh - rh)) e^zl e^-rl        in units of x,

without any borrow between the digits. The provider deals e^-rl in row rh of a column that is 0 elsewhere
(`InverseExponential`); the holders multiply row zh - d by the public e^zl e^(2^shift d) for each d that can be, and add.
(Additive masks as multiplicative ones by a homomorphism: Zheng et al., "Secure softmax/sigmoid for machine-learning
computation", ACSAC 2023, do the same for sines; the row is the one-time table of Ishai et al., TCC 2013,
section 3.1.)

NOTE [Classes of digits]
A product is the result times 2^s, less than 2^62, and its public factor must be precise. So the digits are cut into a few
classes with an s each: what is read for each of them is truncated by 2^s. All but one of them read 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from syft.mpc.correlations_of_functions import InverseExponential
from syft.mpc.party import Party, Program, primitive, sealed_twin, stack, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.compare import How, negative_sums
from syft.mpc.protocols.convert import bits_to_arithmetic, multiply_bits
from syft.mpc.protocols.lookup import packed, placed
from syft.mpc.protocols.truncate import truncate

#: Bits of e^-rl, and of what it is multiplied by.
DEALT_BITS, FACTOR_BITS = 25, 24
#: So many of the highest bits of zl are used, half of them in each of two tables.
_TABLE_BITS = 24
_COARSE, _FINE = 30, 26
_BLOCK = 1 << 12

Digits = tuple[tuple[int, int, int], ...]
"""For each digit (factor, right, place)."""


@party_program
def exponential(
    party: Party,
    x: torch.Tensor,
    scale: int,
    start: int,
    shift: int,
    size: int,
    digits: Digits,
    shifts: tuple[int, ...],
    low: int | None = None,
    high: int | None = None,
    most: int = 0,
    how: How | None = None,
) -> Program[torch.Tensor]:
    """e^(x / scale) times what the factors say. 0 for x < low, `most` for x > high. Two rounds without these, else four.

    (`factor`, `right`, `place`) of digit d, of 2^shift units from `start` on: e^(d digits) is factor / 2^right, and its
    class is truncated by 2^shifts[place]. NOTE [Exponentials of what is masked]
    """
    reading = _read_and_truncate(party, party.plus(x, -start), scale, shift, size, digits, shifts)
    if how is None:
        return (yield from reading)
    edges = [-edge for edge in (low, None if high is None else high + 1) if edge is not None]
    value, sides = yield from together(reading, negative_sums(party, x, edges, how))
    below, *not_above = sides
    inside = below ^ not_above[0] if not_above else party.inverted(below)
    selecting = multiply_bits(party, inside, x.numel(), [value.reshape(-1, 1)])
    if not not_above:
        _, (kept,) = yield from selecting
        return kept.view(x.shape)
    (_, (kept,)), above = yield from together(
        selecting, bits_to_arithmetic(party, party.inverted(not_above[0]), x.numel())
    )
    return kept.view(x.shape).add_(above.mul_(most).view(x.shape))


def _read_and_truncate(
    party: Party,
    x: torch.Tensor,
    scale: int,
    shift: int,
    size: int,
    digits: Digits,
    shifts: tuple[int, ...],
) -> Program[torch.Tensor]:
    read = yield from read_exponential(party, x, scale, shift, size, digits, len(shifts))
    parts = yield from together(
        *(truncate(party, part, 1 << by) for part, by in zip(read, shifts, strict=True))
    )
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@primitive
def read_exponential(
    party: Party,
    x: torch.Tensor,
    scale: int,
    shift: int,
    size: int,
    digits: Digits,
    classes: int,
) -> Program[torch.Tensor]:
    """(classes, *shape): e^(x / scale) as NOTE [Classes of digits] says. One round, four bytes where the digits fit."""
    r, rows = party.take(InverseExponential(x.numel(), shift, size, scale, DEALT_BITS))
    masked = r.add_(x.reshape(-1))
    # The lowest bits of the shares of x + r are shares of those of z, and say nothing else.
    width = shift + size.bit_length() - 1
    z = yield party.open(masked.to(torch.int32) if width <= 32 else masked.bitwise_and_((1 << width) - 1))
    turn, factors = _open_parts(z.to(torch.int64), scale, shift, size)
    summed = _sums_on_cpu if rows.device.type == "cpu" else _sums
    return summed(rows, turn, factors, digits, classes).view(classes, *x.shape)


def _open_parts(z: torch.Tensor, scale: int, shift: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """zh and e^zl, which is at FACTOR_BITS."""
    coarse, fine, half = _tables(scale, shift, z.device)
    used = (z & ((1 << shift) - 1)) >> max(shift - 2 * half, 0)
    # 30 bits and e^5 for the one, 26 for the other: less than 2^63.
    both = coarse[used >> half].mul_(fine[used.bitwise_and_((1 << half) - 1)])
    factors = both.bitwise_right_shift_(_COARSE + _FINE - FACTOR_BITS)
    return (z >> shift).bitwise_and_(size - 1), factors


def _sums_on_cpu(
    rows: torch.Tensor, turn: torch.Tensor, factors: torch.Tensor, digits: Digits, classes: int
) -> torch.Tensor:
    """`_sums`, block by block: what is used again stays in the cache."""
    count, size = rows.shape
    out = np.zeros((classes, count), np.int64)
    entries, turns, public = rows.numpy(), turn.numpy(), factors.numpy()
    first = np.arange(_BLOCK) * size
    place, product = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    for start in range(0, count, _BLOCK):
        part = slice(start, start + _BLOCK)
        block, at, by = entries[part].reshape(-1), turns[part], public[part]
        where, made = place[: len(at)], product[: len(at)]
        for digit, (factor, right, of) in enumerate(digits):
            if not factor:
                continue
            np.subtract(at, digit, out=where)
            np.bitwise_and(where, size - 1, out=where)
            np.add(where, first[: len(at)], out=where)
            np.multiply(by, factor, out=made)
            np.add(made, 1 << (right - 1), out=made)
            np.right_shift(made, right, out=made)
            np.multiply(made, block.take(where), out=made)
            np.add(out[of, part], made, out=out[of, part])
    return torch.from_numpy(out)


def _sums(
    rows: torch.Tensor, turn: torch.Tensor, factors: torch.Tensor, digits: Digits, classes: int
) -> torch.Tensor:
    """(classes, n): row (turn - d) mod size times the factor of digit d, added up over the digits of a class."""
    size = rows.shape[1]
    out: list[Any] = [0] * classes
    for digit, (factor, right, of) in enumerate(digits):
        if factor:
            public = (factors * factor + (1 << (right - 1))) >> right
            column = rows.gather(1, ((turn - digit) & (size - 1)).unsqueeze(1))
            out[of] = column.reshape(-1) * public + out[of]
    return stack(out)


# -- tables of e^zl ----------------------------------------------------------------------------------------

_EXACT = 192


@lru_cache(maxsize=64)
def _powers(step: int, scale: int, count: int, bits: int) -> bytes:
    """e^(i step / scale) for i < count, at `bits` bits. All holders have to find the same, so it takes integers alone."""
    one = 1 << _EXACT
    term = base = one
    for k in range(1, 200):
        term = term * step // (scale * k)
        base += term
    found, power = [], one
    for _ in range(count):
        found.append((power + (1 << (_EXACT - bits - 1))) >> (_EXACT - bits))
        power = power * base >> _EXACT
    return packed(found)


def _tables(scale: int, shift: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, int]:
    """e^zl is an entry of the first, by the upper `half` of the bits that are used, times one of the second."""
    half = min(shift + 1, _TABLE_BITS) // 2
    unused = max(shift - 2 * half, 0)
    coarse = _powers(1 << (unused + half), scale, 1 << max(shift - unused - half, 0), _COARSE)
    fine = _powers(1 << unused, scale, 1 << half, _FINE)
    return (
        placed(coarse, len(coarse) // 8, device)[0],
        placed(fine, len(fine) // 8, device)[0],
        half,
    )


# -- authenticated shares ----------------------------------------------------------------------------------


@sealed_twin("exponential.read_exponential")
def read_exponential_sealed(
    party: Party, x: Any, scale: int, shift: int, size: int, digits: Digits, classes: int
) -> Program[Any]:
    """The same on authenticated shares."""
    r, rows = party.seal.take(InverseExponential(x.numel(), shift, size, scale, DEALT_BITS))
    z = yield party.seal.open(r + x.reshape(-1))
    turn, factors = _open_parts(z, scale, shift, size)
    return _sums(rows, turn, factors, digits, classes).reshape(classes, *x.shape)
