"""Ring operations: the few things fixed precision asks of its integers that no aten operation says.

Integers are int64, in Z_2^64 read as signed. A child is a plain tensor, a pointer to one, or another node
(an AdditiveSharingTensor). For a plain tensor and a pointer the operations are written here with aten
operations; another node has a METHOD OF THE SAME NAME:

    truncate(divisor)       x / divisor for a public int >= 1, as an integer less than 1 from the quotient,
                            for every x in [-2^62, 2^62). Rounding down, to nearest, or either are all fine.
    less_than_zero()        1 where x < 0, else 0. Exact.
    equals_zero()           1 where x == 0, else 0. Exact.
    multiply_bit(bits)      bits * x, where `bits` is a node of the same type that holds only 0 and 1; the two
                            broadcast.
    positive_part()         (values, bits): x and 1 where x > 0, else 0 and 0. Exact.
    one_hot(size)           for x in [0, size), size a power of two: shape (size, *x.shape), row i is 1 where
                            x == i.
                            (From a masked opening mod `size` and a rotated one-hot vector: one round.)
    leading_bit(size)       shape (size, *x.shape), row i is 1 where 2^i <= x < 2^(i+1). None for x <= 0.
    maximum_along(dim)      (values, selection): the maximum along `dim`, which is gone from `values`, and a
                            0/1 tensor of x's shape with one 1 along `dim`, at the first maximum.
    largest_along(dim)      the values alone.
    product_truncated(func, y, divisor, params, bias)
                            func(x, y, *params) / divisor + bias; None: there is no form of its own for these.
    squared(divisor)        (x * x / divisor, x * x); None as above.
    maximum_of_windows(pooling, lowest)
                            (values, selection) of windows, what lies outside being `lowest`; None as above.
    relu_of_windows(pooling, lowest)
                            the maxima of windows and 0; None as above.

    rescaled, polynomial, piecewise, exponential, exponential_cut, scaled_function, shifted_function, odd_function, sines,
    divided_bounded, clamped, cut_magnitude
                            what `fixed_approximations` says of them, as one program each.
    softmax_along, log_softmax_along, log_softmax_backward
                            the same for `fixed_softmax`; None: there is no form of its own.
    rescaled_together(others, factor, divisor)
                            [x * factor / divisor, ...] for x and all others.

Only `truncate` and `less_than_zero` are necessary: a node without one of the other methods is served by a
generic form made of these two and aten operations.

Besides, a node must `interpret` these aten operations on integers, where every operand is a node or public
(a plain int64 tensor or a Python int):

    linear         add.Tensor sub.Tensor neg sum.dim_IntList sum cumsum, and all rearrangements in
                   `fixed_structure.STRUCTURAL`; zeros_like, new_zeros, clone, copy_
    bilinear       mul.Tensor mm bmm dot mv convolution (also transposed): both operands secret, or one public

Rules never look at a child's values and never ask for more than this.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.mpc.rules.registry import on_children
from syft.tensors.pointer import PointerTensor

aten = torch.ops.aten


def _has_values(child: Any) -> bool:
    """Whether aten operations see the integers themselves, here or at a worker."""
    return isinstance(child, (torch.Tensor, PointerTensor))


def _own(child: Any, name: str) -> Any:
    """The method of a node for a ring operation, or None."""
    return getattr(child, name, None) if isinstance(child, AbstractTensor) else None


def shape_of(child: Any) -> torch.Size:
    return child.shape


# -- the two necessary ones ------------------------------------------------------------------------------


def truncate(child: Any, divisor: int) -> Any:
    """child / divisor to the nearest integer (a node: to an integer less than 1 away)."""
    if divisor == 1:
        return child
    if not _has_values(child):
        return child.truncate(divisor)
    # NB: added after the division where the sum could leave the ring.
    half = divisor // 2
    if divisor & (divisor - 1) == 0:
        shift = divisor.bit_length() - 1
        down = on_children(aten.bitwise_right_shift.Tensor_Scalar, child, shift - 1)
        return on_children(aten.bitwise_right_shift.Tensor_Scalar, on_children(aten.add.Tensor, down, 1), 1)
    raised = on_children(aten.add.Tensor, child, half)
    return on_children(aten.div.Tensor_mode, raised, divisor, rounding_mode="floor")


def product(func: Any, a: Any, b: Any, divisor: int, *params: Any, bias: Any = None) -> Any:
    """func(a, b, *params) / divisor + bias: of secrets one program where that can be.

    A bias has the shape of what is added; for a convolution, a number for each channel.
    """
    joined = _own(a, "product_truncated")
    made = None if joined is None else joined(func, b, divisor, params, bias)
    if made is not None:
        return made
    made = truncate(on_children(func, a, b, *params), divisor)
    if bias is None:
        return made
    if func is aten.convolution.default:
        bias = on_children(aten.view.default, bias, [-1, *[1] * (len(shape_of(made)) - 2)])
    return plus(made, bias)


def squared(child: Any, divisor: int) -> tuple[Any, Any]:
    """child * child / divisor, and the same before it is divided."""
    own = _own(child, "squared")
    both = None if own is None else own(divisor)
    if both is None:
        exact = times(child, child)
        return truncate(exact, divisor), exact
    return both


def less_than_zero(child: Any) -> Any:
    if not _has_values(child):
        return child.less_than_zero()
    return _as_int(on_children(aten.lt.Scalar, child, 0))


# -- those with a generic form ---------------------------------------------------------------------------


def equals_zero(child: Any) -> Any:
    if _has_values(child):
        return _as_int(on_children(aten.eq.Scalar, child, 0))
    if _own(child, "equals_zero") is not None:
        return child.equals_zero()
    below, above = unstacked(less_than_zero(stacked([child, negated(child)])))
    return from_public(1, plus(below, above))


def multiply_bit(bits: Any, child: Any) -> Any:
    """bits * child where `bits` is 0 or 1 everywhere; either may be public."""
    if isinstance(bits, AbstractTensor) and _own(child, "multiply_bit") is not None:
        return child.multiply_bit(bits)
    return times(bits, child)


def positive_part(child: Any) -> tuple[Any, Any]:
    """(max(x, 0), 1 where x > 0)."""
    if _own(child, "positive_part") is not None and not _has_values(child):
        return child.positive_part()
    positive = less_than_zero(negated(child))
    return multiply_bit(positive, child), positive


def one_hot(child: Any, size: int) -> Any:
    """Shape (size, *shape): row i is 1 where the child is i."""
    if not _has_values(child) and _own(child, "one_hot") is not None:
        return child.one_hot(size)
    return equals_zero(minus(unsqueezed(child, 0), counting(size, len(shape_of(child)))))


def fused(child: Any, name: str) -> Any:
    """The node's own program for a function of `fixed_approximations`, or None.

    Those that compare need one whose comparison works inside others.
    """
    if _has_values(child) or (name in _COMPARING and not getattr(child, "how", None)):
        return None
    return _own(child, name)


_COMPARING = frozenset(
    "clamped exponential_cut odd_function cut_magnitude divided_bounded softmax_along log_softmax_along".split()
)


def looked_up(child: Any, shift: int, tables: list[list[int]], low: int = 0) -> tuple[Any, list[Any]]:
    """(rest, values): the child less d * 2^shift for an integer d next to child / 2^shift, and an entry of each table.

    It is table[hi] * 2^(lo + 2^low - 1) for d = hi * 2^low + lo with 0 <= lo < 2^low: table[d] itself without `low`. hi
    is in [0, size), the length of the tables, a power of two.
    """
    digit = truncate(child, 1 << shift)
    full = [
        [table[i >> low] << ((i & ((1 << low) - 1)) + (1 << low) - 1) for i in range(len(table) << low)]
        for table in tables
    ]
    if _has_values(child):
        place = on_children(aten.bitwise_and.Scalar, digit, len(full[0]) - 1)
        read = [on_children(aten.take.default, torch.tensor(table), place) for table in full]
    else:
        read = weighted_rows(one_hot(digit, len(full[0])), *full)
    return minus(child, times(digit, 1 << shift)), read


def leading_bit(child: Any, size: int = 62) -> Any:
    """Shape (size, *shape): row i is 1 where the highest set bit of the child is bit i; no row for x <= 0."""
    if not _has_values(child) and _own(child, "leading_bit") is not None:
        return child.leading_bit(size)
    powers = torch.tensor([1 << i for i in range(size)]).view(-1, *[1] * len(shape_of(child)))
    below = less_than_zero(minus(unsqueezed(child, 0), powers))
    next_below = on_children(
        aten.cat.default, [sliced(below, 0, 1, size), plus(times(sliced(below, 0, 0, 1), 0), 1)], 0
    )
    return minus(next_below, below)


def maximum_along(child: Any, dim: int) -> tuple[Any, Any]:
    """(values, selection), see the docstring of this module."""
    shape = shape_of(child)
    dim %= len(shape)
    if _has_values(child):
        values, index = on_children(aten.max.dim, child, dim, True)
        places = torch.arange(shape[dim]).view([-1 if i == dim else 1 for i in range(len(shape))])
        selection = _as_int(on_children(aten.eq.Tensor, index, places))
        return on_children(aten.squeeze.dim, values, dim), selection
    if _own(child, "maximum_along") is not None:
        return child.maximum_along(dim)
    return _tournament(child, dim)


def largest_along(child: Any, dim: int) -> Any:
    """The values of `maximum_along`."""
    if not _has_values(child) and _own(child, "largest_along") is not None:
        return child.largest_along(dim % len(shape_of(child)))
    return maximum_along(child, dim)[0]


def _tournament(child: Any, dim: int) -> tuple[Any, Any]:
    """Halves meet until one is left; the selection is built on the way back up."""
    count = shape_of(child)[dim]
    if count == 1:
        return on_children(aten.squeeze.dim, child, dim), plus(times(child, 0), 1)
    half = (count + 1) // 2
    first, second = sliced(child, dim, 0, half), sliced(child, dim, half, count)
    met = sliced(first, dim, 0, count - half)
    wins = less_than_zero(minus(met, second))
    best = plus(met, multiply_bit(wins, minus(second, met)))
    alone = sliced(first, dim, count - half, half)
    round_winners = on_children(aten.cat.default, [best, alone], dim) if count % 2 else best
    values, chosen = _tournament(round_winners, dim)
    met_chosen = sliced(chosen, dim, 0, count - half)
    right = multiply_bit(wins, met_chosen)
    parts = [minus(met_chosen, right), sliced(chosen, dim, count - half, half), right]
    if count % 2 == 0:
        del parts[1]
    return values, on_children(aten.cat.default, parts, dim)


# -- shorthands for aten operations on children ------------------------------------------------------------


def _as_int(bits: Any) -> Any:
    return on_children(aten._to_copy.default, bits, dtype=torch.int64)


def plus(a: Any, b: Any) -> Any:
    return on_children(aten.add.Tensor, a, b)


def minus(a: Any, b: Any) -> Any:
    return on_children(aten.sub.Tensor, a, b)


def times(a: Any, b: Any) -> Any:
    return on_children(aten.mul.Tensor, a, b)


def scaled(a: Any, b: Any, divisor: int) -> Any:
    """a * b / divisor."""
    return product(aten.mul.Tensor, a, b, divisor)


def negated(a: Any) -> Any:
    return on_children(aten.neg.default, a)


def from_public(number: int, child: Any) -> Any:
    """number - child."""
    return plus(negated(child), number)


def summed(child: Any, dims: list[int], keepdim: bool = False) -> Any:
    return on_children(aten.sum.dim_IntList, child, dims, keepdim)


def unsqueezed(child: Any, dim: int) -> Any:
    return on_children(aten.unsqueeze.default, child, dim)


def sliced(child: Any, dim: int, start: int, end: int, step: int = 1) -> Any:
    return on_children(aten.slice.Tensor, child, dim, start, end, step)


def stacked(children: list[Any]) -> Any:
    """Children of one shape as rows of one child, so that an operation on all costs its rounds once."""
    return on_children(aten.stack.default, children, 0)


def unstacked(child: Any) -> list[Any]:
    return list(on_children(aten.unbind.int, child, 0))


def zeros_like(child: Any) -> Any:
    return on_children(aten.zeros_like.default, child)


def counting(size: int, trailing: int) -> torch.Tensor:
    """0, 1, ... along a new first dimension."""
    return torch.arange(size).view(-1, *[1] * trailing)


def weighted_rows(rows: Any, *tables: list[int]) -> list[Any]:
    """Per table the sum of rows times its public integers: with one-hot rows, tables looked up. One matrix product."""
    count, *shape = shape_of(rows)
    flat = on_children(aten.reshape.default, rows, [count, math.prod(shape)])
    read = on_children(aten.mm.default, torch.tensor(tables), flat)
    return [on_children(aten.reshape.default, one, shape) for one in unstacked(read)]
