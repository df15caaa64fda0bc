"""`PeerAnswers`: what executors say to other workers by their broker, and what those say to groups of secret sharing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from syft import serde
from syft.core import worker_lock
from syft.exceptions import ObjectNotFoundError, ProtocolError, WorkerNotFoundException
from syft.isolation import records
from syft.isolation.brokered import FROM_PEERS
from syft.isolation.channel import ChannelClosed
from syft.isolation.executors import Executor
from syft.isolation.session import IsolatedSession
from syft.messaging.message import ObjectMessage, SyncMessage
from syft.workers.network import presence

#: An answer: the record, its content, and descriptors of what travels beside it.
Answered = tuple[Any, list[Any], list[int]]
#: What executors may say to peers in this worker's name: parts of programs on shares, and objects of their user's.
_TO_PEERS = frozenset({*FROM_PEERS, ObjectMessage, SyncMessage})


class PeerAnswers:
    """The part of a broker that answers about peers.

    _groups   groups of secret sharing, and in whose process they are; `_tickets`: what leads to them
    """

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self._lock: Any = worker._server._worker_lock
        self._groups: dict[Any, Executor] = {}
        self._tickets: dict[bytes, Executor] = {}

    def peer_answers(self) -> dict[type, Callable[..., Answered]]:
        """Question -> what answers it."""
        return {
            records.FindPeer: self._find_peer,
            records.PeerCondition: self._peer_condition,
            records.AskPeer: self._ask_peer,
            records.TellPeer: self._tell_peer,
            records.RouteToGroup: self._route,
            records.OpenGroup: self._open_group,
        }

    # -- peers -------------------------------------------------------------------------------------

    def _peer(self, name: Any) -> Any:
        presence.await_introduction(self.worker, name)
        found = self.worker._known_workers.get(name)
        if found is None or found is self.worker or getattr(found, "is_in_process", True):
            raise WorkerNotFoundException(
                f"Worker {self.worker.id!r} has no connection to a worker {str(name)[:60]!r}. Its owner introduces them: "
                "server.add_worker(sy.connect(address)), or `syft worker --peer ID=ADDRESS`."
            )
        return found

    def _find_peer(self, _session: IsolatedSession, question: records.FindPeer, *_: Any) -> Answered:
        self._peer(question.worker)
        return answered(None)

    def _peer_condition(
        self, _session: IsolatedSession, question: records.PeerCondition, *_: Any
    ) -> Answered:
        return answered(tuple(self._peer(question.worker)._link.presence.condition()))

    def _to_peer(self, session: IsolatedSession, payload: bytearray) -> Any:
        message = serde.deserialize(payload, self.worker, limits=session.limits)
        if type(message) not in _TO_PEERS:
            raise ProtocolError(
                f"A {type(message).__name__} is not sent to other workers from the process of a user. Start the worker "
                "with isolation 'none' if you need it."
            )
        if type(message) is ObjectMessage:
            message = msgspec.structs.replace(message, user=session.user)
        return message

    def _ask_peer(
        self, session: IsolatedSession, question: records.AskPeer, payload: bytearray, _: Any
    ) -> Answered:
        peer = self._peer(question.worker)
        message = self._to_peer(session, payload)
        if type(message) not in FROM_PEERS:
            answer = peer._recv_msg(message)
            if type(message) is ObjectMessage:
                peer.sync()
            return answered(answer)
        with presence.among_parties():
            return answered(peer._recv_msg(message))

    def _tell_peer(
        self, session: IsolatedSession, question: records.TellPeer, payload: bytearray, _: Any
    ) -> Answered:
        with presence.among_parties():
            self._peer(question.worker)._link.post(self._to_peer(session, payload), at_once=True)
        return answered(None)

    # -- groups of secret sharing ------------------------------------------------------------------

    def _open_group(self, session: IsolatedSession, question: records.OpenGroup, *_: Any) -> Answered:
        executor = session.its_executor
        with worker_lock.held(self._lock):
            if question.group in self._groups or any(t in self._tickets for t in question.tickets):
                raise ProtocolError("The id of a new group is that of another.")
            executor.groups[question.group] = question.tickets
            self._groups[question.group] = executor
            self._tickets.update(dict.fromkeys(question.tickets, executor))
        return answered(None)

    def _route(
        self, session: IsolatedSession, question: records.RouteToGroup, payload: bytearray, _: Any
    ) -> Answered:
        """Deliver what a peer sent to the executor of its group: by a ticket, or by the group that it names."""
        found = self._groups.get(question.group) if question.group is not None else None
        found = self._tickets.get(question.ticket) if found is None and question.group is None else found
        if found is None or found.is_ended:
            if question.group is not None:
                raise ObjectNotFoundError(question.group, self.worker)
            raise ProtocolError(
                f"Worker {self.worker.id!r} has given no such ticket: the group was ended, or the sender is not its "
                "member."
            )
        # NB: whether the message is one that peers send is looked at where it is read, which is not here.
        lane = session.route_to(found)
        try:
            lane.send(records.Deliver(session.user, getattr(session.connection, "peer", "")), [payload])
            return self._delivered(lane)
        except ChannelClosed:
            session._routes.pop(found.number, None)
            raise ProtocolError("The group has ended with the process of its user.") from None

    def _delivered(self, lane: Any) -> Answered:
        record, content, descriptors = lane.receive()
        if type(record) not in (records.Answer, records.Failure) or descriptors:
            raise ChannelClosed("An executor answered a delivery with something else.")
        return record, [content], []


def answered(value: Any) -> Answered:
    return records.Answer(), [written(value)], []


def written(value: Any) -> bytes:
    return b"".join(serde.serialize_frames(value, None, None))
