"""`IsolatedSession`: the broker's end of a session whose commands run in an executor.

It keeps what a session is about (how far it came, the replies that may be asked for again) and looks into no command.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from syft import serde
from syft.core import worker_lock
from syft.exceptions import ConnectionRefusedByWorkerError
from syft.identity.names import ANONYMOUS
from syft.isolation import records
from syft.isolation.channel import Channel, ChannelClosed, close_all
from syft.isolation.executors import Executor
from syft.policy.caller import speaking_for
from syft.transport.session_frames import Head
from syft.workers.network.sessions import Reply, ServerSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from syft.isolation.broker import Broker


class _Named(NamedTuple):
    """What the watcher is told of a command."""

    cmd_name: str


class ExecutorEndedError(ConnectionRefusedByWorkerError):
    """The process of a session has ended."""


class IsolatedSession(ServerSession):
    """One per client; the executor is started with its first frame."""

    def __init__(self, broker: Broker, *args: Any, **options: Any) -> None:
        self._frame: tuple[float, int, int] | None = None  # began, first command, how many
        self._seen: tuple[int, float] = (0, 0.0)
        super().__init__(*args, **options)
        self._broker = broker
        self.executor: Executor | None = None
        #: The process that computes a release for it, while it does.
        self.releasing: Executor | None = None
        self._lane: Channel | None = None
        self._routes: dict[int, Channel] = {}
        self._slot = 0
        self._failed = 0

    @property
    def its_executor(self) -> Executor:
        """!! ChannelClosed once the session has ended"""
        if self.executor is None:
            raise ChannelClosed("The session has ended.")
        return self.executor

    # -- commands ----------------------------------------------------------------------------------

    def _run_frame(self, head: Head, payload: memoryview) -> Reply | None:
        first, last = self.executed + 1, head.number + head.count - 1
        try:
            lane, executor = self._open()
            self._frame = time.monotonic(), first, head.count
            self._seen = first - 1, time.monotonic()
            peer = getattr(self.connection, "peer", "")
            news = self._broker.news_for(executor)
            lane.send(
                records.RunFrame(head.number, head.count, int(head.flags), first, peer, *news), [payload]
            )
            self.executed = last  # noted before it runs: whatever happens in it, it is not run again
            done, content = self._serve(lane)
        except (ChannelClosed, ExecutorEndedError) as error:
            self._tell_end(error)
            return None
        finally:
            self._frame = None
        self._failed = min(done.failed, last)
        self._broker.take_news(self, done)
        if not done.has_reply:
            return None
        return Reply(last, done.reply_flags & 0xFF, min(done.reply_failed, last), [bytes(content)])

    def _serve(self, lane: Channel) -> tuple[records.FrameDone, bytearray]:
        """Answer what the executor asks, until the frame is done. !! ChannelClosed"""
        return self.serve_lane(lane, self, (records.FrameDone,))

    def serve_lane(self, lane: Channel, asking: Any, last: tuple[type, ...]) -> tuple[Any, bytearray]:
        """Answer what is asked on a lane, for whoever is `asking`, until one of these records comes. !! ChannelClosed"""
        while True:
            record, content, descriptors = lane.receive()
            try:
                if type(record) in last:
                    return record, content
                try:
                    answer, payload, given = self._broker.answer(asking, record, content, descriptors)
                except ChannelClosed:
                    raise
                except Exception as error:  # noqa: BLE001  (every error comes back as itself)
                    lane.send(records.Failure(), self._written_error(error))
                    continue
                try:
                    lane.send(answer, payload, given)
                finally:
                    close_all(given)
            finally:
                close_all(descriptors)

    def _open(self) -> tuple[Channel, Executor]:
        executor, lane = self.executor, self._lane
        if executor is None:
            executor = self.executor = self._broker.executors.of(self.user)
        if lane is None:
            if executor.is_ended:
                raise ExecutorEndedError("the process ended")
            self._slot = executor.take_slot()
            most = self.limits
            lane = self._lane = executor.open_lane(
                records.OpenSession(self._slot, most.max_bytes, most.max_decompressed, self.compression)
            )
        return lane, executor

    def _tell_end(self, error: Exception) -> None:
        """The process is gone: the session ends, and its client is told why."""
        if self.ended:
            return  # whoever ended it has told them
        why = str(error) if self.executor is None else self._broker.executors.why_ended(self.executor)
        self._broker.dismiss(self, why)

    # -- what the watcher looks at -----------------------------------------------------------------

    @property
    def running(self) -> tuple[float, Any] | None:
        """Since when the command runs that is running, by what the executor notes; a frame has a time in all, too."""
        frame, executor = self._frame, self.executor
        if frame is None or executor is None:
            return None
        now = time.monotonic()
        number, name = executor.progress.read(self._slot)
        seen, since = self._seen
        if number != seen:
            self._seen = seen, since = number, now
        most = self._broker.seconds_per_operation(self.user)
        if most is not None and now - frame[0] > most * frame[2]:
            since = frame[0]
        return since, _Named(name or "an operation")

    @running.setter
    def running(self, _value: Any) -> None:
        """It is what the executor says."""

    def interrupt(self, why: str) -> None:
        if self.executor is not None and self._frame is not None:
            self._broker.executors.kill(self.executor, why)
            if self.releasing is not None:
                self._broker.executors.kill(self.releasing, why)

    # -- replies -----------------------------------------------------------------------------------

    @property
    def failed(self) -> int:
        return self._failed

    def permits(self, question: Any) -> bool:
        """Whether its executor may ask that."""
        return True

    # -- routes ------------------------------------------------------------------------------------

    def route_to(self, executor: Executor) -> Channel:
        """The lane on which what this client sends reaches a group that is in another process. !! ChannelClosed"""
        found = self._routes.get(executor.number)
        if found is None:
            found = self._routes[executor.number] = executor.open_lane(records.OpenRoute())
        return found

    # -- the end -----------------------------------------------------------------------------------

    def end(self, keeps: Callable[[Any, Any], bool]) -> int:
        self.ended = True
        executor, lane = self.executor, self._lane
        self.executor = self._lane = None
        for route in self._routes.values():
            route.close()
        self._routes.clear()
        if lane is not None:
            with contextlib.suppress(OSError):
                lane.send(records.EndSession())
                self._serve_end(lane)
            lane.close()
        if executor is not None:
            executor.give_slot(self._slot)
            self._broker.executors.leave(executor)
        freed = self._end_published(keeps)
        self._replies.clear()
        self.reply_bytes = 0
        return freed

    def _serve_end(self, lane: Channel) -> None:
        while True:
            record, _, descriptors = lane.receive(2.0)
            close_all(descriptors)
            if type(record) is records.Answer:
                return
            lane.send(
                records.Failure(), serde.serialize_frames(RuntimeError("the session has ended"), None, None)
            )

    def _end_published(self, keeps: Callable[[Any, Any], bool]) -> int:
        """What somebody without a name leaves is kept as far as the worker says; a named user's is theirs."""
        if not self.user.startswith(ANONYMOUS):
            return 0
        freed = 0
        worker = self.worker
        with (
            worker_lock.held(self._worker_lock),
            speaking_for(self.user, getattr(self.connection, "peer", "")),
        ):
            for obj_id, entry in list(worker._entries.items()):
                if entry.holder == self.user and not keeps(obj_id, entry.value):
                    worker.force_rm_obj(obj_id)
                    freed += 1
        return freed

    @property
    def holds_something(self) -> bool:
        return self._lane is not None
