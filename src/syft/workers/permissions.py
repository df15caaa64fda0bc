"""Who may have what: one policy object per worker, and the log of what it decided.

An object without restriction may be fetched by everybody the policy lets in. A restricted object names its
users. The result of an operation may be fetched only by those allowed on ALL its inputs.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

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

    `allows_by_default` is what happens to objects without restriction: True for a VirtualWorker in a
    notebook, False for a worker on a network.
    """

    def __init__(self, allows_by_default: bool = True, audit_length: int = 10_000) -> None:
        self.allows_by_default = allows_by_default
        self.audit_log: deque[AuditRecord] = deque(maxlen=audit_length)

    def may_get(self, user: str | None, allowed: Allowed) -> bool:
        if allowed is None:
            return self.allows_by_default
        return user is not None and user in allowed

    def check_get(
        self, user: str | None, obj_id: Any, allowed: Allowed, reason: str = "", action: str = "get"
    ) -> None:
        """Log the decision; !! GetNotPermittedError if it is no."""
        granted = self.may_get(user, allowed)
        self.audit_log.append(AuditRecord(action, obj_id, user, granted, reason))
        if not granted:
            raise GetNotPermittedError(
                f"{_named(user)} may not {action} object {obj_id!r}: its owner has not allowed it. Ask the "
                "owner to add you to the allowed users, and name yourself with get(user=...)."
            )

    def check_send(self, user: str | None, obj_id: Any, allowed: Allowed) -> None:
        """Overwriting or passing on a restricted object needs the same permission as fetching it."""
        granted = allowed is None or (user is not None and user in allowed)
        if not granted:
            self.audit_log.append(AuditRecord("send", obj_id, user, False))
            raise SendNotPermittedError(
                f"{_named(user)} may not send object {obj_id!r}: its owner has not allowed it. "
                "Name an allowed user with send(worker, user=...)."
            )


def _named(user: str | None) -> str:
    return "Somebody who gave no user name" if user is None else f"User {user!r}"


def intersect(one: Allowed, other: Allowed) -> Allowed:
    """The users allowed by both."""
    if one is None:
        return other
    return one if other is None else one & other
