"""Noise as wide as a smooth sensitivity is drawn exactly, and costs no more than is said."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from syft.dp import smooth_noise
from syft.mpc.randomness import Stream

pytestmark = pytest.mark.chance


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(2), Fraction(355, 113), Fraction(200, 7)])
def test_the_integers_come_up_as_often_as_they_should(variance: Fraction) -> None:
    stream, draws = Stream(b"exactly this one"), 6000
    found = np.array([smooth_noise.discrete_gaussian(variance, stream) for _ in range(draws)])
    values = np.arange(-60, 61)
    weights = np.exp(-(values**2) / (2 * float(variance)))
    expected = draws * weights / weights.sum()
    counted = np.array([(found == value).sum() for value in values])
    common = expected > 8
    rest = draws - expected[common].sum()
    chi = ((counted - expected)[common] ** 2 / expected[common]).sum()
    chi += (draws - counted[common].sum() - rest) ** 2 / max(rest, 1.0)
    freedom = common.sum()
    assert chi < freedom + 5 * math.sqrt(2 * freedom)


def test_wide_noise_is_as_wide_as_asked() -> None:
    stream, variance = Stream(b"another of these"), Fraction(10**40, 7)
    found = np.array([smooth_noise.discrete_gaussian(variance, stream) for _ in range(3000)], dtype=float)
    found = np.sort(found / math.sqrt(variance))
    normal = np.array([float(mpmath.ncdf(x)) for x in found])
    assert np.abs(normal - (np.arange(3000) + 0.5) / 3000).max() < 1.95 / math.sqrt(3000)  # Kolmogorov, 0.1 %


def test_noise_has_a_variance() -> None:
    with pytest.raises(ValueError, match="variance"):
        smooth_noise.discrete_gaussian(Fraction(0), Stream())


def discrete_divergence(order: float, shift: int, ours: float, theirs: float) -> float:
    """From its definition, over the integers that matter."""
    x = np.arange(-int(60 * max(ours, theirs)), int(60 * max(ours, theirs)) + 1, dtype=float)

    def log_mass(mean: int, scale: float) -> Any:
        weights = -((x - mean) ** 2) / (2 * scale**2)
        return weights - np.logaddexp.reduce(weights)

    mixed = order * log_mass(0, ours) + (1 - order) * log_mass(shift, theirs)
    return float(np.logaddexp.reduce(mixed)) / (order - 1)


@pytest.mark.parametrize(
    ("order", "beta", "noise"), [(2.0, 0.05, 1.0), (8.0, 0.02, 5.0), (60.0, 0.003, 20.0)]
)
def test_integers_cost_no_more_than_the_normals_they_stand_for(
    order: float, beta: float, noise: float
) -> None:
    claimed = smooth_noise.release_cost(order, beta, noise)
    least = 8 * (math.isqrt(math.ceil(order)) + 1)
    found = []
    for sensitivity, up in itertools.product((1, 3, 40, 100), (-1, 0, 1)):
        neighbours = sensitivity * math.exp(up * beta)
        shift = math.floor(min(sensitivity, neighbours))
        scales = max(noise * sensitivity, least), max(noise * neighbours, least)
        found.append(discrete_divergence(order, shift, *scales))
    assert max(found) <= claimed * (1 + 1e-9)
    assert max(found) > 0.9 * claimed  # so the comparison means something


@pytest.mark.parametrize("beta", [1e-18, 1e-3, 0.0123, 0.5, 3.0])
def test_decays_fall_no_faster_than_beta_allows(beta: float) -> None:
    with mpmath.workdps(60):
        allowed = mpmath.exp(-mpmath.mpf(beta))
        found = list(itertools.islice(smooth_noise.decays(beta), 300))
        assert found[0] == smooth_noise.ONE
        for before, after in itertools.pairwise(found):
            assert mpmath.mpf(after) >= allowed * before and 0 < after <= before
        assert found[40] <= mpmath.exp(-40 * mpmath.mpf(beta)) * smooth_noise.ONE * (1 + 1e-12) + 41


def test_a_value_that_nobody_can_change_gets_noise_all_the_same() -> None:
    drawn = [smooth_noise.noisy_steps(5, Fraction(0), 30.0, 2.0, Stream(bytes([i] * 16))) for i in range(50)]
    assert len(set(drawn)) > 10


@pytest.mark.parametrize(
    ("order", "noise", "sentence"),
    [(1.0, 2.0, "order"), (math.inf, 2.0, "order"), (3.0, 0.0, "noise"), (3.0, math.inf, "noise")],
)
def test_a_cost_that_has_no_meaning_is_refused(order: float, noise: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        smooth_noise.release_cost(order, 0.01, noise)
