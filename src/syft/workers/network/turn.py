"""One message at a time on a worker, whoever sends it.

A thread that has to wait for another worker meanwhile gives its turn away: two workers that ask each other for
something at the same time do not block each other. It gives it away before it takes any lock of a link, and takes it
back when it has none: whoever has the turn may wait for a link.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar

_held: ContextVar[threading.Lock | None] = ContextVar("syft_turn", default=None)


@contextlib.contextmanager
def taken(turn: threading.Lock) -> Iterator[None]:
    """Inside, it is this thread's turn."""
    turn.acquire()
    token = _held.set(turn)
    try:
        yield
    finally:
        _held.reset(token)
        turn.release()


def is_held() -> bool:
    """Whether this thread has the turn on some worker."""
    return _held.get() is not None


@contextlib.contextmanager
def given_away() -> Iterator[None]:
    """Inside, others may have the turn that this thread holds, if it holds one."""
    turn = _held.get()
    if turn is None:
        yield
        return
    token = _held.set(None)
    turn.release()
    try:
        yield
    finally:
        turn.acquire()
        _held.reset(token)
