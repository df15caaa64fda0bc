"""`Lane`: the executor's end of a lane, on which it serves the broker and asks it questions.

Which lane a thread asks on is kept beside the thread: whatever runs for a session asks on the lane of that session.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from syft import serde
from syft.core import worker_lock
from syft.exceptions import RemoteError
from syft.isolation.channel import Channel
from syft.isolation.records import Answer, Failure, Record, Value

_current: ContextVar[Lane | None] = ContextVar("syft_broker_lane", default=None)


class Lane:
    """Questions wait for each other: a training that runs in threads of its own asks one at a time."""

    def __init__(self, channel: Channel, worker: Any) -> None:
        self.channel, self.worker = channel, worker
        self._asking = threading.Lock()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside, this thread asks the broker on this lane."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def ask(
        self, question: Record, payload: Sequence[Any] = (), descriptors: Sequence[int] = ()
    ) -> tuple[Any, bytearray, list[int]]:
        with self._asking:
            self.channel.send(question, payload, descriptors)
            answer, content, given = self.channel.receive()
        if type(answer) is Failure:
            error = serde.deserialize(content, self.worker)
            raise error if isinstance(error, Exception) else RemoteError(str(error))
        return answer, content, given


def ask(
    question: Record, payload: Sequence[Any] = (), descriptors: Sequence[int] = (), waits: bool = False
) -> tuple[Any, bytearray, list[int]]:
    """Ask the broker, whatever it takes. !! the error that it answers

    `waits`: it may itself wait for somebody; meanwhile others of this user may use the worker.
    """
    lane = _current.get()
    if lane is None:
        raise RemoteError("This was asked for outside of a user's session, where the broker is not asked.")
    with worker_lock.released() if waits else contextlib.nullcontext():
        return lane.ask(question, payload, descriptors)


def ask_value(
    question: Record, payload: Sequence[Any] = (), descriptors: Sequence[int] = (), waits: bool = False
) -> Any:
    """The object that the broker answers."""
    answer, content, given = ask(question, payload, descriptors, waits)
    if type(answer) is not Answer or given:
        raise RemoteError(f"The broker answered {type(question).__name__} with {type(answer).__name__}.")
    return serde.deserialize(content) if content else None


__all__ = ["Lane", "Value", "ask", "ask_value"]
