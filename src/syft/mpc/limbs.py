"""Integers of any size as rows of small ones ("limbs"), in the clear and on ring children.

A limb of width w counts 2^w times what the next one counts; the most significant limb comes first. In the clear the limbs
of a number have its sign (or are its two's complement, in a type without signs). On a ring child (a plain int64 tensor or
a node such as an AdditiveSharingTensor, see `syft.mpc.rules.fixed_ring`) limbs are WIDTH bits wide, stand along dimension
0, and are REDUNDANT.

NOTE [Redundant limbs]
The value of limbs r_i is sum r_i B^i with B = 2^WIDTH, whatever the size and sign of each r_i; many rows of limbs
have the same value. So sums and products need no carries at once, and a carry may be the floor or the ceiling of r /
B, which is what truncation of a secret gives (`syft.mpc.protocols.truncate`): the value does not change. Known to
everybody are a bound of the limbs (`magnitude`) and of the value (`bits`: it is below 2^bits). The top limb takes no
carry out: with all other limbs at most B + 2 it is as small as the value lets it be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children

aten = torch.ops.aten

#: Bits of a limb on a ring child: products of two, thousands of them added up, stay below 2^62.
WIDTH = 16
BASE = 1 << WIDTH
#: What limbs are at most after `carried`.
TIDY = BASE + 2
#: Limbs are carried before an operation could take them past this.
LARGEST = 1 << 61
#: Signs of so many limbs are added up with weights 1, 2, 4, ...
_SIGNS = 60


# -- in the clear ----------------------------------------------------------------------------------------


def objects(values: Any, shape: Any) -> Any:
    """Python integers as a numpy array of objects."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made.reshape(tuple(shape))


def in_units(value: Any, scale: int, limits: str) -> Any:
    """A plain tensor or number in units of 1 / scale, rounded, as an array of Python integers.

    !! ValueError for complex numbers and for what is not finite; `limits` says of what kind and how large values may be
    """
    if not isinstance(value, torch.Tensor):
        return objects([_units(value, scale, limits)], ())
    if value.is_complex():
        raise ValueError(
            "Complex numbers have no fixed-precision form. Encode real and imaginary part apart."
        )
    plain = value.detach().cpu()
    numbers = (plain.double() if plain.is_floating_point() else plain).flatten().tolist()
    return objects([_units(v, scale, limits) for v in numbers], value.shape)


def _units(value: Any, scale: int, limits: str) -> int:
    if isinstance(value, (int, np.integer)):
        return int(value) * scale
    if not math.isfinite(value):
        raise ValueError(
            f"The value {value} cannot be represented {limits}. Replace it first, e.g. with torch.nan_to_num."
        )
    above, below = float(value).as_integer_ratio()
    return (2 * above * scale + below) // (2 * below)


def widest(integers: Any) -> int:
    """Bits of the largest of these integers."""
    return max((abs(v).bit_length() for v in integers.flat), default=0)


def split(integers: Any, width: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Integers as `count` limbs each, in a new last dimension; they have to fit."""
    shape = integers.shape
    rest = integers.reshape(-1)
    if not dtype.is_signed:
        rest = rest & ((1 << (width * count)) - 1) if rest.size else rest
    sign = objects([-1 if v < 0 else 1 for v in rest], rest.shape)
    rest = abs(rest)
    rows = np.zeros((count, rest.size), dtype=np.int64)
    mask = (1 << width) - 1
    for i in reversed(range(count)):
        rows[i] = (rest & mask) * sign if rest.size else 0
        rest = rest >> width
    return torch.from_numpy(rows.T.copy()).to(dtype).reshape(*shape, count)


def joined(limbs: torch.Tensor, width: int) -> Any:
    """The integers of limbs that stand in the last dimension, as an array of Python integers."""
    *shape, count = limbs.shape
    rows = limbs.detach().to(torch.int64).reshape(-1, count).t().numpy().astype(object)
    total = objects([0] * (limbs.numel() // count), (-1,)) if limbs.numel() else objects([], (0,))
    for row in rows:
        total = total * (1 << width) + row
    if not limbs.dtype.is_signed:
        half, whole = 1 << (width * count - 1), 1 << (width * count)
        total = objects([v - whole if v >= half else v for v in total], total.shape)
    return total.reshape(tuple(shape))


def public(integers: Any, count: int) -> torch.Tensor:
    """Public integers as limbs for ring children: shape (count, *shape), tidy."""
    return split(integers, WIDTH, count, torch.int64).movedim(-1, 0).contiguous()


def count_for(bits: int) -> int:
    """How many limbs a value below 2^bits has: one more than its bits take, for signs and carries."""
    return -(-bits // WIDTH) + 1


# -- on ring children: limbs along dimension 0 ------------------------------------------------------------


def resized(limbs: Any, count: int) -> Any:
    """The same value with `count` limbs; fewer only if it has room in them.

    What is above the new top limb is added to it with its weight. Weights from 2^64 on are 0 in the ring, and that is
    right: the sum is small, and known mod 2^64.
    """
    have = limbs.shape[0]
    if have <= count:
        return _padded(limbs, count - have, 0)
    kept = ring.sliced(limbs, 0, have - count, have)
    for i in range(max(have - count - 64 // WIDTH + 1, 0), have - count):
        above = ring.times(ring.sliced(limbs, 0, i, i + 1), 1 << WIDTH * (have - count - i))
        kept = ring.plus(kept, _padded(above, 0, count - 1))
    return kept


def _padded(limbs: Any, above: int, below: int) -> Any:
    """With limbs of 0 above and below."""
    pad = [0, 0] * (len(limbs.shape) - 1) + [above, below]
    return on_children(aten.constant_pad_nd.default, limbs, pad, 0) if above or below else limbs


def carried(limbs: Any, magnitude: int) -> Any:
    """The same value in as many limbs, each at most TIDY; the value has to have room in them."""
    count = limbs.shape[0]
    if count == 1 or 0 in limbs.shape:
        return limbs
    while magnitude > TIDY:
        lower = ring.sliced(limbs, 0, 1, count)
        carry = ring.truncate(lower, BASE)
        limbs = _moved_up(limbs, carry)
        magnitude = BASE - 1 + (magnitude >> WIDTH) + 1
    return limbs


def _moved_up(limbs: Any, carry: Any) -> Any:
    """Take carry * BASE off every limb but the top one, and add carry to the limb above."""
    taken, given = _padded(ring.times(carry, BASE), 1, 0), _padded(carry, 0, 1)
    return ring.plus(ring.minus(limbs, taken), given)


def dropped(limbs: Any, count: int) -> Any:
    """value / B^count to an integer next to it, from tidy limbs: off by less than 1.0001."""
    return ring.sliced(limbs, 0, 0, limbs.shape[0] - count)


def product(one: Any, other: Any) -> Any:
    """Limbs of the elementwise product, before carries: at most min(counts) * magnitudes in size."""
    pairs = ring.times(ring.unsqueezed(one, 1), ring.unsqueezed(other, 0))
    return _by_weight(pairs, one.shape[0], other.shape[0])


def matrix_product(one: Any, other: Any) -> Any:
    """Limbs of (..., i, k) @ (..., k, j), before carries, where the limbs are rows of matrices."""
    n, m = one.shape[0], other.shape[0]
    left = torch.arange(n).repeat_interleave(m)
    right = torch.arange(m).repeat(n)
    pairs = on_children(
        aten.bmm.default,
        on_children(aten.index_select.default, one, 0, left),
        on_children(aten.index_select.default, other, 0, right),
    )
    return _by_weight(on_children(aten.reshape.default, pairs, [n, m, *pairs.shape[1:]]), n, m)


def _by_weight(pairs: Any, n: int, m: int) -> Any:
    """Add up the pairs (n, m, ...) of limbs that have the same weight, which is that of i + j.

    Rows of length m + n, read again as rows of length m + n - 1, are shifted by one more each: the sum of the
    columns is it."""
    shape, width = list(pairs.shape[2:]), n + m - 1
    size = int(np.prod(shape))
    flat = on_children(aten.reshape.default, pairs, [n, m, size])
    padded = on_children(aten.constant_pad_nd.default, flat, [0, 0, 0, n], 0)
    rows = on_children(aten.reshape.default, padded, [n * (m + n), size])
    shifted = on_children(aten.reshape.default, ring.sliced(rows, 0, 0, n * width), [n, width, size])
    return on_children(aten.reshape.default, ring.summed(shifted, [0]), [width, *shape])


def sign(limbs: Any) -> Any:
    """A number with the sign of the value, below 2^61 in size, from tidy limbs. Exact.

    First limbs are brought to at most B / 2 + 1: then all that is below a limb is less than that limb's unit, so the sign
    of the value is that of the first limb that is not 0. Signs with weights 1, 2, 4, ... have the same property.
    """
    if limbs.shape[0] > 1 and 0 not in limbs.shape:
        lower = ring.sliced(limbs, 0, 1, limbs.shape[0])
        half = BASE // 2
        above, below = ring.unstacked(
            ring.less_than_zero(ring.stacked([ring.from_public(half, lower), ring.plus(lower, half)]))
        )
        limbs = _moved_up(limbs, ring.minus(above, below))
    while limbs.shape[0] > 1:
        limbs = _grouped_signs(limbs)
    return ring.sliced(limbs, 0, 0, 1)


def _grouped_signs(limbs: Any) -> Any:
    """Signs of limbs, _SIGNS of them joined to one number of the same sign."""
    positive, negative = ring.unstacked(ring.less_than_zero(ring.stacked([ring.negated(limbs), limbs])))
    signs = ring.minus(positive, negative)
    count, *shape = limbs.shape
    groups = -(-count // _SIGNS)
    weights = torch.zeros(groups, count, dtype=torch.int64)
    for i in range(count):  # counted from the least significant limb
        group, place = divmod(count - 1 - i, _SIGNS)
        weights[groups - 1 - group, i] = 1 << place
    flat = on_children(aten.reshape.default, signs, [count, int(np.prod(shape))])
    return on_children(aten.reshape.default, on_children(aten.mm.default, weights, flat), [groups, *shape])
