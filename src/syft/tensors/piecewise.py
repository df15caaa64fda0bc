"""Piecewise polynomials: fitting them, and evaluating them on anything that adds, multiplies and compares.

`Approximation` is the record: pieces that adjoin, what happens outside, and the largest error found.
`interpolate`, `least_squares` and `join` make one; calling one evaluates it. Knows torch and numpy, and
nothing of chains.

NOTE [What evaluation may use]
A secret-shared tensor can add, multiply and compare, so nothing else is used. Where a tensor has pieces to
choose from, comparisons select the *coefficients* (public constants times bits, free on shares), and then
one Horner scheme runs, instead of one per piece. Every power is one of t = (x - centre) / half width, which
stays in [-1, 1]: intermediate values stay as small as the coefficients, which suits fixed precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

Function = Callable[[Any], Any]
Interval = tuple[float, float]

#: Outside its interval an approximation keeps the value of the nearer end, or its outer pieces go on.
SATURATE, EXTEND = "saturate", "extend"

#: Powers of t of a higher degree cancel so much that float64 is used up.
MAX_DEGREE = 32
#: How far `interpolate` splits an interval to reach a precision.
MAX_PIECES = 256
_GRID = 1000


@dataclass(frozen=True)
class Piece:
    """A polynomial on [low, high]: sum of coefficients[i] * t**i, t running from -1 to 1."""

    low: float
    high: float
    coefficients: tuple[float, ...]

    @property
    def centre(self) -> float:
        return (self.low + self.high) / 2

    @property
    def scale(self) -> float:
        """What x - centre is multiplied with to give t."""
        return 2 / (self.high - self.low)


@dataclass(frozen=True)
class Approximation:
    """A function made of polynomials.

    name     the function it stands for
    pieces   in ascending order; each begins where the one before ends, all have the same degree
    error    the largest |approximation - function| on a dense grid over the interval, in float64
             (another dtype or a fixed precision adds its own rounding)
    outside  "saturate": beyond the interval the value of the nearer end, and slope 0
             "extend": the outer pieces go on, and no error is claimed
    """

    name: str
    pieces: tuple[Piece, ...]
    error: float
    outside: str = SATURATE

    @property
    def interval(self) -> Interval:
        return self.pieces[0].low, self.pieces[-1].high

    @property
    def degree(self) -> int:
        return len(self.pieces[0].coefficients) - 1

    def __call__(self, x: Any) -> Any:
        """The approximation at every element of a tensor, chain or number; torch differentiates it."""
        if not isinstance(x, torch.Tensor):
            x = torch.as_tensor(x)
        if x.is_complex():
            raise ValueError(
                f"The approximation of {self.name} was called on a complex tensor; it knows only "
                "real numbers. Pass `x.real` or `x.abs()`."
            )
        if not x.is_floating_point():
            x = x.to(torch.get_default_dtype())
        bounded = _clamp(x, *self.interval) if self.outside == SATURATE else x
        if len(self.pieces) == 1:
            (piece,) = self.pieces
            return _horner(piece.coefficients, (bounded - piece.centre) * piece.scale)
        return self._evaluate_selected(x, bounded)

    def _evaluate_selected(self, x: Any, bounded: Any) -> Any:
        """Select centre, scale and coefficients of every element's piece, then evaluate once."""
        bits = _piece_bits(x, [piece.low for piece in self.pieces[1:]])

        def selected(constants: Sequence[float]) -> Any:
            total: Any = 0.0
            for bit, constant in zip(bits, constants, strict=True):
                total = total + bit * constant
            return total

        scales = [piece.scale for piece in self.pieces]
        equally_wide = max(scales) - min(scales) <= 1e-9 * scales[0]
        t = (bounded - selected([p.centre for p in self.pieces])) * (
            scales[0] if equally_wide else selected(scales)
        )
        return _horner(
            [selected(column) for column in zip(*(p.coefficients for p in self.pieces), strict=True)], t
        )


def _horner(coefficients: Sequence[Any], t: Any) -> Any:
    if len(coefficients) == 1:
        return t * 0.0 + coefficients[0]
    value = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = value * t + coefficient
    return value


def _as_bits(comparison: Any, like: Any) -> Any:
    """0 and 1 in the dtype of `like`: torch would compute with booleans in its default dtype."""
    return comparison.to(like.dtype) if comparison.dtype is torch.bool else comparison


def _clamp(x: Any, low: float, high: float) -> Any:
    if type(x) in (torch.Tensor, torch.nn.Parameter):
        return x.clamp(low, high)  # the same, and right for infinities
    below, above = _as_bits(x < low, x), _as_bits(x > high, x)
    # NB: not x + below * (low - x), which loses `low` next to a large x.
    return x * (1 - below - above) + below * low + above * high


def _piece_bits(x: Any, breaks: Sequence[float]) -> list[Any]:
    """For every piece a tensor that is 1 where x lies in it and 0 elsewhere."""
    reached = [_as_bits(x >= point, x) for point in breaks]
    between = [one - other for one, other in pairwise(reached)]
    return [1 - reached[0], *between, reached[-1]]


# -- fitting -----------------------------------------------------------------------------------------


def interpolate(
    function: Function,
    interval: Interval,
    degree: int,
    precision: float | None = None,
    *,
    pieces: int = 1,
    outside: str = SATURATE,
    name: str = "",
) -> Approximation:
    """Polynomials through the values of `function` at Chebyshev points, on `pieces` equal parts.

    With a `precision`, the number of pieces is doubled until the error is at most that. From degree 1 on
    the ends of a piece are among its points, so that the approximation is exact there and continuous.
    """
    low, high = _checked_interval(interval)
    _check_degree(degree)
    if pieces < 1:
        raise ValueError(f"An approximation of {pieces} pieces was asked for. Ask for at least one.")
    if precision is not None and not precision > 0:
        raise ValueError(
            f"The precision {precision} cannot be reached. Give the largest error you accept, e.g. 1e-3."
        )
    while True:
        breaks = np.linspace(low, high, pieces + 1).tolist()
        parts = [(a, b, function) for a, b in pairwise(breaks)]
        made = join(parts, degree, outside=outside, name=name or _name_of(function))
        if precision is None or made.error <= precision:
            return made
        if 2 * pieces > MAX_PIECES:
            raise ValueError(
                f"{made.name} is approximated on [{low}, {high}] with an error of {made.error:.3g} by "
                f"{pieces} pieces of degree {degree}, and {precision} was asked for. "
                "Raise the degree, or make the interval smaller."
            )
        pieces *= 2


def least_squares(
    function: Function, interval: Interval, degree: int, *, outside: str = SATURATE, name: str = ""
) -> Approximation:
    """The one polynomial with the least mean square error on Chebyshev points of the interval.

    Does not pass through the ends, but is calmer than `interpolate` where the function is noisy.
    """
    low, high = _checked_interval(interval)
    _check_degree(degree)
    t = _grid(degree)
    values = _values(function, (low + high) / 2 + t * (high - low) / 2)
    piece = _piece(low, high, np.polynomial.chebyshev.chebfit(t, values, degree))
    return _with_error([(low, high, function)], (piece,), outside, name or _name_of(function))


def join(
    parts: Sequence[tuple[float, float, Function]], degree: int, *, outside: str = SATURATE, name: str = ""
) -> Approximation:
    """One interpolated piece per part (low, high, function); the parts adjoin, in ascending order."""
    _check_degree(degree)
    checked = _checked_parts(parts)
    pieces = tuple(_interpolated_piece(low, high, function, degree) for low, high, function in checked)
    return _with_error(checked, pieces, outside, name or _name_of(checked[0][2]))


def _interpolated_piece(low: float, high: float, function: Function, degree: int) -> Piece:
    t = np.zeros(1) if degree == 0 else np.polynomial.chebyshev.chebpts2(degree + 1)
    # chebpts2 are the extrema of a Chebyshev polynomial: fitting through as many points as there are
    # coefficients interpolates, and the system is well conditioned.
    values = _values(function, (low + high) / 2 + t * (high - low) / 2)
    return _piece(low, high, np.polynomial.chebyshev.chebfit(t, values, degree))


def _piece(low: float, high: float, coefficients: Any) -> Piece:
    powers = np.polynomial.chebyshev.cheb2poly(coefficients).tolist()
    powers += [0.0] * (len(coefficients) - len(powers))  # cheb2poly drops a leading zero
    return Piece(low, high, tuple(powers))


def _with_error(
    parts: Sequence[tuple[float, float, Function]], pieces: tuple[Piece, ...], outside: str, name: str
) -> Approximation:
    """The approximation with the error it has when it is evaluated as users evaluate it."""
    if outside not in (SATURATE, EXTEND):
        raise ValueError(f"outside={outside!r} is unknown. Choose {SATURATE!r} or {EXTEND!r}.")
    error = 0.0
    t = _grid(len(pieces[0].coefficients) - 1)
    for (low, high, function), piece in zip(parts, pieces, strict=True):
        true = _values(function, (low + high) / 2 + t * (high - low) / 2)
        error = max(error, float(np.max(np.abs(_horner(piece.coefficients, t) - true))))
    return Approximation(name, pieces, error, outside)


def _grid(degree: int) -> Any:
    """Points of [-1, 1], ends included, far denser than a polynomial of this degree oscillates."""
    return -np.cos(np.linspace(0.0, np.pi, max(_GRID, 32 * degree) + 1))


def _values(function: Function, points: Any) -> Any:
    argument = _argument_type(function, float(points[len(points) // 2]))
    values = np.array([float(function(argument(point))) for point in points.tolist()])
    if not np.isfinite(values).all():
        first = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"{_name_of(function)} is {values[first]} at {points[first]:.6g}, so it cannot be approximated "
            "there. Choose an interval on which the function is finite."
        )
    return values


def _argument_type(function: Function, point: float) -> Callable[[float], Any]:
    """What `function` takes, asked at one point: a number (math, numpy, plain Python) or a tensor."""
    try:
        float(function(np.float64(point)))
        return np.float64
    except (TypeError, AttributeError):
        return lambda number: torch.tensor(number, dtype=torch.float64)


def _name_of(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _check_degree(degree: int) -> None:
    if not isinstance(degree, (int, np.integer)) or degree < 0:
        raise ValueError(
            f"A polynomial of degree {degree} was asked for. The degree is a whole number, 0 or more."
        )
    if degree > MAX_DEGREE:
        raise ValueError(
            f"A polynomial of degree {degree} was asked for; above {MAX_DEGREE} rounding spoils it. "
            "Use more pieces of a lower degree."
        )


def _checked_interval(interval: Any) -> Interval:
    try:
        low, high = (float(end) for end in interval)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{interval!r} is not an interval. Give its two ends, e.g. (-1.0, 1.0).") from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"The interval [{low}, {high}] is empty or not finite. Give (low, high) with low < high."
        )
    return low, high


def _checked_parts(parts: Sequence[Any]) -> list[tuple[float, float, Function]]:
    if not parts:
        raise ValueError(
            "An approximation without pieces was asked for. Give at least one (low, high, function)."
        )
    checked: list[tuple[float, float, Function]] = []
    for part in parts:
        if not isinstance(part, (tuple, list)) or len(part) != 3 or not callable(part[2]):
            raise ValueError(
                f"The piece {part!r} cannot be fitted. Give each piece as (low, high, function)."
            )
        low, high = _checked_interval(part[:2])
        if checked and checked[-1][1] != low:
            raise ValueError(
                f"A piece ends at {checked[-1][1]} and the next begins at {low}. "
                "Order the pieces and let each begin where the one before ends."
            )
        checked.append((low, high, part[2]))
    return checked
