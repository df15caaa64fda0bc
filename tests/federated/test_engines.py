"""Engines: side by side, in any order, with clients that hang; and always the same numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset

from syft.federated.callbacks import Callback
from syft.federated.engines import (
    ENGINES,
    Engine,
    Outcome,
    SerialEngine,
    Task,
    ThreadEngine,
    make_engine,
    register_engine,
)
from syft.federated.records import ClientFailure, FitInstructions, FitResult
from syft.federated.trainer import Trainer
from trainer_parts import Fixed, classes, line, net, same, weights

CE, MSE = nn.CrossEntropyLoss(), nn.MSELoss()


# -- the same numbers ----------------------------------------------------------------------------------------


def trained(engine: Any, model: nn.Module, parts: Any, **options: Any) -> dict[str, torch.Tensor]:
    Trainer(model, CE, parts, engine=engine, seed=7, batch_size=10, **options).fit(3)
    return model.state_dict()


def test_threads_and_one_after_the_other_agree_bit_for_bit_with_dropout_and_statistics() -> None:
    parts = classes(clients=6)
    torch.manual_seed(0)
    one = trained("serial", net(), parts, epochs=2)
    torch.manual_seed(1)  # what the process draws elsewhere does not matter
    for engine in (ThreadEngine(6), ThreadEngine(2), "threads"):
        assert same(trained(engine, net(), parts, epochs=2), one)
    assert not same(trained("serial", net(1), parts, epochs=2), one)


def test_training_does_not_touch_the_generator_of_the_process() -> None:
    state = torch.get_rng_state()
    trained(ThreadEngine(4), net(), classes())
    assert torch.equal(torch.get_rng_state(), state)


class Noisy(Dataset[Any]):
    """A data set whose transform draws, as augmentations do."""

    def __init__(self, rows: TensorDataset) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        x, y = self.rows[index]
        return x + torch.randn_like(x), y


def test_transforms_that_draw_are_repeated_too() -> None:
    plain = nn.Linear(6, 2)
    start = {k: v.clone() for k, v in plain.state_dict().items()}
    parts = {name: Noisy(part) for name, part in classes().items()}
    one = {k: v.clone() for k, v in trained("serial", plain, parts).items()}
    plain.load_state_dict(start)
    assert same(trained(ThreadEngine(5), plain, parts), one)


def test_attention_and_recurrent_dropout_are_repeated_too() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.embed = nn.Linear(1, 8)
            self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
            self.memory = nn.LSTM(8, 8, num_layers=2, dropout=0.2, batch_first=True)
            self.out = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.memory(self.block(self.embed(x[..., None])))[0][:, -1])

    parts = classes(clients=3)
    assert same(trained("serial", Reader(), parts), trained(ThreadEngine(3), Reader(), parts))


def test_checkpointed_dropout_is_refused_and_not_computed_wrongly() -> None:
    class Thrifty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))
            self.out = nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(checkpoint(self.inner, x, use_reentrant=False))

    with pytest.raises(RuntimeError, match="draws random numbers in the backward pass"):
        trained("serial", Thrifty(), classes(clients=1))


def test_training_works_where_gradients_are_switched_off() -> None:
    expected = trained("serial", net(), classes())
    for off in (torch.no_grad, torch.inference_mode):
        model = net()
        with off():
            trained("serial", model, classes())
        assert same(model.state_dict(), expected)


# -- side by side --------------------------------------------------------------------------------------------


class Meeting(Fixed):
    """Trains only when all are there at the same time."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__(1.0)
        self.barrier = barrier

    def fit(self, instructions: FitInstructions) -> Any:
        self.barrier.wait(timeout=120)
        return super().fit(instructions)


def test_clients_run_at_the_same_time() -> None:
    barrier = threading.Barrier(6)
    trainer = Trainer(line(0.0), MSE, {f"c{i}": Meeting(barrier) for i in range(6)}, engine=ThreadEngine(6))
    assert len(trainer.fit(2).rounds[1].accepted) == 6


class Sleeping(Fixed):
    def fit(self, instructions: FitInstructions) -> Any:
        time.sleep(0.4)
        return super().fit(instructions)


def test_a_round_takes_the_time_of_the_slowest_and_not_the_sum() -> None:
    # Clients of one's own wait for something else, so threads are the engine even if none is named.
    trainer = Trainer(line(0.0), MSE, {f"c{i}": Sleeping(1.0) for i in range(10)})
    assert isinstance(trainer.engine, ThreadEngine) and trainer.engine.max_workers == 10
    (report,) = trainer.fit(1).rounds
    assert 0.4 <= report.seconds < 2.0  # the sum is 4


def test_outcomes_come_as_they_finish_and_no_more_run_than_may() -> None:
    running, most, lock = 0, 0, threading.Lock()

    class Counting(Fixed):
        def fit(self, instructions: FitInstructions) -> Any:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.02)
            with lock:
                running -= 1
            return super().fit(instructions)

    tasks = [Task(f"c{i}", Counting(1.0), FitInstructions(1, 0, {})) for i in range(9)]
    outcomes = list(ThreadEngine(3).run(tasks, None))
    assert {o.name for o in outcomes} == {t.name for t in tasks} and most == 3
    assert [o.name for o in SerialEngine().run(tasks, None)] == [t.name for t in tasks]


# -- clients that hang ---------------------------------------------------------------------------------------


class Hanging(Fixed):
    """Hangs in its first round until it is let go, then answers as if nothing had happened."""

    def __init__(self, *update: float) -> None:
        super().__init__(*update)
        self.let_go, self.answered = threading.Event(), threading.Event()
        self.times = 0

    def fit(self, instructions: FitInstructions) -> Any:
        self.times += 1
        if self.times == 1:
            self.let_go.wait(120)
            self.answered.set()
        return super().fit(instructions)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    client = Hanging(1000.0)
    yield client
    client.let_go.set()


def test_one_that_hangs_is_given_up_is_busy_then_and_its_late_answer_changes_nothing(
    hanging: Hanging,
) -> None:
    model = line(0.0)
    clients = {"slow": hanging, "a": Fixed(1.0), "b": Fixed(3.0)}
    trainer = Trainer(model, MSE, clients, engine=ThreadEngine(3), deadline=1.0)
    first = trainer.fit(1).rounds[0]
    assert weights(model) == [2.0] and first.accepted == ("a", "b")
    assert [(f.client, f.kind) for f in first.failures] == [("slow", "timeout")]
    assert "1 s" in first.failures[0].why
    second = trainer.fit(2).rounds[1]
    assert [(f.client, f.kind) for f in second.failures] == [("slow", "busy")] and hanging.times == 1
    hanging.let_go.set()
    assert hanging.answered.wait(120)
    while any(t.name == "client slow" for t in threading.enumerate()):
        time.sleep(0.01)
    assert weights(model) == [4.0]
    third = trainer.fit(3).rounds[2]
    assert third.failures == () and third.accepted == (
        "a",
        "b",
        "slow",
    )  # its new answer, to the new question


def test_one_that_hangs_does_not_keep_its_slot(hanging: Hanging) -> None:
    clients = {"0": hanging} | {str(i): Fixed(1.0) for i in range(1, 5)}
    trainer = Trainer(line(0.0), MSE, clients, engine=ThreadEngine(1), deadline=1.0)
    assert trainer.fit(1).rounds[0].accepted == ("1", "2", "3", "4")


def test_who_is_done_in_time_is_not_late_because_the_server_was_slow() -> None:
    class Dawdling(Callback):
        def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
            time.sleep(0.4)

    clients = {name: Fixed(1.0) for name in "abc"}
    trainer = Trainer(line(0.0), MSE, clients, engine=ThreadEngine(3), deadline=0.6, callbacks=[Dawdling()])
    assert trainer.fit(1).rounds[0].failures == ()


def test_one_that_was_left_behind_by_an_error_is_not_run_twice_at_once(hanging: Hanging) -> None:
    class Fragile(Callback):
        def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
            if trainer.round == 0 and client == "a":
                trainer.callbacks.clear()
                raise ZeroDivisionError

    clients = {"slow": hanging, "a": Fixed(1.0)}
    trainer = Trainer(line(0.0), MSE, clients, engine=ThreadEngine(2), callbacks=[Fragile()])
    with pytest.raises(ZeroDivisionError):
        trainer.fit(1)
    (report,) = trainer.fit(1).rounds
    assert [(f.client, f.kind) for f in report.failures] == [("slow", "busy")] and hanging.times == 1


class Slow(Dataset[Any]):
    """Takes its time for every item."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.05)
        return torch.ones(1), torch.ones(1)


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_a_slow_data_set_stops_by_itself_at_the_deadline(engine: str) -> None:
    parts = {"slow": Slow(), "a": TensorDataset(torch.ones(4, 1), torch.ones(4, 1))}
    trainer = Trainer(line(0.0), MSE, parts, engine=engine, deadline=1.0, batch_size=1)
    (report,) = trainer.fit(1).rounds
    assert [(f.client, f.kind) for f in report.failures] == [("slow", "timeout")]
    assert report.seconds < 4.0  # all of it takes 5
    while any(t.name == "client slow" for t in threading.enumerate()):
        time.sleep(0.01)  # it notices, and does not go on in the background


def test_a_deadline_alone_chooses_threads_and_data_sets_alone_do_not() -> None:
    assert isinstance(Trainer(net(), CE, classes()).engine, SerialEngine)
    assert isinstance(Trainer(net(), CE, classes(), deadline=5).engine, ThreadEngine)


def test_a_client_that_ends_its_thread_is_heard_of() -> None:
    class Quitter(Fixed):
        def fit(self, instructions: FitInstructions) -> Any:
            raise SystemExit

    trainer = Trainer(line(0.0), MSE, {"a": Fixed(1.0), "q": Quitter(1.0)}, engine="threads")
    (report,) = trainer.fit(1).rounds
    assert [(f.client, f.kind) for f in report.failures] == [("q", "error")]


# -- engines of one's own --------------------------------------------------------------------------------------


def test_an_engine_is_not_believed() -> None:
    class Confused:
        """Answers twice, for strangers, with an old result, and not at all."""

        def run(self, tasks: Any, deadline: float | None) -> Iterator[Outcome]:
            by_name = {task.name: task for task in tasks}
            yield Outcome("a", by_name["a"].run())
            yield Outcome("a", FitResult(1, {"weight": torch.tensor([[50.0]])}, 1, 1))
            yield Outcome("stranger", FitResult(1, {"weight": torch.tensor([[50.0]])}, 1, 1))
            yield Outcome("b", FitResult(0, {"weight": torch.tensor([[50.0]])}, 1, 1))

    model = line(0.0)
    trainer = Trainer(model, MSE, {"a": Fixed(1.0), "b": Fixed(1.0), "c": Fixed(1.0)}, engine=Confused())
    (report,) = trainer.fit(1).rounds
    assert weights(model) == [1.0]
    assert [(f.client, f.kind) for f in report.failures] == [("b", "stale"), ("c", "nothing")]


def test_engines_have_names() -> None:
    assert set(ENGINES) >= {"serial", "threads"}
    assert isinstance(make_engine("serial"), SerialEngine) and isinstance(make_engine("serial"), Engine)
    with pytest.raises(ValueError, match=r"'ray2' is not known. Name one of"):
        make_engine("ray2")
    with pytest.raises(TypeError, match="an object with run"):
        make_engine(ThreadEngine)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="already"):
        register_engine("serial")(SerialEngine)
    with pytest.raises(ValueError, match="one thread or more"):
        ThreadEngine(0)


def test_failures_are_passed_on_as_they_are() -> None:
    class Lost:
        def run(self, tasks: Any, deadline: float | None) -> Iterator[Outcome]:
            for task in tasks:
                lost = ClientFailure(task.name, "error", "Its actor died.")
                yield Outcome(task.name, lost if task.name == "a" else task.run())

    (report,) = Trainer(line(0.0), MSE, {"a": Fixed(1.0), "b": Fixed(1.0)}, engine=Lost()).fit(1).rounds
    assert str(report.failures[0]) == "a (error): Its actor died."


class CountingLoss(nn.Module):
    """Gives more the more often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.calls * torch.nn.functional.mse_loss(output, target)


def test_what_a_loss_keeps_stays_with_its_client() -> None:
    found = []
    for engine in ("serial", "threads"):
        torch.manual_seed(0)
        model, loss = nn.Linear(3, 1), CountingLoss()
        data = {
            str(i): torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1)) for i in range(4)
        }
        Trainer(model, loss, data, engine=engine, batch_size=4, seed=1, optimizer_args={"lr": 0.01}).fit(2)
        assert loss.calls == 0
        found.append(model.weight.detach().clone())
    assert torch.equal(*found)
