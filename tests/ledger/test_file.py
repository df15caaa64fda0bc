"""The file of a book: all of it in one file, and what is missing, torn, old or older is not taken for a book."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

import forked
from syft.dp.accounting import Pure
from syft.dp.worker_budgets import BudgetBook, Charge, Limit
from syft.exceptions import BudgetExceededError, BudgetFileError
from syft.ledger import mark

QUARTER = Charge("mean", Pure(0.25), 0.25)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "book"


def some_book(path: Path, charges: int = 0) -> BudgetBook:
    book = BudgetBook.create(path)
    book.set_limit("ages", Limit(1e6, 1e-6))
    for _ in range(charges):
        book.charge(["ages"], "ann", QUARTER)
    return book


def spent(path: Path) -> float:
    book = BudgetBook(path)
    try:
        return book.state("ages", "ann").spent
    finally:
        book.close()


KILLED = """
import os, signal, sys
from syft.dp.accounting import Pure
from syft.dp.worker_budgets import BudgetBook, Charge, Limit
book = BudgetBook.create(sys.argv[1])
book.set_limit("ages", Limit(1.0, 0.0))
for _ in range(4):
    book.charge(["ages"], "ann", Charge("mean", Pure(0.25), 0.25))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_worker_charged_is_in_the_one_file_that_is_copied(path: Path, tmp_path: Path) -> None:
    assert forked.run("-c", KILLED, path, check=False, timeout=800).returncode == -9
    assert [p.name for p in tmp_path.iterdir()] == ["book"]
    shutil.copy(path, tmp_path / "copy")
    assert spent(tmp_path / "copy") == 1.0
    with pytest.raises(BudgetExceededError):
        BudgetBook(tmp_path / "copy").charge(["ages"], "ann", QUARTER)


# -- torn files --------------------------------------------------------------------------------------------


def pages(content: bytes) -> list[bytes]:
    return [content[start : start + 4096] for start in range(0, len(content), 4096)]


def test_pages_of_before_and_after_a_charge_are_refused_or_are_one_of_the_two(
    path: Path, tmp_path: Path
) -> None:
    book, torn = some_book(path, 15), tmp_path / "torn"
    refused = accepted = 0
    for number in range(15, 32):  # some of them split a page
        before = pages(path.read_bytes())
        book.charge(["ages"], "ann", QUARTER)
        after = pages(path.read_bytes())
        changed = [n for n in range(len(after)) if n >= len(before) or before[n] != after[n]]
        for written in itertools.product((False, True), repeat=len(changed)):
            mixed = before + after[len(before) :] if any(written[-1:]) else before[:]
            for page, is_written in zip(changed, written, strict=True):
                if is_written:
                    mixed[page : page + 1] = [after[page]]
            torn.write_bytes(b"".join(mixed))
            try:
                found = 4 * spent(torn)
            except BudgetFileError:
                refused += 1
            else:
                accepted += 1
                assert found in (
                    {number + 1} if all(written) else {number} if not any(written) else {number, number + 1}
                )
    assert refused > 50 and accepted >= 2 * 17


def test_a_journal_is_put_back_and_a_file_without_its_journal_is_not_believed(
    path: Path, tmp_path: Path
) -> None:
    some_book(path, 200).close()
    script = """
import os, sqlite3, sys
book = sqlite3.connect(sys.argv[1], isolation_level=None)
book.execute("PRAGMA cache_size=1")  # so that pages are written before the end
book.execute("BEGIN IMMEDIATE")
for number in range(1, 200, 7):
    book.execute("UPDATE releases SET mechanism = hex(randomblob(300)), epsilon = 0 WHERE number = ?", (number,))
os._exit(0)
"""
    forked.run("-c", script, path, check=True, timeout=800)
    assert (tmp_path / "book-journal").stat().st_size > 0
    shutil.copy(path, tmp_path / "alone")
    with pytest.raises(BudgetFileError, match="not taken for an empty one"):
        BudgetBook(tmp_path / "alone")
    assert spent(path) == 50.0
    assert not (tmp_path / "book-journal").exists()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("DELETE FROM releases WHERE number = 3", "one is missing"),
        ("DELETE FROM releases WHERE number = 5", "is the last"),
        ("DELETE FROM releases", "is the last"),
        ("UPDATE releases SET epsilon = 0.0 WHERE number = 2", "not what was written down"),
        ("UPDATE limits SET epsilon = 1e300", "its limits are not those that were set"),
        ("UPDATE about SET last = 4", "is the last"),
    ],
)
def test_a_release_or_a_limit_that_was_changed_is_noticed(path: Path, harm: str, says: str) -> None:
    some_book(path, 5).close()
    connection = sqlite3.connect(path)
    connection.execute(harm)
    connection.commit()
    connection.close()
    with pytest.raises(BudgetFileError, match=says):
        BudgetBook(path)


def test_an_older_copy_written_over_an_open_book_is_noticed(path: Path, tmp_path: Path) -> None:
    book = some_book(path, 2)
    shutil.copy(path, tmp_path / "yesterday")
    book.charge(["ages"], "ann", QUARTER)
    path.write_bytes((tmp_path / "yesterday").read_bytes())  # the same file, with other contents
    with pytest.raises(BudgetFileError, match="an older book was put in its place"):
        book.state("ages", "ann")
    with pytest.raises(BudgetFileError, match="an older book was put in its place"):
        book.charge(["ages"], "ann", QUARTER)


def has_notes(folder: Path) -> bool:
    """Whether files there have extended attributes."""
    mark.note(folder, (1, "seal"))
    return mark.noted(folder) == (1, "seal")


def written_over(path: Path, older: bytes) -> None:
    """Other contents in the same file."""
    with path.open("r+b") as file:
        file.write(older)
        file.truncate()


def test_memory_of_a_newer_book_is_not_believed_when_as_much_was_charged_to_an_older_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "noted", lambda path: None)
    first, second = some_book(path, 1), BudgetBook(path)
    older = path.read_bytes()
    for _ in range(2):
        second.charge(["ages"], "ann", QUARTER)
    written_over(path, older)
    for _ in range(2):  # now the file has the counters that it had, and other releases
        first.charge(["ages"], "ann", QUARTER)
    for use in (lambda: second.charge(["ages"], "ann", QUARTER), lambda: second.state("ages", "ann")):
        with pytest.raises(BudgetFileError, match="an older book was put in its place"):
            use()


def test_an_older_copy_is_noticed_by_those_who_never_saw_the_newer_book(path: Path, tmp_path: Path) -> None:
    if not has_notes(tmp_path):
        pytest.skip("there are no extended attributes here")
    first, second = some_book(path, 1), BudgetBook(path)
    older = path.read_bytes()
    for _ in range(2):
        second.charge(["ages"], "ann", QUARTER)
    written_over(path, older)
    for use in (lambda: first.charge(["ages"], "ann", QUARTER), lambda: BudgetBook(path)):
        with pytest.raises(BudgetFileError, match=r"release number 3, charged before.*copy it to a new file"):
            use()
    shutil.copyfile(path, tmp_path / "anew")  # as the sentence says
    assert spent(tmp_path / "anew") == 0.25


def test_a_note_is_never_ahead_and_never_goes_back(path: Path, tmp_path: Path) -> None:
    if not has_notes(tmp_path):
        pytest.skip("there are no extended attributes here")
    book = some_book(path, 2)
    assert mark.noted(path) == book._last and mark.noted(path)[0] == 2  # type: ignore[index]
    mark.note(path, (1, "earlier"))
    assert mark.noted(path) == book._last
    with pytest.raises(BudgetExceededError):
        book.charge(["ages"], "ann", Charge("mean", Pure(1e7), 1e7))
    assert mark.noted(path) == book._last
    assert spent(path) == 0.5


@pytest.mark.skipif(sys.platform != "linux", reason="os.setxattr is Linux's")
def test_a_note_that_says_nothing_is_none(path: Path, tmp_path: Path) -> None:
    if not has_notes(tmp_path):
        pytest.skip("there are no extended attributes here")
    some_book(path, 1)
    for garbage in (b"", b"\xff", b"-1 x", b"9" * 30):
        os.setxattr(path, "user.syft.last_release", garbage)
        assert mark.noted(path) is None
    assert spent(path) == 0.25
    assert mark.noted(tmp_path / "nothing") is None


# -- copies ------------------------------------------------------------------------------------------------


def test_a_copy_is_whole_while_others_charge_and_nothing_is_overwritten(path: Path, tmp_path: Path) -> None:
    book = some_book(path)
    book.charge(["ages"], "dan", Charge("gnmax", Pure(0.5), float("inf")))
    done = threading.Event()

    def charge() -> None:
        other = BudgetBook(path)
        while not done.is_set():
            other.charge(["ages"], "ann", QUARTER)

    busy = threading.Thread(target=charge)
    busy.start()
    try:
        for number in range(10):
            before = len(book.state("ages", "ann").releases)
            book.copy_to(tmp_path / f"copy{number}")
            copied = BudgetBook(tmp_path / f"copy{number}")
            assert before <= len(copied.state("ages", "ann").releases)
            assert copied.state("ages", "dan").releases[0].epsilon == float("inf")
    finally:
        done.set()
        busy.join()
    with pytest.raises(FileExistsError, match="already"):
        book.copy_to(tmp_path / "copy0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["book", *(f"copy{n}" for n in range(10))]


# -- books of before ---------------------------------------------------------------------------------------

FORMAT_1 = """
PRAGMA journal_mode=WAL;
CREATE TABLE about (format INTEGER NOT NULL);
CREATE TABLE datasets (name TEXT PRIMARY KEY, records_per_person INTEGER NOT NULL);
CREATE TABLE limits (
    dataset TEXT NOT NULL, scope TEXT NOT NULL, user TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
    PRIMARY KEY (dataset, scope, user));
CREATE TABLE releases (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, dataset TEXT NOT NULL, user TEXT NOT NULL,
    mechanism TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, event TEXT NOT NULL, count INTEGER NOT NULL);
CREATE INDEX releases_of ON releases (dataset, user);
INSERT INTO about VALUES (1);
INSERT INTO datasets VALUES ('ages', 1);
INSERT INTO limits VALUES ('ages', 'each', '', 1.0, 1e-6);
INSERT INTO releases (time, dataset, user, mechanism, epsilon, delta, event, count)
    VALUES (1.0, 'ages', 'ann', 'mean', 0.5, 0.0, '{"epsilon": 0.5, "event": "pure"}', 1);
INSERT INTO releases (time, dataset, user, mechanism, epsilon, delta, event, count)
    VALUES (2.0, 'ages', 'ann', 'mean', 0.25, 0.0, '{"epsilon": 0.25, "event": "pure"}', 1);
"""


def old_book(path: Path) -> None:
    """A book with a write-ahead log, as a worker that was killed left it."""
    script = "import os, sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2]); os._exit(0)"
    script = script.replace("sqlite3.connect(sys.argv[1])", "b = sqlite3.connect(sys.argv[1]); b")
    forked.run("-c", script, path, FORMAT_1, check=True, timeout=800)
    assert Path(f"{path}-wal").stat().st_size > 0


def test_a_book_with_a_log_becomes_one_file_when_it_is_opened(path: Path, tmp_path: Path) -> None:
    old_book(path)
    book = BudgetBook(path)
    assert [p.name for p in tmp_path.iterdir()] == ["book"]
    assert [r.epsilon for r in book.state("ages", "ann").releases] == [0.5, 0.25]
    book.charge(["ages"], "ann", QUARTER)
    with pytest.raises(BudgetExceededError):
        book.charge(["ages"], "ann", QUARTER)
    assert spent(path) == 1.0


def test_many_open_a_book_with_a_log_at_once(path: Path) -> None:
    old_book(path)
    start, left, failures = threading.Barrier(8), [], []

    def open_it() -> None:
        start.wait()
        try:
            left.append(BudgetBook(path).state("ages", "ann").left)
        except (BudgetFileError, TimeoutError) as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, left) == ([], [0.25] * 8)
    assert os.listdir(path.parent) == ["book"]
