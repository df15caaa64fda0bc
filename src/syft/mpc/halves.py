"""One product for each of two holders, where Beaver's trick asks for two. See `pay_for` for which products.

NOTE [One product]
Beaver's share is op(d, y_i) + op(a_i, e) + c_i: two products for each holder, besides the one of the provider. Two
holders can do with one each. Take the places of the inner dimension (the one that is summed over) in pairs, and on each
pair

    A = [0 1; 1 1],   B = 1 - A = [1 -1; -1 0],   for which A B = -1, A A = A + 1, B B = B + 1.

Holder 0 draws U and V, uniform, and holder 1 draws S and T. The masks are a = U A + S B and b = A V + B T: holder 0's
shares of them are U A and A V, the other's S B and B T. With d = x - a and e = y - b opened as ever, holder 0 computes
(d + U) A (e + V), and holder 1 (d + S) B (e + T). Their sum is

    d e + a e + d b + U A V + S B T = x y - (U - S)(V - T),

so the provider deals c = (U - S)(V - T) where it dealt a b, and reads U - S and V - T from the seeds: one product, too.
A and B have inverses of integers, so the shares of masks are uniform mod 2^64 as they were, and a mask that was dealt as
uniform shares (`Mask`) gives U = a_0 A^-1 and S = a_1 B^-1. What is opened and what each holder knows have the same
distribution as with Beaver's triple.

The pairs are (i, i + half), so that a pair is two halves of a tensor. A place that is left over has a = U - S and
b = V - T, and both of its products, d y_i and a_i e, are made for it.

May import `kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch

from syft.mpc.kernels import Bilinear, Pair

HOLDERS = 2
"""Of more than two, the sum of what each computes alone is not the product."""

# Measured (one thread, AVX-512, 33 multiplications in a nanosecond): going through the operands once more, when they are
# opened and before they are multiplied, takes 1.4 ns for each number, and 0.1 ms for whatever size.
_LEAST_WORK = 1 << 23  # multiplications of one product
_LEAST_WORK_PER_NUMBER = 64  # of the operands

Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def inner_dims(op: Bilinear, x: Shape, y: Shape) -> tuple[int, int] | None:
    """The dimension of each operand that the product sums over; None if it has no such pair of dimensions."""
    params = dict(op.params)
    if op.name == "matmul":
        if min(len(x), len(y)) < 2:
            return None
        return (-2 if params.get("transpose_x") else -1), (-1 if params.get("transpose_y") else -2)
    return _CHANNELS.get(op.name) if params.get("groups", 1) == 1 else None


_CHANNELS = {
    "conv": (1, 1),
    "conv_transpose": (1, 0),
    "conv_grad_input": (1, 0),
    "conv_grad_weight": (0, 0),
}


@lru_cache(maxsize=4096)
def pay_for(holders: int, op: Bilinear, x: Shape, y: Shape) -> bool:
    """Whether the product saved costs more than going through the operands once more. Public: it depends on shapes."""
    dims = inner_dims(op, x, y) if holders == HOLDERS else None
    if dims is None or x[dims[0]] < 2:
        return False
    work = _multiplications(op, x, y)
    return work >= max(_LEAST_WORK, _LEAST_WORK_PER_NUMBER * (math.prod(x) + math.prod(y)))


def _multiplications(op: Bilinear, x: Shape, y: Shape) -> int:
    if op.name == "matmul":
        inner = x[inner_dims(op, x, y)[0]]  # type: ignore[index]
        return math.prod(op.output_shape(x, y)) * inner
    if op.name == "conv":
        return math.prod(op.output_shape(x, y)) * math.prod(y[1:])
    if op.name == "conv_grad_weight":
        return math.prod(op.output_shape(x, y)) * y[0] * math.prod(y[2:])
    return math.prod(x) * math.prod(y[1:])  # every element of x meets the kernel of its channel


# -- masks -------------------------------------------------------------------------------------------------


def masked(x: torch.Tensor, drawn: torch.Tensor, rank: int, dim: int) -> torch.Tensor:
    """A holder's share of x less its share of the mask: x - U A, or x - S B."""
    opened = torch.empty_like(x, memory_format=torch.contiguous_format)
    (x_p, x_q, x_r), (p, q, r), (to_p, to_q, to_r) = (_pairs(one, dim) for one in (x, drawn, opened))
    if rank == 0:
        torch.sub(x_p, q, out=to_p)
        torch.sub(x_q, p, out=to_q).sub_(q)
        torch.sub(x_r, r, out=to_r)
    else:
        torch.sub(x_p, p, out=to_p).add_(q)
        torch.add(x_q, p, out=to_q)
        torch.add(x_r, r, out=to_r)
    return opened


def drawn_for(mask: torch.Tensor, rank: int, dim: int) -> torch.Tensor:
    """What a holder would have drawn for its share of a mask: U = a_0 A^-1, or S = a_1 B^-1."""
    drawn = torch.empty_like(mask)
    (p, q, r), (to_p, to_q, to_r) = _pairs(mask, dim), _pairs(drawn, dim)
    if rank == 0:
        torch.sub(q, p, out=to_p)
        to_q.copy_(p)
        to_r.copy_(r)
    else:
        torch.neg(q, out=to_p)
        torch.sub(to_p, p, out=to_q)
        torch.neg(r, out=to_r)
    return drawn


def difference(shares: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """U - S of a mask, from both holders' shares of it."""
    return drawn_for(shares[0], 0, dim).sub_(drawn_for(shares[1], 1, dim))


# -- products ----------------------------------------------------------------------------------------------


def factors(
    rank: int, dims: tuple[int, int], opened: Pair, drawn: Pair, share: torch.Tensor
) -> Iterator[Pair]:
    """Operands of products whose sum is op(d + U, A (e + V)), or op(d + S, B (e + T)): for each half of the inner places,
    and for one that is left over, with the share of y. Writes to what was drawn.
    """
    (d, e), (u, v) = opened, drawn
    last = d.shape[dims[0]] // 2 * 2
    for one, other, dim in ((u, d, dims[0]), (v, e, dims[1])):
        one.narrow(dim, 0, last).add_(other.narrow(dim, 0, last))
    (l_p, l_q, u_r), (g_p, g_q, _) = _pairs(u, dims[0]), _pairs(v, dims[1])
    if rank == 0:
        yield l_p, g_q
        yield l_q, g_p.add_(g_q)
    else:
        yield l_p, torch.sub(g_p, g_q, out=g_q)
        yield l_q, g_p.neg_()
    if u_r.numel():
        yield d.narrow(dims[0], last, 1), share.narrow(dims[1], last, 1)
        yield (u_r if rank == 0 else -u_r), e.narrow(dims[1], last, 1)


def _pairs(tensor: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views: the first of each pair of places, the second of each, and the place that is left over, if any."""
    size = tensor.shape[dim]
    half = size // 2
    return (
        tensor.narrow(dim, 0, half),
        tensor.narrow(dim, half, half),
        tensor.narrow(dim, 2 * half, size - 2 * half),
    )
