"""Between the two ways to share: bits as additive shares, bits times values, and a value's bits.

Doubly shared random bits (Rotaru and Wood, "MArBled circuits", INDOCRYPT 2019, section 3: daBits) come from
the provider. With v = b ^ rho open, b = v + (1 - 2v) rho is linear in rho, and b x for a value masked as e
= x - s is linear in rho, s and rho s: one round for both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syft.mpc import ring
from syft.mpc.correlations import Bits, MaskedWord, Prefix
from syft.mpc.party import Party, Program, join, primitive
from syft.mpc.programs import party_program


def bits_to_arithmetic(party: Party, words: torch.Tensor, count: int) -> Program[torch.Tensor]:
    """Additive shares (count,) of the first `count` Boolean-shared bits, packed in plane order. One round."""
    bit, _ = yield from multiply_bits(party, words, count)
    return bit


@primitive
def multiply_bits(
    party: Party, words: torch.Tensor, count: int, values: Sequence[torch.Tensor] = ()
) -> Program[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Additive shares of the bits b, and of b * value for each value of shape (count, k). One round."""
    if not count:
        return torch.empty(0, dtype=torch.int64, device=words.device), [value.clone() for value in values]
    fields = party.take(Bits(count, tuple(value.shape[1] for value in values)))
    width = len(values)
    rho, masks, rho_sum, products = fields[0], fields[1 : 1 + width], fields[1 + width], fields[2 + width :]
    if values:
        hidden = [value - mask for value, mask in zip(values, masks, strict=True)]
        v, opened = yield join(party.open_bits(words ^ rho), party.open(*hidden))
        opened = opened if isinstance(opened, tuple) else (opened,)
    else:
        v = yield party.open_bits(words ^ rho)
        opened = ()
    flip = ring.unpack_bits(v, count).neg_()  # all ones where v = 1
    chosen = []
    for e, s, rho_s in zip(opened, masks, products, strict=True):
        # b x = (v + (1 - 2v) rho)(e + s) = v (e + s) + (1 - 2v)(rho e + rho s)
        column = flip.unsqueeze(1)
        share = rho_s.addcmul_(e, rho_sum.unsqueeze(1))
        negate_where(share, column)
        chosen.append(share.add_((s.add_(e) if party.first else s).bitwise_and_(column)))
    return flipped_bit(party, rho_sum, flip), chosen


def flipped_bit(party: Party, rho: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
    """v + (1 - 2v) rho as a share, in place of rho; `flip` is all ones where v = 1."""
    negate_where(rho, flip)
    return rho.sub_(flip) if party.first else rho


def negate_where(x: torch.Tensor, mask: torch.Tensor) -> None:
    """-x, in place, where the mask is all ones: -x = ~x + 1."""
    x.bitwise_xor_(mask).sub_(mask)


@party_program
@primitive
def to_bits(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """Boolean shares of the 64 bits of x, one word per element. Seven rounds, 96 bytes per element.

    x = z - r with z open and r shared both ways: a parallel prefix of borrows (Kogge and Stone 1973,
    section 3).
    """
    if not x.numel():
        return x.clone()
    r, r_bits = party.take(MaskedWord(tuple(x.shape)))
    z = yield party.open(r.add_(x))
    less = r_bits & ~z
    equal = r_bits ^ ~z if party.first else r_bits.clone()
    for shift in (1, 2, 4, 8, 16, 32):
        a, b, aa, ab = party.take(Prefix(tuple(x.shape), shift))
        d, e = yield party.open_bits(equal ^ a, less ^ b)
        # equal & (less << s) = d (less << s) ^ a (e << s) ^ a (b << s), and the same with equal for less
        less = ab.bitwise_xor_(d & (less << shift)).bitwise_xor_(a & (e << shift)).bitwise_xor_(less)
        equal = aa.bitwise_xor_(d & (equal << shift)).bitwise_xor_(a & (d << shift))
    bits = less.bitwise_left_shift_(1).bitwise_xor_(r_bits)
    return bits.bitwise_xor_(z) if party.first else bits


@party_program
@primitive
def split_bits(party: Party, words: torch.Tensor, width: int = ring.BITS) -> Program[torch.Tensor]:
    """Additive shares (width, n) of the lowest `width` bits of n Boolean-shared words. One round."""
    flat = words.reshape(1, -1)
    bits = (flat >> torch.arange(width, device=words.device).unsqueeze(1)).bitwise_and_(1)
    arithmetic = yield from bits_to_arithmetic(party, ring.pack_bits(bits), bits.numel())
    return arithmetic.view(width, -1)


@party_program
def from_bits(party: Party, words: torch.Tensor, width: int = ring.BITS) -> Program[torch.Tensor]:
    """Additive shares of the lowest `width` bits of Boolean-shared words, read as an integer."""
    bits = yield from split_bits(party, words, width)
    places = torch.arange(width, device=words.device).unsqueeze(1)
    weights = torch.ones_like(places).bitwise_left_shift_(places)
    return bits.mul_(weights).sum(0).view(words.shape)
