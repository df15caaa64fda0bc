"""One message at a time on a worker, whoever sends it.

A thread that has to wait for another worker meanwhile gives its turn away: two workers that ask each other for
something at the same time do not block each other.
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


@contextlib.contextmanager
def given_away() -> Iterator[None]:
    """Inside, others may have the turn that this thread holds, if it holds one."""
    turn = _held.get()
    if turn is None:
        yield
        return
    turn.release()
    try:
        yield
    finally:
        turn.acquire()
