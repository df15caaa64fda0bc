"""Clipping bounds that move: what a whole round shows, sum and bound together, is what its noise was paid for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.dp import federated
from syft.dp.accounting import Accountant, Gaussian
from syft.dp.audit import epsilon_lower_bound
from syft.dp.client_updates import LARGEST_CLIP, LEAST_CLIP
from syft.dp.federated import AdaptiveClipping, ClientPrivacy
from syft.mpc.randomness import Stream

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

OTHERS = [torch.zeros(3), torch.tensor([0.1, -0.2, 0.3]), torch.full((3,), 50.0)]
MINE = {
    "tiny": torch.full((3,), 1e-30),
    "inside": torch.tensor([0.3, 0.1, 0.0]),
    "at the bound": torch.tensor([1.0, 0.0, 0.0]),
    "long": torch.tensor([-70.0, 10.0, 0.0]),
    "too long to square": torch.full((3,), 1e300, dtype=torch.float64),
    "not a number": torch.tensor([math.nan, 0.0, 1.0]),
    "infinite": torch.tensor([math.inf, 0.0, 1.0]),
}


def exact_epsilon(shift: float, delta: float) -> float:
    """Of a Gaussian with a mean that moves by so many standard deviations (Balle and Wang 2018, theorem 8)."""

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    def spent(epsilon: float) -> float:
        return normal(shift / 2 - epsilon / shift) - math.exp(epsilon) * normal(-shift / 2 - epsilon / shift)

    low, high = 0.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return high


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[torch.Tensor, float]]]:
    """What a round of these updates adds noise to, and the noise's standard deviations."""

    def shown(privacy: ClientPrivacy, updates: list[torch.Tensor]) -> list[tuple[torch.Tensor, float]]:
        seen: list[tuple[torch.Tensor, float]] = []

        def without_noise(total: torch.Tensor, std: float, stream: Any) -> torch.Tensor:
            seen.append((total.clone(), std))
            return total

        monkeypatch.setattr(federated, "_noisy", without_noise)
        privacy.sample([])
        clipped = [privacy.clip(update) for update in updates]
        privacy.noise(sum(clipped, torch.zeros(3, dtype=torch.float64)), len(updates))
        privacy.round_done()
        return seen

    return shown


@pytest.mark.parametrize("mine", MINE.values(), ids=MINE.keys())
@pytest.mark.parametrize(("rate", "other"), [(1.0, "zero"), (0.3, "zero"), (0.3, "absent")])
@pytest.mark.parametrize("count_noise", [0.51, 0.6, 5.0])
def test_one_client_moves_all_that_a_round_shows_by_what_was_paid_for(
    shown: Any, mine: torch.Tensor, rate: float, other: str, count_noise: float
) -> None:
    """The exact epsilon of sum and count together, computed from how far they move, is within the one claimed."""

    def round_with(*more: torch.Tensor) -> tuple[list[tuple[torch.Tensor, float]], float]:
        privacy = ClientPrivacy(
            1.0, 1.0, clients=12, sampling_rate=rate, adaptive=AdaptiveClipping(0.7, count_noise=count_noise)
        )
        return shown(privacy, [*OTHERS, *more]), privacy.clip_norm

    there, bound = round_with(mine)
    gone, bound_without = round_with(*([] if other == "absent" else [torch.zeros_like(mine)]))
    assert len(there) == len(gone) == 2  # the sum of updates, and the count
    squares = 0.0
    for (one, std), (two, same) in zip(there, gone, strict=True):
        assert std == same
        squares += float(((one - two) / std).square().sum())
    shift = math.sqrt(squares)
    assert shift <= 1.0 + 1e-9
    assert exact_epsilon(max(shift, 1e-3), 1e-5) <= exact_epsilon(1.0, 1e-5) + 1e-9
    # And the new bound is a function of the count that had the noise: nothing else of the client is in it.
    if torch.equal(there[1][0], gone[1][0]):
        assert bound == bound_without


def test_the_exact_epsilon_of_a_round_is_what_is_claimed() -> None:
    """Twelve clients and the default noise on counts: where a zero counted as unclipped, 4.38 was claimed for 8.53."""
    privacy = ClientPrivacy(1.0, 1.0, clients=12, adaptive=AdaptiveClipping(), accountant="pld")
    assert privacy.count_noise == pytest.approx(0.6)
    for update in (torch.zeros(1), torch.full((1,), 9.0)):
        privacy.clip(update)
    moved = abs(privacy._counts[1] - privacy._counts[0])
    shift = math.hypot(1 / privacy.update_multiplier, moved / privacy.count_noise)
    privacy.noise(torch.zeros(1), 2)
    assert exact_epsilon(shift, 1e-5) == pytest.approx(4.377, abs=1e-3)
    assert exact_epsilon(shift, 1e-5) <= privacy.epsilon(1e-5) + 1e-3


@pytest.mark.parametrize("rate", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
def test_sum_and_bound_together_do_not_betray_more_than_epsilon(rate: float) -> None:
    """An attack with the noise as it is, on both that a round publishes."""
    delta, noise, count_noise, trials = 1e-2, 1.0, 0.51, 3000
    claimed = Accountant("pld").compose(Gaussian(noise, rate)).epsilon(delta)
    zero, long = torch.zeros(1), torch.full((1,), -100.0)
    stream = Stream(bytes(16))

    def attack(mine: torch.Tensor) -> float:
        privacy = ClientPrivacy(
            1.0,
            noise,
            clients=2,
            sampling_rate=rate,
            adaptive=AdaptiveClipping(0.5, 1.0, count_noise),
            stream=stream,
        )
        drawn = [mine if name == "me" else zero for name in privacy.sample(["me", "other"])]
        total = sum((privacy.clip(update) for update in drawn), torch.zeros(1, dtype=torch.float64))
        released = float(privacy.noise(total, len(drawn)))
        privacy.round_done()
        count = -math.log(privacy.clip_norm) * (2 * rate)
        return -released / privacy.update_multiplier**2 - count / 2 / count_noise**2

    scores = [[attack(mine) for _ in range(trials)] for mine in (long, zero)]
    found = epsilon_lower_bound(*scores, delta=delta)
    assert 0.1 * claimed < found <= claimed


def test_counts_are_paid_for_out_of_the_same_noise() -> None:
    """Two Gaussians, on the update and on the count of sensitivity 1/2, compose to one of the stated multiplier."""
    privacy = ClientPrivacy(1.0, 1.2, clients=100, adaptive=AdaptiveClipping(count_noise=3.0))
    both = Accountant().compose(Gaussian(privacy.update_multiplier)).compose(Gaussian(2 * 3.0))
    assert both.epsilon(1e-5) == pytest.approx(Accountant().compose(Gaussian(1.2)).epsilon(1e-5), rel=1e-9)
    assert ClientPrivacy(1.0, 1.2, clients=100, adaptive=AdaptiveClipping()).count_noise == 5.0
    with pytest.raises(ValueError, match=r"above 0\.6"):
        ClientPrivacy(1.0, 1.2, clients=100, adaptive=AdaptiveClipping(count_noise=0.5))


@pytest.mark.parametrize("wrong", [1.5, -0.1, math.nan, True, "half"])
def test_a_wrong_quantile_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match="quantile is between 0 and 1"):
        AdaptiveClipping(wrong)


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
def test_the_bound_finds_the_quantile_of_the_norms(quantile: float) -> None:
    """Norms are uniform between 0 and 10, so the bound has to come to 10 * quantile."""
    privacy = ClientPrivacy(
        0.1,
        0.5,
        clients=400,
        adaptive=AdaptiveClipping(quantile, 0.3, count_noise=5.0),
        stream=Stream(bytes([3] * 16)),
    )
    random = torch.Generator().manual_seed(0)
    bounds = []
    for _ in range(80):
        for norm in torch.rand(400, 1, generator=random) * 10:
            privacy.clip(norm)
        privacy.noise(torch.zeros(1), 400)
        privacy.round_done()
        bounds.append(privacy.clip_norm)
    assert sum(bounds[-20:]) / 20 == pytest.approx(10 * quantile, rel=0.1)


def test_one_round_moves_the_bound_by_its_learning_rate_and_a_failed_one_is_not_counted_twice() -> None:
    privacy = ClientPrivacy(1.0, 0.5, clients=4, adaptive=AdaptiveClipping(0.5, 0.2, count_noise=1e-3 + 0.25))
    for _ in range(2):  # the first fails on its way: no sum was made of its updates
        for _ in range(4):
            privacy.clip(torch.full((1,), 0.5))
    privacy.noise(torch.zeros(1), 4)
    assert privacy._counted == (2.0, 4)
    privacy.round_done()
    assert math.exp(-0.2) <= privacy.clip_norm <= math.exp(0.2)


@pytest.mark.parametrize("update", [1e-30, math.inf])
def test_a_bound_that_runs_away_stops_before_numbers_end(update: float) -> None:
    privacy = ClientPrivacy(1.0, 1.0, clients=100, adaptive=AdaptiveClipping(learning_rate=50.0))
    for _ in range(20):
        clipped = [privacy.clip(torch.full((5,), update)) for _ in range(100)]
        released = privacy.noise(sum(clipped), 100)  # type: ignore[arg-type]
        privacy.round_done()
        assert LEAST_CLIP <= privacy.clip_norm <= LARGEST_CLIP
        assert released.isfinite().all() and released.abs().max() > 0
