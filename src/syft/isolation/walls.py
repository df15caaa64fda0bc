"""The worker inside an executor: one user's objects, and what the broker lets in.

NOTE [What is where]
An executor has a whole worker: the store, the guards, the pipeline. Its table holds what this user brought and computed.
Whatever else is referred to is asked of the broker, which looks into its own table and its own policy, and answers with
sealed memory that may be read, or with metadata alone. Ids are each user's own: nobody's object can be replaced from
another's process.

- What has tags goes to the broker as sealed memory when it is stored, before the command is acknowledged: others find it
  there, a data directory keeps it, and it outlives this process. It goes there again after it was written into.
- What others may use without tags is told to the broker by id, and fetched from here when they do.
- Budgets, peers and the audit log are the broker's: see `brokered`.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import torch

from syft import serde
from syft.core.identity import tags_of
from syft.data.data_directory import is_durable
from syft.dp.release import Desk
from syft.exceptions import ObjectNotFoundError, RemoteError, SendNotPermittedError, UnsupportedOperationError
from syft.isolation import records
from syft.isolation.broker_lane import ask
from syft.isolation.brokered import read_secret
from syft.isolation.channel import close_all
from syft.isolation.sealed import (
    DTYPES,
    is_plain,
    mapped_object,
    mapped_tensor,
    name_of,
    name_tensor,
    sealed_object,
    sealed_tensor,
)
from syft.policy.owner_policy import OwnerPolicy, Rules
from syft.policy.permissions import AuditRecord
from syft.policy.quotas import OWNER, UNLIMITED, Quota
from syft.workers.entry import Entry
from syft.workers.guards import Guard
from syft.workers.virtual import VirtualWorker

_MOST_LINES = 256
_LONGEST_LINE = 250


class ExecutorPolicy(OwnerPolicy):
    """The owner's rules as far as one user needs them; what is decided is told to the broker, which writes it down."""

    def __init__(self, user: str, rules: Rules) -> None:
        super().__init__(rules)
        self.name = user
        self.lines: list[records.Line] = []
        self.audit_sink = self._note

    def quota_of(self, user: str | None) -> Quota:
        return super().quota_of(user) if user == self.name else UNLIMITED

    def _note(self, record: AuditRecord) -> None:
        if len(self.lines) < _MOST_LINES:
            obj_id = (
                record.obj_id
                if type(record.obj_id) is int and abs(record.obj_id) < 1 << 62
                else None
                if record.obj_id is None
                else str(record.obj_id)[:_LONGEST_LINE]
            )
            self.lines.append(
                records.Line(record.action[:50], obj_id, record.granted, record.reason[:_LONGEST_LINE])
            )


class Walls(Guard):
    """Notes what the broker has to hear of: see NOTE [What is where]."""

    def __init__(self, worker: ExecutorWorker) -> None:
        self._worker = worker

    def store(self, worker: Any, entry: Entry, before: Entry | None) -> None:
        allowed, mine = entry.allowed, worker.mine
        if entry.computers or (
            allowed is not mine and allowed != mine and (allowed is None or allowed - mine)
        ):
            worker.offers[entry.id] = entry
            worker.told.discard(entry.id)
        worker.imported.discard(entry.id)
        worker.shared.discard(entry.id)

    def written(self, entry: Entry) -> None:
        if entry.id in self._worker.shared:
            raise SendNotPermittedError(
                f"User {self._worker.user!r} may not write into object {entry.id!r}: other users have it, too, each in a "
                "process of their own, and would not see it. Work on a copy (`.copy()`)."
            )
        self.may_be_written(entry)

    def may_be_written(self, entry: Entry) -> None:
        if entry.id in self._worker.published:
            self._worker.dirty[entry.id] = entry

    def drop(self, entry: Entry, heir: Entry | None) -> None:
        worker = self._worker
        if heir is None:
            worker.forget_here(entry.id)


class ExecutorWorker(VirtualWorker):
    """See NOTE [What is where].

    published  ids of objects that the broker has, too
    imported   ids of objects that are the broker's or another user's
    shared     those of them that several users may change, so that none does
    """

    def __init__(self, hook: Any, id: Any, user: str, rules: Rules) -> None:
        super().__init__(hook, id, auto_add=False, policy=ExecutorPolicy(user, rules))
        self.user, self.mine = user, frozenset({user})
        self.published: set[Any] = set()
        self.imported: set[Any] = set()
        self.shared: set[Any] = set()
        self.offers: dict[Any, Entry] = {}
        self.told: set[Any] = set()
        self.dirty: dict[Any, Entry] = {}
        self.dropped: list[Any] = []
        #: Ids that the broker has told this user of.
        self.elsewhere: set[Any] = set()
        self.began = time.time()
        #: Whether it is for one release of what may only be released, and is given that.
        self.computes_releases = False
        self._is_forgetting = False
        self.guards.append(Walls(self))

    @property
    def lines(self) -> list[records.Line]:
        return self.policy.lines  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        return {"id": self.id, "uptime": time.time() - self.began}

    # -- what the broker has -----------------------------------------------------------------------

    def entry_of(self, obj_id: Any) -> Entry:
        try:
            found = self._entries.get(obj_id)
        except TypeError:
            found = None
        return found if found is not None else self.bring_in(obj_id)

    def look_for(self, obj_id: Any) -> None:
        """Bring an object in, if there is one."""
        with contextlib.suppress(ObjectNotFoundError):
            self.bring_in(obj_id)

    def bring_in(self, obj_id: Any) -> Entry:
        """An object that is not here. !! ObjectNotFoundError"""
        if type(obj_id) not in (int, str) or (type(obj_id) is int and abs(obj_id) >= 1 << 62):
            raise ObjectNotFoundError(obj_id, self)
        value, _, descriptors = ask(records.Lookup(obj_id), waits=True)
        try:
            if type(value) is not records.Value or value.kind == "none":
                raise ObjectNotFoundError(obj_id, self)
            there = self._entries.get(obj_id)  # another thread may have been faster
            return there if there is not None else self._put(obj_id, value, descriptors)
        finally:
            close_all(descriptors)

    def _put(self, obj_id: Any, value: records.Value, descriptors: list[int]) -> Entry:
        is_mine = value.holder == self.user and not value.is_owners
        made = self._made(value, descriptors)
        if value.kind == "tensor" and not value.is_owners and not value.is_shared:
            made = made.clone()  # nobody else may change it
        if value.kind == "tensor" or value.kind == "withheld":
            name_tensor(made, obj_id, value.tags, value.description)
        entry = Entry(
            obj_id,
            made,
            None if value.allowed is None else frozenset(value.allowed),
            holder=OWNER if value.is_owners else value.holder,
            is_private=value.is_private,
            is_owners=value.is_owners,
            failure=value.failure,
            computers=frozenset(value.computers),
            secret=None if value.secret is None else read_secret(value.secret, self),
            is_released_only=value.is_released_only,
            person_column=value.person_column,
        )
        if self._holdings is not None:  # NB: it always is, where the policy is guarded
            self._holdings.charge(entry)
        self.put_entry(entry)
        if is_mine:
            self.published.add(obj_id)
        else:
            self.imported.add(obj_id)
            if value.is_shared and not value.is_owners:
                self.shared.add(obj_id)
        self._declare(obj_id, made, value)
        return entry

    def _made(self, value: records.Value, descriptors: list[int]) -> Any:
        if value.kind == "withheld":
            return torch.empty(value.shape, dtype=DTYPES.get(value.dtype, torch.float32), device="meta")
        if value.kind == "tensor" and len(descriptors) == 1:
            return mapped_tensor(descriptors[0], value.dtype, value.shape)
        if value.kind == "object" and len(descriptors) == 1:
            return mapped_object(descriptors[0], self, serde.Limits())
        raise RemoteError("The broker answered with an object that cannot be read.")

    def _declare(self, obj_id: Any, tensor: Any, value: records.Value) -> None:
        desk = self.known_extension(Desk)
        is_known = value.kind == "tensor" or value.is_released_only
        if desk is None or desk.tagged is None or not is_known or not value.is_owners:
            return
        for tag in value.dataset_tags:
            desk.tagged.setdefault(tag, []).append(obj_id)
        for name in {*value.datasets, *(tag for tag in value.dataset_tags if tag in desk.declared)}:
            desk.provenance.declare(tensor, name)

    def store_entry(self, entry: Entry) -> None:
        if entry.id in self.elsewhere and entry.id not in self._entries:
            self.look_for(entry.id)  # whether it may be replaced, is decided as for any object
        super().store_entry(entry)

    # -- what others may use -----------------------------------------------------------------------

    def _persist(self, entry: Entry) -> None:
        if tags_of(entry.value) and is_durable(entry.value):
            self._publish(entry)
        elif entry.id in self.published:
            self.published.discard(entry.id)
            self.dropped.append(entry.id)

    def _publish(self, entry: Entry) -> None:
        value, descriptor = self.exported(entry)
        try:
            ask(records.Publish(entry.id, value), (), [descriptor])
        finally:
            os.close(descriptor)
        self.published.add(entry.id)
        self.offers.pop(entry.id, None)

    def exported(self, entry: Entry) -> tuple[records.Value, int]:
        """An object of this user's for others. !! UnserializableError"""
        obj, allowed = entry.value, entry.allowed
        if type(obj) is torch.Tensor and not is_plain(obj):
            raise UnsupportedOperationError(
                "handing over such a tensor",
                torch.Tensor,
                "Make it dense first: `.to_dense()`, `.resolve_conj()`.",
            )
        is_tensor = is_plain(obj)
        value = records.Value(
            "tensor" if is_tensor else "object",
            name_of(obj.dtype) if is_tensor else "",
            list(obj.shape) if is_tensor else [],
            sorted(map(str, tags_of(obj))),
            getattr(obj, "description", None) if tags_of(obj) or not is_tensor else None,
            None if allowed is None else sorted(allowed),
            self.user,
            is_private=entry.is_private,
            failure=entry.failure,
            computers=sorted(entry.computers or ()),
            secret=None
            if entry.secret is None
            else b"".join(serde.serialize_frames(entry.secret, None, None)),
            is_released_only=entry.is_released_only,
        )
        return value, sealed_tensor(obj) if is_tensor else sealed_object(obj, self)

    def offers_to_tell(self) -> list[records.Offer]:
        """What others may use, and the broker has not heard of."""
        found = []
        for obj_id, entry in self.offers.items():
            if obj_id not in self.told and self._entries.get(obj_id) is entry:
                self.told.add(obj_id)
                found.append(
                    records.Offer(
                        obj_id,
                        None if entry.allowed is None else sorted(entry.allowed),
                        sorted(entry.computers or ()),
                    )
                )
        return found

    def publish_again(self) -> None:
        """What was written into in this frame."""
        while self.dirty:
            obj_id, entry = self.dirty.popitem()
            if self._entries.get(obj_id) is entry:
                self._publish(entry)

    # -- what goes ---------------------------------------------------------------------------------

    def forget_here(self, obj_id: Any) -> None:
        """An object left the table: the broker hears of it, if it had it."""
        is_known = obj_id in self.published or obj_id in self.imported or obj_id in self.offers
        for known in (self.published, self.imported, self.shared, self.told):
            known.discard(obj_id)
        self.offers.pop(obj_id, None)
        self.dirty.pop(obj_id, None)
        if is_known and not self._is_forgetting:
            self.dropped.append(obj_id)

    def forget(self, ids: list[Any]) -> None:
        """The broker has let these go, or has them otherwise."""
        self._is_forgetting = True
        try:
            for obj_id in ids:
                if obj_id in self.imported or obj_id in self.published:
                    self.force_rm_obj(obj_id)
        finally:
            self._is_forgetting = False

    def follow(self, rules: Rules) -> None:
        """The owner has changed the policy: what was let in is looked at anew."""
        self.policy.rules = rules
        self.forget(list(self.imported))
