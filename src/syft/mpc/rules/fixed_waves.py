"""Odd functions of fixed precision as sums of sines: which sines. NOTE [Odd functions as waves] in `protocols.waves`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from syft.mpc.correlations_of_functions import Waves
from syft.mpc.protocols.waves import RESULT_BITS
from syft.mpc.rules import fixed_ring as ring

Function = Callable[[Any], Any]

#: Sines at most, how near they come to the function, and how near the function is to its end where it is cut.
_MOST_WAVES, _NEAR, _FLAT = 16, 2.0**-16.5, 2.0**-16.5
#: A period, in widths of [0, edge]: a little less than its reflection at the edge would give comes nearest.
_PERIOD = 3.9


def odd_function(child: Any, function: Function, scale: int, bound: float) -> Any | None:
    """function(x) in units, an odd function that stays what it is from `bound` on. Error 2^-16 and 1 unit.

    None where the child has no program for it, or the function is not near to few sines.
    """
    own = ring.fused(child, "odd_function")
    fit = _fit(function, bound, scale) if own is not None else None
    if own is None or fit is None:
        return None
    edge, end, amplitudes = fit
    factor, width = _angle(edge * _PERIOD * scale)
    given = factor, width, amplitudes, _divisor(scale)
    return own(*given, math.floor(edge * scale), round(end * scale))


def sine_of_turns(child: Any, bits: int, scale: int) -> Any | None:
    """sin(2 pi x) in units, for x with so many fractional bits; None where the child has no program for it."""
    own = ring.fused(child, "sines")
    return None if own is None else own(1, bits, (1 << Waves.AMPLITUDE_BITS,), _divisor(scale))


def _divisor(scale: int) -> int:
    return round(2.0**RESULT_BITS / scale)


def _angle(period: float) -> tuple[int, int]:
    """(factor, width): 2^width / factor units are the period, or a little more."""
    width = math.ceil(math.log2(period)) + 2
    return math.floor(2**width / period), width


@cache
def _fit(function: Function, bound: float, scale: int) -> tuple[float, float, tuple[int, ...]] | None:
    """(edge, end, amplitudes of a sine of the period that `_angle` gives for the edge, and of its odd multiples)"""
    end = float(function(4.0 * bound))
    grid = np.linspace(bound / 4, bound, 301)
    far = np.flatnonzero(np.abs(function(grid) - end) > _FLAT)
    edge = float(grid[min(far[-1] + 1, 300)]) if len(far) else float(grid[0])
    factor, width = _angle(edge * _PERIOD * scale)
    turns = edge * scale * factor / 2.0**width
    # Chebyshev's points; weights that grow where the error is large make it level.
    places = 1 - np.cos(np.linspace(0, np.pi, 600))
    exact, weights = function(edge * places / 2), np.ones(600)
    for count in range(4, _MOST_WAVES + 1):
        sines = np.sin(math.pi * np.outer(turns * places, 2 * np.arange(count) + 1))
        weights[:] = 1
        for _ in range(8):
            amplitudes = np.linalg.lstsq(sines * weights[:, None], exact * weights, rcond=1e-9)[0]
            errors = np.abs(sines @ amplitudes - exact)
            if errors.max() <= _NEAR:
                return edge, end, tuple(round(float(a) * 2**Waves.AMPLITUDE_BITS) for a in amplitudes)
            weights *= errors / errors.max() + 0.02
            weights /= weights.max()
    return None
