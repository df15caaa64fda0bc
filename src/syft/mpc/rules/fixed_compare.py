"""Comparisons, bits and selections. Exact.

The functions here return bits: nodes of 0/1 integers that present `bool`. What a user gets from a comparison are the
numbers 0 and 1 in fixed precision (`comparison`), so that arithmetic on them is arithmetic: `(x > 0) - (x < 0)` is the
sign. Such a number remembers its bits (see `syft.mpc.rules.fixed_bits`), so as a mask or a factor it costs what a bit
costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.mpc import metering
from syft.mpc.lazy_shares import LazyShares
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_bits, later
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.fixed_folding import computed_later
from syft.mpc.rules.registry import Rule, on_children, rule, rule_with_func

aten = torch.ops.aten


def comparison(name: str) -> Callable[[Rule], Rule]:
    """Register a function that returns bits as the meaning of a comparison, whose result is a number."""

    def register(function: Rule) -> Rule:
        overloads = (getattr(aten, name).Tensor, getattr(aten, name).Scalar)

        @rule(FixedPrecisionTensor, *overloads)
        def compare(self: Any, other: Any) -> Any:
            return fixed_bits.as_number(function(self, other), self, other)

        return function

    return register


def _difference(self: Any, other: Any) -> tuple[Any, FixedPrecisionTensor]:
    like = kinds.template_of(self, other)
    (a, b), _, _ = kinds.common(kinds.finite(self, like), kinds.finite(other, like))
    return ring.minus(a, b), like


def _flipped(node: FixedPrecisionTensor) -> FixedPrecisionTensor:
    return kinds.bits(ring.from_public(1, node.child), node)


@comparison("lt")
def less(self: Any, other: Any) -> Any:
    difference, like = _difference(self, other)
    return kinds.bits(ring.less_than_zero(difference), like)


@comparison("gt")
def greater(self: Any, other: Any) -> Any:
    difference, like = _difference(self, other)
    return kinds.bits(ring.less_than_zero(ring.negated(difference)), like)


@comparison("ge")
def greater_or_equal(self: Any, other: Any) -> Any:
    return _flipped(less(self, other))


@comparison("le")
def less_or_equal(self: Any, other: Any) -> Any:
    return _flipped(greater(self, other))


@comparison("eq")
def equal(self: Any, other: Any) -> Any:
    difference, like = _difference(self, other)
    return kinds.bits(ring.equals_zero(difference), like)


@comparison("ne")
def not_equal(self: Any, other: Any) -> Any:
    return _flipped(equal(self, other))


# -- bits -------------------------------------------------------------------------------------------------


def as_bit(value: Any) -> Any:
    """0/1 integers that say where an operand is not zero."""
    if kinds.is_node(value):
        known = fixed_bits.known(value)
        return known if known is not None else not_equal(value, 0).child
    if isinstance(value, torch.Tensor):
        return (value != 0).to(torch.int64)
    return int(value != 0)


_AND = (aten.logical_and.default, aten.bitwise_and.Tensor, aten.bitwise_and.Scalar)
_OR = (aten.logical_or.default, aten.bitwise_or.Tensor, aten.bitwise_or.Scalar)
_XOR = (aten.logical_xor.default, aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar)


@rule_with_func(FixedPrecisionTensor, *_AND, *_OR, *_XOR)
def logical(func: Any, self: Any, other: Any) -> Any:
    like = kinds.template_of(self, other)
    a, b = as_bit(self), as_bit(other)
    both = ring.multiply_bit(a, b)
    if func not in _AND:
        both = ring.minus(ring.plus(a, b), both if func in _OR else ring.times(both, 2))
    return _like_operands(kinds.bits(both, like), self, other)


@rule(FixedPrecisionTensor, aten.logical_not.default, aten.bitwise_not.default)
def logical_not(self: Any) -> Any:
    known = fixed_bits.known(self)
    opposite = equal(self, 0) if known is None else kinds.bits(ring.from_public(1, known), self)
    return _like_operands(opposite, self)


def _like_operands(made: FixedPrecisionTensor, *operands: Any) -> FixedPrecisionTensor:
    """Bits as a number, unless every secret operand was asked to be `bool`."""
    is_bool = all(node.presented_dtype == torch.bool for node in kinds.nodes_in(*operands))
    return made if is_bool else fixed_bits.as_number(made, *operands)


@rule(FixedPrecisionTensor, aten.any.default, aten.any.dim, aten.any.dims)
def any_of(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    none = ring.equals_zero(_counted(as_bit(self), dim, keepdim))
    return _like_operands(kinds.bits(ring.from_public(1, none), self), self)


@rule(FixedPrecisionTensor, aten.all.default, aten.all.dim, aten.all.dims)
def all_of(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    missing = ring.from_public(1, as_bit(self))
    return _like_operands(kinds.bits(ring.equals_zero(_counted(missing, dim, keepdim)), self), self)


def _counted(child: Any, dim: Any, keepdim: bool) -> Any:
    if not ring.shape_of(child):
        return child
    dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return ring.summed(child, dims or list(range(len(ring.shape_of(child)))), keepdim)


# -- selections -------------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(condition: Any, self: Any, other: Any) -> Any:
    """other + condition * (self - other), for a secret or a public condition."""
    like = kinds.template_of(condition, self, other)
    self, other = kinds.finite(self, like), kinds.finite(other, like)
    chosen = as_bit(condition)
    if not kinds.nodes_in(self, other):
        return arithmetic.add(arithmetic.multiply(kinds.bits(chosen, like), _minus(self, other)), other)
    (a, b), _, reals = kinds.common(self, other)
    if not isinstance(a, int) and not isinstance(b, int):
        return kinds.result(
            ring.plus(b, ring.multiply_bit(chosen, ring.minus(a, b))), (self, other), like, reals
        )
    if isinstance(b, int):
        child = ring.plus(ring.multiply_bit(chosen, ring.minus(a, b)), b)
    else:
        child = ring.plus(ring.multiply_bit(chosen, ring.from_public(a, b)), b)
    return kinds.result(child, (self, other), like, reals)


def _minus(a: Any, b: Any) -> Any:
    made = a - b
    if isinstance(made, (float, torch.Tensor)):
        return made
    return float(made)


@rule(FixedPrecisionTensor, aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    like = kinds.template_of(self, mask, value)
    if isinstance(value, (int, float)):
        filled = kinds.encode_fill(value, like) if kinds.is_real(self) else int(value)
    else:
        filled = (
            kinds.units(kinds.finite(value, like), like) if kinds.is_real(self) else kinds.integers(value)
        )
    chosen = as_bit(mask)
    if not kinds.is_node(self):
        mine = kinds.units(self, like) if kinds.is_real(self) else kinds.integers(self)
        return kinds.result(
            ring.plus(ring.multiply_bit(chosen, ring.minus(filled, mine)), mine), (self,), like, True
        )
    gap = ring.from_public(filled, self.child) if isinstance(filled, int) else ring.minus(filled, self.child)
    return kinds.same_kind(ring.plus(self.child, ring.multiply_bit(chosen, gap)), self)


# -- piecewise linear functions ---------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.relu.default)
def relu(self: Any) -> Any:
    """max(x, 0); the bits stay with the result for `threshold_backward`. Of pictures: NOTE [A relu before a pooling]"""
    if not torch.is_grad_enabled() and len(self.shape) == _PICTURES and self.is_real:
        made = kinds.same_kind(computed_later(self.child, self.shape, lambda: _positive(self.child)), self)
        made.known["relu_of"] = self.child
        return made
    values, positive = ring.positive_part(self.child)
    made = kinds.same_kind(values, self)
    made.known["positive"] = positive
    return made


# NOTE [A relu before a pooling]
# The largest of relu(x) is the relu of the largest, and there are fewer of those. So where no gradients are asked for,
# the relu of a batch of pictures waits for the next operation. If that is a maximum over windows, which makes them fewer,
# the windows are cut from x and the relu comes after it; otherwise it is computed then, or when x is written to.
_PICTURES = 4


def _positive(child: Any) -> Any:
    with metering.operation("relu", always=True):
        return ring.positive_part(child)[0]


def undone_relu(node: FixedPrecisionTensor) -> Any:
    """What the relu is of whose result this is, if it was not computed yet; else None."""
    shares = getattr(node.child, "child", None)
    is_undone = isinstance(shares, LazyShares) and not shares.is_made
    return node.known.get("relu_of") if is_undone else None


@rule(FixedPrecisionTensor, aten.threshold_backward.default)
def threshold_backward(grad_output: Any, self: Any, threshold: float) -> Any:
    """grad where self > threshold; after a relu its bits are used again."""
    like = kinds.template_of(grad_output, self)
    known = self.known.get("positive") if threshold == 0 and kinds.is_node(self) else None
    if known is None:
        known = greater(self, threshold).child if kinds.is_node(self) else (self > threshold).to(torch.int64)
    units = kinds.units(grad_output, like)
    chosen = later.selected(known, units)
    return kinds.real(ring.multiply_bit(known, units) if chosen is None else chosen, like)


@rule(FixedPrecisionTensor, aten.abs.default)
def absolute(self: Any) -> Any:
    """|x| = 2 max(x, 0) - x."""
    values, _ = ring.positive_part(self.child)
    return kinds.same_kind(ring.minus(ring.times(values, 2), self.child), self)


@rule(FixedPrecisionTensor, aten.sign.default, aten.sgn.default)
def sign(self: Any) -> Any:
    below, above = ring.unstacked(ring.less_than_zero(ring.stacked([self.child, ring.negated(self.child)])))
    return kinds.same_kind(ring.times(ring.minus(above, below), self.scale), self)


@rule(FixedPrecisionTensor, aten.signbit.default)
def signbit(self: Any) -> Any:
    return fixed_bits.as_number(kinds.bits(ring.less_than_zero(self.child), self), self)


@rule(FixedPrecisionTensor, aten.maximum.default, aten.fmax.default)
def maximum(self: Any, other: Any) -> Any:
    return where(greater(self, other), self, other)


@rule(FixedPrecisionTensor, aten.minimum.default, aten.fmin.default)
def minimum(self: Any, other: Any) -> Any:
    return where(less(self, other), self, other)


def _is_infinite(bound: Any) -> bool:
    """Whether a bound is no bound."""
    return bound is None or (isinstance(bound, float) and bound in (float("inf"), float("-inf")))


@rule(FixedPrecisionTensor, aten.clamp.default, aten.clamp.Tensor)
def clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    made = self
    if not _is_infinite(min):
        made = where(less(made, min), min, made)
    if not _is_infinite(max):
        made = where(greater(made, max), max, made)
    return made if made is not self else kinds.same_kind(on_children(aten.clone.default, self.child), self)


@rule(FixedPrecisionTensor, aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(self: Any, min: Any) -> Any:
    return clamp(self, min, None)


@rule(FixedPrecisionTensor, aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(self: Any, max: Any) -> Any:
    return clamp(self, None, max)
