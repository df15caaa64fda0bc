"""Integers mod 2^110 in tensors: five limbs of 22 bits along the first dimension, least significant first.

A limb is an int64 and has room for 41 bits more, so sums, and products of two limbs summed up to 2^17 times, need no
carry at once; `normal_` carries. Only that is done here which is linear in one wide operand: the other one is public.
Imports nothing of ours.

`lo, hi` is the packed form: 64 bits, and the 46 above them.

NOTE [Products in floating point]
BLAS multiplies float64 four times as fast as int64. Limbs from -2^21 to 2^21 have products below 2^42 in size, so 2^11 of
them add up exactly in the 53 bits of a float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

LIMB = 22
COUNT = 5
BITS = LIMB * COUNT
EXTRA = BITS - 64
"""The bits above a word: s in SPDZ2k."""
PUBLIC = 3
"""Limbs of a public int64."""
_MASK = (1 << LIMB) - 1
_HALF = 1 << (LIMB - 1)
_OVER = 64 - 2 * LIMB  # bits of the third limb that are in the low word
_REST = LIMB - _OVER
_EXACT = 1 << 11  # NOTE [Products in floating point]

_BLOCK = 1 << 13

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _blocks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Flat tensors in pieces that stay in the cache while several operations pass over them."""
    count = tensors[0].shape[-1]
    for start in range(0, count, _BLOCK):
        yield tuple(tensor[..., start : start + _BLOCK] for tensor in tensors)


def unpacked(lo: torch.Tensor, hi: torch.Tensor) -> torch.Tensor:
    """The limbs of a packed number; bits of `hi` beyond the 46 are left out."""
    out = torch.empty((COUNT, *lo.shape), dtype=torch.int64)
    for low, high, part in _blocks(lo.reshape(-1), hi.reshape(-1), out.view(COUNT, -1)):
        torch.bitwise_and(low, _MASK, out=part[0])
        torch.bitwise_right_shift(low, LIMB, out=part[1]).bitwise_and_(_MASK)
        torch.bitwise_right_shift(low, 2 * LIMB, out=part[2]).bitwise_and_((1 << _OVER) - 1)
        part[2] |= (high & (_MASK >> _OVER)) << _OVER
        torch.bitwise_right_shift(high, _REST, out=part[3]).bitwise_and_(_MASK)
        torch.bitwise_right_shift(high, _REST + LIMB, out=part[4]).bitwise_and_(_MASK)
    return out


def packed(limbs: torch.Tensor) -> torch.Tensor:
    """(2, ...): `lo, hi` of any limbs."""
    out = torch.empty((2, *limbs.shape[1:]), dtype=torch.int64)
    for part, made in _blocks(limbs.reshape(COUNT, -1), out.view(2, -1)):
        a, b, c, d, e = _carried(part.clone())
        torch.bitwise_left_shift(b, LIMB, out=made[0]).bitwise_or_(a).bitwise_or_(c << (2 * LIMB))
        torch.bitwise_right_shift(c, _OVER, out=made[1]).bitwise_or_(d << _REST).bitwise_or_(
            e << (_REST + LIMB)
        )
    return out


def normal_(limbs: torch.Tensor) -> torch.Tensor:
    """The same number with limbs from 0 to 2^22 - 1, in place."""
    if not limbs.is_contiguous():
        return _carried(limbs)
    for (part,) in _blocks(limbs.view(COUNT, -1)):
        _carried(part)
    return limbs


def _carried(limbs: torch.Tensor) -> torch.Tensor:
    for k in range(COUNT - 1):
        limbs[k + 1] += limbs[k] >> LIMB
        limbs[k] &= _MASK
    limbs[COUNT - 1] &= _MASK
    return limbs


def balanced_(limbs: torch.Tensor) -> torch.Tensor:
    """The same number with limbs from -2^21 to 2^21 - 1, in place; a last one of fewer limbs keeps what is over."""
    last = limbs.shape[0] - 1
    for k in range(last):
        carry = (limbs[k] + _HALF) >> LIMB
        limbs[k] -= carry << LIMB
        limbs[k + 1] += carry
    if last == COUNT - 1:
        limbs[last] -= ((limbs[last] + _HALF) >> LIMB) << LIMB
    return limbs


def of_public(value: torch.Tensor) -> torch.Tensor:
    """An int64 as a number: three limbs, the last with its sign."""
    return torch.stack([value & _MASK, (value >> LIMB) & _MASK, value >> (2 * LIMB)])


def scaled(public: torch.Tensor, limbs: torch.Tensor) -> torch.Tensor:
    """A public number, by its limbs, times others, element by element; normal. `limbs` may have fewer than five."""
    shape = torch.broadcast_shapes(public.shape[1:], limbs.shape[1:])
    out = torch.empty((COUNT, *shape), dtype=torch.int64)
    if public.shape[1:] == limbs.shape[2:] and public[0].numel() > _BLOCK and limbs.is_contiguous():
        pairs = limbs.shape[1]
        flat = (
            public.reshape(public.shape[0], -1),
            limbs.view(limbs.shape[0], pairs, -1),
            out.view(COUNT, pairs, -1),
        )
        for block in _blocks(*flat):
            _scale(*block)
    else:
        _scale(public, limbs, out)
    return out


def _scale(public: torch.Tensor, limbs: torch.Tensor, out: torch.Tensor) -> None:
    size = limbs.shape[0]
    torch.mul(public[0], limbs, out=out[:size])
    out[size:] = 0
    for k in range(1, public.shape[0]):
        size = min(COUNT - k, limbs.shape[0])
        out[k : k + size].addcmul_(public[k], limbs[:size])
    _carried(out)


def product(op: Op, x: torch.Tensor, y: torch.Tensor, terms: int) -> torch.Tensor:
    """op(x, y) for a bilinear `op`, limb by limb, one operand public; normal. `terms` add up to one element."""
    return product_of_ready(op, ready(x, terms), ready(y, terms), terms)


def ready(limbs: torch.Tensor, terms: int) -> torch.Tensor:
    """Limbs as `product_of_ready` takes them: NOTE [Products in floating point]."""
    return balanced_(limbs.clone()).double() if terms <= _EXACT else limbs


def product_of_ready(op: Op, x: torch.Tensor, y: torch.Tensor, terms: int) -> torch.Tensor:
    """`product` of limbs that were prepared, which several products have in common."""
    in_float = terms * min(len(x), len(y)) <= _EXACT  # so many products of limbs are in one sum
    out: list[torch.Tensor | None] = [None] * COUNT
    for i, left in enumerate(x):
        for j, right in enumerate(y[: COUNT - i]):
            part = op(left, right)
            part = part if in_float or part.dtype == torch.int64 else part.long()
            found = out[i + j]
            out[i + j] = part if found is None else found.add_(part)
    whole = next(part for part in out if part is not None)
    made = torch.empty((COUNT, *whole.shape), dtype=torch.int64)
    for limb, summed in zip(made, out, strict=True):
        limb.copy_(summed) if summed is not None else limb.zero_()
    return normal_(made)


def as_integer(limbs: Sequence[torch.Tensor] | torch.Tensor) -> int:
    """The residue of one number."""
    return sum(int(limb) << (LIMB * k) for k, limb in enumerate(limbs)) % (1 << BITS)


def of_integer(value: int) -> torch.Tensor:
    """The limbs of one residue."""
    return torch.tensor([(value >> (LIMB * k)) & _MASK for k in range(COUNT)])
