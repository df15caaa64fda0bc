"""The file of a ledger: one data base of SQLite that is whole, or an error.

One duty: tables, how they are opened, and that nothing of them is missing. Imports nothing of syft. In here a file is
called a book, and an entry of it a release, as its tables are.

NOTE [One file]
There is no write-ahead log. With one, the last charges stand in a second file, and the book without it is an older book
that nothing is wrong with. Here a charge is in the file itself, and file and folder are on the disk, when its transaction
ends (journal_mode=DELETE, synchronous=EXTRA). While one is written, the pages it replaces are in `NAME-journal`; one
that dies in between leaves that behind, and whoever opens the book next puts them back. Without it the file may be the
old book, the new one, or pages of both, which NOTE [Seals]
Every release has a seal, a digest of itself and of the seal before it. `about` has the number and the seal of the last,
and a digest of limits and data sets. When a book is opened, SQLite checks its pages, and every seal is computed anew. In
every transaction the last release is looked at again, and releases that are known to have been there (`check_has`): a
file that an older copy was written over lacks them. A seal is no signature: who can write the file can seal it. And an
older copy whose later releases nobody knows of is a book like any other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Any

FORMAT = 2

_TABLES = """
CREATE TABLE about (format INTEGER NOT NULL, last INTEGER NOT NULL, seal TEXT NOT NULL, limits TEXT NOT NULL);
CREATE TABLE datasets (name TEXT PRIMARY KEY, records_per_person INTEGER NOT NULL);
CREATE TABLE limits (
    dataset TEXT NOT NULL, scope TEXT NOT NULL, user TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
    PRIMARY KEY (dataset, scope, user));
CREATE TABLE releases (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, dataset TEXT NOT NULL, user TEXT NOT NULL,
    mechanism TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, event TEXT NOT NULL, count INTEGER NOT NULL,
    seal TEXT NOT NULL);
CREATE INDEX releases_of ON releases (dataset, user);
"""

#: From format 1, which had a write-ahead log and no seals.
_FROM_FORMAT_1 = """
ALTER TABLE about ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
ALTER TABLE about ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE about ADD COLUMN limits TEXT NOT NULL DEFAULT '';
ALTER TABLE releases ADD COLUMN seal TEXT NOT NULL DEFAULT '';
"""

_COLUMNS = "number, time, dataset, user, mechanism, epsilon, delta, event, count"

#: The number and the seal of a release.
Last = tuple[int, str]


# -- opening -----------------------------------------------------------------------------------------------


def connect(
    path: Path | None, patience: float, *, was_checked: bool = False, writes: bool = True
) -> sqlite3.Connection:
    """A connection to a book that was found whole; to a new one in memory without a path. !! sqlite3.DatabaseError

    was_checked   it was found whole before
    writes        it is for more than reading
    """
    until = time.monotonic() + patience
    while True:
        where = ":memory:" if path is None else f"{path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            where, uri=path is not None, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            if path is None:
                make_tables(connection)
            elif not was_checked:
                _prepare(connection)
            elif writes:  # NB: it takes locks, for which a reader would wait in vain
                _be_durable(connection)
            return connection
        except sqlite3.DatabaseError as error:
            connection.close()
            # A log can be left only by the one connection there is. Two that want to, both step back.
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01 + secrets.randbelow(40) / 1000)


def create(path: Path) -> None:
    """Tables in a new file, on the disk."""
    with contextlib.suppress(OSError):  # sqlite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # for its owner alone, from the beginning
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _be_durable(connection)
        connection.execute("BEGIN IMMEDIATE")
        make_tables(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()


def make_tables(book: sqlite3.Connection) -> None:
    _run(book, _TABLES)
    book.execute("INSERT INTO about VALUES (?, 0, '', '')", (FORMAT,))
    seal_limits(book)


def _be_durable(connection: sqlite3.Connection) -> None:
    """See NOTE [One file]."""
    connection.execute("PRAGMA synchronous=EXTRA")
    (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    if mode != "delete":
        raise sqlite3.OperationalError(f"it is locked in the journal mode {mode!r}")


def _prepare(connection: sqlite3.Connection) -> None:
    """Durable, of this format, and whole."""
    if connection.execute("SELECT format FROM about").fetchall() == [(1,)]:
        _be_durable(connection)
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT format FROM about").fetchall() == [(1,)]:  # nobody was faster
            _run(connection, _FROM_FORMAT_1)
            _seal_all(connection)
        connection.execute("COMMIT")
    formats = connection.execute("SELECT format FROM about").fetchall()
    if formats != [(FORMAT,)]:
        raise sqlite3.DatabaseError(f"its format is {formats!r}, not {FORMAT}")
    _be_durable(connection)
    connection.execute("BEGIN")
    try:
        _check_whole(connection)
    finally:
        connection.execute("ROLLBACK")


def _run(book: sqlite3.Connection, statements: str) -> None:
    # NB: not executescript, which would end the transaction.
    for statement in statements.split(";"):
        if statement.strip():
            book.execute(statement)


# -- seals -------------------------------------------------------------------------------------------------


def append(book: sqlite3.Connection, release: tuple[Any, ...]) -> None:
    """Write a release down: what stands in `_COLUMNS`, without the number."""
    number, seal = last(book)
    row = (number + 1, *release)
    seal = _seal(seal, row)
    book.execute(
        f"INSERT INTO releases ({_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, seal)
    )
    book.execute("UPDATE about SET last = ?, seal = ?", (number + 1, seal))


def seal_limits(book: sqlite3.Connection) -> None:
    """After limits or data sets were changed."""
    book.execute("UPDATE about SET limits = ?", (_limits_seal(book),))


def last(book: sqlite3.Connection) -> Last:
    """The last release. !! sqlite3.DatabaseError if it is not there"""
    ((number, seal),) = book.execute("SELECT last, seal FROM about").fetchall()
    ((newest,),) = book.execute("SELECT MAX(number) FROM releases").fetchall()
    if (newest or 0) != number or _seal_of(book, number) != seal:
        raise sqlite3.DatabaseError(f"release number {number} is the last, and is not what stands there")
    return number, seal


def check_has(book: sqlite3.Connection, seen: Last) -> None:
    """!! sqlite3.DatabaseError if a release that was in the book is not any more"""
    if _seal_of(book, seen[0]) != seen[1]:
        raise sqlite3.DatabaseError(
            f"release number {seen[0]}, charged before, is not in it any more: an older book was put in its place. To go "
            "on with that one, and give out again what was charged since, copy it to a new file"
        )


def _seal_of(book: sqlite3.Connection, number: int) -> str:
    found = book.execute("SELECT seal FROM releases WHERE number = ?", (number,)).fetchone()
    return str(found[0]) if found else ""


def _seal(before: str, row: tuple[Any, ...]) -> str:
    return hashlib.blake2b(json.dumps([before, *row]).encode(), digest_size=16).hexdigest()


def _limits_seal(book: sqlite3.Connection) -> str:
    tables = [
        book.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()
        for table, order in (("datasets", "name"), ("limits", "dataset, scope, user"))
    ]
    return hashlib.blake2b(json.dumps(tables).encode(), digest_size=16).hexdigest()


def _seal_all(book: sqlite3.Connection) -> None:
    """Of a book that has no seals yet."""
    number, seal = 0, ""
    for row in book.execute(f"SELECT {_COLUMNS} FROM releases ORDER BY number").fetchall():
        number, seal = row[0], _seal(seal, row)
        book.execute("UPDATE releases SET seal = ? WHERE number = ?", (seal, number))
    book.execute("UPDATE about SET format = ?, last = ?, seal = ?", (FORMAT, number, seal))
    seal_limits(book)


def _check_whole(book: sqlite3.Connection) -> None:
    """!! sqlite3.DatabaseError: see NOTE [Seals]"""
    ((verdict,),) = book.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"its pages do not belong together: {verdict[:200]}")
    seal = ""
    for *row, found in book.execute(f"SELECT {_COLUMNS}, seal FROM releases ORDER BY number"):
        seal = _seal(seal, tuple(row))
        if found != seal:
            raise sqlite3.DatabaseError(
                f"release number {row[0]} is not what was written down, or one is missing"
            )
    last(book)
    if book.execute("SELECT limits FROM about").fetchall() != [(_limits_seal(book),)]:
        raise sqlite3.DatabaseError("its limits are not those that were set")
