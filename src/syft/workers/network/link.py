"""`Link`: the client's end of a session.

`post` sends a command and does not wait; `ask` sends one and waits for its reply. Commands are collected for a
moment and travel many to a frame. Whoever waits for something reads the connection himself: no thread has to be
woken on the way. See NOTE [Neither lost nor twice].

NOTE [Locks of a link]
`_sending` guards the commands that are collected and everything that goes out; `_reading` what comes in. Whoever
needs both takes `_sending` first. Nobody who holds `_reading` waits for `_sending`. Confirmations are counted by
the reader alone, so a sender never has to be asked. Deletes are queued by finalizers, which may run at any point
in any thread, also inside a link: they take no lock at all.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from syft import serde
from syft.exceptions import (
    NetworkError,
    ProtocolError,
    SyftError,
    WorkerRestartedError,
    WorkerUnreachableError,
)
from syft.messaging.message import PointersGoneMessage
from syft.serde.error_types import EXCEPTIONS
from syft.transport import Connection, HandshakeRefused
from syft.workers.network import frames, handshake, turn
from syft.workers.network.frames import Head, Kind

#: Opens a connection to the worker.
Opener = Callable[[], Connection]

_BATCH_COMMANDS = 48
_BATCH_SECONDS = 600e-6
_WINDOW_COMMANDS = 8_192
_WINDOW_BYTES = 32 << 20
#: Above this many bytes a command waits until it is confirmed, instead of being copied to be sent again.
_UNCOPIED_BYTES = 256 << 10
_CHUNK_BYTES = 32 << 20
_SITES = 4

Site = tuple[tuple[CodeType, int], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame of commands on its way."""

    last: int
    head: Head
    payload: list[Any]
    sites: list[Site]
    nbytes: int


class Link:
    """A session with a worker, over one connection after the other.

    opener      opens a connection
    hello       (session to continue, last reply that arrived) -> what to say first
    reader      the worker that owns what arrives
    patience    seconds to try to reach the worker again before a call fails
    heartbeat   seconds of silence after which to ask whether the other side is alive; three of them end a connection
    debug       wait after every command
    """

    def __init__(
        self,
        opener: Opener,
        hello: Callable[[str | None, int], handshake.Hello],
        name: str,
        reader: Callable[[], Any],
        *,
        patience: float = 30.0,
        heartbeat: float = 10.0,
        compression: str | None = None,
        limits: serde.Limits | None = None,
        debug: bool = False,
    ) -> None:
        self._opener, self._hello, self.name, self._reader = opener, hello, name, reader
        self.patience, self.heartbeat, self.debug = patience, heartbeat, debug
        self._compression = compression
        self._limits = limits or serde.Limits()
        self._sending = threading.RLock()
        self._reading = threading.Lock()
        self._arrived = threading.Condition()
        self._deletes: deque[Any] = deque()
        self._connection: Connection | None = None
        self._closed = False
        self._last_heard = 0.0
        self._last_spoken = 0.0
        self.welcome: handshake.Welcome | None = None
        self._restarted = False
        self._epoch = 0
        self._begin_session()
        self._keeper: threading.Thread | None = None
        self._wake = threading.Event()

    def _begin_session(self) -> None:
        self._numbers = itertools.count(1)
        self._last_number = 0
        self._new_batch()
        self._unconfirmed: deque[Sent] = deque()
        self._confirmed = 0
        self._confirmed_bytes = 0
        self._sent_bytes = 0
        self._last_reply = 0
        self._replies: dict[tuple[int, int], tuple[Head, memoryview]] = {}
        self._failed_sites: dict[int, Site] = {}
        self._assembly = frames.Assembly(self._limits.max_bytes)

    def _new_batch(self) -> None:
        self._batch = serde.BatchWriter(None, self._compression)
        self._batch_sites: list[Site] = []
        self._batch_began = 0.0

    # -- what workers call -------------------------------------------------------------------------

    def connect(self) -> handshake.Welcome:
        """Begin the session, if there is none."""
        with self._sending:
            if self._connection is None:
                self._reconnect(None)
            if self.welcome is None:
                raise WorkerUnreachableError(f"There is no session with {self.name}.")
            return self.welcome

    def post(self, message: Any) -> None:
        """Send a command and go on. If it fails, the next call that waits says so."""
        if self.debug:
            self.ask(message)
            return
        with self._sending:
            self._check_open()
            self._add(message)
            if self._batch.buffer_bytes or self._is_due():
                self._flush()
            elif len(self._batch) == 1:
                self._wake.set()

    def ask(self, message: Any) -> Any:
        """Send a command and return its reply. !! what it raised there, or what an earlier command raised"""
        with self._sending:
            self._check_open()
            if self._restarted:
                raise self._tell_restart()
            self._add_deletes()
            self._add(message)
            number, epoch = self._flush(frames.WAITS)
        head, payload = self._reply_to(number, epoch)
        return self._value_of(head, payload)

    def flush(self) -> None:
        """Send what has been collected."""
        with self._sending:
            if not self._closed and (len(self._batch) or self._deletes):
                self._add_deletes()
                self._flush()

    def queue_delete(self, obj_id: Any) -> None:
        """A pointer has gone. NB: called by finalizers; takes no lock."""
        self._deletes.append(obj_id)

    def close(self) -> None:
        """Say goodbye: the worker frees what this session held."""
        with self._sending:
            if self._closed:
                return
            self._closed = True
            self._wake.set()
            connection = self._connection
            if connection is None:
                return
            try:
                if len(self._batch):
                    self._flush()
                connection.send(frames.encode(Head(Kind.GOODBYE, confirmed=self._last_reply)))
                self._await_farewell(connection)
            except (OSError, SyftError):
                pass
            connection.close()
            self._connection = None

    def _await_farewell(self, connection: Connection) -> None:
        """Wait until the worker has done what was sent to it, so that nothing is cut off."""
        until = time.monotonic() + 5.0
        with self._reading:
            while time.monotonic() < until:
                self._take(connection.receive(timeout=5.0))

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._closed

    # -- collecting commands -----------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise NetworkError(f"The connection to {self.name} was closed. Make a new client worker.")
        if self._connection is None:
            self._reconnect(None)

    def _add(self, message: Any) -> None:
        if len(self._deletes) >= _BATCH_COMMANDS:
            self._add_deletes()
        self._batch.add(message)
        self._batch_sites.append(_site_of_caller())
        self._last_number = next(self._numbers)
        if len(self._batch) == 1:
            self._batch_began = time.monotonic()

    def _add_deletes(self) -> None:
        deletes = self._deletes
        if deletes:
            # NB: only as many as there are now; a finalizer may add more meanwhile.
            gone = tuple([deletes.popleft() for _ in range(len(deletes))])
            self._batch.add(PointersGoneMessage(gone))
            self._batch_sites.append(())
            self._last_number = next(self._numbers)

    def _is_due(self) -> bool:
        return (
            len(self._batch) >= _BATCH_COMMANDS or time.monotonic() - self._batch_began > _BATCH_SECONDS
        )

    def _flush(self, flags: int = 0) -> tuple[int, int]:
        """Send the collected commands; returns the number of the last one, and the count of restarts."""
        count = len(self._batch)
        if not count:
            return self._last_number, self._epoch
        self._wait_for_room()
        payload = self._batch.frames()
        sites = self._batch_sites
        self._new_batch()
        nbytes = sum(map(len, payload))
        is_large = nbytes > _UNCOPIED_BYTES
        if not is_large:
            payload = [b"".join(payload)]
        in_flight = self._last_number - self._confirmed
        if is_large or in_flight > _WINDOW_COMMANDS // 2 or self._bytes_in_flight() > _WINDOW_BYTES // 2:
            flags |= frames.CONFIRM
        number, epoch = self._last_number, self._epoch
        sent = Sent(
            number,
            Head(Kind.COMMANDS, flags, number=number - count + 1, count=count),
            payload,
            sites,
            nbytes,
        )
        self._unconfirmed.append(sent)
        self._sent_bytes += nbytes
        self._transmit(sent)
        if is_large and not flags & frames.WAITS:
            self._read_until(lambda: self._confirmed >= number or self._epoch != epoch)
        self._keep_alive()
        return number, epoch

    def _transmit(self, sent: Sent) -> None:
        connection = self._connection
        if connection is not None:
            try:
                self._send_frame(connection, sent)
                return
            except OSError:
                pass
        self._reconnect(connection)  # which sends everything again that is not confirmed

    def _send_frame(self, connection: Connection, sent: Sent) -> None:
        head = sent.head._replace(confirmed=self._last_reply)
        for part_head, part in frames.in_chunks(head, sent.payload, _CHUNK_BYTES):
            connection.send(frames.encode(part_head, part))
        self._last_spoken = time.monotonic()

    def _bytes_in_flight(self) -> int:
        return self._sent_bytes - self._confirmed_bytes

    def _wait_for_room(self) -> None:
        """Do not run ahead of the worker further than the window."""
        if self._last_number - self._confirmed > _WINDOW_COMMANDS or self._bytes_in_flight() > _WINDOW_BYTES:
            self._read_until(
                lambda: (self._last_number - self._confirmed <= _WINDOW_COMMANDS // 2
                and self._bytes_in_flight() <= _WINDOW_BYTES // 2)
                or not self._unconfirmed
            )

    # -- reading -----------------------------------------------------------------------------------

    def _reply_to(self, number: int, epoch: int) -> tuple[Head, memoryview]:
        key = epoch, number
        with turn.given_away():
            self._read_until(lambda: key in self._replies or self._epoch != epoch)
        reply = self._replies.pop(key, None)
        if reply is None:
            raise self._tell_restart()
        return reply

    def _read_until(self, is_done: Callable[[], bool]) -> None:
        """Read the connection, or let somebody else read it, until something has arrived."""
        while not is_done():
            connection = self._connection
            if connection is None:
                self._reconnect(None)
                continue
            if not self._reading.acquire(blocking=False):
                with self._arrived:
                    if not is_done():
                        self._arrived.wait(0.05)
                continue
            broken = None
            try:
                if not is_done() and self._connection is connection:
                    self._take(connection.receive(timeout=self.heartbeat))
            except TimeoutError:
                broken = self._suspect(connection)
            except OSError as error:
                broken = error
            finally:
                self._reading.release()
                with self._arrived:
                    self._arrived.notify_all()
            if broken is not None:
                self._reconnect(connection)

    def _suspect(self, connection: Connection) -> OSError | None:
        """Silence: ask whether anybody is there. Three times nothing is the end of the connection."""
        if time.monotonic() - self._last_heard > 3 * self.heartbeat:
            return TimeoutError("The worker has been silent for too long.")
        try:
            connection.send(frames.encode(Head(Kind.HEARTBEAT, confirmed=self._last_reply)))
        except OSError as error:
            return error
        return None

    def _take(self, frame: Any) -> None:
        """One frame from the worker. Called by whoever holds `_reading`."""
        self._last_heard = time.monotonic()
        head, payload = frames.decode(frame)
        if head.kind not in (Kind.REPLY, Kind.CONFIRMATION, Kind.HEARTBEAT, Kind.CHUNK, Kind.GOODBYE):
            raise ProtocolError(f"The worker sent a frame of kind {head.kind} in the middle of a session.")
        whole = self._assembly.take(head, payload)
        if head.kind == Kind.GOODBYE:
            raise ProtocolError("The worker is shutting down.")
        if head.kind == Kind.REPLY and whole is not None and head.number > self._last_reply:
            self._last_reply = head.number
            self._replies[self._epoch, head.number] = head, whole
        if head.kind != Kind.CHUNK:
            self._confirm(head.confirmed, head.failed)

    def _confirm(self, executed: int, failed: int) -> None:
        waiting = self._unconfirmed
        while waiting and waiting[0].last <= executed:
            sent = waiting.popleft()
            first = sent.last - sent.head.count + 1
            if failed and first <= failed <= sent.last:
                self._failed_sites[failed] = sent.sites[failed - first]
            self._confirmed_bytes += sent.nbytes
        if executed > self._confirmed:
            self._confirmed = executed

    def _value_of(self, head: Head, payload: memoryview) -> Any:
        value = serde.deserialize(payload, self._reader(), limits=self._limits, take_over=True)
        if not head.flags & (frames.FAILED | frames.FAILED_EARLIER):
            return value
        if not isinstance(value, Exception) or type(value).__name__ not in EXCEPTIONS:
            raise ProtocolError(f"The worker says that a command failed, with a {type(value).__name__}.")
        if head.flags & frames.FAILED_EARLIER:
            site = self._failed_sites.pop(head.failed, ())
            value.add_note(
                f"An earlier command to {self.name} failed with this; commands are not waited for. The call that "
                f"told you was not run: repeat it if you want its result.{_shown(site)}"
            )
        try:
            raise value
        finally:
            del value  # or it would hold itself, by this frame, and what the caller dropped with it

    # -- connections -------------------------------------------------------------------------------

    def _reconnect(self, broken: Connection | None) -> None:
        """Replace a connection that is broken. Whoever comes first does it; the others find it done."""
        if broken is not None:
            broken.close()  # wakes whoever reads it
        with self._sending:
            if self._connection is not broken:
                return
            if self._closed:
                raise NetworkError(f"The connection to {self.name} was closed.")
            with self._reading:
                self._connection = None
                self._connection = self._open()
                self._resume(self._connection)

    def _open(self) -> Connection:
        until = time.monotonic() + self.patience
        pause = 0.02
        while True:
            connection = None
            try:
                connection = self._opener()
                self._greet(connection)
                return connection
            except OSError as error:
                if connection is not None:
                    connection.close()
                if _is_final(error) or (self.welcome is None and isinstance(error, HandshakeRefused)):
                    raise
                if time.monotonic() + pause > until:
                    raise WorkerUnreachableError(
                        f"{self.name} cannot be reached: {error} ({self.patience:g} s were spent trying). Is it "
                        "running, and is the address right?"
                    ) from error
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _greet(self, connection: Connection) -> None:
        session = self.welcome.session if self.welcome is not None else None
        hello = self._hello(session, self._last_reply)
        connection.send(frames.encode(Head(Kind.HELLO), [handshake.encode(hello)]))
        head, payload = frames.decode(connection.receive(timeout=max(self.heartbeat, 5.0)))
        if head.kind == Kind.REFUSAL:
            refusal = handshake.decode(payload, handshake.Refusal)
            # A name from a closed list, never a class from the wire.
            kind = EXCEPTIONS.get(refusal.error)
            known = kind is not None and issubclass(kind, SyftError)
            error = (kind if known and kind is not None else NetworkError)(refusal.reason)
            error._syft_final = True  # type: ignore[attr-defined]
            raise error
        if head.kind != Kind.WELCOME:
            raise ProtocolError(f"The worker answered a greeting with a frame of kind {head.kind}.")
        welcome: handshake.Welcome = handshake.decode(payload, handshake.Welcome)
        if session is not None and (welcome.is_new or welcome.session != session):
            self._forget_session()
        self.welcome = welcome
        self.heartbeat = min(self.heartbeat, welcome.heartbeat)

    def _resume(self, connection: Connection) -> None:
        """Send again what the worker has not executed."""
        welcome = self.welcome
        if welcome is None:
            return
        self._assembly = frames.Assembly(self._limits.max_bytes)
        self._last_heard = time.monotonic()
        self._confirm(welcome.executed, 0)
        try:
            for sent in list(self._unconfirmed):
                self._send_frame(connection, sent)
        except OSError:
            connection.close()  # the next reader or sender finds out, and begins again

    def _forget_session(self) -> None:
        """The worker does not know the session: it was restarted, or we were away for too long."""
        self._epoch += 1
        self._restarted = True
        self._begin_session()
        self._deletes.clear()
        with self._arrived:
            self._arrived.notify_all()

    def _tell_restart(self) -> WorkerRestartedError:
        self._restarted = False
        return WorkerRestartedError(
            f"{self.name} was restarted, or has given up this session. What it held for you is gone, except data it "
            "keeps on disk; commands that it had not confirmed may not have run. A new session has begun: send your "
            "data again, or search for what is kept."
        )

    # -- the background ----------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        """One thread per link: sends what has waited too long, and a heartbeat when there is nothing to say."""
        if self._keeper is None or not self._keeper.is_alive():
            self._keeper = threading.Thread(
                target=_keep, args=(weakref.ref(self), self._wake), name=f"link to {self.name}", daemon=True
            )
            self._keeper.start()

    def _tick(self) -> float:
        """Background duty; returns the seconds until the next."""
        if self._closed:
            return -1.0
        if len(self._batch) or self._deletes:
            # Somebody who is sending now sends this, too.
            if self._sending.acquire(blocking=False):
                try:
                    if self._connection is not None:
                        self.flush()
                except (OSError, SyftError):
                    pass  # told to the next who calls
                finally:
                    self._sending.release()
        connection = self._connection
        if connection is not None and time.monotonic() - self._last_spoken > self.heartbeat / 2:
            self._last_spoken = time.monotonic()
            self._idle(connection)
        return self.heartbeat / 4

    def _idle(self, connection: Connection) -> None:
        """Nobody speaks: tell the worker that we live, and read what it said meanwhile."""
        try:
            connection.send(frames.encode(Head(Kind.HEARTBEAT, confirmed=self._last_reply)))
            if self._reading.acquire(blocking=False):
                try:
                    while self._connection is connection:
                        self._take(connection.receive(timeout=0.05))
                finally:
                    self._reading.release()
        except OSError:
            pass  # whoever calls next finds the connection broken, and replaces it


def _keep(link: weakref.ref[Link], wake: threading.Event) -> None:
    pause = 1.0
    while True:
        woken = wake.wait(pause)
        if woken:
            wake.clear()
            time.sleep(0.001)  # more may follow
        here = link()
        if here is None:
            return
        pause = here._tick()
        del here
        if pause < 0:
            return


def _is_final(error: BaseException) -> bool:
    """Whether trying again would give the same answer."""
    import ssl

    return bool(getattr(error, "_syft_final", False)) or isinstance(error, ssl.SSLCertVerificationError)


def _site_of_caller() -> Site:
    """The lines of the user that led here, innermost first. Cheap: nothing is read or formatted."""
    frame: FrameType | None = sys._getframe(2)
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _SITES:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_INSIDE):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


_INSIDE = ("syft.", "torch.", "contextlib", "threading")


def _shown(site: Iterable[tuple[CodeType, int]]) -> str:
    lines = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in site]
    return "\nIt was issued here (innermost first):\n" + "\n".join(lines) if lines else ""
