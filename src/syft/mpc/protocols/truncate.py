"""Division of a shared tensor by a public divisor, exact up to one unit in the last place.

For every x in [-2^62, 2^62), every divisor 1 <= d < 2^62, every number of holders: the result is the floor
or the ceiling of x / d (and x / d where that is an integer), which of them being a coin that falls with the
fraction, so rounding errors average out. One round, 8 bytes per element, no failure probability.

NOTE [Wrap bit]
Let B = 2^62 and x' = x + B, so 0 <= x' < 2^63. Open z = x' + r mod 2^64, r uniform, both read as signed:
then x' = z - r + 2^64 w, where the sum wrapped (w = 1) if and only if r >= 0 and z < 0, because adding
something below 2^63 moves r over the top exactly when its sign turns from plus to minus. With r's sign s
shared that is linear in it: w = (1 - s) [z < 0]  (the idea of Escudero, Ghosh, Keller, Rachuri, Scholl,
"Improved primitives for MPC over mixed arithmetic-binary circuits", CRYPTO 2020, section 5, there for
powers of two and logical shifts). Write V_w = floor((z - B + 2^64 w) / d), public. Then x / d = V_w + t / d
- floor(r / d) - u / d with remainders t, u in [0, d), so V_w - floor(r / d) is less than one away from x /
d, for either w. As a share: V_0 + w (V_1 - V_0) - floor(r / d), i.e. for z < 0: V_1 - s (V_1 - V_0) -
floor(r / d).
"""

from __future__ import annotations

import torch

from syft.mpc import blocks, ring
from syft.mpc.correlations import Truncation
from syft.mpc.kernels import floor_divide
from syft.mpc.party import Party, Program, primitive, together
from syft.mpc.programs import party_program

OFFSET = 1 << 62
LOW, HIGH = -OFFSET, OFFSET - 1
"""The inputs for which truncation is exact up to one unit."""


@party_program
@primitive
def truncate(party: Party, x: torch.Tensor, divisor: int) -> Program[torch.Tensor]:
    """A share of x / divisor, rounded to one of the two integers next to it. One round."""
    if not 1 <= divisor < OFFSET:
        raise ValueError(f"Truncation divides by an integer from 1 to 2^62 - 1, got {divisor}.")
    if divisor == 1:
        return x
    fields = party.fields(Truncation(tuple(x.shape), divisor))
    r = next(fields)
    if party.first and blocks.pay_for(r, x):
        blocks.add_with(r, x, OFFSET)
    else:
        r.add_(x)
        if party.first:
            r.add_(OFFSET)
    z = yield party.open(r)
    quotient, sign = fields
    return divided(party, z, quotient, sign, divisor)


def divided(
    party: Party, z: torch.Tensor, quotient: torch.Tensor, sign: torch.Tensor, divisor: int
) -> torch.Tensor:
    """A share of x / divisor from z = x + r + OFFSET, which is public, and the rest of the `Truncation` of r: NOTE [Wrap
    bit]. All three tensors are written to. Of a divisor 2^k, `sign` may be of numbers with k bits or more: -s, not yet
    times 2^(64 - k).
    """
    if divisor & (divisor - 1) == 0:
        # All constants are multiples of the divisor, so with D = 2^64 / d the quotients differ by constants:
        # V_0 = floor(z / d) - D/4 for z >= 0;  V_1 = floor(z / d) - D/4 + D and V_1 - V_0 = D for z < 0.
        shift = divisor.bit_length() - 1
        if blocks.pay_for(z, quotient) and sign.is_contiguous():
            constants = ring.signed(1 << (64 - shift)), -(OFFSET >> shift)
            return blocks.shifted(z, sign, quotient, shift, constants if party.first else None)
        if sign.dtype != torch.int64:
            sign = sign.to(torch.int64).bitwise_left_shift_(64 - shift)
        negative = z >> 63  # all ones where z < 0
        if party.first:
            sign.add_(ring.signed(1 << (64 - shift)))
        share = sign.bitwise_and_(negative).sub_(quotient)  # `sign` comes as -s D
        return share.add_(z.bitwise_right_shift_(shift)).sub_(OFFSET >> shift) if party.first else share
    if blocks.pay_for(z, sign, quotient):
        return blocks.quotients(z, sign, quotient, divisor, OFFSET, party.first)
    negative = z >> 63
    z.bitwise_and_((1 << 63) - 1)  # z mod 2^63: z itself, or z + 2^63
    whole = floor_divide(z, divisor)
    rest = z.sub_(whole * divisor)
    plus = _shifted(rest, OFFSET, divisor)  # V_1 - whole, for z < 0
    below = _shifted(rest, -(1 << 63) - OFFSET, divisor)  # V_0 - whole, for z < 0
    share = sign.mul_(below.sub_(plus)).bitwise_and_(negative).sub_(quotient)
    if party.first:
        direct = _shifted(rest, -OFFSET, divisor)  # V_0 - whole, for z >= 0
        share.add_(whole).add_(direct).add_(plus.sub_(direct).bitwise_and_(negative))
    return share


@party_program
def rescale(party: Party, x: torch.Tensor, factor: int, divisor: int) -> Program[torch.Tensor]:
    """A share of x * factor / divisor; the product is in the range of `truncate`. One round."""
    return (yield from truncate(party, x * factor, divisor))


@party_program
def rescale_together(
    party: Party, x: torch.Tensor, factor: int, divisor: int, *others: torch.Tensor
) -> Program[tuple[torch.Tensor, ...]]:
    """`rescale` of several tensors. One round."""
    return (yield from together(*(rescale(party, one, factor, divisor) for one in (x, *others))))


def _shifted(rest: torch.Tensor, constant: int, divisor: int) -> torch.Tensor:
    """floor((q d + rest + constant) / d) - q for 0 <= rest < d.

    Constant // d, one more where the rests carry.
    """
    quotient, remainder = divmod(constant, divisor)
    return (rest >= divisor - remainder).to(torch.int64).add_(quotient)
