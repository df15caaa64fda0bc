"""What an operand is: a real or an integer, secret or public, and in which units.

Every rule of fixed precision uses these to bring its operands to integers and to name its result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from syft.core.chain import map_tensors
from syft.mpc.precision import (
    ENCODE_LIMIT,
    FixedPrecisionTensor,
    MixedPrecisionError,
    encode_integers,
    encode_number,
)
from syft.mpc.rules import fixed_ring as ring

#: Significant bits of a public real factor.
FACTOR_BITS = 22

# NOTE [Masks]
# Attention masks are infinities or numbers like -3.4e38, the least of their dtype. A public number of this size fits no
# precision, so where it is added, filled in, selected or compared with, it is a mask and becomes FAR units: beyond every
# value, and sums with values stay in the ring. Smaller numbers that do not fit raise.
MASK = float(ENCODE_LIMIT)
FAR = ENCODE_LIMIT // 4

_examples: dict[tuple[torch.dtype, bool], torch.Tensor] = {}


def is_node(value: Any) -> bool:
    return isinstance(value, FixedPrecisionTensor)


def nodes_in(*values: Any) -> list[FixedPrecisionTensor]:
    found: list[FixedPrecisionTensor] = []
    map_tensors(lambda t: found.append(t) if is_node(t) else None, list(values))
    return found


def template_of(*values: Any) -> FixedPrecisionTensor:
    """The node whose precision the result has; !! MixedPrecisionError if they differ."""
    nodes = nodes_in(*values)
    first = next((n for n in nodes if n.is_real), nodes[0])
    for node in nodes:
        if node.base != first.base or node.float_fractional != first.float_fractional:
            raise MixedPrecisionError(first, node)
    return first


# -- results --------------------------------------------------------------------------------------------


def real(child: Any, like: FixedPrecisionTensor, dtype: torch.dtype | None = None) -> FixedPrecisionTensor:
    """A node of reals over integers in the units of `like`."""
    if dtype is None:
        dtype = like.presented_dtype if like.is_real else torch.get_default_dtype()
    made = FixedPrecisionTensor(like.base, like.float_fractional, dtype)
    made.child = child
    return made


def whole(child: Any, like: FixedPrecisionTensor, dtype: torch.dtype = torch.int64) -> FixedPrecisionTensor:
    """A node of integers or bits."""
    made = FixedPrecisionTensor(like.base, 0, dtype, like.float_fractional)
    made.child = child
    return made


def bits(child: Any, like: FixedPrecisionTensor) -> FixedPrecisionTensor:
    return whole(child, like, torch.bool)


def same_kind(
    child: Any, like: FixedPrecisionTensor, dtype: torch.dtype | None = None
) -> FixedPrecisionTensor:
    """A node like `like`, of another presented dtype of the same kind perhaps."""
    made = real(child, like) if like.is_real else whole(child, like)
    made.presented_dtype = dtype or like.presented_dtype
    return made


# -- operands -------------------------------------------------------------------------------------------


def is_real(value: Any) -> bool:
    """Whether an operand (node, tensor, number) is a real and not an integer or bit."""
    if is_node(value):
        return value.is_real
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise ValueError(
                "Complex numbers have no fixed-precision form. Encode real and imaginary part apart."
            )
        return value.is_floating_point()
    return isinstance(value, float)


def dtype_of(value: Any) -> torch.dtype:
    return value.presented_dtype if is_node(value) else value.dtype


def units(value: Any, like: FixedPrecisionTensor) -> Any:
    """An operand as integers in the units of the reals of `like`."""
    if is_node(value):
        if value.is_fine:
            return ring.truncate(value.child, value.scale // value.float_scale)
        return value.child if value.is_real else ring.times(value.child, like.float_scale)
    if isinstance(value, torch.Tensor):
        return encode_integers(value, like.float_scale)
    return encode_number(value, like.float_scale)


def encode_fill(value: float, like: FixedPrecisionTensor) -> int:
    """A number to fill with: NOTE [Masks]."""
    if abs(value) >= MASK:
        return FAR if value > 0 else -FAR
    return like.encode_number(value)


def finite(value: Any, like: FixedPrecisionTensor) -> Any:
    """An operand of a sum, a selection or a comparison: NOTE [Masks]."""
    far = FAR / like.float_scale
    if isinstance(value, float) and abs(value) >= MASK:
        return math.copysign(far, value)
    if isinstance(value, torch.Tensor) and value.is_floating_point() and bool((value.abs() >= MASK).any()):
        return torch.where(value.abs() >= MASK, value.sign() * far, value.to(torch.float64))
    return value


def integers(value: Any) -> Any:
    """An integer operand as it is: a child, an int64 tensor, an int."""
    if is_node(value):
        return value.child
    return value.to(torch.int64) if isinstance(value, torch.Tensor) else int(value)


def common(*values: Any) -> tuple[list[Any], FixedPrecisionTensor, bool]:
    """Operands in the same units: (integers, template, whether they are reals)."""
    like = template_of(*values)
    if any(is_real(v) for v in values):
        return [units(v, like) for v in values], like, True
    return [integers(v) for v in values], like, False


def as_real(value: Any, like: FixedPrecisionTensor | None = None) -> FixedPrecisionTensor:
    """An operand as a node of reals."""
    if like is None:
        like = value
    if is_node(value) and value.is_real:
        return value
    dtype = value.dtype if isinstance(value, torch.Tensor) and value.is_floating_point() else None
    return real(units(value, like), like, dtype)


def _example(value: Any) -> Any:
    if not is_node(value) and not isinstance(value, torch.Tensor):
        return value
    key = (dtype_of(value), len(value.shape) == 0)
    if key not in _examples:
        _examples[key] = torch.empty(() if key[1] else (1,), dtype=key[0])
    return _examples[key]


def result_dtype(a: Any, b: Any) -> torch.dtype:
    """The dtype torch presents for an operation on both."""
    return torch.result_type(_example(a), _example(b))


def result(
    child: Any, operands: Iterable[Any], like: FixedPrecisionTensor, reals: bool
) -> FixedPrecisionTensor:
    """A node over `child` that presents what torch would for these operands."""
    first, *rest = operands
    dtype = dtype_of(first) if is_node(first) or isinstance(first, torch.Tensor) else dtype_of(like)
    for other in rest:
        dtype = result_dtype(_of_dtype(first, dtype), other)
    if reals:
        return real(child, like, dtype if dtype.is_floating_point else None)
    return whole(child, like, dtype)


def _of_dtype(value: Any, dtype: torch.dtype) -> Any:
    if not is_node(value) and not isinstance(value, torch.Tensor):
        return value
    key = (dtype, len(value.shape) == 0)
    if key not in _examples:
        _examples[key] = torch.empty(() if key[1] else (1,), dtype=dtype)
    return _examples[key]


# -- public factors ----------------------------------------------------------------------------------------


def public_factor(value: Any) -> tuple[Any, int]:
    """(m, 2^k) with value close to m / 2^k, m of FACTOR_BITS significant bits: an integer is itself.

    Error: at most 2^-FACTOR_BITS of the value (of the largest element, for a tensor).
    """
    if isinstance(value, torch.Tensor):
        return _tensor_factor(value)
    if not math.isfinite(value) or abs(value) >= MASK:
        encode_number(value, 1)  # says what is wrong
    if value == int(value):
        return int(value), 1
    shift = min(62, max(0, FACTOR_BITS - math.frexp(value)[1]))
    factor = round(value * 2.0**shift)
    while factor and factor % 2 == 0 and shift:
        factor, shift = factor // 2, shift - 1
    return factor, 1 << shift


def _tensor_factor(value: torch.Tensor) -> tuple[torch.Tensor, int]:
    if not value.is_floating_point():
        return value.to(torch.int64), 1
    wide = value.detach().to(torch.float64)
    rounded = wide.round()
    if not value.numel() or bool((rounded == wide).all()):
        return encode_integers(wide, 1), 1
    largest = float(wide.abs().max())
    if not math.isfinite(largest):
        encode_integers(wide, 1)  # says what is wrong
    shift = min(62, max(0, FACTOR_BITS - math.frexp(largest)[1]))
    return (wide * 2.0**shift).round().to(torch.int64), 1 << shift


def factor(value: Any) -> tuple[Any, int]:
    """Any operand of a product as (integers, units to the one)."""
    if is_node(value):
        return value.child, value.scale
    return public_factor(value)
