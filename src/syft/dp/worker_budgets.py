"""The book of a data owner: who may spend how much on which data set, and every release that was paid for.

One duty: to charge, durably, before anything leaves. Imports `accounting`, `exceptions`, and a name of `workers`.

NOTE [Charged before it leaves]
A charge is one transaction of SQLite that takes the write lock first (BEGIN IMMEDIATE), reads what was spent,
decides, writes, and is on the disk when it returns (write-ahead log, synchronous=FULL). Threads and processes
that race are served one after the other. Nothing here refunds: what happens after the charge, a crash
too, does not take it back, because nobody can tell whether the answer was seen.

NOTE [Either bound]
What releases cost together has two bounds: their epsilons and deltas added up, and their Rényi divergences of one order
added up. A state of the book is allowed if either fits. Users choose what to ask next, and what it shall cost, by
what they were told, so the bounds have to hold for that. They do, if the order and what each bound may use of delta are
fixed beforehand, here by the limit alone (a budget without a delta only ever adds up). With e, d the limit and a the
order:

    sum          the deltas of all releases are at most d/2, their epsilons at most e
    divergence   the deltas of opaque releases are at most d/4; their epsilons, the divergences of the others, and
                 log(4 c / d) / (a - 1) are at most e, where c = (1 - 1/a)^(a - 1) / a

Proof. A release that is (e_i, d_i)-DP, given what came before, is with probability 1 - d_i one whose privacy loss is
at most e_i (Kairouz, Oh and Viswanath 2015): let a coin decide. Coins of all releases up to where their deltas exceed
d/2 fall the wrong way with probability d/2 at most, those of opaque releases up to d/4 with d/4 at most (the
expectation of a sum of conditional probabilities that is bounded on every path). Else, if the book ends with the
sum, the loss L is at most e. If it ends with the divergence, the loss of the opaque ones is at most their epsilons,
and of the others M = exp((a - 1) (loss - divergence)) is a supermartingale from 1. The second condition makes
c exp((a - 1) (L - e)) at most M d/4, and 1 - exp(-y) is at most c exp((a - 1) y) for every y (Canonne, Kamath and
Steinke 2020, proposition 12), so the mean of 1 - exp(e - L), where it is above 0, is at most d/4. What one data set makes
likelier than e^e times the other is the mean of that and the probability of wrong coins: d at most in all. (Feldman
and Zrnic 2021 call the part with divergences a Rényi filter.)

The order is the one at which Gaussian noise that just uses up the limit may be least.

NOTE [Those without a name]
A worker on a network that asks for no proof gives every connection a new name. Charged by it, a budget would be one
per connection. All of them are one user of the book, `NAMELESS`, a name that nobody can prove.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from syft.dp.accounting import Event, Gaussian, Pure, _sync_folder
from syft.exceptions import BudgetExceededError, BudgetFileError, ReleaseNotPermittedError
from syft.workers.network.handshake import ANONYMOUS

FORMAT = 1

#: The user that all without a name are: see NOTE [Those without a name].
NAMELESS = ANONYMOUS

#: How long a process waits for the others, in seconds.
PATIENCE = 120.0

_TABLES = """
CREATE TABLE about (format INTEGER NOT NULL);
CREATE TABLE datasets (name TEXT PRIMARY KEY, records_per_person INTEGER NOT NULL);
CREATE TABLE limits (
    dataset TEXT NOT NULL, scope TEXT NOT NULL, user TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
    PRIMARY KEY (dataset, scope, user));
CREATE TABLE releases (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, dataset TEXT NOT NULL, user TEXT NOT NULL,
    mechanism TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, event TEXT NOT NULL, count INTEGER NOT NULL);
CREATE INDEX releases_of ON releases (dataset, user);
"""

#: Scopes of a limit: one user, every user without one of their own, all users together.
_OWN, _EACH, _TOGETHER = "own", "each", "together"

#: Connections of the parent that a forked process must not use, nor close.
_OF_PARENTS: list[Any] = []


# -- records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Charge:
    """What one release costs: `count` times the event, of which each is (epsilon, delta)-DP by itself.

    Without an event nothing more is known of it, and it can only be added.
    """

    mechanism: str
    event: Event | None
    epsilon: float
    delta: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Limit:
    """An epsilon at a delta."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name, value, most in (("epsilon", self.epsilon, math.inf), ("delta", self.delta, 1.0)):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            least = name == "epsilon"
            if not (number and math.isfinite(value) and 0 <= value < most) or (least and value == 0):
                raise ValueError(
                    f"A budget's {name} is a finite number {'above 0' if least else 'from 0, below 1'}, got {value!r}."
                )


@dataclass(frozen=True)
class PastRelease:
    """One line of the book."""

    time: float
    mechanism: str
    epsilon: float
    delta: float
    count: int


@dataclass(frozen=True)
class BudgetState:
    """What a user has spent on a data set. `together` is of all users, where the owner set such a limit."""

    dataset: str
    user: str
    epsilon: float
    delta: float
    spent: float
    left: float
    releases: tuple[PastRelease, ...]
    together_epsilon: float | None = None
    together_left: float | None = None


# -- composition -------------------------------------------------------------------------------------------


def spent_epsilon(charges: Iterable[Charge], limit: Limit) -> float:
    """The epsilon that all these cost together at the delta of the limit: see NOTE [Either bound]."""
    listed = list(charges)
    if limit.delta < _LEAST_DELTA or not listed:
        return _added_up(listed, limit.delta)
    return min(_added_up(listed, limit.delta / 2), _diverged(listed, limit))


def _added_up(charges: list[Charge], delta: float) -> float:
    """The sum of the epsilons, if the sum of the deltas is within `delta`."""
    deltas = math.fsum(c.delta * c.count for c in charges)
    return math.fsum(c.epsilon * c.count for c in charges) if deltas <= delta else math.inf


def _diverged(charges: list[Charge], limit: Limit) -> float:
    """The sum of the divergences, as an epsilon."""
    order = _order(limit)
    opaque = [charge for charge in charges if charge.event is None]
    divergences = (_divergence(c.event, order) * c.count for c in charges if c.event is not None)
    total = math.fsum(divergences) + _conversion(order, limit.delta / 4)
    return _added_up(opaque, limit.delta / 4) + max(0.0, total)


#: Below it, a part of a delta may be no number any more.
_LEAST_DELTA = 1e-300
#: From little above 1 to what an epsilon of a millionth needs.
_ORDERS = tuple(1 + 10 ** (step / 32) for step in range(-64, 32 * 8))


@lru_cache(maxsize=1024)
def _order(limit: Limit) -> float:
    """The order that is best for many releases with Gaussian noise; it depends on the limit alone."""
    return max(_ORDERS, key=lambda order: (limit.epsilon - _conversion(order, limit.delta / 4)) / order)


def _conversion(order: float, delta: float) -> float:
    """What is added to a divergence to make it an epsilon: see NOTE [Either bound]."""
    return math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def _divergence(event: Event, order: float) -> float:
    """The Rényi divergence of an order."""
    if isinstance(event, Gaussian):
        return order / (2 * event.noise_multiplier**2)
    if event.epsilon < 1e-4:  # where the difference below would be all rounding
        return order * event.epsilon**2 / 2
    # That of randomised response, the worst there is (Bun and Steinke 2016, proposition 3.3 and its proof).
    most, least = (order - 1) * event.epsilon, -order * event.epsilon
    return (most + math.log1p(math.exp(least - most)) - math.log1p(math.exp(-event.epsilon))) / (order - 1)


def _fits(charges: list[Charge], limit: Limit) -> bool:
    return spent_epsilon(charges, limit) <= limit.epsilon * (1 + 1e-12)


def payer(user: str) -> str:
    """The user of the book that somebody is: see NOTE [Those without a name]."""
    return NAMELESS if user.startswith(ANONYMOUS) else user


# -- the book ----------------------------------------------------------------------------------------------


class BudgetBook:
    """Budgets in a file that threads and processes share; in memory without a path, and gone with the process."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file: tuple[int, int] | None = None
        if self.path is not None and not self.path.exists():
            raise FileNotFoundError(
                f"There is no book of budgets at {self.path}. A missing one is not taken for an empty one: restore it, "
                "or make a new one with BudgetBook.create(path)."
            )
        self._connection: sqlite3.Connection | None = None
        with self._transaction(writes=self.path is None) as book:
            if self.path is None:
                _make_tables(book)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> BudgetBook:
        """A new book; an old one is not overwritten."""
        target = Path(path).absolute()
        # The file appears whole: tables first, under another name, then a link that fails if there is one.
        draft = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                _make_tables(connection)
                connection.execute("COMMIT")
            finally:
                connection.close()
            os.link(draft, target)
            _sync_folder(target.parent)
        except FileExistsError:
            raise FileExistsError(
                f"There is a book of budgets at {target} already: open it with BudgetBook(path)."
            ) from None
        finally:
            for leftover in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
                leftover.unlink(missing_ok=True)
        return cls(target)

    # -- the owner ---------------------------------------------------------------------------------

    def set_limit(
        self,
        dataset: str,
        limit: Limit,
        *,
        user: str | None = None,
        together: bool = False,
        max_records_per_person: int | None = None,
    ) -> None:
        """Set or change a limit. What was spent stays spent."""
        if together and user is not None:
            raise ValueError(
                "A budget is one user's or of all users together: give user or together, not both."
            )
        if not isinstance(dataset, str) or not dataset:
            raise TypeError(
                f"A budget is kept under a name, a text of one letter or more, got {repr(dataset)[:60]}."
            )
        if user is not None and (not isinstance(user, str) or not user):
            raise TypeError(
                f"A user is a name, a text of one letter or more, got {repr(user)[:60]}; user=None is for every user."
            )
        user = None if user is None else payer(user)
        records = max_records_per_person
        if records is not None and (isinstance(records, bool) or not isinstance(records, int) or records < 1):
            raise ValueError(f"max_records_per_person is a whole number, 1 at least, got {records!r}.")
        scope = _TOGETHER if together else _EACH if user is None else _OWN
        with self._transaction() as book:
            book.execute("INSERT OR IGNORE INTO datasets VALUES (?, 1)", (dataset,))
            if records is not None:
                self._set_records(book, dataset, records)
            book.execute(
                "INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?, ?)",
                (dataset, scope, user or "", float(limit.epsilon), float(limit.delta)),
            )

    def _set_records(self, book: sqlite3.Connection, dataset: str, records: int) -> None:
        (before,) = book.execute(
            "SELECT records_per_person FROM datasets WHERE name = ?", (dataset,)
        ).fetchone()
        spent = book.execute("SELECT 1 FROM releases WHERE dataset = ? LIMIT 1", (dataset,)).fetchone()
        if records != before and spent:
            raise ValueError(
                f"{dataset!r} was released with max_records_per_person={before}; the noise of those releases was for "
                f"that. To go on with {records}, put the data there under another name."
            )
        book.execute("UPDATE datasets SET records_per_person = ? WHERE name = ?", (records, dataset))

    def records_per_person(self, datasets: Iterable[str]) -> int:
        """The most records of one person in any of these."""
        with self._transaction(writes=False) as book:
            found = [
                book.execute("SELECT records_per_person FROM datasets WHERE name = ?", (name,)).fetchone()
                for name in datasets
            ]
        return max((row[0] for row in found if row), default=1)

    # -- charging ----------------------------------------------------------------------------------

    def charge(self, datasets: Iterable[str], user: str | None, charge: Charge) -> None:
        """Charge a release to every data set it is of; !! and to none if one refuses. Durable when it returns."""
        names = sorted(set(datasets))
        if not user or not isinstance(user, str):
            raise ReleaseNotPermittedError(
                "A release was asked for by somebody who gave no user name, and budgets are kept per user. Name "
                "yourself with release(..., user=...)."
            )
        user = payer(user)
        with self._transaction() as book:
            for name in names:
                own, together = _limits(book, name, user)
                _check_limit(f"User {user!r}", name, [*_charges(book, name, user), charge], own)
                if together is not None:
                    _check_limit("Everybody together", name, [*_charges(book, name), charge], together)
            for name in names:
                book.execute(
                    "INSERT INTO releases (time, dataset, user, mechanism, epsilon, delta, event, count) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        time.time(),
                        name,
                        user,
                        charge.mechanism,
                        float(charge.epsilon),
                        float(charge.delta),
                        _event_text(charge.event),
                        charge.count,
                    ),
                )

    def state(self, dataset: str, user: str | None) -> BudgetState:
        """What a user has spent, what is left, and the list of their releases."""
        if not user or not isinstance(user, str):
            raise ReleaseNotPermittedError("A budget is a user's: name the user, by a text.")
        user = payer(user)
        with self._transaction(writes=False) as book:
            limit, together = _limits(book, dataset, user)
            own, everybody = _charges(book, dataset, user), _charges(book, dataset)
            lines = book.execute(
                "SELECT time, mechanism, epsilon, delta, count FROM releases WHERE dataset = ? AND "
                f"{_OF_USER} ORDER BY number",
                (dataset, user, user),
            ).fetchall()
        spent = spent_epsilon(own, limit)
        return BudgetState(
            dataset,
            user,
            limit.epsilon,
            limit.delta,
            spent,
            max(0.0, limit.epsilon - spent),
            tuple(PastRelease(*line) for line in lines),
            None if together is None else together.epsilon,
            None if together is None else max(0.0, together.epsilon - spent_epsilon(everybody, together)),
        )

    # -- the file ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it on the disk at the end, or nothing of it."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock:
            try:
                book = self._opened()
                book.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield book
                    book.execute("COMMIT")
                finally:
                    if book.in_transaction:
                        book.execute("ROLLBACK")
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise TimeoutError(
                        f"Other processes kept the book of budgets at {self.path} busy for {PATIENCE:g} s. Nothing was "
                        "charged by this one; try again."
                    ) from error
                raise self._unbelievable(error) from error
            except sqlite3.DatabaseError as error:
                raise self._unbelievable(error) from error

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

    def _unbelievable(self, error: Exception) -> BudgetFileError:
        return BudgetFileError(
            f"The book of budgets at {self.path or 'memory'} cannot be read or written ({type(error).__name__}: "
            f"{error}). It is not taken for an empty one: restore it, or have the data owner make a new one."
        )

    def _opened(self) -> sqlite3.Connection:
        if self.path is not None:
            self._check_same_file()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        where = ":memory:" if self.path is None else f"{self.path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            where, uri=self.path is not None, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous=FULL")
        if self.path is not None:
            formats = connection.execute("SELECT format FROM about").fetchall()
            if formats != [(FORMAT,)]:
                raise sqlite3.DatabaseError(f"its format is {formats!r}, not {FORMAT}")
        return connection

    def _check_same_file(self) -> None:
        """A file that was moved away or replaced under an open connection would be charged where nobody looks."""
        try:
            found = os.stat(str(self.path))
        except FileNotFoundError as error:
            raise self._unbelievable(error) from error
        same = (found.st_dev, found.st_ino)
        if self._file is None:
            self._file = same
        elif self._file != same:
            raise self._unbelievable(RuntimeError("the file was replaced while it was open"))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def __repr__(self) -> str:
        return f"<BudgetBook {'in memory only' if self.path is None else self.path}>"


def _make_tables(book: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";"):
        if statement.strip():
            book.execute(statement)
    book.execute("INSERT INTO about VALUES (?)", (FORMAT,))


def _limits(book: sqlite3.Connection, dataset: str, user: str) -> tuple[Limit, Limit | None]:
    """The user's limit, and that of all users if there is one."""
    rows = book.execute(
        "SELECT scope, user, epsilon, delta FROM limits WHERE dataset = ?", (dataset,)
    ).fetchall()
    try:
        found = {(scope, whose): Limit(epsilon, delta) for scope, whose, epsilon, delta in rows}
    except ValueError as error:
        raise sqlite3.DatabaseError(f"a limit that is none: {error}") from error
    own = found.get((_OWN, user), found.get((_EACH, "")))
    if own is None:
        raise ReleaseNotPermittedError(
            f"The owner of {dataset!r} has set no budget for user {user!r}. Ask them for one: "
            "worker.set_budget(dataset=..., user=..., epsilon=..., delta=...)."
        )
    return own, found.get((_TOGETHER, ""))


#: NB: a book of before may have releases to those without a name under the names that they were given.
_OF_USER = f"(user = ? OR (? = '{NAMELESS}' AND substr(user, 1, {len(ANONYMOUS)}) = '{ANONYMOUS}'))"


def _charges(book: sqlite3.Connection, dataset: str, user: str | None = None) -> list[Charge]:
    """What was charged so far, equal releases together."""
    where, values = ("", (dataset,)) if user is None else (f" AND {_OF_USER}", (dataset, user, user))
    return [
        Charge("", _event_of(text), epsilon, delta, count)
        for text, epsilon, delta, count in book.execute(
            f"SELECT event, epsilon, delta, SUM(count) FROM releases WHERE dataset = ?{where} "
            "GROUP BY event, epsilon, delta",
            values,
        )
    ]


def _check_limit(who: str, dataset: str, charges: list[Charge], limit: Limit) -> None:
    if _fits(charges, limit):
        return
    asked, before = charges[-1], spent_epsilon(charges[:-1], limit)
    left = max(0.0, limit.epsilon - before)
    times = "" if asked.count == 1 else f" {asked.count} times"
    cost = f"epsilon {asked.epsilon:.4g}" if math.isfinite(asked.epsilon) else f"the cost of {asked.event}"
    refusal = BudgetExceededError(
        f"{who} has epsilon {left:.4g} of {limit.epsilon:g} left on {dataset!r} (at delta {limit.delta:g}), and this "
        f"release ({asked.mechanism}) asks for {cost}"
        f"{f', delta {asked.delta:g}' if asked.delta else ''}{times}. Nothing was charged. Ask for less"
        f"{_of_delta(charges, limit)}, or ask the data owner for more."
    )
    refusal.left = left
    raise refusal


def _of_delta(charges: list[Charge], limit: Limit) -> str:
    deltas = math.fsum(c.delta * c.count for c in charges)
    if deltas <= limit.delta / 2 or not limit.delta:
        return ""
    return f" (deltas that are added up may be {limit.delta / 2:g} in all, half of the budget's)"


_EVENTS: dict[str, type[Gaussian] | type[Pure]] = {"gaussian": Gaussian, "pure": Pure}


def _event_text(event: Event | None) -> str:
    if event is None:
        return json.dumps({"event": "opaque"})
    name = next(name for name, cls in _EVENTS.items() if cls is type(event))
    return json.dumps({"event": name, **asdict(event)}, sort_keys=True)


def _event_of(text: Any) -> Event | None:
    try:
        record = json.loads(text)
        return None if record == {"event": "opaque"} else _EVENTS[record.pop("event")](**record)
    except (ValueError, KeyError, TypeError) as error:
        raise sqlite3.DatabaseError(f"a release of an unknown kind, {str(text)[:60]!r}") from error
