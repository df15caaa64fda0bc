"""Everything that decides by a comparison: relu, abs, sign, clamp, extremes along a dimension, max-pooling.

NOTE [Selection without a mask of its own]
A comparison has opened z = x + r. The provider gives rho, shared both ways, and rho r with it, so b x = (v
+ (1 - 2v) rho)(z - r), with v = b ^ rho open, is linear in what the holders have: a relu opens one more BIT
per element after its comparison, and masks nothing twice.

NOTE [Range]
Signs are exact for every int64, so relu, abs and sign are. What subtracts two inputs first (clamp, extremes)
needs the difference to be representable: |x| <= 2^62 is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from syft.mpc import kernels, ring
from syft.mpc.party import Party, Program, cat, primitive, stack, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import spdz_mul
from syft.mpc.protocols.compare import TREE, Compared, How, negative_bits, negative_sums, zero_bits
from syft.mpc.protocols.convert import bits_to_arithmetic, flipped_bit, multiply_bits, negate_where
from syft.mpc.protocols.registry import ComparisonProtocol, register_comparison

LOWEST = -(1 << 62)
"""What pads the border of a pooling: below everything in its range."""


def invert_bits(party: Party, words: torch.Tensor) -> torch.Tensor:
    """Boolean shares of the opposite bits."""
    return party.inverted(words)


# -- bits as numbers -----------------------------------------------------------------------------------


@party_program
def is_negative(party: Party, x: torch.Tensor, how: How = TREE) -> Program[torch.Tensor]:
    """Additive shares of [x < 0], exact for every int64. Four rounds (fan-in 4)."""
    compared = yield from negative_bits(party, x, how)
    bit = yield from bits_to_arithmetic(party, compared.bits, compared.count)
    return bit.view(x.shape)


@party_program
def is_zero(party: Party, x: torch.Tensor, how: How = TREE) -> Program[torch.Tensor]:
    """Additive shares of [x == 0], exact for every int64."""
    compared = yield from zero_bits(party, x, how)
    bit = yield from bits_to_arithmetic(party, compared.bits, compared.count)
    return bit.view(x.shape)


@party_program
def sign(party: Party, x: torch.Tensor, how: How = TREE) -> Program[torch.Tensor]:
    """Additive shares of -1, 0 or 1."""
    negative, zero = yield from together(is_negative(party, x, how), is_zero(party, x, how))
    share: torch.Tensor = negative.mul_(-2).sub_(zero)
    return party.plus(share, 1)


# -- products with a comparison's bit --------------------------------------------------------------------


@party_program
def select(
    party: Party, words: torch.Tensor, if_set: torch.Tensor, if_not: torch.Tensor
) -> Program[torch.Tensor]:
    """`if_set` where the Boolean-shared bit is 1, `if_not` elsewhere. One round."""
    difference = (if_set - if_not).reshape(-1, 1)
    _, (chosen,) = yield from multiply_bits(party, words, difference.shape[0], [difference])
    return if_not + chosen.view(if_not.shape)


@primitive
def multiply_compared(
    party: Party, compared: Compared, invert: bool = False
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """The bit b of a comparison of x (or 1 - b) and its product with x, flat.

    One round, one bit per element.
    """
    words = invert_bits(party, compared.bits) if invert else compared.bits
    rho, bit, product = compared.select
    v = yield party.open_bits(words ^ rho)
    flip = ring.unpack_bits(v, compared.count).neg_()
    # b x = v (z - r) + (1 - 2v)(rho z - rho r): NOTE [Selection without a mask of its own]
    product = product.neg_().addcmul_(bit, compared.opened)
    negate_where(product, flip)
    unmasked = compared.opened - compared.mask if party.first else compared.mask.neg()
    product.add_(unmasked.bitwise_and_(flip))
    return flipped_bit(party, bit, flip), product


@party_program
def relu_with_bit(
    party: Party, x: torch.Tensor, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """relu(x) and [x >= 0], the latter for the gradient. Four rounds, 12.4 bytes per element (fan-in 4)."""
    compared = yield from negative_bits(party, x, how, select=True)
    bit, product = yield from multiply_compared(party, compared, invert=True)
    return product.view(x.shape), bit.view(x.shape)


@party_program
def relu(party: Party, x: torch.Tensor, how: How = TREE) -> Program[torch.Tensor]:
    """relu(x), exact for every int64."""
    share, _ = yield from relu_with_bit(party, x, how)
    return share


@party_program
def absolute(party: Party, x: torch.Tensor, how: How = TREE) -> Program[torch.Tensor]:
    """|x|; -2^63 has none and stays what it is, as in torch."""
    positive = yield from relu(party, x, how)
    return positive.mul_(2).sub_(x)


@party_program
def clamp(
    party: Party, x: torch.Tensor, low: int | None = None, high: int | None = None, how: How = TREE
) -> Program[torch.Tensor]:
    """x cut to [low, high], both public: x + relu(low - x) - relu(x - high), side by side. NOTE [Range]"""
    if low is not None and high is not None and low > high:
        return party.constant(torch.full(x.shape, high, dtype=torch.int64, device=x.device))  # torch's rule
    sides = []
    if low is not None:
        sides.append(party.plus(-x, low))
    if high is not None:
        sides.append(party.plus(x, -high))
    if not sides:
        return x
    parts = yield from relu(party, stack(sides), how)
    share = x + parts[0] if low is not None else x.clone()
    return share.sub_(parts[-1]) if high is not None else share


@party_program
def cut_magnitude(
    party: Party, x: torch.Tensor, edge: int, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """[x < 0], [x > edge], [x < -edge] and |x| cut at the edge. Five rounds. NOTE [Range]"""
    sides = yield from negative_sums(party, x, (0, -edge - 1, edge), how)
    sides[1] = invert_bits(party, sides[1])
    made = yield from together(*(bits_to_arithmetic(party, words, x.numel()) for words in sides))
    negative, above, below = (bits.view(x.shape) for bits in made)
    turn = party.plus(negative * -2, 1) - above + below
    inside = yield from spdz_mul(party, turn, x)
    return negative, above, below, inside + (above + below) * edge


# -- extremes --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Extreme:
    """The outcome of a tournament along dimension 0."""

    values: torch.Tensor
    indices: torch.Tensor | None = None
    onehot: torch.Tensor | None = None


def tournament(
    party: Party, x: torch.Tensor, indices: bool = False, onehot: bool = False, how: How = TREE
) -> Program[Extreme]:
    """The largest along dimension 0, the first of equals; its index and its one-hot row on request.

    Neighbours meet, so the left one always has the lower index. NOTE [Range]
    """
    length = x.shape[0]
    if not length:
        raise ValueError("There is no largest element along a dimension of length 0.")
    rest = tuple(x.shape[1:])
    values = x.reshape(length, -1)
    places = torch.arange(length, device=x.device).unsqueeze(1).expand(values.shape) if indices else None
    places = None if places is None else party.constant(places.contiguous())
    history: list[torch.Tensor] = []
    while values.shape[0] > 1:
        pairs = values.shape[0] // 2
        left, right, rest_values = values[0 : 2 * pairs : 2], values[1 : 2 * pairs : 2], values[2 * pairs :]
        compared = yield from negative_bits(party, left - right, how, select=True)
        programs: list[Program[Any]] = [multiply_compared(party, compared)]
        if places is not None:
            low = places[0 : 2 * pairs : 2]
            step = (places[1 : 2 * pairs : 2] - low).reshape(-1, 1)
            programs.append(multiply_bits(party, compared.bits, compared.count, [step]))
        (bit, product), *moved = yield from together(*programs)
        # the right one where left - right < 0: left - b (left - right)
        values = cat([left - product.view(left.shape), rest_values])
        if places is not None:
            places = cat([low + moved[0][1][0].view(low.shape), places[2 * pairs :]])
        history.append(bit.view(left.shape))
    hot = (yield from _onehot(party, history, values)) if onehot else None
    return Extreme(
        values.view(rest),
        None if places is None else places.view(rest),
        None if hot is None else hot.view(length, *rest),
    )


def _onehot(party: Party, history: list[torch.Tensor], like: torch.Tensor) -> Program[torch.Tensor]:
    """From the winner down: the right child inherits its parent times the bit, the left one the remainder."""
    hot = party.constant(torch.ones(like.shape, dtype=torch.int64, device=like.device))
    for depth, bits in enumerate(reversed(history)):
        pairs = bits.shape[0]
        parents, kept = hot[:pairs], hot[pairs:]
        # The root is publicly 1, so its children need no product.
        right = bits if depth == 0 else (yield from spdz_mul(party, parents, bits))
        children = stack([parents - right, right], 1).view(2 * pairs, -1)
        hot = cat([children, kept])
    return hot


def _along(x: torch.Tensor, dim: int | None) -> torch.Tensor:
    return x.reshape(-1) if dim is None else x.movedim(dim, 0)


@party_program
def maximum(
    party: Party, x: torch.Tensor, dim: int | None = None, keepdim: bool = False, how: How = TREE
) -> Program[torch.Tensor]:
    """The largest along `dim`, or of all."""
    found = yield from tournament(party, _along(x, dim), how=how)
    return found.values.unsqueeze(dim) if keepdim and dim is not None else found.values


@party_program
def minimum(
    party: Party, x: torch.Tensor, dim: int | None = None, keepdim: bool = False, how: How = TREE
) -> Program[torch.Tensor]:
    """The smallest along `dim`, or of all."""
    largest = yield from maximum(party, -x, dim, keepdim, how)
    return largest.neg_()


@party_program
def argmax(
    party: Party, x: torch.Tensor, dim: int | None = None, keepdim: bool = False, how: How = TREE
) -> Program[torch.Tensor]:
    """The index of the largest along `dim` (the first of equals), or in the flattened tensor."""
    _, indices = yield from max_with_indices(party, x, dim, keepdim, how)
    return indices


@party_program
def argmin(
    party: Party, x: torch.Tensor, dim: int | None = None, keepdim: bool = False, how: How = TREE
) -> Program[torch.Tensor]:
    """The index of the smallest along `dim` (the first of equals), or in the flattened tensor."""
    return (yield from argmax(party, -x, dim, keepdim, how))


@party_program
def max_with_indices(
    party: Party, x: torch.Tensor, dim: int | None = None, keepdim: bool = False, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """`torch.max(x, dim)`: values and indices."""
    found = yield from tournament(party, _along(x, dim), indices=True, how=how)
    wide: Callable[[torch.Tensor], torch.Tensor] = (
        (lambda t: t.unsqueeze(dim)) if keepdim and dim is not None else (lambda t: t)
    )
    return wide(found.values), wide(found.indices if found.indices is not None else found.values)


# -- pooling ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pooling:
    """The public parameters of a two-dimensional pooling."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False

    @property
    def geometry(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
        return self.kernel_size, self.stride, self.padding, self.dilation


@party_program
def max_pool2d(
    party: Party, x: torch.Tensor, pooling: Pooling, onehot: bool = False, how: How = TREE
) -> Program[tuple[torch.Tensor, torch.Tensor | None]]:
    """Max-pooling of (N, C, H, W), and (on request) the one-hot selection (kh * kw, N, C, oh, ow) for
    backward.
    """
    fill = LOWEST if party.first else 0
    windows = kernels.windows(x, *pooling.geometry, fill=fill, ceil_mode=pooling.ceil_mode)
    found = yield from tournament(party, windows.movedim(-1, 0), onehot=onehot, how=how)
    return found.values, found.onehot


@party_program
def max_pool2d_backward(
    party: Party, grad: torch.Tensor, onehot: torch.Tensor, size: tuple[int, int], pooling: Pooling
) -> Program[torch.Tensor]:
    """The gradient for the picture of `size` (H, W).

    The selection times the gradient, added back. One round.
    """
    spread = yield from spdz_mul(party, onehot, grad.unsqueeze(0))
    return kernels.unwindow(spread.movedim(0, -1), size, *pooling.geometry)


def bitwise(name: str, how: int | str, holders: int | None = None) -> ComparisonProtocol:
    """A comparison protocol of the functions of this file, with one `how` for all of them."""
    return ComparisonProtocol(
        name,
        partial(is_negative, how=how),
        partial(is_zero, how=how),
        partial(relu, how=how),
        partial(relu_with_bit, how=how),
        holders,
        how,
    )


register_comparison(bitwise("tree", 4))
register_comparison(bitwise("tree2", 2))
