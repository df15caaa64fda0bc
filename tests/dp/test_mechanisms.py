"""Released numbers: the noise has the stated distribution, the data can not be told, and a fault would be caught."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.dp import mechanisms, noise
from syft.dp.audit import epsilon_lower_bound
from syft.mpc.randomness import Stream

pytestmark = pytest.mark.chance

torch.set_num_threads(1)

AWKWARD = [math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1.7e308, -0.0, 1e-310]


def stream(number: int = 0) -> Stream:
    return Stream(number.to_bytes(16, "little"))


def fits(drawn: Any, pmf: Callable[[int], float], reach: int) -> bool:
    """Pearson's chi-square within five standard deviations of its mean, over -reach .. reach."""
    support = np.arange(-reach, reach + 1)
    expected = np.array([pmf(int(y)) for y in support])
    expected = expected / sum(pmf(y) for y in range(-40 * reach, 40 * reach + 1)) * drawn.size
    observed = np.array([(drawn == y).sum() for y in support])
    chi = float(((observed - expected) ** 2 / expected).sum())
    return abs(chi - support.size) < 5 * math.sqrt(2 * support.size)


# -- noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("numerator", "denominator"), [(3, 1), (1, 2), (7, 3), (1 << 40, 1 << 38)])
def test_discrete_laplace_has_its_probabilities(numerator: int, denominator: int) -> None:
    drawn = noise.discrete_laplace(100_000, numerator, denominator, stream(1))
    assert fits(
        drawn, lambda y: math.exp(-abs(y) * denominator / numerator), max(1, 2 * numerator // denominator)
    )


@pytest.mark.parametrize("variance", [1, 5, 30])
def test_discrete_gaussian_has_its_probabilities(variance: int) -> None:
    drawn = noise.discrete_gaussian(100_000, variance, stream(2))
    assert fits(drawn, lambda y: math.exp(-y * y / (2 * variance)), math.ceil(2 * math.sqrt(variance)))


def test_the_largest_discrete_gaussian_does_not_overflow() -> None:
    drawn = noise.discrete_gaussian(50_000, noise.LARGEST_VARIANCE, stream(3)) / math.sqrt(
        noise.LARGEST_VARIANCE
    )
    assert abs(drawn.mean()) < 0.03 and abs(drawn.std() - 1) < 0.02 and 3.3 < np.abs(drawn).max() < 6


@pytest.fixture(params=["numpy", "torch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whose logarithms and tangents are used: which depends on the processor."""
    functions = noise._OF_NUMPY if request.param == "numpy" else noise._OF_TORCH
    monkeypatch.setattr(noise, "_faster", lambda: functions)
    return functions


def test_rounded_gaussian_is_normal(library: Any) -> None:
    drawn = np.sort(noise.rounded_gaussian(100_001, stream(4)) / noise.ROUNDED_STEPS)
    exact = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in drawn[::100]])
    assert np.abs(exact - np.arange(0, 100_001, 100) / 100_001).max() < 0.01  # Kolmogorov-Smirnov
    assert len(drawn) == 100_001


class Words:
    """A stream of words that were chosen."""

    def __init__(self, *parts: Any) -> None:
        self.parts = [np.array(part, dtype=np.uint64) for part in parts]

    def words(self, count: int) -> torch.Tensor:
        part = self.parts.pop(0)
        assert part.size == count
        return torch.from_numpy(part.view(np.int64).copy())


def radius(number: int) -> int:
    """The word for the uniform number (number + 1) / 2^64, of which the radius is made."""
    return number ^ (1 << 63)


def test_a_pair_lies_on_its_circle_at_its_angle(library: Any) -> None:
    """Every quadrant, the axes, and the ends of the angles, to within rounding of radius and angle."""
    angles = np.concatenate([np.linspace(-(2.0**63), 2.0**63 - 1024, 4001), [-(2.0**63), -1, 0, 1, 2.0**62]])
    angles = angles.astype(np.int64)
    count, word = len(angles), radius(1 << 62)
    drawn = noise.rounded_gaussian(2 * count, Words([word] * count + angles.view(np.uint64).tolist()))  # type: ignore[arg-type]
    length = math.sqrt(-2 * math.log(0.25)) * noise.ROUNDED_STEPS
    exact = [angle * math.pi * 2.0**-63 for angle in angles.tolist()]
    expected = np.array([[length * f(angle) for angle in exact] for f in (math.cos, math.sin)])
    assert np.abs(drawn.view(2, count).numpy() - expected).max() <= 0.5 + 2.0**-15


@pytest.mark.parametrize("number", [0, 1])
def test_libraries_agree_to_a_few_units_in_the_last_place(number: int) -> None:
    ends = np.array(
        [[5e-20, 2.0**-53, 0.5, 1 - 2.0**-53], [2.0**-63, 0.7853981633974483, 1.5, 1.5707963267948966]]
    )
    values = np.concatenate([np.linspace(ends[number, 0], ends[number, -1], 20_011), ends[number]])
    one, other = values.copy(), values.copy()
    noise._OF_NUMPY[number](one)
    noise._OF_TORCH[number](other)
    exact = np.array([(math.log, math.tan)[number](value) for value in values.tolist()])
    for found in (one, other):
        assert (np.abs(found - exact) <= 4 * np.spacing(np.abs(exact))).all()


def test_far_out_the_circles_of_the_noise_are_closer_than_its_grid(library: Any) -> None:
    """See NOTE [Circles]: with 64 bits alone, a thousand neighbouring circles would be hundreds of steps apart."""
    count, angle = 1000, 0  # along the first axis
    more = [number << 54 for number in range(count)]
    drawn = noise.rounded_gaussian(2 * count, Words([radius(1 << 28)] * count + [angle] * count, more))[
        :count
    ]  # type: ignore[arg-type]
    next_circle = noise.rounded_gaussian(2, Words([radius((1 << 28) + 1), angle], [0]))[0]  # type: ignore[arg-type]
    assert 7 < drawn[0] / noise.ROUNDED_STEPS < 7.2
    assert len(set(drawn.tolist())) > 2
    assert (np.diff(drawn) <= 0).all() and abs(int(drawn[-1]) - int(next_circle)) <= 1
    last = noise.rounded_gaussian(2, Words([radius(0), angle], [0]))[0]  # type: ignore[arg-type]
    assert 13 < last / noise.ROUNDED_STEPS < 13.5
    # Where words are made doubles, from 2^44 on, they are still closer than the grid.
    edge = [radius((1 << 44) + 512 * number) for number in range(200)]
    along = noise.rounded_gaussian(400, Words(edge + [angle] * 200))[:200]  # type: ignore[arg-type]
    assert set(np.diff(along).tolist()) <= {0, -1}


def test_next_to_zero_the_circles_of_the_noise_are_as_close_as_its_grid(library: Any) -> None:
    below = np.arange(200)
    words = [radius((1 << 64) - 1 - int(c)) for c in below] + [0] * 200
    drawn = noise.rounded_gaussian(400, Words(words))[:200]  # type: ignore[arg-type]
    assert drawn.tolist() == np.rint(np.sqrt(2.0 * below)).astype(int).tolist()


@pytest.mark.parametrize("gamma", [(0, 1), (1, 3), (1, 1), (7, 2), (600, 1)])
def test_bernoulli_exp_has_its_probability(gamma: tuple[int, int]) -> None:
    passed = noise.bernoulli_exp(np.full(60_000, gamma[0]), gamma[1], stream(5))
    p = math.exp(-gamma[0] / gamma[1])
    assert abs(passed.mean() - p) <= 5 * math.sqrt(p * (1 - p) / 60_000)


def test_two_streams_differ_and_one_seed_repeats() -> None:
    assert mechanisms.laplace(0.0, 1.0, 1.0, stream=stream(6)) == mechanisms.laplace(
        0.0, 1.0, 1.0, stream=stream(6)
    )
    assert len({mechanisms.laplace(0.0, 1.0, 1.0) for _ in range(20)}) > 15


# -- what is released ------------------------------------------------------------------------------------


def test_releases_are_near_the_truth() -> None:
    rows = np.random.default_rng(0).normal(3.0, 2.0, 20_000)
    bounds, s = (-10.0, 10.0), stream(7)
    assert mechanisms.laplace(5.0, 1.0, 1000.0, stream=s) == pytest.approx(5.0, abs=0.02)
    assert mechanisms.gaussian(5.0, 1.0, noise_multiplier=0.001, stream=s) == pytest.approx(5.0, abs=0.02)
    assert mechanisms.count(rows, 1.0, stream=s) == pytest.approx(20_000, abs=20)
    assert mechanisms.bounded_sum(rows, bounds, 1.0, stream=s) == pytest.approx(rows.sum(), abs=200)
    assert mechanisms.bounded_mean(rows, bounds, 1.0, stream=s) == pytest.approx(rows.mean(), abs=0.02)
    assert mechanisms.bounded_variance(rows, bounds, 1.0, stream=s) == pytest.approx(rows.var(), abs=0.2)
    assert mechanisms.quantile(rows, 0.5, bounds, 1.0, stream=s) == pytest.approx(np.median(rows), abs=0.1)
    assert mechanisms.quantile(torch.from_numpy(rows), 0.9, bounds, 1.0, stream=s) == pytest.approx(
        np.quantile(rows, 0.9), abs=0.1
    )
    assert mechanisms.exponential([0.0, 50.0, 10.0], 1.0, 2.0, stream=s) == 1
    assert mechanisms.noisy_max([0.0, 50.0, 10.0], 1.0, 2.0, stream=s) == 1
    found = mechanisms.histogram(rows, 1.0, edges=[-20, 0, 3, 20], stream=s)
    assert found == pytest.approx(np.histogram(rows, [-20, 0, 3, 20])[0], abs=20)
    words = mechanisms.histogram(["a", "b", "a", None, ["x"]], 100.0, categories=["a", "b", "c"], stream=s)
    assert words.tolist() == [2, 1, 0]


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 5.0, 100.0])
def test_gaussian_noise_has_its_standard_deviation_in_one_and_many_dimensions(multiplier: float) -> None:
    many = mechanisms.gaussian(
        np.zeros((40, 50)), 0.7, noise_multiplier=min(multiplier, 5.0), stream=stream(8)
    )
    assert many.shape == (40, 50)
    # A vector pays for its rounding with a little more noise, never with less.
    assert 0.93 < many.std() / (0.7 * min(multiplier, 5.0)) < 1.3
    single = [
        mechanisms.gaussian(0.0, 0.7, noise_multiplier=multiplier, stream=stream(i)) for i in range(400)
    ]
    assert np.std(single) == pytest.approx(0.7 * multiplier, rel=0.15)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (4.0, 1e-9), (20.0, 1e-5)])
def test_the_noise_for_epsilon_and_delta_is_enough_and_not_far_from_the_least(
    epsilon: float, delta: float
) -> None:
    """Against the exact condition for the continuous Gaussian (Balle and Wang 2018, theorem 8)."""
    sigma = mechanisms.gaussian_noise_multiplier(epsilon, delta)

    def exact_delta(s: float) -> float:
        below, above = 1 / (2 * s) - epsilon * s, -1 / (2 * s) - epsilon * s
        return 0.5 * math.erfc(-below / math.sqrt(2)) - math.exp(epsilon) * 0.5 * math.erfc(
            -above / math.sqrt(2)
        )

    assert exact_delta(sigma) <= delta
    assert exact_delta(0.85 * sigma) > delta


def test_choices_have_their_probabilities() -> None:
    scores, runs = [0.0, 1.0, 3.0], 2500
    weights = np.exp(np.array(scores) * 1.0 / 2)
    s = stream(9)
    drawn = np.bincount(
        [mechanisms.exponential(scores, 1.0, 1.0, stream=s) for _ in range(runs)], minlength=3
    )
    assert drawn / runs == pytest.approx(weights / weights.sum(), abs=0.05)
    flipped = np.bincount(
        [mechanisms.noisy_max(scores, 1.0, 1.0, stream=s) for _ in range(runs)], minlength=3
    )
    assert flipped[2] > drawn[2]


# -- extremes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", AWKWARD)
def test_no_row_makes_a_mechanism_fail_or_say_nan(value: float) -> None:
    rows = np.array([1.0, 2.0, value, 3.0])
    bounds = (0.0, 4.0)
    released = [
        mechanisms.laplace(value, 1.0, 1.0),
        mechanisms.gaussian(value, 1.0, noise_multiplier=1.0),
        mechanisms.bounded_sum(rows, bounds, 1.0),
        mechanisms.bounded_mean(rows, bounds, 1.0),
        mechanisms.bounded_variance(rows, bounds, 1.0),
        mechanisms.quantile(rows, 0.5, bounds, 1.0),
        *mechanisms.histogram(rows, 1.0, edges=[0.0, 2.0, 4.0]),
        mechanisms.exponential(rows, 1.0, 1.0),
        mechanisms.noisy_max(rows, 1.0, 1.0),
    ]
    assert all(math.isfinite(x) for x in released)


@given(st.floats(allow_nan=True), st.floats(1e-300, 1e300))
def test_neighbouring_values_stay_neighbours_on_the_grid(value: float, sensitivity: float) -> None:
    from fractions import Fraction

    step = Fraction(sensitivity) / mechanisms.STEPS
    near = value + sensitivity
    if (
        math.isfinite(value)
        and math.isfinite(near)
        and abs(Fraction(near) - Fraction(value)) <= Fraction(sensitivity)
    ):
        a, b = mechanisms._on_grid([value, near], step)
        assert abs(a - b) <= mechanisms.STEPS


@given(st.lists(st.floats(allow_nan=True), max_size=20), st.floats(allow_nan=True))
def test_one_row_more_moves_a_sum_by_no_more_than_its_sensitivity(rows: list[float], row: float) -> None:
    for values, largest in ((np.array([*rows, row]), 3.0),):
        clipped = np.clip(np.where(np.isnan(values), 0.0, values), -3.0, 3.0)
        change = mechanisms._sum_steps(clipped, largest) - mechanisms._sum_steps(clipped[:-1], largest)
        assert abs(change) <= mechanisms.STEPS


def test_the_support_does_not_depend_on_the_value() -> None:
    """Mironov's attack: with floating-point noise, some outputs are possible for one value and not the other."""
    step = 1.0 / mechanisms.STEPS
    for value in (0.0, 1.0, 0.1, 1 / 3):
        released = [mechanisms.laplace(value, 1.0, 0.5, stream=stream(i)) for i in range(200)]
        assert all((x / step).is_integer() for x in released)


@given(
    st.lists(st.integers(0, 5) | st.sampled_from(["a", (1,), 0.5]), min_size=1, max_size=6, unique=True),
    st.data(),
)
def test_a_doubled_category_is_refused_whatever_the_rows_are(
    categories: list[Any], drawn: st.DataObject
) -> None:
    rows = drawn.draw(st.lists(st.sampled_from([*categories, None, math.nan, "z", [1]]), max_size=5))
    doubled = drawn.draw(st.sampled_from(categories))
    place = drawn.draw(st.integers(0, len(categories)))
    equal = float(doubled) if isinstance(doubled, int) and drawn.draw(st.booleans()) else doubled
    assert len(mechanisms.histogram(rows, 1.0, categories=categories)) == len(categories)
    with pytest.raises(ValueError, match="which are equal"):
        mechanisms.histogram(rows, 1.0, categories=[*categories[:place], equal, *categories[place:]])


def test_categories_may_be_a_tensor_and_have_hashes() -> None:
    found = mechanisms.histogram([3, 3, 1], 100.0, categories=torch.tensor([1, 3]), stream=stream())
    assert found.tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"with a hash.*got a list"):
        mechanisms.histogram([1], 1.0, categories=[[1]])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mechanisms.laplace(0.0, 0.0, 1.0), "sensitivity"),
        (lambda: mechanisms.laplace(0.0, math.nan, 1.0), "sensitivity"),
        (lambda: mechanisms.laplace(0.0, 1.0, 0.0), "epsilon"),
        (lambda: mechanisms.laplace(0.0, 1.0, math.inf), "epsilon"),
        (lambda: mechanisms.gaussian(0.0, 1.0), "epsilon and delta"),
        (lambda: mechanisms.gaussian(0.0, 1.0, epsilon=1.0, delta=0.1, noise_multiplier=1.0), "not both"),
        (lambda: mechanisms.gaussian(0.0, 1.0, epsilon=1.0, delta=1.0), "delta"),
        (lambda: mechanisms.gaussian(0.0, 1.0, noise_multiplier=1e6), "larger epsilon"),
        (lambda: mechanisms.bounded_mean([1.0], (2.0, 1.0), 1.0), "must not come from the data"),
        (lambda: mechanisms.bounded_mean([1.0], (-math.inf, 1.0), 1.0), "bounds"),
        (lambda: mechanisms.bounded_mean(np.array([[1.0]]), (0.0, 1.0), 1.0), "one number per person"),
        (lambda: mechanisms.bounded_mean(torch.ones(2, 1), (0.0, 1.0), 1.0), "one number per person"),
        (lambda: mechanisms.bounded_mean("12", (0.0, 1.0), 1.0), "got a str"),
        (lambda: mechanisms.bounded_mean(12.0, (0.0, 1.0), 1.0), "got a float"),
        (lambda: mechanisms.laplace([[1.0], [1.0, 2.0]], 1.0, 1.0), "lists of one length"),
        (lambda: mechanisms.quantile([1.0], 1.5, (0.0, 1.0), 1.0), "fraction"),
        (lambda: mechanisms.histogram([1.0], 1.0), "either edges or categories"),
        (lambda: mechanisms.histogram([1.0], 1.0, edges=[1.0, 0.0]), "rising"),
        (lambda: mechanisms.histogram([], 1.0, categories=[1, True]), "which are equal"),
        (lambda: mechanisms.histogram([], 1.0, categories=[math.nan]), "NaN is no category"),
        (lambda: mechanisms.histogram([1], 1.0, categories=[]), "no categories"),
        (lambda: mechanisms.exponential([], 1.0, 1.0), "one number per candidate"),
        (lambda: noise.discrete_gaussian(1, 0, stream()), "variance"),
        (lambda: noise.discrete_laplace(1, 0, 1, stream()), "scale"),
    ],
)
def test_a_wrong_public_argument_is_named(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda epsilon: mechanisms.laplace(0.0, 1.0, epsilon),
        lambda epsilon: mechanisms.gaussian(0.0, 1.0, epsilon=epsilon, delta=0.1),
        lambda epsilon: mechanisms.exponential([1.0], 1.0, epsilon),
        lambda epsilon: mechanisms.noisy_max([1.0], 1.0, epsilon),
        lambda epsilon: mechanisms.count([1.0], epsilon),
        lambda epsilon: mechanisms.histogram([1.0], epsilon, edges=[0.0, 2.0]),
        lambda epsilon: mechanisms.bounded_sum([1.0], (0.0, 1.0), epsilon),
        lambda epsilon: mechanisms.bounded_mean([1.0], (0.0, 1.0), epsilon),
        lambda epsilon: mechanisms.bounded_variance([1.0], (0.0, 1.0), epsilon),
        lambda epsilon: mechanisms.quantile([1.0], 0.5, (0.0, 1.0), epsilon),
    ],
)
def test_true_is_no_epsilon_of_any_mechanism(call: Callable[[Any], Any]) -> None:
    call(1)
    with pytest.raises(ValueError, match="epsilon is between"):
        call(True)


def test_a_release_at_the_end_of_the_floats_stays_finite() -> None:
    assert abs(mechanisms.laplace(math.inf, 1e305, 0.01)) <= sys.float_info.max


# -- audit -----------------------------------------------------------------------------------------------


def audited(mechanism: Callable[[Any, Stream], float], one: Any, other: Any, delta: float = 0.0) -> float:
    s = stream(10)
    runs = [[mechanism(data, s) for _ in range(1200)] for data in (one, other)]
    return epsilon_lower_bound(*runs, delta=delta)


ROWS = [0.1, 0.4, 0.2]
MECHANISMS: dict[str, tuple[Callable[[Any, Stream], float], float]] = {
    "laplace": (lambda d, s: mechanisms.laplace(float(len(d)), 1.0, 1.0, stream=s), 0.0),
    "gaussian": (
        lambda d, s: mechanisms.gaussian(float(len(d)), 1.0, epsilon=1.0, delta=1e-3, stream=s),
        1e-3,
    ),
    "count": (lambda d, s: mechanisms.count(d, 1.0, stream=s), 0.0),
    "histogram": (lambda d, s: mechanisms.histogram(d, 1.0, edges=[0.0, 0.5, 1.0], stream=s)[1], 0.0),
    "sum": (lambda d, s: mechanisms.bounded_sum(d, (0.0, 1.0), 1.0, stream=s), 0.0),
    "mean": (lambda d, s: mechanisms.bounded_mean(d, (0.0, 1.0), 1.0, stream=s), 0.0),
    "variance": (lambda d, s: mechanisms.bounded_variance(d, (0.0, 1.0), 1.0, stream=s), 0.0),
    "quantile": (lambda d, s: mechanisms.quantile(d, 1.0, (0.0, 1.0), 1.0, candidates=8, stream=s), 0.0),
    "noisy max": (lambda d, s: mechanisms.noisy_max([len(d), 3.0, 3.0], 1.0, 1.0, stream=s), 0.0),
}


#: Attacked each time as releases, in test_audit_power.py.
ELSEWHERE = ("laplace", "gaussian", "histogram", "quantile", "noisy max")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in ELSEWHERE else []) for n in MECHANISMS]
)
def test_an_attacker_does_not_find_more_than_the_claimed_epsilon(name: str) -> None:
    mechanism, delta = MECHANISMS[name]
    assert audited(mechanism, [*ROWS, 1.0], ROWS, delta) <= 1.0


BROKEN: dict[str, Callable[[Any, Stream], float]] = {
    "noise for a third of the sensitivity": lambda d, s: mechanisms.laplace(
        float(len(d)), 1 / 3, 1.0, stream=s
    ),
    "bounds from the data": lambda d, s: mechanisms.bounded_mean(d, (0.0, max(d)), 1.0, stream=s),
    "no noise at all": lambda d, s: float(len(d)),
    "noise that is rounded away": lambda d, s: 1e17 * len(d) + mechanisms.laplace(0.0, 1.0, 1.0, stream=s),
    "an error for a bad row": lambda d, s: math.inf if 1.0 in d else mechanisms.count(d, 1.0, stream=s),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_mechanism_is_caught_by_the_same_audit(name: str) -> None:
    assert audited(BROKEN[name], [*ROWS, 1.0], ROWS) > 1.2


def test_an_audit_needs_runs() -> None:
    with pytest.raises(ValueError, match="20 runs"):
        epsilon_lower_bound([1.0], [2.0])
