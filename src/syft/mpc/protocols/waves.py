"""Sums of sines from one opening, and the odd functions that they come near to.

NOTE [Sines of what is masked]
sin(m x) = sin(m z) cos(m r) - cos(m z) sin(m r) for x = z - r: linear in what the provider deals (`Waves`), with factors
that are public once z = x + r is open modulo a whole turn, where r is uniform. So a sum of any sines takes one round.
(Zheng, Zhang, Chow, Peng, Tan, Li, Yin, "Secure softmax/sigmoid for machine-learning computation", ACSAC 2023, which
approximates sigmoid so.)

NOTE [Odd functions as waves]
An odd function that ends flat at +-B is continued by its reflection there to a smooth function of period 4 B: sines of
odd multiples, whose amplitudes fall geometrically. Beyond +-B the function is its end, chosen by two comparisons.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from syft.mpc.correlations_of_functions import Waves
from syft.mpc.kernels import is_on_cuda
from syft.mpc.party import Party, Program, primitive, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.compare import TREE, How, negative_sums
from syft.mpc.protocols.convert import bits_to_arithmetic, multiply_bits
from syft.mpc.protocols.lookup import packed, placed
from syft.mpc.protocols.truncate import truncate

#: Bits of the waves that are dealt, and of the public ones.
DEALT_BITS, PUBLIC_BITS = 30, 29
RESULT_BITS = DEALT_BITS + PUBLIC_BITS
#: So many of the highest bits of an angle are used at most, half of them in each of two tables.
_ANGLE_BITS = 26
_BLOCK = 1 << 12


@party_program
def sines(
    party: Party, x: torch.Tensor, factor: int, width: int, amplitudes: tuple[int, ...], divisor: int
) -> Program[torch.Tensor]:
    """sum_k amplitudes[k] sin((2k + 1) 2 pi x factor / 2^width), with RESULT_BITS bits before a division. Two rounds."""
    value = yield from sum_of_sines(party, x * factor, width, amplitudes)
    return (yield from truncate(party, value, divisor))


@party_program
def odd_function(
    party: Party,
    x: torch.Tensor,
    factor: int,
    width: int,
    amplitudes: tuple[int, ...],
    divisor: int,
    edge: int,
    end: int,
    how: How = TREE,
) -> Program[torch.Tensor]:
    """The same for |x| <= edge; `end` beyond, with the sign of x. Four rounds. NOTE [Odd functions as waves]"""
    value, (below, not_above) = yield from together(
        sines(party, x, factor, width, amplitudes, divisor),
        negative_sums(party, x, (edge, -edge - 1), how),
    )
    above, inside = party.inverted(not_above), below ^ not_above
    (_, (kept,)), lower, upper = yield from together(
        multiply_bits(party, inside, x.numel(), [value.reshape(-1, 1)]),
        *(bits_to_arithmetic(party, words, x.numel()) for words in (below, above)),
    )
    return kept.view(x.shape).add_(upper.sub_(lower).mul_(end).view(x.shape))


@primitive
def sum_of_sines(
    party: Party, x: torch.Tensor, width: int, amplitudes: tuple[int, ...]
) -> Program[torch.Tensor]:
    """sum_k amplitudes[k] sin((2k + 1) 2 pi x / 2^width) at RESULT_BITS bits. One round, four bytes for narrow angles."""
    r, rows = party.take(Waves(x.numel(), width, DEALT_BITS, amplitudes))
    masked = r.add_(x.reshape(-1))
    # The lowest bits of the shares of x + r are shares of those of z, and say nothing else.
    z = yield party.open(masked.to(torch.int32) if width <= 32 else masked.bitwise_and_((1 << width) - 1))
    out = torch.empty_like(masked)
    step = max(len(out), 1) if is_on_cuda(out) else _BLOCK
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        torch.sum(_summed(_wave(z[part].to(torch.int64), width), rows[..., part]), 0, out=out[part])
    return out.view(x.shape)


def _summed(wave: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """(2, n): the dealt waves times the public ones, of which the first is given as (sine, cosine)."""
    before = torch.stack([-wave[0], wave[1]])
    # cos(2 a) = 1 - 2 sin^2(a)
    twice = wave[0].square().bitwise_right_shift_(PUBLIC_BITS - 1).neg_().add_(1 << PUBLIC_BITS)
    total, product = wave * rows[0], torch.empty_like(wave)
    for row in rows[1:]:
        # sin((m + 2) a) = 2 cos(2 a) sin(m a) - sin((m - 2) a), and the same for cosines
        torch.mul(wave, twice, out=product).bitwise_right_shift_(PUBLIC_BITS - 1).sub_(before)
        before, wave, product = wave, product, before
        total.addcmul_(wave, row)
    return total


# -- public sines ------------------------------------------------------------------------------------------------

_EXACT = 160


def _wave(z: torch.Tensor, width: int) -> torch.Tensor:
    """(sine, cosine) of 2 pi z / 2^width at PUBLIC_BITS bits."""
    used = min(width, _ANGLE_BITS)
    fine_bits = used // 2
    places = z if used == width else (z >> (width - used - 1)).add_(1) >> 1
    places = places & ((1 << used) - 1)
    coarse = _placed_circle(used - fine_bits, used - fine_bits, z.device)[:, places >> fine_bits]
    fine = _placed_circle(used, fine_bits, z.device)[:, places.bitwise_and_((1 << fine_bits) - 1)]
    made = torch.empty_like(coarse)
    torch.mul(coarse[0], fine[1], out=made[0]).addcmul_(coarse[1], fine[0])
    torch.mul(coarse[1], fine[1], out=made[1]).sub_(coarse[0].mul_(fine[0]))
    return made.bitwise_right_shift_(PUBLIC_BITS)


def _placed_circle(bits: int, count_bits: int, device: torch.device) -> torch.Tensor:
    table = _circle(bits, 1 << count_bits)
    return placed(table, 1 << count_bits, device)


@lru_cache(maxsize=32)
def _circle(bits: int, count: int) -> bytes:
    """Sines, then cosines, of 2 pi k / 2^bits for k < count. All holders must find the same: of integers alone."""
    one = 1 << _EXACT
    angle = _pi() >> (bits - 1)
    sine, cosine, term = 0, 0, one
    for k in range(1, 120):
        if k % 2:
            cosine += term if k % 4 == 1 else -term
        else:
            sine += term if k % 4 == 2 else -term
        term = term * angle // (k << _EXACT)
    found: list[list[int]] = [[], []]
    x, y, half = one, 0, 1 << (_EXACT - PUBLIC_BITS - 1)
    for _ in range(count):
        found[0].append((y + half) >> (_EXACT - PUBLIC_BITS))
        found[1].append((x + half) >> (_EXACT - PUBLIC_BITS))
        x, y = (x * cosine - y * sine) >> _EXACT, (x * sine + y * cosine) >> _EXACT
    return packed(*found)


@lru_cache(maxsize=1)
def _pi() -> int:
    """16 arctan(1/5) - 4 arctan(1/239) (Machin), at _EXACT bits."""

    def arctan_of_inverse(n: int) -> int:
        power = (1 << _EXACT) // n
        total, k = 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= n * n
            k += 2
        return total

    return 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)
