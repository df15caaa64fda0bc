"""Sums, products and quotients, element by element.

Errors, in units (1 / scale): sums none; a product of reals less than 1; a product with a public real factor
less than 1 plus 2^-22 of the result; division by a public integer less than 1; division by a secret: see
`fixed_approximations.divide`.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_bits
from syft.mpc.rules import fixed_constants as constants
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


# -- sums -------------------------------------------------------------------------------------------------


def _is_bool(value: Any) -> bool:
    if kinds.is_node(value) or isinstance(value, torch.Tensor):
        return kinds.dtype_of(value) == torch.bool
    return isinstance(value, bool)


@rule(FixedPrecisionTensor, aten.add.Tensor, aten.add.Scalar)
def add(self: Any, other: Any, alpha: float = 1) -> Any:
    if alpha != 1:
        other = multiply(other, alpha) if kinds.is_node(other) else other * alpha
    like = kinds.template_of(self, other)
    (a, b), _, reals = kinds.common(kinds.finite(self, like), kinds.finite(other, like))
    if not reals and _is_bool(self) and _is_bool(other):
        return kinds.bits(ring.minus(ring.plus(a, b), ring.times(a, b)), like)
    return kinds.result(ring.plus(a, b), (self, other), like, reals)


@rule(FixedPrecisionTensor, aten.sub.Tensor, aten.sub.Scalar)
def subtract(self: Any, other: Any, alpha: float = 1) -> Any:
    if alpha != 1:
        other = multiply(other, alpha) if kinds.is_node(other) else other * alpha
    (a, b), like, reals = kinds.common(self, other)
    return kinds.result(ring.minus(a, b), (self, other), like, reals)


@rule(FixedPrecisionTensor, aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_from(self: Any, other: Any, alpha: float = 1) -> Any:
    if alpha != 1:
        self = multiply(self, alpha) if kinds.is_node(self) else self * alpha
    (a, b), like, reals = kinds.common(self, other)
    child = ring.plus(ring.negated(a), b) if isinstance(b, int) else ring.minus(b, a)
    return kinds.result(child, (self, other), like, reals)


@rule(FixedPrecisionTensor, aten.neg.default)
def negative(self: Any) -> Any:
    made, value = kinds.same_kind(ring.negated(self.child), self), constants.known(self)
    return made if value is None else constants.noted(made, -value)


@rule(FixedPrecisionTensor, aten.positive.default)
def positive(self: Any) -> Any:
    return self


# -- products ---------------------------------------------------------------------------------------------


def product(op: Any, self: Any, other: Any, *args: Any) -> tuple[Any, FixedPrecisionTensor, bool]:
    """A bilinear operation on two operands and one truncation: (child, template, whether the result is
    real).
    """
    like = kinds.template_of(self, other)
    reals = kinds.is_real(self) or kinds.is_real(other)
    self, other = fixed_bits.as_integers(self), fixed_bits.as_integers(other)
    if reals and not any(n.is_real for n in kinds.nodes_in(self, other)):
        # One factor in units, the other as the integers it is: the product is in units already.
        a = kinds.integers(self) if kinds.is_node(self) else kinds.units(self, like)
        b = kinds.units(other, like) if kinds.is_node(self) else kinds.integers(other)
        return on_children(op, a, b, *args), like, True
    (a, scale_a), (b, scale_b) = kinds.factor(self), kinds.factor(other)
    if not reals:
        return on_children(op, a, b, *args), like, False
    return ring.product(op, a, b, scale_a * scale_b // like.float_scale, *args), like, True


@rule(FixedPrecisionTensor, aten.mul.Tensor, aten.mul.Scalar)
def multiply(self: Any, other: Any) -> Any:
    if kinds.is_node(self) and kinds.is_node(other) and self.is_real and other.is_real:
        like = kinds.template_of(self, other)
        for factor, rest in ((self, other), (other, self)):
            number = constants.factor_of(factor, rest)
            if number is not None:
                return multiply(rest, number)
        one, another = fixed_bits.known(self), fixed_bits.known(other)
        if one is not None and another is not None:
            return fixed_bits.as_number(kinds.bits(ring.multiply_bit(one, another), like), self)
        if self.child is other.child:
            return _square_of(self)
    child, like, reals = product(aten.mul.Tensor, self, other)
    return kinds.result(child, (self, other), like, reals)


def _square_of(self: FixedPrecisionTensor) -> FixedPrecisionTensor:
    """x * x, which knows the product before its truncation: a mean of small squares needs those digits."""
    rounded, exact = ring.squared(self.child, self.scale)
    made = kinds.real(rounded, self)
    made.known["exact"] = exact
    return made


@rule(FixedPrecisionTensor, aten.square.default)
def square(self: Any) -> Any:
    return multiply(self, self)


@rule(FixedPrecisionTensor, aten.addcmul.default)
def add_product(self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    """self + value * tensor1 * tensor2: the public factor joins the product, so that small ones count."""
    nodes = kinds.nodes_in(tensor1, tensor2)
    if value == 1 or not nodes or not all(kinds.is_node(t) and t.is_real for t in (tensor1, tensor2)):
        scaled = (
            tensor1 if value == 1 else (multiply if kinds.is_node(tensor1) else torch.mul)(tensor1, value)
        )
        both = multiply(scaled, tensor2) if kinds.nodes_in(scaled, tensor2) else torch.mul(scaled, tensor2)
        return add(self, both)
    like = kinds.template_of(self, tensor1, tensor2)
    m, shift = kinds.public_factor(value)
    # Some digits below the unit are kept, so that a small factor of a small product (the second moment
    # of Adam) does not make it vanish before it is added.
    room = like.base ** min(like.float_fractional, 8 if like.base == 2 else 2)
    fine = ring.scaled(tensor1.child, tensor2.child, like.float_scale // room)
    child = ring.scaled(fine, m, shift * room)
    both = kinds.real(child, like)
    return add(self, both)


@rule(FixedPrecisionTensor, aten.addcdiv.default)
def add_quotient(self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    """self + value * tensor1 / tensor2."""
    quotient = divide(tensor1, tensor2)
    return add(self, quotient if value == 1 else multiply(quotient, value))


@rule(FixedPrecisionTensor, aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(self: Any, end: Any, weight: Any) -> Any:
    """self + weight * (end - self)."""
    difference = subtract(end, self)
    return add(self, multiply(difference, weight))


# -- quotients ----------------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.reciprocal.default)
def reciprocal(self: Any) -> Any:
    """1 / x; error as `fixed_approximations.reciprocal` states. 1 / 0 is 0."""
    x = kinds.as_real(self)
    return kinds.real(approx.reciprocal(x.child, x.scale), x)


@rule(FixedPrecisionTensor, aten.div.Tensor, aten.div.Scalar)
def divide(self: Any, other: Any) -> Any:
    if kinds.is_node(other):
        return _divide_by_secret(self, other)
    numerator = kinds.as_real(self)
    if isinstance(other, torch.Tensor):
        dtype = kinds.result_dtype(numerator, other)
        if other.ndim == 0:
            quotient = divide(numerator, other.item())
            return kinds.real(quotient.child, quotient, dtype)
        inverse = 1.0 / other.to(torch.float64)
        quotient = multiply(numerator, inverse)
        return kinds.real(quotient.child, quotient, dtype)
    if other == 0 or other != other:
        raise ZeroDivisionError(
            f"A fixed-precision tensor was divided by {other}, which has no fixed-precision result."
        )
    if other in (float("inf"), float("-inf")):
        return multiply(numerator, 0)
    value = constants.known(numerator)
    if value is not None:
        return constants.filled(numerator, value / other)
    if float(other) == int(other):
        child = ring.truncate(numerator.child, abs(int(other)))
        return kinds.real(ring.negated(child) if other < 0 else child, numerator)
    return multiply(numerator, 1.0 / other)


def _divide_by_secret(self: Any, other: FixedPrecisionTensor) -> Any:
    like = kinds.template_of(self, other)
    denominator = kinds.as_real(other)
    if isinstance(self, torch.Tensor) and not self.ndim:
        self = self.item()
    if not kinds.is_node(self) and not isinstance(self, torch.Tensor):
        return kinds.real(approx.reciprocal(denominator.child, denominator.scale, self), denominator)
    numerator = kinds.units(self, like)
    child = approx.divide(numerator, denominator.child, like.float_scale)
    return kinds.result(child, (self, other), like, True)
