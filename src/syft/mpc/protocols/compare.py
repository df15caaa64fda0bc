"""The sign of a shared tensor, and whether it is zero: exact for every int64, any number of holders.

Open z = x + r and compare the public z with the dealer's bit-shared r: x = z - r, so the sign of x is
z_63 ^ r_63 ^ borrow, borrow = [z mod 2^63 < r mod 2^63], and x = 0 iff z = r. Both are a tree over bits:
with `less` g_i = r_i (1 - z_i) and `equal` p_i = 1 - (r_i ^ z_i), neighbours join as
    g = g_3 ^ p_3 g_2 ^ p_3 p_2 g_1 ^ p_3 p_2 p_1 g_0,    p = p_3 p_2 p_1 p_0
(the carry operator of Brent and Kung, "A regular layout for parallel adders", 1982, section 2, on four
inputs; masking and opening for comparison: Damgard, Fitzi, Kiltz, Nielsen, Toft, TCC 2006, section 5). All
words are packed (NOTE [Planes] in ring): 64 elements per word at the end, no bit sent twice.

NOTE [First level for free]
At the bottom z is public and r the dealer's, so g and p of a group are polynomials in r's bits with public
coefficients. The dealer hands out the products of r's neighbouring bits, and the first level needs no
opening.
NOTE [Higher levels]
Products of secret bits of higher degree, in one round, from masks and the dealer's products of masks:
Beaver's trick with more than two factors (Ohata and Nuida, "Communication-efficient (client-aided) secure
two-party protocols", FC 2020, section 3).
NOTE [Sign bit]
g_63 = r_63 ^ z_63 and p_63 = 1 instead of the above make the root `less` the sign itself.

Online cost per element and party (two holders): fan-in 4: 3 rounds, 12.25 bytes; fan-in 2: 6 rounds, 19.5
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch

from syft.mpc import ring
from syft.mpc.correlations import Comparison, Level, all_subsets, inner_terms, top_mask
from syft.mpc.party import Party, Program, Round, primitive, together

How = int | str
"""The fan-in of the tree (2 or 4), or the name of another way to Boolean-shared bits (`BIT_PROTOCOLS`)."""

TREE: How = 4

_kind = lru_cache(maxsize=512)(Comparison)  # its fields are worked out once per size


@dataclass(eq=False)
class Compared:
    """The outcome: Boolean-shared bits, packed, and what a selection by them can use again."""

    bits: torch.Tensor  # words, in plane order
    count: int
    opened: torch.Tensor  # z = x + r, public, flat
    mask: torch.Tensor  # this party's share of r, flat
    select: tuple[torch.Tensor, ...] = ()  # rho packed, rho additive, rho * r


BIT_PROTOCOLS: dict[str, Callable[[Party, torch.Tensor, bool, bool], Program[Compared]]] = {}
"""Other protocols with this outcome, by name: called with (party, x, sign, select)."""


@primitive
def negative_bits(party: Party, x: torch.Tensor, how: How = TREE, select: bool = False) -> Program[Compared]:
    """Boolean shares of [x < 0]; with `select`, also what `select.multiply_compared` needs."""
    return (yield from _compared(party, x, how, True, select))


@primitive
def zero_bits(party: Party, x: torch.Tensor, how: How = TREE, select: bool = False) -> Program[Compared]:
    """Boolean shares of [x == 0]."""
    return (yield from _compared(party, x, how, False, select))


@primitive
def negative_sums(
    party: Party, x: torch.Tensor, numbers: Sequence[int], how: How = TREE
) -> Program[list[Any]]:
    """Boolean shares of [x + number < 0] for each of some public numbers, each as `Compared.bits`. x is opened once,
    masked: x + number is z + number - r.
    """
    if isinstance(how, int):
        words = PlainWords(party, x.device)
        kind = _kind(x.numel(), how, True, False, len(numbers))
        return by_number((yield from compared_by_tree(words, x, kind, numbers)), len(numbers))
    each = [negative_bits(party, party.plus(x, number), how) for number in numbers]
    return [compared.bits for compared in (yield from together(*each))]


def by_number(compared: Compared, count: int) -> list[Any]:
    """The words of each public number: their columns lie side by side."""
    columns = compared.bits.shape[0] // count
    return [compared.bits[start * columns : (start + 1) * columns] for start in range(count)]


def _compared(party: Party, x: torch.Tensor, how: How, sign: bool, select: bool) -> Program[Compared]:
    if isinstance(how, int):
        words = PlainWords(party, x.device)
        return (yield from compared_by_tree(words, x, _kind(x.numel(), how, sign, select)))
    if how not in BIT_PROTOCOLS:
        raise ValueError(f"No comparison of bits is called {how!r}, only {', '.join(sorted(BIT_PROTOCOLS))}.")
    return (yield from BIT_PROTOCOLS[how](party, x, sign, select))


class Words(Protocol):
    """What a tree asks of shares: plain ones (`PlainWords`), or those with MACs (`spdz2k_bits.SealedWords`).

    NOTE [Plane axis]
    Inside the tree, words that have tags are tensors with one axis more, for the word and its tags, in front of (groups,
    columns), which is what public words have: these broadcast.
    """

    def take(self, kind: Comparison) -> Sequence[Any]:
        """The fields of a comparison."""
        ...

    def open_masked(self, x: Any, r: Any) -> Round:
        """Open x + r; x is flat, and r as long as whole words need."""
        ...

    def planes(self, words: Any, axis: int) -> torch.Tensor:
        """A field of Boolean-shared words as a tensor, its tags along that axis."""
        ...

    def add_public(self, into: torch.Tensor, words: torch.Tensor) -> None:
        """XOR public words into shared ones."""
        ...

    def open_bits(self, planes: torch.Tensor) -> Program[torch.Tensor]:
        """Open shared words (m, ..., groups, columns) to public ones that broadcast with them."""
        ...

    def root(self, planes: torch.Tensor) -> Any:
        """The shared words at the root, flat."""
        ...

    def empty(self, with_select: bool) -> Compared:
        """The comparison of no elements."""
        ...


class PlainWords:
    """Additive and Boolean shares without MACs."""

    def __init__(self, party: Party, device: torch.device) -> None:
        self._party, self._device = party, device
        self.take = party.take

    def open_masked(self, x: torch.Tensor, r: torch.Tensor) -> Round:
        count = x.numel()
        masked = torch.empty_like(r)
        torch.add(r[:count], x, out=masked[:count])
        masked[count:] = r[count:]
        return self._party.open(masked)

    def planes(self, words: torch.Tensor, axis: int) -> torch.Tensor:
        return words

    def add_public(self, into: torch.Tensor, words: torch.Tensor) -> None:
        if self._party.first:
            into.bitwise_xor_(words)

    def open_bits(self, planes: torch.Tensor) -> Program[torch.Tensor]:
        return (yield self._party.open_bits(planes))

    def root(self, planes: torch.Tensor) -> torch.Tensor:
        return planes.view(-1)

    def empty(self, with_select: bool) -> Compared:
        none = torch.empty(0, dtype=torch.int64, device=self._device)
        return Compared(none, 0, none, none, (none,) * 3 if with_select else ())


def compared_by_tree(
    words: Words, x: Any, kind: Comparison, numbers: Sequence[int] = (0,)
) -> Program[Compared]:
    """The sign of x, or whether it is zero, on shares of any form; or that of x + number for each of `kind.edges`."""
    count = kind.count
    if not count:
        return words.empty(kind.select)
    fields = iter(words.take(kind))
    base = [next(fields) for _ in kind.base]
    r = base[0]
    z = yield words.open_masked(x.reshape(-1), r)
    monomials = words.planes(next(fields), 1)
    firsts = []
    for index, number in enumerate(numbers, start=1):
        own = monomials if index == len(numbers) else monomials.clone()  # they are written to
        firsts.append(_first_level(words, z + number if number else z, own, kind))
    less, equal = (
        firsts[0] if len(firsts) == 1 else (torch.cat(part, -1) for part in zip(*firsts, strict=True))
    )
    for index, level in enumerate(kind.levels):
        products = words.planes(next(fields), 1).unbind() if level.radix > 2 else ()
        a, b = (words.planes(one, 1) for one in base[1 + 2 * index : 3 + 2 * index])
        terms = words.planes(next(fields), 2)
        less, equal = yield from _join_level(words, less, equal, level, a, b, products, terms)
    root = less if kind.sign else equal
    select = (base[-1], *fields) if kind.select else ()
    return Compared(words.root(root), count, z[:count], r[:count], select)


def _first_level(
    words: Words, z: torch.Tensor, monomials: torch.Tensor, kind: Comparison
) -> tuple[torch.Tensor, torch.Tensor]:
    """`less` and `equal` of each group of bits, from r's products: NOTE [First level for free]; no round.

    With n_i = 1 - z_i: p = prod (r_i ^ n_i), and fold by fold from the highest bit, the sums over subsets S
    of the lower bits f_S = (p_top ... p_k) r_S; each g term is the current f_{k} times n_k.
    """
    radix = kind.radices[0]
    top = radix - 1
    n = ring.pack_all(z.bitwise_not().view(kind.planes, kind.columns), radix, 1)
    half = 1 << top
    f = monomials[half - 1 :]  # f_S times the top bit; S = 0 is the top bit of r alone
    lower = monomials[: half - 1]
    less = torch.empty_like(f[0])
    if kind.sign:
        special = top_mask(radix)
        sign_of_z = n[top].bitwise_not().bitwise_and_(special)
        n[top].bitwise_or_(special)
        torch.bitwise_and(f[0], n[top], out=less)
        words.add_public(less, sign_of_z)
        f[0].bitwise_and_(~special)
    words.add_public(f[0], n[top])
    f[1:].bitwise_xor_(lower.bitwise_and_(n[top]))
    for part in range(top - 1, -1, -1):
        half >>= 1
        if kind.sign:
            less.bitwise_xor_(f[half] & n[part])
        f[half:].bitwise_xor_(f[:half].bitwise_and_(n[part]))
        f = f[half:]
    return less, f[0]


def _join_level(
    words: Words,
    less: torch.Tensor,
    equal: torch.Tensor,
    level: Level,
    a: torch.Tensor,
    b: torch.Tensor,
    products: Sequence[torch.Tensor],
    terms: torch.Tensor,
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """Join `radix` neighbours at a time in one round: NOTE [Higher levels].

    The product over j of (d_j ^ a_j) times (e ^ b) is the sum over subsets S of [prod of d_j, j not in S]
    f_S with f_S = a_S e ^ a_S b and f_0 the factor's own share; the sum is folded one j at a time. `less`
    of the inner neighbours joins in where the factors below it would stand.
    """
    radix, width, outputs = level.radix, level.width, level.outputs
    # parts[j, -1] is `equal` of neighbour j, parts[j, 0] is `less` of it where there is one
    parts = ring.pack_all(torch.stack([less, equal]) if level.less else equal.unsqueeze(0), radix, width)
    inner = [parts[1 : radix - 1, 0]] if level.less else []
    hidden = torch.cat([parts[1:, -1], parts[0, :outputs], *inner])
    own = hidden[radix - 1 :].clone()
    hidden[: radix - 1].bitwise_xor_(a)
    hidden[radix - 1 :].bitwise_xor_(b)
    opened = yield from words.open_bits(hidden)
    d, e = opened[: radix - 1], opened[radix - 1 :]
    subsets = all_subsets(level, a, products)
    f = a.new_empty((level.subsets, outputs, *a.shape[1:]))
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
    for factor in d:  # bit 0 of S is the lowest of the upper neighbours
        f[1::2].bitwise_xor_(f[0::2].bitwise_and_(factor))
        f = f[1::2]
    root = f[0]
    return (root[0], root[1]) if outputs == 2 else (root[0], root[0])
