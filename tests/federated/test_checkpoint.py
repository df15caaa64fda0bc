"""A trainer that is killed at any point goes on to the very same weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import forked
from syft import serde
from syft.federated.aggregation import PlainSum
from syft.federated.callbacks import Callback, EarlyStopping
from syft.federated.checkpoint import load_checkpoint
from syft.federated.engines import ThreadEngine
from syft.federated.records import (
    ClientFailure,
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
)
from syft.federated.strategies import FedAdam, FedAvg, Scaffold
from syft.federated.trainer import Trainer
from syft.serde import SerdeError
from trainer_parts import Counting, Fixed, classes, line, net, same, weights

ROUNDS = 6
MSE = nn.MSELoss()


def make(strategy: Any, path: Path | None, **options: Any) -> Trainer:
    """Everything that could differ after a restart: sampling, dropout, statistics, a strategy with a memory."""
    return Trainer(
        net(4),
        nn.CrossEntropyLoss(),
        classes(clients=6),
        strategy,
        ThreadEngine(3),
        epochs=2,
        batch_size=10,
        fraction=0.5,
        checkpoint=path,
        seed=11,
        evaluate=classes(seed=3, clients=1)["client 0"],
        **options,
    )


class Killer(Callback):
    """Ends the process without a word."""

    def __init__(self, where: str, round: int) -> None:
        self.where, self.round = where, round

    def on_round_start(self, trainer: Trainer, round: int, clients: tuple[str, ...]) -> None:
        if self.where == "start" and round == self.round:
            os._exit(9)
        if self.where == "writing" and round == self.round:
            Path.replace = lambda *_: os._exit(9)  # type: ignore[assignment, method-assign]

    def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
        if self.where == "client" and trainer.round + 1 == self.round:
            os._exit(9)

    def on_round_end(self, trainer: Trainer, report: Any) -> None:
        if self.where == "end" and report.round == self.round:
            os._exit(9)


DEATHS = [("client", 2), ("writing", 3), ("start", 4), ("end", 5), ("never", 0)]


def live_and_die(path: str) -> None:
    """Runs in a process of its own, which forks one for each life: what is imported, is imported once."""
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    for where, number in DEATHS:
        pid = os.fork()
        if pid == 0:
            trainer = make("fedadam", Path(path), callbacks=[Killer(where, number)])
            trainer.resume()
            print(where, "resumes after round", trainer.round, flush=True)
            trainer.fit(ROUNDS)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(where, os.waitstatus_to_exitcode(status), flush=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_again_and_again_it_ends_with_the_same_weights_and_history(tmp_path: Path) -> None:
    path, here = tmp_path / "run.safetensors", Path(__file__).parent
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import test_checkpoint as t; t.live_and_die(sys.argv[3])"
    )
    done = forked.run(
        *("-c", code, str(here.parent), str(here), str(path)), capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "client resumes after round 0",
        "client 9",
        "writing resumes after round 1",
        "writing 9",
        "start resumes after round 2",  # the file of round 3 never came to its place
        "start 9",
        "end resumes after round 3",
        "end 9",
        "never resumes after round 5",
        "never 0",
    ], done.stderr
    whole = make("fedadam", None)
    whole.fit(ROUNDS)
    found = load_checkpoint(path)
    assert same(found.state, {k: v.detach() for k, v in whole.model.state_dict().items()})
    assert same(dict(found.memory), whole.strategy.state())
    for one, other in zip(found.history.rounds, whole.history.rounds, strict=True):
        assert (one.round, one.selected, one.training, one.evaluation) == (
            other.round,
            other.selected,
            other.training,
            other.evaluation,
        )


@pytest.mark.parametrize(
    ("strategy", "stop"),
    [
        ("fedavg", 1),
        ("fedprox", 2),
        ("fedyogi", 2),
        ("fedadagrad", 1),
        ("scaffold", 1),
        ("scaffold", 2),
        ("median", 1),
    ],
)
def test_every_strategy_resumes_to_the_same_weights(strategy: str, stop: int, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    whole = make(strategy, None)
    whole.fit(3)
    assert make(strategy, path).resume() is False
    make(strategy, path).fit(stop)
    torch.manual_seed(stop)  # nothing depends on the generator of the process
    again = make(strategy, path)
    assert again.resume() is True and again.round == stop
    again.fit(3)
    assert same(again.model.state_dict(), whole.model.state_dict())


def test_a_seed_that_was_drawn_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    first = Trainer(net(), nn.CrossEntropyLoss(), classes(), batch_size=10, checkpoint=path)
    second = Trainer(net(), nn.CrossEntropyLoss(), classes(), batch_size=10, checkpoint=path)
    assert first.seed != second.seed
    first.fit(1)
    second.resume()
    first.fit(2)
    second.fit(2)
    assert same(first.model.state_dict(), second.model.state_dict())


def test_fit_counts_rounds_in_all(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    model = line(0.0)
    trainer = Trainer(model, MSE, {"a": Fixed(1.0)}, checkpoint=path, checkpoint_every=4)
    trainer.fit(2)
    assert weights(model) == [2.0] and load_checkpoint(path).history.rounds[-1].round == 2  # at the end
    trainer.fit(2)
    assert weights(model) == [2.0]
    trainer.fit(5)
    assert [r.round for r in trainer.history.rounds] == [1, 2, 3, 4, 5] and weights(model) == [5.0]


def test_one_that_stopped_early_stays_stopped(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"

    def trainer() -> Trainer:
        return Trainer(
            line(0.0),
            MSE,
            {"a": Fixed(1.0)},
            evaluate=lambda model: {"loss": 1.0},
            callbacks=[EarlyStopping(patience=2)],
            checkpoint=path,
        )

    assert len(trainer().fit(9)) == 3
    again = trainer()
    again.resume()
    assert len(again.fit(9)) == 3


def test_a_loss_that_is_not_a_number_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    Trainer(
        line(0.0), MSE, {"a": Fixed(1.0)}, evaluate=lambda m: {"loss": float("nan")}, checkpoint=path
    ).fit(1)
    value = load_checkpoint(path).history.rounds[0].evaluation["loss"]
    assert value != value


def test_privacy_is_told_of_the_rounds_that_were_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, privacy=Counting(), checkpoint=path).fit(3)
    privacy = Counting()
    again = Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, privacy=privacy, checkpoint=path)
    again.resume()
    again.fit(4)
    assert privacy.rounds == 4


# -- what does not fit -----------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "run.safetensors"
    Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, FedAdam(), checkpoint=file, seed=1).fit(1)
    return file


@pytest.mark.parametrize(
    ("make_one", "told"),
    [
        (lambda: Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, FedAvg(), seed=1), "was made with fedadam"),
        (lambda: Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, FedAdam(0.5), seed=1), "'server_lr': 0.1"),
        (lambda: Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, FedAdam(), seed=2), "with seed=1"),
        (lambda: Trainer(line(0.0, 0.0), MSE, {"a": Fixed(1.0)}, FedAdam()), r"the shape \(1, 1\) instead"),
        (lambda: Trainer(nn.Linear(1, 1), MSE, {"a": Fixed(1.0)}, FedAdam()), "'bias' is missing"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(make_one: Any, told: str, path: Path) -> None:
    trainer = make_one()
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    with pytest.raises(ValueError, match=told):
        trainer.resume(path)
    assert same(trainer.model.state_dict(), before) and trainer.round == 0


def test_scaffold_refuses_the_memory_of_other_clients(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, Scaffold(), checkpoint=file).fit(1)
    with pytest.raises(ValueError, match="the clients of the checkpoint"):
        Trainer(line(0.0), MSE, {"b": Fixed(1.0)}, Scaffold()).resume(file)


def damaged(path: Path, change: Any) -> None:
    tensors, metadata = serde.load(path)
    about = json.loads(metadata["trainer"])
    change(tensors, about)
    serde.save(path, tensors, {"trainer": json.dumps(about)})


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, about: about.update(version=2),
        lambda tensors, about: about.update(extra=1),
        lambda tensors, about: about.pop("seed"),
        lambda tensors, about: about.update(history={"rounds": [{"round": "x"}]}),
        lambda tensors, about: tensors.pop("model/weight"),
        lambda tensors, about: tensors.update({"strategy/m": torch.zeros(7)}),
        lambda tensors, about: tensors.update({"strategy/secret": torch.zeros(1)}),
    ],
)
def test_damaged_checkpoints_are_refused_and_leave_the_trainer_alone(change: Any, path: Path) -> None:
    damaged(path, change)
    trainer = Trainer(line(0.5), MSE, {"a": Fixed(1.0)}, FedAdam(), seed=1)
    with pytest.raises(ValueError):  # noqa: PT011  (each has its own sentence; SerdeError is one)
        trainer.resume(path)
    assert weights(trainer.model) == [0.5] and trainer.round == 0


def test_other_files_are_no_checkpoints(tmp_path: Path) -> None:
    text, tensors = tmp_path / "text", tmp_path / "tensors"
    text.write_text("hello")
    serde.save(tensors, {"x": torch.ones(1)})
    trainer = Trainer(line(0.5), MSE, {"a": Fixed(1.0)})
    with pytest.raises(SerdeError, match="not a safetensors file"):
        trainer.resume(text)
    with pytest.raises(SerdeError, match="not a trainer's checkpoint"):
        trainer.resume(tensors)
    with pytest.raises(ValueError, match="needs a file"):
        trainer.resume()


def test_a_checkpoint_is_an_ordinary_file_of_tensors(path: Path) -> None:
    tensors, _ = serde.load(path)
    assert {"model/weight", "strategy/m", "strategy/v"} == set(tensors)


# -- records travel --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        FitInstructions(
            3, 5, {"w": torch.ones(2)}, 2, 8, "Adam", {"lr": 0.1, "betas": (0.9, 0.99)}, deadline=1.5
        ),
        FitInstructions(1, 5, {}, proximal_mu=0.5, correction={"w": torch.ones(2)}),
        FitResult(3, {"w": torch.ones(2), "n": torch.tensor(4)}, 10, 2, {"loss": 0.5}),
        EvaluateInstructions(3, {"w": torch.ones(2)}),
        EvaluateResult(3, 10, {"loss": 0.5}),
        ClientFailure("bob", "timeout", "late"),
    ],
)
def test_records_survive_the_wire(record: Any) -> None:
    again = serde.deserialize(serde.serialize(record))
    assert type(again) is type(record) and repr(again) == repr(record)


def test_a_client_across_the_wire_gives_the_same_weights() -> None:
    class Far:
        """Everything it hears and says goes through bytes."""

        def __init__(self, client: Any) -> None:
            self.client = client

        def fit(self, instructions: FitInstructions) -> Any:
            heard = serde.deserialize(serde.serialize(instructions))
            return serde.deserialize(serde.serialize(self.client.fit(heard)))

        def evaluate(self, instructions: EvaluateInstructions) -> Any:
            return self.client.evaluate(instructions)

    near, far = make("scaffold", None), make("scaffold", None)
    far.clients = {name: Far(client) for name, client in far.clients.items()}
    near.fit(2)
    far.fit(2)
    assert isinstance(far.aggregation, PlainSum) and same(near.model.state_dict(), far.model.state_dict())
