"""`Answers`: what a broker answers to the questions of executors, from its own table and its own policy.

An executor may be under its user's control: nothing that it says about objects, users or budgets is believed but what
could only be to the cost of its own user.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from syft import serde
from syft.dp.composition import Charge
from syft.dp.events import read_event
from syft.dp.provenance import names_of
from syft.dp.release import Desk
from syft.exceptions import (
    GetNotPermittedError,
    ObjectNotFoundError,
    ProtocolError,
    ReleaseNotPermittedError,
    RemoteError,
    WorkerNotFoundException,
)
from syft.federated.federated_client import FederatedClient, offered_to
from syft.isolation import records
from syft.isolation.brokered import FROM_PEERS, RELEASES, ids_of_release, read_secret
from syft.isolation.channel import ChannelClosed
from syft.isolation.executors import Executor, Executors
from syft.isolation.offered import taken_apart
from syft.isolation.released import ReleaseSession, compute_release
from syft.isolation.sealed import (
    NotSealedError,
    Sealed,
    is_plain,
    mapped_object,
    mapped_tensor,
    name_of,
    name_tensor,
    sealed_object,
    sealed_tensor,
)
from syft.isolation.session import IsolatedSession
from syft.messaging.message import ObjectMessage, SyncMessage
from syft.policy.caller import speaking_for
from syft.policy.permissions import About, AuditRecord
from syft.serde.errors import UnserializableError
from syft.workers import handlers
from syft.workers.entry import Entry
from syft.workers.network import presence, worker_lock

_Answered = tuple[Any, list[Any], list[int]]
#: What executors may say to peers in this worker's name: parts of programs on shares, and objects of their user's.
_TO_PEERS = frozenset({*FROM_PEERS, ObjectMessage, SyncMessage})
_VERSION = (1 << 62) - 1
_LONGEST_FAILURE = 300


Asking = IsolatedSession | ReleaseSession


class Answers:
    """The part of a broker that answers; `answer` is the way in.

    _offers   objects without tags that users let others use: in whose process, and who may have them
    _groups   groups of secret sharing, and in whose process they are; `_tickets`: what leads to them
    """

    executors: Executors

    def __init__(self, worker: Any, sealed: Sealed | None) -> None:
        self.worker = worker
        self.sealed = sealed or Sealed()
        self._lock: Any = worker._server._worker_lock
        self._offers: dict[Any, tuple[Executor, frozenset[str] | None, frozenset[str]]] = {}
        self._groups: dict[Any, Executor] = {}
        self._tickets: dict[bytes, Executor] = {}
        self._answers: dict[type, Callable[..., _Answered]] = {
            records.Lookup: self._look_up,
            records.Publish: self._publish,
            records.Search: self._search,
            records.ListIds: self._list_ids,
            records.FindPeer: self._find_peer,
            records.PeerCondition: self._peer_condition,
            records.AskPeer: self._ask_peer,
            records.TellPeer: self._tell_peer,
            records.RouteToGroup: self._route,
            records.OpenGroup: self._open_group,
            records.BookRecords: self._book_records,
            records.BookNames: self._book_names,
            records.BookState: self._book_state,
            records.BookCharge: self._book_charge,
            records.Release: self._release,
            records.Offered: self._offered,
        }

    # -- questions ---------------------------------------------------------------------------------

    def answer(self, session: Asking, question: Any, payload: bytearray, descriptors: list[int]) -> _Answered:
        """!! whatever the executor is to hear instead; ChannelClosed for what no executor asks"""
        handler = self._answers.get(type(question))
        if handler is None or session.executor is None or not session.permits(question):
            raise ChannelClosed(f"An executor sent {type(question).__name__}, which no executor asks.")
        with speaking_for(session.user, getattr(session.connection, "peer", "")):
            return handler(session, question, payload, descriptors)

    # -- objects -----------------------------------------------------------------------------------

    def _look_up(self, session: IsolatedSession, question: records.Lookup, *_: Any) -> _Answered:
        """What a user may have of an object: the value, to compute with or to fetch; or metadata, to be told why not."""
        executor, user = session.its_executor, session.user
        with worker_lock.held(self._lock):
            entry = self.worker._entries.get(question.id)
            if entry is not None:
                return self._given(executor, user, entry)
        offer = self._offers.get(question.id)
        if offer is None or offer[0] is executor or offer[0].is_ended:
            return records.Value("none"), [], []
        return self._from_other(user, question.id, *offer)

    def _given(self, executor: Executor, user: str, entry: Entry) -> _Answered:
        worker, obj = self.worker, entry.value
        about = worker.about(entry.id)
        is_tensor = is_plain(obj)
        is_permitted = worker.policy.may_compute(user, about) or worker.policy.may_get(user, entry.allowed)
        if entry.is_released_only and not executor.computes_releases:
            is_permitted = False  # it is mapped where it is released, and nowhere else
        names, tags = self._budgets_of(obj, entry)
        value = records.Value(
            "withheld" if not is_permitted else "tensor" if is_tensor else "object",
            name_of(obj.dtype) if isinstance(obj, torch.Tensor) else "",
            list(obj.shape) if isinstance(obj, torch.Tensor) else [],
            sorted(map(str, about.tags)),
            getattr(obj, "description", None) if about.tags or not is_tensor else None,
            None if entry.allowed is None else sorted(entry.allowed),
            "" if entry.is_owners else entry.holder or "",
            entry.is_owners,
            entry.is_private,
            entry.failure,
            entry.is_owners or (entry.holder != user and _is_several(entry.allowed, user)),
            names,
            tags,
            sorted((entry.computers or frozenset()) & {user}),
            None if not is_permitted or entry.secret is None else _written(entry.secret),
            entry.is_released_only,
        )
        executor.given.add(entry.id)
        if not is_permitted:
            return value, [], []
        try:
            descriptor = self._descriptor_of(entry) if is_tensor else sealed_object(obj, worker)
        except UnserializableError as error:
            raise RemoteError(
                f"Object {entry.id!r} of worker {worker.id!r} is a {type(obj).__name__}, which cannot be handed to the "
                f"process of a user: {error} Its owner can serve it with isolation 'none'."
            ) from error
        return value, [], [descriptor]

    def _descriptor_of(self, entry: Entry) -> int:
        found = self.sealed.descriptor_of(entry.value)
        return sealed_tensor(entry.value) if found is None else os.dup(found)

    def _budgets_of(self, obj: Any, entry: Entry) -> tuple[list[str], list[str]]:
        desk = self.worker.known_extension(Desk)
        if desk is None or not entry.is_owners:
            return [], []
        rows = desk.provenance.rows_of(obj)
        tags = [tag for tag, ids in (desk.tagged or {}).items() if entry.id in ids]
        return sorted(set(names_of(rows.sources))) if rows is not None else [], tags

    def _from_other(
        self,
        user: str,
        obj_id: Any,
        executor: Executor,
        allowed: frozenset[str] | None,
        computers: frozenset[str],
    ) -> _Answered:
        """An object without tags of another user, who lets this one use it: from the process of that user."""
        about = About(allowed, (), executor.user, False, computers)
        policy = self.worker.policy
        if not policy.may_compute(user, about) and not policy.may_get(user, allowed):
            return records.Value("none"), [], []
        try:
            value, content, descriptors = executor.ask(records.Export(obj_id))
        except (ChannelClosed, TimeoutError):
            raise RemoteError(
                f"Object {obj_id!r} is in the process of another user, which does not answer. Try again later."
            ) from None
        if type(value) is records.Failure:
            raise RemoteError(str(serde.deserialize(content, self.worker)))
        if type(value) is not records.Value or (value.kind in ("tensor", "object")) != (
            len(descriptors) == 1
        ):
            raise RemoteError(f"Object {obj_id!r} is in the process of another user, which gave none.")
        value = msgspec.structs.replace(
            value,
            allowed=None if allowed is None else sorted(allowed),
            holder=executor.user,
            is_owners=False,
            is_shared=_is_several(allowed, user),
            failure=value.failure and value.failure[:_LONGEST_FAILURE],
            datasets=[],
            dataset_tags=[],
            computers=sorted(computers & {user}),
        )
        return value, [], descriptors

    def _publish(
        self, session: IsolatedSession, question: records.Publish, _payload: bytearray, descriptors: list[int]
    ) -> _Answered:
        """Keep an object of this user's, for those who may have it, and in the data directory if there is one."""
        said, executor = question.value, session.its_executor
        if len(descriptors) != 1 or said.kind not in ("tensor", "object") or not said.tags:
            raise ProtocolError("An object was published without its value or its tags.")
        try:
            if said.kind == "tensor":
                obj = mapped_tensor(descriptors[0], said.dtype, said.shape)
                name_tensor(obj, question.id, said.tags, said.description)
            else:
                obj = mapped_object(descriptors[0], self.worker, session.limits)
        except NotSealedError as error:
            raise ProtocolError(str(error)) from error
        allowed = None if said.allowed is None else frozenset(said.allowed)
        with worker_lock.held(self._lock):
            executor.given.discard(question.id)  # it has it already
            before = self.worker._entries.get(question.id)
            if before is not None:
                self.worker.policy.check_send(
                    session.user, question.id, self.worker.changeable_by(question.id)
                )
            entry = Entry(
                question.id,
                obj,
                self.worker.policy.on_arrival(allowed, session.user),
                is_private=True,
                failure=said.failure and said.failure[:_LONGEST_FAILURE],
                computers=frozenset(said.computers),
                secret=None if said.secret is None else read_secret(said.secret, self.worker),
                is_released_only=said.is_released_only,
            )
            self.worker.store_entry(entry)
            executor.given.add(question.id)
        return records.Answer(), [], []

    def _search(
        self, session: IsolatedSession, _question: Any, payload: bytearray, _descriptors: Any
    ) -> _Answered:
        terms = serde.deserialize(payload, self.worker)
        if type(terms) is not tuple or not all(type(term) in (int, str) for term in terms):
            raise ProtocolError("A search has numbers and texts as terms.")
        with worker_lock.held(self._lock):
            return _answer(handlers.find(self.worker, terms))

    def _list_ids(self, session: IsolatedSession, *_: Any) -> _Answered:
        policy, worker = self.worker.policy, self.worker
        with worker_lock.held(self._lock):
            return _answer(
                [i for i in list(worker._entries) if policy.may_find(session.user, worker.about(i))]
            )

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

    def _find_peer(self, _session: IsolatedSession, question: records.FindPeer, *_: Any) -> _Answered:
        self._peer(question.worker)
        return _answer(None)

    def _peer_condition(
        self, _session: IsolatedSession, question: records.PeerCondition, *_: Any
    ) -> _Answered:
        return _answer(tuple(self._peer(question.worker)._link.presence.condition()))

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
    ) -> _Answered:
        peer = self._peer(question.worker)
        message = self._to_peer(session, payload)
        if type(message) not in FROM_PEERS:
            answer = peer._recv_msg(message)
            if type(message) is ObjectMessage:
                peer.sync()
            return _answer(answer)
        with presence.among_parties():
            return _answer(peer._recv_msg(message))

    def _tell_peer(
        self, session: IsolatedSession, question: records.TellPeer, payload: bytearray, _: Any
    ) -> _Answered:
        with presence.among_parties():
            self._peer(question.worker)._link.post(self._to_peer(session, payload), at_once=True)
        return _answer(None)

    # -- groups of secret sharing ------------------------------------------------------------------

    def _open_group(self, session: IsolatedSession, question: records.OpenGroup, *_: Any) -> _Answered:
        executor = session.its_executor
        with worker_lock.held(self._lock):
            if question.group in self._groups or any(t in self._tickets for t in question.tickets):
                raise ProtocolError("The id of a new group is that of another.")
            executor.groups[question.group] = question.tickets
            self._groups[question.group] = executor
            self._tickets.update(dict.fromkeys(question.tickets, executor))
        return _answer(None)

    def _route(
        self, session: IsolatedSession, question: records.RouteToGroup, payload: bytearray, _: Any
    ) -> _Answered:
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

    def _delivered(self, lane: Any) -> _Answered:
        record, content, descriptors = lane.receive()
        if type(record) not in (records.Answer, records.Failure) or descriptors:
            raise ChannelClosed("An executor answered a delivery with something else.")
        return record, [content], []

    # -- data sets for training --------------------------------------------------------------------

    def _offered(self, session: IsolatedSession, question: records.Offered, *_: Any) -> _Answered:
        """The names of data sets and on which terms they are offered; or one of them, to a user who may train on it."""
        client, user = self.worker.extension(FederatedClient), session.user
        if question.key is None:
            return _answer(
                {
                    key: (
                        id(dataset) & _VERSION,
                        _told(client.allowed.get(key), user),
                        client.least_in_sum.get(key),
                    )
                    for key, dataset in dict(client.datasets).items()
                }
            )
        policy, key = self.worker.policy, question.key
        if key not in client.datasets or not policy.may_get(user, offered_to(self.worker, user, key)):
            raise GetNotPermittedError(f"User {user!r} is offered no data set {key!r}.")
        dataset = client.datasets[key]
        try:
            descriptor = sealed_object(taken_apart(dataset), self.worker)
        except UnserializableError as error:
            raise RemoteError(
                f"The data set {key!r} is a {type(dataset).__name__}, which cannot be handed to the process of a user: "
                f"{error} Its owner can offer a BaseDataset or a TensorDataset, or serve it with isolation 'none'."
            ) from error
        return records.Value("object"), [], [descriptor]

    # -- releases ----------------------------------------------------------------------------------

    def _release(
        self, session: IsolatedSession, _question: records.Release, payload: bytearray, _: Any
    ) -> _Answered:
        """Have a release of what may only be released computed in a process of its own, which is given that data."""
        message = serde.deserialize(bytes(payload), self.worker, limits=session.limits)
        if type(message) not in RELEASES:
            raise ProtocolError(f"A {type(message).__name__} is no release.")
        record, content = compute_release(self, session, payload)
        mechanism = str(getattr(message, "mechanism", "dpsgd"))[:60]
        is_granted = type(record) is records.Answer
        self.worker.policy.record(
            AuditRecord("release", ids_of_release(message)[0], session.user, is_granted, mechanism)
        )
        return record, [content], []

    # -- budgets -----------------------------------------------------------------------------------

    def _book(self) -> Any:
        desk = self.worker.known_extension(Desk)
        if desk is None:
            raise ReleaseNotPermittedError(f"The owner of worker {self.worker.id!r} has set no budgets.")
        return desk.book

    def _book_records(self, _session: Any, question: records.BookRecords, *_: Any) -> _Answered:
        return _answer(self._book().records_per_person(question.datasets))

    def _book_names(self, *_: Any) -> _Answered:
        return _answer(self._book().datasets())

    def _book_state(self, session: IsolatedSession, question: records.BookState, *_: Any) -> _Answered:
        return _answer(self._book().state(question.dataset, session.user))

    def _book_charge(self, session: IsolatedSession, question: records.BookCharge, *_: Any) -> _Answered:
        """Charge the user of the session. What is charged is written down, by the broker."""
        try:
            event = None if question.event is None else read_event(question.event)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"A charge names an event that there is not: {error}.") from error
        charge = Charge(question.mechanism, event, question.epsilon, question.delta, question.count)
        if not (charge.epsilon >= 0 and charge.delta >= 0 and charge.count >= 1):
            raise ProtocolError("A charge is of numbers that are 0 at least.")
        self._book().charge(question.datasets, session.user, charge, question.records_per_person)
        self.worker.policy.record(
            AuditRecord(
                "charge",
                ", ".join(sorted(set(question.datasets))),
                session.user,
                True,
                f"{question.mechanism[:60]}: epsilon {question.epsilon:g}, delta {question.delta:g}",
            )
        )
        return _answer(None)


def _answer(value: Any) -> _Answered:
    return records.Answer(), [_written(value)], []


def _written(value: Any) -> bytes:
    return b"".join(serde.serialize_frames(value, None, None))


def _told(allowed: frozenset[str] | None, user: str) -> list[str] | None:
    """Who may train on a data set, as one user is told it."""
    return None if allowed is None else sorted(allowed & {user})


def _is_several(allowed: frozenset[str] | None, user: str) -> bool:
    """Whether others than one user may have an object."""
    return allowed is None or bool(allowed - {user})
