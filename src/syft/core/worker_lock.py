"""The lock of a worker: one message at a time, whoever sends it.

A thread that has to wait for another worker meanwhile releases the lock: two workers that ask each other for
something at the same time do not block each other. It releases it before it takes any lock of a link, and takes it
back when it has none: whoever holds the lock of a worker may wait for a link.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

_held: ContextVar[threading.Lock | None] = ContextVar("syft_worker_lock", default=None)


# NB: classes, because generators would take longer than what most messages ask for.
class held:
    """Inside, this thread holds the lock of a worker."""

    __slots__ = ("_lock", "_token")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self._token = _held.set(self._lock)

    def __exit__(self, *_exception: object) -> None:
        _held.reset(self._token)
        self._lock.release()


#: The lock of a worker that this thread holds, or None.
lock_held = _held.get


class released:
    """Inside, others may take the lock that this thread holds, if it holds one."""

    __slots__ = ("_lock", "_token")

    def __enter__(self) -> None:
        lock = self._lock = _held.get()
        if lock is not None:
            self._token = _held.set(None)
            lock.release()

    def __exit__(self, *_exception: object) -> None:
        if self._lock is not None:
            self._lock.acquire()
            _held.reset(self._token)
