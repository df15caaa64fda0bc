"""A book of budgets that is open: transactions that threads and processes share, on the file that it was.

One duty: whoever opens, races, forks or writes over the file, a transaction sees the book as it is, or is an error. What
stands in the file is `book_file`'s. Imports that, `book_mark`, `exceptions`, and `identity` for a folder on the disk.

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
from typing import Any

from syft.dp import book_file, book_mark
from syft.exceptions import BudgetFileError
from syft.identity.files import sync_directory

#: How long a process waits for the others, in seconds.
PATIENCE = 120.0

#: Connections of the parent that a forked process must not use, nor close.
_OF_PARENTS: list[Any] = []


class OpenBook:
    """A book in a file; in memory without a path, and gone with the process."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file: tuple[int, int] | None = None
        self._was_checked = False
        """Whether this process has found the file to be a whole book."""
        self._last: book_file.Last | None = None
        """The last release that this process has seen in the book."""
        if self.path is not None and not self.path.exists():
            raise FileNotFoundError(
                f"There is no book of budgets at {self.path}. A missing one is not taken for an empty one: restore it, "
                "or make a new one with BudgetBook.create(path), or `syft budget create`."
            )
        self._connection: sqlite3.Connection | None = None
        with self._transaction(writes=False):
            pass

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """A copy of the book as it is now, also while others charge; nothing is overwritten.

        What is charged after it is not in the copy: whoever opens it gives that out a second time.
        """
        with whole_file(Path(path).absolute()) as draft, self._transaction(writes=False) as book:
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
                    last = book_file.last(book) if writes else before
                    book.execute("COMMIT")
                finally:
                    if book.in_transaction:
                        book.execute("ROLLBACK")
                self._last = last
                if self.path is not None and last != before:
                    book_mark.note(self.path, last)
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise TimeoutError(
                        f"Other processes kept the book of budgets at {self.path} busy for {PATIENCE:g} s. Nothing was "
                        "charged by this one; try again."
                    ) from error
                raise self._unbelievable(error) from error
            except sqlite3.DatabaseError as error:
                raise self._unbelievable(error) from error
            finally:
                if self.path is not None:  # see NOTE [Read anew]
                    self._disconnect()

    def _believed(self, book: sqlite3.Connection) -> book_file.Last:
        """The last release, in a book that has all that is known of it. !! sqlite3.DatabaseError"""
        last = book_file.last(book)
        # NB: noted is looked at after the book: that is locked now, and nobody charges in between.
        for seen in (self._last, None if self.path is None else book_mark.noted(self.path)):
            if seen is not None:
                book_file.check_has(book, seen)
        return last

    def _leave_to_parent(self) -> None:
        """After a fork: a connection, and a lock that some thread may have held, are the parent's."""
        if self.path is None:
            raise BudgetFileError(
                "This book of budgets is in the memory of another process, and a copy of it would be spent twice. "
                "Keep it in a file: BudgetBook.create(path)."
            )
        # NB: dropped, not closed: closing would release locks of the parent. Kept, so that nothing else closes it.
        _OF_PARENTS.append(self._connection)
        self._process, self._connection, self._lock = os.getpid(), None, threading.RLock()

    def _connected(self, writes: bool) -> sqlite3.Connection:
        if self.path is not None:
            self._check_same_file()
        if self._connection is None:
            self._connection = book_file.connect(
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
            f"The book of budgets at {self.path or 'memory'} cannot be read or written ({type(error).__name__}: "
            f"{error}). It is not taken for an empty one: restore it, or have the data owner make a new one."
        )


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A name to write a new book under. It appears at `target` when it is whole. !! FileExistsError"""
    draft = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        yield draft
        os.link(draft, target)
        sync_directory(target.parent)
    except FileExistsError:
        raise FileExistsError(
            f"There is a book of budgets at {target} already: open it with BudgetBook(path)."
        ) from None
    except sqlite3.OperationalError as error:
        raise OSError(f"No book of budgets can be written at {target} ({error}).") from error
    finally:
        for leftover in (draft, draft.with_name(f"{draft.name}-journal")):
            leftover.unlink(missing_ok=True)
