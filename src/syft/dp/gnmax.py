"""PATE with Gaussian noise: Rényi bounds from the votes, Confident-GNMax, and an epsilon that may be published.

One duty: the analysis of Papernot et al., "Scalable private learning with PATE", 2018 ("the paper" below).
Mechanism analysed: add N(0, sigma^2) to every count, answer with the largest; the confident form first asks
whether the largest count plus N(0, sigma_threshold^2) reaches a threshold. Imports `pate`, `releasable` and
`smooth_noise`.

NOTE [Smooth sensitivity on a grid]
The bound on one answer's Rényi divergence depends on the votes only through q, the bound of proposition 7.
Write q = (m-1)/2 * erfc(z) for m classes. One teacher changes every gap by at most 2, so every term
erfc(x_i) of q becomes at most erfc(x_i - 1/sigma); u -> erfc(erfc^-1(u) - 1/sigma) is concave, so by Jensen
the sum is at most what m - 1 equal terms give, and z falls by at most 1/sigma. In the same way, by convexity,
it rises by at most 1/sigma. (If the winner changes: q is the least of the sums of all candidates, and the
argument holds for each.) z lies between 0 (no gap is below 0) and teachers / (2 sigma) (all agree).

On a grid of z with CELLS cells to 1/sigma, d teachers are therefore at most d * CELLS cells, in exact
arithmetic. Votes often lie on the edge of a cell, and the last bits of their z may put them on either side of
it: one teacher is counted as REACH = CELLS + 1 cells. Rounding z down rounds q up, which the bound allows
(theorem 6 takes any upper bound on q). What is released is this rounded bound, made monotone in q, and rounded
up to whole public steps for every answer, before they are added. So the sum and its local sensitivities are
exact integers; the sensitivity at distance d is a maximum over a window of cells, and no condition of the
paper has to be checked numerically. NOTE [A data-dependent scale on a public grid] in `smooth_noise` goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from syft.dp.pate import count_votes
from syft.dp.releasable import NotReleasable
from syft.dp.smooth_noise import ONE, decays, noisy_steps
from syft.dp.smooth_noise import release_cost as release_cost  # for users, too
from syft.mpc.randomness import Stream

Array = Any

ORDERS: tuple[float, ...] = (*(1.0 + x / 10 for x in range(5, 100, 5)), *range(11, 64), *range(64, 513, 16))

CELLS = 64  # cells of z per teacher, and
REACH = CELLS + 1  # how many one teacher is counted as: see NOTE [Smooth sensitivity on a grid]
_LARGEST_TOTAL_BITS = 50  # of the sum over all answers in steps: a double holds it


def log_erfc(x: Array) -> Array:
    """log(erfc(x)), exact where erfc itself is 0 in double precision."""
    scaled = torch.as_tensor(np.asarray(x, dtype=np.float64)) * -math.sqrt(2.0)
    return math.log(2.0) + torch.special.log_ndtr(scaled).numpy()


def log_q(counts: Array, sigma: float) -> Array:
    """log of the bound on Pr[the answer is not the winner] (the paper, proposition 7), capped at 1 - 1/m."""
    counts = np.asarray(counts, dtype=np.float64)
    _check_sigma(sigma)
    classes = counts.shape[-1]
    winner = counts.argmax(axis=-1)[..., None]
    terms = log_erfc((np.take_along_axis(counts, winner, axis=-1) - counts) / (2.0 * sigma))
    np.put_along_axis(terms, winner, -np.inf, axis=-1)
    return np.minimum(np.logaddexp.reduce(terms, axis=-1) - math.log(2.0), math.log1p(-1.0 / classes))


def rdp_gnmax(logq: Array, sigma: float, orders: Sequence[float]) -> Array:
    """The Rényi divergence of one answer at each order (last axis), given log q.

    The lesser of lambda / sigma^2 (proposition 8) and the data-dependent bound (theorem 6 with the mu1, mu2
    of proposition 10); the second only where its conditions hold.
    """
    _check_sigma(sigma)
    logq = np.asarray(logq, dtype=np.float64)[..., None]
    order = _check_orders(orders)
    variance = sigma**2
    independent = np.broadcast_to(order / variance, np.broadcast_shapes(logq.shape, order.shape))
    finite = np.where((logq < 0) & np.isfinite(logq), logq, -1.0)
    mu2 = np.sqrt(variance * -finite)
    mu1 = mu2 + 1.0
    eps1, eps2 = mu1 / variance, mu2 / variance
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = (mu2 - 1) * eps2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        holds = (logq < 0) & (order <= mu1) & (mu2 > 1) & (finite <= limit) & (finite + eps2 < 0)
        log1q = np.log1p(-np.exp(finite))
        log_a = (order - 1) * (log1q - np.log1p(-np.exp((finite + eps2) * (1 - 1 / mu2))))
        log_b = (order - 1) * (eps1 - finite / (mu1 - 1))
        dependent = np.logaddexp(log1q + log_a, finite + log_b) / (order - 1)
    bound = np.where(holds, np.minimum(np.where(holds, dependent, 0.0), independent), independent)
    # q = 0 in every representable sense: the answer says nothing.
    return np.where(np.isneginf(logq), 0.0, np.maximum(bound, 0.0))


def rdp_threshold(counts: Array, sigma: float, threshold: float, orders: Sequence[float]) -> Array:
    """The divergence of the confident form's question "does the largest count reach the threshold?".

    A Gaussian mechanism of sensitivity 1: lambda / (2 sigma^2), which is GNMax with sqrt(2) * sigma, and so is
    the data-dependent bound, with q the probability of the less likely answer (the paper, section 4.1).
    """
    _check_sigma(sigma)
    x = (threshold - np.asarray(counts, dtype=np.float64).max(axis=-1)) / (math.sqrt(2.0) * sigma)
    less_likely = log_erfc(np.abs(x)) - math.log(2.0)
    return rdp_gnmax(less_likely, math.sqrt(2.0) * sigma, orders)


def epsilon_from_rdp(rdp: Array, orders: Sequence[float], delta: float) -> tuple[float, float]:
    """(epsilon, its order): eps = rdp + log(1/delta) / (lambda - 1) (Mironov 2017, proposition 3)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is a probability above 0 and below 1, got {delta}.")
    order = _check_orders(orders)
    epsilons = np.asarray(rdp) - math.log(delta) / (order - 1.0)
    best = int(epsilons.argmin())
    return float(epsilons[best]), float(order[best])


@dataclass(frozen=True)
class GaussianAnalysis:
    """What `analyse` found."""

    not_releasable_epsilon: NotReleasable
    """From the votes: private like them. `release` makes a figure that may be published."""
    data_independent_epsilon: float
    queries: int
    answered: int
    delta: float
    best_order: float
    """The order the data-dependent epsilon was found at: choose it for `release` from public data."""
    not_releasable_rdp: Array
    data_independent_rdp: Array
    orders: tuple[float, ...]


def analyse(
    teacher_preds: Array,
    indices: Array,
    sigma: float,
    delta: float = 1e-5,
    *,
    threshold: float | None = None,
    sigma_threshold: float | None = None,
    answered: Array | None = None,
    orders: Sequence[float] = ORDERS,
    num_classes: int | None = None,
) -> GaussianAnalysis:
    """The privacy cost of the answers to the examples `indices`, GNMax or (with a threshold) Confident-GNMax.

    `answered` says, for the confident form, which of the asked examples passed the threshold when the
    mechanism ran; every question costs the threshold, only answered ones cost the vote.
    """
    counts = _asked_counts(teacher_preds, indices, num_classes)
    order = _check_orders(orders)
    confident = threshold is not None or sigma_threshold is not None
    if confident and (threshold is None or sigma_threshold is None or answered is None):
        raise ValueError(
            "Confident-GNMax needs all of threshold, sigma_threshold and answered (which questions passed). "
            "Leave all three out for plain GNMax."
        )
    passed = np.ones(len(counts), bool) if answered is None else np.asarray(answered, dtype=bool)
    if passed.shape != (len(counts),):
        raise ValueError(f"answered has one entry per asked example, {len(counts)}, got {passed.shape}.")
    total = rdp_gnmax(log_q(counts[passed], sigma), sigma, orders).sum(axis=0)
    independent = passed.sum() * order / sigma**2
    if threshold is not None and sigma_threshold is not None:
        total = total + rdp_threshold(counts, sigma_threshold, threshold, orders).sum(axis=0)
        independent = independent + len(counts) * order / (2 * sigma_threshold**2)
    epsilon, best = epsilon_from_rdp(total, orders, delta)
    return GaussianAnalysis(
        not_releasable_epsilon=NotReleasable(epsilon),
        data_independent_epsilon=epsilon_from_rdp(independent, orders, delta)[0],
        queries=len(counts),
        answered=int(passed.sum()),
        delta=delta,
        best_order=best,
        not_releasable_rdp=total,
        data_independent_rdp=independent,
        orders=tuple(orders),
    )


# -- a data-dependent epsilon that may be published ------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """The bound on a grid of z, from z = 0 to where all agree: see NOTE [Smooth sensitivity on a grid]."""

    logq: Array  # falling
    bound: Array  # falling: the monotone upper bound of the divergence, in whole steps
    local: Array  # how much one teacher can change it, in whole steps


def _steps_per_answer(answers: int) -> int:
    """How many steps lambda / sigma^2 has: as many as possible, and a power of two, so that dividing is exact."""
    return 1 << (_LARGEST_TOTAL_BITS - answers.bit_length())


@lru_cache(maxsize=8)
def _grid(sigma: float, order: float, classes: int, teachers: int, steps: int) -> _Grid:
    last = teachers * CELLS // 2 + 1
    cells = np.arange(last + 1)
    logq = math.log((classes - 1) / 2.0) + log_erfc(cells / (sigma * CELLS))
    logq = np.minimum.accumulate(np.minimum(logq, math.log1p(-1.0 / classes)))
    raw = rdp_gnmax(logq, sigma, (order,))[:, 0]
    monotone = np.maximum.accumulate(raw[::-1])[::-1]  # the largest at any lesser q
    bound = np.minimum(np.ceil(monotone / (order / sigma**2 / steps)), steps).astype(np.int64)
    fewer, more = np.maximum(cells - REACH, 0), np.minimum(cells + REACH, last)
    return _Grid(logq, bound, np.maximum(bound[fewer] - bound, bound - bound[more]))


def _cells_of(logq: Array, grid: _Grid) -> Array:
    """The last cell whose q is at least the given one."""
    return np.maximum(np.searchsorted(-grid.logq, -np.asarray(logq), side="right") - 1, 0)


def _rdp_in_steps(counts: Array, sigma: float, order: float, beta: float) -> tuple[int, Fraction]:
    """(rdp, smooth sensitivity) in steps of lambda / sigma^2 / `_steps_per_answer`, both exact."""
    _check_sigma(sigma)
    teachers = int(counts.sum(axis=-1).max(initial=0))
    grid = _grid(float(sigma), float(order), counts.shape[-1], teachers, _steps_per_answer(len(counts)))
    cells, times = np.unique(_cells_of(log_q(counts, sigma), grid), return_counts=True)
    best, last = 0, grid.local.size - 1
    peak = int(grid.local.max(initial=0)) * len(counts)
    within = grid.local[cells]
    for distance, decay in zip(range(teachers + 1), decays(beta), strict=False):
        if distance:
            # The window grows by one teacher on either side: only the new cells are looked at.
            for low, high in (
                (cells - distance * REACH, cells - (distance - 1) * REACH),
                (cells + (distance - 1) * REACH, cells + distance * REACH),
            ):
                low, high = np.clip(low, 0, last), np.clip(high, 0, last)
                window = low[:, None] + np.arange(REACH + 1)
                within = np.maximum(within, grid.local[np.minimum(window, high[:, None])].max(axis=1))
        best = max(best, decay * int(times @ within))
        if decay * peak <= best:
            break
    return int(times @ grid.bound[cells]), Fraction(best, ONE)


def smooth_sensitivity(counts: Array, sigma: float, order: float, beta: float) -> tuple[float, float]:
    """(rdp, smooth sensitivity) at one order of answering all rows of `counts`. Neither is releasable.

    The maximum over d teachers of exp(-beta d) times the sum over answers of the local sensitivity within d. The rdp
    is rounded up, as NOTE [Smooth sensitivity on a grid] says.
    """
    counts = np.atleast_2d(np.asarray(counts))
    rdp, sensitivity = _rdp_in_steps(counts, sigma, order, beta)
    step = order / sigma**2 / _steps_per_answer(len(counts))
    return rdp * step, float(sensitivity) * step


@dataclass(frozen=True)
class ReleasedEpsilon:
    """A data-dependent epsilon with noise of its own: this one may be published."""

    epsilon: float
    delta: float
    order: float
    release_cost: float
    """The part of the Rényi divergence that pays for publishing the figure itself."""


def release(
    teacher_preds: Array,
    indices: Array,
    sigma: float,
    delta: float = 1e-5,
    *,
    order: float,
    beta: float | None = None,
    noise: float = 20.0,
    num_classes: int | None = None,
    stream: Stream | None = None,
) -> ReleasedEpsilon:
    """A data-dependent epsilon for GNMax that may itself be published, its own cost included.

    `order`, `beta` and `noise` are chosen without looking at the private votes (for example on public data:
    `best_order` of `analyse` there), and so is `num_classes`, which is needed. An unbiased estimate, cut off at the
    public limits: it lies below the private figure about half of the time, by a few `noise` times the smooth
    sensitivity.
    """
    if num_classes is None:
        raise ValueError(
            "gnmax.release() got no num_classes. How many classes got a vote would tell about the votes: pass how many "
            "a teacher could have chosen from."
        )
    if not 0 < delta < 1:
        raise ValueError(f"delta is a probability above 0 and below 1, got {delta}.")
    counts = _asked_counts(teacher_preds, indices, num_classes)
    beta = 0.2 / order if beta is None else beta
    cost = release_cost(order, beta, noise)
    rdp, sensitivity = _rdp_in_steps(counts, sigma, order, beta)
    noisy = noisy_steps(rdp, sensitivity, order, noise, stream or Stream())
    # Post-processing with public limits, in whole steps: the true value lies between them.
    steps = _steps_per_answer(len(counts))
    noisy = min(max(noisy, 0), len(counts) * steps)
    epsilon, _ = epsilon_from_rdp([noisy * (order / sigma**2 / steps) + cost], [order], delta)
    return ReleasedEpsilon(epsilon=epsilon, delta=delta, order=order, release_cost=cost)


def _asked_counts(teacher_preds: Array, indices: Array, num_classes: int | None) -> Array:
    if isinstance(teacher_preds, torch.Tensor):
        teacher_preds = teacher_preds.cpu().numpy()
    counts = count_votes(teacher_preds, num_classes)
    rows = np.asarray(indices, dtype=np.int64)
    if rows.ndim != 1 or (rows.size and not (rows.min() >= 0 and rows.max() < len(counts))):
        raise ValueError(
            f"indices lists the numbers of the examples that were asked, 0 to {len(counts) - 1}; they are not labels."
        )
    return counts[rows]


def _check_sigma(sigma: float) -> None:
    number = isinstance(sigma, (int, float, np.number)) and not isinstance(sigma, bool)
    if not number or not 1e-6 <= sigma <= 1e100:
        raise ValueError(f"sigma is the standard deviation of the noise, from 1e-6 to 1e100, got {sigma!r}.")


def _check_orders(orders: Sequence[float]) -> Array:
    order = np.asarray(orders, dtype=np.float64)
    if order.ndim != 1 or order.size == 0 or not (order > 1).all():
        raise ValueError(f"Rényi orders are numbers above 1, got {orders!r}.")
    return order
