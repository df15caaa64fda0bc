"""Maxima, minima and sorting. Exact; of equal elements the first is taken."""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_compare as compare
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import fixed_structure as structure
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


def _places(selection: Any, dim: int) -> Any:
    """The index that a one-hot selection along `dim` stands for; the dimension is gone."""
    shape = ring.shape_of(selection)
    counts = torch.arange(shape[dim]).view([-1 if i == dim else 1 for i in range(len(shape))])
    return ring.summed(ring.times(selection, counts), [dim])


def _along(self: FixedPrecisionTensor, dim: int, sign: int) -> tuple[Any, Any]:
    """(values, selection) of the maxima (sign 1) or minima (sign -1)."""
    values, selection = ring.maximum_along(self.child if sign > 0 else ring.negated(self.child), dim)
    return (values if sign > 0 else ring.negated(values)), selection


def _with_index(self: Any, dim: int, keepdim: bool, sign: int) -> tuple[Any, Any]:
    if not self.shape:
        return self, kinds.whole(ring.times(self.child, 0), self)
    dim %= len(self.shape)
    values, selection = _along(self, dim, sign)
    index = _places(selection, dim)
    if keepdim:
        values, index = ring.unsqueezed(values, dim), ring.unsqueezed(index, dim)
    return kinds.same_kind(values, self), kinds.whole(index, self)


@rule(FixedPrecisionTensor, aten.max.dim)
def max_along(self: Any, dim: int, keepdim: bool = False) -> Any:
    return _with_index(self, dim, keepdim, 1)


@rule(FixedPrecisionTensor, aten.min.dim)
def min_along(self: Any, dim: int, keepdim: bool = False) -> Any:
    return _with_index(self, dim, keepdim, -1)


def _over(self: Any, dim: Any, keepdim: bool, sign: int) -> Any:
    if not self.shape:
        return self
    rank = len(self.shape)
    dims = [dim] if isinstance(dim, int) else list(dim) or list(range(rank))
    dims = sorted(d % rank for d in dims)
    kept = [d for d in range(rank) if d not in dims]
    flat = on_children(
        aten.reshape.default,
        on_children(aten.permute.default, self.child, [*kept, *dims]),
        [*[self.shape[d] for d in kept], -1],
    )
    largest = ring.largest_along(flat if sign > 0 else ring.negated(flat), len(kept))
    values = largest if sign > 0 else ring.negated(largest)
    if keepdim:
        for d in dims:
            values = ring.unsqueezed(values, d)
    return kinds.same_kind(values, self)


@rule(FixedPrecisionTensor, aten.amax.default)
def amax(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return _over(self, dim, keepdim, 1)


@rule(FixedPrecisionTensor, aten.amin.default)
def amin(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return _over(self, dim, keepdim, -1)


@rule(FixedPrecisionTensor, aten.aminmax.default)
def aminmax(self: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    dims = () if dim is None else (dim,)
    return amin(self, dims, keepdim), amax(self, dims, keepdim)


@rule(FixedPrecisionTensor, aten.max.default)
def max_of_all(self: Any) -> Any:
    return amax(self)


@rule(FixedPrecisionTensor, aten.min.default)
def min_of_all(self: Any) -> Any:
    return amin(self)


def _arg(self: Any, dim: int | None, keepdim: bool, sign: int) -> Any:
    if dim is not None:
        return _with_index(self, dim, keepdim, sign)[1]
    rank = len(self.shape)
    flat = kinds.same_kind(on_children(aten.reshape.default, self.child, [-1]), self)
    index = _with_index(flat, 0, False, sign)[1]
    return kinds.whole(on_children(aten.reshape.default, index.child, [1] * rank), self) if keepdim else index


@rule(FixedPrecisionTensor, aten.argmax.default)
def argmax(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _arg(self, dim, keepdim, 1)


@rule(FixedPrecisionTensor, aten.argmin.default)
def argmin(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _arg(self, dim, keepdim, -1)


# -- sorting ------------------------------------------------------------------------------------------------


def _permutation(child: Any, descending: bool) -> Any:
    """(..., n, n): row r has its 1 at the element of rank r. Every pair is compared once, in one batch.

    Stable: among equals the earlier element has the lower rank.
    """
    count = ring.shape_of(child)[-1]
    rows, columns = ring.unsqueezed(child, -1), ring.unsqueezed(child, -2)
    gap = ring.minus(rows, columns) if not descending else ring.minus(columns, rows)
    # before[i, j] = 1 when j comes before i: x_j < x_i, or equal and j < i.
    ties = torch.ones(count, count, dtype=torch.int64).tril(-1)
    before = ring.less_than_zero(ring.minus(ring.negated(gap), ties))
    off_diagonal = torch.ones(count, count, dtype=torch.int64) - torch.eye(count, dtype=torch.int64)
    rank = ring.summed(ring.times(before, off_diagonal), [-1])
    return ring.equals_zero(ring.minus(ring.unsqueezed(rank, -2), torch.arange(count).view(-1, 1)))


def _sorted(self: Any, dim: int, descending: bool, count: int | None) -> tuple[Any, Any]:
    if not self.shape:
        return self, kinds.whole(ring.times(self.child, 0), self)
    last = on_children(aten.transpose.int, self.child, dim, -1)
    chosen = _permutation(last, descending)
    if count is not None:
        chosen = ring.sliced(chosen, -2, 0, count)
    values = ring.summed(ring.multiply_bit(chosen, ring.unsqueezed(last, -2)), [-1])
    index = ring.summed(ring.times(chosen, torch.arange(ring.shape_of(last)[-1])), [-1])
    values, index = (on_children(aten.transpose.int, v, dim, -1) for v in (values, index))
    return kinds.same_kind(values, self), kinds.whole(index, self)


@rule(FixedPrecisionTensor, aten.sort.default)
def sort(self: Any, dim: int = -1, descending: bool = False) -> Any:
    """n^2 comparisons along the dimension."""
    return _sorted(self, dim, descending, None)


@rule(FixedPrecisionTensor, aten.sort.stable)
def sort_stable(self: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(self, dim, descending, None)


@rule(FixedPrecisionTensor, aten.topk.default)
def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return _sorted(self, dim, largest, k)


def _ranked(self: Any, rank: int, dim: int, keepdim: bool) -> tuple[Any, Any]:
    values, index = _sorted(self, dim, False, None)
    if not self.shape:
        return values, index
    func, args = (aten.slice.Tensor, (dim, rank, rank + 1)) if keepdim else (aten.select.int, (dim, rank))
    return (
        kinds.same_kind(on_children(func, values.child, *args), self),
        kinds.whole(on_children(func, index.child, *args), self),
    )


@rule(FixedPrecisionTensor, aten.kthvalue.default)
def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _ranked(self, k - 1, dim, keepdim)


@rule(FixedPrecisionTensor, aten.median.dim, aten.nanmedian.dim)
def median_along(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
    return _ranked(self, (self.shape[dim] - 1) // 2 if self.shape else 0, dim, keepdim)


@rule(FixedPrecisionTensor, aten.median.default, aten.nanmedian.default)
def median(self: Any) -> Any:
    flat = kinds.same_kind(on_children(aten.reshape.default, self.child, [-1]), self)
    return _ranked(flat, (flat.shape[0] - 1) // 2, 0, False)[0]


@rule(FixedPrecisionTensor, aten.maximum.out)
def maximum_out(self: Any, other: Any, *, out: Any) -> Any:
    """`torch.maximum(a, b, out=a)`, as optimizers write it."""
    return structure.write(out, compare.maximum(self, other))
