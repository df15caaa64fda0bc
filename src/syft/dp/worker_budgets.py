"""The book of a data owner: who may spend how much on which data set, and every release that was paid for.

One duty: to charge, durably, before anything leaves. What charges cost together is `composition`'s, file and transactions
are the `ledger`'s. Imports those, `events`, `exceptions`, and a name of `transport`.

NOTE [Charged before it leaves]
A charge is one transaction of SQLite that takes the write lock first (BEGIN IMMEDIATE), reads what was spent,
decides, writes, and is on the disk when it returns. Threads and processes that race are served one after the
other. Nothing here refunds: what happens after the charge, a crash too, does not take it back, because nobody can tell
whether the answer was seen.

NOTE [Several tensors of one name]
`max_records_per_person` is for one tensor. In rows that were computed from two tensors of a name (x + y), a person may be
in one row because of x and in another because of y; nobody can tell from the tensors. So a name stands in a list of data
sets once for each of its tensors, and the records of a person add up. Under two names that is not needed: the release is
charged to both, and for a person in two data sets the sum of both is promised.

NOTE [Those without a name]
A worker on a network that asks for no proof gives every connection a new name. Charged by it, a budget would be one
per connection. All of them are one user of the book, `NAMELESS`, a name that nobody can prove.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from syft.core import html
from syft.dp.composition import BOTH, Charge, Limit, fits, spent_epsilon
from syft.dp.events import Event, Gaussian, read_event, shown, written
from syft.exceptions import BudgetExceededError, ReleaseNotPermittedError
from syft.identity.names import ANONYMOUS
from syft.ledger import Ledger
from syft.ledger import file as ledger_file

#: The user that all without a name are: see NOTE [Those without a name].
NAMELESS = ANONYMOUS

#: A person with more records than that is everybody.
MOST_RECORDS = 1 << 53
#: How often one charge may be of the same event.
MOST_COUNT = 1 << 20

#: Scopes of a limit: one user, every user without one of their own, all users together.
_OWN, _EACH, _TOGETHER = "own", "each", "together"


# -- records -----------------------------------------------------------------------------------------------


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

    def __str__(self) -> str:
        count = len(self.releases)
        return (
            f"Budget of {self.user} on {self.dataset}: epsilon {self.spent:.6g} of {self.epsilon:g} spent, "
            f"{self.left:.6g} left, at delta {self.delta:g}; {count} release{'s' * (count != 1)}"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("spent", f"{self.spent:g} of {self.epsilon:g}"),
            ("left", f"{self.left:g}"),
            ("delta", f"{self.delta:g}"),
        ]
        if self.together_epsilon is not None:
            rows.append(
                ("left for all users together", f"{self.together_left:g} of {self.together_epsilon:g}")
            )
        rows.append(("releases", ", ".join(release.mechanism for release in self.releases) or "none"))
        return html.table(f"Budget of {self.user} on {self.dataset}", (), rows)


@dataclass(frozen=True)
class BudgetLine:
    """One limit of a data set, and what was spent of it.

    By `user`, or by all `together`; where it is neither, what each has who is not named, of which nothing is spent yet.
    """

    user: str | None
    together: bool
    limit: Limit
    spent: float
    releases: int


def payer(user: str) -> str:
    """The user of the book that somebody is: see NOTE [Those without a name]."""
    return NAMELESS if user.startswith(ANONYMOUS) else user


# -- the book ----------------------------------------------------------------------------------------------


class BudgetBook(Ledger):
    """Budgets in a file that threads and processes share; in memory without a path, and gone with the process."""

    noun, cure = "book of budgets", "make a new one with BudgetBook.create(path), or `syft budget create`"

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
        if user is not None and user != payer(user):
            raise ValueError(
                f"{user[:60]!r} cannot be given a budget of its own: everybody without a name is one user, {NAMELESS!r}, "
                "whatever their connection. Set their budget under that name."
            )
        records = max_records_per_person
        is_whole = isinstance(records, int) and not isinstance(records, bool)
        if records is not None and not (is_whole and 1 <= records <= MOST_RECORDS):
            raise ValueError(
                f"max_records_per_person is a whole number, 1 at least (and 2^53 at most), got {shown(records)}."
            )
        scope = _TOGETHER if together else _EACH if user is None else _OWN
        with self._transaction() as book:
            book.execute("INSERT OR IGNORE INTO datasets VALUES (?, 1)", (dataset,))
            if records is not None:
                self._set_records(book, dataset, records)
            book.execute(
                "INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?, ?)",
                (dataset, scope, user or "", float(limit.epsilon), float(limit.delta)),
            )
            ledger_file.seal_limits(book)

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
        """The most rows that one person can change in what was made of these: see NOTE [Several tensors of one name]."""
        with self._transaction(writes=False) as book:
            return max(_records(book, Counter(datasets)).values(), default=1)

    def datasets(self) -> list[str]:
        """The data sets that a limit was set for."""
        with self._transaction(writes=False) as book:
            return [name for (name,) in book.execute("SELECT name FROM datasets ORDER BY name").fetchall()]

    def lines(self, dataset: str) -> list[BudgetLine]:
        """For the owner: every limit of a data set, and what each user has spent. Nobody's but the owner's to see."""
        with self._transaction(writes=False) as book:
            limits = _all_limits(book, dataset)
            counts = dict.fromkeys((user for scope, user in limits if scope == _OWN), 0)
            for user, count in book.execute(
                "SELECT user, COUNT(*) FROM releases WHERE dataset = ? GROUP BY user", (dataset,)
            ).fetchall():
                counts[payer(user)] = counts.get(payer(user), 0) + count
            charges = {user: _charges(book, dataset, user) for user in sorted(counts)}
            everybody = _charges(book, dataset)
        lines = []
        each, together = limits.get((_EACH, "")), limits.get((_TOGETHER, ""))
        for user, own in charges.items():
            limit = limits.get((_OWN, user), each)
            if limit is not None:
                lines.append(BudgetLine(user, False, limit, spent_epsilon(own, limit), counts[user]))
        if each is not None:
            lines.append(BudgetLine(None, False, each, 0.0, 0))
        if together is not None:
            spent = spent_epsilon(everybody, together)
            lines.append(BudgetLine(None, True, together, spent, sum(counts.values())))
        return lines

    # -- charging ----------------------------------------------------------------------------------

    def charge(
        self,
        datasets: Iterable[str],
        user: str | None,
        charge: Charge,
        records_per_person: int = 1,
        is_approved: bool = False,
    ) -> None:
        """Charge a release to every data set it is of; !! and to none if one refuses. Durable when it returns.

        records_per_person   how many rows of one person the release has noise for; !! if they may have more by now
        is_approved          the owner has approved this release, also beyond the limits. It is charged all the same
        """
        tensors = Counter(datasets)
        names = sorted(tensors)
        if not names:
            raise ReleaseNotPermittedError(
                "A release was requested of an object of no data set with a budget: there is nothing to charge it to. "
                "Ask the data owner for a budget: worker.set_budget(dataset=..., epsilon=...)."
            )
        if not user or not isinstance(user, str):
            raise ReleaseNotPermittedError(
                "A release was asked for by somebody who gave no user name, and budgets are kept per user. Name "
                "yourself with release(..., user=...)."
            )
        user = payer(user)
        if not (charge.epsilon > 0 and 0 <= charge.delta < 1 and 1 <= charge.count <= MOST_COUNT):
            # NB: counts are added up in 64 bits, and a sum that does not fit would be the end of the book.
            raise ValueError(
                f"A charge is of an epsilon above 0 and a delta below 1, 1 to {MOST_COUNT} times; got epsilon "
                f"{charge.epsilon!r}, delta {charge.delta!r}, {shown(charge.count)} times."
            )
        if isinstance(charge.event, Gaussian) and charge.event.sampling_rate != 1.0:
            raise ValueError(
                f"A book is about replaced records, and a sampling rate ({charge.event.sampling_rate:g}) is counted for "
                "one record more or less. Charge Gaussian(noise_multiplier) alone, or epsilon and delta with no event."
            )
        with self._transaction() as book:
            for name, records in _records(book, tensors).items():
                if records > records_per_person:
                    raise ReleaseNotPermittedError(
                        f"A release of {name!r} was prepared with noise for {records_per_person} of a person's records, "
                        f"and a person may have {records}: the owner has set max_records_per_person since. Nothing was "
                        "charged; ask again."
                    )
            for name in () if is_approved else names:
                own, together = _limits(book, name, user)
                _check_limit(f"User {user!r}", name, [*_charges(book, name, user), charge], own)
                if together is not None:
                    _check_limit("Everybody together", name, [*_charges(book, name), charge], together)
            for name in names:
                ledger_file.append(
                    book,
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


def _records(book: sqlite3.Connection, tensors: Counter[str]) -> dict[str, int]:
    """Name -> the most rows of one person in what was made of so many tensors of it."""
    found: dict[str, int] = dict(book.execute("SELECT name, records_per_person FROM datasets").fetchall())
    return {name: found.get(name, 1) * count for name, count in tensors.items()}


def _all_limits(book: sqlite3.Connection, dataset: str) -> dict[tuple[str, str], Limit]:
    """(scope, user) -> limit"""
    rows = book.execute(
        "SELECT scope, user, epsilon, delta FROM limits WHERE dataset = ?", (dataset,)
    ).fetchall()
    try:
        return {(scope, whose): Limit(epsilon, delta) for scope, whose, epsilon, delta in rows}
    except ValueError as error:
        raise sqlite3.DatabaseError(f"a limit that is none: {error}") from error


def _limits(book: sqlite3.Connection, dataset: str, user: str) -> tuple[Limit, Limit | None]:
    """The user's limit, and that of all users if there is one."""
    found = _all_limits(book, dataset)
    own = found.get((_OWN, user), found.get((_EACH, "")))
    if own is None:
        raise ReleaseNotPermittedError(
            f"The owner of {dataset!r} has set no budget for user {user!r}. Ask them for one: "
            "worker.set_budget(dataset=..., user=..., epsilon=..., delta=...), or `syft budget set`."
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
    if fits(charges, limit):
        return
    asked, before = charges[-1], spent_epsilon(charges[:-1], limit)
    left = max(0.0, limit.epsilon - before)
    times = "" if asked.count == 1 else f" {asked.count} times"
    cost = f"epsilon {asked.epsilon:.4g}" if math.isfinite(asked.epsilon) else f"the cost of {asked.event}"
    refusal = BudgetExceededError(
        f"{who} has epsilon {left:.4g} of {limit.epsilon:g} left on {dataset!r} (at delta {limit.delta:g}), and this "
        f"release ({asked.mechanism}) asks for {cost}"
        f"{f', delta {asked.delta:g}' if asked.delta else ''}{times}. Nothing was charged. {_cure(charges, limit)}"
    )
    refusal.left = left
    raise refusal


def _cure(charges: list[Charge], limit: Limit) -> str:
    asked, deltas = charges[-1], math.fsum(c.delta * c.count for c in charges)
    needs_delta = asked.delta > 0 or math.isinf(asked.epsilon)
    if needs_delta and not limit.delta:
        return (
            f"It needs a delta, and this budget has none: ask the data owner for a budget with one (delta=1e-6, say), or "
            f"use a mechanism that needs none{', such as laplace' if asked.mechanism == 'gaussian' else ''}."
        )
    less = "more noise" if math.isinf(asked.epsilon) else "less"
    if needs_delta and deltas > limit.delta * BOTH.sum:
        less += f" (deltas that are added up may be {limit.delta * BOTH.sum:g} in all, half of the budget's)"
    return f"Ask for {less}, or ask the data owner for this one: worker.request_release(...)."


def _event_text(event: Event | None) -> str:
    if event is None:
        return json.dumps({"event": "opaque"})
    return json.dumps(written(event), sort_keys=True)


def _event_of(text: Any) -> Event | None:
    try:
        record = json.loads(text)
        if record == {"event": "opaque"}:
            return None
        event = read_event(record)
    except (ValueError, KeyError, TypeError) as error:
        raise sqlite3.DatabaseError(f"a release of an unknown kind, {str(text)[:60]!r}") from error
    # NB: a sample is no help against a replaced record as it is counted; see `charge`.
    return replace(event, sampling_rate=1.0) if isinstance(event, Gaussian) else event
