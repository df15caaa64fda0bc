"""PATE with Laplace noise: what the answers of a noisy vote tell about one teacher's data.

One duty: the analysis of Papernot et al., "Semi-supervised knowledge transfer for deep learning from private
training data", 2017 (section 3 and appendix A; "the paper" below), with the moments accountant of Abadi et
al., 2016. The names and arguments are those documented since 2019. `counts` is the votes per class, shape
(..., classes), and everything works on all leading dimensions at once; the `*_torch` twins take and give
tensors. Mechanism analysed: add Laplace(1/noise_eps) to every count, answer with the largest.
Imports `releasable`.

NOTE [Smooth sensitivity of a moment]
The moment is a function of q, the sum over the other classes of T(gap), T the probability that the difference
of two Laplace variables exceeds the gap (`_tail`). Write q = (m - 1) T(z) for m classes. z lies between 0 (no gap
is below 0) and noise_eps * teachers (all agree). One teacher changes every scaled gap by c = 2 * noise_eps at
most. The density of such a difference is log-concave, so u -> T(T^-1(u) - c) is concave: by Jensen the sum is at
most what m - 1 equal terms give, and z falls by c at most; likewise, by convexity, it rises by c at most. (If
the winner changes: q is the least of the sums of all candidates, and the argument holds for each, with
1 - T(-gap) for gaps below 0.) So k teachers move z by c k at most, from and to whichever classes they change;
and the moment falls in z, since `logmgf_exact` rises in q (the sum of theorem 3 is convex in q, and its slope
at 0 is positive).

What one teacher can change around z, and in any votes that k teachers can make, are therefore differences of one
falling function over windows of z: no search over votes. It is tabulated on cells of z, CELLS to c; what is taken
from a cell is its worse end. One teacher is counted as REACH = CELLS + 1 cells, since the last bits of z may put
it into the next one.

NOTE [Where this departs from the code of 2017]
Four points, each because the old value was not a bound:
- The data-dependent moment holds for q < 1/(e^eps + 1) only. Past that the old code could take an even power
  of a negative number; here the data-independent moment takes over.
- The smooth sensitivity looks both ways: see NOTE [Smooth sensitivity of a moment]. The old one followed votes from
  the winner to the runner-up only, from k = 1 on, and was 0 where the lead was lost: next to large changes.
- A moment too large for `sens_at_k` gives infinity ("no bound"), not zero ("no noise needed").
- A class nobody voted for counts all the same: `num_classes` says how many there are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from syft.dp.releasable import NotReleasable, NotReleasableTensor

Array = Any  # numpy's: scalars and arrays alike


class TooFewMomentsWarning(UserWarning):
    """The best epsilon was found at the largest moment that was tried."""


class LabelsAsIndicesWarning(UserWarning):
    """`indices` looks like a list of labels."""


# -- the mechanism ---------------------------------------------------------------------------------------


def _scaled_gaps(counts: Array, noise_eps: float) -> tuple[Array, int]:
    """noise_eps * (winner's votes - votes), the winner itself at infinity; and the number of classes."""
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim == 0 or counts.shape[-1] < 2:
        raise ValueError(
            f"Votes are counted per class, for two classes or more, got the shape {counts.shape}. "
            "Pass counts of shape (..., classes)."
        )
    if isinstance(noise_eps, bool) or not 0 < noise_eps <= 1e6:
        raise ValueError(
            f"noise_eps is the inverse scale of the Laplace noise, above 0 and 1e6 at most, got {noise_eps}."
        )
    winner = counts.argmax(axis=-1)[..., None]
    gaps = noise_eps * (np.take_along_axis(counts, winner, axis=-1) - counts)
    np.put_along_axis(gaps, winner, np.inf, axis=-1)
    return gaps, counts.shape[-1]


def _tail(gap: Array) -> Array:
    """Pr[one class overtakes the winner] for a scaled gap (the paper, lemma 4; 0 at infinity)."""
    return (2.0 + np.where(np.isinf(gap), 0.0, gap)) * np.exp(-gap) / 4.0


def compute_q_noisy_max(counts: Array, noise_eps: float) -> Array:
    """A bound on Pr[the answer is not the winner]: the sum over the other classes (the paper, lemma 4)."""
    gaps, classes = _scaled_gaps(counts, noise_eps)
    return np.minimum(_tail(gaps).sum(axis=-1), 1.0 - 1.0 / classes)


def compute_q_noisy_max_approx(counts: Array, noise_eps: float) -> Array:
    """The same with every other class put as near as the runner-up: looser, never smaller."""
    gaps, classes = _scaled_gaps(counts, noise_eps)
    return np.minimum((classes - 1) * _tail(gaps.min(axis=-1)), 1.0 - 1.0 / classes)


# -- moments ---------------------------------------------------------------------------------------------


def logmgf_exact(q: Array, priv_eps: float, l: Array) -> Array:  # noqa: E741  (the documented name)
    """The log moment `l` of the privacy loss of a `priv_eps`-DP mechanism whose answer is not i* with Pr <= q.

    The least of three bounds: eps * l, eps^2 * l(l+1)/2 (the paper, theorem 2) and the data-dependent one
    (theorem 3), in logarithms so that no moment overflows. See NOTE [Where this departs from the code of 2017].
    """
    q, l = np.broadcast_arrays(np.asarray(q, np.float64), np.asarray(l, np.float64))  # noqa: E741
    if np.isnan(q).any() or (q < 0).any() or (q > 1).any():
        raise ValueError(f"q is a probability, got values from {np.min(q)} to {np.max(q)}.")
    independent = np.minimum(priv_eps * l, 0.5 * priv_eps**2 * l * (l + 1.0))
    holds = q < 1.0 / (math.exp(min(priv_eps, 700.0)) + 1.0)
    if not holds.any():
        return independent[()]
    small = np.where(holds, q, 0.0)
    with np.errstate(divide="ignore"):
        stays = (l + 1.0) * np.log1p(-small) - l * np.log1p(-small * math.exp(min(priv_eps, 700.0)))
        leaves = np.log(small) + priv_eps * l
    return np.where(holds, np.minimum(independent, np.logaddexp(stays, leaves)), independent)[()]


def logmgf_from_counts(counts: Array, noise_eps: float, l: Array) -> Array:  # noqa: E741
    """The log moment of one noisy vote. One teacher changes two counts: the vote is 2 * noise_eps-DP."""
    return logmgf_exact(compute_q_noisy_max(counts, noise_eps), 2.0 * noise_eps, l)


# -- smooth sensitivity of the moments -------------------------------------------------------------------


def _moved(ranked: Array, k: Array) -> Array:
    """Counts in falling order after k teachers moved from the winner to the runner-up."""
    leading = np.broadcast_shapes(ranked.shape[:-1], np.shape(k))
    moved = np.array(np.broadcast_to(ranked, (*leading, ranked.shape[-1])))
    moved[..., 0] -= k
    moved[..., 1] += k
    return moved


def sens_at_k(counts: Array, noise_eps: float, l: Array, k: Array) -> Array:  # noqa: E741
    """How much one more teacher can raise the moment when `k` have moved from the winner to the runner-up.

    0 once the winner no longer leads. Infinite, "no bound", where noise_eps * l / 2 > 1: the moment is then not
    known to be worst in this direction. NB: this is no local sensitivity, neither of these votes nor at the distance
    k: it looks in one direction, and not at votes whose neighbours do lead. `smoothed_sens` looks at all.
    """
    ranked = -np.sort(-np.asarray(counts, dtype=np.float64), axis=-1)
    k = np.asarray(k, dtype=np.float64)
    before = logmgf_from_counts(_moved(ranked, k), noise_eps, l)
    after = logmgf_from_counts(_moved(ranked, k + 1), noise_eps, l)
    leads = ranked[..., 0] - k > ranked[..., 1] + k
    bounded = 0.5 * noise_eps * np.asarray(l) <= 1.0
    return np.where(bounded, np.where(leads, np.maximum(after - before, 0.0), 0.0), np.inf)[()]


CELLS = 32  # cells of z per teacher, and
REACH = CELLS + 1  # how many one teacher is counted as: see NOTE [Smooth sensitivity of a moment]


def _check_beta(beta: float) -> None:
    if isinstance(beta, bool) or not (math.isfinite(beta) and beta > 0):
        raise ValueError(f"beta is how fast far-away votes stop counting, finite and above 0, got {beta}.")


def smoothed_sens(counts: Array, noise_eps: float, l: Array, beta: float) -> Array:  # noqa: E741
    """A beta-smooth upper bound of the local sensitivity of the moment (Nissim et al. 2007, definition 2.1).

    The maximum over k >= 0 of exp(-beta k) times a bound on what one teacher can change, up or down, in any votes that
    k teachers can make of these. See NOTE [Smooth sensitivity of a moment].
    """
    _check_beta(beta)
    counts = np.asarray(counts, dtype=np.float64)
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError(f"Votes are finite numbers, 0 or more, got {counts.min()} to {counts.max()}.")
    gaps, classes = _scaled_gaps(counts, noise_eps)
    logq = np.logaddexp.reduce(_log_tail(gaps), axis=-1)
    teachers, l = np.broadcast_arrays(counts.sum(axis=-1), np.asarray(l, np.float64))  # noqa: E741
    logq = np.broadcast_to(logq, l.shape)
    found = np.zeros(l.shape)
    for number in np.unique(teachers):
        voted = teachers == number
        cells = math.ceil(number * CELLS / 2) + 1
        edges = math.log(classes - 1) + _log_tail(np.arange(1, cells) * (2.0 * noise_eps / CELLS))
        for moment in np.unique(l[voted]):
            here = voted & (l == moment)
            falls = _falls(cells, number, noise_eps, classes, moment)
            smooth = np.maximum(falls, np.maximum(_ahead(falls, beta), _ahead(falls[::-1], beta)[::-1]))
            found[here] = smooth[np.searchsorted(-edges, -logq[here])]
    return found[()]


def _log_tail(gap: Array) -> Array:
    """log of `_tail`, which has no end where the tail itself is 0 in double precision."""
    finite = np.where(np.isinf(gap), 0.0, gap)
    return np.where(np.isinf(gap), -np.inf, np.log((2.0 + finite) / 4.0) - finite)


def _falls(cells: int, teachers: float, noise_eps: float, classes: int, moment: float) -> Array:
    """What one teacher can change, for each cell of z."""
    # From one teacher below the first cell to one above the last.
    edges = np.arange(-REACH, cells + REACH + 1)
    z = np.clip(edges * (2.0 * noise_eps / CELLS), 0.0, noise_eps * teachers)
    q = np.minimum((classes - 1) * _tail(z), 1.0 - 1.0 / classes)
    value = logmgf_exact(q, 2.0 * noise_eps, moment)
    # From the lower end of a cell to the upper end of the one that is a teacher further on.
    falls = value[: -REACH - 1] - value[REACH + 1 :]
    # NB: far out the moments differ in their last bits only, in either direction.
    return np.maximum(np.maximum(falls[:cells], falls[REACH:]), 0.0)


def _ahead(values: Array, beta: float) -> Array:
    """For each place: max over k >= 1 of exp(-beta k) * the largest value up to k * REACH places further on."""
    rows = -(-values.size // REACH)
    table = np.zeros(rows * REACH)
    table[: values.size] = values
    table = table.reshape(rows, REACH)
    # The largest from here to the same column of the next row: the rest of this row, the beginning of the next.
    window = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1]
    window[:-1] = np.maximum(window[:-1], np.maximum.accumulate(table[1:], axis=1))
    # In logarithms, which do not underflow: k further on is k rows below.
    decay = beta * np.arange(rows)[:, None]
    with np.errstate(divide="ignore"):
        falling = np.log(window) - decay
    largest = np.maximum.accumulate(falling[::-1], axis=0)[::-1]
    return np.exp(largest + decay - beta).ravel()[: values.size]


# -- the analysis ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaplaceAnalysis:
    """What `analyse` found. Arrays have one element per moment l = 1 .. moments."""

    not_releasable_epsilon: NotReleasable
    """From the votes themselves: smaller, and private like them. Publish `gnmax.release` instead."""
    data_independent_epsilon: float
    """From the number of questions and the noise alone: may be published."""
    queries: int
    delta: float
    not_releasable_moments: Array
    data_independent_moments: Array
    not_releasable_smooth_sensitivity: Array
    best_moment: int


def count_votes(teacher_preds: Array, num_classes: int | None = None) -> Array:
    """Votes per example and class, from predictions of shape teachers x examples."""
    preds = np.asarray(teacher_preds)
    if preds.ndim != 2 or preds.size == 0:
        raise ValueError(f"teacher_preds has the shape teachers x examples, got {preds.shape}.")
    labels = preds.astype(np.int64)
    if (labels != preds).any() or labels.min() < 0:
        raise ValueError("teacher_preds holds class numbers 0, 1, 2, ...; found something else.")
    classes = max(2, int(labels.max()) + 1) if num_classes is None else num_classes
    if classes < 2 or labels.max() >= classes:
        raise ValueError(
            f"A teacher predicted class {labels.max()}, but num_classes is {classes} (two at least)."
        )
    examples = labels.shape[1]
    flat = (labels + classes * np.arange(examples)).ravel()
    return np.bincount(flat, minlength=classes * examples).reshape(examples, classes)


def _asked(indices: Array, examples: int, classes: int) -> Array:
    rows = np.asarray(indices)
    if rows.ndim != 1 or (rows.size and (rows.astype(np.int64) != rows).any()):
        raise ValueError(f"indices lists the numbers of the examples that were asked, got {indices!r}.")
    rows = rows.astype(np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= examples):
        raise ValueError(
            f"indices runs from {rows.min()} to {rows.max()}, but there are {examples} examples. It holds the "
            "numbers of the examples that were asked, not their labels: np.arange(examples) for all of them."
        )
    if examples == rows.size > classes > rows.max() and np.unique(rows).size < rows.size:
        warnings.warn(
            "indices looks like the labels of the examples. It should be the numbers of the examples that were "
            "asked (np.arange(examples) for all); as it is, the figures are those of a few examples, asked often.",
            LabelsAsIndicesWarning,
            stacklevel=4,
        )
    return rows


def _moments(
    teacher_preds: Array,
    indices: Array,
    noise_eps: float,
    delta: float,
    moments: int,
    num_classes: int | None,
) -> tuple[Array, Array, Array, Array, Array]:
    """Distinct votes, how often each was asked, l, and both totals per moment."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is a probability above 0 and below 1, got {delta}.")
    if isinstance(moments, bool) or moments < 1:
        raise ValueError(f"moments is how many values of l are tried, 1 at least, got {moments}.")
    counts = count_votes(teacher_preds, num_classes)
    rows = _asked(indices, *counts.shape)
    l = 1.0 + np.arange(moments)  # noqa: E741
    # The analysis does not care which class won, so votes are told apart by their falling order only.
    votes, times = np.unique(-np.sort(-counts[rows], axis=-1), axis=0, return_counts=True)
    total = times @ logmgf_from_counts(votes[:, None, :], noise_eps, l)
    independent = rows.size * logmgf_exact(1.0, 2.0 * noise_eps, l)
    return votes, times, l, total, independent


def _epsilons(total: Array, independent: Array, l: Array, delta: float) -> tuple[Array, Array]:  # noqa: E741
    """Tail bound: delta = exp(moment - eps * l) (Abadi et al. 2016, theorem 2), solved for eps."""
    dependent = (total - math.log(delta)) / l
    if dependent.argmin() == l.size - 1:
        warnings.warn(
            f"This may not have used enough values of l: the smallest epsilon is at the last one, l = {l.size}. "
            "Increase 'moments' and run again.",
            TooFewMomentsWarning,
            stacklevel=3,
        )
    return dependent, (independent - math.log(delta)) / l


def perform_analysis(
    teacher_preds: Array,
    indices: Array,
    noise_eps: float,
    delta: float = 1e-5,
    moments: int = 8,
    beta: float = 0.09,
    num_classes: int | None = None,
) -> tuple[NotReleasable, float]:
    """(data-dependent epsilon, data-independent epsilon) of answering the examples `indices` by a noisy vote.

    `teacher_preds` is teachers x examples; `indices` are the numbers of the examples asked, NOT their labels.
    The first figure is computed from the votes and is itself private: steer by it, publish the second (or
    `gnmax.release`). `beta` belongs to the smooth sensitivity, which `analyse` gives. `num_classes` is how
    many classes a teacher could have chosen; without it, as many as were chosen.
    """
    _check_beta(beta)
    _votes, _times, l, total, independent = _moments(  # noqa: E741
        teacher_preds, indices, noise_eps, delta, moments, num_classes
    )
    dependent, data_independent = _epsilons(total, independent, l, delta)
    return NotReleasable(dependent.min()), float(data_independent.min())


def analyse(
    teacher_preds: Array,
    indices: Array,
    noise_eps: float,
    delta: float = 1e-5,
    moments: int = 8,
    beta: float = 0.09,
    num_classes: int | None = None,
) -> LaplaceAnalysis:
    """`perform_analysis` with everything it knows, the smooth sensitivity of each moment included."""
    votes, times, l, total, independent = _moments(  # noqa: E741
        teacher_preds, indices, noise_eps, delta, moments, num_classes
    )
    dependent, data_independent = _epsilons(total, independent, l, delta)
    return LaplaceAnalysis(
        not_releasable_epsilon=NotReleasable(dependent.min()),
        data_independent_epsilon=float(data_independent.min()),
        queries=int(times.sum()),
        delta=delta,
        not_releasable_moments=total,
        data_independent_moments=independent,
        not_releasable_smooth_sensitivity=smoothed_sens(votes, noise_eps, l[:, None], beta) @ times,
        best_moment=int(dependent.argmin()) + 1,
    )


# -- the same with tensors -------------------------------------------------------------------------------


def _array(value: Any) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _tensor(value: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float64))


def tensors_to_literals(tensor_list: Sequence[Any]) -> list[Any]:
    """A list of one-element tensors as a list of numbers."""
    return [value.item() if isinstance(value, torch.Tensor) else value for value in tensor_list]


def compute_q_noisy_max_torch(counts: Any, noise_eps: float) -> torch.Tensor:
    return _tensor(compute_q_noisy_max(_counts(counts), float(noise_eps)))


def compute_q_noisy_max_approx_torch(counts: Any, noise_eps: float) -> torch.Tensor:
    return _tensor(compute_q_noisy_max_approx(_counts(counts), float(noise_eps)))


def logmgf_exact_torch(q: Any, priv_eps: float, l: Any) -> torch.Tensor:  # noqa: E741
    return _tensor(logmgf_exact(_array(q), float(priv_eps), _array(l)))


def logmgf_from_counts_torch(counts: Any, noise_eps: float, l: Any) -> torch.Tensor:  # noqa: E741
    return _tensor(logmgf_from_counts(_counts(counts), float(noise_eps), _array(l)))


def sens_at_k_torch(counts: Any, noise_eps: float, l: Any, k: Any) -> torch.Tensor:  # noqa: E741
    return _tensor(sens_at_k(_counts(counts), float(noise_eps), _array(l), _array(k)))


def smoothed_sens_torch(counts: Any, noise_eps: float, l: Any, beta: float) -> torch.Tensor:  # noqa: E741
    return _tensor(smoothed_sens(_counts(counts), float(noise_eps), _array(l), float(beta)))


smooth_sens_torch = smoothed_sens_torch  # the documented name


def perform_analysis_torch(
    preds: Any,
    indices: Any,
    noise_eps: float = 0.1,
    delta: float = 1e-5,
    moments: int = 8,
    beta: float = 0.09,
    num_classes: int | None = None,
) -> tuple[NotReleasableTensor, torch.Tensor]:
    """`perform_analysis` with tensors of torch's default dtype, rounded up: both figures are bounds.

    The first figure depends on the data, and says so when it is printed.
    """
    *_, l, total, independent = _moments(  # noqa: E741
        _array(preds), _counts(indices), noise_eps, delta, moments, num_classes
    )
    dependent, data_independent = _epsilons(total, independent, l, delta)
    dtype = torch.get_default_dtype()
    bound = _rounded_up(dependent.min(), dtype)
    return NotReleasableTensor(bound, dtype), _rounded_up(data_independent.min(), dtype)


def _rounded_up(value: float, dtype: torch.dtype) -> torch.Tensor:
    """The least number of the dtype that is not below the value."""
    made = torch.tensor(float(value), dtype=dtype)
    return made if float(made) >= value else torch.nextafter(made, torch.tensor(math.inf, dtype=dtype))


def _counts(counts: Any) -> Array:
    """A tensor, or a list that may hold one-element tensors."""
    return _array(counts) if hasattr(counts, "shape") else np.array(tensors_to_literals(counts))
