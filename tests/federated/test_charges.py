"""A private training that is killed at any point forgets no round whose sum was seen."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import forked
from syft.dp.accounting import Accountant, Budget, BudgetExceededError, Gaussian
from syft.dp.federated import AdaptiveClipping, ClientPrivacy, DistributedPrivacy
from syft.exceptions import BudgetFileError
from syft.federated.callbacks import Callback
from syft.federated.charges import record_path
from syft.federated.checkpoint import load_checkpoint
from syft.federated.engines import SerialEngine
from syft.federated.secure_aggregation import TooFewClientsError
from syft.federated.strategies import FedAvg
from syft.federated.trainer import Trainer
from syft.ledger import Account
from syft.ledger import file as ledger_file
from syft.serde import SerdeError
from trainer_parts import Counting, Fixed, line, weights

pytest.importorskip("dp_accounting")
MSE = nn.MSELoss()
CLIENTS = {f"c{number}": Fixed(0.1 * (number + 1)) for number in range(4)}


def make_privacy(**options: Any) -> ClientPrivacy:
    return ClientPrivacy(1.0, 1.0, clients=4, adaptive=AdaptiveClipping(count_noise=2.0), **options)


def make(path: Path | None, privacy: Any, **options: Any) -> Trainer:
    options = {"checkpoint_every": 5, "seed": 1, "engine": SerialEngine(), **options}
    return Trainer(line(0.0), MSE, CLIENTS, privacy=privacy, checkpoint=path, **options)


def epsilon_of(rounds: int) -> float:
    return Accountant().compose(Gaussian(1.0), rounds).epsilon(1e-5) if rounds else 0.0


def rounds_in(checkpoint: Path) -> int:
    """What stands in the record of a checkpoint."""
    state, _ = Account(record_path(checkpoint)).state()
    assert state is not None
    return int(state["rounds"])


class Dies(BaseException):
    """Takes the trainer out of `fit`, as a kill would. What a `finally` does then is tested with real kills."""


class Stop(Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    def on_round_end(self, trainer: Trainer, report: Any) -> None:
        if report.round == self.after:
            raise Dies


def die_after(path: Path, rounds: int, privacy: Any = None, **options: Any) -> Any:
    privacy = make_privacy() if privacy is None else privacy
    with pytest.raises(Dies):
        make(path, privacy, callbacks=[Stop(rounds)], **options).fit(100)
    return privacy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


# -- real kills ------------------------------------------------------------------------------------------------


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Watched(FedAvg):
    """Writes down, where no kill can undo it, that it has seen a sum."""

    def __init__(self, seen: int) -> None:
        super().__init__()
        self.seen = seen

    def step(self, updates: Any, optimizer_args: Any) -> torch.Tensor:
        step = super().step(updates, optimizer_args)
        os.write(self.seen, b"x")
        return step


class Killer(Callback):
    """Ends the process at a point of a round, by the operating system."""

    def __init__(self, where: str, round: int) -> None:
        self.where, self.round = where, round

    def on_round_start(self, trainer: Trainer, round: int, clients: tuple[str, ...]) -> None:
        if round != self.round:
            return
        privacy: Any = trainer.privacy
        if self.where == "noise":
            privacy.noise = lambda *_: kill()
        elif self.where == "charged":
            privacy._charge = lambda event: (ClientPrivacy._charge(privacy, event), kill())
        elif self.where == "seen":
            privacy.round_done = kill
        elif self.where == "done":
            privacy.round_done = lambda: (ClientPrivacy.round_done(privacy), kill())
        elif self.where in ("record", "record after"):
            left = [0 if self.where == "record" else 1]

            def append(*row: Any, real: Any = ledger_file.append) -> None:
                real(*row)
                if not left[0]:  # before the transaction ends
                    kill()
                left[0] -= 1

            ledger_file.append = append
        elif self.where == "checkpoint":
            Path.replace = lambda *_: kill()  # type: ignore[assignment, method-assign]

    def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
        if self.where == "client" and trainer.round + 1 == self.round:
            kill()

    def on_round_end(self, trainer: Trainer, report: Any) -> None:
        if self.where == "end" and report.round == self.round:
            kill()


#: Where to die, in which round -> sums that were seen, and are counted, afterwards; rounds in the checkpoint.
DEATHS = [
    ("client", 3, 2, 2, 0),
    ("record", 3, 2, 2, 0),
    ("noise", 3, 2, 3, 0),
    ("charged", 3, 2, 3, 0),
    ("seen", 3, 3, 3, 0),
    ("done", 3, 3, 3, 0),
    ("record after", 3, 3, 3, 0),
    ("end", 4, 4, 4, 0),
    ("checkpoint", 5, 5, 5, 0),
    ("end", 9, 9, 9, 5),
    ("client", 10, 9, 9, 5),
]


def live_and_die(folder: str) -> None:
    """Runs in a process of its own, which forks one for each life: what is imported, is imported once."""
    torch.set_num_threads(1)
    make(None, make_privacy(budget=Budget(1e3, 1e-5))).fit(1)
    for number, (where, round, *_) in enumerate(DEATHS):
        pid = os.fork()
        if pid == 0:
            place = Path(folder) / str(number)
            place.mkdir()
            seen = os.open(place / "seen", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            trainer = make(
                place / "run.safetensors",
                make_privacy(),
                strategy=Watched(seen),
                callbacks=[Killer(where, round)],
            )
            trainer.fit(12)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(where, round, os.waitstatus_to_exitcode(status), flush=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_at_any_point_it_counts_every_sum_that_was_seen(tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = "import sys; sys.path[:0] = sys.argv[1:3]; import test_charges as t; t.live_and_die(sys.argv[3])"
    done = forked.run(
        *("-c", code, str(here.parent), str(here), str(tmp_path)), capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{where} {round} -9" for where, round, *_ in DEATHS], done.stderr
    for number, (where, round, seen, counted, saved) in enumerate(DEATHS):
        place = tmp_path / str(number)
        assert (place / "seen").stat().st_size == seen, (where, round)
        privacy = make_privacy()
        again = make(place / "run.safetensors", privacy, strategy=Watched(os.open(os.devnull, os.O_WRONLY)))
        assert again.resume() is (saved > 0)
        assert (again.round, privacy.rounds) == (saved, counted), (where, round)
        assert privacy.epsilon(1e-5) == pytest.approx(epsilon_of(counted), rel=1e-12)
        again.fit(saved + 1)
        assert privacy.epsilon(1e-5) == pytest.approx(epsilon_of(counted + 1), rel=1e-12)


# -- what is taken over ----------------------------------------------------------------------------------------


def test_rounds_after_the_checkpoint_are_spent_and_the_bound_goes_on_where_it_was(path: Path) -> None:
    options = {"epsilon": 30.0, "delta": 1e-5, "rounds": 10, "clients": 4}
    adaptive = AdaptiveClipping(count_noise=3.0)
    first = die_after(path, 9, ClientPrivacy.for_budget(1.0, adaptive=adaptive, **options))
    second = ClientPrivacy.for_budget(1.0, adaptive=adaptive, **options)
    again = make(path, second)
    assert again.resume() and again.round == 5
    assert (second.rounds, second.epsilon(), second.clip_norm) == (9, first.epsilon(), first.clip_norm)
    with pytest.raises(BudgetExceededError):
        again.fit(10)
    assert second.rounds == 10 and again.round == 6  # one was left
    third = ClientPrivacy.for_budget(1.0, adaptive=adaptive, **options)
    make(path, third).resume()
    assert (third.rounds, third.epsilon()) == (10, second.epsilon())  # the refused one was not charged


def test_rounds_before_the_first_checkpoint_are_spent(path: Path) -> None:
    die_after(path, 2)
    privacy = make_privacy()
    again = make(path, privacy)
    assert again.resume() is False and again.round == 0
    assert privacy.epsilon(1e-5) == epsilon_of(2)
    again.fit(1)
    third = make_privacy()
    make(path, third).resume()
    assert third.epsilon(1e-5) == privacy.epsilon(1e-5) == pytest.approx(epsilon_of(3))


def test_a_training_that_was_not_resumed_does_not_write_over_the_charges_of_another(path: Path) -> None:
    die_after(path, 2)
    before = record_path(path).read_bytes()
    anew = make(path, make_privacy())
    for go_on in (lambda: anew.fit(1), anew.save):
        with pytest.raises(ValueError, match=r"run\.safetensors\.privacy.*call resume\(\) first"):
            go_on()
    assert anew.round == 0 and record_path(path).read_bytes() == before and not path.exists()


def test_of_two_trainings_with_one_checkpoint_none_forgets_the_charges_of_the_other(path: Path) -> None:
    first, second = make_privacy(), make_privacy()
    one, other = make(path, first), make(path, second)
    one.fit(2)
    assert other.resume() and second.rounds == 2
    other.fit(3)
    for go_on in (lambda: one.fit(3), one.save):
        with pytest.raises(ValueError, match=r"Another training has written its charges .* makes no sum"):
            go_on()
    assert rounds_in(path) == 3
    other.fit(4)
    third = make_privacy()
    make(path, third).resume()
    assert third.rounds == second.rounds == 4


def test_two_trainings_that_begin_at_once_are_not_both_let(path: Path) -> None:
    one, other = make(path, make_privacy()), make(path, make_privacy())
    for trainer in (one, other):
        trainer._charges.begin()  # type: ignore[union-attr]  (nothing is written yet)
    one.fit(1)
    before = record_path(path).read_bytes()
    with pytest.raises(ValueError, match="Another training"):
        other.fit(1)
    assert record_path(path).read_bytes() == before


def test_resuming_again_counts_nothing_twice(path: Path) -> None:
    privacy = make_privacy()
    trainer = make(path, privacy)
    trainer.fit(3)
    trainer.resume()
    assert privacy.rounds == 3
    second = make_privacy()
    again = make(path, second)
    again.resume()
    again.resume()
    assert second.rounds == 3 and second.epsilon(1e-5) == privacy.epsilon(1e-5)


def test_wherever_a_training_could_be_taken_up_its_later_rounds_are_known(path: Path, tmp_path: Path) -> None:
    elsewhere, removed = tmp_path / "elsewhere", tmp_path / "removed"
    first = make_privacy()
    trainer = make(None, first)
    trainer.fit(2)
    trainer.save(elsewhere)
    trainer.save(removed)
    removed.unlink()
    record_path(removed).unlink()
    trainer.fit(5)
    assert not record_path(removed).exists()
    second = make_privacy()
    again = make(path, second)
    assert again.resume(elsewhere) and (again.round, second.rounds) == (2, 5)
    again.fit(3)
    for place in (elsewhere, path):
        third = make_privacy()
        make(None, third).resume(place)
        assert third.rounds == 6


def test_saving_where_another_training_was_keeps_its_charges_aside(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    make(other, make_privacy()).fit(3)
    before = record_path(other).read_bytes()
    trainer = make(path, make_privacy())
    trainer.fit(1)
    with caplog.at_level(logging.WARNING):
        trainer.save(other)
        trainer.save(other)
    assert "was moved to other.privacy.1" in caplog.text and len(caplog.records) == 1
    assert (tmp_path / "other.privacy.1").read_bytes() == before
    assert rounds_in(other) == 1


def test_a_privacy_of_ones_own_is_told_of_each_round(path: Path) -> None:
    die_after(path, 7, Counting())
    privacy = Counting()
    again = make(path, privacy)
    assert again.resume() and (again.round, privacy.rounds) == (5, 7)
    again.fit(6)
    assert privacy.rounds == 8


def test_a_round_that_fails_after_it_was_charged_stays_charged(path: Path) -> None:
    privacy = DistributedPrivacy(1.0, 1.0, clients=4)
    failing = privacy.aggregation(dropouts=lambda step, present: present[:3] if step == "input" else ())
    with pytest.raises(TooFewClientsError):
        make(path, privacy, aggregation=failing).fit(1)
    again = DistributedPrivacy(1.0, 1.0, clients=4)
    trainer = make(path, again, aggregation=again.aggregation())
    assert trainer.resume() is False
    assert again.epsilon(1e-5) == privacy.epsilon(1e-5) == pytest.approx(epsilon_of(1), rel=1e-3)
    trainer.fit(2)
    assert again.epsilon(1e-5) == pytest.approx(epsilon_of(3), rel=1e-3)


class FailsOnce(FedAvg):
    """After it has seen a sum."""

    fails_in = 2

    def step(self, updates: Any, optimizer_args: Any) -> torch.Tensor:
        step = super().step(updates, optimizer_args)
        self.fails_in -= 1
        if not self.fails_in:
            raise RuntimeError("on its way")
        return step


@pytest.mark.parametrize("kind", ["central", "distributed"])
def test_after_a_round_that_failed_with_its_sum_the_training_goes_on(path: Path, kind: str) -> None:
    privacy: Any = make_privacy() if kind == "central" else DistributedPrivacy(1.0, 1.0, clients=4)
    options = {} if kind == "central" else {"aggregation": privacy.aggregation()}
    trainer = make(path, privacy, strategy=FailsOnce(), **options)
    with pytest.raises(RuntimeError, match="on its way"):
        trainer.fit(3)
    assert privacy.rounds == rounds_in(path) == 2
    if kind == "distributed":
        with pytest.raises(ValueError, match="no noise was added"):
            privacy.noise(torch.zeros(2), 4)
    bound = privacy.clip_norm
    trainer.fit(3)
    assert privacy.rounds == rounds_in(path) == 4
    assert privacy.epsilon(1e-5) == pytest.approx(epsilon_of(4), rel=1e-3)
    assert (privacy.clip_norm == bound) is (kind == "distributed")


def test_without_a_checkpoint_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(None, make_privacy()).fit(2)
    make(tmp_path / "plain", None).fit(2)
    assert [file.name for file in tmp_path.iterdir()] == ["plain"]


def test_where_charges_cannot_be_written_no_sum_is_made(tmp_path: Path) -> None:
    privacy = make_privacy()
    trainer = make(tmp_path / "missing" / "run", privacy)
    with pytest.raises(OSError, match=r"cannot be written to .*so no sum is made"):
        trainer.fit(1)
    assert weights(trainer.model) == [0.0] and privacy.epsilon(1e-5) == 0.0


# -- what does not fit -----------------------------------------------------------------------------------------


def test_a_checkpoint_without_its_charges_is_refused_unless_they_are_said(path: Path) -> None:
    make(path, make_privacy()).fit(3)
    record_path(path).unlink()
    trainer = make(path, make_privacy())
    with pytest.raises(ValueError, match=r"bring 'run\.safetensors\.privacy'.*rounds_given_out"):
        trainer.resume()
    with pytest.raises(ValueError, match="checkpoint has 3 rounds"):
        trainer.resume(rounds_given_out=2)
    for wrong in (-1, 2.5, True, "3"):
        with pytest.raises(ValueError, match="whole number of rounds"):
            trainer.resume(rounds_given_out=wrong)  # type: ignore[arg-type]
    assert trainer.round == 0 and trainer.privacy.rounds == 0  # type: ignore[union-attr]
    assert trainer.resume(rounds_given_out=4)
    assert trainer.privacy.epsilon(1e-5) == epsilon_of(4)  # type: ignore[union-attr]
    trainer.fit(4)
    with pytest.raises(ValueError, match="there is a record of them"):
        make(path, make_privacy()).resume(rounds_given_out=4)
    with pytest.raises(ValueError, match=r"with privacy=\.\.\."):
        make(path, None).resume(rounds_given_out=4)


def test_rounds_that_were_trained_without_privacy_are_not_called_private(path: Path) -> None:
    make(path, make_privacy()).fit(2)
    without = make(path, None)
    without.resume()
    without.fit(4)
    with pytest.raises(ValueError, match="the others were trained without privacy"):
        make(path, make_privacy()).resume()


def test_a_record_of_before_is_taken_over_and_becomes_a_ledger(path: Path) -> None:
    first = make_privacy()
    make(path, first).fit(3)
    before = json.dumps({"version": 1, "rounds": 7, "charges": first.charges(coming=4)})
    record_path(path).write_text(before)
    second = make_privacy()
    again = make(path, second)
    with pytest.raises(ValueError, match=r"call resume\(\) first"):
        again.fit(4)
    assert again.resume() and second.rounds == rounds_in(path) == 7
    again.fit(4)
    third = make_privacy()
    make(path, third).resume()
    assert third.rounds == 8 and third.epsilon(1e-5) == pytest.approx(epsilon_of(8))
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "run.safetensors",
        "run.safetensors.privacy",
    ]


def test_an_older_record_written_over_a_newer_one_is_noticed(path: Path) -> None:
    trainer = make(path, make_privacy())
    trainer.fit(1)
    older = record_path(path).read_bytes()
    trainer.fit(2)
    with record_path(path).open("r+b") as file:
        file.write(older)
        file.truncate()
    with pytest.raises(BudgetFileError, match=r"an older book was put in its place.*makes no sum"):
        trainer.fit(3)
    assert trainer.round == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", SerdeError),
        ("[" * 100_000, SerdeError),
        ("{}", SerdeError),
        ('{"version": 2, "rounds": 3, "charges": null}', SerdeError),
        ('{"version": 1, "rounds": "x", "charges": null}', SerdeError),
        ('{"version": 1, "rounds": 3, "charges": null, "more": 1}', SerdeError),
        ('{"version": 1, "rounds": 3, "charges": {}}', ValueError),
        ('{"version": 1, "rounds": 3, "charges": {"rounds": 3, "gaussians": [[0, 1, 3]]}}', ValueError),
    ],
)
def test_a_damaged_record_is_not_taken_for_an_empty_one(path: Path, text: str, error: type) -> None:
    make(path, make_privacy()).fit(3)
    record_path(path).write_text(text)
    trainer = make(path, make_privacy())
    with pytest.raises(error):
        trainer.resume()
    assert weights(trainer.model) == [0.0] and trainer.round == 0 and trainer.privacy.rounds == 0  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"call resume\(\) first"):
        trainer.fit(1)
    assert len(load_checkpoint(path).history) == 3
