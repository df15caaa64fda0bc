"""Smooth functions element by element. Their errors, relative to the result plus units (1 / scale):

    sqrt rsqrt reciprocal exp     2^-19 and 1 unit
    log                           2^-22 and 1 unit
    sigmoid tanh erf softplus gelu silu sin cos atan     2^-16 (absolute) and 2 units

over the whole representable range. See `fixed_approximations` for how.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_compare as compare
from syft.mpc.rules import fixed_exponentials as exponentials
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import fixed_waves as waves
from syft.mpc.rules.registry import rule

aten = torch.ops.aten
_erf = np.vectorize(math.erf, otypes=[float])


def _on_reals(self: Any, function: Callable[[Any, int], Any]) -> FixedPrecisionTensor:
    x = kinds.as_real(self)
    return kinds.real(function(x.child, x.scale), x)


@rule(FixedPrecisionTensor, aten.exp.default)
def exp(self: Any) -> Any:
    return _on_reals(self, exponentials.exponential)


@rule(FixedPrecisionTensor, aten.expm1.default)
def expm1(self: Any) -> Any:
    return arithmetic.subtract(exp(self), 1)


@rule(FixedPrecisionTensor, aten.exp2.default)
def exp2(self: Any) -> Any:
    return exp(arithmetic.multiply(self, math.log(2)))


@rule(FixedPrecisionTensor, aten.log.default)
def log(self: Any) -> Any:
    """For x > 0; what it returns for others means nothing."""
    return _on_reals(self, approx.logarithm)


@rule(FixedPrecisionTensor, aten.log1p.default)
def log1p(self: Any) -> Any:
    return log(arithmetic.add(self, 1))


@rule(FixedPrecisionTensor, aten.log2.default)
def log2(self: Any) -> Any:
    return arithmetic.multiply(log(self), 1 / math.log(2))


@rule(FixedPrecisionTensor, aten.log10.default)
def log10(self: Any) -> Any:
    return arithmetic.multiply(log(self), 1 / math.log(10))


@rule(FixedPrecisionTensor, aten.sqrt.default)
def sqrt(self: Any) -> Any:
    """0 for x <= 0."""
    return _on_reals(self, approx.square_root)


@rule(FixedPrecisionTensor, aten.rsqrt.default)
def rsqrt(self: Any) -> Any:
    """0 for x <= 0."""
    return _on_reals(self, approx.inverse_square_root)


# -- odd functions that end at ±1 ----------------------------------------------------------------------


def _odd(self: Any, function: Callable[[Any], Any], bound: float) -> FixedPrecisionTensor:
    """An odd function that stays what it is at `bound`."""
    x = kinds.as_real(self)
    made = waves.odd_function(x.child, function, x.scale, bound)
    if made is not None:
        return kinds.real(made, x)
    negative, _, _, size = approx.cut_magnitude(x.child, x.scale, bound)
    value = approx.segmented(size, function, x.scale, bound)
    return kinds.real(approx.from_work(approx.signed(negative, value), x.scale, 4.0), x)


def _half_logistic(a: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-a)) - 0.5


@rule(FixedPrecisionTensor, aten.sigmoid.default)
def sigmoid(self: Any) -> Any:
    return arithmetic.add(_odd(self, _half_logistic, 16.0), 0.5)


@rule(FixedPrecisionTensor, aten.tanh.default)
def tanh(self: Any) -> Any:
    return _odd(self, np.tanh, 7.0)


@rule(FixedPrecisionTensor, aten.erf.default)
def erf(self: Any) -> Any:
    return _odd(self, _erf, 4.0)


@rule(FixedPrecisionTensor, aten.erfc.default)
def erfc(self: Any) -> Any:
    return arithmetic.subtract_from(erf(self), 1)


# -- relu plus an even tail ----------------------------------------------------------------------------


def _relu_and_tail(self: Any, tail: Callable[[Any], Any], bound: float) -> FixedPrecisionTensor:
    """max(x, 0) + tail(|x|), where the tail is 0 beyond `bound`."""
    x = kinds.as_real(self)
    negative, above, below, size = approx.cut_magnitude(x.child, x.scale, bound)
    value = approx.from_work(approx.segmented(size, tail, x.scale, bound), x.scale, 4.0)
    inside = ring.from_public(1, ring.plus(above, below))
    positive_part, kept_tail = ring.unstacked(
        ring.multiply_bit(
            ring.stacked([ring.from_public(1, negative), inside]), ring.stacked([x.child, value])
        )
    )
    return kinds.real(ring.plus(positive_part, kept_tail), x)


def _softplus_tail(a: Any) -> Any:
    return np.log1p(np.exp(-a))


def _silu_tail(a: Any) -> Any:
    return -a / (1.0 + np.exp(a))


def _gelu_tail(a: Any) -> Any:
    return -a * 0.5 * (1.0 - _erf(a / math.sqrt(2)))


def _gelu_tanh_tail(a: Any) -> Any:
    return -a * 0.5 * (1.0 - np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


@rule(FixedPrecisionTensor, aten.softplus.default)
def softplus(self: Any, beta: float = 1, threshold: float = 20) -> Any:
    scaled = self if beta == 1 else arithmetic.multiply(self, beta)
    made = _relu_and_tail(scaled, _softplus_tail, 16.0)
    made = made if beta == 1 else arithmetic.divide(made, beta)
    return made if threshold >= 12 else compare.where(compare.greater(scaled, threshold), self, made)


@rule(FixedPrecisionTensor, aten.softplus_backward.default)
def softplus_backward(grad_output: Any, self: Any, beta: float, threshold: float) -> Any:
    """grad * sigmoid(beta * x), which is right wherever softplus is."""
    scaled = self if beta == 1 else arithmetic.multiply(self, beta)
    slope = sigmoid(scaled)
    if threshold < 12:
        slope = compare.where(compare.greater(scaled, threshold), 1.0, slope)
    return arithmetic.multiply(grad_output, slope)


@rule(FixedPrecisionTensor, aten.silu.default)
def silu(self: Any) -> Any:
    return _relu_and_tail(self, _silu_tail, 15.0)


@rule(FixedPrecisionTensor, aten.gelu.default)
def gelu(self: Any, *, approximate: str = "none") -> Any:
    return _relu_and_tail(self, _gelu_tanh_tail if approximate == "tanh" else _gelu_tail, 6.0)


def _silu_slope(a: Any) -> Any:
    logistic = 1.0 / (1.0 + np.exp(-a))
    return logistic * (1.0 + a * (1.0 - logistic)) - 0.5


def _gelu_slope(a: Any) -> Any:
    return 0.5 * _erf(a / math.sqrt(2)) + a * np.exp(-a * a / 2) / math.sqrt(2 * math.pi)


def _gelu_tanh_slope(a: Any) -> Any:
    root = math.sqrt(2 / math.pi)
    bent = np.tanh(root * (a + 0.044715 * a**3))
    return 0.5 * bent + 0.5 * a * (1.0 - bent**2) * root * (1.0 + 3 * 0.044715 * a**2)


@rule(FixedPrecisionTensor, aten.silu_backward.default)
def silu_backward(grad_output: Any, self: Any) -> Any:
    """The slope is 1/2 plus an odd function that ends at 1/2."""
    return arithmetic.multiply(grad_output, arithmetic.add(_odd(self, _silu_slope, 16.0), 0.5))


@rule(FixedPrecisionTensor, aten.gelu_backward.default)
def gelu_backward(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    slope = _odd(self, _gelu_tanh_slope if approximate == "tanh" else _gelu_slope, 6.0)
    return arithmetic.multiply(grad_output, arithmetic.add(slope, 0.5))


@rule(FixedPrecisionTensor, aten.log_sigmoid_forward.default)
def log_sigmoid(self: Any) -> Any:
    made = arithmetic.negative(softplus(arithmetic.negative(self)))
    return made, torch.empty(0)


# -- angles --------------------------------------------------------------------------------------------

#: Beyond this the angle is lost in the last bits of x / 2π.
ANGLE_LIMIT = 2.0**16


def _sine_of_turns(f: Any) -> Any:
    return np.sin(2 * math.pi * f)


def _periodic(self: Any, shift: float) -> FixedPrecisionTensor:
    """sin(x + shift). The angle errs by 2^-26 |x|; |x| < ANGLE_LIMIT."""
    x = kinds.as_real(self)
    turns = approx.to_work(x.child, x.scale, ANGLE_LIMIT, 1 / (2 * math.pi))
    turns = ring.plus(turns, round(shift / (2 * math.pi) * (1 << approx.WORK)))
    made = waves.sine_of_turns(turns, approx.WORK, x.scale)
    if made is not None:
        return kinds.real(made, x)
    whole = ring.truncate(turns, 1 << approx.WORK)
    negative, size = approx.magnitude(ring.minus(turns, ring.times(whole, 1 << approx.WORK)))
    value = approx.segmented(size, _sine_of_turns, 1 << approx.WORK, 1.0)
    return kinds.real(approx.from_work(approx.signed(negative, value), x.scale, 4.0), x)


@rule(FixedPrecisionTensor, aten.sin.default)
def sin(self: Any) -> Any:
    return _periodic(self, 0.0)


@rule(FixedPrecisionTensor, aten.cos.default)
def cos(self: Any) -> Any:
    return _periodic(self, math.pi / 2)


@rule(FixedPrecisionTensor, aten.tan.default)
def tan(self: Any) -> Any:
    return arithmetic.divide(sin(self), cos(self))


@rule(FixedPrecisionTensor, aten.atan.default)
def atan(self: Any) -> Any:
    """atan(1 / x) and its complement where |x| > 1."""
    x = kinds.as_real(self)
    negative, size = approx.magnitude(x.child)
    far = ring.less_than_zero(ring.from_public(x.scale, size))
    inverse = approx.reciprocal(size, x.scale)
    near = ring.plus(size, ring.multiply_bit(far, ring.minus(inverse, size)))
    value = approx.from_work(approx.segmented(near, np.arctan, x.scale, 1.0), x.scale, 4.0)
    right_angle = round(math.pi / 2 * x.scale)
    turned = ring.from_public(right_angle, ring.times(value, 2))
    value = ring.plus(value, ring.multiply_bit(far, turned))
    return kinds.real(approx.signed(negative, value), x)


@rule(FixedPrecisionTensor, aten.asin.default)
def asin(self: Any) -> Any:
    """2 atan(x / (1 + sqrt(1 - x^2))), for |x| <= 1."""
    beside = sqrt(arithmetic.subtract_from(arithmetic.square(self), 1))
    return arithmetic.multiply(atan(arithmetic.divide(self, arithmetic.add(beside, 1))), 2)


@rule(FixedPrecisionTensor, aten.acos.default)
def acos(self: Any) -> Any:
    return arithmetic.subtract_from(asin(self), math.pi / 2)


@rule(FixedPrecisionTensor, aten.asinh.default)
def asinh(self: Any) -> Any:
    """log(|x| + sqrt(x^2 + 1)) with the sign of x."""
    x = kinds.as_real(self)
    negative, size = approx.magnitude(x.child)
    distance = kinds.real(size, x)
    root = sqrt(arithmetic.add(arithmetic.square(distance), 1))
    return kinds.real(approx.signed(negative, log(arithmetic.add(distance, root)).child), x)


@rule(FixedPrecisionTensor, aten.acosh.default)
def acosh(self: Any) -> Any:
    """log(x + sqrt(x^2 - 1)), for x >= 1."""
    return log(arithmetic.add(self, sqrt(arithmetic.subtract(arithmetic.square(self), 1))))


@rule(FixedPrecisionTensor, aten.atanh.default)
def atanh(self: Any) -> Any:
    """(log(1 + x) - log(1 - x)) / 2, for |x| < 1."""
    both = arithmetic.subtract(log1p(self), log1p(arithmetic.negative(self)))
    return arithmetic.divide(both, 2)


@rule(FixedPrecisionTensor, aten.nan_to_num.default)
def nan_to_num(
    self: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Fixed precision has no such numbers: a copy."""
    return arithmetic.add(self, 0)


@rule(FixedPrecisionTensor, aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad_out: Any, self: Any, lambd: float) -> Any:
    outside = compare.greater(compare.absolute(self), lambd)
    return arithmetic.multiply(grad_out, outside)


def _exponentials(self: Any) -> tuple[Any, Any]:
    return exp(self), exp(arithmetic.negative(self))


@rule(FixedPrecisionTensor, aten.sinh.default)
def sinh(self: Any) -> Any:
    up, down = _exponentials(self)
    return arithmetic.divide(arithmetic.subtract(up, down), 2)


@rule(FixedPrecisionTensor, aten.cosh.default)
def cosh(self: Any) -> Any:
    up, down = _exponentials(self)
    return arithmetic.divide(arithmetic.add(up, down), 2)


@rule(FixedPrecisionTensor, aten.hypot.default)
def hypot(self: Any, other: Any) -> Any:
    """sqrt(x^2 + y^2), the root taken before any truncation."""
    (a, b), like, _ = kinds.common(kinds.as_real(self) if kinds.is_node(self) else self, other)
    squares = ring.plus(ring.times(a, a), ring.times(b, b))
    return kinds.result(approx.square_root(squares, 1), (self, other), like, True)


@rule(FixedPrecisionTensor, aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self)
def xlogy(self: Any, other: Any) -> Any:
    if not kinds.is_node(other):
        return arithmetic.multiply(self, torch.log(torch.as_tensor(other, dtype=torch.get_default_dtype())))
    product = arithmetic.multiply(log(other), self)
    zero = compare.equal(self, 0) if kinds.is_node(self) else torch.as_tensor(self) == 0
    return compare.where(zero, 0.0, product)
