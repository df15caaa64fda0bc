"""Who keeps the queue of a worker: what a request is bound to, and what is written to the audit log."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from syft import serde
from syft.core.identity import tags_of
from syft.core.interfaces import StoredEntry
from syft.core.rooms import FilledLater
from syft.exceptions import RequestNotPermittedError
from syft.policy.caller import current_peer
from syft.policy.permissions import AuditRecord
from syft.requests.approvals import Keeper, Prepared, Requests, Use, digest_of_parts
from syft.requests.records import Ask, Event, Request, Told, told
from syft.requests.values import seen_content_of, stated_value

if TYPE_CHECKING:
    from syft.requests.book import RequestBook

#: kind of a request -> the version of what it is about, where that is no object
VERSIONS: FilledLater[str, Callable[[Any, Any], str]] = FilledLater()
#: kind of a request -> what the owner reads of it: made here, of what an approval would let through, since the request
#: may come from a process that is under its user's control. !! RequestNotPermittedError
STATEMENTS: FilledLater[str, Callable[[Any, Prepared], Ask]] = FilledLater()
#: more that the owner is told of a user and data sets, by those who keep it
BUDGET_FACTS: list[Callable[[Any, str, tuple[str, ...]], dict[str, str]]] = []


class BookKeeper:
    """Keeps the queue in a book, and writes what happens to the audit log."""

    def __init__(self, worker: Any, book: RequestBook) -> None:
        self.worker, self.book = worker, book
        self._digests: dict[Any, tuple[weakref.ref[torch.Tensor], int, str]] = {}

    def check_room(self, user: str, nbytes: int) -> None:
        self.book.check_room(user, nbytes)

    def file(self, user: str, prepared: Prepared, token: str) -> Told:
        state = STATEMENTS.find(prepared.ask.kind)
        ask = prepared.ask if state is None else state(self.worker, prepared)
        details = dict(ask.details)
        for facts in BUDGET_FACTS:
            details |= facts(self.worker, user, ask.datasets)
        binding = self._binding(Use(ask.kind, prepared.about, token, ask.binding))
        bound = msgspec.structs.replace(ask, binding=binding, details=details)
        request = self.book.file(user, current_peer(), bound, prepared.value)
        self.write_down()
        return told(request)

    def ask(self, user: str, action: str, request_id: str | None) -> Any:
        if action == "list":
            found: Any = [told(request) for request in self.book.all_of(user)]
        else:
            named = str(request_id)
            answer = self.book.withdraw if action == "withdraw" else self.book.of
            found = told(answer(user, named))
        self.write_down()
        return found

    def use(self, user: str, use: Use) -> Ask | None:
        # NB: first, since what a use is bound to may be the content of all of the owner's data.
        if not self.book.has_approved(user, use.kind):
            return None
        found = self.book.use(user, use.kind, self._binding(use), current_peer())
        self.write_down()
        return None if found is None else found.ask

    def take(self, user: str, request_id: str) -> tuple[Ask, bytes] | None:
        found = self.book.take(user, request_id, current_peer())
        self.write_down()
        return None if found is None else (found[0].ask, found[1])

    def write_down(self) -> None:
        """Copy what has happened to the audit log, also what the owner decided elsewhere."""
        self.book.copy_events(self._record)

    def _record(self, event: Event) -> None:
        self.worker.policy.record(
            AuditRecord(
                event.action,
                f"request {event.request}",
                event.user,
                event.granted,
                event.text,
                event.time,
                event.peer,
            )
        )

    def _binding(self, use: Use) -> str:
        version_of = VERSIONS.find(use.kind)
        if version_of is not None:
            version = version_of(self.worker, use.about)
        else:
            entry = self.worker._entries.get(use.about) if type(use.about) in (int, str) else None
            version = self._content(entry) if entry is not None and entry.is_owners else f"made {use.token}"
        return digest_of_parts(use.kind, version, use.digest)

    def _content(self, entry: StoredEntry) -> str:
        """The version of the owner's data: which it is, by what everybody may know, and what is in it.

        NB: that two objects are equal must not show, so equal content alone is not the same version.
        """
        value = entry.value
        if type(value) is not torch.Tensor:
            return f"object {entry.id}"
        known = self._digests.get(entry.id)
        if known is None or known[0]() is not value or known[1] != value._version:
            content = hashlib.sha256(seen_content_of(value)).hexdigest()
            known = self._digests[entry.id] = weakref.ref(value), value._version, content
        name = _public_name(entry)
        twins = [e.id for e in list(self.worker._entries.values()) if e.is_owners and _public_name(e) == name]
        return digest_of_parts(name, str(twins.index(entry.id)), known[2])


def _public_name(entry: StoredEntry) -> str:
    """What the owner's data is called over restarts; without tags its id."""
    value = entry.value
    if type(value) is not torch.Tensor or not tags_of(value):
        return f"object {entry.id}"
    return f"{sorted(map(str, tags_of(value)))} {value.dtype} {tuple(value.shape)}"


def keep_requests(worker: Any, book: RequestBook | str | Any) -> None:
    """Let users of a worker ask its owner; what they ask for is kept in a book."""
    from syft.requests.book import RequestBook

    kept = book if isinstance(book, RequestBook) else RequestBook(book)
    keeper = BookKeeper(worker, kept)
    worker.extension(Requests).keeper = keeper
    keeper.write_down()


def book_of(worker: Any) -> RequestBook:
    """The queue of a worker of this process, for its owner."""
    keeper: Any = keeper_of(worker)
    return keeper.book  # type: ignore[no-any-return]


def keeper_of(worker: Any) -> Keeper:
    """!! RequestNotPermittedError if the owner takes no requests"""
    requests: Requests = worker.extension(Requests)
    if requests.keeper is not None:
        return requests.keeper
    if not worker.asks_in_memory:
        raise RequestNotPermittedError(
            f"The owner of worker {worker.id!r} takes no requests. Ask them to start it with a queue: "
            "`syft worker --requests requests.db`, in Python worker.keep_requests(path)."
        )
    from syft.requests.book import RequestBook  # NB: here, so that the first hook does not load a database

    keeper = requests.keeper = BookKeeper(worker, RequestBook())
    return keeper


def write_down(worker: Any) -> None:
    """What the owner decided, in the audit log; for the worker's housekeeping."""
    requests: Requests | None = worker.known_extension(Requests)
    if requests is not None and isinstance(requests.keeper, BookKeeper):
        requests.keeper.write_down()


STATEMENTS["get"] = stated_value
for _record in (Told, Request, Ask):
    serde.register_record(_record)
