"""Integer noise with exactly the stated distribution, from AES-CTR streams keyed by the operating system.

One duty: the samplers of Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020
("the paper" below), many draws at once. Only integers are drawn and compared, so no probability is rounded.
Continuous noise in floating point has holes that tell which value it was added to (Mironov 2012, "On
significance of the least significant bits for differential privacy"); a grid of integers has none. How long
a draw takes depends on the noise, not on what it will be added to. Imports `mpc.randomness`.

`rounded_gaussian` is the fast way for millions of draws (DP-SGD): on a grid too, with probabilities that are
right up to double precision.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from syft.mpc.randomness import Stream

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]
Functions = tuple[Callable[[Doubles], Any], Callable[[Doubles], Any]]

LARGEST_SCALE = 1 << 50
LARGEST_VARIANCE = 1 << 22  # of the exact Gaussian: what it compares then fits into 63 bits

ROUNDED_STEPS = 1 << 32  # grid points per standard deviation of `rounded_gaussian`
_AT_ONCE = 1 << 16  # draws of it, which stay in the cache
_PAIRS_AT_ONCE = _AT_ONCE // 4


def bernoulli_exp(numerators: Ints, denominator: int, stream: Stream) -> Bools:
    """True with probability exp(-numerator / denominator), for each numerator (the paper, algorithm 1)."""
    numerators = np.asarray(numerators, dtype=np.int64)
    whole, rest = np.divmod(numerators.ravel(), denominator)
    alive = _bernoulli_exp_fraction(rest, denominator, stream)
    # exp(-whole) is `whole` independent successes of exp(-1); the first failure ends it.
    pending = np.flatnonzero(alive & (whole > 0))
    done = 0
    while pending.size:
        ones = _bernoulli_exp_fraction(np.ones(pending.size, np.int64), 1, stream)
        alive[pending[~ones]] = False
        done += 1
        pending = pending[ones & (whole[pending] > done)]
    return alive.reshape(numerators.shape)


def _bernoulli_exp_fraction(numerators: Ints, denominator: int, stream: Stream) -> Bools:
    """The same for numerator <= denominator: von Neumann's alternating series, drawn term by term."""
    odd = np.zeros(numerators.size, dtype=bool)
    pending, k = np.arange(numerators.size), 1
    while pending.size:
        goes_on = stream.below(denominator * k, pending.size).numpy() < numerators[pending]
        odd[pending[~goes_on]] = k % 2 == 1
        pending, k = pending[goes_on], k + 1
    return odd


def discrete_laplace(count: int, numerator: int, denominator: int, stream: Stream) -> Ints:
    """`count` draws with Pr[y] proportional to exp(-|y| * denominator / numerator) (the paper, algorithm 2)."""
    if not (1 <= numerator <= LARGEST_SCALE and denominator >= 1):
        raise ValueError(
            f"The scale of discrete Laplace noise is a fraction with a numerator from 1 to 2^50, got "
            f"{numerator}/{denominator}."
        )
    drawn = np.zeros(count, dtype=np.int64)
    pending = np.arange(count)
    while pending.size:
        low = stream.below(numerator, pending.size).numpy()
        kept = bernoulli_exp(low, numerator, stream)
        high = _geometric(pending.size, stream)
        size = (low + numerator * high) // denominator
        negative = stream.bits(pending.size).numpy() == 1
        kept &= ~(negative & (size == 0))  # zero would come up twice as often
        drawn[pending[kept]] = np.where(negative, -size, size)[kept]
        pending = pending[~kept]
    return drawn


def _geometric(count: int, stream: Stream) -> Ints:
    """How many successes of probability exp(-1) before the first failure."""
    drawn = np.zeros(count, dtype=np.int64)
    pending = np.arange(count)
    while pending.size:
        pending = pending[_bernoulli_exp_fraction(np.ones(pending.size, np.int64), 1, stream)]
        drawn[pending] += 1
    return drawn


def discrete_gaussian(count: int, variance: int, stream: Stream) -> Ints:
    """`count` draws with Pr[y] proportional to exp(-y^2 / (2 variance)) (the paper, algorithm 3)."""
    if not 1 <= variance <= LARGEST_VARIANCE:
        raise ValueError(f"The variance of discrete Gaussian noise is from 1 to 2^22, got {variance}.")
    scale = math.isqrt(variance) + 1
    drawn = np.zeros(count, dtype=np.int64)
    pending = np.arange(count)
    while pending.size:
        proposed = discrete_laplace(pending.size, scale, 1, stream)
        # (|y| - variance/scale)^2 / (2 variance), over the common denominator. NB: |y| beyond 2^19 is some 256
        # scales away, e^-256: the clip keeps the square inside 63 bits and is never seen.
        distance = np.minimum(np.abs(proposed), 1 << 19) * scale - variance
        kept = bernoulli_exp(distance**2, 2 * variance * scale**2, stream)
        drawn[pending[kept]] = proposed[kept]
        pending = pending[~kept]
    return drawn


# NOTE [Circles]
# A pair of draws lies on a circle, whose radius follows from the logarithm of one uniform number. Circles must be
# closer to each other than the grid is fine, or a pair may be impossible where another value was noised, and
# certain where this one was. A word made a double keeps 53 bits, with which they are not, far out (beyond 5.2 standard
# deviations) and next to 0: there the number is taken from all bits of the word, with 64 bits more far out, or from 1
# exactly. So every pair of integers up to 13 standard deviations is possible; beyond it is e^-85. (Probabilities are
# right up to double precision, not exactly: for exact ones there is `discrete_gaussian`.)
_LEAST = -(1 << 63)
_FAR, _NEAR = _LEAST + (1 << 44), (1 << 63) - (1 << 44)
#: Logarithms of these, and a little towards the middle: whoever is among them is looked at again, word by word.
_LOG_FAR, _LOG_NEAR = -20 * math.log(2) * (1 - 1e-9), -(2.0**-20) * (1 + 1e-6)


#: Logarithms and tangents, in place, of either library.
_OF_NUMPY: Functions = (lambda x: np.log(x, out=x), lambda x: np.tan(x, out=x))
_OF_TORCH: Functions = (lambda x: torch.from_numpy(x).log_(), lambda x: torch.from_numpy(x).tan_())


@functools.lru_cache(maxsize=1)
def _faster() -> Functions:
    """Which library's are faster here. With AVX-512 it is NumPy's, by three times; on other processors torch's."""
    numbers = np.linspace(0.1, 1.5, 1 << 12)

    def time_of(functions: Functions) -> float:
        began = time.perf_counter()
        for function in functions:
            function(numbers.copy())
        return time.perf_counter() - began

    return min((_OF_NUMPY, _OF_TORCH), key=lambda functions: min(time_of(functions) for _ in range(5)))


def _set_logarithms(found: Doubles, words: Ints, stream: Stream) -> None:
    """log of (word + 2^63 + 1) / 2^64, and of a uniform number between two such where the words are small."""
    found[:] = words
    found += 2.0**63 + 1.0
    found *= 2.0**-64
    log, _tan = _faster()
    with np.errstate(divide="ignore"):  # of 0, which is among those that are looked at again
        log(found)
    # NB: whether there can be such words is seen by their logarithms, which is faster.
    if found.min() <= _LOG_FAR and len(far := np.flatnonzero(words < _FAR)):
        exact = (words[far] ^ _LEAST).astype(np.float64)
        more = (stream.words(len(far)).numpy().view(np.uint64).astype(np.float64) + 1.0) * 2.0**-64
        found[far] = np.log((exact + more) * 2.0**-64)
    if found.max() >= _LOG_NEAR:
        near = np.flatnonzero(words >= _NEAR)
        found[near] = np.log1p((words[near] - ((1 << 63) - 1)) * 2.0**-64)


def rounded_gaussian(count: int, stream: Stream) -> torch.Tensor:
    """`count` draws of a normal with standard deviation ROUNDED_STEPS, rounded to whole numbers.

    Box and Muller 1958; see NOTE [Circles]. They are doubles, which hold whole numbers up to 2^53 exactly: none is beyond
    14 * 2^32. Where one is added to another whole number, what comes out is their exact sum, rounded if it is beyond
    2^53: that depends on the sum alone.
    """
    words = stream.words(count + count % 2).numpy()
    _set_draws(words, stream)
    return torch.from_numpy(words.view(np.float64)[:count])


def _set_draws(words: Ints, stream: Stream) -> None:
    """An even number of words become as many draws: doubles, in the memory of the words."""
    half, (_log, tan) = len(words) // 2, _faster()
    pairs = words.reshape(2, half)
    drawn = pairs.view(np.float64)
    memory = np.empty((2, min(half, _PAIRS_AT_ONCE)))
    for start in range(0, half, _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        x, y = drawn[:, part]
        radius, t = memory[:, : len(x)]
        # NB: ROUNDED_STEPS is a power of two, so that the root of its square is exact.
        _set_logarithms(radius, pairs[0, part], stream)
        radius *= -2.0 * ROUNDED_STEPS**2
        np.sqrt(radius, out=radius)
        # With t the tangent of half the angle, its cosine is 2 / (1 + t^2) - 1, its sine 2 t / (1 + t^2).
        np.multiply(pairs[1, part], math.pi * 2.0**-64, out=t)
        tan(t)
        np.multiply(t, t, out=y)
        y += 1.0
        np.divide(radius, y, out=y)
        y *= 2.0
        np.subtract(y, radius, out=x)
        y *= t
        np.rint(x, out=x)
        np.rint(y, out=y)


class RoundedGaussians:
    """`count` draws of `rounded_gaussian`, made as they are taken: as many at a time as stay in the cache of a core."""

    def __init__(self, count: int, stream: Stream) -> None:
        self._left, self._stream = count, stream
        at_once = min(count, _AT_ONCE)
        #: What the draws are made in, with two words of slack for `Stream.fill`.
        self._memory = np.empty(at_once + at_once % 2 + 2, dtype=np.int64)
        self._made = torch.empty(0, dtype=torch.float64)

    def take(self, count: int) -> Iterator[tuple[int, torch.Tensor]]:
        """The next `count` draws, in parts: where each begins, and what it is. None is given twice.

        NB: a part is gone when the next one is asked for, which is made in its memory.
        """
        start = 0
        while start < count:
            if not self._made.numel():
                self._make()
            taken, self._made = self._made[: count - start], self._made[count - start :]
            yield start, taken
            start += taken.numel()

    def _make(self) -> None:
        size = min(self._left, _AT_ONCE)
        words = self._memory[: size + size % 2]
        self._stream.fill(memoryview(self._memory.view(np.uint8).data), words.nbytes)
        _set_draws(words, self._stream)
        self._made = torch.from_numpy(words.view(np.float64)[:size])
        self._left -= size
