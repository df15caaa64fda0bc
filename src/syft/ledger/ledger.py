"""`Ledger`: a file of privacy charges that is open, and transactions on it that threads and processes share.

One duty: whoever opens, races, forks or writes over the file, a transaction sees the ledger as it is, or is an error.
What stands in the file is `file`'s. Imports that, `mark`, `exceptions`, and `identity` for a folder on the disk.

NOTE [Read anew]
SQLite keeps pages in memory, and believes them while a counter in the file is what it was. An older copy to which as
much was charged has the counter of the newer book, and a process that knew the newer one would go on reading its
memory. So a connection is for one transaction. What this process has seen of the book it remembers itself.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from syft.exceptions import BudgetFileError
from syft.identity.files import sync_directory
from syft.ledger import file as ledger_file
from syft.ledger import mark

#: How long a process waits for the others, in seconds.
PATIENCE = 120.0

#: Connections of the parent that a forked process must not use, nor close.
_OF_PARENTS: list[Any] = []


class Ledger:
    """Charges in a file; in memory without a path, and gone with the process."""

    #: What the file is called in errors, and how a user makes a new one.
    noun, cure = "ledger", "make a new one with create(path)"

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """A new file; an old one is not overwritten. !! FileExistsError"""
        target = Path(path).absolute()
        with cls._whole_file(target) as draft:
            ledger_file.create(draft)
        return cls(target)

    @classmethod
    @contextlib.contextmanager
    def _whole_file(cls, target: Path) -> Iterator[Path]:
        """A name to write a new ledger under. It appears at `target` when it is whole. !! FileExistsError"""
        draft = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            yield draft
            if journal_path(target).exists() and not target.exists():
                # NB: SQLite would put its pages into the new file.
                raise BudgetFileError(
                    f"{journal_path(target)} is the journal of an earlier {cls.noun}, which is missing. Restore that "
                    "file, or move the journal away."
                )
            os.link(draft, target)
            sync_directory(target.parent)
        except FileExistsError:
            raise FileExistsError(
                f"There is a {cls.noun} at {target} already: open it with {cls.__name__}(path)."
            ) from None
        except sqlite3.OperationalError as error:
            raise OSError(f"No {cls.noun} can be written at {target} ({error}).") from error
        finally:
            for leftover in (draft, journal_path(draft)):
                leftover.unlink(missing_ok=True)

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file: tuple[int, int] | None = None
        self._was_checked = False
        """Whether this process has found the file to be a whole book."""
        self._last: ledger_file.Last | None = None
        """The last release that this process has seen in the book."""
        if self.path is not None and not self.path.exists():
            raise FileNotFoundError(
                f"There is no {self.noun} at {self.path}. A missing one is not taken for an empty one: restore it, or "
                f"{self.cure}."
            )
        self._connection: sqlite3.Connection | None = None
        with self._transaction(writes=False):
            pass

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """A copy of the book as it is now, also while others charge; nothing is overwritten.

        What is charged after it is not in the copy: whoever opens it gives that out a second time.
        """
        with self._whole_file(Path(path).absolute()) as draft, self._transaction(writes=False) as book:
            copy = sqlite3.connect(draft)
            try:
                copy.execute("PRAGMA synchronous=EXTRA")
                book.backup(copy)
            finally:
                copy.close()

    def close(self) -> None:
        """Forget the file; who uses the book afterwards opens it anew, and checks all of it."""
        with self._lock:
            self._disconnect()
            self._was_checked = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'in memory only' if self.path is None else self.path}>"

    # -- transactions ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it on the disk at the end, or nothing of it."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock:
            try:
                book = self._connected(writes)
                book.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    before = self._last = self._believed(book)
                    yield book
                    last = ledger_file.last(book) if writes else before
                    book.execute("COMMIT")
                finally:
                    if book.in_transaction:
                        book.execute("ROLLBACK")
                self._last = last
                if self.path is not None and last != before:
                    mark.note(self.path, last)
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise TimeoutError(
                        f"Other processes kept the {self.noun} at {self.path} busy for {PATIENCE:g} s. Nothing was "
                        "charged by this one; try again."
                    ) from error
                raise self._unbelievable(error) from error
            except sqlite3.DatabaseError as error:
                raise self._unbelievable(error) from error
            finally:
                if self.path is not None:  # see NOTE [Read anew]
                    self._disconnect()

    def _believed(self, book: sqlite3.Connection) -> ledger_file.Last:
        """The last release, in a book that has all that is known of it. !! sqlite3.DatabaseError"""
        last = ledger_file.last(book)
        # NB: noted is looked at after the book: that is locked now, and nobody charges in between.
        for seen in (self._last, None if self.path is None else mark.noted(self.path)):
            if seen is not None:
                ledger_file.check_has(book, seen)
        return last

    def _leave_to_parent(self) -> None:
        """After a fork: a connection, and a lock that some thread may have held, are the parent's."""
        if self.path is None:
            raise BudgetFileError(
                f"This {self.noun} is in the memory of another process, and a copy of it would be spent twice. Keep it "
                f"in a file: {type(self).__name__}.create(path)."
            )
        # NB: dropped, not closed: closing would release locks of the parent. Kept, so that nothing else closes it.
        _OF_PARENTS.append(self._connection)
        self._process, self._connection, self._lock = os.getpid(), None, threading.RLock()

    def _connected(self, writes: bool) -> sqlite3.Connection:
        if self.path is not None:
            self._check_same_file()
        if self._connection is None:
            self._connection = ledger_file.connect(
                self.path, PATIENCE, was_checked=self._was_checked, writes=writes
            )
            self._was_checked = True
        if self.path is not None:
            self._check_same_file()  # again: now it is open, and cannot become another
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None

    def _check_same_file(self) -> None:
        """A file that was moved away or replaced while it was in use would be charged where nobody looks."""
        try:
            found = os.stat(str(self.path))
        except FileNotFoundError as error:
            raise self._unbelievable(error) from error
        same = (found.st_dev, found.st_ino)
        if self._file is None:
            self._file = same
        elif self._file != same:
            raise self._unbelievable(RuntimeError("the file was replaced while it was open"))

    def _unbelievable(self, error: Exception) -> BudgetFileError:
        return BudgetFileError(
            f"The {self.noun} at {self.path or 'memory'} cannot be read or written ({type(error).__name__}: "
            f"{error}). It is not taken for an empty one: restore it, or have the data owner make a new one."
        )


def journal_path(path: Path) -> Path:
    """Where SQLite keeps the pages that a transaction replaces."""
    return path.with_name(f"{path.name}-journal")
