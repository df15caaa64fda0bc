"""Privacy of whole clients: clipping bounds what one can do, the noise is as stated, epsilon belongs to the rounds."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from syft.dp.accounting import Accountant, Budget, BudgetExceededError, Gaussian
from syft.dp.audit import epsilon_lower_bound
from syft.dp.federated import AdaptiveClipping, ClientPrivacy, DistributedPrivacy, clipped_to_grid
from syft.federated.secure_aggregation import MaskedSum, TooFewClientsError
from syft.mpc.randomness import Stream

dp = pytest.importorskip("dp_accounting")
torch.set_num_threads(1)


def stream(number: int = 0) -> Stream:
    return Stream(number.to_bytes(16, "little"))


def names(count: int) -> list[str]:
    return [f"c{number:02}" for number in range(count)]


# -- clipping --------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=20),
    st.floats(1e-3, 1e3),
    st.integers(2, 30),
)
def test_a_clipped_update_is_on_the_grid_and_within_its_bound(
    values: list[float], bound: float, fine: int
) -> None:
    step = 2.0 ** (math.frexp(bound)[1] - fine)
    clipped = clipped_to_grid(torch.tensor(values, dtype=torch.float64), bound, step)
    on_grid = [round(value / step) for value in clipped.tolist()]
    assert [number * step for number in on_grid] == clipped.tolist()
    assert sum(number * number for number in on_grid) * step * step <= bound * bound  # in integers


def test_a_short_update_is_left_alone_and_a_long_one_keeps_its_direction() -> None:
    privacy = ClientPrivacy(1.0, 1.0, clients=10)
    short = torch.tensor([0.25, -0.5])
    assert torch.equal(privacy.clip(short), short.double())
    long = torch.tensor([30.0, -40.0])
    torch.testing.assert_close(
        privacy.clip(long), torch.tensor([0.6, -0.8], dtype=torch.float64), atol=1e-8, rtol=0
    )
    assert torch.equal(long, torch.tensor([30.0, -40.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_adds_nothing(bad: float) -> None:
    assert ClientPrivacy(1.0, 1.0, clients=2).clip(torch.tensor([1.0, bad])).tolist() == [0.0, 0.0]
    huge = ClientPrivacy(1.0, 1.0, clients=2).clip(torch.tensor([1e300, 1e300], dtype=torch.float64))
    assert float(huge.norm()) == pytest.approx(1.0)


def test_sums_of_clipped_updates_do_not_depend_on_their_order() -> None:
    privacy = ClientPrivacy(0.7, 1.0, clients=1000)
    clipped = torch.stack([privacy.clip(torch.randn(5)) for _ in range(1000)])
    assert torch.equal(clipped.sum(0), clipped.flip(0).sum(0))


@pytest.mark.parametrize("bits", [2, 6, 10, 20])
def test_a_client_is_clipped_to_the_grid_of_the_aggregation(bits: int) -> None:
    privacy = ClientPrivacy(0.9, 1.0, clients=10)
    for update in (torch.full((4,), 1.0), torch.randn(4), torch.randn(4) * 1e-3):
        on_grid = [value * 2**bits for value in privacy.clip_to_grid(update, 2.0**-bits).tolist()]
        assert on_grid == [round(value) for value in on_grid]
        assert sum(round(value) ** 2 for value in on_grid) <= (Fraction(0.9) * 2**bits) ** 2
    with pytest.raises(ValueError, match=r"10000 numbers clipped to 0\.9 .* let the aggregation be finer"):
        privacy.clip_to_grid(torch.zeros(10_000), 2.0**-6)


def test_rounding_to_the_grid_of_the_noise_is_paid_for() -> None:
    """The worst sum of the others: beside it, every number of one client's update is rounded up."""
    d, privacy = 10_000, ClientPrivacy(1.0, 1000.0, clients=10)
    mine = privacy.clip(torch.full((d,), 1.0, dtype=torch.float64))
    unit = 1000.0 / 2**32
    step = float(mine[0]) / unit
    others = torch.full((d,), (0.5 - (step - math.floor(step)) / 2) * unit, dtype=torch.float64)
    moved = ((others + mine) / unit).round() - (others / unit).round()
    assert float(moved[0]) == math.ceil(step)
    length = sum(int(value) ** 2 for value in moved.tolist())
    assert length * Fraction(unit) ** 2 <= 1
    with pytest.raises(ValueError, match="more than can be summed without rounding"):
        ClientPrivacy(1.0, 1e9, clients=10).clip(torch.zeros(100))


# -- central noise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("adaptive", [None, AdaptiveClipping(count_noise=2.0)])
def test_the_noise_has_its_standard_deviation(adaptive: AdaptiveClipping | None) -> None:
    privacy = ClientPrivacy(0.5, 1.5, clients=10, adaptive=adaptive, stream=stream(1))
    privacy.clip(torch.zeros(1))
    released = privacy.noise(torch.full((40_000,), 3.0, dtype=torch.float64), 10)
    expected = 1.5 if adaptive is None else (1.5**-2 - 4.0**-2) ** -0.5
    assert float(released.std()) == pytest.approx(0.5 * expected, rel=0.02)
    assert float(released.mean()) == pytest.approx(3.0, abs=0.02)
    assert released.dtype == torch.float32  # of the updates


@pytest.mark.parametrize("noise", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("rounds", [1, 50])
def test_epsilon_equals_dp_accounting(noise: float, rate: float, rounds: int) -> None:
    from dp_accounting import rdp

    privacy = ClientPrivacy(1.0, noise, clients=100, sampling_rate=rate)
    for _ in range(rounds):
        privacy.sample(names(50))
        privacy.noise(torch.zeros(2), 3)
        privacy.round_done()
    event = dp.GaussianDpEvent(noise)
    event = dp.PoissonSampledDpEvent(rate, event) if rate < 1 else event
    expected = rdp.RdpAccountant().compose(event, rounds).get_epsilon(1e-5)
    assert privacy.epsilon(1e-5) == pytest.approx(expected, rel=1e-9)
    assert privacy.rounds == rounds


def test_a_budget_lets_the_planned_rounds_pass_and_no_more() -> None:
    privacy = ClientPrivacy.for_budget(1.0, epsilon=2.0, delta=1e-5, rounds=7, clients=100)
    for _ in range(7):
        privacy.noise(torch.zeros(2), 5)
        privacy.round_done()
    assert 1.9 < privacy.epsilon() <= 2.0
    with pytest.raises(
        BudgetExceededError, match=r"goes beyond the plan of this budget, 7 times .* of epsilon 2"
    ):
        privacy.noise(torch.zeros(2), 5)


def test_rounds_that_an_earlier_run_released_are_counted() -> None:
    """A trainer that resumes calls `round_done` once for each."""
    resumed, whole = (ClientPrivacy(1.0, 1.0, clients=10) for _ in range(2))
    for _ in range(3):
        resumed.round_done()
        whole.noise(torch.zeros(1), 2)
        whole.round_done()
    assert resumed.epsilon(1e-5) == whole.epsilon(1e-5) > 0
    spent = ClientPrivacy(1.0, 1.0, clients=10, budget=Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceededError):
        spent.round_done()


@pytest.mark.parametrize("kind", [ClientPrivacy, DistributedPrivacy])
def test_charges_are_kept_as_plain_data_and_taken_over(kind: Any) -> None:
    first = kind(1.0, 1.0, clients=6)
    for _ in range(3):
        first.round_done()
    kept = json.loads(json.dumps(first.charges(coming=1)))
    second = kind(1.0, 4.0, clients=6)  # charged as what they were, not as what its own would be
    second.take_over(kept)
    for _ in range(2):
        second.round_done()
    own = second.charges()["spent"][1]["noise_multiplier"]
    before = first.charges()["spent"][0]["noise_multiplier"]
    expected = Accountant().compose(Gaussian(before), 4).compose(Gaussian(own), 2)
    assert own == pytest.approx(4.0, rel=1e-3)
    assert second.epsilon(1e-5) == pytest.approx(expected.epsilon(1e-5), rel=1e-12)
    assert second.rounds == 6 and first.rounds == 3
    third = kind(1.0, 1.0, clients=6)
    third.take_over(json.loads(json.dumps(second.charges())))
    assert third.epsilon(1e-5) == second.epsilon(1e-5) and third.rounds == 6


def test_charges_of_files_of_before_are_taken_over() -> None:
    kept = {"rounds": 3, "gaussians": [[1.5, 1.0, 3]], "clip_norm": None}
    privacy = ClientPrivacy(1.0, 1.0, clients=6)
    privacy.take_over(kept)
    assert privacy.epsilon(1e-5) == Accountant().compose(Gaussian(1.5), 3).epsilon(1e-5)
    event = {"event": "gaussian", "noise_multiplier": 1.5, "sampling_rate": 1.0, "count": 3}
    assert privacy.charges() == {"rounds": 3, "spent": [event], "clip_norm": None}


def test_charges_are_taken_over_though_a_budget_has_no_room_and_others_charges_are_not_kept() -> None:
    shared = Budget(3.0, 1e-5)
    shared.spend(Gaussian(10.0))
    first = ClientPrivacy(1.0, 1.0, clients=6, budget=Budget(100.0, 1e-5))
    for _ in range(5):
        first.round_done()
    second = ClientPrivacy(1.0, 1.0, clients=6, budget=shared)
    second.take_over(first.charges())
    assert second.charges() == first.charges()
    assert second.epsilon() > first.epsilon() > 3.0
    with pytest.raises(BudgetExceededError):
        second.noise(torch.zeros(1), 2)
    assert second.charges() == first.charges()  # what was refused is not charged


def test_a_moving_bound_is_kept_and_one_that_stands_is_not() -> None:
    moving = ClientPrivacy(1.0, 1.0, clients=100, adaptive=AdaptiveClipping())
    moving.noise(torch.zeros(1), 0)
    moving.round_done()
    assert moving.clip_norm != 1.0
    again, fixed = (ClientPrivacy(1.0, 1.0, clients=100, adaptive=a) for a in (AdaptiveClipping(), None))
    for privacy in (again, fixed):
        privacy.take_over(moving.charges())
    assert (again.clip_norm, fixed.clip_norm) == (moving.clip_norm, 1.0)
    assert "clip_norm" not in fixed.charges() or fixed.charges()["clip_norm"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": -1},
        {"rounds": "3"},
        {"spent": [{"event": "gaussian", "noise_multiplier": 0.0, "sampling_rate": 1.0, "count": 1}]},
        {"spent": [{"event": "gaussian", "noise_multiplier": 1.0, "sampling_rate": 1.0}]},
        {"spent": [{"event": "none", "count": 1}]},
        {"spent": [{"count": 1}]},
        {"gaussians": [[1.0, 1.0, 0]]},
        {"gaussians": [[0.0, 1.0, 1]]},
        {"gaussians": [[1.0, 2.0, 1]]},
        {"clip_norm": 0.0},
        {"more": 1},
    ],
)
def test_what_are_no_charges_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    privacy = ClientPrivacy(1.0, 1.0, clients=6)
    with pytest.raises(ValueError, match="not the charges of a private training"):
        privacy.take_over({"rounds": 1, "gaussians": [[1.0, 1.0, 1]], "clip_norm": None} | changes)
    assert privacy.rounds == 0 and privacy.accountant.spent == {}


def test_clients_are_drawn_each_on_its_own() -> None:
    privacy = ClientPrivacy(1.0, 1.0, clients=2000, sampling_rate=0.3, stream=stream(2))
    first, second = set(privacy.sample(names(2000))), set(privacy.sample(names(2000)))
    assert 520 < len(first) < 680 and 130 < len(first & second) < 230
    assert privacy.denominator == pytest.approx(600)
    everybody = ClientPrivacy(1.0, 1.0, clients=5)
    assert everybody.sample(names(5)) == names(5)


def test_what_the_claim_does_not_cover_is_refused() -> None:
    privacy = ClientPrivacy(1.0, 1.0, clients=3, sampling_rate=0.5)
    with pytest.raises(ValueError, match=r"were not: draw them with sample\(\)"):
        privacy.noise(torch.zeros(1), 1)
    assert privacy.accountant.spent == {}
    privacy.sample(names(3))
    privacy.noise(torch.zeros(1), 1)
    with pytest.raises(ValueError, match="twice in a round"):
        privacy.noise(torch.zeros(1), 1)
    with pytest.raises(ValueError, match="epsilon is computed for 3"):
        privacy.sample(names(4))
    with pytest.raises(ValueError, match="4 clients was given, and ClientPrivacy was made for 3"):
        ClientPrivacy(1.0, 1.0, clients=3).noise(torch.zeros(1), 4)
    with pytest.raises(ValueError, match="needs a delta"):
        privacy.epsilon()


@pytest.mark.parametrize(
    "options",
    [
        dict(clip_norm=0.0),
        dict(clip_norm=math.nan),
        dict(clip_norm=True),
        dict(clip_norm=1e-320),
        dict(clip_norm=1.7e308),
        dict(noise_multiplier=0.0),
        dict(clients=0),
        dict(clients=0.4),
        dict(clients=2.5),
        dict(clients=True),
        dict(clients="5"),
    ],
)
@pytest.mark.parametrize("kind", [ClientPrivacy, DistributedPrivacy])
def test_a_wrong_argument_is_named(kind: Any, options: dict[str, Any]) -> None:
    arguments = dict(clip_norm=1.0, noise_multiplier=1.0, clients=5) | options
    with pytest.raises(ValueError, match=f"{next(iter(options))} is a"):
        kind(**arguments)


@pytest.mark.parametrize("rate", [0.0, 1.5, math.nan])
def test_a_wrong_sampling_rate_is_named(rate: float) -> None:
    with pytest.raises(ValueError, match="sampling_rate"):
        ClientPrivacy(1.0, 1.0, clients=5, sampling_rate=rate)


@pytest.mark.parametrize("clients", [10, 1000])
def test_noise_too_small_for_the_sum_is_refused_and_the_least_there_is_holds_it(clients: int) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits") as refused:
        ClientPrivacy(1.0, 1e-9, clients=clients)
    least = float(str(refused.value).split("at least ")[1].split()[0]) * 1.05
    privacy = ClientPrivacy(1.0, least, clients=clients)
    released = privacy.noise(privacy.clip(torch.full((1,), 9.0, dtype=torch.float64)) * clients, clients)
    assert float(released) == pytest.approx(clients, abs=10 * least + 1e-8 * clients)


# -- audit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True])
def test_a_canary_does_not_betray_more_than_epsilon_and_a_missing_clip_does(broken: bool) -> None:
    """The best attack there is: a client that always moves the sum in one direction, looked at along it."""
    delta, noise = 1e-2, 1.5
    claimed = Accountant("pld").compose(Gaussian(noise)).epsilon(delta)
    canary = torch.tensor([100.0, 0.0])
    scores: list[list[float]] = []
    privacy = ClientPrivacy(1.0, noise, clients=4, stream=stream(4))
    for there in (True, False):
        scores.append([])
        for _ in range(4000):
            updates = [torch.tensor([0.1, 0.2]), canary if there else torch.zeros(2)]
            clipped = [u.double() / 20 if broken else privacy.clip(u) for u in updates]
            scores[-1].append(float(privacy.noise(sum(clipped), 2)[0]))
            privacy._released = False
    found = epsilon_lower_bound(*scores, delta=delta)
    if broken:
        assert found > claimed
    else:
        assert 0.3 * claimed < found <= claimed


@pytest.mark.parametrize("broken", [False, True])
def test_the_sum_of_the_clients_own_noise_does_not_betray_more_than_epsilon(broken: bool) -> None:
    """As many survivors as the threshold: the least noise there can be. Broken: each adds too small a part."""
    delta, noise, clients = 1e-2, 1.5, 6
    privacy = DistributedPrivacy(1.0, noise, clients=clients, threshold=4, stream=stream(5))
    claimed = Accountant("pld").compose(Gaussian(privacy.multiplier(1))).epsilon(delta)
    if broken:
        privacy.variance //= 20
    canary = int(privacy.clip(torch.tensor([1e6]))[0] * privacy.units)
    noises = privacy.draw(4 * 2 * 4000, privacy.units).view(2, 4000, 4).sum(-1)
    found = epsilon_lower_bound((noises[0] + canary).tolist(), noises[1].tolist(), delta=delta)
    if broken:
        assert found > claimed
    else:
        assert 0.3 * claimed < found <= claimed


# -- distributed noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [0, 2])
def test_clients_noise_adds_up_to_what_was_claimed_or_more(gone: int) -> None:
    clients, threshold, length = 6, 4, 3000
    privacy = DistributedPrivacy(2.0, 1.5, clients=clients, threshold=threshold, stream=stream(6))
    leave = lambda step, present: present[:gone] if step == "input" else ()  # noqa: E731
    masked = privacy.aggregation(dropouts=leave)
    values = {name: privacy.clip(torch.full((length,), 1e-3)) for name in names(clients)}
    total = masked.weighted_sum(values, dict.fromkeys(values, 1.0))
    assert masked.report is not None and len(masked.report.survivors) == clients - gone
    error = total - (clients - gone) * values["c00"]
    expected = 1.5 * 2.0 * math.sqrt((clients - gone) / threshold)
    assert float(error.std()) == pytest.approx(expected, rel=0.06)
    assert privacy.noise_std(clients - gone) == pytest.approx(expected, rel=1e-3)
    assert privacy.noise_std(threshold) >= 1.5 * 2.0 * (1 - 1e-9)


@pytest.mark.parametrize("noise", [0.5, 1.0, 6.0])
@pytest.mark.parametrize("colluding", [0, 5])
def test_the_claim_is_that_of_a_gaussian_on_the_least_survivors(noise: float, colluding: int) -> None:
    from dp_accounting import rdp

    privacy = DistributedPrivacy(1.0, noise, clients=20, threshold=14, colluding=colluding)
    for _ in range(3):
        privacy.charge(10_000)
        privacy.round_done()
    expected = rdp.RdpAccountant().compose(dp.GaussianDpEvent(noise), 3).get_epsilon(1e-5)
    assert privacy.epsilon(1e-5) == pytest.approx(expected, rel=1e-3)
    assert privacy.epsilon(1e-5) <= expected * (1 + 1e-9)
    # What those who do not collude add is enough by itself.
    assert math.sqrt((14 - colluding) * privacy.variance) / privacy.units >= noise * (1 - 1e-9)
    assert privacy.rounds == 3


def test_the_divergence_of_sums_of_few_coarse_noises_is_paid_for() -> None:
    """Kairouz, Liu and Steinke: sums of discrete Gaussians are none, and the difference grows as noise gets coarse."""
    fine, coarse = (DistributedPrivacy(1.0, 1.0, clients=10) for _ in range(2))
    coarse.variance = 1
    coarse.units = round(math.sqrt(coarse.least))
    assert coarse.multiplier(10**6) < 0.9 * coarse.multiplier(1) < fine.multiplier(10**9)
    assert fine.multiplier(10**9) == pytest.approx(fine.multiplier(1))


def test_noise_that_never_came_is_noticed() -> None:
    privacy = DistributedPrivacy(1.0, 1.0, clients=6)
    clipped = {name: privacy.clip(torch.ones(3)) for name in names(6)}
    total = MaskedSum().weighted_sum(clipped, dict.fromkeys(clipped, 1.0))
    with pytest.raises(ValueError, match=r"no noise was added to.*aggregation=privacy\.aggregation\(\)"):
        privacy.noise(total, 6)
    with pytest.raises(ValueError, match="made for"):
        privacy.draw(5, 1024)
    with pytest.raises(ValueError, match="clip, threshold, which follow"):
        privacy.aggregation(clip=3.0, threshold=3)
    with pytest.raises(ValueError, match="each of weight 1"):
        privacy.aggregation().weighted_sum(clipped, dict.fromkeys(clipped, 0.5))
    privacy.charge(3)
    with pytest.raises(ValueError, match="4 clients was given"):
        privacy.noise(total, 4)


def test_a_round_that_fails_stays_charged_and_the_next_is_charged_too() -> None:
    privacy = DistributedPrivacy(1.0, 1.0, clients=6)
    failing = privacy.aggregation(dropouts=lambda step, present: present[:3] if step == "input" else ())
    clipped = {name: privacy.clip(torch.ones(3)) for name in names(6)}
    for _ in range(2):
        with pytest.raises(TooFewClientsError):
            failing.weighted_sum(clipped, dict.fromkeys(clipped, 1.0))
    assert list(privacy.accountant.spent.values()) == [2]


@pytest.mark.parametrize("wrong", [20, 11, 0, -1, True, "5", 1.5, 0.0, math.nan])
def test_a_threshold_that_no_round_can_meet_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="threshold is a number of clients from 1 to the 10"):
        DistributedPrivacy(1.0, 1.0, clients=10, threshold=wrong)


@pytest.mark.parametrize("wrong", [1.5, True, "1", None])
def test_colluding_clients_are_counted_whole(wrong: Any) -> None:
    with pytest.raises(ValueError, match="colluding is a whole number"):
        DistributedPrivacy(1.0, 1.0, clients=10, colluding=wrong)


def test_noise_that_the_exact_sampler_or_the_ring_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody is left"):
        DistributedPrivacy(1.0, 1.0, clients=6, threshold=4, colluding=4)
    with pytest.raises(ValueError, match="scale the updates"):
        DistributedPrivacy(1e9, 1.0, clients=6)
    with pytest.raises(ValueError, match="would be rounded away"):
        DistributedPrivacy(1.0, 500.0, clients=6).clip(torch.zeros(10_000))
    with pytest.raises(ValueError, match="no room for any"):
        MaskedSum(noise=lambda count, units: torch.zeros(count, dtype=torch.int64)).weighted_sum(
            {"a": torch.ones(1), "b": torch.ones(1)}, {"a": 1.0, "b": 1.0}
        )


# -- in a Trainer ----------------------------------------------------------------------------------------


def clients_data(count: int) -> dict[str, TensorDataset]:
    generator = torch.Generator().manual_seed(0)
    parts = {}
    for name in names(count):
        x = torch.randn(40, 4, generator=generator)
        parts[name] = TensorDataset(x, (x[:, 0] - x[:, 1] > 0).long())
    return parts


@pytest.mark.parametrize("way", ["central", "central, masked", "distributed"])
def test_a_trainer_learns_with_client_level_privacy(way: str) -> None:
    trainers = pytest.importorskip("syft.federated.trainer")
    torch.manual_seed(0)
    parts = clients_data(30)
    privacy: Any
    if way == "distributed":
        privacy = DistributedPrivacy(0.5, 0.3, clients=30)
        aggregation = privacy.aggregation(
            dropouts=lambda step, present: present[:3] if step == "input" else ()
        )
    else:
        privacy = ClientPrivacy(0.5, 0.3, clients=30)
        aggregation = MaskedSum(max_weight=1.0) if "masked" in way else None
    trainer = trainers.Trainer(
        nn.Linear(4, 2),
        nn.CrossEntropyLoss(),
        parts,
        optimizer_args={"lr": 0.5},
        aggregation=aggregation,
        privacy=privacy,
        seed=1,
    )
    trainer.fit(rounds=5)
    assert privacy.rounds == 5
    noise = 0.3 if way != "distributed" else privacy.multiplier(10)
    assert privacy.epsilon(1e-5) == pytest.approx(Accountant().compose(Gaussian(noise), 5).epsilon(1e-5))
    x, y = (torch.cat([part.tensors[k] for part in parts.values()]) for k in (0, 1))
    assert (trainer.model(x).argmax(1) == y).float().mean() > 0.85


def test_a_trainer_averages_over_those_who_stayed() -> None:
    trainers = pytest.importorskip("syft.federated.trainer")
    parts = clients_data(6)

    def trained(data: Any, aggregation: Any = None) -> torch.Tensor:
        torch.manual_seed(0)
        trainer = trainers.Trainer(
            nn.Linear(4, 2), nn.CrossEntropyLoss(), data, aggregation=aggregation, seed=1
        )
        trainer.fit(rounds=1)
        return trainer.model.weight.detach()

    stayed = {name: part for name, part in parts.items() if name not in ("c00", "c01")}
    gone = {"shares": ("c00",), "input": ("c01",)}
    masked = MaskedSum(threshold=4, dropouts=lambda step, present: gone.get(step, ()))
    torch.testing.assert_close(trained(parts, masked), trained(stayed), rtol=0, atol=1e-5)


@settings(max_examples=10)
@given(st.integers(2, 30), st.floats(0.2, 20.0), st.floats(0.01, 50.0))
def test_the_noise_of_the_least_survivors_is_never_less_than_claimed(
    clients: int, noise: float, bound: float
) -> None:
    privacy = DistributedPrivacy(bound, noise, clients=clients)
    assert privacy.noise_std(privacy.least) >= noise * bound * (1 - 1e-9)
    assert privacy.multiplier(1000) == pytest.approx(noise, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in (ClientPrivacy, DistributedPrivacy) for name in ("budget", "stream")),
        (ClientPrivacy, "adaptive"),
    ],
)
def test_what_is_no_budget_and_no_stream_is_refused(kind: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"given {name}=3"):
        kind(1.0, 1.0, clients=10, **{name: 3})


@pytest.mark.parametrize("kind", [ClientPrivacy, DistributedPrivacy])
def test_an_accountant_beside_a_budget_of_another_is_refused(kind: Any) -> None:
    budget = Budget(3.0, 1e-5, Accountant("rdp"))
    with pytest.raises(ValueError, match=r"accountant='pld' and a budget whose accountant is 'rdp'\. Leave"):
        kind(1.0, 1.0, clients=10, budget=budget, accountant="pld")
    assert kind(1.0, 1.0, clients=10, budget=budget, accountant="rdp").accountant is budget.accountant
    assert kind(1.0, 1.0, clients=10, budget=budget).accountant is budget.accountant
    assert kind(1.0, 1.0, clients=10, accountant="pld").accountant.kind == "pld"
    assert kind(1.0, 1.0, clients=10).accountant.kind == "rdp"
