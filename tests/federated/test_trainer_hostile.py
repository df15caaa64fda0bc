"""One client that sends or does anything: it is that client's failure, and everybody else's round goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from stopwatch import Stopwatch
from syft.federated import MaskedSum, Trainer
from syft.federated.engines import SerialEngine, Task, ThreadEngine
from syft.federated.records import FitInstructions, FitResult
from syft.federated.rounds import mean_metrics
from syft.federated.secure_aggregation import ShareAggregation
from trainer_parts import classes

LOSS = nn.CrossEntropyLoss()


class Evil:
    def __init__(self, act: Callable[[FitInstructions], Any]) -> None:
        self.act = act

    def fit(self, instructions: FitInstructions) -> Any:
        return self.act(instructions)

    def evaluate(self, instructions: Any) -> None:
        return None


def still(instructions: FitInstructions, **changed: Any) -> FitResult:
    """An update of zeros, with something changed."""
    update = {name: torch.zeros_like(t) for name, t in instructions.state.items()}
    return FitResult(**dict(round=instructions.round, update=update, num_examples=10, steps=1) | changed)


def each(instructions: FitInstructions, change: Callable[[torch.Tensor], torch.Tensor]) -> FitResult:
    return still(instructions, update={name: change(t) for name, t in instructions.state.items()})


def round_with(act: Any, **options: Any) -> tuple[Any, nn.Linear]:
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    trainer = Trainer(model, LOSS, classes() | {"evil": Evil(act)}, seed=1, **options)
    return trainer.fit(1).rounds[0], model


@pytest.fixture(scope="module")
def honest() -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    Trainer(model, LOSS, classes(), seed=1).fit(1)
    return model.weight.detach()


class Moody(torch.Tensor):
    """A tensor that does not want to be looked at."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("detach", "to", "reshape"):
            raise ZeroDivisionError("no")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    ("act", "kind", "said"),
    [
        (
            lambda i: each(i, lambda t: torch.full_like(t, 1e300, dtype=torch.float64)),
            "not finite",
            "'weight'",
        ),
        (lambda i: each(i, lambda t: t.to_sparse()), "malformed", "torch.sparse_coo"),
        (lambda i: each(i, lambda t: t.to("meta")), "malformed", "without values"),
        (lambda i: each(i, lambda t: t.as_subclass(Moody)), "malformed", "cannot be read: ZeroDivisionError"),
        (lambda i: still(i, metrics={"loss": 10**400}), "malformed", "no float can hold"),
        (lambda i: still(i, metrics={"loss": -(10**400)}), "malformed", "no float can hold"),
    ],
)
def test_what_cannot_be_read_is_a_failure_before_anything_changes(
    honest: torch.Tensor, act: Any, kind: str, said: str
) -> None:
    report, model = round_with(act)
    (failure,) = report.failures
    assert (failure.client, failure.kind) == ("evil", kind) and said in failure.why
    assert torch.equal(model.weight, honest)


def test_a_metric_that_is_not_finite_is_left_out_of_the_mean(caplog: pytest.LogCaptureFixture) -> None:
    report, _ = round_with(lambda i: still(i, metrics={"loss": math.nan, "own": math.inf}))
    assert "evil" in report.accepted and math.isfinite(report.training["loss"])
    assert math.isnan(report.training["own"])  # nobody had another one
    assert "The metric 'loss' of 'evil' is nan, and is left out" in caplog.text
    huge = {name: FitResult(1, {}, 1000, 1, {"loss": 1.7e308}) for name in "ab"}
    assert mean_metrics(huge) == {"loss": pytest.approx(1.7e308)}


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_what_a_client_writes_into_its_state_stays_with_it(honest: torch.Tensor, engine: str) -> None:
    def write(instructions: FitInstructions) -> None:
        instructions.state["weight"].fill_(1e6)

    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    clients = {"a first": Evil(write)} | classes()  # before all others
    trainer = Trainer(model, LOSS, clients, seed=1, engine=engine)
    (report,) = trainer.fit(1).rounds
    assert [f.client for f in report.failures] == ["a first"]
    assert torch.equal(model.weight, honest)


def test_states_are_copied_for_foreign_clients_only() -> None:
    seen: list[Any] = []
    state = {"weight": torch.zeros(3)}

    class Reader(Evil):
        only_reads = True

    for kind in (Evil, Reader):
        Task("c", kind(lambda i: seen.append(i.state["weight"])), FitInstructions(1, 0, state)).run()
    assert seen[0] is not state["weight"] and seen[1] is state["weight"]


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit])
def test_a_client_that_raises_what_is_no_exception_is_not_waited_for(error: type[BaseException]) -> None:
    def act(_instructions: FitInstructions) -> None:
        raise error("gone")

    clock = Stopwatch()
    report, _ = round_with(act, engine=ThreadEngine(2))
    assert clock.seconds < 30
    assert [(f.client, f.kind) for f in report.failures] == [("evil", "error")]
    assert error.__name__ in report.failures[0].why


def test_a_serial_training_can_be_interrupted() -> None:
    def act(_instructions: FitInstructions) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        round_with(act, engine=SerialEngine())


def test_a_client_that_states_more_examples_than_a_secure_sum_can_weigh(
    honest: torch.Tensor, alice: Any, bob: Any
) -> None:
    for aggregation in (MaskedSum(), ShareAggregation([alice, bob])):
        report, model = round_with(lambda i: still(i, num_examples=2**52), aggregation=aggregation)
        (failure,) = report.failures
        assert (failure.client, failure.kind) == ("evil", "malformed")
        assert "declare a larger max_weight" in failure.why
        assert torch.allclose(model.weight, honest, atol=1e-5)
