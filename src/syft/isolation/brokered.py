"""What an executor leaves to the broker: budgets, other workers, groups of secret sharing, searches.

Each is the name under which the rest of the library knows it, and asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from syft import serde
from syft.core.rooms import load_rest
from syft.dp.events import written
from syft.dp.release import Desk
from syft.exceptions import ProtocolError, WorkerNotFoundException
from syft.isolation import records
from syft.isolation.broker_lane import ask, ask_value
from syft.messaging.message import ListObjectsMessage, PrivateTrainingMessage, ReleaseMessage, SearchMessage
from syft.mpc.network import messages
from syft.mpc.network.handlers import join
from syft.mpc.network.membership import Membership, tickets_of
from syft.mpc.offers import SecretRecord
from syft.mpc.supplies import Listed, Supplies
from syft.requests.approvals import Prepared, Use
from syft.workers import handlers
from syft.workers.abstract import AbstractWorker
from syft.workers.network import handlers as _network_handlers  # noqa: F401  (adds handlers that are replaced here)
from syft.workers.network.presence import Condition

# -- budgets -------------------------------------------------------------------------------------------------


class BrokeredBook:
    """The book of budgets, which the broker keeps. It charges the user of this executor, whatever is said here."""

    path = None

    def records_per_person(self, datasets: Iterable[str]) -> int:
        return int(ask_value(records.BookRecords(list(datasets))))

    def datasets(self) -> list[str]:
        return list(ask_value(records.BookNames()))

    def state(self, dataset: str, _user: str | None) -> Any:
        return ask_value(records.BookState(dataset))

    def charge(
        self,
        datasets: Iterable[str],
        _user: str | None,
        charge: Any,
        records_per_person: int = 1,
        is_approved: bool = False,
    ) -> None:
        ask_value(
            records.BookCharge(
                list(datasets),
                records_per_person,
                charge.mechanism,
                None if charge.event is None else written(charge.event),
                charge.epsilon,
                charge.delta,
                charge.count,
                is_approved,
            )
        )


class BrokeredKeeper:
    """The queue of requests, which the broker keeps. It is about the user of this executor, whatever is said here."""

    def check_room(self, _user: str, nbytes: int) -> None:
        ask_value(records.AboutRequests("room", None, nbytes))

    def file(self, _user: str, prepared: Prepared, token: str) -> Any:
        payload = msgspec.msgpack.encode((prepared.ask, prepared.value))
        return ask_value(records.FileRequest(prepared.about, token), [payload])

    def ask(self, _user: str, action: str, request_id: str | None) -> Any:
        return ask_value(records.AboutRequests(action, None if request_id is None else str(request_id)[:60]))

    def use(self, _user: str, use: Use) -> Any:
        return ask_value(records.UseApproval(*use))

    def take(self, _user: str, request_id: str) -> Any:
        return ask_value(records.TakeValue(str(request_id)[:60]))


def open_desk(worker: Any) -> None:
    """Let a worker release what the broker has budgets for."""
    if not worker.has_budgets:
        desk = worker.extension(Desk)
        desk.book, desk.tagged = BrokeredBook(), {}
        worker.add_guard(desk.provenance)


#: What computes with data that may only be released.
RELEASES = (ReleaseMessage, PrivateTrainingMessage)


def _released(handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Release what is here; what may only be released is not, and the broker has it done in a process of its own."""

    def handle(worker: Any, message: Any) -> Any:
        is_elsewhere = any(worker.entry_of(obj_id).is_released_only for obj_id in ids_of_release(message))
        if worker.computes_releases or not is_elsewhere:
            return handler(worker, message)
        return ask_value(records.Release(), serde.serialize_frames(message, worker, None), waits=True)

    return handle


def ids_of_release(message: Any) -> tuple[Any, ...]:
    """The objects that a release is of."""
    return (message.id,) if type(message) is ReleaseMessage else (message.inputs, message.targets)


# -- other workers -------------------------------------------------------------------------------------------


class PeerPresence:
    """In the place of `presence.Presence`: the broker knows whether the other worker is there."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def condition(self) -> Condition:
        is_missing, session, patience = ask_value(records.PeerCondition(self._peer.id))
        return Condition(is_missing, session, patience)


class PeerLink:
    """In the place of a link: it posts by way of the broker."""

    def __init__(self, peer: Peer) -> None:
        self._peer, self.presence = peer, PeerPresence(peer)

    def post(self, message: Any, at_once: bool = False) -> None:
        worker = self._peer.owner
        ask(records.TellPeer(self._peer.id), serde.serialize_frames(message, worker, None), waits=True)


class Peer(AbstractWorker):
    """Another worker, to which the broker has a connection."""

    is_in_process = False

    def __init__(self, owner: Any, id: Any) -> None:
        self.owner, self.id = owner, id
        self._link = PeerLink(self)

    def _send_msg(self, message: Any, location: Any) -> Any:
        raise NotImplementedError("A peer is asked, and does not ask.")

    def _recv_msg(self, message: Any) -> Any:
        return ask_value(
            records.AskPeer(self.id), serde.serialize_frames(message, self.owner, None), waits=True
        )

    def sync(self) -> None:
        """The broker waits for what it forwards."""


class Peers(dict[Any, Any]):
    """The workers that a worker knows: itself, and those of the broker's, as they are asked for."""

    def __init__(self, owner: Any) -> None:
        super().__init__({owner.id: owner})
        self._owner = owner

    def get(self, name: Any, default: Any = None) -> Any:
        if name in self:
            return self[name]
        if type(name) not in (int, str):
            return default
        try:
            ask_value(records.FindPeer(name))
        except WorkerNotFoundException:
            return default
        self[name] = Peer(self._owner, name)
        return self[name]


# -- groups of secret sharing --------------------------------------------------------------------------------


def join_and_tell(worker: Any, message: messages.JoinGroup) -> None:
    """Join a group; the broker hears which tickets lead to it."""
    join(worker, message)
    membership = worker.entry_of(message.return_id).value
    tickets = [channel.expected for channel in membership.channels.values()]
    ask_value(records.OpenGroup(message.return_id, tickets))
    worker.published.discard(message.return_id)
    worker.offers[message.return_id] = worker.entry_of(message.return_id)  # so that its end is told


def _routed(handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Handle what a peer sent for a group that is here; else the broker knows where it is."""

    def handle(worker: Any, message: Any) -> Any:
        if type(message) is messages.Ticket:
            entry = worker._entries.get(message.group)
            is_here = entry is not None and type(entry.value) is Membership
            route = records.RouteToGroup(b"", message.group)
        else:
            is_here = message.ticket in tickets_of(worker)
            route = records.RouteToGroup(bytes(message.ticket), None)
        if is_here:
            return handler(worker, message)
        return ask_value(route, serde.serialize_frames(message, worker, None), waits=True)

    return handle


#: What members of a group of secret sharing send each other.
FROM_PEERS = (
    messages.Ticket,
    messages.Seeds,
    messages.Agreement,
    messages.Frame,
    messages.Dealt,
    messages.RunFailed,
    messages.AreYouThere,
)


class BrokeredSupplies:
    """The supplies on disk, which the broker keeps for the user of this executor, whatever is said here."""

    def put(self, _user: str | None, name: str, lot: int, call: int, about: bytes, content: bytes) -> None:
        ask(records.PutPart(name, lot, call, about), [content])

    def take(self, _user: str | None, name: str, lot: int, call: int) -> bytes:
        return bytes(ask(records.TakePart(name, lot, call))[1])

    def listing(self, _user: str | None) -> list[Listed]:
        return list(ask_value(records.ListSupplies()))

    def drop(self, _user: str | None, name: str) -> None:
        ask_value(records.DropSupply(name))


def keep_supplies_at_broker(worker: Any) -> None:
    worker.extension(Supplies).keeper = BrokeredSupplies()


def read_secret(written: bytes, worker: Any) -> SecretRecord:
    """Of which secret something is a share, as another process says. !! ProtocolError"""
    found = serde.deserialize(written, worker)
    if type(found) is not SecretRecord:
        raise ProtocolError(f"A share was said to be of a {type(found).__name__}.")
    return found


# -- searches ------------------------------------------------------------------------------------------------


def search(worker: Any, message: SearchMessage) -> list[Any]:
    """What this user has here, and what the broker knows."""
    terms = tuple(message.query)
    here = {found.id: found for found in handlers.find(worker, terms) if found.id not in worker.imported}
    told = ask_value(records.Search(), serde.serialize_frames(terms, worker, None))
    worker.elsewhere.update(found.id for found in told)
    return [*here.values(), *(found for found in told if found.id not in here)]


def list_objects(worker: Any, _message: ListObjectsMessage) -> tuple[Any, ...]:
    here = [obj_id for obj_id in worker._objects.copy() if obj_id not in worker.imported]
    told = ask_value(records.ListIds())
    worker.elsewhere.update(told)
    return tuple(dict.fromkeys([*here, *told]))


def install() -> None:
    """Change the table of handlers of this process, once all rooms have filled it."""
    load_rest()
    table = handlers.HANDLERS
    table[SearchMessage], table[ListObjectsMessage] = search, list_objects
    table[messages.JoinGroup] = join_and_tell
    for kind in FROM_PEERS:
        table[kind] = _routed(table[kind])
    for release in RELEASES:
        table[release] = _released(table[release])


__all__ = [
    "FROM_PEERS",
    "RELEASES",
    "BrokeredKeeper",
    "Peers",
    "ids_of_release",
    "install",
    "keep_supplies_at_broker",
    "open_desk",
    "read_secret",
]
