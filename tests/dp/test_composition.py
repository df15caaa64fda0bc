"""The rule of budgets: divergences are never too small, and whoever chooses by answers gets no more than delta."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from syft.dp.accounting import Accountant, Budget, BudgetFile, Gaussian, Pure
from syft.dp.composition import _ORDERS, EVENTS_ONLY, Charge, Limit, divergence, fits, spent_epsilon
from syft.exceptions import BudgetExceededError, BudgetFileError

pytestmark = pytest.mark.chance

torch.set_num_threads(1)


# -- divergences -------------------------------------------------------------------------------------------


def test_the_divergence_of_a_pure_event_is_never_less_than_in_sixty_digits() -> None:
    mp = pytest.importorskip("mpmath")
    with mp.workdps(60):
        for order, epsilon in itertools.product(
            _ORDERS[::7], (1e-9, 1e-6, 9.9e-5, 1e-4, 1.1e-4, 1e-3, 0.1, 0.69, 1.0, 10.0, 500.0, 1e4)
        ):
            a, e = mp.mpf(order), mp.mpf(epsilon)
            p, q = 1 / (1 + mp.exp(-e)), 1 / (1 + mp.exp(e))
            true = mp.log(p**a * q ** (1 - a) + q**a * p ** (1 - a)) / (a - 1)
            ours = divergence(Pure(epsilon), order)
            assert min(true, e) <= ours <= true * (1 + mp.mpf(1e-12))


def sampled_divergence(event: Gaussian, order: float) -> float:
    """By quadrature: of a mixture of two normal densities from one of them."""
    noise, rate = event.noise_multiplier, event.sampling_rate
    y = np.linspace(-14 * noise, order + 14 * noise, 400_001)
    base = -((y / noise) ** 2) / 2 - math.log(noise * math.sqrt(2 * math.pi)) + math.log(y[1] - y[0])
    loss = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * y - 1) / (2 * noise**2))
    logs = base + order * loss
    return float((np.log(np.exp(logs - logs.max()).sum()) + logs.max()) / (order - 1))


@pytest.mark.parametrize(
    "event", [Gaussian(1.3, 0.02), Gaussian(0.5, 0.1), Gaussian(40.0, 0.3), Gaussian(2.0, 0.001)]
)
def test_the_divergence_of_a_sample_is_never_less_than_by_quadrature(event: Gaussian) -> None:
    for order in (1.01, 1.5, 2.0, 3.3, 17.9, 64.0):
        ours, true = divergence(event, order), sampled_divergence(event, order)
        assert true - 1e-9 <= ours <= order / (2 * event.noise_multiplier**2) * (1 + 1e-12)
        if order == int(order):
            assert ours == pytest.approx(true, rel=1e-6, abs=1e-10)
    assert divergence(event, 1e7) == pytest.approx(1e7 / (2 * event.noise_multiplier**2))


@pytest.mark.parametrize(
    "limit", [Limit(1.797e308, 0.5), Limit(1.797e308, 0.0), Limit(1e-300, 0.5), Limit(1.0, 1e-300)]
)
def test_an_infinite_cost_never_fits(limit: Limit) -> None:
    for charge in (
        Charge("", None, math.inf),
        Charge("", None, 1.7e308, 0.0, 2),
        Charge("", None, 1e-3, 0.9),
        Charge("", Gaussian(1e-11), math.inf, 0.0, 1 << 40)
        if limit.epsilon < 1e300
        else Charge("", None, math.inf),
    ):
        assert not fits([charge], limit)


# -- whoever chooses by answers ----------------------------------------------------------------------------

EPSILON, DELTA, FIRST = 1.0, 1e-3, Gaussian(4.0)


def largest(allows: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(25):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if allows(middle) else (low, middle)
    return low


def delta_of_who_chooses(rate: float, epsilon: float) -> float:
    """The delta, by quadrature, of `FIRST`, and then by its answer Gaussian(0.2, rate) or Pure(epsilon)."""
    y = np.linspace(-3, 5, 40_001)
    without = np.exp(-((y / 0.2) ** 2) / 2) / (0.2 * math.sqrt(2 * math.pi)) * (y[1] - y[0])
    with_row = (1 - rate) * without + rate * np.exp(-(((y - 1) / 0.2) ** 2) / 2) / (
        0.2 * math.sqrt(2 * math.pi)
    ) * (y[1] - y[0])
    p = 1 / (1 + math.exp(-epsilon))
    mean = 1 / FIRST.noise_multiplier
    losses = np.linspace(mean**2 / 2 - 10 * mean, mean**2 / 2 + 10 * mean, 1501)
    weights = np.exp(-(((losses - mean**2 / 2) / mean) ** 2) / 2)
    weights /= weights.sum()
    left = np.exp(EPSILON - losses)
    sampled = np.array([np.maximum(with_row - ratio * without, 0).sum() for ratio in left])
    answered = np.maximum(p - left * (1 - p), 0) + np.maximum((1 - p) - left * p, 0)
    return float((weights * np.maximum(sampled, answered)).sum())


def test_who_chooses_the_second_event_by_the_first_answer_stays_within_delta() -> None:
    budget = Budget(EPSILON, DELTA, Accountant("pld"))
    budget.spend(FIRST)
    rate = largest(lambda q: budget.allows(Gaussian(0.2, q)), 1e-9, 1e-2)
    epsilon = largest(lambda e: budget.allows(Pure(e)), 1e-3, 3.0)
    assert epsilon > 0.2
    assert 0 < delta_of_who_chooses(rate, epsilon) <= DELTA


def test_an_accountant_alone_would_have_been_caught() -> None:
    pytest.importorskip("dp_accounting")
    spent, rate, epsilon = Accountant("pld").compose(FIRST), 0.00124, 0.452
    for event in (Gaussian(0.2, rate), Pure(epsilon)):
        assert spent.after(event).epsilon(DELTA) <= EPSILON + 1e-3
        assert not Budget(EPSILON, DELTA, Accountant("pld", spent=dict(spent.spent))).allows(event)
    assert delta_of_who_chooses(rate, epsilon) > 1.9 * DELTA


def test_a_budget_costs_little_more_than_what_is_known_of_fixed_events() -> None:
    pytest.importorskip("dp_accounting")
    charges = [Charge("", Gaussian(20.0), math.inf, 0.0, 50)]
    ours = spent_epsilon(charges, Limit(2.0, 1e-6), EVENTS_ONLY)
    best = Accountant().compose(Gaussian(20.0), 50).epsilon(1e-6)
    assert best <= ours < 1.1 * best


# -- plans -------------------------------------------------------------------------------------------------

STEP = Gaussian(1.2, 0.02)


def planned(extra: float = 0.0, kind: Any = "rdp") -> Budget:
    pytest.importorskip("dp_accounting")
    cost = Accountant(kind).compose(STEP, 300).epsilon(1e-5)
    return Budget(cost + extra, 1e-5, Accountant(kind), planned=(STEP, 300))


@pytest.mark.parametrize("kind", ["rdp", "pld"])
def test_a_plan_is_composed_by_the_accountant_and_spent_to_its_end(kind: Any) -> None:
    budget = planned(kind=kind)
    for _ in range(299):
        budget.spend(STEP)
    assert not budget.allows(Pure(1e-6)) and not budget.allows(STEP, 2)
    budget.spend(STEP)
    assert budget.spent() == pytest.approx(budget.epsilon)
    with pytest.raises(BudgetExceededError):
        budget.spend(STEP)


def test_what_is_not_planned_has_to_fit_beside_the_whole_plan() -> None:
    for before in (0, 150, 300):
        budget = planned()
        if before:
            budget.spend(STEP, before)
        assert not budget.allows(Pure(0.01))  # though a budget without the plan would have room
    assert Budget(budget.epsilon, 1e-5).allows(Pure(0.01))
    roomy = planned(extra=2.0)
    roomy.spend(STEP)
    roomy.spend(Pure(0.1))
    assert roomy.spent() > Accountant().compose(STEP, 300).epsilon(1e-5)
    roomy.spend(STEP, 299)  # and the plan is still there
    assert not roomy.allows(Pure(2.0))


def test_a_plan_is_made_first_and_fits(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"costs epsilon .*Plan more noise"):
        Budget(0.1, 1e-5, planned=(STEP, 300))
    with pytest.raises(ValueError, match="before anything else is spent"):
        Budget(planned().epsilon, 1e-5, Accountant().compose(Pure(0.1)), planned=(STEP, 300))
    with pytest.raises(ValueError, match="count"):
        Budget(1.0, 1e-5, planned=(STEP, 0))


def test_a_plan_is_kept_in_the_file(tmp_path: Path) -> None:
    budget = planned()
    file = BudgetFile.create(tmp_path / "b.json", budget.epsilon, 1e-5, planned=(STEP, 300))
    file.spend(STEP, 200)
    assert file.read().planned == (STEP, 300)
    file.spend(STEP, 100)
    with pytest.raises(BudgetExceededError):
        file.spend(STEP)
    text = file.read().to_json()
    (tmp_path / "b.json").write_text(text.replace('"count": 300\n }\n}', '"count": 400\n }\n}'))
    with pytest.raises(BudgetFileError):
        file.read()
    with pytest.raises(BudgetFileError, match="The plan of 400 times"):
        BudgetFile(tmp_path / "b.json").read()


def test_numbers_that_no_float_can_be_are_refused_with_a_sentence() -> None:
    for wrong in (10**400, 10**5000, math.nan, math.inf, "1", True):
        for call in (
            Pure,
            Gaussian,
            lambda w: Budget(w, 0.0),
            lambda w: Gaussian(1.0, w),
            lambda w: Budget(1.0, w),
        ):
            with pytest.raises(ValueError, match="got"):
                call(wrong)
    with pytest.raises(ValueError, match="count"):
        Accountant().compose(Pure(1.0), 10**400)
    with pytest.raises(BudgetExceededError, match="Gaussian noise needs a budget with a delta"):
        Budget(1.0, 0.0).spend(Gaussian(100.0))
    assert Budget(1.0, 1e-6).allows(Gaussian(1e200))
