"""The queue of requests at a worker: who asks for what, and what its owner decided. A file that processes share.

One duty: to keep requests, durably, and to count how often an approval was used. The worker files and uses them, the
owner's commands decide; each is one transaction of SQLite that takes the write lock first and is on the disk when it
returns, so that a decision holds from the next question on, and an approval for one time is used once, whoever races.

NOTE [Everything is an event]
Whatever happens to a request is written down in the same transaction, as an event. The worker copies events to its audit
log, and notes how far it came. What the owner decides while the worker does not run stands in the log when it does.

NOTE [Against floods]
A user has a few open requests at a time and a few more in an hour, and all users together have a bound, too. A value
that is asked for waits here as bytes: they are counted before they are copied. Those without a name are one user.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from syft.core.structs import prepared
from syft.exceptions import RequestFileError, RequestNotFoundError, RequestNotPermittedError
from syft.identity.files import sync_directory
from syft.identity.names import ANONYMOUS
from syft.requests.records import (
    APPROVED_SECONDS,
    MOST_REASON,
    MOST_USES,
    WAITS_SECONDS,
    Ask,
    Event,
    Kind,
    Request,
    check_ask,
)

MOST_OPEN_PER_USER = 20
MOST_OPEN = 1_000
MOST_PER_HOUR = 100
MOST_VALUE = 16 << 20
MOST_VALUES_PER_USER = 64 << 20
MOST_VALUES = 1 << 30
#: Requests that are over, of which the newest are kept.
MOST_KEPT = 10_000

_LONGEST = 366 * 86_400.0
_PATIENCE = 30.0
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_APPLICATION = 0x53794671  # in the header of the file: no other database is taken for a queue
_TABLES = f"""
PRAGMA application_id = {_APPLICATION};
CREATE TABLE requests (
    id TEXT PRIMARY KEY, time REAL NOT NULL, user TEXT NOT NULL, payer TEXT NOT NULL, peer TEXT NOT NULL,
    kind TEXT NOT NULL, binding TEXT NOT NULL, ask BLOB NOT NULL, value BLOB, status TEXT NOT NULL,
    uses_left INTEGER NOT NULL, expires REAL NOT NULL, decided REAL, reply TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX by_binding ON requests (user, kind, binding, status);
CREATE INDEX by_status ON requests (status, expires);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, request TEXT NOT NULL, user TEXT NOT NULL,
    peer TEXT NOT NULL, action TEXT NOT NULL, granted INTEGER NOT NULL, text TEXT NOT NULL
);
CREATE TABLE audited (number INTEGER NOT NULL);
INSERT INTO audited VALUES (0);
"""
_COLUMNS = "id, time, user, peer, ask, status, uses_left, expires, decided, reply, COALESCE(LENGTH(value), 0)"


def new_request_id() -> str:
    """Short enough to be typed; it tells nobody how many others there are."""
    return "".join(secrets.choice(_LETTERS) for _ in range(8))


class RequestBook:
    """Requests in a file, which is made if there is none; in memory without a path, and gone with the process."""

    def __init__(
        self, path: str | os.PathLike[str] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._clock = clock
        self._lock = threading.RLock()
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            self._memory.executescript(_TABLES)
        elif not self.path.exists():
            self._create(self.path)
        with self._transaction():
            pass

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RequestBook:
        """An existing one, for the owner's commands. !! FileNotFoundError"""
        if not Path(path).exists():
            raise FileNotFoundError(
                f"There is no queue of requests at {path}. A worker makes it: `syft worker --requests {path}`. Name it "
                "with --queue if it is elsewhere."
            )
        return cls(path)

    @staticmethod
    def _create(path: Path) -> None:
        """NB: under another name until it is whole, so that a crash leaves none or all of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            made = sqlite3.connect(draft, isolation_level=None)
            try:
                made.executescript("PRAGMA synchronous=FULL;" + _TABLES)
            finally:
                made.close()
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
            sync_directory(path.parent)
        finally:
            draft.unlink()

    # -- those who ask -----------------------------------------------------------------------------

    def check_room(self, user: str, nbytes: int = 0) -> None:
        """!! RequestNotPermittedError if a user may not ask for a value of so many bytes now, before it is copied"""
        with self._transaction() as book:
            self._check_room(book, user, nbytes)

    def file(self, user: str, peer: str, ask: Ask, value: bytes | None = None) -> Request:
        """Put a request into the queue. !! RequestNotPermittedError"""
        check_ask(ask)
        now = self._clock()
        with self._transaction() as book:
            known = book.execute(
                "SELECT id FROM requests WHERE user = ? AND kind = ? AND binding = ? AND status IN "
                "('waiting', 'approved')",
                (user, ask.kind, ask.binding),
            ).fetchone()
            if known is not None:
                raise RequestNotPermittedError(
                    f"You have asked for this before: request {known[0]!r} is in the queue. Wait for it: "
                    f"worker.request({known[0]!r}).wait()."
                )
            self._check_room(book, user, 0 if value is None else len(value))
            request_id = new_request_id()
            book.execute(
                "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, NULL, '')",
                (
                    request_id,
                    now,
                    user,
                    _payer(user),
                    peer,
                    ask.kind,
                    ask.binding,
                    msgspec.json.encode(ask),
                    value,
                    ask.uses,
                    now + WAITS_SECONDS,
                ),
            )
            self._note(book, request_id, user, peer, "request", True, f"{ask.kind}: {ask.what}: {ask.reason}")
            self._drop_old(book)
            return self._one(book, request_id)

    def _check_room(self, book: sqlite3.Connection, user: str, nbytes: int) -> None:
        payer = _payer(user)
        if nbytes > MOST_VALUE:
            raise RequestNotPermittedError(
                f"The value has {nbytes} bytes, and {MOST_VALUE} at most can be asked for. Ask for less: an average, "
                "some of the rows, a smaller type."
            )
        own, own_bytes = book.execute(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(value)), 0) FROM requests WHERE payer = ? AND status IN "
            "('waiting', 'approved')",
            (payer,),
        ).fetchone()
        if own >= MOST_OPEN_PER_USER or own_bytes + nbytes > MOST_VALUES_PER_USER:
            raise RequestNotPermittedError(
                f"You have {own} open requests with {own_bytes} bytes of values, and may have {MOST_OPEN_PER_USER} with "
                f"{MOST_VALUES_PER_USER}. Fetch what was approved, or withdraw a request: request.withdraw()."
            )
        (lately,) = book.execute(
            "SELECT COUNT(*) FROM requests WHERE payer = ? AND time > ?", (payer, self._clock() - 3_600)
        ).fetchone()
        if lately >= MOST_PER_HOUR:
            raise RequestNotPermittedError(
                f"You have asked for {lately} things within an hour; more are not taken. Try again later."
            )
        everybody, all_bytes = book.execute(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(value)), 0) FROM requests WHERE status IN ('waiting', 'approved')"
        ).fetchone()
        if everybody >= MOST_OPEN or all_bytes + nbytes > MOST_VALUES:
            raise RequestNotPermittedError("The queue of this worker is full. Try again later.")

    def of(self, user: str, request_id: str) -> Request:
        """A request of a user's. !! RequestNotFoundError, also for another's"""
        with self._transaction() as book:
            return self._own(book, user, request_id)

    def all_of(self, user: str) -> list[Request]:
        """The requests of a user, newest first."""
        with self._transaction() as book:
            return _read(
                book.execute(
                    f"SELECT {_COLUMNS} FROM requests WHERE user = ? ORDER BY time DESC LIMIT 1000", (user,)
                )
            )

    def withdraw(self, user: str, request_id: str) -> Request:
        """A user does not want it any more."""
        with self._transaction() as book:
            found = self._own(book, user, request_id)
            if found.is_open:
                self._end(book, found, "withdrawn", "")
                self._note(book, found.id, user, found.peer, "withdraw request", True, found.ask.what)
            return self._one(book, request_id)

    # -- using an approval -------------------------------------------------------------------------

    def has_approved(self, user: str, kind: Kind) -> bool:
        """Whether a user has an approval of this kind at all."""
        with self._transaction(writes=False) as book:
            wanted = "SELECT 1 FROM requests WHERE user = ? AND kind = ? AND status = 'approved' LIMIT 1"
            return book.execute(wanted, (user, kind)).fetchone() is not None

    def use(self, user: str, kind: Kind, binding: str, peer: str = "") -> Request | None:
        """Use the approval that covers exactly this, once. None: none does."""
        with self._transaction() as book:
            row = book.execute(
                f"SELECT {_COLUMNS} FROM requests WHERE user = ? AND kind = ? AND binding = ? AND status = 'approved' "
                "ORDER BY expires LIMIT 1",
                (user, kind, binding),
            ).fetchone()
            return None if row is None else self._count(book, _request(row), peer)

    def take(self, user: str, request_id: str, peer: str = "") -> tuple[Request, bytes] | None:
        """Use the approval of a value that waits, once, and have it. None: there is none.

        NB: by the id of a request nothing else is had: what is done is compared with what was approved (`use`).
        """
        with self._transaction() as book:
            row = book.execute(
                f"SELECT value, {_COLUMNS} FROM requests WHERE user = ? AND kind = 'get' AND id = ? AND "
                "status = 'approved' AND value IS NOT NULL",
                (user, request_id),
            ).fetchone()
            return None if row is None else (self._count(book, _request(row[1:]), peer), bytes(row[0]))

    def _count(self, book: sqlite3.Connection, found: Request, peer: str) -> Request:
        left = found.uses_left - 1
        book.execute("UPDATE requests SET uses_left = ? WHERE id = ?", (left, found.id))
        self._note(
            book, found.id, found.user, peer, "use approval", True, f"{found.ask.what}; {left} times left"
        )
        if left <= 0:
            self._end(book, found, "used", found.reply)
        return self._one(book, found.id)

    # -- the owner ---------------------------------------------------------------------------------

    def all(self, open_only: bool = False, limit: int = 1_000) -> list[Request]:
        """Everybody's requests, newest first."""
        where = "WHERE status IN ('waiting', 'approved')" if open_only else ""
        with self._transaction() as book:
            return _read(
                book.execute(f"SELECT {_COLUMNS} FROM requests {where} ORDER BY time DESC LIMIT ?", (limit,))
            )

    def get(self, request_id: str) -> Request:
        """!! RequestNotFoundError"""
        with self._transaction() as book:
            return self._one(book, request_id)

    def value_of(self, request_id: str) -> bytes | None:
        """The bytes that would be handed out, while the request is open."""
        with self._transaction() as book:
            self._one(book, request_id)
            (value,) = book.execute("SELECT value FROM requests WHERE id = ?", (request_id,)).fetchone()
            return None if value is None else bytes(value)

    def approve(self, request_id: str, times: int | None = None, seconds: float | None = None) -> Request:
        """Say yes: for so many uses (as many as were asked for), within so many seconds (7 days)."""
        if times is not None and (not isinstance(times, int) or not 1 <= times <= MOST_USES):
            raise ValueError(f"An approval is for 1 to {MOST_USES} times; got {times!r}.")
        if seconds is not None and not 0 < seconds <= _LONGEST:
            raise ValueError(
                f"An approval holds for more than 0 seconds and for a year at most; got {seconds!r}."
            )
        with self._transaction() as book:
            found = self._waiting(book, request_id, "approved")
            now, uses = self._clock(), found.ask.uses if times is None else times
            until = now + (APPROVED_SECONDS if seconds is None else seconds)
            book.execute(
                "UPDATE requests SET status = 'approved', uses_left = ?, expires = ?, decided = ? WHERE id = ?",
                (uses, until, now, request_id),
            )
            text = f"{found.ask.kind}: {found.ask.what}; {uses} times, for {until - now:.0f} s"
            self._note(book, request_id, found.user, "", "approve", True, text)
            return self._one(book, request_id)

    def deny(self, request_id: str, reason: str = "") -> Request:
        """Say no, or take an approval back; `reason` is told to the one who asked."""
        if not isinstance(reason, str) or len(reason) > MOST_REASON:
            raise ValueError(f"The reason of a refusal is a text of {MOST_REASON} characters at most.")
        with self._transaction() as book:
            found = self._one(book, request_id)
            if found.status != "approved":
                found = self._waiting(book, request_id, "denied")
            self._end(book, found, "denied", reason)
            self._note(book, request_id, found.user, "", "deny", False, f"{found.ask.what}: {reason}")
            return self._one(book, request_id)

    # -- events ------------------------------------------------------------------------------------

    def copy_events(self, write: Callable[[Event], None]) -> int:
        """Hand every event that was not handed over before to `write`, in order. NOTE [Everything is an event]"""
        with self._lock:
            with self._transaction(writes=False) as book:
                rows = book.execute(
                    "SELECT * FROM events WHERE number > (SELECT number FROM audited) ORDER BY number LIMIT 1000"
                ).fetchall()
            for row in rows:
                number, when, request, user, peer, action, granted, text = row
                write(Event(number, when, request, user, peer, action, bool(granted), text))
            if rows:
                with self._transaction() as book:
                    book.execute("UPDATE audited SET number = MAX(number, ?)", (rows[-1][0],))
                    book.execute("DELETE FROM events WHERE number <= (SELECT number FROM audited)")
            return len(rows)

    # -- inside a transaction ----------------------------------------------------------------------

    def _one(self, book: sqlite3.Connection, request_id: str) -> Request:
        row = book.execute(f"SELECT {_COLUMNS} FROM requests WHERE id = ?", (str(request_id),)).fetchone()
        if row is None:
            raise RequestNotFoundError(
                f"There is no request {str(request_id)[:60]!r}. `syft requests` (worker.requests) lists those there are."
            )
        return _request(row)

    def _own(self, book: sqlite3.Connection, user: str, request_id: str) -> Request:
        row = book.execute(
            f"SELECT {_COLUMNS} FROM requests WHERE id = ? AND user = ?", (str(request_id), user)
        ).fetchone()
        if row is None:
            raise RequestNotFoundError(
                f"You have no request {str(request_id)[:60]!r} at this worker. worker.requests lists yours; ask for "
                "something with pointer.request(reason=...)."
            )
        return _request(row)

    def _waiting(self, book: sqlite3.Connection, request_id: str, wanted: str) -> Request:
        found = self._one(book, request_id)
        if found.status != "waiting":
            raise ValueError(
                f"Request {request_id!r} is {found.status} and cannot be {wanted}. {found.user!r} can ask again."
            )
        return found

    def _end(self, book: sqlite3.Connection, request: Request, status: str, reply: str) -> None:
        """NB: the value goes at once."""
        book.execute(
            "UPDATE requests SET status = ?, reply = ?, decided = COALESCE(decided, ?), value = NULL WHERE id = ?",
            (status, reply, self._clock(), request.id),
        )

    def _note(
        self,
        book: sqlite3.Connection,
        request_id: str,
        user: str,
        peer: str,
        action: str,
        granted: bool,
        text: str,
    ) -> None:
        book.execute(
            "INSERT INTO events (time, request, user, peer, action, granted, text) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self._clock(), request_id, user, peer, action, int(granted), text[:400]),
        )

    def _drop_old(self, book: sqlite3.Connection) -> None:
        book.execute(
            "DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE status NOT IN ('waiting', 'approved') "
            "ORDER BY time DESC LIMIT -1 OFFSET ?)",
            (MOST_KEPT,),
        )

    def _expire(self, book: sqlite3.Connection) -> None:
        rows = book.execute(
            f"SELECT {_COLUMNS} FROM requests WHERE status IN ('waiting', 'approved') AND expires <= ?",
            (self._clock(),),
        ).fetchall()
        for found in _read(rows):
            self._end(book, found, "expired", found.reply)
            text = f"{found.ask.what}: {'nobody answered' if found.status == 'waiting' else 'the approval is over'}"
            self._note(book, found.id, found.user, "", "expire", False, text)

    @contextlib.contextmanager
    def _transaction(self, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it on the disk at the end, or nothing of it. What is over is found to be over."""
        with self._lock:
            try:
                book = self._memory or self._connected()
                try:
                    book.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                    if writes:
                        self._expire(book)
                    yield book
                    book.execute("COMMIT")
                finally:
                    if book.in_transaction:
                        book.execute("ROLLBACK")
                    if book is not self._memory:
                        book.close()
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise TimeoutError(
                        f"Other processes kept the queue of requests at {self.path} busy for {_PATIENCE:g} s. Try again."
                    ) from error
                raise self._unreadable(error) from error
            except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
                raise self._unreadable(error) from error

    def _connected(self) -> sqlite3.Connection:
        """NB: for one transaction: a forked process has none of its parent's, and another file is noticed."""
        path = self.path
        if path is None or not path.exists():
            raise RequestFileError(
                f"The queue of requests at {path} is gone. Restart the worker for a new one."
            )
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        book = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        (found,) = book.execute("PRAGMA application_id").fetchone()
        if found != _APPLICATION:
            book.close()
            raise sqlite3.DatabaseError("it is no queue of requests")
        book.execute("PRAGMA synchronous=FULL")
        book.execute("PRAGMA secure_delete=ON")
        return book

    def _unreadable(self, error: Exception) -> RequestFileError:
        return RequestFileError(
            f"The queue of requests at {self.path} cannot be read: {error}. Put it aside; the worker makes a new one, "
            "and users ask again."
        )

    def __repr__(self) -> str:
        return f"<RequestBook {'in memory only' if self.path is None else self.path}>"


def _payer(user: str) -> str:
    """Those without a name are new ones each time: all of them have the room of one."""
    return ANONYMOUS if user.startswith(ANONYMOUS) else user


def _request(row: Any) -> Request:
    request_id, began, user, peer, ask, status, uses, expires, decided, reply, nbytes = row
    return Request(
        request_id,
        began,
        user,
        peer,
        msgspec.json.decode(ask, type=prepared(Ask)),
        status,
        uses,
        expires,
        decided,
        reply,
        nbytes,
    )


def _read(rows: Any) -> list[Request]:
    return [_request(row) for row in rows]
