"""Who may have what: one policy object per worker, and the log of what it decided.

An object without restriction may be fetched by everybody the policy lets in. A restricted object names its
users. The result of an operation may be fetched only by those allowed on ALL its inputs.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NoReturn

from syft.exceptions import GetNotPermittedError, SendNotPermittedError

Allowed = frozenset[str] | None  #: the users who may fetch an object; None: no restriction


@dataclass(frozen=True)
class AuditRecord:
    """One decision."""

    action: str
    obj_id: Any
    user: str | None
    granted: bool
    reason: str = ""
    time: float = field(default_factory=time.time)


class Policy:
    """The rules of one worker.

    `allows_by_default` is what happens to data that comes without a restriction: True (a VirtualWorker in a
    notebook) leaves it free, False (a worker on a network) restricts it to the user who brought it.
    """

    def __init__(self, allows_by_default: bool = True, audit_length: int = 10_000) -> None:
        self.allows_by_default = allows_by_default
        self.audit_log: deque[AuditRecord] = deque(maxlen=audit_length)

    def on_arrival(self, allowed: Allowed, user: str | None) -> Allowed:
        """Who may fetch data that `user` brought, with `allowed` as its restriction."""
        if allowed is not None or self.allows_by_default:
            return allowed
        return frozenset() if user is None else frozenset({user})

    def may_get(self, user: str | None, allowed: Allowed) -> bool:
        return allowed is None or (user is not None and user in allowed)

    def check_get(
        self, user: str | None, obj_id: Any, allowed: Allowed, reason: str = "", action: str = "get"
    ) -> None:
        """Log the decision; !! GetNotPermittedError if it is no."""
        granted = self.may_get(user, allowed)
        self.audit_log.append(AuditRecord(action, obj_id, user, granted, reason))
        if not granted:
            raise GetNotPermittedError(
                f"{_named(user)} may not {action} object {obj_id!r}: its owner has not allowed it. Ask the "
                "owner to add you to the allowed users, and name yourself with user=..."
            )

    def refuse_shape(self, user: str | None, operation: str) -> NoReturn:
        """Log and refuse an operation on restricted data whose result shape would tell something of it."""
        self.audit_log.append(AuditRecord("learn a shape", operation, user, False))
        raise GetNotPermittedError(
            f"{_named(user)} may not run {operation} on restricted data: the shape of its result depends on "
            "the data and would tell something about it. Use an operation whose result shape is known "
            "beforehand, e.g. torch.where instead of masked indexing, or ask the owner of the data."
        )

    def check_send(self, user: str | None, obj_id: Any, allowed: Allowed, action: str = "replace") -> None:
        """Changing a restricted object needs the same permission as fetching it."""
        if not self.may_get(user, allowed):
            self.audit_log.append(AuditRecord("send", obj_id, user, False, reason=action))
            raise SendNotPermittedError(
                f"{_named(user)} may not {action} object {obj_id!r}: it is private, and its owner has not allowed it. "
                "Work on a copy (`.copy()`), or name an allowed user where the call takes user=..."
            )


def _named(user: str | None) -> str:
    return "Somebody who gave no user name" if user is None else f"User {user!r}"


def intersect(one: Allowed, other: Allowed) -> Allowed:
    """The users allowed by both."""
    if one is None:
        return other
    return one if other is None else one & other
