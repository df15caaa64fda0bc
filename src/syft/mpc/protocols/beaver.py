"""Products of shared tensors: Beaver's trick for any bilinear map, squares, ANDs, and operands masked once.

Notation of Beaver, "Efficient multiparty protocols using circuit randomization" (CRYPTO 1991): a triple
c = op(a, b), openings d = x - a and e = y - b.

NOTE [Two products]
x y = d y + a y = d y + a e + a b, so a holder's share is op(d, y_i) + op(a_i, e) + c_i: two products and no
special party, where expanding (d + a)(e + b) takes three or four.

NOTE [Masked operands]
An opening d = x - a is safe as long as a masks nothing else. A `MaskedOperand` ties d, a and x together, so
the same d serves any number of products: each of them has c = op(a, b) under a fresh sharing, and the OTHER
operand comes with a mask of its own, fresh unless it is a `MaskedOperand` too. A mask belongs to exactly
one tensor: there is no way to put a second tensor under it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch

from syft.mpc.correlations import And, Square, Triple
from syft.mpc.kernels import Bilinear, accumulate
from syft.mpc.party import Party, Program
from syft.mpc.programs import opening_program, party_program

MUL = Bilinear("mul")
MATMUL = Bilinear("matmul")


@dataclass(eq=False)
class MaskedOperand:
    """A shared tensor whose masked value all holders know. Made by `mask`; its mask is released with it."""

    share: torch.Tensor
    mask: torch.Tensor = field(repr=False)
    opened: torch.Tensor = field(repr=False)
    handle: int

    @property
    def shape(self) -> torch.Size:
        return self.share.shape


def mask(party: Party, x: torch.Tensor) -> Program[MaskedOperand]:
    """Open x under a mask that the provider remembers: one round now, none for x in any later product."""
    handle, a = party.source.mask(x.shape)
    d = yield party.open(x - a)
    operand = MaskedOperand(x, a, d, handle)
    weakref.finalize(operand, party.source.release, handle)  # the provider forgets with the last holder
    return operand


def release(party: Party, operand: MaskedOperand) -> None:
    """Let the provider forget the operand's mask early; products with it raise from then on."""
    party.source.release(operand.handle)


@party_program
def spdz_mul(
    party: Party, x: torch.Tensor | MaskedOperand, y: torch.Tensor | MaskedOperand, op: Bilinear = MUL
) -> Program[torch.Tensor]:
    """A share of op(x, y).

    One round (none if both are masked), opening each operand that is not masked yet.
    """
    kept_x = x.handle if isinstance(x, MaskedOperand) else None
    kept_y = y.handle if isinstance(y, MaskedOperand) else None
    fields = iter(party.take(Triple(op, tuple(x.shape), tuple(y.shape), kept_x, kept_y)))
    pending: list[torch.Tensor] = []
    if isinstance(x, MaskedOperand):
        a, d = x.mask, x.opened
    else:
        a = next(fields)
        pending.append(x - a)
    if isinstance(y, MaskedOperand):
        e, y_share = y.opened, y.share
    else:
        b = next(fields)
        pending.append(torch.sub(y, b, out=b))
        y_share = y
    c = next(fields)
    if pending:
        opened = yield party.open(*pending)
        values = iter((opened,) if isinstance(opened, torch.Tensor) else opened)
        if kept_x is None:
            d = next(values)
        if kept_y is None:
            e = next(values)
    # Beaver 1991, section 2; NOTE [Two products]
    return accumulate(accumulate(c, op, d, y_share), op, a, e)


@party_program
def square(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """A share of x * x: one opening instead of two."""
    a, aa = party.take(Square(tuple(x.shape)))
    d = yield party.open(x - a)
    # x^2 = (d + a)^2 = d (x + a) + a^2
    return aa.addcmul_(d, x + a)


@party_program
def and_bits(party: Party, x: torch.Tensor, y: torch.Tensor) -> Program[torch.Tensor]:
    """Boolean shares of x & y, word by word: Beaver's trick in Z_2, 64 bits at a time."""
    a, b, c = party.take(And(tuple(x.shape)))
    d, e = yield party.open_bits(x ^ a, y ^ b)
    return c.bitwise_xor_(d.bitwise_and_(y)).bitwise_xor_(e.bitwise_and_(a))


@opening_program
def reveal(party: Party, *shares: torch.Tensor) -> Program[torch.Tensor]:
    """Open additively shared tensors to all holders: the result is public."""
    opened: torch.Tensor = yield party.open(*shares)
    return opened
