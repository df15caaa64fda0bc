"""What a step of training asks for at once: products, selections and quotients, each of their rounds in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.mpc.kernels import Bilinear
from syft.mpc.party import Party, Program, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import MaskedOperand, mask, spdz_mul
from syft.mpc.protocols.scaled import multiply_truncated
from syft.mpc.protocols.truncate import rescale


@party_program
def side_by_side(
    party: Party,
    tasks: tuple[Any, ...],
    factors: tuple[int, ...],
    keep: tuple[int, ...],
    *operands: torch.Tensor | MaskedOperand,
) -> Program[tuple[tuple[torch.Tensor, ...], tuple[MaskedOperand, ...]]]:
    """What each task gives, and the operands that `keep` names by their positions, masked for later products.

    A task is (name, positions of its operands, parameters...). The operands of products, at `factors`, are opened under
    one mask each, whatever the number of products.

    "product", (x, y), op, divisor, factor, last   op(x, y) / divisor * factor / last, truncated twice unless last is 1
    "selected", (bits, x, y), op, divisor          bits * (op(x, y) / divisor)
    "quotient", (x,), factor, divisor              x * factor / divisor
    """
    given: list[Any] = list(operands)
    fresh = [at for at in factors if not isinstance(given[at], MaskedOperand)]
    masked = yield from together(*(mask(party, given[at]) for at in fresh))
    for at, one in zip(fresh, masked, strict=True):
        given[at] = one
    shares = yield from together(
        *(_TASKS[name](party, *(given[at] for at in places), *rest) for name, places, *rest in tasks)
    )
    return shares, tuple(given[at] for at in keep)


def _product(
    party: Party, x: MaskedOperand, y: MaskedOperand, op: Bilinear, divisor: int, factor: int, last: int
) -> Program[torch.Tensor]:
    (share,) = yield from multiply_truncated(party, x, y, op, divisor)
    if last != 1:
        return (yield from rescale(party, share, factor, last))
    return share if factor == 1 else share * factor


def _selected(
    party: Party, bits: MaskedOperand, x: MaskedOperand, y: MaskedOperand, op: Bilinear, divisor: int
) -> Program[torch.Tensor]:
    (share,) = yield from multiply_truncated(party, x, y, op, divisor)
    return (yield from spdz_mul(party, bits, share))


def _quotient(
    party: Party, x: torch.Tensor | MaskedOperand, factor: int, divisor: int
) -> Program[torch.Tensor]:
    return (yield from rescale(party, x.share if isinstance(x, MaskedOperand) else x, factor, divisor))


_TASKS: dict[str, Callable[..., Program[torch.Tensor]]] = {
    "product": _product,
    "selected": _selected,
    "quotient": _quotient,
}
