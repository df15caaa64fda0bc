"""Tails of Student's distribution, on public numbers. Imports nothing of ours."""

from __future__ import annotations

import math

import torch


def two_sided(t: torch.Tensor, degrees: int) -> torch.Tensor:
    """The probability of a value at least as far from 0 as each of `t`; NaN for NaN."""
    flat = [_two_sided(float(value), degrees) for value in t.flatten()]
    return torch.tensor(flat, dtype=torch.float64).view(t.shape)


def _two_sided(t: float, degrees: int) -> float:
    if math.isnan(t):
        return math.nan
    if math.isinf(t):
        return 0.0
    # Abramowitz and Stegun 26.7.1: I_x(n / 2, 1 / 2) with x = n / (n + t^2).
    total = degrees + t * t
    return incomplete_beta(degrees / 2, 0.5, degrees / total, t * t / total)


def incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised I_x(a, b), where rest = 1 - x is given apart so that it has all its digits."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below its mean
        return 1.0 - incomplete_beta(b, a, rest, x)
    front = a * math.log(x) + b * math.log(rest) - math.log(a)
    front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # DLMF 8.17.22, from the inside out; it needs about sqrt(max(a, b)) terms.
    fraction = 1.0
    for m in reversed(range(20 + math.ceil(3 * math.sqrt(max(a, b))))):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))
        fraction = 1.0 + odd / (1.0 + even / fraction)
    return math.exp(front) / fraction
