"""1 / deviation of secrets as a power of two times a number near 1: NOTE [Norms] in `fixed_norms`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from syft.mpc import reuse
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children
from syft.mpc.sharing import AdditiveSharingTensor

aten = torch.ops.aten

#: Fractional bits of x / sqrt(S) before it is multiplied by the root.
_BITS = 31
_HALF_ROOT = 2.0**-0.5


def inverse_root(squares: Any) -> tuple[Any, Any]:
    """(gain, root) with 1 / sqrt(squares) = gain / 2^31 * root / 2^WORK; the gain is 0 for what is not positive."""
    rows, t = approx.normalised(squares)
    # squares = y * 2^(i + 1) with 1/2 <= y < 1: half of the exponent is the gain, an odd one left is in the root.
    halves = [1 << (_BITS - (i + 1) // 2) for i in range(approx.LEADING)]
    odds = [round((_HALF_ROOT if (i + 1) % 2 else 1.0) * (1 << approx.WORK)) for i in range(approx.LEADING)]
    gain, odd = ring.weighted_rows(rows, halves, odds)
    made = approx.polynomial(approx.fitted(approx._inverse_root, 0.5, 1.0), t)
    return gain, ring.scaled(made, odd, 1 << approx.WORK)


def times_root(child: Any, gain: Any, root: Any, factor: float, bits: int = _BITS) -> Any:
    """child * factor / sqrt(S), for |child / sqrt(S)| < 2^(33 - bits). Error 1 + 2^-bits * factor."""
    shifted = ring.scaled(child, gain, 1 << (_BITS - bits))
    top = math.ceil(math.log2(factor))
    folded = approx.rescaled(root, factor / 2.0**top, 2.0 ** (approx.WORK + 1))
    return ring.scaled(shifted, folded, 1 << (bits + approx.WORK - top))


@dataclass(eq=False)
class Spread:
    """What a norm found out about its input: the norm itself, and 1 / deviation as `inverse_root` gives it."""

    norm: Any  # units
    gain: Any
    root: Any
    factor: float  # 1 / deviation = factor / sqrt(S)

    def shaped(self, shape: list[int]) -> Spread:
        """The same with the deviations in another shape."""
        gain, root = (on_children(aten.reshape.default, child, shape) for child in (self.gain, self.root))
        return Spread(self.norm, gain, root, self.factor)

    def divided(self, child: Any, finer: int) -> Any:
        """child / deviation in units, for a child in units of 1 / (scale * finer). |result| < 2^31 units."""
        factor = self.factor / finer
        bits = max(0, min(_BITS, math.ceil(math.log2(factor)) + 1))
        return times_root(child, self.gain, self.root, factor, bits)


def least(eps: float) -> int:
    """What keeps a sum of squares from being 0: an eps below half a unit is one."""
    return round(eps) or 1


def inverse_deviation(variance: FixedPrecisionTensor, eps: float) -> Spread:
    """1 / sqrt(variance + eps) of a secret variance, computed once for as long as that is not written to."""
    scale, child = variance.scale, variance.child
    least_units = least(eps * scale)

    def make() -> Spread:
        gain, root = inverse_root(ring.plus(child, least_units))
        return Spread(None, gain, root, math.sqrt(scale))

    if not isinstance(child, AdditiveSharingTensor):
        return make()
    made: Spread = reuse.derived(("inverse deviation", least_units), [child], make)
    return made
