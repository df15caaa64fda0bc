"""Powers: whole ones by products, others by exp and log."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.exceptions import UnsupportedOperationError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_functions as functions
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


@rule(FixedPrecisionTensor, aten.pow.Tensor_Scalar)
def power(self: Any, exponent: float) -> Any:
    """Integer powers by repeated squaring, ±1/2 by square roots, others of x > 0 as exp(exponent *
    log(x)).
    """
    if float(exponent) == int(exponent):
        return _integer_power(self, int(exponent))
    if exponent in (0.5, -0.5):
        return functions.sqrt(self) if exponent > 0 else functions.rsqrt(self)
    if float(2 * exponent) == int(2 * exponent):
        return arithmetic.multiply(_integer_power(self, int(exponent - 0.5)), functions.sqrt(self))
    return functions.exp(arithmetic.multiply(functions.log(self), exponent))


def _integer_power(base: Any, exponent: int) -> Any:
    if exponent < 0:
        return arithmetic.reciprocal(_integer_power(base, -exponent))
    if exponent == 0:
        ones = ring.plus(ring.times(base.child, 0), base.scale)
        return kinds.same_kind(ones, base)
    made: Any = None
    factor = base
    while True:
        if exponent & 1:
            made = factor if made is None else arithmetic.multiply(made, factor)
        exponent >>= 1
        if not exponent:
            return (
                made
                if made is not base
                else kinds.same_kind(on_children(aten.clone.default, base.child), base)
            )
        factor = arithmetic.multiply(factor, factor)


@rule(FixedPrecisionTensor, aten.pow.Tensor_Tensor)
def power_of_tensors(self: Any, exponent: Any) -> Any:
    """exp(exponent * log(self)), for self > 0."""
    logarithm = functions.log(self) if kinds.is_node(self) else torch.log(self)
    return functions.exp(arithmetic.multiply(logarithm, exponent))


@rule(FixedPrecisionTensor, aten.pow.Scalar)
def power_of_number(self: float, exponent: Any) -> Any:
    """exp(exponent * log(self)), for a number > 0."""
    if self <= 0:
        raise UnsupportedOperationError(
            f"the power of {self} to a secret exponent",
            FixedPrecisionTensor,
            "It has no real value for every exponent. Use a positive base.",
        )
    return functions.exp(arithmetic.multiply(exponent, math.log(self)))
