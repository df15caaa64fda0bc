"""Noise as wide as a smooth sensitivity: one integer that may be published, and what publishing it costs.

One duty: the Gaussian mechanism whose scale depends on the data too (Nissim, Raskhodnikova and Smith 2007, "NRS";
in Rényi divergence: Papernot et al. 2018, "Scalable private learning with PATE", the GNSS mechanism), drawn exactly.
Imports `mpc.randomness`.

NOTE [A data-dependent scale on a public grid]
Floating-point noise has holes that tell what it was added to (Mironov 2012). Here both the value and the scale
depend on the data, so neither may shape the grid: the value is an integer of public steps, and the noise is a
discrete Gaussian over ALL integers (Canonne, Kamath and Steinke 2020), whose variance is any positive fraction. The
scale is in the probabilities, not in the set of values: whatever is published is possible for every neighbour.

Let two neighbours have the values v, v' and the sensitivities S, S', with |v - v'| <= min(S, S') and
exp(-beta) <= S'/S <= exp(beta). Both hold exactly if v is an exact integer, S is an exact fraction, and no
rounding breaks the smoothness: `decays` are therefore integers of which each is at least exp(-beta) times the one
before. The greater of S and a public constant is beta-smooth as well; `noisy_steps` takes it.

The divergence of order a is that of the two normals, `release_cost`, and what the sums over integers add to
the integrals. Write s, s' for the two scales and theta(s) = sum over k of exp(-2 (pi s k)^2). By Poisson's
summation formula the sum of exp(-(x - c)^2 / (2 s^2)) over the integers x is sqrt(2 pi) s theta(s) for an integer
c, and no more for any other c. So the divergence is at most that of the normals + log(theta(1/sqrt(p))) / (a - 1)
+ log(theta(s')), where p = a/s^2 + (1 - a)/s'^2. For s' <= s it is 1/p >= s'^2, otherwise 1/p >= s^2 / a. The
scales are at least 8 sqrt(a), so every theta is below 1 + 3 exp(-1260), and the addition is less than any positive
double: nothing else has to be paid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from syft.mpc.randomness import Stream


def release_cost(order: float, beta: float, noise: float) -> float:
    """The divergence, at `order`, of publishing f + S * N(0, noise^2) for a beta-smooth sensitivity S of f.

    The exact divergence of the two normals (Gil et al. 2013, table 2) in place of the paper's bound on it. Both
    means differ by at most the lesser sensitivity, and the ratio r of the sensitivities is between exp(-beta) and
    exp(beta); both terms are largest at r = exp(-beta), our neighbour's noise being the lesser. Finite for
    order * (1 - exp(-2 beta)) < 1. See NOTE [A data-dependent scale on a public grid].
    """
    if not (math.isfinite(order) and order > 1):
        raise ValueError(f"A Rényi order is a finite number above 1, got {order}.")
    if not (math.isfinite(noise) and noise > 0):
        raise ValueError(f"noise is in units of the smooth sensitivity, finite and above 0, got {noise}.")
    mixed = 1.0 + order * math.expm1(-2.0 * beta)  # order r^2 + (1 - order)
    if not (beta > 0 and mixed > 0):
        raise ValueError(
            f"beta = {beta} does not fit order {order}: it must be above 0 and below "
            f"{-0.5 * math.log1p(-1.0 / order):.3g}."
        )
    shift = order * math.exp(-2.0 * beta) / (2.0 * noise**2 * mixed)
    return shift + (-order * beta - 0.5 * math.log(mixed)) / (order - 1.0)


ONE = 1 << 60  # what `decays` counts 1 as


def decays(beta: float) -> Iterator[int]:
    """exp(-beta d) for d = 0, 1, 2, ..., rounded up to multiples of 1 / ONE, as integers of them.

    Each is at least exp(-beta) times the one before, and none is 0: a maximum over d of decay times what can be
    found within d is beta-smooth exactly.
    """
    # NB: `exp` is off by less than one unit in its last place, so the next double is not below exp(-beta).
    ratio = Fraction(min(math.nextafter(math.exp(-beta), 2.0), 1.0))
    decay = ONE
    while True:
        yield decay
        decay = math.ceil(decay * ratio)


def noisy_steps(value: int, sensitivity: Fraction, order: float, noise: float, stream: Stream) -> int:
    """`value` with noise `noise` times as wide as its smooth `sensitivity`, all in public steps.

    Costs `release_cost(order, beta, noise)` at that order, or less.
    """
    scale = max(sensitivity * Fraction(float(noise)), Fraction(8 * (math.isqrt(math.ceil(order)) + 1)))
    return value + discrete_gaussian(scale**2, stream)


def discrete_gaussian(variance: Fraction, stream: Stream) -> int:
    """One integer y with probability proportional to exp(-y^2 / (2 variance)), for any positive fraction.

    Canonne, Kamath and Steinke 2020, algorithm 3, in Python's integers: `noise.discrete_gaussian` draws millions, but
    of variances up to 2^22 only.
    """
    if not variance > 0:
        raise ValueError(f"The variance of discrete Gaussian noise is above 0, got {variance}.")
    above, below = variance.numerator, variance.denominator
    width = math.isqrt(above // below) + 1
    while True:
        drawn = _discrete_laplace(width, stream)
        # (|y| - variance/width)^2 / (2 variance), over the common denominator.
        distance = abs(drawn) * below * width - above
        if _bernoulli_exp(distance**2, 2 * above * below * width**2, stream):
            return drawn


def _discrete_laplace(width: int, stream: Stream) -> int:
    """One integer y with probability proportional to exp(-|y| / width) (the same, algorithm 2)."""
    while True:
        low = _below(width, stream)
        if not _bernoulli_exp(low, width, stream):
            continue
        high = 0
        while _bernoulli_exp(1, 1, stream):
            high += 1
        size = low + width * high
        negative = _below(2, stream) == 1
        if size or not negative:  # zero would come up twice as often
            return -size if negative else size


def _bernoulli_exp(numerator: int, denominator: int, stream: Stream) -> bool:
    """True with probability exp(-numerator / denominator) (the same, algorithm 1)."""
    whole, rest = divmod(numerator, denominator)
    # exp(-whole) is `whole` independent successes of exp(-1); the first failure ends it.
    return all(_alternates(1, 1, stream) for _ in range(whole)) and _alternates(rest, denominator, stream)


def _alternates(numerator: int, denominator: int, stream: Stream) -> bool:
    """The same for numerator <= denominator: von Neumann's alternating series, drawn term by term."""
    terms = 1
    while _below(denominator * terms, stream) < numerator:
        terms += 1
    return terms % 2 == 1


def _below(bound: int, stream: Stream) -> int:
    """Uniform over 0 .. bound - 1, for a bound of any size: what lies past it is redrawn."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(stream.raw(size), "little") >> (8 * size - bits)
        if drawn < bound:
            return drawn
