"""PATE with Gaussian noise: Rényi bounds from the votes, Confident-GNMax, and an epsilon that may be published.

One duty: the analysis of Papernot et al., "Scalable private learning with PATE", 2018 ("the paper" below).
Mechanism analysed: add N(0, sigma^2) to every count, answer with the largest; the confident form first asks
whether the largest count plus N(0, sigma_threshold^2) reaches a threshold. Imports `pate` and `releasable`.

NOTE [Smooth sensitivity on a grid]
The bound on one answer's Rényi divergence depends on the votes only through q, the bound of proposition 7.
Write q = (m-1)/2 * erfc(z) for m classes. One teacher changes every gap by at most 2, so every term
erfc(x_i) of q becomes at most erfc(x_i - 1/sigma); u -> erfc(erfc^-1(u) - 1/sigma) is concave, so by Jensen
the sum is at most what m - 1 equal terms give, and z falls by at most 1/sigma. In the same way, by convexity,
it rises by at most 1/sigma. (If the winner changes: q is the least of the sums of all candidates, and the
argument holds for each.) On a grid of z whose cells divide 1/sigma, d teachers are therefore exactly d * CELLS
cells, and rounding z down rounds q up, which the bound allows (theorem 6 takes any upper bound on q). What is
released is this rounded bound, made monotone in q; its local sensitivity at distance d is a maximum over a
window of cells, and no condition of the paper has to be checked numerically.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from syft.dp.pate import count_votes
from syft.dp.releasable import NotReleasable
from syft.mpc.randomness import Stream

Array = Any

ORDERS: tuple[float, ...] = (*(1.0 + x / 10 for x in range(5, 100, 5)), *range(11, 64), *range(64, 513, 16))

CELLS = 64  # cells of z per teacher: see NOTE [Smooth sensitivity on a grid]


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
    """The bound on a grid of z, from the least z (q = 1) upwards: see NOTE [Smooth sensitivity on a grid]."""

    logq: Array  # falling
    bound: Array  # falling: the monotone upper bound of the divergence
    local: Array  # how much one teacher can change it


@lru_cache(maxsize=8)
def _grid(sigma: float, order: float, classes: int, reach: int) -> _Grid:
    cell = 1.0 / (sigma * CELLS)
    # q = 1 lies at erfc(z) = 2/(m-1): above z = -6 for every m > 2 (erfc(-6) is 2), and never, for two classes.
    lowest = -math.ceil(6.0 / cell)
    z = (lowest + np.arange(math.ceil(6.0 / cell) + reach * CELLS + 2)) * cell
    logq = np.minimum(math.log((classes - 1) / 2.0) + log_erfc(z), 0.0)
    raw = rdp_gnmax(logq, sigma, (order,))[:, 0]
    bound = np.maximum.accumulate(raw[::-1])[::-1]  # the largest at any lesser q
    cells = np.arange(z.size)
    fewer, more = np.maximum(cells - CELLS, 0), np.minimum(cells + CELLS, z.size - 1)
    # NB: past the last cell the bound is only known to be between 0 and its last value.
    after = np.where(cells + CELLS > z.size - 1, 0.0, bound[more])
    return _Grid(logq, bound, np.maximum(bound[fewer] - bound, bound - after))


def _cells_of(logq: Array, grid: _Grid) -> Array:
    """The last cell whose q is at least the given one."""
    return np.maximum(np.searchsorted(-grid.logq, -np.asarray(logq), side="right") - 1, 0)


def smooth_sensitivity(counts: Array, sigma: float, order: float, beta: float) -> tuple[float, float]:
    """(rdp, smooth sensitivity) at one order of answering all rows of `counts`. Neither is releasable.

    The maximum over d teachers of exp(-beta d) times the sum over answers of the local sensitivity within d.
    """
    counts = np.asarray(counts)
    _check_sigma(sigma)
    teachers = int(counts.sum(axis=-1).max(initial=0))
    # z of unanimous votes is at most teachers / (2 sigma), that is teachers / 2 steps of 1 / sigma.
    grid = _grid(float(sigma), float(order), counts.shape[-1], teachers // 2 + 8)
    cells, times = np.unique(_cells_of(log_q(counts, sigma), grid), return_counts=True)
    rdp = float(times @ grid.bound[cells])
    best, last = 0.0, grid.local.size - 1
    peak = float(grid.local.max(initial=0.0)) * times.sum()
    within = grid.local[cells]
    for distance in range(teachers + 1):
        if distance:
            # The window grows by one teacher on either side: only the new cells are looked at.
            for low, high in (
                (cells - distance * CELLS, cells - (distance - 1) * CELLS),
                (cells + (distance - 1) * CELLS, cells + distance * CELLS),
            ):
                low, high = np.clip(low, 0, last), np.clip(high, 0, last)
                window = low[:, None] + np.arange(CELLS + 1)
                within = np.maximum(within, grid.local[np.minimum(window, high[:, None])].max(axis=1))
        decay = math.exp(-beta * distance)
        best = max(best, decay * float(times @ within))
        if decay * peak <= best:
            break
    return rdp, best


def release_cost(order: float, beta: float, noise: float) -> float:
    """The divergence, at `order`, of publishing f + S * N(0, noise^2) for a beta-smooth sensitivity S of f.

    The paper's GNSS mechanism, with the exact divergence of the two Gaussians (Gil et al. 2013, table 2) in
    place of the paper's bound on it. Both means differ by at most the lesser sensitivity, and the ratio r of
    the sensitivities is between exp(-beta) and exp(beta); both terms are largest at r = exp(-beta), our
    neighbour's noise being the lesser. Finite for order * (1 - exp(-2 beta)) < 1.
    """
    mixed = 1.0 + order * math.expm1(-2.0 * beta)  # order r^2 + (1 - order)
    if not (beta > 0 and mixed > 0):
        raise ValueError(
            f"beta = {beta} does not fit order {order}: it must be above 0 and below "
            f"{-0.5 * math.log1p(-1.0 / order):.3g}."
        )
    shift = order * math.exp(-2.0 * beta) / (2.0 * noise**2 * mixed)
    return shift + (-order * beta - 0.5 * math.log(mixed)) / (order - 1.0)


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
    `best_order` of `analyse` there). An unbiased estimate, cut off at the public limits: it lies below the
    private figure about half of the time, by a few `noise` times the smooth sensitivity.
    """
    counts = _asked_counts(teacher_preds, indices, num_classes)
    beta = 0.2 / order if beta is None else beta
    if not noise > 0:
        raise ValueError(f"noise is in units of the smooth sensitivity, above 0, got {noise}.")
    cost = release_cost(order, beta, noise)
    rdp, sensitivity = smooth_sensitivity(counts, sigma, order, beta)
    noisy = rdp + sensitivity * noise * _normal(stream or Stream())
    # Post-processing with public limits: the true value lies between them.
    noisy = min(max(noisy, 0.0), len(counts) * order / sigma**2)
    epsilon, _ = epsilon_from_rdp([noisy + cost], [order], delta)
    return ReleasedEpsilon(epsilon=epsilon, delta=delta, order=order, release_cost=cost)


def _normal(stream: Stream) -> float:
    """One standard normal draw from the stream (Box and Muller 1958)."""
    first, second = (int.from_bytes(stream.raw(8), "little") for _ in range(2))
    return math.sqrt(-2.0 * math.log((first + 1) / 2**64)) * math.cos(2.0 * math.pi * second / 2**64)


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
