"""`Incoming`: the frames of one client, for the thread that serves it.

NOTE [Replies that nobody confirms]
A reply is kept until the client says that it has it: after a cut it is sent again. Every frame of a client says how far
it came, but one with many threads has asked for the next things before it could say that it has the last ones. So
before a command of a client runs for whom much is kept, what else that client has sent is read, until a confirmation is
among it. Who does not confirm does not get more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from syft.exceptions import ProtocolError
from syft.transport import Connection
from syft.transport import session_frames as frames
from syft.transport.session_frames import Head, Kind
from syft.workers.network.sessions import ServerSession

#: What is read ahead while a confirmation is waited for.
_AHEAD_BYTES = 64 << 20
#: The next command of a client is looked for so long before sleeping: as long as a program takes between two of them.
_LOOKING_SECONDS = 200e-6
#: A frame of a peer, in a program on shares. NB: parties that sleep by turns are woken each on the other's core.
_PEER_LOOKING_SECONDS = 1e-3
#: A client that is silent for so many heartbeats is cut off.
_HEARTBEATS = 3


class Incoming:
    """One per connection. `heartbeat` is the server's, in seconds."""

    def __init__(self, connection: Connection, heartbeat: float) -> None:
        self._connection, self._heartbeat = connection, heartbeat
        self._ahead: deque[tuple[Head, memoryview]] = deque()
        self._said_goodbye = False
        self._failure: OSError | None = None
        self._arriving = frames.Arriving.at(connection)

    def next(self) -> tuple[Head, memoryview] | None:
        """The next frame; None if three heartbeats pass in which nothing comes, not even a part of one."""
        if self._failure is not None:
            raise self._failure
        if self._ahead:
            return self._ahead.popleft()
        connection = self._connection
        connection.spin_seconds = _LOOKING_SECONDS
        silent, progress = 0, connection.progress
        while silent < 2 * _HEARTBEATS:
            try:
                return frames.decode(connection.receive(timeout=self._heartbeat / 2), self._arriving)
            except TimeoutError:
                silent += 1
                if connection.progress != progress:
                    # It comes, slowly: the client, who waits for an answer, has to know.
                    silent, progress = 0, connection.progress
                    self._show_life()
        return None

    def take(self, seconds: float, run: Callable[[Head, memoryview], bool]) -> bool:
        """For whoever borrows the connection: read one frame and `run` it; what was not run is the `next`."""
        self._connection.spin_seconds = _PEER_LOOKING_SECONDS
        try:
            head, payload = frames.decode(self._connection.receive(timeout=seconds), self._arriving)
        except TimeoutError:
            raise
        except OSError as error:
            self._failure = error
            return False
        if head.kind == Kind.COMMANDS and not head.flags & frames.LAST_CHUNK and run(head, payload):
            return True
        self._ahead.append((head, payload))
        return False

    def await_confirmation(self, session: ServerSession, head: Head) -> None:
        """Before the command of this head runs: read on while too many replies are kept. !! ProtocolError"""
        with session.lock:
            session.note_confirmed(head.confirmed)
        until = time.monotonic() + _HEARTBEATS * self._heartbeat
        read = 0
        while session.keeps_too_much:
            if self._said_goodbye:  # nobody will ask for them again
                with session.lock:
                    session.note_confirmed(session.executed)
                return
            left = until - time.monotonic()
            if left <= 0 or read > _AHEAD_BYTES:
                raise ProtocolError(
                    f"{session.reply_bytes} bytes of replies have not been confirmed, more than are kept for one "
                    "session. Read the replies, and say in the next frame, or in a heartbeat, which ones arrived."
                )
            try:
                frame = self._connection.receive(timeout=min(left, self._heartbeat))
            except TimeoutError:
                continue
            head, payload = frames.decode(frame, self._arriving)
            session.last_heard = time.monotonic()
            with session.lock:
                session.note_confirmed(head.confirmed)
            if head.kind == Kind.HEARTBEAT:
                self._show_life()
            else:
                self._said_goodbye = head.kind == Kind.GOODBYE
                self._ahead.append((head, payload))
                read += frames.HEAD_BYTES + len(payload)

    def _show_life(self) -> None:
        self._connection.send(frames.encode(Head(Kind.HEARTBEAT)))
