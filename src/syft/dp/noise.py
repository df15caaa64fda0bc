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

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from syft.mpc.randomness import Stream

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LARGEST_SCALE = 1 << 50
LARGEST_VARIANCE = 1 << 22  # of the exact Gaussian: what it compares then fits into 63 bits

ROUNDED_STEPS = 1 << 32  # grid points per standard deviation of `rounded_gaussian`
_PAIRS_AT_ONCE = 1 << 15  # of its draws: they stay in the cache


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
# certain where this one was. With 64 bits they are not, far out (beyond 7 standard deviations) and next to 0: there
# the number has 64 bits more, or is taken from 1 exactly. So every pair of integers up to 13 standard deviations is
# possible; beyond it is e^-85. (Probabilities are right up to double precision, not exactly: for exact ones there is
# `discrete_gaussian`.)
_FAR, _NEAR = np.uint64(1 << 40), np.uint64((1 << 64) - (1 << 44))


def _logarithms(words: npt.NDArray[np.uint64], rounded: npt.NDArray[np.float64], stream: Stream) -> Any:
    """log of (word + 1) / 2^64, and of a uniform number between two such where the words are small."""
    found = np.log((rounded + 1.0) * 2.0**-64)
    far, near = np.flatnonzero(words < _FAR), np.flatnonzero(words >= _NEAR)
    if far.size:
        more = stream.words(far.size).numpy().view(np.uint64).astype(np.float64)
        found[far] = np.log((rounded[far] + (more + 1.0) * 2.0**-64) * 2.0**-64)
    if near.size:
        found[near] = np.log1p(-(~words[near]).astype(np.float64) * 2.0**-64)
    return found


def rounded_gaussian(count: int, stream: Stream) -> Ints:
    """`count` draws of a normal with standard deviation ROUNDED_STEPS, rounded to integers.

    Box and Muller 1958; see NOTE [Circles].
    """
    half = (count + 1) // 2
    words = stream.words(2 * half).numpy().view(np.uint64).reshape(2, half)
    drawn = np.empty((2, half), dtype=np.int64)
    for start in range(0, half, _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        first, second = words[:, part].astype(np.float64)
        radius = np.sqrt(-2.0 * _logarithms(words[0, part], first, stream)) * float(ROUNDED_STEPS)
        # NB: torch's sine and cosine are as exact as numpy's, and several times as fast.
        angle = torch.from_numpy(second * (2.0 * math.pi * 2.0**-64))
        drawn[0, part] = np.rint(radius * angle.cos().numpy())
        drawn[1, part] = np.rint(radius * angle.sin().numpy())
    return drawn.ravel()[:count]
