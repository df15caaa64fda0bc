"""Approvals: what lets a message through that its user may not send otherwise. `use_approval` is the one place.

NOTE [What an approval covers]
A request is bound to who asks, to what for (kind and arguments: the plan, settings, mechanism and epsilon), and to a
version of the object. The owner's data has its content as its version; it changes when the owner changes it, and not
over restarts. What a user computed has a random token that is drawn when it is asked for and forgotten when it is written
into, replaced or dropped. By metadata alone, never by its values: whether an approval still holds must tell nothing
of them. A value that somebody asks to fetch is copied when they ask: what was approved is what leaves.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from syft.core.interfaces import Id
from syft.requests.records import Ask, Kind, Told


class Use(NamedTuple):
    """What somebody wants to do: the object (or data set) it is about, its token, and the digest of the rest."""

    kind: Kind
    about: Id | None
    token: str
    digest: str


class Prepared(NamedTuple):
    """A request before it is in the queue. `ask.binding` is the digest of the message until the keeper binds it."""

    ask: Ask
    about: Id | None
    value: bytes | None = None


class Keeper(Protocol):
    """Who has the queue: this worker, or the broker in whose process of a user it is."""

    def check_room(self, user: str, nbytes: int) -> None: ...
    def file(self, user: str, prepared: Prepared, token: str) -> Told: ...
    def ask(self, user: str, action: str, request_id: str | None) -> Any: ...
    def use(self, user: str, use: Use) -> Ask | None: ...
    def take(self, user: str, request_id: str) -> tuple[Ask, bytes] | None: ...


class Versions(Protocol):
    """The tokens of what users computed and asked for: see NOTE [What an approval covers]."""

    def of(self, entry: Any, is_asked: bool = False) -> str:
        """The token of an object; empty if it has none. `is_asked`: then it gets one."""
        ...


@dataclass
class Requests:
    """What a worker keeps for requests."""

    keeper: Keeper | None = None
    versions: Versions | None = None


def digest_of_parts(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def use_approval(worker: Any, user: str | None, kind: Kind, about: Id, digest: str) -> Ask | None:
    """Use an approval for exactly this, if there is one: see NOTE [What an approval covers]. The only way to use one."""
    requests: Requests | None = worker.known_extension(Requests)
    if requests is None or requests.keeper is None or not user:
        return None
    entry = worker._entries.get(about) if kind != "train" else None
    token = "" if entry is None or requests.versions is None else requests.versions.of(entry)
    if entry is not None and not entry.is_owners and not token:
        return None  # nobody has asked for it as it is now
    return requests.keeper.use(user, Use(kind, about, token, digest))
