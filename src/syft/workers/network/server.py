"""`Server`: accepts connections for a worker, serves them, and ends what has vanished.

One thread per connection, which reads a frame only when it has done what the one before asked for: a client that
sends faster than the worker computes is slowed down by its own connection, and cannot fill anybody's memory.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from syft import serde, transport
from syft.core.at_exit import stop_at_exit
from syft.core.interfaces import Worker
from syft.exceptions import (
    AuthenticationError,
    ConnectionRefusedByWorkerError,
    PermissionDeniedError,
    ProtocolError,
    SyftError,
)
from syft.identity.names import ANONYMOUS
from syft.policy.authentication import Proof
from syft.transport import Connection, FrameLimits, Listener, process_memory
from syft.transport import session_frames as frames
from syft.transport import session_outgoing as outgoing
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind
from syft.transport.session_lending import Lending
from syft.workers.network.incoming import Incoming
from syft.workers.network.sessions import ServerSession
from syft.workers.network.settings import ServerSettings as ServerSettings  # it is looked for here, too
from syft.workers.network.watcher import Watcher

logger = logging.getLogger("syft.worker")

#: (action, user, peer, granted, reason)
Audit = Callable[[str, str | None, str, bool, str], None]
#: Who is speaking, by what they said and how they are connected; !! AuthenticationError. None: nobody in particular.
Authenticate = Callable[[handshake.Hello, Connection], Proof | None]

#: What somebody may send before it is known who they are: a greeting.
_GREETING_BYTES = 64 << 10
_MANY_OBJECTS = 1_000
#: How long `stop` waits for what is running.
_STOP_SECONDS = 10.0


class Server:
    """Serves one worker at any number of addresses.

    rules  settings for one user, where the owner made some: (user, settings) -> settings
    admits  !! PermissionDeniedError for a user who proved a name and is not let in
    keep_house  is called every now and then
    keeps  what outlives the session that brought it: (id, object) -> bool
    """

    def __init__(
        self,
        worker: Worker,
        authenticate: Authenticate,
        audit: Audit,
        keeps: Callable[[Any, Any], bool],
        settings: ServerSettings | None = None,
        rules: Callable[[str, ServerSettings], ServerSettings] = lambda _user, settings: settings,
        admits: Callable[[str], None] = lambda _user: None,
        keep_house: Callable[[], None] = lambda: None,
    ) -> None:
        self.worker = worker
        self._admits, self.keep_house = admits, keep_house
        self.instance = secrets.token_hex(16)
        self.settings = settings or ServerSettings()
        self.began = time.time()
        self._authenticate, self._audit, self._keeps, self._rules = authenticate, audit, keeps, rules
        self._worker_lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._threads: list[threading.Thread] = []
        self._sessions: dict[str, ServerSession] = {}
        self._table = threading.Lock()
        self._connections: set[Connection] = set()
        self._silent: dict[Connection, None] = {}  # have not said who they are, the oldest first
        self._stopping = threading.Event()
        self._asked_to_stop = threading.Event()
        self._watcher = Watcher(self)
        #: Makes a session; one that runs its commands elsewhere, where a worker is isolated (`syft.isolation`).
        self.make_session: Callable[..., ServerSession] = ServerSession
        self.stop_seconds = _STOP_SECONDS
        self.commands_executed = 0

    # -- life --------------------------------------------------------------------------------------

    def listen(self, address: str, tls: ssl.SSLContext | None = None) -> str:
        """Accept connections at an address, from now on; returns it with the port that was chosen."""
        limits = FrameLimits(max_frame_bytes=frames.MAX_FRAME_BYTES, max_first_bytes=_GREETING_BYTES)
        listener = transport.listen(address, tls=tls, limits=limits)
        listener.on_refused = self._note_refusal
        if not self._listeners:
            self._begin(self._watcher.run, name=f"{self.worker.id}: watch")
            stop_at_exit(self)
        self._listeners.append(listener)
        self._begin(self._accept, listener, name=f"{self.worker.id} at {listener.address}")
        return listener.address

    def _note_refusal(self, peer: str, reason: str, user: str | None = None, action: str = "connect") -> None:
        """Somebody was turned away, or sent away. They are, whether it can be written down or not."""
        try:
            self._audit(action, user, peer, False, reason)
        except (OSError, ValueError):
            logger.exception("%s: a refusal could not be written to the audit log", self.worker.id)

    @property
    def addresses(self) -> list[str]:
        return [listener.address for listener in self._listeners]

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Until somebody asks the server to stop, or so many seconds; whether somebody did."""
        return self._asked_to_stop.wait(seconds)

    def ask_to_stop(self) -> None:
        """May be called by a signal handler."""
        self._asked_to_stop.set()

    def stop(self) -> None:
        """Accept nobody, finish what is running, say goodbye, end."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._watcher.stir()
        self._asked_to_stop.set()
        for listener in self._listeners:
            listener.close()
        until = time.monotonic() + self.stop_seconds
        for session in self.sessions():
            # Who is busy finishes first, if it does not take too long.
            if session.lock.acquire(timeout=max(0.0, until - time.monotonic())):
                try:
                    if session.connection is not None:
                        head = Head(Kind.GOODBYE, confirmed=session.executed)
                        self._begin(outgoing.try_send, session.connection, head, name="goodbye").join(1.0)
                finally:
                    session.lock.release()
        for session in self.sessions():
            session.interrupt("the worker is shutting down")
        for connection in list(self._connections):
            connection.close()
        me = threading.current_thread()
        for thread in list(self._threads):
            if thread is not me:
                thread.join(timeout=max(0.1, until - time.monotonic()))

    def _begin(self, target: Callable[..., None], *args: Any, name: str) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        with self._table:
            self._threads = [t for t in self._threads if t.is_alive()]
            self._threads.append(thread)
        return thread

    def _accept(self, listener: Listener) -> None:
        while not self._stopping.is_set():
            try:
                connection = listener.accept()
            except OSError:
                return
            self._make_room()
            with self._table:
                self._connections.add(connection)
                self._silent[connection] = None
            try:
                if len(self._connections) > 2 * self.settings.max_sessions:
                    raise RuntimeError(f"there are {len(self._connections)} connections")
                self._begin(self._serve, connection, name=f"{self.worker.id}: {connection.peer}")
            except RuntimeError as error:  # also if there is no thread left
                self._drop(connection, f"The worker is full: {error}.")

    def _make_room(self) -> None:
        """Where there are as many connections as there may be, the one goes that has been silent longest.

        An honest client greets within milliseconds, so a crowd of silent strangers shortens only its own time.
        """
        with self._table:
            is_full = len(self._connections) >= 2 * self.settings.max_sessions
            oldest = next(iter(self._silent), None) if is_full else None
        if oldest is not None:
            self._drop(oldest, "It did not say who it is, and others came.")

    def _drop(self, connection: Connection, why: str) -> None:
        self._forget(connection)
        connection.close()
        self._note_refusal(connection.peer, why)

    def _forget(self, connection: Connection) -> None:
        with self._table:
            self._connections.discard(connection)
            self._silent.pop(connection, None)

    # -- one connection ----------------------------------------------------------------------------

    def _serve(self, connection: Connection) -> None:
        session = None
        try:
            session = self._greet(connection)
            if session is not None:
                self._converse(connection, session)
        except OSError as error:
            logger.info("%s: the connection to %s ended: %s", self.worker.id, connection.peer, error)
            if isinstance(error, (ProtocolError, transport.FrameRefused)):
                self._audit("frame", session.user if session else None, connection.peer, False, str(error))
        except Exception:
            logger.exception("%s: while serving %s", self.worker.id, connection.peer)
        finally:
            connection.close()
            self._forget(connection)
            if session is not None:
                with session.lock:
                    if session.connection is connection:
                        session.connection = None
                        session.last_heard = time.monotonic()

    def _converse(self, connection: Connection, session: ServerSession) -> None:
        assembly = frames.Assembly(self.settings_of(session.user).max_message)
        incoming = Incoming(connection, self.settings.heartbeat)
        lending = session.lending = Lending(
            partial(incoming.take, run=partial(self._execute_borrowed, connection, session))
        )
        while not self._stopping.is_set() and session.connection is connection and not session.ended:
            lending.lend()
            frame = incoming.next()
            if frame is None:
                logger.info("%s: %s has been silent for too long", self.worker.id, connection.peer)
                return
            session.last_heard = time.monotonic()
            head, payload = frame
            del frame
            try:
                if head.kind == Kind.HEARTBEAT:
                    with session.lock:
                        session.note_confirmed(head.confirmed)
                    outgoing.send(connection, *session.heartbeat())
                elif head.kind in (Kind.COMMANDS, Kind.CHUNK):
                    whole = assembly.take(head, payload)
                    del payload
                    if whole is not None:
                        if session.keeps_too_much:
                            incoming.await_confirmation(session, head)
                        self._execute(connection, session, head, whole)
                elif head.kind == Kind.GOODBYE:
                    with session.lock:
                        self._end(session, "said goodbye")
                    outgoing.send(connection, Head(Kind.GOODBYE, confirmed=session.executed), [])
                    return
                else:
                    raise ProtocolError(
                        f"A client sent a frame of kind {head.kind} in the middle of a session."
                    )
            except ProtocolError as error:
                # What arrived whole and makes no sense makes none the next time either: the client is told.
                outgoing.refuse(connection, error)
                outgoing.hear_out(connection)
                raise
        if session.ended:
            outgoing.hear_out(connection)  # whoever ended it tells the client why

    def _execute(
        self, connection: Connection, session: ServerSession, head: Head, payload: memoryview
    ) -> None:
        session.busy_since = time.monotonic()
        try:
            with session.lock:
                if session.connection is not connection or session.ended:
                    return
                if session.reply_bytes:
                    session.note_confirmed(head.confirmed)
                answer = session.execute(head, payload)
                if answer is not None and not session.ended:
                    outgoing.send(connection, *answer)
        finally:
            session.busy_since = None
        self._count(session, head.count)

    def _execute_borrowed(
        self, connection: Connection, session: ServerSession, head: Head, payload: memoryview
    ) -> bool:
        """What a thread does with a frame for which it borrowed the connection; False: nothing."""
        with session.lock:
            if session.connection is not connection or session.ended:
                return False
            if not session.take_without_lock(head, payload):
                return False
            session.last_heard = time.monotonic()
            session.note_confirmed(head.confirmed)
            if session.owes_confirmation(head):
                outgoing.try_send(connection, *session.confirmation())
        self._count(session, 1)
        return True

    def _count(self, session: ServerSession, commands: int) -> None:
        self.commands_executed += commands
        self.worker.policy.count("commands", session.user, commands)

    # -- greetings ---------------------------------------------------------------------------------

    def _greet(self, connection: Connection) -> ServerSession | None:
        head, payload = frames.decode(connection.receive(timeout=10.0))
        if head.kind != Kind.HELLO:
            raise ProtocolError(f"A connection began with a frame of kind {head.kind}, not with a greeting.")
        proof: Proof | None = None
        try:
            hello: handshake.Hello = handshake.decode(payload, handshake.Hello)
            self._check_hello(hello)
            proof = self._authenticate(hello, connection)
            if proof is not None:
                self._admits(proof.user)
            with self._table:
                self._silent.pop(connection, None)
            return self._admit(hello, connection, proof)
        except (
            ProtocolError,
            ConnectionRefusedByWorkerError,
            AuthenticationError,
            PermissionDeniedError,
        ) as error:
            user = proof.user if proof is not None else None
            self._audit("connect", user, connection.peer, False, str(error))
            outgoing.refuse(connection, error)
            return None

    def _check_hello(self, hello: handshake.Hello) -> None:
        if hello.protocol != handshake.PROTOCOL:
            raise ConnectionRefusedByWorkerError(
                f"The worker speaks version {handshake.PROTOCOL} of the protocol, the client version "
                f"{hello.protocol}. Update the older one."
            )
        if hello.expects is not None and hello.expects != self.worker.id:
            raise ConnectionRefusedByWorkerError(
                f"The worker at this address is {self.worker.id!r}, not {hello.expects!r}. Check the address, or leave "
                "out the id."
            )

    def _admit(
        self, hello: handshake.Hello, connection: Connection, proof: Proof | None
    ) -> ServerSession | None:
        session = self._sessions.get(hello.session) if hello.session is not None else None
        if session is not None and not _is_same_user(session, proof):
            raise ConnectionRefusedByWorkerError(
                "The session that was to be continued is somebody else's. Make a new client worker."
            )
        if session is not None and not session.ended:
            return self._resume(session, hello, connection, proof)
        session = self._new_session(hello, proof)
        self._audit("connect", session.user, connection.peer, True, hello.client)
        self._take_over(session, connection, is_new=True)
        return session

    def _take_over(self, session: ServerSession, connection: Connection, is_new: bool) -> None:
        """Give a session a connection, and tell the client where it stands."""
        session.connection = connection
        session.last_heard = time.monotonic()
        connection.max_frame_bytes = frames.MAX_FRAME_BYTES
        try:
            outgoing.send(connection, Head(Kind.WELCOME), [self._welcome(session, is_new)])
            for head, payload in session.unconfirmed_replies():
                outgoing.send(connection, head, payload)
        except BaseException:
            session.connection = None  # or it would never be missed
            raise

    def _resume(
        self, session: ServerSession, hello: handshake.Hello, connection: Connection, proof: Proof | None
    ) -> ServerSession | None:
        """Continue a session on a new connection. Its old one, if it still runs, ends first."""
        self._cut_off(session)
        while not session.lock.acquire(timeout=self.settings.heartbeat / 2):
            # What it sent before is still running.
            outgoing.send(connection, *session.heartbeat())
            self._cut_off(session)
        try:
            if session.ended:
                return None
            self._cut_off(session)
            session.proof = proof  # with another token, it is that one which counts from now on
            session.note_confirmed(hello.confirmed)
            self._take_over(session, connection, is_new=False)
        finally:
            session.lock.release()
        return session

    def _cut_off(self, session: ServerSession) -> None:
        old = session.connection
        if old is not None:
            old.close()

    def _new_session(self, hello: handshake.Hello, proof: Proof | None) -> ServerSession:
        user = proof.user if proof is not None else None
        settings = self.settings_of(user)
        with self._table:
            if len(self._sessions) >= self.settings.max_sessions:
                raise ConnectionRefusedByWorkerError(
                    f"The worker {self.worker.id!r} has {len(self._sessions)} sessions, as many as it takes. Try later."
                )
            of_user = sum(_is_same_user(session, proof) for session in self._sessions.values())
            if user is not None and of_user >= settings.max_sessions_per_user:
                raise ConnectionRefusedByWorkerError(
                    f"User {user!r} has {of_user} sessions with the worker {self.worker.id!r}, as many as one may have. "
                    "Close some (client.close()); those that vanished end by themselves."
                )
            most = settings.max_message
            limits = serde.Limits(max_bytes=most, max_decompressed=min(serde.Limits().max_decompressed, most))
            compression = serde.choose_compression(hello.compressions)
            made = self.make_session(self.worker, user or "", self._worker_lock, limits, compression, proof)
            if user is None:
                made.user = f"{ANONYMOUS}{secrets.token_hex(8)}"
            self._sessions[made.id] = made
        self._watcher.expect(self.settings_of(made.user).seconds_per_operation)
        return made

    def _welcome(self, session: ServerSession, is_new: bool) -> bytes:
        return handshake.encode(
            handshake.Welcome(
                handshake.PROTOCOL,
                self.worker.id,
                self.instance,
                session.id,
                is_new,
                session.executed,
                session.user,
                self.settings.heartbeat,
                self.settings_of(session.user).max_message,
                list(serde.available_compressions()),
                session.failed,
                self.worker.admits_only_table,
                str(self.worker.device or ""),
            )
        )

    def settings_of(self, user: str | None) -> ServerSettings:
        """What holds for a user; None: for somebody without a name."""
        return self.settings if user is None else self._rules(user, self.settings)

    # -- what has vanished -------------------------------------------------------------------------

    def sessions(self) -> list[ServerSession]:
        with self._table:
            return list(self._sessions.values())

    def _end(self, session: ServerSession, why: str) -> None:
        """Called with the lock of the session held."""
        with self._table:
            self._sessions.pop(session.id, None)
        if session.ended and not session.holds_something:
            return
        freed = session.end(self._keeps)
        if freed >= _MANY_OBJECTS:
            process_memory.give_back()
        logger.info(
            "%s: the session of %s %s; %d objects were freed", self.worker.id, session.user, why, freed
        )

    def _end_when_done(self, session: ServerSession, why: str) -> None:
        with session.lock:
            self._end(session, why)

    def end_if_vanished(self, session: ServerSession, now: float) -> None:
        """End a session without a connection, if it has been without for long."""
        if now - session.last_heard > self.settings.grace and session.lock.acquire(blocking=False):
            try:
                # It may have come back meanwhile.
                if session.connection is None and now - session.last_heard > self.settings.grace:
                    self._end(session, f"has been away for more than {self.settings.grace:g} s")
            finally:
                session.lock.release()

    def show_life(self, session: ServerSession, connection: Connection) -> None:
        """Tell a client that waits that we live. Returns at once: it may not read."""
        if not any(thread.name == session.id for thread in self._threads):
            self._begin(outgoing.try_send, connection, session.heartbeat()[0], name=session.id)

    def dismiss(self, session: ServerSession, error: SyftError, action: str = "connect") -> None:
        """End a session, and tell its client why: no command of it begins any more. Returns at once."""
        if session.ended:
            return
        session.ended = True
        connection = session.connection
        self._note_refusal(getattr(connection, "peer", ""), str(error), session.user, action)
        session.interrupt(str(error))
        self._begin(self._see_off, session, connection, error, name=f"{self.worker.id}: ending")

    def _see_off(self, session: ServerSession, connection: Connection | None, error: SyftError) -> None:
        if connection is not None:
            # In a thread: somebody who does not read is not waited for.
            self._begin(outgoing.refuse, connection, error, name="dismissal").join(outgoing.DISMISSAL_SECONDS)
        # What it is doing runs to its end, and is freed with the rest.
        self._end_when_done(session, f"was ended: {error}")
        if connection is not None:
            outgoing.hear_out(connection)
            connection.close()

    def status(self) -> dict[str, Any]:
        """Numbers about the server, for its owner and for whoever asks."""
        sessions = self.sessions()
        return {
            "sessions": len(sessions),
            "connections": sum(session.connection is not None for session in sessions),
            "commands": self.commands_executed,
            "uptime": time.time() - self.began,
        }


def _is_same_user(session: ServerSession, proof: Proof | None) -> bool:
    return session.proof is None if proof is None else session.user == proof.user
