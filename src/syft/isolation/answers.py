"""`Answers`: what a broker answers to the questions of executors, from its own table and its own policy.

An executor may be under its user's control: nothing that it says about objects, users or budgets is believed but what
could only be to the cost of its own user.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from syft import serde
from syft.core import worker_lock
from syft.core.structs import prepared
from syft.dp.asked_release import text_of_charge
from syft.dp.composition import Charge
from syft.dp.events import read_event
from syft.dp.provenance import names_of
from syft.dp.release import Desk
from syft.exceptions import (
    GetNotPermittedError,
    ProtocolError,
    ReleaseNotPermittedError,
    RemoteError,
)
from syft.federated.federated_client import FederatedClient
from syft.federated.fit_handlers import offered_to, policy_shows
from syft.federated.offers import described
from syft.isolation import records
from syft.isolation.brokered import RELEASES, ids_of_release, read_secret
from syft.isolation.channel import ChannelClosed
from syft.isolation.executors import Executor, Executors
from syft.isolation.offered import taken_apart
from syft.isolation.peer_answers import Answered, PeerAnswers, answered, written
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
from syft.mpc.supplies import keeper_of
from syft.policy.caller import speaking_for
from syft.policy.permissions import About, AuditRecord
from syft.requests import keeper as queue
from syft.requests.approvals import Prepared, Requests, Use
from syft.requests.book import MOST_VALUE
from syft.requests.records import Ask
from syft.serde.errors import UnserializableError
from syft.workers import handlers
from syft.workers.entry import Entry

_LONGEST_FAILURE = 300
_MOST_REQUEST = MOST_VALUE + (1 << 20)


Asking = IsolatedSession | ReleaseSession


class Answers(PeerAnswers):
    """The part of a broker that answers; `answer` is the way in.

    _offers   objects without tags that users let others use: in whose process, and who may have them
    """

    executors: Executors

    def __init__(self, worker: Any, sealed: Sealed | None) -> None:
        super().__init__(worker)
        self.sealed = sealed or Sealed()
        self._salt = secrets.token_bytes(16)
        self._offers: dict[Any, tuple[Executor, frozenset[str] | None, frozenset[str]]] = {}
        self._answers: dict[type, Callable[..., Answered]] = {
            **self.peer_answers(),
            records.Lookup: self._look_up,
            records.Publish: self._publish,
            records.Search: self._search,
            records.ListIds: self._list_ids,
            records.BookRecords: self._book_records,
            records.BookNames: self._book_names,
            records.BookState: self._book_state,
            records.BookCharge: self._book_charge,
            records.Release: self._release,
            records.Offered: self._offered,
            records.PutPart: self._put_part,
            records.TakePart: self._take_part,
            records.ListSupplies: self._list_supplies,
            records.DropSupply: self._drop_supply,
            records.FileRequest: self._file_request,
            records.AboutRequests: self._about_requests,
            records.UseApproval: self._use_approval,
            records.TakeValue: self._take_value,
        }

    # -- questions ---------------------------------------------------------------------------------

    def answer(self, session: Asking, question: Any, payload: bytearray, descriptors: list[int]) -> Answered:
        """!! whatever the executor is to hear instead; ChannelClosed for what no executor asks"""
        handler = self._answers.get(type(question))
        if handler is None or session.executor is None or not session.permits(question):
            raise ChannelClosed(f"An executor sent {type(question).__name__}, which no executor asks.")
        with speaking_for(session.user, getattr(session.connection, "peer", "")):
            return handler(session, question, payload, descriptors)

    # -- objects -----------------------------------------------------------------------------------

    def _look_up(self, session: IsolatedSession, question: records.Lookup, *_: Any) -> Answered:
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

    def _given(self, executor: Executor, user: str, entry: Entry) -> Answered:
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
            None if not is_permitted or entry.secret is None else written(entry.secret),
            entry.is_released_only,
            entry.person_column,
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
    ) -> Answered:
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
    ) -> Answered:
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
    ) -> Answered:
        terms = serde.deserialize(payload, self.worker)
        if type(terms) is not tuple or not all(type(term) in (int, str) for term in terms):
            raise ProtocolError("A search has numbers and texts as terms.")
        with worker_lock.held(self._lock):
            return answered(handlers.find(self.worker, terms))

    def _list_ids(self, session: IsolatedSession, *_: Any) -> Answered:
        policy, worker = self.worker.policy, self.worker
        with worker_lock.held(self._lock):
            return answered(
                [i for i in list(worker._entries) if policy.may_find(session.user, worker.about(i))]
            )

    # -- data sets for training --------------------------------------------------------------------

    def _offered(self, session: IsolatedSession, question: records.Offered, *_: Any) -> Answered:
        """The names of data sets and on which terms they are offered; or one of them, to a user who may train on it."""
        client, user = self.worker.extension(FederatedClient), session.user
        if question.key is None:
            return answered(
                {
                    key: (
                        self._version_of(client.datasets[key]) if key in client.datasets else None,
                        _told(client.allowed.get(key), user),
                        client.least_in_sum.get(key),
                        info,
                        key in client.on_request,
                        client.minimum_noise.get(key),
                    )
                    for key, info in {**dict.fromkeys(client.datasets), **client.infos}.items()
                    if info is None or policy_shows(self.worker, user, info)
                }
            )
        policy, key = self.worker.policy, question.key
        if question.is_described and key in client.on_request and key in client.datasets:
            return answered(described(self.worker, client.datasets[key]))
        dataset = client.datasets.get(key)
        # NB: an approval is of the data set as it was; another of that name takes another approval.
        may_train = policy.may_get(user, offered_to(self.worker, user, key))
        if dataset is None or not (may_train or session.its_executor.trains_on.get(key) is dataset):
            raise GetNotPermittedError(f"User {user!r} is offered no data set {key!r}.")
        try:
            descriptor = sealed_object(taken_apart(dataset), self.worker)
        except UnserializableError as error:
            raise RemoteError(
                f"The data set {key!r} is a {type(dataset).__name__}, which cannot be handed to the process of a user: "
                f"{error} Its owner can offer a BaseDataset or a TensorDataset, or serve it with isolation 'none'."
            ) from error
        return records.Value("object"), [], [descriptor]

    def _version_of(self, dataset: Any) -> int:
        """A number that is another one for another object, and tells nothing of where it is in the broker's memory."""
        digest = hashlib.blake2b(str(id(dataset)).encode(), key=self._salt, digest_size=7).digest()
        return int.from_bytes(digest)

    # -- supplies of correlations --------------------------------------------------------------------

    def _put_part(
        self, session: IsolatedSession, question: records.PutPart, payload: bytearray, _: Any
    ) -> Answered:
        place = question.name, question.lot, question.call
        keeper_of(self.worker).put(session.user, *place, question.about, bytes(payload))
        return answered(None)

    def _take_part(self, session: IsolatedSession, question: records.TakePart, *_: Any) -> Answered:
        content = keeper_of(self.worker).take(session.user, question.name, question.lot, question.call)
        return records.Answer(), [content], []

    def _list_supplies(self, session: IsolatedSession, *_: Any) -> Answered:
        return answered(keeper_of(self.worker).listing(session.user))

    def _drop_supply(self, session: IsolatedSession, question: records.DropSupply, *_: Any) -> Answered:
        keeper_of(self.worker).drop(session.user, question.name)
        return answered(None)

    # -- releases ----------------------------------------------------------------------------------

    def _release(
        self, session: IsolatedSession, _question: records.Release, payload: bytearray, _: Any
    ) -> Answered:
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
            raise ReleaseNotPermittedError(
                f"The owner of worker {self.worker.id!r} has set no budgets. Ask them for one (`syft budget set`, `syft "
                "worker --budgets`)."
            )
        return desk.book

    def _book_records(self, _session: Any, question: records.BookRecords, *_: Any) -> Answered:
        return answered(self._book().records_per_person(question.datasets))

    def _book_names(self, *_: Any) -> Answered:
        return answered(self._book().datasets())

    def _book_state(self, session: IsolatedSession, question: records.BookState, *_: Any) -> Answered:
        return answered(self._book().state(question.dataset, session.user))

    def _book_charge(self, session: IsolatedSession, question: records.BookCharge, *_: Any) -> Answered:
        """Charge the user of the session. What is charged is written down, by the broker."""
        try:
            event = None if question.event is None else read_event(question.event)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"A charge names an event that there is not: {error}.") from error
        charge = Charge(question.mechanism, event, question.epsilon, question.delta, question.count)
        if question.is_approved:
            approved, session.its_executor.approved = session.its_executor.approved, None
            if approved != (text_of_charge(charge), tuple(sorted(set(question.datasets)))):
                raise ProtocolError("A charge is said to be approved, and the owner has approved another.")
        self._book().charge(
            question.datasets,
            session.user,
            charge,
            question.records_per_person,
            is_approved=question.is_approved,
        )
        self.worker.policy.record(
            AuditRecord(
                "charge",
                ", ".join(sorted(set(question.datasets))),
                session.user,
                True,
                f"{question.mechanism[:60]}: epsilon {question.epsilon:g}, delta {question.delta:g}",
            )
        )
        return answered(None)

    # -- requests ----------------------------------------------------------------------------------

    def _file_request(
        self, session: IsolatedSession, question: records.FileRequest, payload: bytearray, _: Any
    ) -> Answered:
        """Put a request of this user's into the queue. What it says is theirs to say, and goes to the owner."""
        if len(payload) > _MOST_REQUEST:
            raise ProtocolError(f"A request has {len(payload)} bytes.")
        try:
            ask, value = msgspec.msgpack.decode(payload, type=prepared(tuple[Ask, bytes | None]))
        except msgspec.DecodeError as error:
            raise ProtocolError(f"A request cannot be read: {error}.") from error
        asked = Prepared(ask, question.about, value)
        return answered(queue.keeper_of(self.worker).file(session.user, asked, question.token))

    def _about_requests(self, session: IsolatedSession, question: records.AboutRequests, *_: Any) -> Answered:
        keeper = queue.keeper_of(self.worker)
        if question.action == "room":
            keeper.check_room(session.user, max(0, question.nbytes))
            return answered(None)
        return answered(keeper.ask(session.user, question.action, question.request))

    def _use_approval(self, session: IsolatedSession, question: records.UseApproval, *_: Any) -> Answered:
        """Count the use of an approval, and note what it lets this executor do."""
        requests, executor = self.worker.known_extension(Requests), session.its_executor
        if requests is None or requests.keeper is None:
            return answered(None)
        use, key = Use(*msgspec.structs.astuple(question)), str(question.about)
        dataset = self.worker.extension(FederatedClient).datasets.get(key)
        found = requests.keeper.use(session.user, use)
        if found is not None and question.kind == "release":
            executor.approved = found.charge, found.datasets
        if found is not None and question.kind == "train":
            executor.trains_on[key] = dataset
        return answered(found)

    def _take_value(self, session: IsolatedSession, question: records.TakeValue, *_: Any) -> Answered:
        return answered(queue.keeper_of(self.worker).take(session.user, question.request))


def _told(allowed: frozenset[str] | None, user: str) -> list[str] | None:
    """Who may train on a data set, as one user is told it."""
    return None if allowed is None else sorted(allowed & {user})


def _is_several(allowed: frozenset[str] | None, user: str) -> bool:
    """Whether others than one user may have an object."""
    return allowed is None or bool(allowed - {user})
