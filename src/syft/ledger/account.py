"""`Account`: the ledger of one training or one budget.

One duty: entries that each say what was spent *in all*. A training does not know beforehand what a sum will be charged
as: it states the most that it can come to, and afterwards what it was. So the last entry counts, and the ones
before it are the history. Imports `ledger`, `file`, and `identity` for a folder on the disk.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from syft.identity.files import sync_directory
from syft.ledger import file as ledger_file
from syft.ledger.ledger import Ledger

#: The data set and the user of such an entry. NB: as a release, which it is not, it would cost more than any budget has.
_NAME, _MECHANISM, _COST = "(account)", "in all", math.inf

_MAGIC = b"SQLite format 3\0"

#: Plain values, as JSON holds them.
State = dict[str, Any]


class Account(Ledger):
    """What one training or one budget has spent, in a file that threads and processes share."""

    noun, cure = "record of charges", "take up the charges from where they were made"

    @classmethod
    def create(cls, path: str | os.PathLike[str], state: State | None = None) -> Self:
        """A new account, with what was spent before it. !! FileExistsError"""
        target = Path(path).absolute()
        with cls._whole_file(target) as draft:
            ledger_file.create(draft)
            if state is not None:
                cls(draft).change(lambda _: state)
        return cls(target)

    @classmethod
    def open(cls, path: str | os.PathLike[str], read_before: Callable[[bytes], State]) -> Self:
        """Open an account. A file of before, which was JSON, becomes one first.

        read_before   what a file of before says; its errors are the caller's
        """
        place = Path(path).absolute()
        if place.exists() and not _is_ledger(place):
            with _alone_with(place):
                if not _is_ledger(place):
                    cls._replace_file_of_before(place, read_before(place.read_bytes()))
        return cls(place)

    @classmethod
    def _replace_file_of_before(cls, place: Path, state: State) -> None:
        with tempfile.TemporaryDirectory(prefix=".ledger", dir=place.parent) as folder:
            new = Path(folder) / place.name
            cls.create(new, state)
            os.replace(new, place)
            sync_directory(place.parent)

    def state(self) -> tuple[State | None, ledger_file.Last]:
        """What stands there, and at which entry; None if nothing was stated yet."""
        with self._transaction(writes=False) as book:
            return _last_state(book)

    def change(
        self, change: Callable[[State | None], State], after: ledger_file.Last | None = None
    ) -> ledger_file.Last | None:
        """Replace the state by `change(state)`, which may refuse by an error. Durable when it returns the new entry.

        after   the entry that has to be the last; if it is not, nothing changes, and None is returned
        """
        with self._transaction() as book:
            before, last = _last_state(book)
            if after is not None and last != after:
                return None
            state = change(before)
            if state == before:
                return last
            text = json.dumps(state, sort_keys=True)
            ledger_file.append(book, (time.time(), _NAME, _NAME, _MECHANISM, _COST, 0.0, text, 1))
            return ledger_file.last(book)


def _is_ledger(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextlib.contextmanager
def _alone_with(path: Path) -> Iterator[None]:
    """Inside, no other process replaces this very file, where files can be locked. It may have been replaced before."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _last_state(book: sqlite3.Connection) -> tuple[State | None, ledger_file.Last]:
    last = ledger_file.last(book)
    if not last[0]:
        return None, last
    name, mechanism, text = book.execute(
        "SELECT dataset, mechanism, event FROM releases WHERE number = ?", (last[0],)
    ).fetchone()
    if (name, mechanism) != (_NAME, _MECHANISM):
        raise sqlite3.DatabaseError("it is a book of budgets, not a record of charges")
    state: State = json.loads(text)
    return state, last
