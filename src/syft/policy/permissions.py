"""Who may have what: one policy object per worker, and the log of what it decided.

An object without restriction may be fetched by everybody the policy lets in. A restricted object names its
users. The result of an operation may be fetched only by those allowed on ALL its inputs.

NOTE [Whose objects]
A policy that does not allow by default is *guarded*: its worker notes who brought or computed each object. What the
owner of the worker put there cannot be changed or removed by messages, whoever sends them; what a user brought
or computed can be removed by that user and by those who may fetch it. A search shows the owner's data, and what the
one who asks may fetch.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import msgspec

from syft.core.interfaces import Id
from syft.exceptions import GetNotPermittedError, SendNotPermittedError
from syft.policy.activity import Activity
from syft.policy.caller import current_peer, is_proved
from syft.policy.quotas import UNLIMITED, Quota

Allowed = frozenset[str] | None  #: the users who may fetch an object; None: no restriction


class AuditRecord(msgspec.Struct, frozen=True):
    """One decision."""

    action: str
    obj_id: Id | None
    user: str | None
    granted: bool
    reason: str = ""
    time: float = msgspec.field(default_factory=time.time)
    peer: str = ""  # the address of the one who asked, where there is one
    reported: bool = False  # the process of the user said so, and nobody has checked it (`syft.isolation`)


class About(NamedTuple):
    """What a policy is told about an object."""

    allowed: Allowed = None
    tags: Collection[str] = ()
    holder: str | None = None  # the user who brought or computed it
    is_owners: bool = False  # the owner of the worker put it there
    computers: Collection[str] = ()  # those whom the one who brought it lets compute with it


@lru_cache(maxsize=1024)
def about_own(user: str | None) -> About:
    """What a policy is told about something that its user brought or computed, whatever it is."""
    return About(holder=user)


class Policy:
    """The rules of one worker.

    `allows_by_default` is what happens to data that comes without a restriction: True (a VirtualWorker in a
    notebook) leaves it free, False (a worker on a network) restricts it to the user who brought it.
    """

    def __init__(self, allows_by_default: bool = True, audit_length: int = 10_000) -> None:
        self.allows_by_default = allows_by_default
        self.audit_log: deque[AuditRecord] = deque(maxlen=audit_length)
        #: How many decisions there were: granted -> count
        self.decisions: Counter[bool] = Counter()
        #: Is handed every record as well, e.g. an `AuditLog` that writes it to a file.
        self.audit_sink: Callable[[AuditRecord], None] | None = None
        #: What is counted for it.
        self.activity = Activity()

    @property
    def is_guarded(self) -> bool:
        """Whether the worker notes who brought or computed each object, see NOTE [Whose objects]."""
        return not self.allows_by_default

    def record(self, record: AuditRecord) -> None:
        """Write a decision down, and where the one who asked is."""
        if not record.peer:
            peer = current_peer()
            if peer:
                record = msgspec.structs.replace(record, peer=peer)
        obj_id = record.obj_id
        is_short = obj_id is None or (type(obj_id) is int and obj_id.bit_length() <= _MOST_LOGGED)
        if record.reason or not is_short:
            record = _in_short(record)
        self.audit_log.append(record)
        self.decisions[record.granted] += 1
        if self.audit_sink is not None:
            self.audit_sink(record)

    def count(self, kind: str, user: str | None, number: int = 1) -> None:
        """Note what is too frequent for a line each, such as searches: see `write_activity`."""
        if self.audit_sink is not None:
            self.activity.count(kind, user, number)

    def write_activity(self, all_of_it: bool = False) -> None:
        """Write what was counted to the audit log, a line for each user and kind, if a minute has passed."""
        sink = self.audit_sink
        for user, kind, number, seconds in self.activity.due(all_of_it):
            record = AuditRecord(kind, None, user, True, f"{number} in {max(1, round(seconds))} s")
            self.audit_log.append(record)
            if sink is not None:
                sink(record)

    def quota_of(self, user: str | None) -> Quota:
        """How much a user may hold."""
        return UNLIMITED

    def on_registration(self, allowed: Allowed, tags: Collection[str] = ()) -> Allowed:
        """Who may fetch data that the owner of the worker put there."""
        return self.on_arrival(allowed, None)

    def on_result(self, allowed: Allowed, user: str | None) -> Allowed:
        """Who may fetch what `user` computed from objects of which all are allowed to `allowed`."""
        return allowed

    def on_arrival(self, allowed: Allowed, user: str | None) -> Allowed:
        """Who may fetch data that `user` brought, with `allowed` as its restriction."""
        if allowed is not None or self.allows_by_default:
            return allowed
        return frozenset() if user is None else frozenset({user})

    def may_get(self, user: str | None, allowed: Allowed) -> bool:
        return allowed is None or (user is not None and user in allowed)

    def may_change(self, user: str | None, allowed: Allowed) -> bool:
        """Changing an object needs the same permission as fetching it."""
        return allowed is None or (user is not None and user in allowed)

    def may_find(self, user: str | None, about: About) -> bool:
        """Whether a search of `user` shows an object."""
        return (
            self.allows_by_default
            or about.is_owners
            or user == about.holder
            or user in about.computers
            or self.may_get(user, about.allowed)
        )

    def check_connect(self, user: str | None) -> None:
        """!! ConnectNotPermittedError if a user is not let in; whoever asks writes it down. Here everybody is."""

    def check_compute(self, user: str | None, obj_id: Id, about: About) -> None:
        """!! ComputeNotPermittedError if `user` may not use an object in computations. Here everybody may."""

    def check_get(
        self,
        user: str | None,
        obj_id: Id,
        allowed: Allowed,
        reason: str = "",
        action: str = "get",
        has_budgets: bool = False,
    ) -> None:
        """Log the decision; !! GetNotPermittedError if it is no.

        `has_budgets`: the worker releases statistics with noise, of whatever its owner set a budget for.
        """
        granted = self.may_get(user, allowed)
        # NB: with the peer, or `record` would make another.
        self.record(AuditRecord(action, obj_id, user, granted, reason, peer=current_peer()))
        if not granted:
            raise GetNotPermittedError(
                f"{_named(user)} may not {action} object {_cut(repr(obj_id))}: its owner has not allowed it. Ask the "
                f"owner to add you to the allowed users{_HOW_TO_SPEAK if user is None and not is_proved() else ''}"
                f"{', or to let you have this one value: pointer.request(reason=...)' if action == 'get' else ''}."
                f"{_HOW_TO_RELEASE if has_budgets else ''}"
            )

    def refuse_shape(self, user: str | None, operation: str) -> NoReturn:
        """Log and refuse an operation on restricted data whose result shape would tell something of it."""
        self.record(AuditRecord("learn a shape", operation, user, False))
        raise GetNotPermittedError(
            f"{_named(user)} may not run {operation} on restricted data: the shape of its result depends on "
            "the data and would tell something about it. Use an operation whose result shape is known "
            "beforehand, e.g. torch.where instead of masked indexing, or ask the owner of the data."
        )

    def check_send(self, user: str | None, obj_id: Id, allowed: Allowed, action: str = "replace") -> None:
        """!! SendNotPermittedError if `user` may not change an object that may be changed by `allowed`."""
        if not self.may_change(user, allowed):
            self.record(AuditRecord("send", obj_id, user, False, reason=action))
            raise SendNotPermittedError(
                f"{_named(user)} may not {action} object {_cut(repr(obj_id))}: it is private, and its owner has not "
                f"allowed it. Work on a copy (`.copy()`){_HOW_TO_WRITE if not is_proved() else ''}."
            )


#: Longest prefix of a caller-chosen string that the log keeps: nobody is charged for the log.
_MOST_LOGGED = 200


def _in_short(record: AuditRecord) -> AuditRecord:
    """A record without the rest of long texts."""
    obj_id = record.obj_id
    if obj_id is not None and (type(obj_id) is not int or obj_id.bit_length() > _MOST_LOGGED):
        obj_id = "a very large number" if type(obj_id) is int else _cut(obj_id)
    reason = _cut(record.reason)
    if obj_id == record.obj_id and reason == record.reason:
        return record
    return msgspec.structs.replace(record, obj_id=obj_id, reason=reason)


def _cut(value: Any) -> str:
    text = value if type(value) is str else str(value)
    return text if len(text) <= _MOST_LOGGED else f"{text[:_MOST_LOGGED]}..."


_HOW_TO_SPEAK = ", and name yourself with user=..."
# NB: the same for every object. Which data has a budget, and for whom, is told by `worker.budget`.
_HOW_TO_RELEASE = (
    " Statistics with noise can be had of data that the owner set a budget for: worker.release(data, 'mean', "
    "epsilon=..., bounds=(low, high)); worker.budget(dataset) tells how much is left."
)
_HOW_TO_WRITE = ", or name an allowed user where the call takes user=..."


def _named(user: str | None) -> str:
    return "Somebody who gave no user name" if user is None else f"User {user!r}"


def intersect(one: Allowed, other: Allowed) -> Allowed:
    """The users allowed by both."""
    if one is None or one is other:
        return other
    return one if other is None or one == other else one & other
