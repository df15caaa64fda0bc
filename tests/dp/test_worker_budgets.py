"""The book of budgets: charged once whoever races, on the disk before an answer leaves, never taken for empty."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import statistics
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import forked
from syft.dp.accounting import Accountant, Gaussian, Pure
from syft.dp.worker_budgets import BudgetBook, Charge, Limit, spent_epsilon
from syft.exceptions import BudgetExceededError, BudgetFileError, ReleaseNotPermittedError

torch.set_num_threads(1)


def pure(epsilon: float, count: int = 1) -> Charge:
    return Charge("mean", Pure(epsilon), epsilon, 0.0, count)


@pytest.fixture
def book(tmp_path: Path) -> BudgetBook:
    made = BudgetBook.create(tmp_path / "book")
    made.set_limit("ages", Limit(1.0, 0.0))
    return made


# -- charging ----------------------------------------------------------------------------------------------


def test_ten_tenths_are_a_whole_and_an_eleventh_is_refused(book: BudgetBook) -> None:
    for _ in range(10):
        book.charge(["ages"], "ann", pure(0.1))
    with pytest.raises(BudgetExceededError, match=r"epsilon 0 of 1 left"):
        book.charge(["ages"], "ann", pure(1e-6))
    book.charge(["ages"], "dan", pure(1.0))


def test_a_refusal_charges_none_of_several(book: BudgetBook) -> None:
    book.set_limit("incomes", Limit(0.5, 0.0))
    with pytest.raises(BudgetExceededError, match="incomes"):
        book.charge(["ages", "incomes"], "ann", pure(0.7))
    assert book.state("ages", "ann").spent == 0.0
    with pytest.raises(ReleaseNotPermittedError, match="'heights'"):
        book.charge(["ages", "heights"], "ann", pure(0.1))
    assert book.state("ages", "ann").releases == ()


def test_the_better_bound_counts() -> None:
    limit = Limit(10.0, 1e-5)
    many = [Charge("gaussian", Gaussian(10.0), 1.0, 1e-6, 100)]
    assert 4 < spent_epsilon(many, limit) < 10
    assert spent_epsilon([pure(0.1, 10)], limit) == pytest.approx(1.0)
    assert spent_epsilon([pure(0.1, 10_000)], limit) < 1000 / 2
    assert spent_epsilon([], limit) == 0.0


def test_each_bound_has_its_part_of_delta() -> None:
    limit = Limit(1.0, 1e-6)
    half = Charge("gaussian", Gaussian(5.0), 0.9, 5e-7)
    assert spent_epsilon([half], limit) == 0.9
    more = Charge("gaussian", Gaussian(5.0), 0.9, 5.1e-7)
    assert 0.9 < spent_epsilon([more], limit) < 2
    opaque = Charge("dpsgd", None, 0.5, 2.4e-7)
    votes = Charge("gnmax", Gaussian(40.0), math.inf)
    assert 0.5 < spent_epsilon([opaque, votes], limit) < 1
    assert spent_epsilon([opaque, opaque, votes], limit) == math.inf
    assert spent_epsilon([opaque, opaque], limit) == 1.0
    assert spent_epsilon([opaque, opaque, opaque], limit) == math.inf


def test_refused_for_its_delta_says_so(book: BudgetBook) -> None:
    book.set_limit("ages", Limit(1.0, 1e-6))
    with pytest.raises(BudgetExceededError, match="may be 5e-07 in all, half of the budget's"):
        book.charge(["ages"], "ann", Charge("dpsgd", None, 0.1, 1e-6))
    book.charge(["ages"], "ann", Charge("dpsgd", None, 0.1, 5e-7))


@pytest.mark.parametrize(
    "charge", [Charge("gaussian", Gaussian(3.0), 0.5, 1e-6), Charge("gnmax", Gaussian(30.0), math.inf)]
)
def test_a_budget_without_a_delta_says_that_a_delta_is_what_it_lacks(
    book: BudgetBook, charge: Charge
) -> None:
    with pytest.raises(
        BudgetExceededError, match="needs a delta, and this budget has none: ask the data owner"
    ):
        book.charge(["ages"], "ann", charge)
    book.set_limit("ages", Limit(1.0, 1e-6))
    with pytest.raises(BudgetExceededError, match="Ask for more noise"):
        book.charge(["ages"], "ann", Charge("gnmax", Gaussian(0.5), math.inf))


def test_a_sampled_event_is_not_for_replaced_records(book: BudgetBook) -> None:
    with pytest.raises(ValueError, match="replaced records"):
        book.charge(["ages"], "ann", Charge("gaussian", Gaussian(3.0, 0.1), math.inf))


def test_numbers_that_are_too_large_are_refused_with_a_sentence(book: BudgetBook) -> None:
    for wrong in ((10**400, 0), (10**5000, 0), (1.0, 10**400), (True, 0), ("1", 0)):
        with pytest.raises(ValueError, match="A budget's"):
            Limit(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2\\^53 at most"):
        book.set_limit("ages", Limit(1.0, 0.0), max_records_per_person=10**30)
    book.set_limit("ages", Limit(1.797e308, 1e-6))
    with pytest.raises(BudgetExceededError):
        book.charge(["ages"], "ann", Charge("dpsgd", None, math.inf))
    with pytest.raises(BudgetExceededError):
        book.charge(["ages"], "ann", Charge("sum", Pure(1.7e308), 1.7e308, 0.0, 3))


def best_epsilon(events: list[tuple[Gaussian | Pure, int]], delta: float) -> float:
    """An independent figure: the accountant's, for costs that are fixed beforehand."""
    pytest.importorskip("dp_accounting")
    accountant = Accountant()
    for event, count in events:
        accountant.compose(event, count)
    return accountant.epsilon(delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("event", [Gaussian(30.0), Gaussian(3.0), Pure(0.01), Pure(1e-5), Pure(0.5)])
def test_the_divergence_is_never_less_than_what_is_known_and_not_much_more(
    event: Any, epsilon: float
) -> None:
    limit = Limit(epsilon, 1e-6)
    alone = event.epsilon if isinstance(event, Pure) else math.inf
    for count in (1, 10, 100, 1000):
        ours = spent_epsilon([Charge("", event, alone, 0.0, count)], limit)
        best = best_epsilon([(event, count)], limit.delta)
        assert ours >= best
        if best / 2 < epsilon < 2 * best:  # where it matters, and where the order is meant for
            assert ours < 1.35 * best


def gained(strategy: str, limit: Limit, epsilon: float) -> tuple[float, float]:
    """What one data set makes likelier than e^epsilon times the other, by simulation: its mean, and how sure that is.

    The user sees the privacy loss itself, which is more than any answer tells, and asks by it.
    """
    generator = torch.Generator().manual_seed(3)
    excess = []
    for _ in range(1000):
        spent: list[Charge] = []
        loss = 0.0
        while not (strategy == "stops when it has won" and loss > 1.5 * epsilon):
            noise = 2.5
            if strategy == "dares when it is behind" and loss < -0.3:
                noise = 1.0
            elif strategy == "is careful when it is ahead" and loss > 0.5:
                noise = 6.0
            fitting = [
                charge
                for charge in (Charge("gaussian", Gaussian(n), math.inf) for n in (noise, 4 * noise))
                if spent_epsilon([*spent, charge], limit) <= limit.epsilon
            ]
            if not fitting:
                break
            spent.append(fitting[0])
            scale = 1 / fitting[0].event.noise_multiplier  # type: ignore[union-attr]
            loss += scale * float(torch.randn((), generator=generator)) + scale**2 / 2
        excess.append(max(0.0, 1 - math.exp(epsilon - loss)))
    return statistics.mean(excess), statistics.stdev(excess) / math.sqrt(len(excess))


STRATEGIES = ["stops when it has won", "dares when it is behind", "is careful when it is ahead"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_chooses_costs_by_answers_gains_nothing(strategy: str) -> None:
    mean, spread = gained(strategy, Limit(1.0, 0.2), 1.0)
    assert mean > 0 and mean + 4 * spread < 0.2


@pytest.mark.parametrize(
    "strategy", [STRATEGIES[0], *(pytest.param(s, marks=pytest.mark.slow) for s in STRATEGIES[1:])]
)
def test_a_book_that_lets_too_much_pass_would_be_caught(strategy: str) -> None:
    mean, spread = gained(strategy, Limit(4.0, 0.2), 1.0)
    assert mean - 4 * spread > 0.2


def test_nobody_without_a_name_is_charged(book: BudgetBook) -> None:
    for nobody in (None, ""):
        with pytest.raises(ReleaseNotPermittedError, match="user name"):
            book.charge(["ages"], nobody, pure(0.1))


def test_a_release_of_nothing_is_not_free(book: BudgetBook) -> None:
    with pytest.raises(ReleaseNotPermittedError, match="nothing to charge it to"):
        book.charge([], "ann", pure(0.1))


@pytest.mark.parametrize(
    "charge",
    [
        Charge("mean", None, 0.0, 0.0, 1),
        Charge("mean", None, 1e-300, 0.0, 1 << 62),
        Charge("mean", None, 0.1, 0.0, 0),
        Charge("mean", None, 0.1, 1.0, 1),
        Charge("mean", None, math.nan, 0.0, 1),
    ],
)
@pytest.mark.parametrize("is_approved", [False, True])
def test_nobody_can_end_a_book_with_charges_that_cost_nothing(
    book: BudgetBook, charge: Charge, is_approved: bool
) -> None:
    """Counts are added up in 64 bits: two of 2^62 were more than SQLite adds, and nobody was served any more."""
    for _ in range(2):
        with pytest.raises(ValueError, match="A charge is of an epsilon above 0"):
            book.charge(["ages"], "eve", charge, is_approved=is_approved)
    assert book.state("ages", "ann").left == 1.0


def test_a_charge_is_for_as_many_records_as_the_book_says_when_it_is_charged(book: BudgetBook) -> None:
    book.set_limit("ages", Limit(1.0, 0.0), max_records_per_person=3)
    with pytest.raises(
        ReleaseNotPermittedError, match=r"noise for 2 .* may have 3.*Nothing was charged; ask again"
    ):
        book.charge(["ages"], "ann", pure(0.1), 2)
    with pytest.raises(ReleaseNotPermittedError, match="noise for 1"):
        book.charge(["ages"], "ann", pure(0.1))
    assert book.state("ages", "ann").releases == ()
    book.charge(["ages"], "ann", pure(0.1), 3)
    book.charge(["ages"], "ann", pure(0.1), 4)
    with pytest.raises(ValueError, match="max_records_per_person=3"):
        book.set_limit("ages", Limit(1.0, 0.0), max_records_per_person=4)


def test_the_records_of_a_person_add_up_over_the_tensors_of_a_name(book: BudgetBook) -> None:
    book.set_limit("ages", Limit(1.0, 0.0), max_records_per_person=3)
    book.set_limit("incomes", Limit(1.0, 0.0), max_records_per_person=4)
    assert book.records_per_person(["ages", "incomes"]) == 4
    assert book.records_per_person(["ages", "ages", "incomes"]) == 6
    with pytest.raises(ReleaseNotPermittedError, match="may have 6"):
        book.charge(["ages", "ages"], "ann", pure(0.1), 3)
    book.charge(["ages", "ages"], "ann", pure(0.1), 6)
    assert len(book.state("ages", "ann").releases) == 1  # charged once, with the noise for both


def test_one_connection_without_a_name_has_no_budget_of_its_own(book: BudgetBook) -> None:
    with pytest.raises(ValueError, match="everybody without a name is one user, 'anonymous:'"):
        book.set_limit("ages", Limit(9.0, 0.0), user="anonymous:zz")
    assert book.state("ages", "anonymous:zz").epsilon == 1.0
    book.set_limit("ages", Limit(9.0, 0.0), user="anonymous:")
    assert book.state("ages", "anonymous:zz").epsilon == 9.0


def test_users_and_data_sets_are_never_taken_for_sql(book: BudgetBook) -> None:
    name = "x'; DROP TABLE releases; --"
    book.set_limit(name, Limit(1.0, 0.0))
    book.charge([name], name, pure(0.25))
    assert book.state(name, name).spent == 0.25


# -- the file ----------------------------------------------------------------------------------------------


def test_what_was_spent_is_there_after_opening_anew(book: BudgetBook) -> None:
    book.charge(["ages"], "ann", pure(0.25))
    book.close()
    again = BudgetBook(book.path)
    assert again.state("ages", "ann").left == 0.75
    assert [r.epsilon for r in again.state("ages", "ann").releases] == [0.25]


def test_commits_are_on_the_disk_and_in_the_file(book: BudgetBook) -> None:
    for _ in range(2):  # the first connection, which checked the book, and one that did not
        book.charge(["ages"], "ann", pure(0.1))
    with book._transaction() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)


def test_a_missing_or_second_book_is_an_error(book: BudgetBook, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not taken for an empty one"):
        BudgetBook(tmp_path / "nothing")
    with pytest.raises(FileExistsError, match=r"open it with BudgetBook\(path\)"):
        BudgetBook.create(tmp_path / "book")
    with pytest.raises(OSError, match="No book of budgets can be written"):
        BudgetBook.create(tmp_path / "no" / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["book"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b"not a data base, though long enough to be looked at" * 40),
        lambda path: path.write_bytes(b""),
        lambda path: _sql(path, "UPDATE about SET format = 99"),
        lambda path: _sql(path, "DROP TABLE releases"),
        lambda path: _sql(path, "UPDATE limits SET epsilon = -1"),
        lambda path: _sql(path, "UPDATE releases SET event = '{}'"),
        lambda path: _sql(path, 'UPDATE releases SET event = \'{"event": "free"}\''),
    ],
)
def test_a_damaged_book_is_not_believed(book: BudgetBook, harm: Any) -> None:
    book.charge(["ages"], "ann", pure(1.0))
    book.close()
    path = book.path
    assert path is not None
    harm(path)
    with pytest.raises(BudgetFileError, match="not taken for an empty one"):
        BudgetBook(path).charge(["ages"], "ann", pure(1.0))


def _sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_book_that_is_moved_away_or_replaced_is_noticed(book: BudgetBook, tmp_path: Path) -> None:
    book.charge(["ages"], "ann", pure(1.0))
    os.rename(tmp_path / "book", tmp_path / "moved")
    with pytest.raises(BudgetFileError, match="No such file"):
        book.charge(["ages"], "ann", pure(1.0))
    BudgetBook.create(tmp_path / "book").set_limit("ages", Limit(1.0, 0.0))
    with pytest.raises(BudgetFileError, match="replaced"):
        book.charge(["ages"], "ann", pure(1.0))


# -- races -------------------------------------------------------------------------------------------------


def test_a_hundred_threads_race_for_the_last_unit_and_one_gets_it(tmp_path: Path, make_worker: Any) -> None:
    book = BudgetBook.create(tmp_path / "book")
    worker = make_worker("holder")
    worker.keep_budgets(book)
    data = torch.arange(10.0).private_tensor(allowed_users=("owner",)).tag("#x").send(worker, user="owner")
    worker.set_budget(dataset=data, epsilon=5.0)
    worker.set_budget(dataset=data, together=True, epsilon=2.0)
    worker.release(data, "mean", 1.0, user="first", bounds=(0, 10))
    start = threading.Barrier(100)

    def race(number: int) -> int:
        start.wait()
        try:
            worker.release(data, "mean", 1.0, user=f"user{number % 7}", bounds=(0, 10))
        except BudgetExceededError:
            return 0
        return 1

    with ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(race, range(100))) == 1
    assert len(book.state("#x", "first").releases) == 1
    assert book.state("#x", "first").together_left == 0.0


PROCESSES = """
import json, os, random, signal, sys, threading, time
import torch
import syft as sy
from syft.dp.worker_budgets import BudgetBook
from syft.exceptions import BudgetExceededError

torch.set_num_threads(1)
hook = sy.TorchHook(torch)
path = sys.argv[1]
worker = sy.VirtualWorker(hook, id="holder")
worker.keep_budgets(BudgetBook.create(path))
data = torch.arange(10.0).private_tensor(allowed_users=("owner",)).tag("#x").send(worker, user="owner")


def ask(user):
    try:
        return worker.release(data, "mean", 1.0, user=user, bounds=(0, 10))
    except BudgetExceededError:
        return None


def forked(work):
    "Run `work(write)` in a process of its own; returns its number and the end to read from."
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            work(lambda: os.write(write, b"."))
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def drained(pid, read):
    os.waitpid(pid, 0)
    found = b""
    while part := os.read(read, 65536):
        found += part
    os.close(read)
    return len(found)
"""


def run_processes(path: Path, script: str) -> Any:
    code = PROCESSES + textwrap.dedent(script)
    done = forked.run("-c", code, str(path), capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")


@needs_fork
def test_processes_with_threads_race_for_the_last_unit_and_one_gets_it(tmp_path: Path) -> None:
    answers, spent = run_processes(
        tmp_path / "book",
        """
        worker.set_budget(dataset=data, epsilon=3.0)

        def race(write):
            def one():
                if ask("ann") is not None:
                    write()
            threads = [threading.Thread(target=one) for _ in range(17)]
            for t in threads: t.start()
            for t in threads: t.join()

        children = [forked(race) for _ in range(6)]
        print(json.dumps([sum(drained(*c) for c in children), worker.budget("ann", "#x").spent]))
        """,
    )
    assert (answers, spent) == (3, 3.0)  # of 102 clients


KILLED = """
import syft.dp.release

compute = syft.dp.release.answer
syft.dp.release.answer = lambda *given: time.sleep(0.01) or compute(*given)  # so that kills fall in between
worker.set_budget(dataset=data, epsilon=1e9)
random.seed(7)
found = []
for trial in range(20):
    def loop(write):
        while True:
            {step}
    child = forked(loop)
    os.read(child[1], 1)  # it is running: the first answer
    began = time.monotonic()
    os.read(child[1], 1)
    time.sleep(random.uniform(0.0, time.monotonic() - began))  # some time of the next one
    os.kill(child[0], signal.SIGKILL)
    answers = 2 + drained(*child)
    found.append((answers, len(worker.budget(f"user{{trial}}", "#x").releases)))
print(json.dumps(found))
"""


@needs_fork
def test_an_answer_that_was_seen_was_paid_for_also_by_a_process_that_was_killed(tmp_path: Path) -> None:
    found = run_processes(
        tmp_path / "book", KILLED.format(step='ask(f"user{trial}") is not None and write()')
    )
    assert all(answers <= charges <= answers + 1 for answers, charges in found)
    assert sum(answers for answers, _charges in found) >= 40
    assert any(charges > answers for answers, charges in found)  # some died between charge and answer


@needs_fork
def test_the_same_test_catches_a_worker_that_answers_before_it_charges(tmp_path: Path) -> None:
    found = run_processes(tmp_path / "book", KILLED.format(step='write(); ask(f"user{trial}")'))
    assert any(answers > charges for answers, charges in found)


@needs_fork
def test_a_copy_of_a_book_in_memory_is_not_spent_by_a_forked_process() -> None:
    book = BudgetBook()
    book._process += 1  # as a child sees it
    with pytest.raises(BudgetFileError, match="memory of another process"):
        book.state("ages", "ann")
    assert "in memory only" in repr(book)
