"""Programs made of others for what fixed precision asks: squares of reals, where the maximum is, the highest bit."""

from __future__ import annotations

import torch

from syft.mpc.correlations import OneHot
from syft.mpc.kernels import windows
from syft.mpc.party import Party, Program, cat, primitive, zeros_like
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import MaskedOperand, and_bits, mask, spdz_mul, square
from syft.mpc.protocols.compare import TREE, How, negative_bits
from syft.mpc.protocols.convert import split_bits, to_bits
from syft.mpc.protocols.pairs import first_largest
from syft.mpc.protocols.select import Pooling, multiply_compared, tournament
from syft.mpc.protocols.truncate import truncate


@party_program
def square_truncated(party: Party, x: torch.Tensor, divisor: int) -> Program[torch.Tensor]:
    """A share of x * x / divisor."""
    share, _ = yield from square_and_truncated(party, x, divisor)
    return share


@party_program
def square_and_truncated(
    party: Party, x: torch.Tensor, divisor: int
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """Shares of x * x / divisor and of x * x."""
    product = yield from square(party, x)
    share = yield from truncate(party, product, divisor)
    return share, product


@party_program
def sum_of_squares(party: Party, x: torch.Tensor) -> Program[tuple[torch.Tensor, MaskedOperand]]:
    """A share of the sum of all x * x, and x masked for products to come. One round."""
    masked = yield from mask(party, x)
    squares = yield from spdz_mul(party, masked, masked)
    return squares.sum(), masked


@party_program
def positive_part(
    party: Party, x: torch.Tensor, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """max(x, 0) and [x > 0], for every x but -2^63. Four rounds, 12.4 bytes per element (fan-in 4)."""
    compared = yield from negative_bits(party, -x, how, select=True)
    bit, product = yield from multiply_compared(party, compared)
    return product.neg_().view(x.shape), bit.view(x.shape)


@party_program
def maximum_and_place(
    party: Party, x: torch.Tensor, dim: int, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """The maximum along `dim`, and a 0/1 tensor of x's shape with one 1 along it, at the first maximum."""
    values = x.movedim(dim, 0)
    if _compares_all_pairs(values):
        best, place = yield from first_largest(party, values, how)
        return best, place.movedim(0, dim).contiguous()
    found = yield from tournament(party, values.contiguous(), onehot=True, how=how)
    assert found.onehot is not None  # noqa: S101  (asked for)
    return found.values, found.onehot.movedim(0, dim).contiguous()


@party_program
def maximum_of_windows(
    party: Party, x: torch.Tensor, pooling: Pooling, lowest: int, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """The maximum of each window over the last two dimensions, and a 0/1 tensor (kh * kw, ..., oh, ow) with one 1 for
    each, at the first maximum. What lies outside is `lowest`.
    """
    return (yield from maximum_and_place(party, _window_rows(party, x, pooling, lowest), 0, how))


def _window_rows(party: Party, x: torch.Tensor, pooling: Pooling, lowest: int) -> torch.Tensor:
    """(kh * kw, ..., oh, ow): row i is element i of each window; what lies outside is `lowest`."""
    *lead, height, width = x.shape
    planes = x.reshape(1, -1, height, width)
    found = windows(planes, *pooling.geometry, lowest if party.first else 0, pooling.ceil_mode)
    return found.movedim(-1, 0).reshape(found.shape[-1], *lead, *found.shape[2:4])


@party_program
def relu_of_windows(
    party: Party, x: torch.Tensor, pooling: Pooling, lowest: int, how: How = TREE
) -> Program[torch.Tensor]:
    """The maximum of each window and 0. For few windows 0 is one more element of each: five rounds instead of nine."""
    rows = _window_rows(party, x, pooling, lowest)
    if rows.numel() <= _MOST_WITH_ZERO:
        rows = cat([rows, zeros_like(rows[:1])])
        return (yield from largest(party, rows, 0, how))
    top = yield from largest(party, rows, 0, how)
    return (yield from positive_part(party, top, how))[0]


_MOST_WITH_ZERO = 1 << 14
"""Up to so many elements a comparison of each with 0 costs less than four rounds."""


_MOST_PAIRS = 1 << 15
"""Up to so many comparisons, all elements along a dimension are compared at once: what counts then is rounds."""


def _compares_all_pairs(values: torch.Tensor) -> bool:
    length = values.shape[0]
    return 3 <= length <= 32 and 0 < values.numel() * (length - 1) // 2 <= _MOST_PAIRS


@party_program
def largest(party: Party, x: torch.Tensor, dim: int, how: How = TREE) -> Program[torch.Tensor]:
    """The maximum along `dim`, which is gone. Five rounds for few elements, four for each halving of many."""
    values = x.movedim(dim, 0)
    if _compares_all_pairs(values):
        return (yield from first_largest(party, values, how))[0]
    return (yield from tournament(party, values, how=how)).values


@party_program
@primitive
def one_hot(party: Party, x: torch.Tensor, size: int) -> Program[torch.Tensor]:
    """Shape (size, *shape): row i is 1 where x mod `size` is i, for a power of two. One round, one byte per element.

    z = x + r mod size is open, and x = i where r = z - i: the dealer's one-hot rows of r, read from z downwards.
    A power of two divides 2^64, so the lowest bits of the shares of x + r are shares of z, and say nothing else. For
    sizes up to 256 they add up modulo 2^8, too, and travel as bytes.
    """
    if size < 1 or size & (size - 1):
        raise ValueError(f"A one-hot vector has a power of two of rows, got {size}.")
    r, rows = party.take(OneHot(x.numel(), size))
    low = size - 1
    masked = r.add_(x.reshape(-1)).bitwise_and_(low)
    z = yield party.open(masked.to(torch.uint8) if size <= 1 << 8 else masked)
    # NB: along the last dimension, which torch does several times faster than along the first.
    counts = torch.arange(size, device=z.device).unsqueeze(0)
    places = (z.to(torch.int64).unsqueeze(1) - counts).bitwise_and_(low)
    return rows.gather(1, places).t().contiguous().view(size, *x.shape)


@party_program
def leading_bit(party: Party, x: torch.Tensor, size: int = 62) -> Program[torch.Tensor]:
    """Shape (size, *shape): row i is 1 where bit i is the highest set bit of x; none for x <= 0.

    The bits of x, then an OR over all higher bits by doubling (Kogge and Stone 1973, section 3), then the place
    where that changes. A negative x has its sign bit above all others, which no row shows. 14 rounds.
    """
    bits = yield from to_bits(party, x)
    for shift in (1, 2, 4, 8, 16, 32):
        # x | y = x ^ y ^ x y
        higher = _shift_right(bits, shift)
        both = yield from and_bits(party, bits, higher)
        bits = both.bitwise_xor_(bits).bitwise_xor_(higher)
    first = bits ^ _shift_right(bits, 1)
    rows = yield from split_bits(party, first, size)
    return rows.view(size, *x.shape)


def _shift_right(words: torch.Tensor, by: int) -> torch.Tensor:
    """A logical shift: int64 shifts copy the sign bit, which is cut off."""
    return (words >> by).bitwise_and_((1 << (64 - by)) - 1)
