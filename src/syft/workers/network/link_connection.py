"""`LinkConnection`: the connection of a link, read by whoever waits and replaced when it breaks.

NOTE [Locks of a link]
`_sending` guards the commands that are collected and everything that goes out; `_reading` what comes in. Whoever
needs both takes `_sending` first. Nobody who holds `_reading` waits for `_sending`, or sends. Confirmations are counted
by the reader alone, so a sender never has to be asked. Deletes are queued by finalizers, which may run at any point
in any thread, also inside a link: they take no lock at all. Who holds the lock of a worker gives it away first.

NOTE [Who reads while we send]
A worker reads a frame when it has answered the one before. If both ends sent at the same time and nobody read, both
would wait for ever. Every reply has somebody who waits for it and reads; only after a cut one thread sends
for all, so there it never has more on its way than fits between the two ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from syft import serde
from syft.exceptions import NetworkError, ProtocolError, SyftError, WorkerUnreachableError
from syft.serde.handed_over import HandedOver
from syft.tensors.learnt_graphs import Learnt
from syft.transport import Connection, ConnectionLost
from syft.transport import session_frames as frames
from syft.transport import session_greeting as greeting
from syft.transport import session_records as handshake
from syft.transport import session_replies as replies
from syft.transport.session_compression import WantedCompression
from syft.transport.session_frames import Head, Kind
from syft.transport.session_outbox import Outbox, Sent
from syft.workers.network import keeper, presence

#: Opens a connection to the worker.
Opener = Callable[[], Connection]
#: How many sessions were before, and the number of a command.
Key = tuple[int, int]

#: What a connection holds between its ends, whoever reads: see NOTE [Who reads while we send].
_UNREAD_BYTES = 32 << 10
#: Who waits for a reply looks for it so long before sleeping: for as long as a small model takes.
_LOOKING_SECONDS = 500e-6
_PERMITTED = frozenset(
    map(int, (Kind.REPLY, Kind.CONFIRMATION, Kind.HEARTBEAT, Kind.CHUNK, Kind.GOODBYE, Kind.REFUSAL))
)


class LinkConnection(ABC):
    """What is known of a session with a worker, over one connection after the other.

    opener      opens a connection
    hello       (session to continue, last reply that arrived) -> what to say first
    reader      the worker that owns what arrives
    patience    seconds to try to reach the worker again before a call fails
    peer_patience   the same for those who compute with this worker and with others: NOTE [Parties] in `presence`
    heartbeat   seconds of silence after which to doubt that the other side is alive; three of them end a connection
    debug       wait after every command
    compression what to compress with, in sessions with a worker that can read it
    """

    def __init__(
        self,
        opener: Opener,
        hello: Callable[[str | None, int], handshake.Hello],
        name: str,
        reader: Callable[[], Any],
        *,
        patience: float = 30.0,
        peer_patience: float = presence.PEER_PATIENCE,
        heartbeat: float = 10.0,
        compression: str | None = None,
        limits: serde.Limits | None = None,
        debug: bool = False,
    ) -> None:
        self._opener, self._hello, self.name, self._reader = opener, hello, name, reader
        self.patience, self.heartbeat, self.debug = patience, heartbeat, debug
        self.peer_patience, self.presence = peer_patience, presence.Presence(self)
        self.compression = WantedCompression(compression)
        self.handed_over = HandedOver()
        #: The backward passes that the worker was told.
        self.learnt = Learnt()
        self._limits = limits or serde.Limits()
        self._make_locks()
        self._deletes: deque[Any] = deque()
        self._connection: Connection | None = None
        self._closed = False
        #: How many blocks of `together` there are.
        self._gathering = 0
        self.welcome: handshake.Welcome | None = None
        self._last_spoken = 0.0
        #: How often nothing came in the time of a heartbeat, and what part of a frame was there.
        self._silences = self._progress = self._quiet_looks = 0
        self._attempts = greeting.Attempts()
        self._gave_up_at = 0.0
        #: The worker does not want to go on with the session.
        self._refusal: SyftError | None = None
        #: Why the last session ended, and what the user has not been told yet.
        self._loss: SyftError | None = None
        self._untold: Exception | None = None
        self._is_refused = False
        self._epoch = 0
        self._replies: dict[Key, tuple[Head, memoryview]] = {}
        self._awaited: set[Key] = set()
        self._begin_session()
        self._keeper = keeper.Keeper(self)

    def _make_locks(self) -> None:
        self._sending = threading.RLock()
        self._reading = threading.Lock()
        self._arrived = threading.Condition()
        #: How many wait for who reads.
        self._waiting = 0

    def _begin_session(self) -> None:
        self._outbox = Outbox()
        self._last_reply = 0
        self._assembly = frames.Assembly(self._limits.max_bytes)
        self._arriving = frames.Arriving()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_connected(self) -> bool:
        connection = self._connection
        return connection is not None and not connection.closed and not self._closed

    @property
    def session_key(self) -> Any:
        """Another one for every session, which takes its outbox with it."""
        return self._outbox

    def _was_closed(self) -> NetworkError:
        return NetworkError(
            f"The connection to {self.name} was closed. Make a new client worker, or call connect() on this one."
        )

    def _most_bytes(self) -> int:
        return self._limits.max_bytes if self.welcome is None else self.welcome.max_message

    def _send_frame(self, connection: Connection, sent: Sent, more_flags: int = 0) -> None:
        kind, flags, number, _confirmed, failed, count, total, offset = sent.head
        fields = kind, flags | more_flags, number, self._last_reply, failed, count, total, offset
        for frame in frames.encode_all(frames.new_head(Head, fields), sent.payload, sent.sums):
            connection.send(frame)
        self._last_spoken = time.monotonic()

    # -- reading ---------------------------------------------------------------------------------------

    def _read_until(self, is_done: Callable[[], bool]) -> None:
        """Read the connection, or let somebody else read it, until something has arrived."""
        look, silent_since = presence.current_look(), time.monotonic()
        slice_seconds = self.heartbeat if look is None else min(self.heartbeat, presence.LOOK_SECONDS)
        while not is_done():
            connection = self._connection
            if connection is None:
                if self._closed:
                    raise self._was_closed()
                self._reconnect(None)
                continue
            if not self._reading.acquire(blocking=False):
                if look is not None:
                    look()
                with self._arrived:
                    # NB: who reads gives `_reading` back before he looks for us, so either of the two is seen.
                    self._waiting += 1
                    try:
                        if not is_done() and self._reading.locked():
                            self._arrived.wait(0.05)
                    finally:
                        self._waiting -= 1
                continue
            is_broken = False
            try:
                if not is_done() and self._connection is connection:
                    self._take(connection.receive(timeout=slice_seconds))
                    silent_since = time.monotonic()
            except TimeoutError:
                if time.monotonic() - silent_since >= self.heartbeat:
                    silent_since = time.monotonic()
                    is_broken = self._is_silent(connection)
            except OSError:
                is_broken = True
            except BaseException:
                connection.close()  # a frame may have been read in part
                raise
            finally:
                self._reading.release()
                if self._waiting:
                    self._tell_readers()
            if is_broken:
                self._reconnect(connection)
            elif look is not None and not is_done():
                look()

    def _tell_readers(self) -> None:
        if self._waiting:
            with self._arrived:
                self._arrived.notify_all()

    def _is_silent(self, connection: Connection) -> bool:
        """Nothing came in the time of a heartbeat. Three times nothing is the end of the connection."""
        progress = connection.progress
        if progress != self._progress:
            self._progress, self._silences = progress, 0
        else:
            self._silences += 1
        return self._silences >= 3

    def _take(self, frame: Any) -> None:
        """One frame from the worker. Called by whoever holds `_reading`."""
        self._silences = self._quiet_looks = 0
        head, payload = frames.decode(frame, self._arriving)
        if head.kind not in _PERMITTED:
            raise ProtocolError(f"The worker sent a frame of kind {head.kind} in the middle of a session.")
        if head.kind == Kind.REFUSAL:
            self._refusal = greeting.refusal(payload)
            raise ProtocolError("The worker has ended the session.")
        if head.kind == Kind.GOODBYE:
            raise ProtocolError("The worker is shutting down.")
        is_news = False
        if head.kind in (Kind.REPLY, Kind.CHUNK):
            whole = self._assembly.take(head, payload)
            if whole is None:
                return
            if head.number > self._last_reply:
                self._last_reply = head.number
                key = self._epoch, head.number
                if key in self._awaited:
                    self._replies[key] = head, whole
                is_news = True
        if (self._outbox.confirm(head.confirmed, head.failed) or is_news) and self._attempts.vain:
            self._attempts.succeed()

    def _take_what_is_here(self, connection: Connection, counts_silence: bool = True) -> None:
        """Take the frames that have come, if nobody else reads. !! OSError if the connection has ended"""
        if not self._reading.acquire(blocking=False):
            return
        try:
            while self._connection is connection:
                self._take(connection.receive(timeout=0.0))
        except TimeoutError:
            self._quiet_looks += counts_silence
            is_heartbeat = counts_silence and self._quiet_looks % keeper.LOOKS_PER_HEARTBEAT == 0
            if is_heartbeat and self._is_silent(connection):
                raise
        finally:
            self._reading.release()
            self._tell_readers()

    def look_for_end(self) -> None:
        """See whether the connection has ended, without waiting for anything; a silence means nothing here."""
        connection = self._connection
        if connection is not None:
            try:
                self._take_what_is_here(connection, counts_silence=False)
            except OSError:
                connection.close()

    # -- replacing -------------------------------------------------------------------------------------

    def _reconnect(self, broken: Connection | None, patience: float | None = None) -> None:
        """Replace a connection that is broken. Whoever comes first does it; the others find it done."""
        began = time.monotonic()
        if patience is None and keeper.is_keeper():
            patience = 0.0  # whoever calls next waits as long as they like to, and not for this thread
        if broken is not None:
            broken.close()  # wakes whoever reads it
        with self._sending:
            if self._connection is not broken:
                return
            if self._closed:
                raise self._was_closed()
            if self._gave_up_at > began:
                self.presence.told += patience is None
                raise WorkerUnreachableError(f"{self.name} cannot be reached: it was tried a moment ago.")
            with self._reading:
                self._connection = None
                if self._refusal is not None:
                    error, self._refusal = self._refusal, None
                    self.welcome = None
                    self._lose_session(error)
                    return
                try:
                    self._connection = self._reach(
                        presence.patience_with(self) if patience is None else patience
                    )
                    self._is_refused = False
                except OSError as error:
                    if patience is None:
                        self._gave_up_at = time.monotonic()
                        self.presence.told += 1
                    self._is_refused = greeting.is_final(error)
                    raise
            self._tell_readers()
            self._keeper.start()

    def _reach(self, patience: float) -> Connection:
        """A connection on which everything was sent again that the worker has not executed."""
        while True:
            is_first = self.welcome is None and not self._epoch
            connection = greeting.reach(
                self._opener, self._greet, self.name, patience, lambda: self._closed, is_first
            )
            try:
                # NB: counted from now on: there is no retry limit while the peer is unreachable.
                self._attempts.begin(self.name, patience)
                connection.spin_seconds = _LOOKING_SECONDS
                self._resume(connection)
                return connection
            except BaseException as error:
                connection.close()
                if isinstance(error, WorkerUnreachableError) or not isinstance(error, OSError):
                    raise

    def _greet(self, connection: Connection) -> None:
        session = self.welcome.session if self.welcome is not None else None
        hello = self._hello(session, self._last_reply)
        welcome = greeting.greet(connection, hello, max(self.heartbeat, 5.0))
        if session is not None and (welcome.is_new or welcome.session != session):
            self._lose_session(replies.restarted(self.name))
        self.welcome = welcome
        self._outbox.compression = self.compression.agreed_with(welcome, self.name)
        self.heartbeat = min(self.heartbeat, welcome.heartbeat)

    def _resume(self, connection: Connection) -> None:
        """Send again what the worker has not executed. See NOTE [Who reads while we send]."""
        welcome, outbox = self.welcome, self._outbox
        if welcome is None:
            return
        self._assembly = frames.Assembly(self._limits.max_bytes)
        self._arriving = frames.Arriving.at(connection)
        self._silences = 0
        if outbox.confirm(welcome.executed, welcome.failed):
            self._attempts.succeed()
        if outbox.has_changed():
            self.welcome = None
            self._lose_session(replies.restarted(self.name))
            raise ConnectionLost("What has to be sent again was written to: NOTE [Lent memory] in `outbox`.")
        unread = 0
        for sent in list(outbox.unconfirmed):
            if unread + sent.nbytes > _UNREAD_BYTES:
                self._read_here(connection, outbox, sent.head.number - 1)
                unread = 0
            self._send_frame(connection, sent, frames.CONFIRM | frames.AGAIN)
            unread += sent.nbytes + frames.HEAD_BYTES

    def _read_here(self, connection: Connection, outbox: Outbox, number: int) -> None:
        """Read, while both locks are held, until a command is confirmed. !! OSError"""
        while outbox.confirmed < number:
            try:
                self._take(connection.receive(timeout=self.heartbeat))
            except TimeoutError:
                if self._is_silent(connection):
                    raise
            if self._closed:
                raise self._was_closed()

    def _lose_session(self, why: SyftError) -> None:
        """What was under way is gone. Both locks are held."""
        self._epoch += 1
        self._loss = self._untold = why
        self._begin_session()
        self._deletes.clear()
        self._tell_readers()

    # -- the background, see `keeper` ------------------------------------------------------------------

    @abstractmethod
    def send_what_waits(self, seconds: float) -> None:
        """Send what was collected, and nobody sent. Never waits long for whoever is sending now."""

    def look_after_connection(self) -> None:
        """Tell the worker that we live, see what it said, and replace a connection that ended."""
        connection = self._connection
        if connection is None or connection.closed:
            with contextlib.suppress(OSError, SyftError):  # the next look, or whoever calls next, tries again
                self.try_to_reconnect()
            return
        try:
            if time.monotonic() - self._last_spoken > self.heartbeat / 2:
                self._last_spoken = time.monotonic()
                connection.send(frames.encode(Head(Kind.HEARTBEAT, confirmed=self._last_reply)))
            self._take_what_is_here(connection)
        except OSError:
            connection.close()  # the next look, or whoever calls next, replaces it

    @property
    def has_what_waits(self) -> bool:
        """Whether something was collected and not sent."""
        return bool(len(self._outbox) or self._deletes)

    def is_quiet(self, seconds: float) -> bool:
        """Whether for so long nothing was sent, and no command was the first to be collected."""
        return time.monotonic() - max(self._outbox.began, self._last_spoken) > seconds

    def try_to_reconnect(self) -> None:
        """Replace a connection that ended, if nobody else does and it works at once. !! OSError, SyftError"""
        if not self._is_refused and self._sending.acquire(blocking=False):
            try:
                if self._connection is None or self._connection.closed:
                    self._reconnect(self._connection, patience=0.0)
            finally:
                self._sending.release()

    def forget_process(self) -> None:
        """This process was forked: the connection, and the locks as they were, are the other's."""
        self._make_locks()
        self._connection, self._closed = None, True
