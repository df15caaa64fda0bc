"""Rounding and remainders: exact, because a truncation that errs by less than one is corrected by
comparisons.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import rule

aten = torch.ops.aten


def floor(child: Any, divisor: int) -> Any:
    """floor(child / divisor), exactly."""
    if divisor == 1:
        return child
    guess = ring.truncate(child, divisor)
    rest = ring.minus(child, ring.times(guess, divisor))
    below, above = ring.unstacked(
        ring.less_than_zero(ring.stacked([rest, ring.from_public(divisor - 1, rest)]))
    )
    return ring.minus(ring.plus(guess, above), below)


def ceiling(child: Any, divisor: int) -> Any:
    return ring.negated(floor(ring.negated(child), divisor))


def toward_zero(child: Any, divisor: int) -> Any:
    """child / divisor without its fraction."""
    if divisor == 1:
        return child
    negative = ring.less_than_zero(child)
    magnitude = floor(ring.minus(child, ring.times(ring.multiply_bit(negative, child), 2)), divisor)
    return ring.minus(magnitude, ring.times(ring.multiply_bit(negative, magnitude), 2))


def half_to_even(child: Any, divisor: int) -> Any:
    """To nearest; what lies halfway goes to the even neighbour, as torch does."""
    if divisor == 1:
        return child
    if divisor % 2:
        return floor(ring.plus(child, divisor // 2), divisor)
    up = floor(ring.plus(child, divisor // 2), divisor)
    odd = ring.minus(up, ring.times(floor(up, 2), 2))
    halfway = ring.equals_zero(ring.minus(ring.minus(ring.times(up, divisor), child), divisor // 2))
    return ring.minus(up, ring.multiply_bit(halfway, odd))


ROUNDINGS = {"floor": floor, "trunc": toward_zero}


def _rounded(self: Any, how: Any) -> Any:
    if not self.is_real:
        return self
    return kinds.real(ring.times(how(self.child, self.scale), self.scale), self)


@rule(FixedPrecisionTensor, aten.floor.default)
def floor_rule(self: Any) -> Any:
    return _rounded(self, floor)


@rule(FixedPrecisionTensor, aten.ceil.default)
def ceil_rule(self: Any) -> Any:
    return _rounded(self, ceiling)


@rule(FixedPrecisionTensor, aten.trunc.default)
def trunc_rule(self: Any) -> Any:
    return _rounded(self, toward_zero)


@rule(FixedPrecisionTensor, aten.round.default)
def round_rule(self: Any) -> Any:
    return _rounded(self, half_to_even)


@rule(FixedPrecisionTensor, aten.frac.default)
def fraction(self: Any) -> Any:
    return kinds.real(ring.minus(self.child, _rounded(self, toward_zero).child), self)


def quotient(self: Any, other: Any, rounding_mode: str) -> Any:
    """self / other rounded to a whole number: exact for a public divisor that has a whole number of units."""
    how = ROUNDINGS[rounding_mode]
    if isinstance(other, (int, float)) and other:
        if kinds.is_real(self):
            units, like = kinds.units(other, self), self
            child = how(self.child if units > 0 else ring.negated(self.child), abs(units))
            return kinds.real(ring.times(child, like.scale), like)
        if float(other) == int(other):
            child = how(self.child if other > 0 else ring.negated(self.child), abs(int(other)))
            return kinds.whole(child, self, kinds.result_dtype(self, other))
    return _rounded(arithmetic.divide(self, other), how)


def _rest(self: Any, other: Any, rounding_mode: str) -> Any:
    return arithmetic.subtract(self, arithmetic.multiply(quotient(self, other, rounding_mode), other))


@rule(FixedPrecisionTensor, aten.remainder.Scalar, aten.remainder.Tensor)
def remainder(self: Any, other: Any) -> Any:
    return _rest(self, other, "floor")


@rule(FixedPrecisionTensor, aten.fmod.Scalar, aten.fmod.Tensor)
def fmod(self: Any, other: Any) -> Any:
    return _rest(self, other, "trunc")


@rule(FixedPrecisionTensor, aten.div.Tensor_mode, aten.div.Scalar_mode)
def divide_and_round(self: Any, other: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return arithmetic.divide(self, other)
    return quotient(self, other, rounding_mode)


@rule(FixedPrecisionTensor, aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(self: Any, other: Any) -> Any:
    return divide_and_round(self, other, rounding_mode="floor")
