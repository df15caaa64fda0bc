"""How much each user may hold on a worker, and holds: objects and bytes, as plain counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from syft.exceptions import QuotaExceededError

User = str | None  #: None: somebody who proved no name
#: Holds what the owner of the worker put there. No user has this name, see syft.identity.names.
OWNER = ""


class Quota(NamedTuple):
    """What a user may hold; None: no limit."""

    max_objects: int | None = None
    max_bytes: int | None = None


UNLIMITED = Quota()


class Usage(NamedTuple):
    """What a user holds."""

    objects: int = 0
    bytes: int = 0


class _Count(Struct, eq=False, gc=False):
    objects: int = 0
    bytes: int = 0


class Quotas:
    """Counts of objects and bytes per user. Every call is O(1), and any thread may make it."""

    def __init__(self, quota_of: Callable[[User], Quota] = lambda _user: UNLIMITED) -> None:
        self.quota_of = quota_of
        self._used: dict[User, _Count] = {}
        self._lock = threading.Lock()

    def charge(self, user: User, nbytes: int, count: int = 1, quota: Quota | None = None) -> None:
        """Note that a user holds so much more. !! QuotaExceededError if that is too much; nothing is noted then

        `quota` is the user's, if it was asked for already.
        """
        if quota is None:
            quota = self.quota_of(user)
        with self._lock:
            used = self._used.get(user) or _Count()
            if quota is not UNLIMITED:
                _check(user, used, nbytes, count, quota)
            used.objects += count
            used.bytes += nbytes
            if used.objects or used.bytes:
                self._used[user] = used

    def check(self, user: User, nbytes: int, count: int = 1) -> None:
        """!! QuotaExceededError if a user may not hold so much more"""
        quota = self.quota_of(user)
        if quota is not UNLIMITED:
            with self._lock:
                _check(user, self._used.get(user) or _Count(), nbytes, count, quota)

    def release(self, user: User, nbytes: int, count: int = 1) -> None:
        """Note that a user holds so much less."""
        with self._lock:
            used = self._used.get(user) or _Count()
            if count > used.objects or nbytes > used.bytes:
                raise ValueError(
                    f"release() was called with {count} objects and {nbytes} bytes for {_named(user)}, who holds "
                    f"{used.objects} and {used.bytes}. Release what was charged, once."
                )
            used.objects -= count
            used.bytes -= nbytes
            if not used.objects and not used.bytes:
                self._used.pop(user, None)

    def left(self, user: User) -> tuple[int | None, int | None, int | None]:
        """How many bytes a user may hold in all, and how many bytes and objects more; None: any number."""
        quota, used = self.quota_of(user), self._used.get(user) or _Count()
        most = quota.max_bytes
        return (
            most,
            None if most is None else max(0, most - used.bytes),
            None if quota.max_objects is None else max(0, quota.max_objects - used.objects),
        )

    def bytes_left(self, user: User) -> int | None:
        """How many more bytes a user may hold; None: any number."""
        return self.left(user)[1]

    def usage(self, user: User) -> Usage:
        with self._lock:
            used = self._used.get(user) or _Count()
            return Usage(used.objects, used.bytes)

    def users(self) -> dict[User, Usage]:
        """What everybody holds who holds something."""
        with self._lock:
            return {user: Usage(used.objects, used.bytes) for user, used in self._used.items()}


def _check(user: User, used: _Count, nbytes: int, count: int, quota: Quota) -> None:
    """!! QuotaExceededError if so much more is too much"""
    if quota.max_objects is not None and count > 0 and used.objects + count > quota.max_objects:
        raise QuotaExceededError(
            f"{_named(user)} holds {used.objects} objects on this worker, and {quota.max_objects} is the most "
            "the owner allows. Drop pointers that are not needed any more, or ask the owner for more."
        )
    if quota.max_bytes is not None and nbytes > 0 and used.bytes + nbytes > quota.max_bytes:
        raise QuotaExceededError(
            f"{_named(user)} holds {used.bytes} bytes on this worker and asked to keep {nbytes} more, and "
            f"{quota.max_bytes} is the most the owner allows. Drop pointers that are not needed any more, work "
            "on smaller batches, or ask the owner for more."
        )


def _named(user: User) -> str:
    return "Somebody who gave no user name" if user is None else f"User {user!r}"
