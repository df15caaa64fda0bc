"""Functions of x > 0 by its leading bit: x = y 2^i with y in [1, 2), a polynomial in y, and a secret factor for i.

NOTE [The leading bit]
x = z - r with z open. Bits lie packed, four elements by sixteen nibbles to a word (`ring`, NOTE [Planes]), so a step on
all bits is an operation on a quarter of a word per element.
    1. What is left of a nibble z_g - r_g without borrow, and whether it borrows or passes a borrow on, are polynomials in
       r_g's bits with public coefficients: no round (`compare`, NOTE [First level for free]).
    2. A parallel prefix over the nibbles says which of them are borrowed from (Kogge and Stone 1973, section 3). Four
       rounds.
    3. One more round for the bits of x, two for the highest of each nibble, four for the first nibble that is not 0, and
       one for the highest bit there.
What comes out is Boolean-shared: a bit for each of the eight bytes of x, which says that i is in that byte (none for
x <= 0), and i mod 8.

NOTE [Factors by two digits]
A factor 2^(a i + b) is one for the byte of i times one for i mod 8. The provider deals uniform bits as numbers, and
one-hot rows of uniform numbers below 8. The holders open the eight bits and the number under these masks (one-time pads),
and any table is read by a sum (Ishai, Kushilevitz, Meldgaard, Orlandi, Paskin-Cherniavsky, TCC 2013, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from syft.mpc import ring
from syft.mpc.correlations import Prefix
from syft.mpc.correlations_of_functions import MaskedNibbles, MaskedPlace
from syft.mpc.party import Party, Program, primitive
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import and_bits, spdz_mul
from syft.mpc.protocols.lookup import placed, read_turned
from syft.mpc.protocols.polynomials import RESULT_BITS, polynomial_of_fraction
from syft.mpc.protocols.truncate import truncate

_NIBBLE, _NIBBLES = 4, 16


@dataclass(eq=False)
class Leading:
    """Where the leading bits of numbers are, and what multiplies them without masking them again."""

    byte: torch.Tensor  # Boolean-shared, uint8, flat: bit k where the leading bit is in byte k
    place: torch.Tensor  # Boolean-shared, uint8, flat: 0 to 7, the leading bit in its byte
    opened: torch.Tensor  # z = x + r, public, flat
    mask: torch.Tensor  # this party's share of r, flat
    factor_mask: torch.Tensor  # of the factor
    product: torch.Tensor  # factor_mask * r


@primitive
def leading(party: Party, x: torch.Tensor) -> Program[Leading]:
    """NOTE [The leading bit]. Thirteen rounds, 80 bytes per element."""
    count = x.numel()
    kind = MaskedNibbles(count)
    r, factor_mask, monomials, product = party.take(kind)
    masked = r.clone()
    masked[:count] += x.reshape(-1)
    z = yield party.open(masked)
    bits, ends, less, equal = _nibbles(party, z, monomials, kind)
    for shift in (4, 8, 16, 32):
        a, b, aa, ab = party.take(Prefix(tuple(less.shape), shift))
        d, e = yield party.open_bits(equal ^ a, less ^ b)
        # `convert.to_bits`, with nibbles in the place of bits
        less = ab.bitwise_xor_(d & (less << shift)).bitwise_xor_(a & (e << shift)).bitwise_xor_(less)
        equal = aa.bitwise_xor_(d & (equal << shift)).bitwise_xor_(a & (d << shift))
    borrowed = less << _NIBBLE
    ones, twos, fours, eights = yield from _less_borrow(party, bits, ends, borrowed)
    upper, lower = yield from _either(party, torch.stack([eights, ones]), torch.stack([fours, twos]))
    some, above_ones = yield from _either(party, torch.stack([upper, upper]), torch.stack([lower, twos]))
    below = some  # whether this nibble or one above it is not 0
    for shift in (4, 8, 16, 32):
        below = yield from _either(party, below, _right(below, shift))
    first = below ^ _right(below, _NIBBLE)
    # A negative number has none: its sign bit is the highest of the highest nibble.
    first ^= eights & ring.signed(0xF << (ring.BITS - _NIBBLE))
    found = yield from and_bits(
        party, first.expand(3, *first.shape).contiguous(), torch.stack([eights, upper, above_ones])
    )
    byte, place = _gathered(first, found, count)
    return Leading(byte, place, z[:count], r[:count], factor_mask, product)


def _right(words: torch.Tensor, by: int) -> torch.Tensor:
    """A logical shift."""
    return (words >> by).bitwise_and_((1 << (ring.BITS - by)) - 1)


def _either(party: Party, x: torch.Tensor, y: torch.Tensor) -> Program[torch.Tensor]:
    """x | y = x ^ y ^ x y"""
    both = yield from and_bits(party, x, y)
    return both.bitwise_xor_(x).bitwise_xor_(y)


def _less_borrow(
    party: Party, bits: torch.Tensor, ends: torch.Tensor, borrowed: torch.Tensor
) -> Program[torch.Tensor]:
    """The bits of each nibble less what was borrowed from it: bit j turns where all bits below it are 0."""
    turned = yield from and_bits(party, borrowed.expand(ends.shape).contiguous(), ends)
    bits[1:].bitwise_xor_(turned)
    bits[0].bitwise_xor_(borrowed)
    return bits


def _nibbles(
    party: Party, z: torch.Tensor, monomials: torch.Tensor, kind: MaskedNibbles
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of z_g - r_g mod 16 the bits (4), and whether the lowest 1, 2, 3 are 0 (3); whether z_g < r_g, and z_g = r_g."""
    tree = kind.tree
    n = ring.pack_all(z.bitwise_not().view(tree.planes, tree.columns), _NIBBLE, 1)
    bits = torch.empty_like(monomials[:_NIBBLE])
    ends = []
    less: Any = None
    for width in range(1, _NIBBLE + 1):
        top = width - 1
        # z_j ^ r_j ^ (what is borrowed for it)
        torch.bitwise_xor(monomials[(1 << top) - 1], less, out=bits[top]) if top else bits[0].copy_(
            monomials[0]
        )
        if party.first:
            bits[top].bitwise_xor_(n[top]).bitwise_not_()
        less, equal = _compared(party, monomials[: (1 << width) - 1].clone(), n[:width])
        ends.append(equal)
    return bits, torch.stack(ends[:-1]), less, ends[-1]


def _compared(party: Party, monomials: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether z < r, and z = r, for the lowest bits, from the products of r's and the opposite of z's."""
    width = len(n)
    top, half = width - 1, 1 << (width - 1)
    f, lower = monomials[half - 1 :], monomials[: half - 1]
    less = f[0] & n[top]
    if party.first:
        f[0].bitwise_xor_(n[top])
    f[1:].bitwise_xor_(lower.bitwise_and_(n[top]))
    for part in range(top - 1, -1, -1):
        half >>= 1
        less.bitwise_xor_(f[half] & n[part])
        f[half:].bitwise_xor_(f[:half].bitwise_and_(n[part]))
        f = f[half:]
    return less, f[0]


# -- from words to elements ----------------------------------------------------------------------------------

#: Bit 0 of each byte of a word; times the second, the highest byte has bit 0 of byte k at k (no two bits meet).
_LOW_BITS = 0x0101010101010101
_TO_TOP_BYTE = sum(1 << (56 - 7 * k) for k in range(8))
_ODD_NIBBLES = 0x0F0F0F0F0F0F0F0F


def _gathered(first: torch.Tensor, found: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(bit k where byte k has the first nibble, the highest bit's place in its byte), a byte for each element.

    `first`: whether a nibble is the first that is not 0; `found`: whether it is and is at least 8, 4, 2.
    """
    pairs = first ^ (first >> _NIBBLE)
    eight, four, two = (_folded(words) for words in found)
    bits = two ^ four ^ eight, four, _folded((first >> _NIBBLE) & _ODD_NIBBLES)
    byte = torch.empty((len(first), _NIBBLE, first.shape[1]), dtype=torch.uint8, device=first.device)
    place = torch.zeros_like(byte)
    for slot in range(_NIBBLE):  # four elements to a word
        byte[:, slot] = (pairs >> slot).bitwise_and_(_LOW_BITS).mul_(_TO_TOP_BYTE) >> 56 & 0xFF
        for power, bit in enumerate(bits):
            place[:, slot] |= ((bit >> slot).bitwise_and_(1) << power).to(torch.uint8)
    return byte.view(-1)[:count], place.view(-1)[:count]


def _folded(words: torch.Tensor) -> torch.Tensor:
    """The XOR of the nibbles of each word, in the lowest one."""
    for shift in (32, 16, 8, 4):
        words = words ^ (words >> shift)
    return words


# -- tables ----------------------------------------------------------------------------------------------------


@primitive
def read_factors(
    party: Party, found: Leading, by_byte: bytes, by_place: bytes
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """(tables, n) each: tables of eight words read at the byte (0 where none has a bit), and at the place in it.

    One round, two bytes per element. NOTE [Factors by two digits]
    """
    count = found.byte.numel()
    of_byte, of_place, bits, rows = party.take(MaskedPlace(count))
    v, w = yield party.open_bits(
        _masked(found.byte, of_byte, 0xFF),
        _masked(found.place, of_place, 7),
    )
    constants, turned = _byte_tables(by_byte, bits.device)
    at = v.to(torch.int64)
    read = read_turned(bits, at, turned)
    if party.first:
        read += constants[:, at]
    return read, read_turned(rows, w.to(torch.int64), _place_tables(by_place, bits.device))


def _masked(bytes_: torch.Tensor, words: torch.Tensor, mask: int) -> torch.Tensor:
    return (bytes_ ^ words.view(torch.uint8)[: bytes_.numel()]).bitwise_and_(mask)


@lru_cache(maxsize=64)
def _turned_byte_tables(tables: bytes) -> tuple[bytes, bytes]:
    """For each byte v: the sum of the entries at its bits, and all entries, those at its bits with the other sign."""
    entries = np.frombuffer(tables, np.int64).reshape(-1, 1, 8)
    bits = (np.arange(256).reshape(-1, 1) >> np.arange(8)) & 1
    return (entries * bits).sum(-1).tobytes(), (entries * (1 - 2 * bits)).tobytes()


def _byte_tables(tables: bytes, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    constants, turned = _turned_byte_tables(tables)
    return placed(constants, 256, device), placed(turned, 256 * 8, device).view(-1, 256, 8)


@lru_cache(maxsize=64)
def _turned_place_tables(tables: bytes) -> bytes:
    """For each opened number w, the entries at w ^ k."""
    places = np.arange(8)
    return np.frombuffer(tables, np.int64).reshape(-1, 8)[:, places.reshape(-1, 1) ^ places].tobytes()


def _place_tables(tables: bytes, device: torch.device) -> torch.Tensor:
    return placed(_turned_place_tables(tables), 64, device).view(-1, 8, 8)


# -- functions -------------------------------------------------------------------------------------------------


def _raised(party: Party, found: Leading, up: torch.Tensor, by: torch.Tensor) -> Program[torch.Tensor]:
    """x up by: one product of the factors, and one with x, which is masked already."""
    factor = yield from spdz_mul(party, up, by)
    e = yield party.open(factor - found.factor_mask)
    # x f = z f - r f = z f - (e r + m r), for the mask m and e = f - m
    return found.opened * factor - e * found.mask - found.product


def _normalised(
    party: Party, x: torch.Tensor, by_byte: bytes, by_place: bytes, degree: int, matrix: bytes, shift: int
) -> Program[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(p(t) at `shift` bits, read by byte, read by place), for x = (3 + t) / 4 * 2^(i + 1), t in [-1, 1)."""
    found = yield from leading(party, x)
    of_byte, of_place = yield from read_factors(party, found, by_byte, by_place)
    # x 2^(63 - i) is from 2^63 to 2^64.
    y = yield from _raised(party, found, of_byte[0], of_place[0])
    value = yield from polynomial_of_fraction(party, y, degree, matrix)
    value = yield from truncate(party, value, 1 << (RESULT_BITS - shift))
    return value.view(x.shape), of_byte[1:].view(-1, *x.shape), of_place[1:].view(-1, *x.shape)


@party_program
def scaled_function(
    party: Party,
    x: torch.Tensor,
    by_byte: bytes,
    by_place: bytes,
    degree: int,
    matrix: bytes,
    shift: int,
    inner: int,
    divisor: int,
) -> Program[torch.Tensor]:
    """p(t) C / inner (S / divisor + L), for S and L of the byte of x's leading bit (L where given), and C of its place.

    0 for x <= 0. The first tables are what brings x to 2^63.
    """
    if not x.numel():
        return x.clone()
    value, of_byte, of_place = yield from _normalised(party, x, by_byte, by_place, degree, matrix, shift)
    fine = yield from truncate(party, (yield from spdz_mul(party, value, of_place[0])), inner)
    small, *large = yield from spdz_mul(party, of_byte, fine.unsqueeze(0))
    result = yield from truncate(party, small, divisor)
    return result + large[0] if large else result


@party_program
def shifted_function(
    party: Party,
    x: torch.Tensor,
    by_byte: bytes,
    by_place: bytes,
    degree: int,
    matrix: bytes,
    shift: int,
    factor: int,
    divisor: int,
) -> Program[torch.Tensor]:
    """(p(t) + B + C) factor / divisor, for B of the byte of x's leading bit, and C of its place."""
    if not x.numel():
        return x.clone()
    value, of_byte, of_place = yield from _normalised(party, x, by_byte, by_place, degree, matrix, shift)
    total = value + of_byte[0] + of_place[0]
    return (yield from truncate(party, total * factor, divisor))
