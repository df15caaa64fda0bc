"""What takes several passes over large tensors, made block by block: each block stays in the processor's cache.

One duty: be bit by bit what the passes give, in the time of one. A pass over 8 MB costs three times what it costs in the
cache, and torch multiplies every int64 that it adds by a scalar. Only for tensors of int64 on the CPU. Imports nothing of
ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

#: Words of a block: a handful of them fit into the cache of a core.
_WORDS = 1 << 14
#: From so many words on blocks pay.
_LEAST = 1 << 15

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]


def pay_for(first: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether tensors that are used place by place are large, and alike in form."""
    return (
        first.numel() >= _LEAST
        and type(first) is torch.Tensor
        and first.device.type == "cpu"
        and all(one.shape == first.shape for one in others)
        and all(one.dtype == torch.int64 and one.is_contiguous() for one in (first, *others))
    )


def _blocks(*tensors: torch.Tensor) -> Iterator[list[Array]]:
    arrays = [tensor.view(-1).numpy() for tensor in tensors]
    for start in range(0, arrays[0].size, _WORDS):
        yield [array[start : start + _WORDS] for array in arrays]


def add_(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """out += x, in place; of any two tensors. NumPy adds large ones in half the time."""
    if not pay_for(out, x):
        return out.add_(x)
    np.add(out.numpy(), x.numpy(), out=out.numpy())
    return out


def subtract(x: torch.Tensor, y: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
    """x - y, of any two tensors."""
    if not pay_for(x, y):
        return torch.sub(x, y, out=into)
    into = torch.empty_like(x) if into is None else into
    np.subtract(x.numpy(), y.numpy(), out=into.numpy())
    return into


def products(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x y + z w."""
    out, scratch = torch.empty_like(x), np.empty(_WORDS, np.int64)
    for o, *factors in _blocks(out, x, y, z, w):
        second = scratch[: o.size]
        np.multiply(factors[0], factors[1], out=o)
        np.multiply(factors[2], factors[3], out=second)
        np.add(o, second, out=o)
    return out


def add_products(
    out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, w: torch.Tensor
) -> torch.Tensor:
    """out += x y + z w, in place."""
    first, second = np.empty(_WORDS, np.int64), np.empty(_WORDS, np.int64)
    for o, *factors in _blocks(out, x, y, z, w):
        size = o.size
        np.multiply(factors[0], factors[1], out=first[:size])
        np.multiply(factors[2], factors[3], out=second[:size])
        np.add(first[:size], second[:size], out=first[:size])
        np.add(o, first[:size], out=o)
    return out


def add_with(out: torch.Tensor, x: torch.Tensor, constant: int) -> torch.Tensor:
    """out += x + constant, in place."""
    for o, part in _blocks(out, x):
        np.add(o, part, out=o)
        np.add(o, constant, out=o)
    return out


def truncation_between(
    c: torch.Tensor, u: torch.Tensor, offset: int, shift: int, negative: torch.Tensor
) -> None:
    """For r = u - c - offset: r >> shift in the place of c, and -1 or 0 in `negative`, whether r < 0. Writes to u."""
    for of_c, of_u, of_negative in _blocks(c, u, negative):
        np.subtract(of_u, of_c, out=of_u)
        np.subtract(of_u, offset, out=of_u)
        np.right_shift(of_u, shift, out=of_c)
        np.right_shift(of_u, 63, out=of_u)
        np.copyto(of_negative, of_u, casting="unsafe")


def shifted(
    z: torch.Tensor,
    sign: torch.Tensor,
    quotient: torch.Tensor,
    shift: int,
    constants: tuple[int, int] | None,
) -> torch.Tensor:
    """((sign + first) where z < 0, else 0) - quotient + (z >> shift) + second, in place of `quotient`.

    Without constants, the first part only: (sign where z < 0, else 0) - quotient. A `sign` of a narrower dtype stands
    for sign << (64 - shift).
    """
    scratch, other = np.empty(_WORDS, np.int64), np.empty(_WORDS, np.int64)
    is_narrow = sign.dtype != torch.int64
    for of_z, of_sign, of_quotient in _blocks(z, sign, quotient):
        work, term = scratch[: of_z.size], other[: of_z.size]
        if is_narrow:
            of_sign = np.left_shift(of_sign, 64 - shift, out=term, dtype=np.int64)
        if constants is not None:
            of_sign = np.add(of_sign, constants[0], out=term)
        np.right_shift(of_z, 63, out=work)
        np.bitwise_and(of_sign, work, out=work)
        np.subtract(work, of_quotient, out=of_quotient)
        if constants is not None:
            np.right_shift(of_z, shift, out=work)
            np.add(work, constants[1], out=work)
            np.add(of_quotient, work, out=of_quotient)
    return quotient


def quotients(
    z: torch.Tensor, sign: torch.Tensor, quotient: torch.Tensor, divisor: int, offset: int, is_first: bool
) -> torch.Tensor:
    """-(sign (V_1 - V_0) where z < 0, else 0) - quotient, and V as well `is_first`, in place of `quotient`.

    V = floor((z - offset) / divisor) for z as unsigned: V_1 for z < 0, where V_0 = floor((z - offset - 2^64) / divisor).
    """
    by = np.uint64(divisor)
    (low, low_rest), (high, high_rest) = (
        map(np.uint64, divmod(number, divisor)) for number in (offset, 1 << 64)
    )
    size = min(_WORDS, z.numel())
    scratch = [np.empty(size, np.uint64) for _ in range(3)] + [np.empty(size, np.bool_)]
    for of_z, of_sign, of_quotient in _blocks(z, sign, quotient):
        whole, rest, step, borrows = (one[: of_z.size] for one in scratch)
        numbers, made = of_z.view(np.uint64), of_quotient.view(np.uint64)
        np.floor_divide(numbers, by, out=whole)
        np.multiply(whole, by, out=rest)
        np.subtract(numbers, rest, out=rest)
        np.less(rest, low_rest, out=borrows)
        np.multiply(borrows, by, out=step)
        np.subtract(rest, low_rest, out=rest)
        np.add(rest, step, out=rest)
        if is_first:
            np.subtract(whole, low, out=whole)
            np.subtract(whole, borrows, out=whole)
            np.subtract(whole, made, out=made)
        else:
            np.negative(made, out=made)
        np.less(rest, high_rest, out=borrows)
        np.add(borrows, high, out=step)
        np.multiply(step, of_sign.view(np.uint64), out=step)
        np.right_shift(of_z, 63, out=of_z)
        np.bitwise_and(step, numbers, out=step)
        np.subtract(made, step, out=made)
    return quotient
