"""PATE with Laplace noise equals what the paper's formulas give one vote at a time."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.dp import pate
from syft.dp.releasable import NotReleasable

torch.set_num_threads(1)

VOTES = st.lists(st.integers(0, 120), min_size=2, max_size=8)
NOISE = st.floats(0.005, 0.6)
MOMENT = st.integers(1, 12)


# -- slow and obvious ------------------------------------------------------------------------------------


def slow_q(counts: list[int], noise_eps: float) -> float:
    winner = counts.index(max(counts))
    total = 0.0
    for label, votes in enumerate(counts):
        if label != winner:
            gap = noise_eps * (counts[winner] - votes)
            total += (2 + gap) / (4 * math.exp(gap))
    return min(total, 1 - 1 / len(counts))


def slow_logmgf(q: float, eps: float, moment: int) -> float:
    bounds = [eps * moment, 0.5 * eps * eps * moment * (moment + 1)]
    if q < 1 / (math.exp(eps) + 1):
        bounds.append(
            math.log((1 - q) * ((1 - q) / (1 - math.exp(eps) * q)) ** moment + q * math.exp(eps * moment))
        )
    return min(bounds)


def slow_sens_at_k(counts: list[int], noise_eps: float, moment: int, k: int) -> float:
    if noise_eps * moment / 2 > 1:
        return math.inf
    ranked = sorted(counts, reverse=True)
    if ranked[0] - k <= ranked[1] + k:
        return 0.0
    here = [ranked[0] - k, ranked[1] + k, *ranked[2:]]
    there = [ranked[0] - k - 1, ranked[1] + k + 1, *ranked[2:]]
    change = slow_logmgf(slow_q(there, noise_eps), 2 * noise_eps, moment) - slow_logmgf(
        slow_q(here, noise_eps), 2 * noise_eps, moment
    )
    return max(change, 0.0)


def slow_analysis(
    preds: Any, indices: Any, noise_eps: float, delta: float, moments: int, classes: int
) -> Any:
    dependent, independent = [], []
    for moment in range(1, moments + 1):
        total = 0.0
        for row in indices:
            counts = [int((preds[:, row] == label).sum()) for label in range(classes)]
            total += slow_logmgf(slow_q(counts, noise_eps), 2 * noise_eps, moment)
        dependent.append((total - math.log(delta)) / moment)
        free = len(indices) * min(2 * noise_eps * moment, 2 * noise_eps**2 * moment * (moment + 1))
        independent.append((free - math.log(delta)) / moment)
    return min(dependent), min(independent), dependent


# -- each function ---------------------------------------------------------------------------------------


@given(VOTES, NOISE, MOMENT, st.integers(0, 70))
def test_every_function_equals_its_formula(counts: list[int], noise: float, moment: int, k: int) -> None:
    q = slow_q(counts, noise)
    assert pate.compute_q_noisy_max(counts, noise) == pytest.approx(q, rel=1e-9, abs=1e-15)
    assert pate.compute_q_noisy_max_approx(counts, noise) >= q - 1e-12
    mgf = slow_logmgf(q, 2 * noise, moment)
    assert pate.logmgf_exact(q, 2 * noise, moment) == pytest.approx(mgf, abs=1e-9)
    assert pate.logmgf_from_counts(counts, noise, moment) == pytest.approx(mgf, abs=1e-9)
    assert pate.sens_at_k(counts, noise, moment, k) == pytest.approx(
        slow_sens_at_k(counts, noise, moment, k), abs=1e-9
    )


@given(VOTES, NOISE, MOMENT, st.integers(0, 70))
def test_the_torch_twins_agree(counts: list[int], noise: float, moment: int, k: int) -> None:
    tensor = torch.tensor(counts)
    for twin, plain in (
        (pate.compute_q_noisy_max_torch(tensor, noise), pate.compute_q_noisy_max(counts, noise)),
        (
            pate.compute_q_noisy_max_approx_torch(tensor, noise),
            pate.compute_q_noisy_max_approx(counts, noise),
        ),
        (
            pate.logmgf_exact_torch(torch.tensor(0.01, dtype=torch.float64), noise, torch.tensor(moment)),
            pate.logmgf_exact(0.01, noise, moment),
        ),
        (
            pate.logmgf_from_counts_torch(tensor, noise, moment),
            pate.logmgf_from_counts(counts, noise, moment),
        ),
        (pate.sens_at_k_torch(tensor, noise, moment, k), pate.sens_at_k(counts, noise, moment, k)),
        (
            pate.smoothed_sens_torch(tensor, noise, moment, 0.09),
            pate.smoothed_sens(counts, noise, moment, 0.09),
        ),
    ):
        assert isinstance(twin, torch.Tensor)
        assert twin.item() == plain


def neighbours(votes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """What one teacher can make of the votes."""
    for down, up in itertools.permutations(range(len(votes)), 2):
        if votes[down]:
            moved = list(votes)
            moved[down], moved[up] = moved[down] - 1, moved[up] + 1
            yield tuple(moved)


@pytest.mark.parametrize("beta", [0.01, 0.09, 0.7])
@pytest.mark.parametrize("moment", [1, 4, 8, 30])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2, 0.3, 0.5, 2.0])
@pytest.mark.parametrize(("teachers", "classes"), [(1, 2), (10, 2), (41, 2), (13, 3), (7, 4)])
def test_the_smooth_sensitivity_is_one_for_all_votes_there_are(
    teachers: int, classes: int, noise: float, moment: int, beta: float
) -> None:
    """It covers what any one teacher can change, and no teacher can change it by more than exp(beta)."""
    votes = [n for n in itertools.product(range(teachers + 1), repeat=classes) if sum(n) == teachers]
    value = dict(zip(votes, pate.logmgf_from_counts(np.array(votes), noise, moment), strict=True))
    smooth = dict(zip(votes, pate.smoothed_sens(np.array(votes), noise, moment, beta), strict=True))
    for n in votes:
        assert max(abs(value[n] - value[m]) for m in neighbours(n)) <= smooth[n] + 1e-14
        assert all(smooth[m] <= math.exp(beta) * smooth[n] * (1 + 1e-12) for m in neighbours(n))


@pytest.mark.parametrize(
    ("counts", "noise", "moment", "local"),
    [([6, 4], 0.5, 1, 0.561), ([21, 19], 0.2, 8, 0.633), ([11, 8, 1], 0.3, 4, 0.734)],
)
def test_a_narrow_lead_is_near_a_large_change(
    counts: list[int], noise: float, moment: int, local: float
) -> None:
    """Where the lead is lost by one teacher, it is another that makes it count."""
    assert pate.smoothed_sens(counts, noise, moment, 0.09) >= local


@pytest.mark.parametrize(("noise", "moment"), [(0.3, 2), (0.5, 8), (1.0, 4)])
def test_the_smooth_sensitivity_is_not_much_more_than_the_least_there_is(noise: float, moment: int) -> None:
    """Against the definition (Nissim et al. 2007, definition 2.2), for two classes.

    What is more: cells, and z between those that votes can have.
    """
    teachers, beta = 60, 0.09
    value = pate.logmgf_from_counts(np.array([(n, teachers - n) for n in range(61)]), noise, moment)
    step = np.abs(np.diff(value))
    local = np.maximum(np.append(step, 0.0), np.append(0.0, step))
    for n in range(31, 61):
        least = max(math.exp(-beta * abs(n - m)) * local[m] for m in range(61))
        assert least - 1e-12 <= pate.smoothed_sens([n, teachers - n], noise, moment, beta) <= 1.5 * least


def test_votes_that_are_none_have_no_sensitivity() -> None:
    for wrong in ([3.0, math.nan], [3.0, -1.0], [math.inf, 1.0]):
        with pytest.raises(ValueError, match="finite numbers, 0 or more"):
            pate.smoothed_sens(wrong, 0.1, 1, 0.09)
    with pytest.raises(ValueError, match="beta"):
        pate.smoothed_sens([3, 1], 0.1, 1, 0.0)


def test_the_approximate_q_takes_the_runner_up_for_everybody() -> None:
    gap = 0.1 * 50
    assert pate.compute_q_noisy_max_approx([80, 30, 5, 0], 0.1) == pytest.approx(
        3 * (2 + gap) / (4 * math.exp(gap))
    )


def test_a_q_past_the_range_of_the_theorem_gives_the_independent_moment() -> None:
    # The even power of a negative number: 0.55 * (0.55 / -0.223)^2 + 0.45 e^2 would look like a bound.
    assert pate.logmgf_exact(0.45, 1.0, 2) == 2.0


def test_no_moment_overflows() -> None:
    assert pate.logmgf_exact(1e-300, 2.0, 400.0) == pytest.approx(800 - 300 * math.log(10))
    assert pate.logmgf_exact(0.0, 5.0, 10) == 0.0
    assert pate.logmgf_exact(0.3, 1000.0, 10) == 10_000.0


def test_functions_work_on_many_votes_at_once() -> None:
    counts = np.random.default_rng(0).integers(0, 100, (4, 3, 5))
    moments = pate.smoothed_sens(counts, 0.1, 3, 0.09)
    assert moments.shape == (4, 3)
    assert moments[2, 1] == pate.smoothed_sens(counts[2, 1], 0.1, 3, 0.09)


def test_tensors_become_literals() -> None:
    assert pate.tensors_to_literals([torch.tensor(3), torch.tensor(0.5), 7]) == [3, 0.5, 7]
    assert pate.compute_q_noisy_max_torch([torch.tensor(9), torch.tensor(2)], 0.1).item() == (
        pate.compute_q_noisy_max([9, 2], 0.1)
    )


# -- the analysis ----------------------------------------------------------------------------------------


def predictions(teachers: int, examples: int, classes: int, agree: float) -> Any:
    random = np.random.default_rng(1)
    truth = random.integers(0, classes, examples)
    guess = random.integers(0, classes, (teachers, examples))
    return np.where(random.random((teachers, examples)) < agree, truth, guess)


@pytest.mark.parametrize("agree", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
def test_the_analysis_equals_the_slow_one(agree: float, noise: float) -> None:
    preds, asked = predictions(60, 25, 4, agree), [0, 3, 3, 24, 7, 11]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pate.TooFewMomentsWarning)
        ours = pate.perform_analysis(preds, asked, noise, 1e-5, 9, num_classes=4)
        twin = pate.perform_analysis_torch(
            torch.from_numpy(preds), torch.tensor(asked), noise, 1e-5, 9, num_classes=4
        )
    slow = slow_analysis(preds, asked, noise, 1e-5, 9, 4)
    assert ours == pytest.approx(slow[:2], abs=1e-9)
    # The twin has torch's default dtype, rounded up.
    for tensor, bound in zip(twin, ours, strict=True):
        assert tensor.dtype == torch.get_default_dtype() and bound <= float(tensor) <= bound * (1 + 2e-7)
    assert ours[0] <= ours[1] + 1e-12


def test_the_record_has_the_smooth_sensitivity_of_every_moment() -> None:
    preds = predictions(40, 12, 3, 0.9)
    with pytest.warns(pate.TooFewMomentsWarning):
        found = pate.analyse(preds, range(12), 0.2, delta=1e-5, moments=12, num_classes=3)
    counts = pate.count_votes(preds, 3).tolist()
    for moment in range(1, 13):
        expected = sum(float(pate.smoothed_sens(row, 0.2, moment, 0.09)) for row in counts)
        assert 0 < expected == pytest.approx(found.not_releasable_smooth_sensitivity[moment - 1], abs=1e-9)
    assert found.queries == 12


def test_the_documented_warning_appears_when_the_last_moment_is_the_best() -> None:
    preds, asked = predictions(100, 30, 5, 1.0), np.arange(30)
    with pytest.warns(
        pate.TooFewMomentsWarning, match="not have used enough values of l.*Increase 'moments'"
    ):
        few = pate.perform_analysis(preds, asked, 0.1, moments=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = pate.perform_analysis(preds, asked, 0.1, moments=80)
    assert many[0] < few[0]


def test_labels_passed_as_indices_are_noticed() -> None:
    preds = predictions(20, 40, 4, 0.2)
    labels = np.arange(40) % 4
    with pytest.warns(pate.LabelsAsIndicesWarning, match="np.arange"):
        pate.perform_analysis(preds, labels, 0.05, moments=60)
    with pytest.raises(ValueError, match="not their labels"):
        pate.perform_analysis(preds, [40], 0.3)


def test_the_data_dependent_figure_says_that_it_is_not_releasable() -> None:
    dependent, independent = pate.perform_analysis(predictions(20, 100, 3, 0.3), range(100), 0.1)
    assert isinstance(dependent, NotReleasable)
    assert "not releasable" in str(dependent) and "not releasable" in repr(dependent)
    for shown in (f"{dependent}", f"{dependent:.3f}", f"{dependent:>12.1e}", format(dependent)):
        assert "not releasable" in shown
    assert f"{dependent:.1f}".startswith(f"{float(dependent):.1f} (")
    assert type(independent) is float and type(dependent + 1) is float


def test_the_tensor_says_so_too() -> None:
    preds = torch.from_numpy(predictions(20, 100, 3, 0.3))
    dependent, independent = pate.perform_analysis_torch(preds, torch.arange(100), 0.1)
    assert isinstance(dependent, torch.Tensor) and dependent.dtype == torch.get_default_dtype()
    assert dependent.dim() == 0
    shown = [str(dependent), repr(dependent), f"{dependent}", f"{dependent:.3f}", str([dependent])]
    shown += [
        str(dependent.item()),
        str(pate.tensors_to_literals([dependent])),
        str(copy.deepcopy(dependent)),
    ]
    assert all("not releasable" in text for text in shown)
    assert f"{dependent:.1f}".startswith(f"{float(dependent):.1f} (")
    assert "not releasable" not in f"{independent} {independent:.3f}"
    assert type(independent) is type(dependent + 1) is type(dependent.clone()) is torch.Tensor
    assert dependent <= independent


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (dict(teacher_preds=np.zeros(3)), "teachers x examples"),
        (dict(teacher_preds=np.full((2, 5), -1)), "class numbers"),
        (dict(teacher_preds=np.full((2, 5), 0.5)), "class numbers"),
        (dict(num_classes=1), "num_classes"),
        (dict(indices=[[1]]), "numbers of the examples"),
        (dict(noise_eps=0.0), "noise_eps"),
        (dict(noise_eps=math.nan), "noise_eps"),
        (dict(delta=0.0), "delta"),
        (dict(moments=0), "moments"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], sentence: str) -> None:
    right: dict[str, Any] = dict(teacher_preds=np.zeros((4, 5)), indices=[0], noise_eps=0.1)
    with pytest.raises(ValueError, match=sentence):
        pate.perform_analysis(**(right | wrong))
