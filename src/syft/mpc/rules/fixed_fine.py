"""Fine tensors: reals with hidden digits below the precision the user chose.

NOTE [Fine tensors]
Adam keeps 0.001 * g^2 and divides by its root. At 16 bits a gradient of 0.1 leaves half a unit there, and
training goes nowhere. So the moving averages that optimizers keep are nodes whose own
`precision_fractional` is finer than the `float_fractional` that they mix with. The operations that
optimizers use on them (`RULES`) keep the digits; in every other operation a fine tensor is an ordinary one:
it is truncated first, and written to exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from syft.core.chain import map_tensors
from syft.core.ops import facts_of
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children

aten = torch.ops.aten

#: Fractional bits of averages, and of averages of squares at most.
FINE_BITS, SQUARE_BITS = 32, 50
#: Fractional bits of a running variance at most.
VARIANCE_BITS = 40
#: A thousandth of the square of one unit still shows in an average of squares.
DECAY_DIGITS = {2: 10, 10: 3}
#: Significant bits of a public factor of a fine tensor.
FINE_FACTOR_BITS = 11

RULES: dict[Any, Callable[..., Any]] = {}


def digits_within(like: FixedPrecisionTensor, bits: int) -> int:
    """The fractional digits that come to `bits` bits, and no fewer than reals of `like` have."""
    return max(like.float_fractional, math.floor(bits / math.log2(like.base)))


def digits_of_average(like: FixedPrecisionTensor) -> int:
    return digits_within(like, FINE_BITS)


def digits_of_squares(like: FixedPrecisionTensor) -> int:
    exact = 2 * like.float_fractional + DECAY_DIGITS.get(like.base, 10)
    return max(like.float_fractional + 1, min(exact, digits_within(like, SQUARE_BITS)))


def digits_of_variance(like: FixedPrecisionTensor) -> int:
    """Twice the digits of reals, as far as variances up to 2^22 fit."""
    return max(like.float_fractional, min(2 * like.float_fractional, digits_within(like, VARIANCE_BITS)))


def fine(child: Any, like: FixedPrecisionTensor, digits: int) -> FixedPrecisionTensor:
    """A node of reals with that many digits of its own, which mixes with `like`."""
    made = FixedPrecisionTensor(like.base, digits, like.presented_dtype, like.float_fractional)
    made.child = child
    return made


def at(node: FixedPrecisionTensor, digits: int) -> Any:
    """The integers of a node with another number of digits; error less than 1 of these units."""
    steps = digits - node.precision_fractional
    if steps >= 0:
        return ring.times(node.child, node.base**steps) if steps else node.child
    return ring.truncate(node.child, node.base**-steps)


def coarse(node: Any) -> Any:
    """A fine node with the precision of its reals; error less than 1 unit. Anything else as it is."""
    if not (kinds.is_node(node) and node.is_fine):
        return node
    return kinds.real(ring.truncate(node.child, node.scale // node.float_scale), node, node.presented_dtype)


def interpret(cls: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation with a fine tensor among its arguments."""
    rule = RULES.get(func)
    if rule is not None:
        made = rule(*args, **kwargs)
        if made is not NotImplemented:
            return made
    if facts_of(func).mutates and kinds.is_node(args[0]) and args[0].is_fine:
        working = coarse(args[0])
        rest = map_tensors(coarse, tuple(args[1:]))
        cls.interpret(func, (working, *rest), map_tensors(coarse, kwargs))
        return write(args[0], working)
    return cls.interpret(func, map_tensors(coarse, tuple(args)), map_tensors(coarse, kwargs))


def write(target: FixedPrecisionTensor, source: FixedPrecisionTensor) -> FixedPrecisionTensor:
    on_children(aten.copy_.default, target.child, at(source, target.precision_fractional))
    target.forget()
    return target


def fine_rule(*overloads: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            RULES[overload] = function
        return function

    return register


def _like(child: Any, node: FixedPrecisionTensor) -> FixedPrecisionTensor:
    return fine(child, node, node.precision_fractional)


def _times_number(child: Any, number: float) -> Any:
    """child * number, without leaving the ring where the result fits it.

    For numbers close to 1 what is missing is subtracted. A small number is a shift first, as far as one
    goes. Error: 2^-11 of the result (of what is missing) and 2 units.
    """
    if 0.5 < number < 1:
        return ring.minus(child, _times_number(child, 1 - number))
    if number == int(number):
        return ring.times(child, int(number))
    exponent = math.frexp(number)[1]
    if exponent < 0:
        child, number, exponent = ring.truncate(child, 1 << -exponent), number * 2.0**-exponent, 0
    shift = max(0, FINE_FACTOR_BITS - exponent)
    return ring.scaled(child, round(number * 2.0**shift), 1 << shift)


def _is_real_node(value: Any) -> bool:
    return kinds.is_node(value) and value.is_real


@fine_rule(aten.mul_.Tensor, aten.mul_.Scalar)
def mul_(self: Any, other: Any) -> Any:
    if not self.is_fine:
        return NotImplemented
    if _is_real_node(other):
        return write(self, mul(self, other))
    if not isinstance(other, (int, float)):
        return NotImplemented
    return write(self, _like(_times_number(self.child, other), self))


@fine_rule(aten.mul.Tensor, aten.mul.Scalar)
def mul(self: Any, other: Any) -> Any:
    """A product of reals has the digits of an average: |self * other| < 2^62 / scale of an average / scale."""
    if isinstance(other, (int, float)) and other > 0:
        return _like(_times_number(self.child, other), self)
    if not _is_real_node(self) or not _is_real_node(other):
        return NotImplemented
    like = kinds.template_of(self, other)
    fine_one, factor = (self, other) if self.is_fine else (other, self)
    digits = digits_of_average(like)
    product = ring.times(at(fine_one, digits), coarse(factor).child)
    return fine(ring.truncate(product, like.float_scale), like, digits)


@fine_rule(aten.div.Tensor, aten.div.Scalar)
def div(self: Any, other: Any) -> Any:
    if _is_real_node(self) and _is_real_node(other):
        like = kinds.template_of(self, other)
        digits = digits_of_average(like)
        return kinds.real(approx.divide(at(self, digits), at(other, digits), like.float_scale), like)
    if not kinds.is_node(self) or not self.is_fine or not isinstance(other, (int, float)) or not other:
        return NotImplemented
    return _like(_times_number(self.child, 1.0 / other), self)


@fine_rule(aten.div_.Tensor, aten.div_.Scalar)
def div_(self: Any, other: Any) -> Any:
    if not self.is_fine:
        return NotImplemented
    if isinstance(other, (int, float)) and other:
        return write(self, _like(_times_number(self.child, 1.0 / other), self))
    if not _is_real_node(other):
        return NotImplemented
    digits = digits_of_average(self)
    quotient = approx.divide(at(self, digits), at(other, digits), self.base**digits)
    return write(self, fine(quotient, self, digits))


@fine_rule(aten.reciprocal.default)
def reciprocal(self: Any) -> Any:
    """1 / x in the precision of reals, from all digits of x."""
    return kinds.real(approx.reciprocal(self.child, self.scale, self.float_scale / self.scale), self)


@fine_rule(aten.add.Tensor, aten.add.Scalar)
def add(self: Any, other: Any, alpha: float = 1) -> Any:
    if not kinds.is_node(self) or not self.is_fine or not isinstance(other, (int, float)):
        return NotImplemented
    return _like(ring.plus(self.child, round(other * alpha * self.scale)), self)


@fine_rule(aten.maximum.out)
def maximum_out(self: Any, other: Any, *, out: Any) -> Any:
    digits = out.precision_fractional
    one, another = at(self, digits), at(other, digits)
    gap = ring.minus(another, one)
    larger, _ = ring.positive_part(gap)
    return write(out, fine(ring.plus(one, larger), out, digits))


@fine_rule(aten.add_.Tensor, aten.add_.Scalar)
def add_(self: Any, other: Any, alpha: float = 1) -> Any:
    if not self.is_fine or not isinstance(other, (int, float)):
        return NotImplemented
    return write(self, _like(ring.plus(self.child, round(other * alpha * self.scale)), self))


@fine_rule(aten.lerp_.Scalar)
def lerp_(self: Any, end: Any, weight: float) -> Any:
    if not self.is_fine or not kinds.is_node(end) or not end.is_real:
        return NotImplemented
    kinds.template_of(self, end)
    gap = ring.minus(at(end, self.precision_fractional), self.child)
    return write(self, _like(ring.plus(self.child, _times_number(gap, weight)), self))


@fine_rule(aten.addcmul_.default)
def addcmul_(self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    made = addcmul(self, tensor1, tensor2, value=value)
    return made if made is NotImplemented else write(self, made)


@fine_rule(aten.addcmul.default)
def addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    if not self.is_fine or not all(_is_real_node(t) for t in (tensor1, tensor2)):
        return NotImplemented
    like = kinds.template_of(self, tensor1, tensor2)
    # Half the digits of the result each: the product has no more than it. Reals have no more than they have.
    digits = max(like.float_fractional, self.precision_fractional // 2)
    one, other = (at(t, digits) if t.is_fine else t.child for t in (tensor1, tensor2))
    have = sum(digits if t.is_fine else like.float_fractional for t in (tensor1, tensor2))
    # The factor and the digits that are still missing are one number.
    factor = abs(value) * float(self.base) ** (self.precision_fractional - have)
    added = _times_number(ring.times(one, other), factor)
    return _like((ring.minus if value < 0 else ring.plus)(self.child, added), self)


@fine_rule(aten.sqrt.default)
def sqrt(self: Any) -> Any:
    """Of x plus one of its units: an average that vanished divides by the least it could have been."""
    digits = digits_of_average(self)
    made = approx.square_root(ring.plus(self.child, 1), (self.base**digits) ** 2 / self.scale)
    return fine(made, self, digits)


@fine_rule(aten.rsqrt.default)
def rsqrt(self: Any) -> Any:
    """1 / sqrt(x) in the precision of reals, from all digits of x; 0 for x <= 0."""
    return kinds.real(approx.inverse_square_root(self.child, self.scale, self.float_scale), self)


@fine_rule(aten.pow.Tensor_Scalar)
def power(self: Any, exponent: float) -> Any:
    return {0.5: sqrt, -0.5: rsqrt}[exponent](self) if exponent in (0.5, -0.5) else NotImplemented


@fine_rule(aten.sqrt_.default)
def sqrt_(self: Any) -> Any:
    return write(self, sqrt(self))


@fine_rule(aten.addcdiv_.default)
def addcdiv_(self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    """A quotient of two fine tensors is one of their integers."""
    if self.is_fine or not all(kinds.is_node(t) and t.is_real for t in (tensor1, tensor2)):
        return NotImplemented
    like = kinds.template_of(self, tensor1, tensor2)
    digits = digits_of_average(like)
    child = approx.divide(at(tensor1, digits), at(tensor2, digits), like.float_scale)
    step = arithmetic.multiply(kinds.real(child, like), value)
    on_children(aten.copy_.default, self.child, ring.plus(self.child, step.child))
    self.forget()
    return self
