"""e^x of fixed precision: how its argument is cut into digits. See `protocols.exponential`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from syft.mpc.protocols.exponential import DEALT_BITS, FACTOR_BITS
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_ring as ring

#: What an exponential ends at, as bits.
_MOST_BITS = 57


def exponential(child: Any, scale: int, result_scale: int | None = None, most: float | None = None) -> Any:
    """exp(x). Relative error 2^-19 plus 1 unit; beyond 2^57 units the result is that.

    `result_scale`: the units of the result where they are not those of x. `most`: no x is larger, as the caller knows.
    """
    units = result_scale or scale
    # From an eighth of a unit, which is 0, to what the ring holds.
    lowest = math.ceil((-math.log2(units) - 3) * math.log(2) * scale)
    highest = math.floor((_MOST_BITS - math.log2(units)) * math.log(2) * scale)
    end = highest if most is None else min(highest, math.ceil(most * scale))
    is_bounded = end < highest
    found = _exponential_table(scale, units, lowest, end)
    own = ring.fused(child, "exponential_cut")
    if own is not None:
        return own(*found.given, lowest, None if is_bounded else highest, 1 << _MOST_BITS)
    cut = raised(child, lowest) if is_bounded else approx.clamped(child, lowest, highest)
    own = ring.fused(cut, "exponential")
    return own(*found.given) if own is not None else _exponential_by_rows(cut, scale, units)


@cache
def power_below_one(scale: int, result_scale: int) -> tuple[Any, ...]:
    """What `protocols.softmax` makes of exponentials of numbers up to 0: see `Power` there."""
    lowest = math.ceil((-math.log2(result_scale) - 3) * math.log(2) * scale)
    return *_exponential_table(scale, result_scale, lowest, 0).given, lowest


@dataclass(frozen=True)
class ExponentialTable:
    """The digits of the argument of an exponential. NOTE [Classes of digits] in `protocols.exponential`."""

    scale: int
    start: int
    shift: int
    size: int
    digits: tuple[tuple[int, int, int], ...]
    shifts: tuple[int, ...]

    @property
    def given(self) -> tuple[Any, ...]:
        return self.scale, self.start, self.shift, self.size, self.digits, self.shifts


#: A class is precise where its public factor has so many bits, and fits where its products have.
_FACTOR_PRECISION, _PRODUCT_BITS = 19.3, 61.9
#: Fractional bits of the first class, of the small results: so many more than e^-rl has.
_FIRST_BITS = 4


@cache
def _exponential_table(scale: int, units: int, lowest: int, highest: int) -> ExponentialTable:
    """Digits of about 4 from `lowest` units or a little less: what gives the fewest classes."""
    shift = math.floor(math.log2(4.2 * scale))
    width = 1 << shift
    made = [
        _digits_from(lowest - width * part // 16, scale, units, shift, highest)
        for part in range(16 if width >= 16 else 1)
    ]
    return min(made, key=lambda table: (table.size, sum(map(bool, table.shifts))))


def _digits_from(start: int, scale: int, units: int, shift: int, highest: int) -> ExponentialTable:
    bits_of_digit = (1 << shift) / scale / math.log(2)
    count = -((start - highest - 1) >> shift) + 1
    digits, shifts = [], [DEALT_BITS + _FIRST_BITS]
    for digit in range(count):
        # The result is e^(this digit) within a factor of e^(2^shift / scale), and no more than 2^_MOST_BITS.
        exponent = (start + (digit << shift)) / scale / math.log(2) + math.log2(units)
        if min(exponent + bits_of_digit, _MOST_BITS) + shifts[-1] > _PRODUCT_BITS:
            shifts.append(max(0, math.ceil(DEALT_BITS + _FACTOR_PRECISION - exponent)))
        # e^digit 2^shifts[-1] / (2^DEALT_BITS 2^FACTOR_BITS) = factor / 2^right
        exact = exponent + shifts[-1] - DEALT_BITS - FACTOR_BITS
        right = FACTOR_BITS - 1 - math.floor(exact)
        digits.append((round(2.0 ** (exact + right)), right, len(shifts) - 1) if right < 63 else (0, 1, 0))
    return ExponentialTable(scale, start, shift, 1 << (count - 1).bit_length(), tuple(digits), tuple(shifts))


#: Bits of 2^f where an exponential is read from rows, and of what it is divided by where its result is small.
_POWER_BITS, _POWER_SHIFT = 24, 31
#: Exponents per entry of its tables, as bits, and entries.
_POWER_LOW, _POWER_ENTRIES = 2, 32


def _exponential_by_rows(child: Any, scale: int, units: int) -> Any:
    """The same from an argument in its range, for children without a program of their own: 2^(whole + fraction)."""
    low, high = -math.log2(units) - 3, _MOST_BITS - math.log2(units)
    turns = approx.to_work(child, scale, max(high, -low), math.log2(math.e))
    # 2^turns = 2^(4 hi + lo) 2^f, with 4 hi + lo counted from `start` on so that hi begins at 0, and |lo| < 4.
    width = 1 << _POWER_LOW
    start = math.floor(low) - width
    turns, tables = ring.minus(turns, start << approx.WORK), _power_tables(units, start)
    coefficients = [c * math.frexp(units)[0] for c in approx.fitted(np.exp2, -1.0, 1.0, 6)]
    fraction, (small, large) = ring.looked_up(turns, approx.WORK, tables, _POWER_LOW)
    power = approx.polynomial(coefficients, fraction, _POWER_BITS)
    fine, coarse = ring.unstacked(ring.times(ring.stacked([small, large]), ring.unsqueezed(power, 0)))
    return ring.plus(ring.truncate(fine, 1 << _POWER_SHIFT), coarse)


@cache
def _power_tables(units: int, start: int) -> list[list[int]]:
    """What 2^f (times the mantissa of the units) is multiplied by for a hi: before a truncation, and without one."""
    small, large = [0] * _POWER_ENTRIES, [0] * _POWER_ENTRIES
    width, (_, exponent) = 1 << _POWER_LOW, math.frexp(units)
    for hi in range(_POWER_ENTRIES):
        # Read times 2^(lo + width - 1), so the result is 2^f at _POWER_BITS times that times 2^place.
        place = start + width * hi + exponent - _POWER_BITS - (width - 1)
        if -_POWER_SHIFT <= place < 0:
            small[hi] = 1 << (place + _POWER_SHIFT)
        elif 0 <= place <= 57 + width - _POWER_BITS:  # those beyond cannot occur
            large[hi] = 1 << place
    return [small, large]


def raised(child: Any, low: int) -> Any:
    """The child, or `low` where it is less."""
    above = ring.minus(child, low)
    return ring.plus(ring.positive_part(above)[0], low)
