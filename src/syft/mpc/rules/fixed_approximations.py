"""Functions of secrets from ring operations alone: the mathematics, on children.

NOTE [How a function is approximated]
Everything starts with secret bits that bring the argument into one small interval, so that one polynomial
(or one table of small polynomials) is right over the whole representable range:

    1/x, x^(±1/2), log     the leading bit of x gives x = y * 2^j with y in [1/2, 1)
    softplus, silu, gelu   |x|, cut at a bound beyond which the function is known, is in one of 16 to 64 segments

exp and the odd functions that end at ±1 are found from one opening: see `fixed_exponentials` and `fixed_waves`. Children
without programs for that come here, too.

Inside, numbers have WORK fractional bits whatever base and precision the tensor has. Powers of the argument
are made by doubling (x, x^2 | x^3 x^4 | x^5..x^8), so that a polynomial of degree 8 takes three products
and one truncation. At the end a secret gain (a combination of the same bits) brings the result to units.

Errors below are relative to the result plus units (1 / scale) in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from syft.mpc.protocols.lookup import packed
from syft.mpc.protocols.polynomials import matrix_of
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children

aten = torch.ops.aten

#: Fractional bits of numbers inside an approximation.
WORK = 28
#: Candidates for the leading bit of a representable number.
LEADING = 62
_DEGREE = 8


# -- polynomials --------------------------------------------------------------------------------------------


@cache
def fitted(function: Callable[[Any], Any], low: float, high: float, degree: int = _DEGREE) -> list[float]:
    """Coefficients, lowest first, in t = the place in [low, high] as a number in [-1, 1]."""
    with np.errstate(all="ignore"):
        fit = np.polynomial.chebyshev.Chebyshev.interpolate(function, degree, domain=[low, high])
    return [float(c) for c in np.polynomial.chebyshev.cheb2poly(fit.coef)]


def _product(a: Any, b: Any) -> Any:
    return ring.scaled(a, b, 1 << WORK)


def powers(t: Any, degree: int) -> list[Any]:
    """[t, t^2, ..., t^degree] at WORK bits, by doubling."""
    made = [t]
    while len(made) < degree:
        take = made[: degree - len(made)]
        highest = made[-1]
        if len(take) == 1:
            made.append(_product(take[0], highest))
        else:
            made += ring.unstacked(_product(ring.stacked(take), ring.unsqueezed(highest, 0)))
    return made


def polynomial(coefficients: Sequence[float], t: Any, bits: int = WORK) -> Any:
    """The value at t (WORK bits, |t| <= 1), at `bits` bits."""
    own = ring.fused(t, "polynomial")
    if own is not None:
        return own(_packed(coefficients), WORK, bits)
    total: Any = None
    for coefficient, power in zip(coefficients[1:], powers(t, len(coefficients) - 1), strict=True):
        term = ring.times(power, round(coefficient * (1 << WORK)))
        total = term if total is None else ring.plus(total, term)
    return ring.plus(ring.truncate(total, 1 << (2 * WORK - bits)), round(coefficients[0] * (1 << bits)))


def _packed(coefficients: Sequence[float]) -> bytes:
    return packed([round(c * (1 << WORK)) for c in coefficients])


# -- scaling ------------------------------------------------------------------------------------------------


def rescaled(child: Any, factor: float, bound: float) -> Any:
    """child * factor for a public factor, |child| < bound, with as many bits of the factor as fit the
    ring.
    """
    multiplier, divisor = fraction_of(factor, bound)
    if divisor == 1:
        return ring.times(child, multiplier)
    own = ring.fused(child, "rescaled")
    if own is not None:
        return own(multiplier, divisor)
    return ring.scaled(child, multiplier, divisor)


def fraction_of(factor: float, bound: float) -> tuple[int, int]:
    """(multiplier, divisor) of a public factor, the divisor a power of two: for integers below `bound`."""
    if factor == int(factor):
        return int(factor), 1
    shift = 61 - math.ceil(math.log2(bound)) - math.frexp(factor)[1]
    shift = max(0, min(61, shift))
    multiplier = round(factor * 2.0**shift)
    while shift and multiplier and multiplier % 2 == 0:
        multiplier, shift = multiplier // 2, shift - 1
    return multiplier, 1 << shift


def gained(value: Any, rows: Any, gains: Sequence[float]) -> Any:
    """value * gains[i], where row i is 1: value at WORK bits and below 2, gains in units.

    Error: 1 unit, or 2^-20 of the result where that is more.
    """
    fine, bits = 9, 22
    coarse = [max(0, math.frexp(g)[1] - bits) if g else 0 for g in gains]
    table = [round(g / 2.0**e * (1 << fine)) for g, e in zip(gains, coarse, strict=True)]
    # 1 in every row that has nothing to add: rows that are 0 everywhere give 0 either way.
    small, *large = ring.weighted_rows(rows, table, *([[1 << e for e in coarse]] if any(coarse) else []))
    made = ring.scaled(value, small, 1 << (WORK + fine))
    return ring.times(made, large[0]) if large else made


def normalised(child: Any) -> tuple[Any, Any]:
    """(rows, t): the leading bit of x > 0 as one-hot rows, and t in [-1, 1) with x = (3 + t) / 4 * 2^(i +
    1).
    """
    rows = ring.leading_bit(child, LEADING)
    (gain,) = ring.weighted_rows(rows, [1 << (LEADING - 1 - i) for i in range(LEADING)])
    # x * gain is in [2^61, 2^62): 4 * that / 2^62 - 3 at WORK bits.
    return rows, ring.minus(ring.scaled(child, gain, 1 << (LEADING - 2 - WORK)), 3 << WORK)


#: What brings a number to 2^63, by the byte of its leading bit and by the place there.
_BYTES_UP, _PLACES_UP = [1 << (56 - 8 * k) for k in range(8)], [1 << (7 - place) for place in range(8)]
#: Bits of a gain by the place, and of its product with the function; what small results are divided by, as bits.
_PLACE_BITS, _FINE_BITS, _SMALL_SHIFT = 24, 22, 31


def by_leading_bit(child: Any, function: Callable[[Any], Any], gains: Sequence[float]) -> Any:
    """function(y) * gains[i] for x = y 2^(i + 1), y from 1/2 to 1. 8 steps of i change the gain by a power of two.

    0 for x <= 0. Relative error 2^-20 beside that of the polynomial, and 1 unit.
    """
    own = ring.fused(child, "scaled_function")
    if own is None or max(gains) >= 2.0**59:
        rows, t = normalised(child)
        return gained(polynomial(fitted(function, 0.5, 1.0), t), rows, gains)
    exponent, step = math.frexp(min(gains[:8]))[1] - 1, round(math.log2(gains[8] / gains[0]))
    by_place = [round(gain * 2.0 ** (_PLACE_BITS - exponent)) for gain in gains[:8]]
    # function * gain by the place is below 2^(_FINE_BITS + 9), so that of a small result fits the ring with its shift.
    exponents = [exponent + step * k - _FINE_BITS for k in range(8)]
    small = [1 << e + _SMALL_SHIFT if -_SMALL_SHIFT <= e < 0 else 0 for e in exponents]
    large = [1 << e if 0 <= e < 62 else 0 for e in exponents]
    by_byte = packed(_BYTES_UP, small, *([large] if any(large) else []))
    inner = 1 << (WORK + _PLACE_BITS - _FINE_BITS)
    return own(by_byte, packed(_PLACES_UP, by_place), *_matrix(function, 21), WORK, inner, 1 << _SMALL_SHIFT)


@cache
def _matrix(function: Callable[[Any], Any], bits: int) -> tuple[int, bytes]:
    """The lowest degree of which a polynomial is as near to function(y) as that, relative to 1 or to what is more."""
    t = np.linspace(-1.0, 1.0, 513)
    exact = function((3 + t) / 4)
    for degree in range(3, _DEGREE + 1):
        coefficients = fitted(function, 0.5, 1.0, degree)
        errors = np.abs(np.polyval(coefficients[::-1], t) - exact) / np.maximum(1, np.abs(exact))
        if errors.max() < 2.0**-bits:
            break
    return degree, matrix_of(coefficients)


def magnitude(child: Any) -> tuple[Any, Any]:
    """(1 where x <= 0, absolute value)."""
    part, positive = ring.positive_part(child)
    return ring.from_public(1, positive), ring.minus(ring.times(part, 2), child)


def signed(negative: Any, child: Any) -> Any:
    """-child where `negative` is 1."""
    return ring.minus(child, ring.times(ring.multiply_bit(negative, child), 2))


# -- quotients and roots -------------------------------------------------------------------------------


def _inverse(y: Any) -> Any:
    return 1.0 / y


def _inverse_root(y: Any) -> Any:
    return y**-0.5


def reciprocal(child: Any, scale: int, number: float = 1.0) -> Any:
    """number / x. Relative error 2^-19 plus 1 unit; 0 for x = 0. What does not fit ends as in `divide`."""
    negative, size = magnitude(child)
    largest = _LARGEST_QUOTIENT
    gains = [min(abs(number) * float(scale) ** 2 / 2.0 ** (i + 1), largest) for i in range(LEADING)]
    made = signed(negative, by_leading_bit(size, _inverse, gains))
    return ring.negated(made) if number < 0 else made


#: Bits of the inverse of a denominator in `divide_small`; the numerator has the others.
_QUOTIENT_BITS = 24
_GUARD = 12
#: Quotients end here, in units: their gain at most, and they are less than twice it.
_LARGEST_QUOTIENT = 2.0**60
#: Rows of the one-hot difference of two leading bits, and the row of difference 0.
_DIFFERENCES, _SAME = 128, 64


def divide(numerator: Any, denominator: Any, scale: int) -> Any:
    """x / y, both in the same units, with `scale` units of the result to the one.

    Relative error 2^-19 plus 1 unit, for all x and y below 2^62 units; 0 for y = 0. A quotient of 2^60 units or more
    that does not fit ends between 2^60 and 2^61 units, with its sign.
    """
    (of_x, _, _), (of_y, below_y, size) = _leading_bits(numerator, denominator)
    shifts = [1 << (LEADING - 1 - i) for i in range(LEADING)]
    place_x, up_x = ring.weighted_rows(of_x, list(range(LEADING)), shifts)
    place_y, up_y, is_there = ring.weighted_rows(of_y, list(range(LEADING)), shifts, [1] * LEADING)
    # x = fraction * 2^(place_x + 1) with the sign of x, 1/2 <= |fraction| < 1, at WORK bits.
    fraction = ring.scaled(numerator, up_x, 1 << (LEADING - WORK))
    t = ring.minus(ring.scaled(size, up_y, 1 << (LEADING - 2 - WORK)), 3 << WORK)
    inverse = polynomial(fitted(_inverse, 0.5, 1.0), t)
    # The sign of y, 0 where y is, so that `is_there` is 0 and `below_y` 1: there the inverse means nothing.
    turn = ring.from_public(2, ring.plus(is_there, ring.times(below_y, 2)))
    quotient = _product(fraction, ring.times(inverse, turn))
    difference = ring.plus(ring.minus(place_x, place_y), _SAME)
    rows = ring.one_hot(difference, _DIFFERENCES)
    gains = [min(scale * 2.0 ** (i - _SAME), _LARGEST_QUOTIENT) for i in range(_DIFFERENCES)]
    return gained(quotient, rows, gains)


def _leading_bits(*children: Any) -> list[tuple[Any, Any, Any]]:
    """Per child (rows of the leading bit of |x|, 1 where x <= 0, |x|); secret children go through one program."""
    if any(isinstance(child, torch.Tensor) for child in children):
        return [_leading_bits_of(child) for child in children]
    shapes = [list(ring.shape_of(child)) for child in children]
    flat = [on_children(aten.reshape.default, child, [-1]) for child in children]
    made = _leading_bits_of(on_children(aten.cat.default, flat, 0))
    parts, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        rows, negative, size = (
            ring.sliced(one, dim, start, end) for one, dim in zip(made, (1, 0, 0), strict=True)
        )
        parts.append(
            (
                on_children(aten.reshape.default, rows, [LEADING, *shape]),
                on_children(aten.reshape.default, negative, shape),
                on_children(aten.reshape.default, size, shape),
            )
        )
        start = end
    return parts


def _leading_bits_of(child: Any) -> tuple[Any, Any, Any]:
    negative, size = magnitude(child)
    return ring.leading_bit(size, LEADING), negative, size


def divide_small(numerator: Any, denominator: Any, scale: int) -> Any:
    """`divide` for |x| < 2^37 units and |x / y| < 2^37 units, at half its price.

    Relative error 2^-19 plus 1 + 2^-11 / |y| units; 0 for y = 0.
    """
    negative, size = magnitude(denominator)
    rows, t = normalised(size)
    scale_bits = (scale - 1).bit_length()
    scaled = [c * scale / 2.0**scale_bits for c in fitted(_inverse, 0.5, 1.0)]
    inverse = ring.truncate(polynomial(scaled, t), 1 << (WORK - _QUOTIENT_BITS))
    fine = ring.scaled(numerator, signed(negative, inverse), 1 << (_QUOTIENT_BITS - _GUARD))
    # The result is fine / 2^_GUARD / 2^right: `right` up to _GUARD in the first step, the rest in the second.
    rights = [i + 1 - scale_bits for i in range(LEADING)]
    first = [min(right, _GUARD) for right in rights]
    rest = [right - done for right, done in zip(rights, first, strict=True)]
    gain, last = ring.weighted_rows(
        rows, [1 << (_GUARD - done) for done in first], [1 << (24 - r) if r <= 24 else 0 for r in rest]
    )
    made = ring.scaled(fine, gain, 1 << (2 * _GUARD))
    return ring.scaled(made, last, 1 << 24)


#: The widest range of denominators in `divide_bounded`, as a quotient: wider ones would not fit the ring.
MOST_SPREAD = 1 << 8


def divide_bounded(numerator: Any, denominator: Any, scale: int, low: int, high: int) -> Any:
    """x / y for 0 <= x <= y, and y of the same units from `low` to `high` <= 2^37, give or take a little.

    high / low is at most MOST_SPREAD, so the leading bit is one of few: the caller knows. Error 2^-20 plus 1 unit.
    """
    lowest, highest = low.bit_length() - 1, high.bit_length() - 1
    scale_bits = (scale - 1).bit_length()
    scaled = [c * scale / 2.0**scale_bits for c in fitted(_inverse, 0.5, 1.0)]
    # scale / y = inverse * gain * 2^scale_bits / 2^(highest + 1)
    divisor = 1 << (_QUOTIENT_BITS + highest + 1 - scale_bits)
    own = ring.fused(numerator, "divided_bounded")
    if own is not None and ring.fused(denominator, "divided_bounded") is not None:
        return own(denominator, lowest, highest, _packed(scaled), WORK, _QUOTIENT_BITS, divisor)
    places = range(lowest, highest + 1)
    gain: Any = 1
    if len(places) > 1:
        # [y < 2^i] for all i but the first: there the gain, a power of two, falls to its half.
        edges = torch.tensor([1 << i for i in places[1:]]).view(-1, *[1] * len(ring.shape_of(denominator)))
        below = ring.less_than_zero(ring.minus(ring.unsqueezed(denominator, 0), edges))
        (found,) = ring.weighted_rows(below, [1 << (highest - i) for i in places[1:]])
        gain = ring.plus(found, 1)
    # y * gain is in [2^highest, 2^(highest + 1)): 4 * that / 2^(highest + 1) - 3 at WORK bits.
    top = ring.times(denominator, gain)
    t = ring.minus(_shifted(top, WORK + 1 - highest), 3 << WORK)
    fine = ring.times(numerator, ring.times(polynomial(scaled, t, _QUOTIENT_BITS), gain))
    return ring.truncate(fine, divisor)


def _shifted(child: Any, bits: int) -> Any:
    return ring.times(child, 1 << bits) if bits >= 0 else ring.truncate(child, 1 << -bits)


def square_root(child: Any, scale: float) -> Any:
    """sqrt(x) for x >= 0 in units of `scale`; also of sums in units of scale^2, see `fixed_reductions`.

    Relative error 2^-19 plus 1 unit; 0 for x <= 0.
    """
    gains = [math.sqrt(scale) * 2.0 ** ((i + 1) / 2) for i in range(LEADING)]
    return by_leading_bit(child, np.sqrt, gains)


def inverse_square_root(child: Any, scale: int, result_scale: int | None = None) -> Any:
    """1 / sqrt(x) for x > 0. Relative error 2^-19 plus 1 unit; 0 for x <= 0.

    `result_scale`: the units of the result where they are not those of x.
    """
    of_result = float(scale if result_scale is None else result_scale)
    gains = [of_result * math.sqrt(scale) / 2.0 ** ((i + 1) / 2) for i in range(LEADING)]
    return by_leading_bit(child, _inverse_root, gains)


# -- logarithms --------------------------------------------------------------------------------------


def logarithm(child: Any, scale: int, result_scale: int | None = None) -> Any:
    """log(x) for x > 0. Error 2^-22 plus 1 unit; for x <= 0 the result means nothing.

    `result_scale`: the units of the result where they are not those of x.
    """
    exponents = [
        round((i + 1) * math.log(2) * (1 << WORK) - math.log(scale) * (1 << WORK)) for i in range(LEADING)
    ]
    own = ring.fused(child, "shifted_function")
    if own is not None:
        by_byte = packed(_BYTES_UP, [round(8 * k * math.log(2) * (1 << WORK)) for k in range(8)])
        by_place = packed(_PLACES_UP, exponents[:8])
        units = (result_scale or scale) / 2.0**WORK
        return own(by_byte, by_place, *_matrix(np.log, 24), WORK, *fraction_of(units, 64.0 * 2**WORK))
    rows, t = normalised(child)
    fraction = polynomial(fitted(np.log, 0.5, 1.0), t)
    (whole,) = ring.weighted_rows(rows, exponents)
    total = ring.plus(fraction, whole)
    return from_work(total, result_scale or scale, 64.0)


def from_work(value: Any, scale: int, bound: float) -> Any:
    """A number at WORK bits, below `bound`, in units."""
    return rescaled(value, scale / 2.0**WORK, bound * 2.0**WORK)


def to_work(child: Any, scale: int, bound: float, factor: float = 1.0) -> Any:
    """factor * x at WORK bits, for |x| < bound."""
    return rescaled(child, factor * 2.0**WORK / scale, bound * scale)


def clamped(child: Any, low: int, high: int) -> Any:
    """The child cut to [low, high]: one comparison for both ends."""
    own = ring.fused(child, "clamped")
    if own is not None:
        return own(low, high)
    below, above = ring.unstacked(
        ring.less_than_zero(ring.stacked([ring.minus(child, low), ring.from_public(high, child)]))
    )
    inside = ring.from_public(1, ring.plus(below, above))
    ends = ring.plus(ring.times(below, low), ring.times(above, high))
    return ring.plus(ring.multiply_bit(inside, child), ends)


# -- functions that are known far from zero ------------------------------------------------------------


#: (segments, degree) of tables of polynomials, cheap ones first; the first one that is near enough is taken.
_TABLES = ((16, 3), (32, 3), (16, 4), (32, 4), (32, 5), (64, 5))
_NEAR = 2.0**-16.1


@cache
def _segment_table(function: Callable[[Any], Any], bound: float) -> tuple[float, list[list[int]]]:
    """(width, tables): per power the coefficients of the segments around i * width, fitted over [-width, width]."""
    for segments, degree in _TABLES:
        width = bound / (segments - 2)
        fits = [around(function, i * width, width, degree) for i in range(segments)]
        if max(error for _, error in fits) <= _NEAR:
            break
    rows = [[round(float(c) * (1 << WORK)) for c in coefficients] for coefficients, _ in fits]
    return width, [list(column) for column in zip(*rows, strict=True)]


def around(function: Callable[[Any], Any], centre: float, width: float, degree: int) -> tuple[Any, float]:
    """Coefficients in t for function(centre + t * width), and their largest error for |t| <= 1."""

    def local(t: Any) -> Any:
        return function(centre + t * width)

    fit = np.polynomial.chebyshev.Chebyshev.interpolate(local, degree, domain=[-1, 1])
    coefficients = np.zeros(degree + 1)
    converted = np.polynomial.chebyshev.cheb2poly(fit.coef)
    coefficients[: len(converted)] = converted
    grid = np.linspace(-1, 1, 65)
    return coefficients, float(np.abs(fit(grid) - local(grid)).max())


def segmented(size: Any, function: Callable[[Any], Any], scale: int, bound: float) -> Any:
    """function(|x|) at WORK bits, where `size` is |x| in units and at most `bound`. Error 2^-16.

    The function must be smooth on [-bound / 14, 1.15 * bound].
    """
    width, tables = _segment_table(function, bound)
    place = to_work(size, scale, bound * 1.01, 1.0 / width)
    own = ring.fused(place, "piecewise")
    if own is not None:
        return own(WORK, len(tables[0]), packed(*tables))
    t, (constant, *others) = ring.looked_up(place, WORK, tables)
    terms = ring.times(ring.stacked(others), ring.stacked(powers(t, len(others))))
    return ring.plus(constant, ring.truncate(ring.summed(terms, [0]), 1 << WORK))


def cut_magnitude(child: Any, scale: int, bound: float) -> tuple[Any, Any, Any, Any]:
    """(negative, above, below, size): signs, what lies beyond ±bound, and |x| cut at the bound. One
    comparison.
    """
    edge = math.floor(bound * scale)
    own = ring.fused(child, "cut_magnitude")
    if own is not None:
        return own(edge)
    negative, above, below = ring.unstacked(
        ring.less_than_zero(ring.stacked([child, ring.from_public(edge, child), ring.plus(child, edge)]))
    )
    turn = ring.plus(ring.minus(ring.from_public(1, ring.times(negative, 2)), above), below)
    size = ring.plus(ring.times(turn, child), ring.times(ring.plus(above, below), edge))
    return negative, above, below, size
