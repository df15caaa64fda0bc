"""Integer division, exact: by a public divisor and by a shared one; and of fractions whose range is known."""

from __future__ import annotations

from typing import Any, Literal

import torch

from syft.mpc.party import Party, Program, stack, together, zeros_like
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import spdz_mul
from syft.mpc.protocols.compare import TREE, How, negative_bits
from syft.mpc.protocols.convert import multiply_bits
from syft.mpc.protocols.lookup import polynomial
from syft.mpc.protocols.select import invert_bits, is_negative, relu_with_bit
from syft.mpc.protocols.truncate import truncate

Rounding = Literal["floor", "trunc"]


@party_program
def divide_public(
    party: Party, x: torch.Tensor, divisor: int, rounding: Rounding = "floor", how: How = TREE
) -> Program[torch.Tensor]:
    """x // divisor exactly, for |x| < 2^62 and 0 < |divisor| < 2^61.

    Truncation, then its one unit put right.
    """
    if not 0 < abs(divisor) < 1 << 61:
        raise ValueError(f"The divisor is a non-zero integer below 2^61 in size, got {divisor}.")
    if divisor < 0:
        x, divisor = -x, -divisor
    if rounding == "trunc":  # towards zero: of a negative x the ceiling
        negative = yield from is_negative(party, x, how)
        x = x + negative.mul_(divisor - 1)
    quotient = yield from truncate(party, x, divisor)
    too_high = yield from is_negative(party, x - quotient * divisor, how)
    return quotient - too_high


@party_program
def divide_shared(
    party: Party,
    x: torch.Tensor,
    y: torch.Tensor,
    bits: int = 31,
    rounding: Rounding = "trunc",
    how: How = TREE,
) -> Program[torch.Tensor]:
    """x / y for shared integers of one shape, by long division: `bits` binary digits, four rounds each.

    Exact when |x / y| < 2^bits, |x| < 2^62 and |y| < 2^(62 - bits). Of a zero y the quotient is 2^bits - 1
    in size.
    """
    if not 0 < bits < 62:
        raise ValueError(f"A quotient has 1 to 61 binary digits, got {bits}.")
    both = stack([x, y])
    positive, signs = yield from relu_with_bit(party, both, how)
    rest, divisor = positive.mul_(2).sub_(both)  # |x|, |y|
    quotient = zeros_like(x)
    for digit in range(bits - 1, -1, -1):
        scaled = divisor << digit
        compared = yield from negative_bits(party, rest - scaled, how)
        fits = invert_bits(party, compared.bits)
        bit, (taken,) = yield from multiply_bits(party, fits, compared.count, [scaled.reshape(-1, 1)])
        rest = rest - taken.view(x.shape)
        quotient.add_(bit.view(x.shape) << digit)
    # differ = [sign(x) != sign(y)] = s + t - 2 s t for the bits s = [x >= 0], t = [y >= 0]
    programs = [spdz_mul(party, signs[0], signs[1])]
    if rounding == "floor":  # one more in size where the signs differ and something is left
        programs.append(is_negative(party, -rest, how))
    both_signs, *left = yield from together(*programs)
    differ = both_signs.mul_(-2).add_(signs[0]).add_(signs[1])
    # trunc = q - 2 q differ; floor = trunc - left differ
    size = 2 * quotient + left[0] if left else 2 * quotient
    off = yield from spdz_mul(party, size, differ)
    return quotient - off


@party_program
def divide_bounded(
    party: Party,
    x: torch.Tensor,
    y: torch.Tensor,
    lowest: int,
    highest: int,
    coefficients: bytes,
    shift: int,
    bits: int,
    divisor: int,
    how: How = TREE,
) -> Program[torch.Tensor]:
    """x p(t) gain / divisor for y from 2^lowest to 2^(highest + 1), where t = 4 y gain / 2^(highest + 1) - 3.

    gain is the power of two that brings y to its highest place; p the polynomial, with `bits` fractional bits and t with
    `shift`. x and y broadcast.
    """
    gain: Any = 1
    if highest > lowest:
        places = range(lowest + 1, highest + 1)
        below = yield from is_negative(party, stack([party.plus(y, -(1 << i)) for i in places]), how)
        # 2^(highest - i) falls to half where y reaches 2^i.
        steps = [bit << (highest - i) for bit, i in zip(below, places, strict=True)]
        gain = party.plus(sum(steps[1:], start=steps[0]), 1)
        y = yield from spdz_mul(party, y, gain)
    raised = shift + 1 - highest
    t = y << raised if raised >= 0 else (yield from truncate(party, y, 1 << -raised))
    inverse = yield from polynomial(party, party.plus(t, -(3 << shift)), coefficients, shift, bits)
    if highest > lowest:
        inverse = yield from spdz_mul(party, inverse, gain)
    product = yield from spdz_mul(party, x, inverse)
    return (yield from truncate(party, product, divisor))
