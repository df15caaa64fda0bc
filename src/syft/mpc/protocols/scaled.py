"""Products of fixed-point numbers: op(x, y) / divisor, the product and its truncation under one mask.

NOTE [Masked product]
Beaver's product needs shares of c = op(a, b), and truncating it those of r, uniform, under which it is opened (NOTE [Wrap
bit] in `truncate`). Only u = c + r goes into what is opened: z = op(x, y) + r = op(d, y) + op(a, e) + u. So u is what is
drawn uniformly, by every holder from its seed, and r = u - op(a, b) is what follows: a, b and r are independent and
uniform as before, so all that is opened has the same distribution. The provider sends what truncation takes of r, and
neither c nor r; nobody waits for it before the last step. It takes the offset from r, too, which holders would add to z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from syft.mpc import blocks
from syft.mpc.correlations import Field, Tensors, Triple, Truncation
from syft.mpc.kernels import Bilinear, accumulate_both
from syft.mpc.party import Party, Program
from syft.mpc.programs import OUTLINES, party_program
from syft.mpc.protocols.beaver import MaskedOperand, open_operands
from syft.mpc.protocols.truncate import OFFSET, divided


@dataclass(frozen=True)
class ScaledTriple(Triple):
    """a, b, u uniform, and the derived fields of a `Truncation` of r = u - op(a, b) - 2^62. NOTE [Masked product]"""

    divisor: int = 2

    def __post_init__(self) -> None:
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
        return self._truncation.derived

    def derive(self, *base: torch.Tensor) -> Tensors:
        *operands, u = base
        (c,) = super().derive(*operands)
        if self.divisor & (self.divisor - 1) == 0 and blocks.pay_for(c, u):
            blocks.truncation_between(c, u, OFFSET, self.divisor.bit_length() - 1)
            return c, u
        return self._truncation.derive(torch.sub(u, c, out=c).sub_(OFFSET))


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
    kind = partial(ScaledTriple, op, tuple(x.shape), tuple(y.shape), divisor=divisor)
    operands, fields = yield from open_operands(party, x, y, keep, kind)
    z = yield party.open(accumulate_both(next(fields), op, *operands.cross()))
    quotient, sign = fields
    share = divided(party, z, quotient, sign, divisor)
    if bias is not None:
        share = share + (bias if op.name == "matmul" else bias.view(-1, *[1] * (share.ndim - 2)))
    return share, *operands.kept


def _outline(ask: Any, _make: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """From that of the product: a client need not multiply on zeros what holders multiply."""
    x, y, op, divisor, _bias, keep = args
    product = ask("beaver.multiply_keeping", (x, y, op, keep), kwargs)
    *masks, triple = product.kinds
    return (
        (*masks, ScaledTriple(op, triple.x, triple.y, triple.kept_x, triple.kept_y, divisor)),
        product.results,
    )


OUTLINES["scaled.multiply_truncated"] = _outline
