"""Products of shared tensors: Beaver's trick for any bilinear map, squares, ANDs, and operands masked once.

Notation of Beaver, "Efficient multiparty protocols using circuit randomization" (CRYPTO 1991): a triple
c = op(a, b), openings d = x - a and e = y - b.

NOTE [Two products]
x y = d y + a y = d y + a e + a b, so a holder's share is op(d, y_i) + op(a_i, e) + c_i: two products and no
special party, where expanding (d + a)(e + b) takes three or four. Two holders make large sums of products with one
each: NOTE [One product] in `syft.mpc.halves`.

NOTE [Masked operands]
An opening d = x - a is safe as long as a masks nothing else. A `MaskedOperand` ties d, a and x together, so
the same d serves any number of products: each of them has c = op(a, b) under a fresh sharing, and the OTHER
operand comes with a mask of its own, fresh unless it is a `MaskedOperand` too. A mask belongs to exactly
one tensor: there is no way to put a second tensor under it, and a tensor that was written to since is refused.
The place where the mask was drawn is part of the kind of every such triple, and a holder knows it from its own
`MaskedOperand` only: a client cannot name the mask of another operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from syft.mpc import blocks, halves
from syft.mpc.correlations import And, Conjunction, Place, Square, Triple
from syft.mpc.kernels import Bilinear, Pair, accumulate, accumulate_both, sum_of_both
from syft.mpc.party import Party, Program, primitive
from syft.mpc.programs import opening_program, party_program

MUL = Bilinear("mul")
MATMUL = Bilinear("matmul")


@dataclass(eq=False)
class MaskedOperand:
    """A shared tensor whose masked value all holders know. Made by `mask`."""

    share: torch.Tensor = field(repr=False)
    mask: torch.Tensor = field(repr=False)
    opened: torch.Tensor = field(repr=False)
    place: Place
    version: int
    group: Any = None
    """The group on a network whose seeds drew the mask."""

    @property
    def shape(self) -> torch.Size:
        return self.share.shape

    @property
    def device(self) -> torch.device:
        return self.share.device

    def is_of(self, share: torch.Tensor) -> bool:
        """Whether this is the masked form of a share as it is now: the same memory, not written to since."""
        mine = self.share
        return (
            share._version == self.version
            and share.data_ptr() == mine.data_ptr()
            and share.shape == mine.shape
            and share.stride() == mine.stride()
        )


def masked(share: torch.Tensor, mask: torch.Tensor, opened: torch.Tensor, place: Place) -> MaskedOperand:
    return MaskedOperand(share, mask, opened, place, share._version)


def mask(party: Party, x: torch.Tensor) -> Program[MaskedOperand]:
    """Open x under a mask of its own: one round now, none for x in any later product."""
    place, a = party.source.mask(x.shape)
    d = yield party.open(x - a)
    return masked(x, a, d, place)


@dataclass(eq=False)
class Operands:
    """Two operands of a product, each under a mask: the shares of this party, what all know, and the masks to be kept.

    Of a split triple, `masks` has what this party drew for those that are not kept. Its product is made once.
    """

    rank: int
    triple: Triple
    opened: dict[str, torch.Tensor]
    masks: dict[str, torch.Tensor]
    shares: dict[str, torch.Tensor]
    kept: tuple[MaskedOperand, ...]

    def product(self) -> torch.Tensor:
        """A share of op(x, y) less the c of the triple."""
        op = self.triple.op
        if not self.triple.split:
            return sum_of_both(op, *self._cross())
        terms = self._factors()
        return self._added(op(*next(terms)), terms)

    def add_product_to(self, out: torch.Tensor) -> torch.Tensor:
        """The same, added in place."""
        if not self.triple.split:
            return accumulate_both(out, self.triple.op, *self._cross())
        return self._added(out, self._factors())

    def _added(self, out: torch.Tensor, terms: Iterator[Pair]) -> torch.Tensor:
        for term in terms:
            out = accumulate(out, self.triple.op, *term)
        return out

    def _cross(self) -> tuple[Pair, Pair]:
        """The factors of the two products that a holder makes. NOTE [Two products]"""
        return (self.opened["x"], self.shares["y"]), (self.masks["x"], self.opened["y"])

    def _factors(self) -> Iterator[Pair]:
        """Those of NOTE [One product] in `halves`."""
        triple = self.triple
        drawn = [
            self.masks[name] if place is None else halves.drawn_for(self.masks[name], self.rank, dim)
            for name, place, dim in zip("xy", (triple.kept_x, triple.kept_y), triple.dims, strict=True)
        ]
        opened = self.opened["x"], self.opened["y"]
        return halves.factors(self.rank, triple.dims, opened, (drawn[0], drawn[1]), self.shares["y"])


def open_operands(
    party: Party,
    x: torch.Tensor | MaskedOperand,
    y: torch.Tensor | MaskedOperand,
    keep: str,
    kind: Callable[[Place | None, Place | None], Triple],
) -> Program[tuple[Operands, Iterator[torch.Tensor]]]:
    """Open each operand that is not masked yet, and mask those that `keep` names for later products, too.

    `kind` says what is taken for the product, given the places of the masks that are not part of it; the fields behind
    its masks are still to be read.
    """
    places: dict[str, Place] = {}
    masks: dict[str, torch.Tensor] = {}
    given = {"x": x, "y": y}
    for name, value in given.items():
        if isinstance(value, MaskedOperand):
            places[name], masks[name] = value.place, value.mask
        elif name in keep:
            places[name], masks[name] = party.source.mask(value.shape)
    triple = kind(places.get("x"), places.get("y"))
    fields = party.fields(triple)
    opened: dict[str, torch.Tensor] = {}
    shares: dict[str, torch.Tensor] = {}
    pending: dict[str, torch.Tensor] = {}
    for name, value in given.items():
        if isinstance(value, MaskedOperand):
            opened[name], shares[name] = value.opened, value.share
            continue
        shares[name] = value
        if name in masks:
            pending[name] = blocks.subtract(value, masks[name])
        elif triple.split:
            masks[name] = next(fields)
            pending[name] = halves.masked(value, masks[name], party.rank, triple.dims[name == "y"])
        else:
            masks[name] = drawn = next(fields)
            # Nobody needs the mask of y again: NOTE [Two products].
            pending[name] = blocks.subtract(value, drawn, into=drawn if name == "y" else None)
    if pending:
        found = yield party.open(*pending.values())
        opened.update(zip(pending, (found,) if isinstance(found, torch.Tensor) else found, strict=True))
    kept = tuple(masked(shares[name], masks[name], opened[name], places[name]) for name in keep)
    return Operands(party.rank, triple, opened, masks, shares, kept), fields


@party_program
@primitive
def spdz_mul(
    party: Party,
    x: torch.Tensor | MaskedOperand,
    y: torch.Tensor | MaskedOperand,
    op: Bilinear = MUL,
    dealt: bool = False,
) -> Program[torch.Tensor]:
    """A share of op(x, y).

    One round (none if both are masked), opening each operand that is not masked yet. `dealt`: with a triple a, b,
    op(a, b) of any size, as users have it dealt ahead of time.
    """
    is_split = not dealt and halves.pay_for(party.holders, op, tuple(x.shape), tuple(y.shape))
    (share,) = yield from _multiplied(party, x, y, op, "", is_split)
    return share


@party_program
def multiply_keeping(
    party: Party,
    x: torch.Tensor | MaskedOperand,
    y: torch.Tensor | MaskedOperand,
    op: Bilinear = MUL,
    keep: str = "y",
) -> Program[tuple[Any, ...]]:
    """A share of op(x, y), and the operands that `keep` names ("x", "y", "xy"), masked for later products.

    It costs what `spdz_mul` costs.
    """
    is_split = halves.pay_for(party.holders, op, tuple(x.shape), tuple(y.shape))
    return (yield from _multiplied(party, x, y, op, keep, is_split))


def _multiplied(
    party: Party,
    x: torch.Tensor | MaskedOperand,
    y: torch.Tensor | MaskedOperand,
    op: Bilinear,
    keep: str,
    is_split: bool,
) -> Program[tuple[Any, ...]]:
    kind = partial(Triple, op, tuple(x.shape), tuple(y.shape), split=is_split)
    operands, fields = yield from open_operands(party, x, y, keep, kind)
    # Beaver 1991, section 2; NOTE [Two products]. The provider makes c meanwhile.
    share = operands.product()
    (c,) = fields
    return blocks.add_(share, c), *operands.kept


@party_program
@primitive
def square(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """A share of x * x: one opening instead of two."""
    fields = party.fields(Square(tuple(x.shape)))
    a = next(fields)
    d = yield party.open(x - a)
    (aa,) = fields
    # x^2 = (d + a)^2 = d (x + a) + a^2
    return aa.addcmul_(d, x + a)


@party_program
@primitive
def and_bits(party: Party, x: torch.Tensor, y: torch.Tensor) -> Program[torch.Tensor]:
    """Boolean shares of x & y, word by word: Beaver's trick in Z_2, 64 bits at a time."""
    a, b, c = party.take(And(tuple(x.shape)))
    d, e = yield party.open_bits(x ^ a, y ^ b)
    return c.bitwise_xor_(d.bitwise_and_(y)).bitwise_xor_(e.bitwise_and_(a))


@primitive
def conjunction(party: Party, factors: torch.Tensor) -> Program[torch.Tensor]:
    """Boolean shares of factors[0] & factors[1] & ..., word by word. One round. NOTE [Higher levels] in `compare`"""
    masks, products = party.take(Conjunction(len(factors), tuple(factors.shape[1:])))
    return folded((yield party.open_bits(factors ^ masks)), products)


def folded(opened: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
    """The product over j of (d_j ^ a_j) from all d_j and the products of the a_j, which are written to."""
    for d in opened:  # bit 0 of S stands for the first factor that is left
        products[1::2].bitwise_xor_(products[0::2].bitwise_and_(d))
        products = products[1::2]
    return products[0]


@opening_program
def reveal(party: Party, *shares: torch.Tensor) -> Program[torch.Tensor]:
    """Open additively shared tensors to all holders: the result is public."""
    opened: torch.Tensor = yield party.open(*shares)
    return opened
