"""The lock of a worker: one message at a time, whoever sends it.

A thread that has to wait for another worker meanwhile releases the lock: two workers that ask each other for
something at the same time do not block each other. It releases it before it takes any lock of a link, and takes it
back when it has none: whoever holds the lock of a worker may wait for a link.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar

_held: ContextVar[threading.Lock | None] = ContextVar("syft_worker_lock", default=None)


@contextlib.contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """Inside, this thread holds the lock of a worker."""
    lock.acquire()
    token = _held.set(lock)
    try:
        yield
    finally:
        _held.reset(token)
        lock.release()


#: The lock of a worker that this thread holds, or None.
lock_held = _held.get


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Inside, others may take the lock that this thread holds, if it holds one."""
    lock = _held.get()
    if lock is None:
        yield
        return
    token = _held.set(None)
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
        _held.reset(token)
