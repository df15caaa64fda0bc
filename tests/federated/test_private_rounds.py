"""Rounds with privacy: one client moves the sum by its clipping bound at most, however the sum is made, and nothing but
that sum depends on what a client's training came to."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.dp.accounting import Accountant, Gaussian
from syft.dp.federated import AdaptiveClipping, ClientPrivacy, DistributedPrivacy
from syft.exceptions import GetNotPermittedError
from syft.federated.aggregation import PlainSum, Updates
from syft.federated.callbacks import Callback
from syft.federated.records import ClientFailure, FitResult
from syft.federated.rounds import NotEnoughClientsError
from syft.federated.secure_aggregation import MaskedSum, ShareAggregation
from syft.federated.strategies import FedAvg
from syft.federated.trainer import Trainer
from syft.mpc.randomness import Stream
from trainer_parts import Changed, Counting, Fixed, line, weights

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)
MSE = nn.MSELoss()


class Seen(ClientPrivacy):
    """Remembers sums, and adds no noise to them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sums: list[torch.Tensor] = []
        self.bounds: list[float] = []

    def noise(self, total: torch.Tensor, n_clients: int) -> torch.Tensor:
        super().noise(total, n_clients)
        self.sums.append(total.clone())
        self.bounds.append(self.clip_norm)
        return total.to(self._dtype)


def summed(privacy: ClientPrivacy, aggregation: Any, vectors: dict[str, torch.Tensor]) -> None:
    results = {name: FitResult(1, {}, 1, 1) for name in vectors}
    Updates(vectors, results, aggregation, privacy).mean()


def length(vector: torch.Tensor) -> Fraction:
    """The square of the L2 norm, without rounding."""
    return sum((Fraction(value) ** 2 for value in vector.tolist()), Fraction())


# -- a secure aggregation rounds, and must not lengthen -----------------------------------------------------


@pytest.fixture
def make_aggregation(workers: Any, make_worker: Any) -> Any:
    def make(kind: str) -> Any:
        if kind == "shares":
            return ShareAggregation([workers.alice, workers.bob], make_worker("provider"))
        if kind == "coarse shares":
            return ShareAggregation(
                [workers.alice, workers.bob], make_worker("provider"), clip=2.0**20, max_weight=2.0**22
            )
        return {
            "plain": PlainSum,
            "masked": MaskedSum,
            "coarse": lambda: MaskedSum(clip=4.0, fraction_bits=7),
            "odd clip": lambda: MaskedSum(clip=0.013, max_weight=3.0, fraction_bits=9),
            "finest": lambda: MaskedSum(clip=1.0, max_weight=1.0),
        }[kind]()

    return make


@pytest.mark.parametrize(
    "kind", ["plain", "masked", "coarse", "odd clip", "finest", "shares", "coarse shares"]
)
@pytest.mark.parametrize("factor", [1.01, 0.999, 0.7])
def test_one_client_moves_the_sum_by_the_clipping_bound_at_most(
    kind: str, factor: float, make_aggregation: Any
) -> None:
    """Numbers a little above half a unit are the worst: rounding to the nearest makes all of them larger."""
    d, bound = 2500, 0.6
    mine = torch.full((d,), factor * bound / d**0.5)
    others = {"b": torch.randn(d) * 0.01, "c": torch.randn(d)}
    found = []
    for update in (mine, torch.zeros(d)):
        privacy = Seen(bound, 1.0, clients=3)
        summed(privacy, make_aggregation(kind), {"a": update, **others})
        found.append(privacy.sums[0])
    moved = found[0] - found[1]
    assert found[0].dtype == torch.float64 and length(moved) <= Fraction(bound) ** 2
    if kind != "odd clip":  # which clamps
        assert length(moved) > (0.6 * factor * bound) ** 2


def test_a_sum_of_clipped_updates_is_exact_through_every_aggregation(make_aggregation: Any) -> None:
    vectors = {name: torch.randn(40) for name in "abcde"}
    expected = None
    for kind in ("plain", "finest"):
        privacy = Seen(0.7, 1.0, clients=5)
        summed(privacy, make_aggregation(kind), vectors)
        expected = privacy.sums[0] if expected is None else expected
        assert torch.equal(privacy.sums[0], expected)


def test_a_moving_bound_holds_on_the_grid_of_each_round() -> None:
    """All updates are zero but one, so each round's sum is that client's part of it."""
    counting = AdaptiveClipping(0.0, 0.5, count_noise=1.0)
    privacy = Seen(0.9, 0.5, clients=4, adaptive=counting, stream=Stream(bytes(16)))
    d, masked = 400, MaskedSum(fraction_bits=8)
    vectors = {"a": torch.full((d,), 1.0), **{name: torch.zeros(d) for name in "bcd"}}

    def rounds() -> None:
        for _ in range(100):
            summed(privacy, masked, vectors)
            privacy._counted = 2.0, 4  # as if all were short: the bound falls
            privacy.round_done()

    with pytest.raises(ValueError, match=r"400 numbers clipped to .* grid of 2\^-8.*fraction_bits"):
        rounds()
    assert len(set(privacy.bounds)) > 3 and privacy.bounds[-1] < privacy.bounds[0]
    charged = sum(privacy.accountant.spent.values())
    assert charged == len(privacy.sums)  # the round that was refused cost nothing
    for total, bound in zip(privacy.sums, privacy.bounds, strict=True):
        assert 0 < length(total) <= Fraction(bound) ** 2
        assert torch.equal(total * 256, (total * 256).round())


def test_a_grid_too_coarse_for_the_bound_is_refused_in_a_trainer_and_costs_nothing() -> None:
    privacy = ClientPrivacy(1.0, 1.0, clients=3)
    parts = {name: TensorDataset(torch.zeros(8, 10_000), torch.zeros(8, 1)) for name in "abc"}
    model = nn.Linear(10_000, 1, bias=False)
    trainer = Trainer(model, MSE, parts, aggregation=MaskedSum(clip=4.0, fraction_bits=6), privacy=privacy)
    with pytest.raises(ValueError, match="let the aggregation be finer"):
        trainer.fit(1)
    assert privacy.accountant.spent == {} and privacy.rounds == 0 and len(trainer.history) == 0


class Plain:
    """An aggregation of somebody's own."""

    def weighted_sum(self, updates: Any, weights: Any) -> torch.Tensor:
        return sum(updates.values(), torch.zeros((), dtype=torch.float64))


class Exact(Plain):
    def step_for(self, clients: int) -> Any:
        return None


class Third(Plain):
    step: Any = 1 / 3

    def step_for(self, clients: int) -> Any:
        return self.step


class Staying(Exact):
    leaves_updates = True


@pytest.mark.parametrize(
    ("aggregation", "told"),
    [
        (Plain(), r"Plain does not say what it rounds updates to.*step_for\(clients\)"),
        (Staying(), "Staying leaves updates with their clients"),
    ],
)
def test_an_aggregation_that_privacy_cannot_count_on_is_refused_at_once(aggregation: Any, told: str) -> None:
    clients = {"a": Fixed(1.0), "b": Fixed(1.0)}
    with pytest.raises(ValueError, match=told):
        Trainer(line(0.0), MSE, clients, aggregation=aggregation, privacy=ClientPrivacy(1.0, 1.0, clients=2))


@pytest.mark.parametrize("step", [1 / 3, 0.0, -0.5, math.inf, math.nan, 1, "fine"])
def test_a_step_is_a_power_of_two(step: Any) -> None:
    aggregation = Third()
    aggregation.step = step
    with pytest.raises(ValueError, match=r"Third.step_for\(1\) returned .* a power of two"):
        summed(ClientPrivacy(1.0, 1.0, clients=2), aggregation, {"a": torch.ones(2)})


def test_an_aggregation_and_a_privacy_of_ones_own_say_how_they_fit() -> None:
    privacy = Seen(1.0, 1.0, clients=2)
    summed(privacy, Exact(), {"a": torch.ones(1), "b": torch.zeros(1)})
    assert float(privacy.sums[0]) == pytest.approx(1.0)
    clients = {"a": Fixed(1.0), "b": Fixed(1.0)}
    trainer = Trainer(line(0.0), MSE, clients, aggregation=MaskedSum(), privacy=Counting())
    with pytest.raises(ValueError, match=r"MaskedSum rounds updates.*clip_to_grid\(update, step\)"):
        trainer.fit(1)


def test_distributed_noise_goes_with_its_own_aggregation() -> None:
    privacy = DistributedPrivacy(1.0, 1.0, clients=4)
    clients = {name: Fixed(1.0) for name in "abcd"}
    trainer = Trainer(line(0.0), MSE, clients, aggregation=MaskedSum(), privacy=privacy)
    with pytest.raises(ValueError, match=r"aggregation=privacy\.aggregation\(\)"):
        trainer.fit(1)
    assert privacy.accountant.spent == {}


# -- clients that are drawn in secret ------------------------------------------------------------------------


class Asked(Fixed):
    """Notes when it is asked."""

    def __init__(self, *update: float) -> None:
        super().__init__(*update)
        self.rounds: list[int] = []

    def fit(self, instructions: Any) -> Any:
        self.rounds.append(instructions.round)
        return super().fit(instructions)


class Watching(Callback):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_round_start(self, trainer: Any, round: int, clients: Any) -> None:
        self.told.append(clients)

    def on_client_done(self, trainer: Any, client: str, outcome: Any) -> None:
        self.told.append(client)


def drawn(rate: float, rounds: int, seed: int = 3, **options: Any) -> tuple[Any, Any, Any, dict[str, Asked]]:
    privacy = ClientPrivacy(1.0, 1e-3, clients=8, sampling_rate=rate)
    clients = {name: Asked(0.5) for name in "abcdefgh"}
    watching = Watching()
    trainer = Trainer(
        line(0.0), MSE, clients, privacy=privacy, engine="serial", seed=seed, callbacks=[watching], **options
    )
    trainer.fit(rounds)
    return trainer, privacy, watching, clients


def test_each_client_is_drawn_on_its_own_and_sums_are_divided_by_the_expected_number() -> None:
    rounds, rate = 150, 0.25
    trainer, privacy, _, clients = drawn(rate, rounds)
    counts = [len(each.rounds) for each in clients.values()]
    spread = 5 * math.sqrt(rounds * rate * (1 - rate))
    assert all(abs(count - rounds * rate) < spread for count in counts)
    sizes = [sum(r in c.rounds for c in clients.values()) for r in range(1, rounds + 1)]
    assert 0 in sizes and max(sizes) >= 4  # any number, also nobody
    # 0.5 from each that was drawn, over the 2 that are expected
    moved = sum(counts) * 0.5 / privacy.denominator
    assert weights(trainer.model)[0] == pytest.approx(moved, abs=5e-3 * math.sqrt(rounds))
    alike = Accountant()
    alike.compose(Gaussian(1e-3, rate), rounds)
    assert privacy.accountant.spent == alike.spent and privacy.rounds == rounds
    again = drawn(rate, 20)[3]
    assert [c.rounds for c in again.values()] != [[r for r in c.rounds if r <= 20] for c in clients.values()]


def test_nothing_tells_who_was_drawn(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    caplog.set_level(0, "syft.federated.trainer")
    path = tmp_path / "run.safetensors"
    told = []
    for rate in (0.05, 0.95):
        caplog.clear()
        trainer, _, watching, _ = drawn(rate, 3, checkpoint=path.with_name(f"{rate}"), progress=False)
        assert watching.told == [()] * 3
        told.append((str(trainer.history.to_dict()), [str(r) for r in trainer.history.rounds], caplog.text))
        assert trainer.history.rounds[0].is_secret and trainer.history.rounds[0].seconds == 0.0
    assert told[0] == told[1]
    assert told[0][1][0] == "Round 1: clients drawn in secret."


def test_amplification_is_what_it_is_for() -> None:
    """epsilon 8 in 200 rounds, of 1 in 20 clients and of all."""
    budget: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "rounds": 200, "clients": 1000}
    some, everybody = (
        ClientPrivacy.for_budget(1.0, sampling_rate=rate, accountant="rdp", **budget) for rate in (0.05, 1.0)
    )
    assert some.noise_multiplier == pytest.approx(0.832, abs=0.002)
    assert everybody.noise_multiplier == pytest.approx(9.022, abs=0.005)


def test_what_would_tell_who_was_drawn_is_refused() -> None:
    def make(**options: Any) -> Trainer:
        privacy = ClientPrivacy(1.0, 1.0, clients=3, sampling_rate=0.5)
        return Trainer(line(0.0), MSE, {n: Fixed(1.0) for n in "abc"}, privacy=privacy, **options)

    with pytest.raises(ValueError, match=r"sampling_rate=0\.5.*MaskedSum tells who takes part"):
        make(aggregation=MaskedSum())
    for options in ({"fraction": 0.5}, {"clients_per_round": 2}, {"min_clients": 2}):
        with pytest.raises(ValueError, match="leave out fraction, clients_per_round and min_clients"):
            make(**options)
    privacy = ClientPrivacy(1.0, 1.0, clients=2, sampling_rate=0.5)
    with pytest.raises(ValueError, match="3 clients were given"):
        Trainer(line(0.0), MSE, {n: Fixed(1.0) for n in "abc"}, privacy=privacy).fit(1)


# -- what a client answers tells nothing ---------------------------------------------------------------------


def raising(result: FitResult) -> Any:
    raise LookupError("row 7 is odd")


def with_weight(weight: Any) -> Any:
    return lambda result: replace(result, update={"weight": weight})


UNUSABLE: dict[str, Any] = {
    "NaN": with_weight(torch.tensor([[math.nan, 1.0]])),
    "infinite": with_weight(torch.tensor([[1.0, -math.inf]])),
    "raises": raising,
    "says that it failed": lambda result: ClientFailure("a", "error", "A row is odd."),
    "says that it is not finite": lambda result: ClientFailure("a", "not finite", "Something is NaN."),
    "nothing": lambda result: None,
    "something else": lambda result: {"weight": 1},
    "wrong shape": with_weight(torch.zeros(3)),
    "sparse": with_weight(torch.ones(1, 2).to_sparse()),
    "no update": lambda result: replace(result, update={}),
    "no examples": lambda result: replace(result, num_examples=0),
    "too many examples": lambda result: replace(result, num_examples=1 << 60),
    "no steps": lambda result: replace(result, steps=0),
    "bad metrics": lambda result: replace(result, metrics={"loss": "low"}),
    "old": lambda result: replace(result, round=result.round - 1),
}


class Told(Callback):
    def __init__(self) -> None:
        self.outcomes: list[tuple[str, Any]] = []

    def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
        self.outcomes.append((client, outcome))


def shown(client: Any, aggregation: Any = None, engine: str = "serial") -> tuple[Any, ...]:
    """All that a round shows when `client` is one of three, before there is noise on the sum."""
    privacy, told = Seen(1.0, 1.0, clients=3), Told()
    clients = {"a": client, "b": Fixed(0.25, 0.5), "c": Fixed(0.5, 0.0)}
    trainer = Trainer(
        line(0.0, 0.0),
        MSE,
        clients,
        engine=engine,
        aggregation=aggregation,
        privacy=privacy,
        min_clients=3,
        callbacks=[told],
    )
    (report,) = trainer.fit(1).rounds
    kept = replace(report, seconds=0.0)
    return (
        privacy.sums[0].tolist(),
        trainer.model.weight.tolist(),
        kept,
        sorted(told.outcomes, key=lambda pair: pair[0]),
    )


@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize("fault", UNUSABLE)
def test_an_answer_that_cannot_be_used_is_not_told_from_an_update_of_zeros(fault: str, engine: str) -> None:
    for make in (PlainSum, MaskedSum):
        client = Changed(Fixed(700.0, 1.0, examples=5), UNUSABLE[fault])
        zeros = shown(Fixed(0.0, 0.0), make(), engine)
        assert shown(client, make(), engine) == zeros
        assert zeros[2].accepted == ("a", "b", "c") and zeros[2].failures == ()


def test_a_row_that_makes_the_training_fail_is_not_told_either(caplog: pytest.LogCaptureFixture) -> None:
    """A target that the loss does not know raises where it is trained on, and NaN spreads over all."""
    x = torch.ones(4, 2)
    rows = {
        "zeros": (torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])),
        "NaN": (x * math.nan, torch.zeros(4, dtype=torch.int64)),
        "raises": (x, torch.tensor([0, 1, 0, 9])),
    }
    reports, sums = [], []
    for inputs, targets in rows.values():
        privacy = Seen(1.0, 1.0, clients=2)
        model = nn.Linear(2, 2, bias=False)
        nn.init.zeros_(model.weight)
        parts = {"a": TensorDataset(inputs, targets), "b": TensorDataset(x, torch.ones(4, dtype=torch.int64))}
        (report,) = Trainer(model, nn.CrossEntropyLoss(), parts, privacy=privacy).fit(1).rounds
        reports.append(replace(report, seconds=0.0))
        sums.append(privacy.sums[0].tolist())
    assert reports[0] == reports[1] == reports[2] and sums[0] == sums[1] == sums[2] != [0.0] * 4
    # The operator, who sees the updates too, finds it in the log.
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(logged) == 2 and "counts as an update of zeros" in logged[0] and "IndexError" in logged[1]


def test_what_clients_report_reaches_neither_strategies_nor_callbacks() -> None:
    class Curious(FedAvg):
        def step(self, updates: Updates, optimizer_args: Any) -> torch.Tensor:
            assert dict(updates.results) == {name: FitResult(1, {}, 1, 1) for name in "ab"}
            return super().step(updates, optimizer_args)

    told = Told()
    clients = {"a": Fixed(1.0, examples=9, steps=4), "b": Fixed(0.5)}
    privacy = ClientPrivacy(1.0, 1.0, clients=2)
    Trainer(line(0.0), MSE, clients, Curious(), privacy=privacy, callbacks=[told]).fit(1)
    assert all(outcome == FitResult(1, {}, 1, 1) for _, outcome in told.outcomes)


def refusing(result: FitResult) -> Any:
    raise GetNotPermittedError("The owner does not let you train on this.")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (refusing, "error"),
        (lambda result: ClientFailure("a", "died", "Nobody answers."), "died"),
        (lambda result: ClientFailure("a", "timeout", "It was late."), "timeout"),
    ],
)
def test_who_does_not_take_part_is_missing_and_the_report_tells(change: Any, kind: str) -> None:
    privacy = Seen(1.0, 1.0, clients=3)
    clients = {"a": Changed(Fixed(1.0), change), "b": Fixed(0.25), "c": Fixed(0.5)}
    trainer = Trainer(line(0.0), MSE, clients, privacy=privacy)
    (report,) = trainer.fit(1).rounds
    assert report.accepted == ("b", "c") and [f.kind for f in report.failures] == [kind]
    assert trainer.model.weight.item() == pytest.approx(0.375)
    with pytest.raises(NotEnoughClientsError):
        Trainer(line(0.0), MSE, clients, privacy=ClientPrivacy(1.0, 1.0, clients=3), min_clients=3).fit(1)


def test_without_privacy_such_clients_are_left_out_and_named() -> None:
    clients = {"a": Changed(Fixed(1.0, 1.0), UNUSABLE["NaN"]), "b": Fixed(0.5, 0.5)}
    (report,) = Trainer(line(0.0, 0.0), MSE, clients).fit(1).rounds
    assert report.accepted == ("b",) and [f.kind for f in report.failures] == ["not finite"]


# -- a round that does not end -------------------------------------------------------------------------------


def test_after_an_error_at_the_end_of_a_round_the_training_goes_on() -> None:
    class Stumbles(Seen):
        stumbles = True

        def round_done(self) -> None:
            if self.stumbles:
                self.stumbles = False
                raise MemoryError("no room for the noise on the count")
            super().round_done()

    privacy = Stumbles(1.0, 1.0, clients=2)
    trainer = Trainer(line(0.0), MSE, {"a": Fixed(1.0), "b": Fixed(0.5)}, privacy=privacy)
    with pytest.raises(MemoryError):
        trainer.fit(1)
    trainer.fit(1)
    assert privacy.rounds == sum(privacy.accountant.spent.values()) == 2
