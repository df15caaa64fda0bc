"""Products of fixed-point numbers: op(x, y) / divisor, the product and its truncation under one mask.

NOTE [Masked product]
Beaver's product needs shares of c = op(a, b), and truncating it those of r, uniform, under which it is opened (NOTE [Wrap
bit] in `truncate`). Only u = c + r goes into what is opened: z = op(x, y) + r = op(d, y) + op(a, e) + u. So u is what is
drawn uniformly, by every holder from its seed, and r = u - op(a, b) is what follows: a, b and r are independent and
uniform as before, so all that is opened has the same distribution. The provider sends what truncation takes of r, and
neither c nor r; nobody waits for it before the last step. It takes the offset from r, too, which holders would add to z.

NOTE [Narrow signs]
Of a divisor 2^k the sign s of r is used as s 2^(64 - k) mod 2^64, for which shares of s mod 2^k are enough. So up to
k = 16 four signs share a word, and up to k = 32 two. The quotient is needed mod 2^64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from syft.mpc import blocks, halves
from syft.mpc.correlations import LANES, Field, Tensors, Triple, Truncation
from syft.mpc.kernels import Bilinear
from syft.mpc.party import Party, Program
from syft.mpc.programs import OUTLINES, party_program
from syft.mpc.protocols.beaver import MaskedOperand, open_operands
from syft.mpc.protocols.truncate import OFFSET, divided


def lanes_for(divisor: int) -> int:
    """How many signs a word holds. NOTE [Narrow signs]"""
    if divisor & (divisor - 1):
        return 1
    return next((lanes for lanes in LANES if divisor <= 1 << (64 // lanes)), 1)


def signs_in(words: torch.Tensor, divisor: int, shape: Sequence[int]) -> torch.Tensor:
    """The signs in words, by element, as `divided` takes them: a view."""
    lanes = lanes_for(divisor)
    return words if lanes == 1 else words.view(LANES[lanes])[: math.prod(shape)].view(tuple(shape))


@dataclass(frozen=True)
class ScaledTriple(Triple):
    """a, b, u uniform, and the derived fields of a `Truncation` of r = u - op(a, b) - 2^62. NOTE [Masked product]"""

    divisor: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.divisor < OFFSET:
            raise ValueError(f"A product is divided by an integer from 2 to 2^62 - 1, got {self.divisor}.")

    @cached_property
    def _truncation(self) -> Truncation:
        return Truncation(self.op.output_shape(self.x, self.y), self.divisor)

    @cached_property
    def base(self) -> tuple[Field, ...]:
        return (*self.masks, *self._truncation.base)

    @cached_property
    def derived(self) -> tuple[Field, ...]:
        """As of the truncation. NOTE [Narrow signs]"""
        quotient, sign = self._truncation.derived
        lanes = lanes_for(self.divisor)
        return quotient, sign if lanes == 1 else Field((-(-math.prod(sign.shape) // lanes),), lanes=lanes)

    def derive(self, *base: torch.Tensor) -> Tensors:
        *operands, u = base
        (c,) = super().derive(*operands)
        if lanes_for(self.divisor) == 1:
            return self._truncation.derive(torch.sub(u, c, out=c).sub_(OFFSET))
        words = torch.zeros(self.derived[1].shape, dtype=torch.int64, device=u.device)
        signs, shift = signs_in(words, self.divisor, u.shape), self.divisor.bit_length() - 1
        if blocks.pay_for(c, u):
            blocks.truncation_between(c, u, OFFSET, shift, signs)
            return c, words
        r = torch.sub(u, c, out=c).sub_(OFFSET)
        signs.copy_(r >> 63)
        return r.bitwise_right_shift_(shift), words


@party_program
def multiply_truncated(
    party: Party,
    x: torch.Tensor | MaskedOperand,
    y: torch.Tensor | MaskedOperand,
    op: Bilinear,
    divisor: int,
    bias: torch.Tensor | None = None,
    keep: str = "",
) -> Program[tuple[Any, ...]]:
    """A share of op(x, y) / divisor + bias, and the operands that `keep` names, masked for later products.

    The quotient is one of the two integers next to it. Two rounds (one if both operands are masked). The bias of a
    convolution has a number for each channel.
    """
    shapes = tuple(x.shape), tuple(y.shape)
    is_split = halves.pay_for(party.holders, op, *shapes)
    kind = partial(ScaledTriple, op, *shapes, divisor=divisor, split=is_split)
    operands, fields = yield from open_operands(party, x, y, keep, kind)
    z = yield party.open(operands.add_product_to(next(fields)))
    quotient, signs = fields
    share = divided(party, z, quotient, signs_in(signs, divisor, z.shape), divisor)
    if bias is not None:
        share = share + (bias if op.name == "matmul" else bias.view(-1, *[1] * (share.ndim - 2)))
    return share, *operands.kept


def _outline(ask: Any, _make: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """From that of the product: a client need not multiply on zeros what holders multiply."""
    x, y, op, divisor, _bias, keep = args
    product = ask("beaver.multiply_keeping", (x, y, op, keep), kwargs)
    *masks, triple = product.kinds
    return (
        (*masks, ScaledTriple(op, triple.x, triple.y, triple.kept_x, triple.kept_y, triple.split, divisor)),
        product.results,
    )


OUTLINES["scaled.multiply_truncated"] = _outline
