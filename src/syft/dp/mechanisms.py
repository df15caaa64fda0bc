"""Numbers that may leave: every function here adds the noise that its epsilon asks for.

One duty: release mechanisms for one machine's data. Two data sets are neighbours when one has one row more
("add or remove"); functions that take rows bound what a row can do themselves, `laplace`, `gaussian`,
`exponential` and `noisy_max` believe the `sensitivity` they are told. Everything private is put on a grid of
integers before noise is added (see `noise`), and rows are added up as integers: a sum of floats depends on
their order by more than its noise hides (Casacuberta et al. 2022). Imports `noise`, `row_values`, `mpc.randomness`.

NOTE [What the data can not do]
Raise, or come out as NaN: either would tell. A row that is NaN, or no number at all (`row_values`), counts as if it stood
where its function says; infinities and everything else out of bounds are clamped. Errors come from public arguments
only, and no row stands in their text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from syft.dp.noise import LARGEST_VARIANCE, Ints, bernoulli_exp, discrete_gaussian, discrete_laplace
from syft.dp.row_values import rows_as_floats, values_as_floats
from syft.mpc.randomness import Stream

Array = Any

STEPS = 1 << 14  # grid points per sensitivity
_PRECISION = 20  # bits kept of epsilon, which is rounded down


# -- any number of a known sensitivity -------------------------------------------------------------------


def laplace(value: Array, sensitivity: float, epsilon: float, *, stream: Stream | None = None) -> Array:
    """`value` (a number or an array) with epsilon-DP noise, for an L1 `sensitivity` of the whole array."""
    _check_positive("sensitivity", sensitivity)
    flat, shape = _flat(value)
    step = Fraction(float(sensitivity)) / STEPS
    # |round(a) - round(b)| <= ceil(|a - b|): exact for one number, up to one step more for each of several.
    reach = STEPS if len(flat) <= 1 else STEPS + len(flat)
    noise = laplace_steps(len(flat), reach, epsilon, stream or Stream())
    return _off_grid(_on_grid(flat, step), noise, step, shape)


def gaussian(
    value: Array,
    sensitivity: float,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    stream: Stream | None = None,
) -> Array:
    """`value` with Gaussian noise, for an L2 `sensitivity` of the whole array.

    Either (`epsilon`, `delta`), or `noise_multiplier`: the standard deviation in sensitivities, for an
    accountant (`accounting.Gaussian(noise_multiplier)`).
    """
    _check_positive("sensitivity", sensitivity)
    if noise_multiplier is None:
        if epsilon is None or delta is None:
            raise ValueError("gaussian() takes epsilon and delta, or noise_multiplier.")
        noise_multiplier = gaussian_noise_multiplier(epsilon, delta)
    elif epsilon is not None or delta is not None:
        raise ValueError("gaussian() takes epsilon and delta, or noise_multiplier, not both.")
    _check_positive("noise_multiplier", noise_multiplier)
    flat, shape = _flat(value)
    reach, extra, variance = _gaussian_grid(noise_multiplier, len(flat))
    step = Fraction(float(sensitivity)) / max(reach - extra, 1)
    noise = discrete_gaussian(len(flat), max(variance, 1), stream or Stream())
    return _off_grid(_on_grid(flat, step), noise, step, shape)


def _gaussian_grid(noise_multiplier: float, numbers: int) -> tuple[int, int, int]:
    """Steps of the sensitivity with rounding, those for rounding, and the variance of the noise in steps^2."""
    # NB: rounding moves a vector by up to sqrt(d) steps. As many steps as the exact sampler's variance allows.
    extra = 0 if numbers <= 1 else math.isqrt(numbers) + 1
    reach = int(min(math.isqrt(LARGEST_VARIANCE) / noise_multiplier, 1 << 40))
    if reach <= 2 * extra or reach < 1:
        raise ValueError(
            f"A noise multiplier of {noise_multiplier:.4g} on {numbers} numbers is more than the exact sampler "
            "can draw: ask for a larger epsilon, or for fewer numbers at once."
        )
    variance = math.ceil(Fraction(float(noise_multiplier)) ** 2 * reach**2)
    if variance > LARGEST_VARIANCE:
        reach -= 1
        variance = math.ceil(Fraction(float(noise_multiplier)) ** 2 * reach**2)
    return reach, extra, variance


def gaussian_scale(noise_multiplier: float, numbers: int) -> float:
    """The standard deviation of the noise of `gaussian`, in sensitivities, rounding included."""
    reach, extra, variance = _gaussian_grid(noise_multiplier, numbers)
    return math.sqrt(max(variance, 1)) / max(reach - extra, 1)


@lru_cache(maxsize=256, typed=True)  # True is no 1
def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """The least standard deviation, in sensitivities, for (epsilon, delta)-DP by way of zero-concentrated DP."""
    _check_epsilon(epsilon)
    if not 0 < delta < 1:
        raise ValueError(f"delta is a probability above 0 and below 1, got {delta}.")
    low, high = 1e-4, 1e8
    for _ in range(200):
        middle = math.sqrt(low * high)
        if _log_delta(0.5 / middle**2, epsilon) > math.log(delta):
            low = middle
        else:
            high = middle
    return high


_ORDERS = 1.0 + np.exp(np.linspace(math.log(1e-4), math.log(1e7), 4000))


def _log_delta(rho: float, epsilon: float) -> float:
    """log delta of rho-zCDP at epsilon (Canonne, Kamath and Steinke 2020, corollary 13): every order is a bound."""
    a = _ORDERS
    return float(((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a)).min())


# -- the best of several ---------------------------------------------------------------------------------


def exponential(scores: Array, sensitivity: float, epsilon: float, *, stream: Stream | None = None) -> int:
    """The number of a candidate, chosen with probability proportional to exp(epsilon score / (2 sensitivity)).

    McSherry and Talwar 2007, exactly: a uniform candidate is taken with probability exp(-its gap to the best).
    """
    stream = stream or Stream()
    gaps, denominator = _scaled_gaps(scores, sensitivity, epsilon)
    while True:
        proposed = stream.below(gaps.size, 2 * gaps.size).numpy()
        taken = np.flatnonzero(bernoulli_exp(gaps[proposed], denominator, stream))
        if taken.size:
            return int(proposed[taken[0]])


def noisy_max(scores: Array, sensitivity: float, epsilon: float, *, stream: Stream | None = None) -> int:
    """The number of a candidate with nearly the largest score: never worse than `exponential` on average.

    Permute-and-flip (McKenna and Sheldon 2020), which is "report noisy max" with exponential noise (Ding et
    al. 2021): candidates in random order, the first that passes a coin of exp(-its gap to the best).
    """
    stream = stream or Stream()
    gaps, denominator = _scaled_gaps(scores, sensitivity, epsilon)
    order = stream.permutation(gaps.size).numpy()
    return int(order[np.flatnonzero(bernoulli_exp(gaps[order], denominator, stream))[0]])


def _scaled_gaps(scores: Array, sensitivity: float, epsilon: float) -> tuple[Ints, int]:
    """epsilon * (best - score) / (2 sensitivity) over a common denominator."""
    _check_positive("sensitivity", sensitivity)
    flat, shape = _flat(scores)
    if len(shape) != 1 or not flat:
        raise ValueError(f"Scores are a list of one number per candidate, got the shape {shape}.")
    on_grid = _on_grid(flat, Fraction(float(sensitivity)) / STEPS)
    numerator, denominator = _rational(epsilon, 2 * STEPS)
    best = max(on_grid)
    # Cut off at e^-512: a gap that is cut off changes less than the gap, so this costs no privacy.
    return np.array([min((best - s) * numerator, 512 * denominator) for s in on_grid], np.int64), denominator


# -- rows ------------------------------------------------------------------------------------------------


def count(rows: Array, epsilon: float, *, stream: Stream | None = None) -> int:
    """How many rows, an integer that may be negative."""
    return len(rows) + int(laplace_steps(1, 1, epsilon, stream or Stream())[0])


def histogram(
    rows: Array,
    epsilon: float,
    *,
    edges: Sequence[float] | None = None,
    categories: Iterable[Hashable] | None = None,
    stream: Stream | None = None,
) -> Ints:
    """Rows per bin between `edges` (the last bin has both its ends), or per category; may be negative.

    Bins are public: they are never found from the data. A row outside all of them, NaN too, is in none. One
    row is in one bin at most, so all bins together cost one epsilon. Equal categories (1, 1.0 and True are) are
    refused, whatever the rows are: which of them a row is in would not be said.
    """
    if (edges is None) == (categories is None):
        raise ValueError("histogram() takes either edges or categories.")
    if edges is not None:
        limits = np.asarray(edges, dtype=np.float64)
        if (
            limits.ndim != 1
            or limits.size < 2
            or not (np.isfinite(limits).all() and (np.diff(limits) > 0).all())
        ):
            raise ValueError(f"edges are two or more finite, rising numbers, got {edges!r}.")
        values = _rows(rows)
        inside = values[(values >= limits[0]) & (values <= limits[-1])]
        found = np.minimum(np.searchsorted(limits, inside, side="right") - 1, limits.size - 2)
        counts = np.bincount(found, minlength=limits.size - 1)
    else:
        named: Any = categories
        place = _places_of(named.tolist() if hasattr(named, "tolist") else list(named))
        counts = np.zeros(len(place), dtype=np.int64)
        for row in rows.tolist() if hasattr(rows, "tolist") else rows:
            number = _place_of(row, place)
            if number is not None:
                counts[number] += 1
    return counts + laplace_steps(counts.size, 1, epsilon, stream or Stream())


def _places_of(categories: list[Hashable]) -> dict[Hashable, int]:
    """The bin of each category. !! ValueError, TypeError for what is no list of different categories"""
    place: dict[Hashable, int] = {}
    for number, category in enumerate(categories):
        try:
            if place.setdefault(category, number) != number:
                raise ValueError(
                    f"categories are different from each other, and histogram() got {category!r} at {place[category]} "
                    f"and at {number}, which are equal: name each one once."
                )
        except TypeError:
            raise TypeError(
                f"A category is a value with a hash (a number, a text, a tuple of these), got a "
                f"{type(category).__name__}."
            ) from None
        if category != category:
            raise ValueError(
                "NaN is no category of histogram(): it equals nothing, so no row would be counted there."
            )
    if not place:
        raise ValueError("histogram() got no categories: name one at least.")
    return place


def _place_of(row: Any, place: dict[Hashable, int]) -> int | None:
    try:
        return place.get(row)
    except Exception:  # noqa: BLE001  (a list, a tuple that holds one, an object that does not compare: in no category)
        return None


def bounded_sum(
    rows: Array, bounds: tuple[float, float], epsilon: float, *, stream: Stream | None = None
) -> float:
    """The sum of rows clamped to `bounds`; a NaN counts as 0, clamped."""
    low, high = _check_bounds(bounds)
    largest = max(abs(low), abs(high))
    total = _sum_steps(np.clip(_rows(rows, nan=0.0), low, high), largest)
    noise = int(laplace_steps(1, STEPS, epsilon, stream or Stream())[0])
    return _to_float(Fraction(largest) / STEPS * (total + noise))


def bounded_mean(
    rows: Array, bounds: tuple[float, float], epsilon: float, *, stream: Stream | None = None
) -> float:
    """The mean of rows clamped to `bounds`; a NaN counts as the middle. Half of epsilon goes to the count."""
    low, high = _check_bounds(bounds)
    stream = stream or Stream()
    middle, half, values = _centred(rows, low, high)
    _check_epsilon(epsilon)
    noisy_count = max(1, count(values, epsilon / 2, stream=stream))
    noise = int(laplace_steps(1, STEPS, epsilon / 2, stream)[0])
    mean = middle + half * ((_sum_steps(values, half) + noise) / STEPS / noisy_count)
    return min(max(mean, low), high)


def bounded_variance(
    rows: Array, bounds: tuple[float, float], epsilon: float, *, stream: Stream | None = None
) -> float:
    """The (population) variance of rows clamped to `bounds`; a NaN counts as the middle.

    A third of epsilon each for the count, the sum and the sum of squares, all around the middle.
    """
    low, high = _check_bounds(bounds)
    stream = stream or Stream()
    _middle, half, values = _centred(rows, low, high)
    _check_epsilon(epsilon)
    noisy_count = max(1, count(values, epsilon / 3, stream=stream))
    first, second = laplace_steps(2, STEPS, epsilon / 3, stream).tolist()
    mean = (_sum_steps(values, half) + first) / STEPS / noisy_count
    square = (_sum_steps((values / half) ** 2, 1.0) + second) / STEPS / noisy_count
    return half**2 * min(max(square - min(max(mean, -1.0), 1.0) ** 2, 0.0), 1.0)


def quantile(
    rows: Array,
    fraction: float,
    bounds: tuple[float, float],
    epsilon: float,
    *,
    candidates: int = 1024,
    stream: Stream | None = None,
) -> float:
    """A value with about `fraction` of the rows below it, out of `candidates` even steps between `bounds`.

    The exponential mechanism (Smith 2011) on public candidates. A NaN counts as the middle.
    """
    low, high = _check_bounds(bounds)
    if isinstance(fraction, bool) or not 0 <= fraction <= 1:
        raise ValueError(f"fraction is between 0 and 1, got {fraction}.")
    if candidates < 2:
        raise ValueError(f"quantile() needs two candidates or more, got {candidates}.")
    middle = low / 2 + high / 2
    values = np.sort(np.clip(_rows(rows, nan=middle), low, high))
    weights = np.linspace(0.0, 1.0, candidates)
    places = low * (1 - weights) + high * weights
    below = np.searchsorted(values, places, side="right")
    # One row more moves the rank by 0 or 1 and the target by `fraction`.
    scores = -np.abs(below - fraction * values.size)
    chosen = exponential(scores, max(fraction, 1 - fraction), epsilon, stream=stream)
    return float(places[chosen])


# -- the grid --------------------------------------------------------------------------------------------


def _flat(value: Array) -> tuple[list[float], tuple[int, ...]]:
    array = values_as_floats(value)
    return array.ravel().tolist(), array.shape


def _rows(rows: Array, nan: float | None = None) -> Array:
    array = rows_as_floats(rows)
    return array if nan is None else np.where(np.isnan(array), nan, array)


def _centred(rows: Array, low: float, high: float) -> tuple[float, float, Array]:
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    return middle, half, np.clip(np.clip(_rows(rows, nan=middle), low, high) - middle, -half, half)


def _sum_steps(values: Array, largest: float) -> int:
    """The sum in steps of largest / STEPS. Each row is clipped as an integer, whatever rounding did to it."""
    steps = np.rint(values / largest * STEPS)
    return int(np.clip(steps, -STEPS, STEPS).astype(np.int64).sum())


def _on_grid(flat: list[float], step: Fraction) -> list[int]:
    """The nearest grid point of each, exactly: fractions of integers, halves upwards."""
    largest = sys.float_info.max
    finite = (0.0 if math.isnan(x) else min(max(x, -largest), largest) for x in flat)
    return [math.floor(Fraction(x) / step + Fraction(1, 2)) for x in finite]


def _off_grid(on_grid: list[int], noise: Ints, step: Fraction, shape: tuple[int, ...]) -> Array:
    released = [_to_float(step * (x + y)) for x, y in zip(on_grid, noise.tolist(), strict=True)]
    return released[0] if shape == () else np.array(released, dtype=np.float64).reshape(shape)


def _to_float(value: Fraction) -> float:
    largest = Fraction(sys.float_info.max)
    return float(min(max(value, -largest), largest))


def _rational(epsilon: float, steps: int) -> tuple[int, int]:
    """epsilon / steps as a fraction of integers, never more than it."""
    _check_epsilon(epsilon)
    bits = min(max(_PRECISION - math.frexp(epsilon)[1], 0), 49 - steps.bit_length())
    numerator = math.floor(Fraction(float(epsilon)) * (1 << bits))
    if numerator < 1:
        raise ValueError(f"epsilon = {epsilon} is less than this mechanism can be run with.")
    return numerator, steps << bits


def laplace_steps(size: int, sensitivity: int, epsilon: float, stream: Stream) -> Ints:
    """Whole numbers of noise for whole numbers, all of which together change by `sensitivity` at most (L1)."""
    numerator, denominator = _rational(epsilon, sensitivity)
    return discrete_laplace(size, denominator, numerator, stream)


def _check_positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is a finite number above 0, got {value}.")


def _check_epsilon(epsilon: float) -> None:
    if isinstance(epsilon, bool) or not 1e-9 <= epsilon <= 1e4:
        raise ValueError(f"epsilon is between 1e-9 and 1e4, got {epsilon}.")


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = (math.nan if isinstance(b, bool) else float(b) for b in bounds)
    if not (math.isfinite(low) and math.isfinite(high) and low < high and high / 2 - low / 2 >= 1e-300):
        raise ValueError(
            f"bounds are two finite numbers, the lower first, got {bounds!r}. They must not come from the data."
        )
    return low, high
