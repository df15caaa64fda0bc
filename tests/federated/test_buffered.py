"""Asynchronous rounds: who is waited for, what stale updates count, and that nothing else changes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from syft.dp.federated import AdaptiveClipping, ClientPrivacy
from syft.federated import (
    Buffered,
    Callback,
    History,
    MaskedSum,
    NotEnoughClientsError,
    Trainer,
)
from syft.federated.engines import RayEngine, ThreadEngine
from syft.federated.layout import read_state
from syft.federated.records import ClientFailure, FitInstructions
from trainer_parts import Changed, Fixed, classes, line, net, same, weights

torch.set_num_threads(1)


def speeds(**seconds: float) -> Callable[[str, int], float]:
    return lambda name, _round: seconds[name]


def trainer(
    clients: Any, schedule: Buffered | None, model: nn.Module | None = None, **options: Any
) -> Trainer:
    settings: dict[str, Any] = {"seed": 3, "engine": "serial", **options}
    return Trainer(
        line(0.0) if model is None else model, nn.MSELoss(), clients, schedule=schedule, **settings
    )


def test_a_stale_update_counts_one_by_the_root_of_one_and_its_age() -> None:
    """a is done at 1, 2, ... and makes a round each time; b is done at 9.5, when nine models were made since."""
    clients = {"a": Fixed(1.0), "b": Fixed(1.0)}
    some = trainer(clients, Buffered(size=1, concurrency=2, duration=speeds(a=1.0, b=9.5)))
    history = some.fit(10)
    assert [report.accepted for report in history.rounds] == [("a",)] * 9 + [("b",)]
    assert [report.staleness for report in history.rounds] == [{"a": 0}] * 9 + [{"b": 9}]
    assert [report.simulated_seconds for report in history.rounds] == [*map(float, range(1, 10)), 9.5]
    assert weights(some.model) == [pytest.approx(9 + 1 / math.sqrt(10), abs=1e-5)]
    assert "staleness 9 (at most 9)" in str(history.rounds[-1])


@pytest.mark.parametrize(("exponent", "expected"), [(0.0, 10.0), (1.0, 9.1), (2, 9.01)])
def test_the_exponent_of_staleness_is_the_users(exponent: float, expected: float) -> None:
    schedule = Buffered(1, 2, staleness=exponent, duration=speeds(a=1.0, b=9.5))
    some = trainer({"a": Fixed(1.0), "b": Fixed(1.0)}, schedule)
    some.fit(10)
    assert weights(some.model) == [pytest.approx(expected, abs=1e-5)]


def test_a_buffer_is_weighed_by_examples_and_divided_by_their_number_without_staleness() -> None:
    """a and b make round 1. c, from the same model, makes round 2 with a, whose model is new."""
    clients = {"a": Fixed(1.0, examples=1), "b": Fixed(4.0, examples=3), "c": Fixed(8.0, examples=2)}
    seconds = {("a", 1): 1.0, ("b", 1): 2.0, ("c", 1): 4.0, ("a", 2): 1.5, ("b", 2): 9.0}
    schedule = Buffered(2, 3, duration=lambda name, number: seconds[name, number])
    some = trainer(clients, schedule)
    history = some.fit(2)
    assert [report.accepted for report in history.rounds] == [("a", "b"), ("a", "c")]
    first, second = (1 * 1 + 3 * 4) / 4, (1 * 1 + 2 * 8 / math.sqrt(2)) / 3
    assert history.rounds[1].staleness == {"a": 0, "c": 1}
    assert weights(some.model) == [pytest.approx(first + second, abs=1e-5)]


@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "fedadam"])
def test_with_all_clients_in_step_it_is_the_synchronous_training_bit_for_bit(strategy: str) -> None:
    def run(schedule: Buffered | None) -> Any:
        some = Trainer(net(), nn.CrossEntropyLoss(), classes(), strategy, seed=1, schedule=schedule)
        some.fit(3)
        return read_state(some.model)

    assert same(run(Buffered(5, duration=lambda _name, _round: 1.0)), run(None))


def test_a_client_is_in_a_round_once_and_gets_each_model_once() -> None:
    seen: list[tuple[str, int]] = []

    class Noting(Fixed):
        def __init__(self, name: str) -> None:
            super().__init__(0.1)
            self.name = name

        def fit(self, instructions: FitInstructions) -> Any:
            seen.append((self.name, instructions.round))
            return super().fit(instructions)

    clients = {name: Noting(name) for name in map(str, range(7))}
    history = trainer(clients, Buffered(3, concurrency=6)).fit(25)
    assert len(seen) == len(set(seen)) == 75
    assert all(len(set(report.accepted)) == 3 for report in history.rounds)
    assert max(max(report.staleness.values()) for report in history.rounds) > 1
    assert {name for name, _ in seen} == set(clients)


def test_a_training_is_repeated_bit_for_bit_and_learns() -> None:
    def run() -> tuple[Any, History]:
        some = Trainer(
            net(),
            nn.CrossEntropyLoss(),
            classes(clients=8),
            schedule=Buffered(2, concurrency=6),
            optimizer_args={"lr": 0.3},
            evaluate=classes(seed=9, clients=1)["client 0"],
            seed=5,
        )
        return some, some.fit(24)

    one, told = run()
    other, again = run()
    assert same(read_state(one.model), read_state(other.model))
    assert [r.staleness for r in told.rounds] == [r.staleness for r in again.rounds]
    losses = told.curve("loss")[1]
    assert losses[-1] < 0.7 * losses[0]
    assert History.from_dict(told.to_dict()).rounds == told.rounds


def test_resumed_it_goes_on_as_if_never_interrupted(tmp_path: Path) -> None:
    def make(path: Path) -> Trainer:
        return Trainer(
            net(),
            nn.CrossEntropyLoss(),
            classes(clients=8),
            "fedadam",
            schedule=Buffered(2, concurrency=6),
            checkpoint=path,
            seed=5,
        )

    whole = make(tmp_path / "whole")
    whole.fit(9)
    make(tmp_path / "parts").fit(4)  # the process dies here; six clients are at work on older models
    parts = make(tmp_path / "parts")
    assert parts.resume() and parts.round == 4
    parts.fit(9)
    assert same(read_state(parts.model), read_state(whole.model))
    times = [[(r.staleness, r.simulated_seconds) for r in t.history.rounds] for t in (parts, whole)]
    assert times[0] == times[1] and max(times[0][5][0].values()) > 0

    other = Trainer(
        net(), nn.CrossEntropyLoss(), classes(clients=8), "fedadam", schedule=Buffered(3, 6), seed=5
    )
    with pytest.raises(ValueError, match="Use the same schedule"):
        other.resume(tmp_path / "parts")
    waiting = Trainer(net(), nn.CrossEntropyLoss(), classes(clients=8), "fedadam", seed=5)
    with pytest.raises(ValueError, match="rounds that wait for all"):
        waiting.resume(tmp_path / "parts")


def test_fit_goes_on_with_those_at_work() -> None:
    def run(*stops: int) -> Any:
        some = Trainer(net(), nn.CrossEntropyLoss(), classes(), schedule=Buffered(2, 4), seed=5)
        for rounds in stops:
            some.fit(rounds)
        return read_state(some.model)

    assert same(run(8), run(3, 4, 8))


class Waits(Fixed):
    """Is done when it is told to."""

    def __init__(self, *update: float) -> None:
        super().__init__(*update)
        self.go, self.started = threading.Event(), threading.Event()

    def fit(self, instructions: FitInstructions) -> Any:
        self.started.set()
        self.go.wait(60)
        return super().fit(instructions)


def test_with_threads_nobody_waits_for_a_slow_client_and_its_update_still_counts() -> None:
    slow = Waits(1.0)

    class LetGo(Callback):
        def on_round_end(self, trainer: Trainer, report: Any) -> None:
            if report.round == 5:
                slow.go.set()

    clients = {"slow": slow, "a": Fixed(0.0), "b": Fixed(0.0)}
    some = trainer(clients, Buffered(1, concurrency=3), engine="threads", callbacks=[LetGo()])
    history = some.fit(5)
    assert slow.started.wait(60) and not any("slow" in report.accepted for report in history.rounds)
    while not (mine := [r for r in history.rounds if "slow" in r.accepted]):
        some.fit(some.round + 1)
    age = mine[0].staleness["slow"]
    assert age >= 4 and history.rounds[0].simulated_seconds is None
    assert weights(some.model) == [pytest.approx((1 + age) ** -0.5, abs=1e-5)]


def test_a_client_that_is_given_up_is_not_taken_for_its_next_task() -> None:
    slow = Waits(1.0)
    clients = {"slow": slow, "a": Fixed(0.0), "b": Fixed(0.0)}
    engine = ThreadEngine(3)
    some = trainer(clients, Buffered(2, concurrency=3), engine=engine, deadline=0.2)
    while not (found := some.history.failures().get("slow")):
        some.fit(some.round + 1)
    assert found[0][1].kind == "timeout"
    before = some.round
    thread = engine._threads["slow"]
    slow.go.set()
    thread.join(60)
    while not any("slow" in report.accepted for report in some.history.rounds):
        some.fit(some.round + 1)
    report = next(report for report in some.history.rounds if "slow" in report.accepted)
    assert (
        report.round - report.staleness["slow"] > before - 2
    )  # and not what it trained when it was given up


def test_failures_are_told_and_others_take_the_place() -> None:
    def fail(_result: Any) -> Any:
        raise ConnectionError("the line is dead")

    clients = {"a": Fixed(1.0), "b": Changed(Fixed(1.0), fail), "c": Fixed(1.0)}
    history = trainer(clients, Buffered(2)).fit(4)
    assert all(report.accepted == ("a", "c") for report in history.rounds)
    told = [failure for report in history.rounds for failure in report.failures]
    assert {str(failure) for failure in told} == {"b (error): ConnectionError: the line is dead"}
    assert all(len(report.selected) == len(report.failures) + 2 for report in history.rounds)


def test_when_nobody_is_left_to_ask_it_is_an_error_and_those_who_came_are_kept() -> None:
    is_broken = [True]

    def sometimes(result: Any) -> Any:
        if is_broken[0]:
            raise ConnectionError("gone")
        return result

    clients = {"a": Fixed(1.0), "b": Changed(Fixed(3.0), sometimes)}
    some = trainer(clients, Buffered(2))
    with pytest.raises(NotEnoughClientsError, match=r"got 1 usable .* takes 2, with nobody left to ask"):
        some.fit(1)
    assert weights(some.model) == [0.0]
    is_broken[0] = False
    some.fit(1)
    assert weights(some.model) == [2.0]


def test_updates_from_models_that_are_too_old_are_not_used() -> None:
    schedule = Buffered(1, 2, max_staleness=3, duration=speeds(a=1.0, b=5.5))
    history = trainer({"a": Fixed(0.0), "b": Fixed(1.0)}, schedule).fit(7)
    (failure,) = [failure for report in history.rounds for failure in report.failures]
    assert failure == ClientFailure(
        "b", "stale", "It trained a model that is 5 rounds old, and max_staleness is 3."
    )


# -- sums that hide, and privacy ----------------------------------------------------------------------------


def test_groups_are_summed_under_masks_as_they_are_in_plain() -> None:
    def run(how: Any) -> Any:
        data = classes(clients=6)
        model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        some = Trainer(model, nn.CrossEntropyLoss(), data, schedule=Buffered(3, 5), aggregation=how, seed=5)
        some.fit(4)
        return read_state(some.model)

    hidden, plain = run(MaskedSum(clip=16.0)), run(None)
    assert all(torch.allclose(hidden[name], plain[name], atol=1e-4) for name in plain)


def test_with_privacy_each_round_is_charged_in_full_and_an_update_is_clipped() -> None:
    privacy = ClientPrivacy(1.0, 1e-4, clients=3)
    clients = {"a": Fixed(1.0), "b": Fixed(50.0), "c": Changed(Fixed(1.0), lambda _result: None)}
    some = trainer(clients, Buffered(1, 3, duration=speeds(a=1.0, b=2.5, c=100.0)), privacy=privacy)
    history = some.fit(3)  # a, a, and b with an update of 50 that is one round old
    assert [r.accepted for r in history.rounds] == [("a",), ("a",), ("b",)]
    assert some.model.get_parameter("weight").item() == pytest.approx(3.0, abs=0.01)
    assert privacy.rounds == 3
    alike = ClientPrivacy(1.0, 1e-4, clients=3)
    for _ in range(3):
        alike.round_done()
    assert privacy.epsilon(1e-5) == alike.epsilon(1e-5)
    assert history.rounds[-1].examples is None and history.rounds[-1].training == {}


def test_with_privacy_an_answer_that_cannot_be_used_counts_as_zeros() -> None:
    clients = {"a": Fixed(1.0), "b": Fixed(math.nan)}
    privacy = ClientPrivacy(1.0, 1e-4, clients=2, adaptive=AdaptiveClipping(count_noise=1.0))
    some = trainer(clients, Buffered(2), privacy=privacy)
    (report,) = some.fit(1).rounds
    assert report.accepted == ("a", "b") and not report.failures
    assert some.model.get_parameter("weight").item() == pytest.approx(0.5, abs=0.01)


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"size": 0}, "size=0: it is a whole number of 1 or more"),
        ({"size": 2.5}, "size=2.5"),
        ({"size": True}, "size=True"),
        ({"size": 2, "concurrency": 0}, "concurrency=0"),
        ({"size": 2, "max_staleness": -1}, "max_staleness=-1: it is a whole number of 0 or more"),
        ({"size": 2, "staleness": -0.5}, "staleness=-0.5"),
        ({"size": 2, "staleness": math.nan}, "staleness=nan"),
        ({"size": 2, "duration": 3.0}, "duration=3.0: it is a function"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings: Any, told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        Buffered(**settings)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"schedule": "fedbuff"}, "it is Buffered"),
        ({"schedule": Buffered(4)}, "there are 3 clients"),
        ({"fraction": 0.5}, "leave the others out"),
        ({"clients_per_round": 2}, "leave the others out"),
        ({"min_clients": 2}, "leave the others out"),
        ({"strategy": "scaffold"}, "Scaffold compares updates that were made from one model"),
        ({"strategy": "median"}, "Median compares"),
        ({"engine": ThreadEngine(1)}, r"Use ThreadEngine\(2\)"),
        ({"engine": "threads", "schedule": Buffered(2, duration=speeds(a=1.0))}, "Leave it out"),
        ({"privacy": ClientPrivacy(1.0, 1.0, clients=3, sampling_rate=0.5)}, "sampling_rate=1.0"),
    ],
)
def test_what_asynchronous_rounds_cannot_be_used_with_is_refused(options: Any, told: str) -> None:
    clients = {"a": Fixed(1.0), "b": Fixed(1.0), "c": Fixed(1.0)}
    with pytest.raises((ValueError, TypeError), match=told):
        trainer(clients, **{"schedule": Buffered(2), **options})


def test_an_engine_without_a_stream_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"RayEngine runs rounds that wait for all their clients. Use engine='serial'"
    ):
        trainer({"a": Fixed(1.0)}, Buffered(1), engine=object.__new__(RayEngine))


@pytest.mark.parametrize("seconds", [-1.0, math.inf, "long"])
def test_a_duration_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="it is a number of seconds, 0 or more"):
        trainer({"a": Fixed(1.0)}, Buffered(1, duration=lambda _name, _round: seconds)).fit(1)
