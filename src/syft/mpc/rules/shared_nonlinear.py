"""Comparisons, extremes and everything else on shared integers that takes a party program."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.ops import _functional_twin, facts_of
from syft.exceptions import UnsupportedOperationError
from syft.mpc.protocols import divide, select
from syft.mpc.protocols.registry import comparison
from syft.mpc.rules.registry import rule
from syft.mpc.rules.shared_linear import add, as_public, at_every_holder, full_like, join_values, rsub, sub
from syft.mpc.rules.shared_products import mul
from syft.mpc.sharing import AdditiveSharingTensor as AST

aten = torch.ops.aten


def _difference(x: Any, y: Any) -> AST:
    return sub(x, y) if isinstance(x, AST) else rsub(y, x)


def _not(bits: Any) -> Any:
    return rsub(bits, 1)


@rule(AST, aten.lt.Tensor, aten.lt.Scalar)
def less(x: Any, y: Any) -> Any:
    return _difference(x, y).less_than_zero()


@rule(AST, aten.gt.Tensor, aten.gt.Scalar)
def greater(x: Any, y: Any) -> Any:
    return _difference(y, x).less_than_zero() if isinstance(y, AST) else rsub(x, y).less_than_zero()


@rule(AST, aten.ge.Tensor, aten.ge.Scalar)
def greater_or_equal(x: Any, y: Any) -> Any:
    return _not(less(x, y))


@rule(AST, aten.le.Tensor, aten.le.Scalar)
def less_or_equal(x: Any, y: Any) -> Any:
    return _not(greater(x, y))


@rule(AST, aten.eq.Tensor, aten.eq.Scalar)
def equal(x: Any, y: Any) -> Any:
    return _difference(x, y).equals_zero()


@rule(AST, aten.ne.Tensor, aten.ne.Scalar)
def not_equal(x: Any, y: Any) -> Any:
    return _not(equal(x, y))


@rule(AST, aten.logical_not.default)
def logical_not(bits: Any) -> Any:
    return _not(bits)


@rule(AST, aten.relu.default)
def relu(x: AST) -> Any:
    return x.run(comparison(x.protocol).relu)


@rule(AST, aten.abs.default)
def absolute(x: AST) -> Any:
    """|x| = 2 relu(x) - x."""
    return sub(mul(relu(x), 2), x)


@rule(AST, aten.sign.default, aten.sgn.default)
def sign(x: AST) -> Any:
    """1 - [x = 0] - 2 [x < 0]."""
    return sub(_not(x.equals_zero()), mul(x.less_than_zero(), 2))


@rule(AST, aten.clamp.default, aten.clamp_min.default)
def clamp(x: AST, min: Any = None, max: Any = None) -> Any:
    """x + relu(min - x), then x - relu(x - max)."""
    if min is not None:
        x = add(x, relu(rsub(x, int(min))))
    return x if max is None else sub(x, relu(sub(x, int(max))))


@rule(AST, aten.clamp_max.default)
def clamp_max(x: AST, max: Any) -> Any:
    return clamp(x, None, max)


@rule(AST, aten.max.dim)
def max_along(x: AST, dim: int, keepdim: bool = False) -> Any:
    return x.run(select.max_with_indices, dim, keepdim, **x.how)


@rule(AST, aten.min.dim)
def min_along(x: AST, dim: int, keepdim: bool = False) -> Any:
    values, indices = max_along(at_every_holder(aten.neg.default, (x,), {}), dim, keepdim)
    return at_every_holder(aten.neg.default, (values,), {}), indices


@rule(AST, aten.max.default)
def max_of_all(x: AST) -> Any:
    return x.run(select.maximum, **x.how)


@rule(AST, aten.min.default)
def min_of_all(x: AST) -> Any:
    return x.run(select.minimum, **x.how)


@rule(AST, aten.amax.default)
def amax(x: AST, dim: Any = (), keepdim: bool = False) -> Any:
    return _over_dims(x, select.maximum, dim, keepdim)


@rule(AST, aten.amin.default)
def amin(x: AST, dim: Any = (), keepdim: bool = False) -> Any:
    return _over_dims(x, select.minimum, dim, keepdim)


def _over_dims(x: AST, protocol: Any, dim: Any, keepdim: bool) -> Any:
    dims = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    if not dims:
        return x.run(protocol, **x.how)
    for one in sorted((d % len(x.shape) for d in dims), reverse=True):
        x = x.run(protocol, one, keepdim, **x.how)
    return x


@rule(AST, aten.maximum.default)
def maximum(x: Any, y: Any) -> Any:
    """The larger of two: y + relu(x - y)."""
    return add(relu(_difference(x, y)), y)


@rule(AST, aten.minimum.default)
def minimum(x: Any, y: Any) -> Any:
    return _difference(x, relu(_difference(x, y)))


@rule(AST, aten.argmax.default)
def argmax(x: AST, dim: int | None = None, keepdim: bool = False) -> Any:
    return x.run(select.argmax, dim, keepdim, **x.how)


@rule(AST, aten.argmin.default)
def argmin(x: AST, dim: int | None = None, keepdim: bool = False) -> Any:
    return x.run(select.argmin, dim, keepdim, **x.how)


@rule(AST, aten.div.Tensor_mode, aten.floor_divide.default, aten.floor_divide.Scalar)
def integer_division(x: Any, y: Any, rounding_mode: str | None = "floor") -> Any:
    """Exact integer division, by a public number or by a secret."""
    if rounding_mode not in ("floor", "trunc"):
        return division(x, y)
    if isinstance(y, AST):
        x = x if isinstance(x, AST) else add(full_like(y, 0), as_public(x))
        return x.run(divide.divide_shared, y, 31, rounding_mode)
    divisor = as_public(y)
    if divisor.numel() != 1:
        raise UnsupportedOperationError(
            "integer division by a tensor of public integers", AST, "Divide by one number at a time."
        )
    return x.run(divide.divide_public, int(divisor), rounding_mode)


@rule(AST, aten.div.Tensor, aten.div.Scalar)
def division(x: Any, y: Any) -> Any:
    """Integers have integer quotients: rounded towards zero, as the programs of 2020 expect."""
    return integer_division(x, y, "trunc")


@rule(AST, aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(x: Any, y: Any) -> Any:
    """x - y * floor(x / y): of the sign of y."""
    return sub(x, mul(integer_division(x, y, "floor"), y))


@rule(AST, aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(x: Any, y: Any) -> Any:
    """x - y * trunc(x / y): of the sign of x."""
    return sub(x, mul(integer_division(x, y, "trunc"), y))


@rule(AST, aten.where.self)
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y: y + condition * (x - y)."""
    chosen = mul(condition, _difference(x, y)) if isinstance(x, AST) or isinstance(y, AST) else None
    if chosen is None:
        return add(mul(condition, x - y), y)
    return add(chosen, y)


@rule(AST, aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: AST, mask: Any, value: Any) -> Any:
    """With a public or a secret mask."""
    return add(x, mul(mask, rsub(x, value)))


def interpret(cls: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation without a rule: in-place ones through their twin, all others are refused."""
    if facts_of(func).mutates:
        twin = _functional_twin(func)
        if twin is not None and twin in cls.aten_rules:
            value = cls.aten_rules[twin](cls, twin, args, kwargs)
            join_values(aten.copy_.default, args[0], value)
            return args[0]
    raise UnsupportedOperationError(
        str(func),
        cls,
        "Shared integers have arithmetic, comparisons, products, extremes and rearrangements; for functions of reals "
        "call fix_precision() before share().",
    )
