"""Means, variances, norms and products along dimensions: one truncation each where the sum allows it."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.exceptions import UnsupportedOperationError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_compare as compare
from syft.mpc.rules import fixed_extrema as extrema
from syft.mpc.rules import fixed_fine as fine
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_powers as powers
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


def dims_of(shape: torch.Size, dim: Any) -> list[int]:
    """Dimensions to reduce, all of them for None or []."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(len(shape)))
    return [d % max(1, len(shape)) for d in ([dim] if isinstance(dim, int) else dim)]


def count_of(shape: torch.Size, dims: list[int]) -> int:
    return math.prod(shape[d] for d in dims) if len(shape) else 1


def total(child: Any, dims: list[int], keepdim: bool) -> Any:
    return ring.summed(child, dims, keepdim) if ring.shape_of(child) else child


@rule(FixedPrecisionTensor, aten.mean.default, aten.mean.dim)
def mean(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Error less than 1 unit; of squares, along some of their dimensions, less than 1 unit of a variance."""
    x = kinds.as_real(self) if dtype is not None or not self.is_real else self
    dims = dims_of(x.shape, dim)
    count = count_of(x.shape, dims)
    if not count:
        raise ValueError("The mean of no elements has no fixed-precision value.")
    exact = x.known.get("exact")
    if exact is not None and len(dims) < len(x.shape) and count * x.scale**2 <= _LARGEST_COUNT:
        return _mean_square(exact, x, dims, count, keepdim, dtype)
    return kinds.real(ring.truncate(total(x.child, dims, keepdim), count), x, dtype)


#: NOTE [Means of squares]
#: Norms that are written out divide by `sqrt(x.pow(2).mean(-1) + eps)`, where the squares are often below a unit, and eps
#: always is. So such a mean is of the products before their truncation, and fine (NOTE [Fine tensors] in `fixed_fine`).
#: Their sum has to fit, as that of a variance has. Here it does for numbers up to 256 on average, whatever their
#: precision is: where there are more of them, the mean is of what was truncated.
_LARGEST_COUNT = 1 << (62 - 16)


def _mean_square(
    exact: Any,
    x: FixedPrecisionTensor,
    dims: list[int],
    count: int,
    keepdim: bool,
    dtype: torch.dtype | None,
) -> FixedPrecisionTensor:
    digits = fine.digits_of_variance(x)
    child = ring.truncate(total(exact, dims, keepdim), count * x.scale**2 // x.base**digits)
    made = fine.fine(child, x, digits)
    made.presented_dtype = dtype or x.presented_dtype
    return made


def _moments(x: FixedPrecisionTensor, dims: list[int], correction: float) -> tuple[Any, Any]:
    """(variance, mean), dimensions kept. The variance errs by less than 1 unit plus that of the mean,
    squared.
    """
    count = count_of(x.shape, dims)
    middle = mean(x, dims, True)
    off = ring.minus(x.child, middle.child)
    divisor = count - correction
    if divisor <= 0:
        raise ValueError(
            f"The variance of {count} elements with correction={correction} has no fixed-precision value. "
            "Use more elements or correction=0."
        )
    squares = total(ring.times(off, off), dims, True)
    if float(divisor) == int(divisor):
        return kinds.real(ring.truncate(squares, x.scale * int(divisor)), x), middle
    return arithmetic.divide(kinds.real(ring.truncate(squares, x.scale), x), divisor), middle


def _shaped(node: FixedPrecisionTensor, dims: list[int], keepdim: bool) -> FixedPrecisionTensor:
    if keepdim or not node.shape:
        return node
    return kinds.same_kind(on_children(aten.squeeze.dims, node.child, dims), node)


def _root(node: FixedPrecisionTensor) -> FixedPrecisionTensor:
    return kinds.real(approx.square_root(node.child, node.scale), node)


@rule(FixedPrecisionTensor, aten.var.correction)
def var(self: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    dims = dims_of(self.shape, dim)
    variance, _ = _moments(self, dims, 1 if correction is None else correction)
    return _shaped(variance, dims, keepdim)


@rule(FixedPrecisionTensor, aten.std.correction)
def std(self: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return _root(var(self, dim, correction=correction, keepdim=keepdim))


@rule(FixedPrecisionTensor, aten.var_mean.correction)
def var_mean(self: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    dims = dims_of(self.shape, dim)
    variance, middle = _moments(self, dims, 1 if correction is None else correction)
    return _shaped(variance, dims, keepdim), _shaped(middle, dims, keepdim)


@rule(FixedPrecisionTensor, aten.std_mean.correction)
def std_mean(self: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    variance, middle = var_mean(self, dim, correction=correction, keepdim=keepdim)
    return _root(variance), middle


@rule(FixedPrecisionTensor, aten.linalg_vector_norm.default)
def vector_norm(
    self: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """The root of order 2 is taken before any truncation: 1 unit plus 2^-19 of the norm."""
    dims = dims_of(self.shape, dim)
    if ord == 2:
        squares = total(ring.times(self.child, self.child), dims, keepdim)
        return kinds.real(approx.square_root(squares, 1), self, dtype)
    if ord == 0:
        nonzero = compare.not_equal(self, 0).child
        return kinds.real(ring.times(total(nonzero, dims, keepdim), self.scale), self, dtype)
    size = compare.absolute(self)
    if ord == 1:
        return kinds.real(total(size.child, dims, keepdim), self, dtype)
    if ord == float("inf"):
        return extrema.amax(size, dims, keepdim)
    if ord == float("-inf"):
        return extrema.amin(size, dims, keepdim)
    # Relative to the largest, so that no power leaves the range.
    top = extrema.amax(size, dims, True)
    summed = total(powers.power(arithmetic.divide(size, top), ord).child, dims, True)
    made = arithmetic.multiply(powers.power(kinds.real(summed, self, dtype), 1.0 / ord), top)
    return _shaped(made, dims, keepdim)


@rule(FixedPrecisionTensor, aten.prod.default, aten.prod.dim_int)
def prod(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Halves are multiplied until one is left."""
    if not self.shape:
        return self
    child = self.child
    if dim is None:
        child, dim = on_children(aten.reshape.default, child, [-1]), 0
        keepdim = False
    count = ring.shape_of(child)[dim]
    if not count:
        raise UnsupportedOperationError("the product of no elements", FixedPrecisionTensor)
    while count > 1:
        half = count // 2
        both = ring.truncate(
            ring.times(ring.sliced(child, dim, 0, half), ring.sliced(child, dim, half, 2 * half)), self.scale
        )
        rest = ring.sliced(child, dim, 2 * half, count)
        child = on_children(aten.cat.default, [both, rest], dim) if count % 2 else both
        count = ring.shape_of(child)[dim]
    child = child if keepdim else on_children(aten.squeeze.dim, child, dim)
    if self.is_real:
        return kinds.real(child, self, dtype)
    return kinds.whole(child, self, torch.int64)


@rule(FixedPrecisionTensor, aten.cumprod.default)
def cumprod(self: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Doubling: after step k an element is the product of up to 2^k before it."""
    if not self.shape:
        return self
    child, count, step = self.child, self.shape[dim], 1
    while step < count:
        moved = ring.times(ring.sliced(child, dim, step, count), ring.sliced(child, dim, 0, count - step))
        parts = [ring.sliced(child, dim, 0, step), ring.truncate(moved, self.scale)]
        child, step = on_children(aten.cat.default, parts, dim), 2 * step
    return kinds.same_kind(child, self, dtype)


@rule(FixedPrecisionTensor, aten.count_nonzero.dim_IntList, aten.count_nonzero.default)
def count_nonzero(self: Any, dim: Any = None) -> Any:
    return kinds.whole(total(compare.as_bit(self), dims_of(self.shape, dim), False), self)
