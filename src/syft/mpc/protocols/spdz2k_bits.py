"""Comparison, selection and bits on authenticated shares: the twins of `convert` and `select`, and words for the tree of
`compare`.

Every Boolean-shared word has 40 tags, the word where the key bit beta is 1 and 0 elsewhere, shared by XOR: SPDZ2k
with k = 1, with a key of 40 bits instead of s further bits. What is done to a word is done to its tags; public words
count in the tags at every holder. The formulas are those of the primitives, in the same order. May import
`integrity`, all protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.mpc import ring
from syft.mpc.correlations import And, Bits, Comparison, Conjunction, MaskedWord, Prefix
from syft.mpc.integrity.ledger import Seal
from syft.mpc.integrity.shares import Auth, AuthBits
from syft.mpc.party import Party, Program, Round, cat, join, sealed_twin
from syft.mpc.protocols.beaver import folded
from syft.mpc.protocols.compare import TREE, Compared, How, by_number, compared_by_tree

_EMPTY = torch.empty(0, dtype=torch.int64)


@sealed_twin("beaver.and_bits")
def and_bits(party: Party, x: AuthBits, y: AuthBits) -> Program[AuthBits]:
    a, b, c = party.seal.take(And(tuple(x.shape)))
    d, e = yield party.seal.open_bits(x ^ a, y ^ b)
    made: AuthBits = c ^ (y & d) ^ (a & e)
    return made


@sealed_twin("beaver.conjunction")
def conjunction(party: Party, factors: AuthBits) -> Program[AuthBits]:
    masks, products = party.seal.take(Conjunction(factors.shape[0], tuple(factors.shape[1:])))
    opened = yield party.seal.open_bits(factors ^ masks)
    made: AuthBits = party.seal.bits(folded(opened, products.planes.movedim(1, 0)))
    return made


# -- comparison --------------------------------------------------------------------------------------------


@sealed_twin("compare.negative_bits")
def negative_bits(party: Party, x: Auth, how: How = TREE, select: bool = False) -> Program[Compared]:
    return (yield from _compared(party, x, how, True, select))


@sealed_twin("compare.zero_bits")
def zero_bits(party: Party, x: Auth, how: How = TREE, select: bool = False) -> Program[Compared]:
    return (yield from _compared(party, x, how, False, select))


@sealed_twin("compare.negative_sums")
def negative_sums(party: Party, x: Auth, numbers: Sequence[int], how: How = TREE) -> Program[list[Any]]:
    kind = Comparison(x.numel(), _check(how), edges=len(numbers))
    return by_number((yield from compared_by_tree(SealedWords(party.seal), x, kind, numbers)), len(numbers))


def _compared(party: Party, x: Auth, how: How, sign: bool, select: bool) -> Program[Compared]:
    kind = Comparison(x.numel(), _check(how), sign, select)
    return (yield from compared_by_tree(SealedWords(party.seal), x, kind))


def _check(how: How) -> int:
    if not isinstance(how, int):
        raise NotImplementedError(f"The comparison {how!r} has no form for authenticated shares.")
    return how


class SealedWords:
    """`compare.Words` with MACs. The tags are 40 planes beside that of the word: NOTE [Plane axis] in `compare`."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self.take = seal.take

    def open_masked(self, x: Auth, r: Auth) -> Round:
        padding = r.numel() - x.numel()
        padded = cat([x, self._seal.public(torch.zeros(padding, dtype=torch.int64))]) if padding else x
        return self._seal.open(r + padded)

    def planes(self, words: AuthBits, axis: int) -> torch.Tensor:
        return words.planes.movedim(0, axis)

    def add_public(self, into: torch.Tensor, words: torch.Tensor) -> None:
        into.bitwise_xor_(self._seal.constant_bits(words))

    def open_bits(self, planes: torch.Tensor) -> Program[torch.Tensor]:
        opened: torch.Tensor = yield self._seal.open_bits(self._seal.bits(planes.movedim(1, 0)))
        return opened.unsqueeze(1)

    def root(self, planes: torch.Tensor) -> AuthBits:
        return self._seal.bits(planes.reshape(planes.shape[0], -1))

    def empty(self, with_select: bool) -> Compared:
        none: Any = self._seal.public(_EMPTY)
        bits: Any = self._seal.public_bits(_EMPTY)
        return Compared(bits, 0, _EMPTY, none, (bits, none, none) if with_select else ())


# -- bits and numbers --------------------------------------------------------------------------------------


@sealed_twin("convert.multiply_bits")
def multiply_bits(
    party: Party, words: AuthBits, count: int, values: Sequence[Auth] = ()
) -> Program[tuple[Auth, list[Auth]]]:
    """The bits as numbers, and their products with values of shape (count, k). One round."""
    seal: Seal = party.seal
    if not count:
        return seal.public(_EMPTY), [value.clone() for value in values]
    fields = seal.take(Bits(count, tuple(value.shape[1] for value in values)))
    width = len(values)
    rho, masks, rho_sum, products = fields[0], fields[1 : 1 + width], fields[1 + width], fields[2 + width :]
    if values:
        hidden = [value - mask for value, mask in zip(values, masks, strict=True)]
        v, opened = yield join(seal.open_bits(words ^ rho), seal.open(*hidden))
        opened = opened if isinstance(opened, tuple) else (opened,)
    else:
        v = yield seal.open_bits(words ^ rho)
        opened = ()
    flip = ring.unpack_bits(v, count).neg_()
    chosen = []
    for e, s, rho_s in zip(opened, masks, products, strict=True):
        column = flip.unsqueeze(1)
        inside: Auth = rho_sum.unsqueeze(1) * e + rho_s
        chosen.append(inside.negated_where(column) + (s + e).where(column))
    return rho_sum.negated_where(flip) + flip.neg(), chosen


@sealed_twin("select.multiply_compared")
def multiply_compared(party: Party, compared: Compared, invert: bool = False) -> Program[tuple[Auth, Auth]]:
    """NOTE [Selection without a mask of its own] in `select`."""
    words: Any = party.inverted(compared.bits) if invert else compared.bits
    if not compared.count:
        return party.seal.public(_EMPTY), party.seal.public(_EMPTY)
    chosen: Any = compared.select
    rho, bit, product = chosen
    v = yield party.seal.open_bits(words ^ rho)
    flip = ring.unpack_bits(v, compared.count).neg_()
    # b x = v (z - r) + (1 - 2v)(rho z - rho r)
    inside: Auth = bit * compared.opened - product
    mask: Any = compared.mask
    unmasked: Auth = -mask + compared.opened
    return bit.negated_where(flip) + flip.neg(), inside.negated_where(flip) + unmasked.where(flip)


@sealed_twin("convert.to_bits")
def to_bits(party: Party, x: Auth) -> Program[AuthBits]:
    """`convert.to_bits`: a parallel prefix of borrows. Seven rounds."""
    seal: Seal = party.seal
    if not x.numel():
        return seal.public_bits(torch.empty(x.shape, dtype=torch.int64))
    shape = tuple(x.shape)
    r, r_bits = seal.take(MaskedWord(shape))
    z = yield seal.open(r + x)
    less, equal = r_bits & ~z, r_bits ^ ~z
    for shift in (1, 2, 4, 8, 16, 32):
        a, b, aa, ab = seal.take(Prefix(shape, shift))
        d, e = yield seal.open_bits(equal ^ a, less ^ b)
        less = ab ^ ((less << shift) & d) ^ (a & (e << shift)) ^ less
        equal = aa ^ ((equal << shift) & d) ^ (a & (d << shift))
    made: AuthBits = (less << 1) ^ r_bits ^ z
    return made


@sealed_twin("convert.split_bits")
def split_bits(party: Party, words: AuthBits, width: int = ring.BITS) -> Program[Auth]:
    """The lowest `width` bits of n words as numbers, (width, n). One round."""
    flat = words.planes.reshape(words.planes.shape[0], 1, -1)
    bits = (flat >> torch.arange(width).view(1, -1, 1)).bitwise_and_(1)
    count = bits[0].numel()
    packed = torch.stack([ring.pack_bits(plane) for plane in bits])
    numbers, _ = yield from multiply_bits(party, party.seal.bits(packed), count)
    return numbers.view(width, -1)
