"""`Link`: the client's end of a session.

`post` sends a command and does not wait; `ask` sends one and waits for its reply. Commands are collected for a
moment and travel many to a frame. Whoever waits for something reads the connection himself: no thread has to be
woken on the way. See NOTE [Neither lost nor twice], and NOTE [Locks of a link] in `link_connection`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from syft.core import worker_lock
from syft.core.call_sites import site_of_caller
from syft.core.interfaces import Id
from syft.exceptions import NetworkError, SyftError, WorkerUnreachableError
from syft.messaging.message import ObjectMessage
from syft.serde.codec import deserialize
from syft.transport import Connection
from syft.transport import session_frames as frames
from syft.transport import session_records as handshake
from syft.transport import session_replies as replies
from syft.transport.session_frames import Head, Kind
from syft.transport.session_outbox import Sent
from syft.workers.network.link_connection import Key, LinkConnection

_MANY_DELETES = 48
#: Above this many bytes a reply is confirmed at once if others are waited for, and not with the next command.
_LARGE_REPLY = 1 << 20
_FAREWELL_SECONDS = 5.0
#: Twice what objects that travel in one frame have at most.
_MOST_TOGETHER = 8 << 20


class Link(LinkConnection):
    """A session with a worker: how commands are sent and replies awaited."""

    # -- what workers call -----------------------------------------------------------------------------

    def connect(self) -> handshake.Welcome:
        """Begin the session, if there is none."""
        with self._sending:
            if self._connection is None:
                self._reconnect(None)
            if self.welcome is None:
                raise WorkerUnreachableError(f"There is no session with {self.name}.")
            return self.welcome

    def post(self, message: Any, at_once: bool = False) -> None:
        """Send a command and go on; if it fails, the next call that waits says so. `at_once`: collect no more first, as
        parties of a program tell each other a round: no line of a user's program led to it, and none is looked for.
        """
        if self.debug:
            self.ask(message)
        elif worker_lock.lock_held() is None:
            self._post(message, at_once)
        else:
            with worker_lock.released():
                self._post(message, at_once)

    def _post(self, message: Any, at_once: bool) -> None:
        with self._sending:
            if self._connection is None or self._closed or self._untold is not None:
                self._check_open()
            outbox = self._outbox
            if at_once and (alone := outbox.pack_alone(message, self._most_bytes())) is not None:
                self._transmit(alone)
                return
            last_of_new = int(len(self._deletes) >= _MANY_DELETES)
            if last_of_new:
                outbox.add_deletes(self._deletes)
            if self._gathering and self._is_large(message) and len(outbox):
                self._flush()
            place = outbox.add(message, () if at_once else site_of_caller())
            if at_once or (self._is_gathered(message) if self._gathering else outbox.is_due()):
                self._flush(is_lent=at_once and not place)
            elif place <= last_of_new:  # nothing was waiting before
                self._keeper.wake()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Inside, small objects that are sent wait for each other, and travel in one frame."""
        with self._sending:
            self._gathering += 1
        try:
            yield
        finally:
            with worker_lock.released(), self._sending:
                self._gathering -= 1
                if not self._gathering and not self._closed and len(self._outbox):
                    self._flush()

    def _is_large(self, message: Any) -> bool:
        """Whether an object travels alone, so that no frame of several is more than the worker takes."""
        return type(message) is ObjectMessage and (
            getattr(message.object, "nbytes", 0) > min(_MOST_TOGETHER, self._most_bytes()) // 4
        )

    def _is_gathered(self, message: Any) -> bool:
        most = min(_MOST_TOGETHER, self._most_bytes()) // 2
        return self._is_large(message) or self._outbox.buffer_bytes() > most

    def ask(self, message: Any) -> Any:
        """Send a command and return its reply. !! what it raised there, or what an earlier command raised"""
        if worker_lock.lock_held() is None:
            return self._value_of(*self._ask(message))
        with worker_lock.released():
            reply = self._ask(message)
        return self._value_of(*reply)

    def _ask(self, message: Any) -> tuple[Head, memoryview]:
        with self._sending:
            if self._connection is None or self._closed or self._untold is not None:
                self._check_open()
            if self._deletes:
                self._outbox.add_deletes(self._deletes)
            self._outbox.add(message)  # if it fails, the reply says so
            key = self._flush(frames.WAITS)
        reply = self._reply_to(key)
        if len(reply[1]) > _LARGE_REPLY and self._awaited:
            self._confirm()
        return reply

    def ask_all(self, messages: list[Any]) -> list[Any]:
        """Send several commands and return their replies, in the time of one. !! what the first that failed raised"""
        with worker_lock.released():
            with self._sending:
                self._check_open()
                self._outbox.add_deletes(self._deletes)
                keys = []
                for message in messages:
                    self._outbox.add(message)
                    keys.append(self._flush(frames.WAITS))
            try:
                found = [self._reply_to(key) for key in keys]
            finally:
                for key in keys:  # those that nobody waits for any more
                    self._awaited.discard(key)
                    self._replies.pop(key, None)
        return [self._value_of(head, payload) for head, payload in found]

    def _value_of(self, head: Head, payload: memoryview) -> Any:
        value = deserialize(payload, self._reader(), limits=self._limits, take_over=self._takes_over)
        if not head.flags & replies.A_FAILURE:
            return value
        try:
            self.presence.told += isinstance(value, NetworkError)
            raise replies.failure(head, value, self.name, self._outbox.site_of_failed(head.failed))
        finally:
            del value  # or it would hold itself, by this frame, and what the caller dropped with it

    def _takes_over(self, place: Any, obj_id: Id) -> bool:
        """See NOTE [Pointers in replies]."""
        return self.handed_over.takes_over(
            place, obj_id, None if self.welcome is None else self.welcome.worker
        )

    def _confirm(self) -> None:
        """Say at once which replies are here: others wait, and the worker keeps ours until it knows."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):  # whoever reads finds out
                connection.send(frames.encode(Head(Kind.HEARTBEAT, confirmed=self._last_reply)))

    def flush(self) -> None:
        """Send what has been collected."""
        with worker_lock.released(), self._sending:
            while not self._closed and (len(self._outbox) or self._deletes):
                self._outbox.add_deletes(self._deletes)
                self._flush()

    def queue_delete(self, obj_id: Id) -> None:
        """A pointer has gone. NB: called by finalizers; takes no lock."""
        self._deletes.append(obj_id)

    def close(self) -> None:
        """Say goodbye: the worker frees what this session held. Whoever still waits for a reply is told."""
        if self._closed:
            return
        self._closed = True  # before the lock, which somebody may hold who tries to reach the worker
        self._keeper.wake()
        with worker_lock.released(), self._sending:
            connection, self._connection = self._connection, None
            if connection is None:
                return
            try:
                if len(self._outbox):
                    self._send_frame(connection, self._outbox.pack(0, self._most_bytes()))
                connection.send(frames.encode(Head(Kind.GOODBYE, confirmed=self._last_reply)))
                self._await_farewell(connection)
            except (OSError, SyftError):
                pass
            connection.close()

    def _await_farewell(self, connection: Connection) -> None:
        """Wait until the worker has done what was sent to it, so that nothing is cut off."""
        until = time.monotonic() + _FAREWELL_SECONDS
        while (left := until - time.monotonic()) > 0:
            if self._reading.acquire(timeout=left):
                try:
                    self._take(connection.receive(timeout=min(left, 0.1)))
                except TimeoutError:
                    pass
                finally:
                    self._reading.release()
                    self._tell_readers()

    def _check_open(self) -> None:
        if self._closed:
            raise self._was_closed()
        if self._connection is None:
            self._reconnect(None)
        if self._untold is not None:
            error, self._untold = self._untold, None
            self.presence.told += 1
            raise error

    def forgive_loss(self) -> None:
        """Do not tell the user any more that the last session ended: they know why. !! NetworkError"""
        self.connect()
        if self._untold is self._loss:
            self._untold = None

    # -- sending ---------------------------------------------------------------------------------------

    def _flush(self, flags: int = 0, is_lent: bool = False) -> Key:
        """Send the collected commands; returns the key of the last one. `is_lent`: NOTE [Lent memory] in `outbox`"""
        outbox, epoch = self._outbox, self._epoch
        if outbox.is_full():
            self._read_until(lambda: outbox.has_room() or self._epoch != epoch)
        collected = outbox._collected
        if self._epoch != epoch or not collected.commands:
            return epoch, 0  # the session ended meanwhile, and what it should have done with it
        key = epoch, collected.first + len(collected.commands) - 1
        if flags & frames.WAITS:
            self._awaited.add(key)
        try:
            sent = outbox.pack(flags, self._most_bytes(), is_lent)
            self._transmit(sent)
            if sent.is_borrowed and not flags & frames.WAITS:
                self._read_until(lambda: outbox.confirmed >= sent.last or self._epoch != epoch)
        except Exception:
            self._awaited.discard(key)
            raise
        except BaseException:
            # Interrupted: the frame may have gone out in part. All that is not confirmed goes over the next connection.
            self._awaited.discard(key)
            if self._connection is not None:
                self._connection.close()
            raise
        return key

    def _transmit(self, sent: Sent) -> None:
        connection = self._connection
        if connection is not None:
            try:
                self._send_frame(connection, sent)
                return
            except OSError:
                with contextlib.suppress(OSError):
                    self._take_what_is_here(connection)  # it may have said why
        self._reconnect(connection)  # which sends everything again that is not confirmed

    def _reply_to(self, key: Key) -> tuple[Head, memoryview]:
        epoch, arrived = key[0], self._replies
        try:
            self._read_until(lambda: key in arrived or self._epoch != epoch)
        finally:
            self._awaited.discard(key)
            reply = self._replies.pop(key, None)
        if reply is None:
            if self._untold is self._loss:
                self._untold = None
            self.presence.told += 1
            raise replies.again(self._loss, self.name)
        return reply

    def send_what_waits(self, seconds: float) -> None:
        if self.has_what_waits and self._sending.acquire(timeout=seconds):
            try:
                if self._connection is not None:
                    self.flush()
            except OSError:
                pass  # the next who calls tries again
            except Exception as error:  # noqa: BLE001  (told to the next who calls)
                self._untold = error
            finally:
                self._sending.release()
