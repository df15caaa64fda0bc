"""Softmax, its logarithm and their gradients along a dimension, as one program each.

NOTE [A sum of few powers]
The largest power is 1 and no other is more, so the sum of n powers lies between 1 and n. For few of them that range is
cut into short segments: the sum's digit says which it is in, and one opening reads the coefficients of a polynomial for
1 / x, and for log x beside it. No comparison finds the leading bit, and none brings the sum into a range of its own.
"""

from __future__ import annotations

import torch

from syft.mpc.party import Party, Program, stack, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import spdz_mul
from syft.mpc.protocols.compare import TREE, How
from syft.mpc.protocols.derived import largest
from syft.mpc.protocols.exponential import Digits, exponential
from syft.mpc.protocols.lookup import powers, split_digit
from syft.mpc.protocols.truncate import truncate

Power = tuple[int, int, int, int, Digits, tuple[int, ...], int]
"""What makes exponentials of numbers up to 0: the public arguments of `exponential.exponential` up to `low`."""


def _powers(
    party: Party, x: torch.Tensor, dim: int, power: Power, how: How
) -> Program[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(x - max, its exponentials, their sum); the sum keeps the dimension."""
    top = yield from largest(party, x, dim, how)
    below = x - top.unsqueeze(dim)
    exponentials = yield from exponential(party, below, *power, how=how)
    return below, exponentials, exponentials.sum(dim, keepdim=True)


def _of_sum(
    party: Party, total: torch.Tensor, segments: int, shift: int, size: int, tables: bytes, count: int
) -> Program[tuple[torch.Tensor, list[torch.Tensor]]]:
    """(constants, sums of the other terms) of `count` functions at the sum, which has `shift` fractional bits as all
    coefficients have, and `segments` for each 1. NOTE [A sum of few powers]
    """
    t, read = yield from split_digit(party, total * segments, shift, size, tables)
    coefficients = read.view(count, -1, *t.shape)
    made = yield from powers(party, t, coefficients.shape[1] - 1, shift)
    terms = yield from spdz_mul(party, coefficients[:, 1:], stack(made).unsqueeze(0))
    return coefficients[:, 0], list(terms.sum(1))


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
    """exp(x - max) / sum of them, all made with `shift` fractional bits; `tables` are of 1 / x. 18 rounds for few."""
    _, exponentials, total = yield from _powers(party, x, dim, power, how)
    constants, (terms,) = yield from _of_sum(party, total, segments, shift, size, tables, 1)
    inverse = constants[0] + (yield from truncate(party, terms, 1 << shift))
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
    """x - max - log(sum), and the exponentials and the inverse of their sum, for a backward pass. 16 rounds for few."""
    below, exponentials, total = yield from _powers(party, x, dim, power, how)
    (of_inverse, of_log), (inverse, log) = yield from _of_sum(party, total, segments, shift, size, tables, 2)
    inverse, log = yield from together(
        truncate(party, inverse, 1 << shift), truncate(party, log + (of_log << shift), divisor)
    )
    return below - log, exponentials, of_inverse + inverse


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
