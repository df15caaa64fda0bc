"""PATE with Gaussian noise equals the paper's theorems, and its published epsilon is covered by its noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from syft.dp import gnmax
from syft.dp.pate import count_votes
from syft.mpc.randomness import Stream

pytestmark = pytest.mark.chance

PREDS = np.where(
    np.random.default_rng(2).random((60, 30)) < np.linspace(0.4, 1.0, 30), 1, np.arange(60)[:, None] % 4
)


def slow_q(counts: Any, sigma: float) -> Any:
    counts = sorted((int(c) for c in counts), reverse=True)
    q = sum(mpmath.erfc((counts[0] - c) / (2 * mpmath.mpf(sigma))) for c in counts[1:]) / 2
    return min(q, 1 - mpmath.mpf(1) / len(counts))


def slow_rdp(q: Any, sigma: float, order: float) -> float:
    """Theorem 6 with proposition 10, in forty digits."""
    with mpmath.workdps(40):
        sigma, order = mpmath.mpf(sigma), mpmath.mpf(order)
        free = order / sigma**2
        mu2 = sigma * mpmath.sqrt(mpmath.log(1 / q))
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
        if mu2 <= 1 or order > mu1:
            return float(free)
        if q > mpmath.exp((mu2 - 1) * eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2:
            return float(free)
        if q * mpmath.exp(eps2) >= 1:
            return float(free)
        a = (1 - q) / (1 - (q * mpmath.exp(eps2)) ** ((mu2 - 1) / mu2))
        b = mpmath.exp(eps1) / q ** (1 / (mu1 - 1))
        dependent = mpmath.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
        return float(min(free, dependent))


@pytest.mark.parametrize("sigma", [1.0, 4.0, 15.0, 40.0])
@pytest.mark.parametrize("counts", [[60, 0, 0], [30, 25, 5], [20, 20, 20], [50, 9, 1], [1000, 0, 0]])
def test_the_bound_equals_the_theorem(sigma: float, counts: list[int]) -> None:
    orders = [1.5, 2.0, 3.0, 8.0, 20.0, 64.0]
    q = slow_q(counts, sigma)
    logq = gnmax.log_q(counts, sigma)
    assert float(logq) == pytest.approx(float(mpmath.log(q)), rel=1e-9)
    expected = [slow_rdp(q, sigma, order) for order in orders]
    assert gnmax.rdp_gnmax(logq, sigma, orders) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("threshold", [20.0, 45.0, 80.0])
def test_the_threshold_question_equals_the_theorem(threshold: float) -> None:
    counts, sigma, orders = [45, 10, 5], 6.0, [2.0, 5.0, 20.0]
    passes = mpmath.erfc((threshold - 45) / (mpmath.sqrt(2) * sigma)) / 2
    expected = [slow_rdp(min(passes, 1 - passes), math.sqrt(2) * sigma, order) for order in orders]
    assert gnmax.rdp_threshold(counts, sigma, threshold, orders) == pytest.approx(
        expected, rel=1e-6, abs=1e-12
    )


@mpmath.workdps(60)
def test_the_bound_really_bounds_the_divergence_of_the_mechanism() -> None:
    """Two classes, where the exact output distribution is known: P[first wins] = Phi(gap / (sigma sqrt 2))."""
    for sigma, lead in itertools.product([2.0, 5.0], [4, 10, 20, 30]):
        counts = np.array([20 + lead // 2, 20 - lead // 2])
        win = mpmath.ncdf(int(counts[0] - counts[1]) / (sigma * math.sqrt(2)))
        for moved in (-1, 1):
            other = mpmath.ncdf(int(counts[0] - counts[1] + 2 * moved) / (sigma * math.sqrt(2)))
            for order in (2.0, 4.0, 10.0):
                exact = mpmath.log(
                    win**order * other ** (1 - order) + (1 - win) ** order * (1 - other) ** (1 - order)
                ) / (order - 1)
                bound = gnmax.rdp_gnmax(gnmax.log_q(counts, sigma), sigma, [order])[0]
                assert float(exact) <= bound * (1 + 1e-9) + 1e-15


def test_the_analysis_adds_what_each_answer_costs() -> None:
    orders = [2.0, 6.0, 12.0, 24.0]
    asked, answered = list(range(5, 25)), np.arange(20) % 3 != 0
    counts = count_votes(PREDS, 4)[asked]
    found = gnmax.analyse(
        PREDS,
        asked,
        8.0,
        1e-6,
        threshold=40.0,
        sigma_threshold=10.0,
        answered=answered,
        orders=orders,
        num_classes=4,
    )
    votes = [slow_q(row, 8.0) for row in counts[answered]]
    passes = [mpmath.erfc((40.0 - int(max(row))) / (mpmath.sqrt(2) * 10.0)) / 2 for row in counts]
    rdp = [
        sum(slow_rdp(q, 8.0, order) for q in votes)
        + sum(slow_rdp(min(p, 1 - p), math.sqrt(2) * 10.0, order) for p in passes)
        for order in orders
    ]
    assert found.not_releasable_rdp == pytest.approx(rdp, rel=1e-6)
    epsilon = min(r + math.log(1e6) / (order - 1) for r, order in zip(rdp, orders, strict=True))
    assert found.not_releasable_epsilon == pytest.approx(epsilon, rel=1e-6)
    free = min(
        answered.sum() * order / 64 + 20 * order / 200 + math.log(1e6) / (order - 1) for order in orders
    )
    assert found.data_independent_epsilon == pytest.approx(free, rel=1e-9)
    assert "not releasable" in repr(found.not_releasable_epsilon)


def test_half_a_confident_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="answered"):
        gnmax.analyse(PREDS, [0], 8.0, threshold=40.0)
    with pytest.raises(ValueError, match="not labels"):
        gnmax.analyse(PREDS, [99], 8.0)
    with pytest.raises(ValueError, match="sigma"):
        gnmax.analyse(PREDS, [0], math.nan)


@pytest.mark.parametrize(("sigma", "order"), [(1.0, 3.0), (2.0, 4.0), (3.0, 8.0)])
def test_the_smooth_sensitivity_covers_every_histogram(sigma: float, order: float) -> None:
    """Against its definition, over all votes of 12 teachers on 3 classes."""
    teachers, beta = 12, 0.05
    everything = [(a, b, teachers - a - b) for a in range(teachers + 1) for b in range(teachers + 1 - a)]
    value = {n: gnmax.smooth_sensitivity(np.array([n]), sigma, order, beta)[0] for n in everything}

    def distance(n: Any, m: Any) -> int:
        return sum(abs(i - j) for i, j in zip(n, m, strict=True)) // 2

    local = {n: max(abs(value[n] - value[m]) for m in everything if distance(n, m) == 1) for n in everything}
    for n in everything:
        exact = gnmax.rdp_gnmax(gnmax.log_q(n, sigma), sigma, [order])[0]
        assert exact - 1e-12 <= value[n] <= order / sigma**2 + 1e-12
        smooth = max(math.exp(-beta * distance(n, m)) * local[m] for m in everything)
        ours = gnmax.smooth_sensitivity(np.array([n]), sigma, order, beta)[1]
        assert smooth - 1e-12 <= ours <= order / sigma**2
        if sigma == 1.0:  # the votes of twelve reach every cell that matters
            assert ours <= 1.5 * smooth


def test_the_cost_of_a_release_bounds_the_divergence_of_the_two_gaussians() -> None:
    """Against the integral of the definition, for the scales one teacher can cause."""
    for order, beta, noise in [(2.0, 0.01, 3.0), (8.0, 0.01, 20.0), (8.0, 0.04, 3.0), (30.0, 0.01, 3.0)]:
        claimed = gnmax.release_cost(order, beta, noise)
        x = np.linspace(-60 * noise, 60 * noise, 400_001)
        found = []
        for ratio in np.exp(np.linspace(-beta, beta, 9)):  # the neighbour's sensitivity over ours, which is 1
            ours = -(x**2) / (2 * noise**2) - math.log(noise)
            theirs = -((x - min(1.0, ratio)) ** 2) / (2 * (noise * ratio) ** 2) - math.log(noise * ratio)
            density = np.exp(order * ours + (1 - order) * theirs) / math.sqrt(2 * math.pi)
            found.append(math.log(np.trapezoid(density, x)) / (order - 1))
        assert max(found) == pytest.approx(claimed, rel=1e-6)
    with pytest.raises(ValueError, match="does not fit order"):
        gnmax.release_cost(10.0, 0.1, 5.0)


def test_a_released_epsilon_is_noisy_and_between_its_public_limits() -> None:
    draws = [
        gnmax.release(
            PREDS, range(30), 8.0, order=10.0, noise=3.0, num_classes=4, stream=Stream(bytes([i] * 16))
        )
        for i in range(40)
    ]
    epsilons = [d.epsilon for d in draws]
    assert len(set(epsilons)) > 5
    least = draws[0].release_cost + math.log(1e5) / 9
    assert all(least <= e <= least + 30 * 10 / 64 + 1e-9 for e in epsilons)


def test_the_released_figure_follows_the_private_one() -> None:
    """With little noise for its sensitivity, it is near the figure, and on both sides of it."""
    counts = count_votes(PREDS, 4)
    rdp, sensitivity = gnmax.smooth_sensitivity(counts, 8.0, 10.0, 0.02)
    assert 0 < sensitivity < 30 * 10 / 64
    draws = [
        gnmax.release(
            PREDS, range(30), 8.0, order=10.0, noise=0.1, num_classes=4, stream=Stream(bytes([i] * 16))
        )
        for i in range(200)
    ]
    found = np.array([d.epsilon - d.release_cost - math.log(1e5) / 9 for d in draws])
    unit = (found - rdp) / (0.1 * sensitivity)
    assert abs(unit.mean()) < 0.3 and 0.8 < unit.std() < 1.2


def on_the_public_grid(epsilon: float, queries: int, sigma: float, order: float, cost: float) -> int | None:
    """The step it was made of, found from public numbers alone; None if there is none."""
    step = order / sigma**2 / (1 << (50 - queries.bit_length()))
    free = -math.log(1e-5) / (order - 1)
    nearest = round((epsilon - cost - free) / step)
    for steps in range(nearest - 3, nearest + 4):
        if gnmax.epsilon_from_rdp([steps * step + cost], [order], 1e-5)[0] == epsilon:
            return steps
    return None


def test_no_published_epsilon_is_impossible_for_a_neighbour() -> None:
    """Mironov's attack: which of two tables of votes, that differ in one teacher, is told by the last bits."""
    random = np.random.default_rng(0)
    teachers, queries, classes, sigma, order, noise = 60, 300, 5, 6.0, 8.0, 0.2
    agree = random.random((teachers, queries)) < random.choice([0.7, 0.9], queries)
    ours = np.where(agree, 0, random.integers(1, classes, (teachers, queries)))
    theirs = ours.copy()
    theirs[7] = random.integers(0, classes, queries)
    cost, beta = gnmax.release_cost(order, 0.2 / order, noise), 0.2 / order
    private = [gnmax.smooth_sensitivity(count_votes(v, classes), sigma, order, beta) for v in (ours, theirs)]
    assert private[0][0] != private[1][0] and private[0][1] != private[1][1]
    step = order / sigma**2 / (1 << (50 - queries.bit_length()))
    most = round(queries * order / sigma**2 / step)

    def log_probability(steps: int, votes: int) -> float:
        """Up to the normalising constant, which is the same within exp(beta)."""
        rdp, sensitivity = private[votes]
        return -(((steps * step - rdp) / (noise * sensitivity)) ** 2) / 2

    ratios = []
    for votes, number in itertools.product((0, 1), range(150)):
        published = gnmax.release(
            (ours, theirs)[votes],
            range(queries),
            sigma,
            order=order,
            noise=noise,
            num_classes=classes,
            stream=Stream(bytes([votes, number] * 8)),
        )
        steps = on_the_public_grid(published.epsilon, queries, sigma, order, cost)
        assert steps is not None and 0 <= steps <= most
        if 0 < steps < most:  # at the limits everything beyond them is added up
            ratios.append(log_probability(steps, votes) - log_probability(steps, 1 - votes))
    assert len(ratios) > 100 and max(ratios) < 60  # 0.2 sensitivities of noise: large, and finite


def test_the_private_steps_differ_by_no_more_than_both_sensitivities_exactly() -> None:
    """Integers and fractions, without tolerance; for two classes, votes lie on the edges of cells."""
    beta, order = 0.03, 5.0
    allowed = Fraction(math.nextafter(math.exp(beta), 0.0))  # not above exp(beta)
    for sigma in np.random.default_rng(0).uniform(0.5, 12.0, 12):
        for teachers, classes in ((24, 2), (7, 3)):
            votes = [n for n in itertools.product(range(teachers + 1), repeat=classes) if sum(n) == teachers]
            found = {n: gnmax._rdp_in_steps(np.array([n]), float(sigma), order, beta) for n in votes}
            for n in votes:
                for down, up in itertools.permutations(range(classes), 2):
                    m = list(n)
                    m[down], m[up] = m[down] - 1, m[up] + 1
                    if m[down] < 0:
                        continue
                    (ours, mine), (theirs, yours) = found[n], found[tuple(m)]
                    assert abs(ours - theirs) <= min(mine, yours)
                    assert mine <= allowed * yours * (1 + Fraction(1, 10**15))


def test_the_number_of_classes_does_not_follow_from_the_votes() -> None:
    with pytest.raises(ValueError, match="num_classes"):
        gnmax.release(PREDS, range(30), 8.0, order=10.0)


def test_a_wide_sigma_needs_no_more_memory_than_a_narrow_one() -> None:
    published = gnmax.release(PREDS, range(30), 1e12, order=10.0, num_classes=4)
    assert published.epsilon == pytest.approx(published.release_cost + math.log(1e5) / 9)


@pytest.mark.parametrize("sigma", [5e-324, 0.0, -1.0, float("nan"), float("inf"), "x"])
def test_a_sigma_that_is_no_noise_is_refused(sigma: Any) -> None:
    votes = np.zeros((5, 3), dtype=int)
    with pytest.raises(ValueError, match="sigma is the standard deviation"):
        gnmax.analyse(votes, np.arange(3), sigma=sigma, num_classes=2)
