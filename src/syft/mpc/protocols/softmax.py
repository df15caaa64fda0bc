"""Softmax, its logarithm and their gradients along a dimension, as one program each.

NOTE [A sum of few powers]
The largest power is 1 and no other is more, so the sum of n powers lies between 1 and n. For few of them that range is
cut into short segments: the sum's digit says which it is in, and one opening reads a polynomial for 1 / x, and one for
log x beside it, at once (`lookup.read_pieces`). No comparison finds the leading bit, and none brings the sum into a range
of its own.

NOTE [Powers of all pairs]
The power of x_i is e^(x_i - x_j) for the j of the largest. Of a few, the differences of all pairs are compared, and their
exponentials read, in the same rounds: which is less, which is too far below to count, and what the power is then. Who is
the largest (`pairs.winners`) then chooses among n powers of each. Five rounds.
"""

from __future__ import annotations

import torch

from syft.mpc.party import Party, Program, stack, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import spdz_mul
from syft.mpc.protocols.compare import TREE, How, negative_sums
from syft.mpc.protocols.convert import multiply_bits
from syft.mpc.protocols.derived import largest
from syft.mpc.protocols.exponential import Digits, exponential
from syft.mpc.protocols.lookup import PIECE_BITS, read_pieces
from syft.mpc.protocols.pairs import winners
from syft.mpc.protocols.truncate import truncate

Power = tuple[int, int, int, int, Digits, tuple[int, ...], int]
"""What makes exponentials of numbers up to 0: the public arguments of `exponential.exponential` up to `low`."""

#: Up to so many powers of pairs, and so many numbers of which one is the largest, four rounds cost more than they do.
_MOST_POWERS, _MOST_NUMBERS = 1 << 12, 10


def _powers(
    party: Party, x: torch.Tensor, dim: int, power: Power, shift: int, how: How
) -> Program[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(x - max, its exponentials with `shift` fractional bits, their sum); the sum keeps the dimension."""
    values = x.movedim(dim, 0)
    length = values.shape[0]
    if 2 <= length <= _MOST_NUMBERS and 0 < values.numel() * (length - 1) <= _MOST_POWERS:
        top, found = yield from _of_all_pairs(party, values.reshape(length, -1), power, shift, how)
        top, exponentials = top.view(values.shape[1:]), found.view(values.shape).movedim(0, dim)
    else:
        top = yield from largest(party, x, dim, how)
        exponentials = yield from exponential(party, x - top.unsqueeze(dim), *power, how=how)
    return x - top.unsqueeze(dim), exponentials, exponentials.sum(dim, keepdim=True)


def _of_all_pairs(
    party: Party, x: torch.Tensor, power: Power, shift: int, how: How
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """The maximum along dimension 0 of x (n, count), and the power of each element. NOTE [Powers of all pairs]"""
    length, count = x.shape
    low = power[6]
    first, second = torch.triu_indices(length, length, 1, device=x.device)
    above = x[first] - x[second]
    (less, second_is_far, first_is_near), powers = yield from together(
        negative_sums(party, above, (0, -low, low - 1), how),
        exponential(party, stack([above, -above]), *power[:6]),
    )
    # What is far below the largest is 0.
    of_first, of_second = powers.view(2, -1, 1)
    words, (_, (of_first,)), (_, (of_second,)) = yield from together(
        winners(party, less, length, count),
        multiply_bits(party, party.inverted(second_is_far), above.numel(), [of_first]),
        multiply_bits(party, first_is_near, above.numel(), [of_second]),
    )
    # Row j: what the powers are if x_j is the largest; and x_j.
    given = x.new_empty((length, length + 1, count))
    given[second, first], given[first, second] = of_first.view(-1, count), of_second.view(-1, count)
    given.diagonal(0, 0, 1).fill_((1 << shift) if party.first else 0)
    given[:, length] = x
    lowest = given[0]
    others = (given[1:] - lowest).movedim(1, 2).reshape(-1, length + 1)
    _, (chosen,) = yield from multiply_bits(party, words, len(others), [others])
    found = chosen.view(length - 1, count, length + 1).sum(0).t() + lowest
    return found[length], found[:length]


def _of_sum(
    party: Party, total: torch.Tensor, segments: int, shift: int, size: int, tables: bytes, count: int
) -> Program[list[torch.Tensor]]:
    """`count` functions at the sum, with `shift` and PIECE_BITS fractional bits; the sum has `shift` of them, as all
    coefficients have, and `segments` for each 1. NOTE [A sum of few powers]
    """
    return list((yield from read_pieces(party, total * segments, shift, size, count, tables)))


@party_program
def softmax(
    party: Party,
    x: torch.Tensor,
    dim: int,
    power: Power,
    segments: int,
    shift: int,
    size: int,
    tables: bytes,
    divisor: int,
    how: How = TREE,
) -> Program[torch.Tensor]:
    """exp(x - max) / sum of them, all made with `shift` fractional bits; `tables` are of 1 / x. Nine rounds for few."""
    _, exponentials, total = yield from _powers(party, x, dim, power, shift, how)
    (inverse,) = yield from _of_sum(party, total, segments, shift, size, tables, 1)
    inverse = yield from truncate(party, inverse, 1 << PIECE_BITS)
    return (yield from _quotients(party, exponentials, inverse, divisor))


def _quotients(
    party: Party, exponentials: torch.Tensor, inverse: torch.Tensor, divisor: int
) -> Program[torch.Tensor]:
    product = yield from spdz_mul(party, exponentials, inverse)
    return (yield from truncate(party, product, divisor))


@party_program
def log_softmax(
    party: Party,
    x: torch.Tensor,
    dim: int,
    power: Power,
    segments: int,
    shift: int,
    size: int,
    tables: bytes,
    divisor: int,
    how: How = TREE,
) -> Program[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """x - max - log(sum); the exponentials and the inverse of their sum, for a backward pass. Seven rounds for few."""
    below, exponentials, total = yield from _powers(party, x, dim, power, shift, how)
    inverse, log = yield from _of_sum(party, total, segments, shift, size, tables, 2)
    inverse, log = yield from together(
        truncate(party, inverse, 1 << PIECE_BITS), truncate(party, log, divisor << (PIECE_BITS - shift))
    )
    return below - log, exponentials, inverse


@party_program
def log_softmax_backward(
    party: Party,
    grad: torch.Tensor,
    exponentials: torch.Tensor,
    inverse: torch.Tensor,
    dim: int,
    divisor: int,
    scale: int,
) -> Program[torch.Tensor]:
    """grad - softmax * sum(grad), from what `log_softmax` found. Four rounds."""
    found = yield from _quotients(party, exponentials, inverse, divisor)
    product = yield from spdz_mul(party, found, grad.sum(dim, keepdim=True))
    return grad - (yield from truncate(party, product, scale))
