"""Comparison, selection and bits on authenticated shares: the twins of `compare`, `convert` and `select`.

Every Boolean-shared word has 40 tags, the word where the key bit beta is 1 and 0 elsewhere, shared by XOR: SPDZ2k
with k = 1, with a key of 40 bits instead of s further bits. What is done to a word is done to its tags; public words
count in the tags at every holder. The formulas are those of the primitives, in the same order. May import
`integrity`, all protocols.

NOTE [Plane axis]
Inside the tree, tensors of words are (..., 41, groups, columns): the word and its tags side by side, in front of what
public words have, so that these broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.mpc import ring
from syft.mpc.correlations import (
    And,
    Bits,
    Comparison,
    Level,
    MaskedWord,
    Prefix,
    all_subsets,
    inner_terms,
    top_mask,
)
from syft.mpc.integrity.ledger import Seal
from syft.mpc.integrity.shares import Auth, AuthBits
from syft.mpc.party import Party, Program, cat, join, sealed_twin
from syft.mpc.protocols.compare import TREE, Compared, How

_EMPTY = torch.empty(0, dtype=torch.int64)


@sealed_twin("beaver.and_bits")
def and_bits(party: Party, x: AuthBits, y: AuthBits) -> Program[AuthBits]:
    a, b, c = party.seal.take(And(tuple(x.shape)))
    d, e = yield party.seal.open_bits(x ^ a, y ^ b)
    made: AuthBits = c ^ (y & d) ^ (a & e)
    return made


# -- comparison --------------------------------------------------------------------------------------------


@sealed_twin("compare.negative_bits")
def negative_bits(party: Party, x: Auth, how: How = TREE, select: bool = False) -> Program[Compared]:
    return (yield from _compared(party, x, how, True, select))


@sealed_twin("compare.zero_bits")
def zero_bits(party: Party, x: Auth, how: How = TREE, select: bool = False) -> Program[Compared]:
    return (yield from _compared(party, x, how, False, select))


def _compared(party: Party, x: Auth, how: How, sign: bool, select: bool) -> Program[Compared]:
    if not isinstance(how, int):
        raise NotImplementedError(f"The comparison {how!r} has no form for authenticated shares.")
    seal: Seal = party.seal
    kind = Comparison(x.numel(), how, sign, select)
    count: Any = kind.count
    if not count:
        empty: Any = seal.public(_EMPTY)
        bits: Any = seal.public_bits(_EMPTY)
        return Compared(bits, 0, _EMPTY, empty, (bits, empty, empty) if select else ())
    fields = iter(seal.take(kind))
    base = [next(fields) for _ in kind.base]
    r: Any = base[0]
    padding = r.numel() - count
    flat = x.reshape(-1)
    padded = cat([flat, seal.public(torch.zeros(padding, dtype=torch.int64))]) if padding else flat
    z = yield seal.open(r + padded)
    less, equal = _first_level(seal, z, _aside(next(fields)), kind)
    for index, level in enumerate(kind.levels):
        products = _aside(next(fields)).unbind() if level.radix > 2 else ()
        a, b = _aside(base[1 + 2 * index]), _aside(base[2 + 2 * index])
        terms = next(fields).planes.movedim(0, 2)
        less, equal = yield from _join_level(seal, less, equal, level, a, b, products, terms)
    root: Any = seal.bits((less if sign else equal).reshape(less.shape[0], -1))
    chosen: Any = (base[-1], *fields) if select else ()
    return Compared(root, count, z[:count], r[:count], chosen)


def _aside(words: AuthBits) -> torch.Tensor:
    """NOTE [Plane axis]: (n, groups, columns) words as (n, 41, groups, columns)."""
    return words.planes.movedim(0, 1)


def _first_level(
    seal: Seal, z: torch.Tensor, monomials: torch.Tensor, kind: Comparison
) -> tuple[torch.Tensor, torch.Tensor]:
    """`compare._first_level`."""
    radix = kind.radices[0]
    top = radix - 1
    n = ring.pack_all(z.bitwise_not().view(kind.planes, kind.columns), radix, 1)
    half = 1 << top
    f = monomials[half - 1 :].clone()
    lower = monomials[: half - 1]
    less = torch.zeros_like(f[0])
    if kind.sign:
        special = top_mask(radix)
        sign_of_z = n[top].bitwise_not().bitwise_and_(special)
        n[top].bitwise_or_(special)
        less = (f[0] & n[top]) ^ seal.constant_bits(sign_of_z)
        f[0].bitwise_and_(~special)
    f[0].bitwise_xor_(seal.constant_bits(n[top]))
    f[1:].bitwise_xor_(lower & n[top])
    for part in range(top - 1, -1, -1):
        half >>= 1
        if kind.sign:
            less.bitwise_xor_(f[half] & n[part])
        f[half:].bitwise_xor_(f[:half] & n[part])
        f = f[half:]
    return less, f[0]


def _join_level(
    seal: Seal,
    less: torch.Tensor,
    equal: torch.Tensor,
    level: Level,
    a: torch.Tensor,
    b: torch.Tensor,
    products: Sequence[torch.Tensor],
    terms: torch.Tensor,
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """`compare._join_level`."""
    radix, width, outputs = level.radix, level.width, level.outputs
    parts = ring.pack_all(torch.stack([less, equal]) if level.less else equal.unsqueeze(0), radix, width)
    inner = [parts[1 : radix - 1, 0]] if level.less else []
    hidden = torch.cat([parts[1:, -1], parts[0, :outputs], *inner])  # (m, 41, groups, columns)
    own = hidden[radix - 1 :].clone()
    hidden[: radix - 1].bitwise_xor_(a)
    hidden[radix - 1 :].bitwise_xor_(b)
    opened = yield seal.open_bits(seal.bits(hidden.movedim(1, 0)))
    opened = opened.unsqueeze(1)
    d, e = opened[: radix - 1], opened[radix - 1 :]
    subsets = all_subsets(level, a, products)
    f = torch.empty((level.subsets, outputs, *a.shape[1:]), dtype=torch.int64)
    f[0] = own[:outputs]
    for s in range(1, level.subsets):
        torch.bitwise_and(subsets[s], e[:outputs], out=f[s])
    f[1:].bitwise_xor_(terms)
    if level.less:
        for s, product, j in inner_terms(level):
            f[s, 0].bitwise_xor_(subsets[product] & e[outputs + j - 1])
        for j in range(1, radix - 1):
            f[(1 << j) - 1, 0].bitwise_xor_(own[outputs + j - 1])
        f[-1, 0].bitwise_xor_(parts[-1, 0])
    for factor in d:
        f[1::2].bitwise_xor_(f[0::2] & factor)
        f = f[1::2]
    root = f[0]
    return (root[0], root[1]) if outputs == 2 else (root[0], root[0])


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
