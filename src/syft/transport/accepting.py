"""`SocketListener`: accepts sockets, and shakes hands with each in a thread of its own: nobody slow holds up the next.

The number of handshakes at once is bounded. When one more comes, the oldest has to go: an honest one takes
milliseconds, so a crowd of silent strangers shortens only its own time.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable

from syft.transport.base import Connection, FrameLimits, Listener, first_limit, logger
from syft.transport.errors import ConnectionClosed, HandshakeRefused
from syft.transport.handshake import dismiss, finish_tls, tls_fault, wrap_tls


class Arrival:
    """A socket on which hands are being shaken; `start_tls` replaces it."""

    def __init__(self, sock: socket.socket, peer: str, deadline: float) -> None:
        self.sock = sock
        self.peer = peer
        self.deadline = deadline
        self.was_too_slow = False

    def start_tls(self, context: ssl.SSLContext) -> None:
        self.sock = wrapped = wrap_tls(self.sock, context)
        finish_tls(wrapped, self.deadline)

    def send_away(self) -> None:
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            pass


class SocketListener(Listener):
    """`name_peer` names whoever connected; `welcome` makes a connection of an arrival or raises HandshakeRefused."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        limits: FrameLimits,
        name_peer: Callable[[object], str],
        welcome: Callable[[Arrival], Connection],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        self._socket, self._limits = sock, limits
        self._name_peer, self._welcome, self._on_close = name_peer, welcome, on_close
        self._changed = threading.Condition()
        self._ready: deque[Connection] = deque()
        self._arrivals: dict[Arrival, None] = {}  # the oldest first
        self._closed = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        sock.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name=f"accept {address}", daemon=True)
        self._thread.start()

    # -- the interface -----------------------------------------------------------------------------

    def accept(self, timeout: float | None = None) -> Connection:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready or self._closed, timeout):
                raise TimeoutError(f"Nobody connected to {self.address} within {timeout:g} seconds.")
            if self._closed:
                raise ConnectionClosed(f"The listener at {self.address} is closed.")
            self._changed.notify_all()
            return self._ready.popleft()

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            left, arrivals = list(self._ready), list(self._arrivals)
            self._ready.clear()
            self._changed.notify_all()
            # NB: not later, when the thread that serves may have looked, and closed it.
            self._wake_writer.send(b"!")
        for arrival in arrivals:
            arrival.send_away()
        for connection in left:
            connection.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._on_close()

    # -- threads -----------------------------------------------------------------------------------

    def _serve(self) -> None:
        with self._socket, self._wake_reader, self._wake_writer, selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while True:
                selector.select()
                with self._changed:
                    self._changed.wait_for(
                        lambda: len(self._ready) < self._limits.max_waiting or self._closed
                    )
                    if self._closed:
                        return
                try:
                    sock, name = self._socket.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    continue
                except OSError as error:  # no more file descriptors, most likely
                    logger.warning("%s cannot accept: %s", self.address, error)
                    time.sleep(0.05)
                    continue
                self._begin(
                    Arrival(sock, self._name_peer(name), time.monotonic() + self._limits.handshake_timeout)
                )

    def _begin(self, arrival: Arrival) -> None:
        with self._changed:
            while len(self._arrivals) >= self._limits.max_handshakes:
                oldest = next(iter(self._arrivals))
                del self._arrivals[oldest]
                oldest.was_too_slow = True
                oldest.send_away()
            self._arrivals[arrival] = None
        try:
            threading.Thread(target=self._shake_hands, args=(arrival,), daemon=True).start()
        except RuntimeError as error:  # no more threads
            arrival.sock.close()
            with self._changed:
                self._arrivals.pop(arrival, None)
            self.refuse(arrival.peer, f"there is no thread left to serve it ({error}).")

    def _shake_hands(self, arrival: Arrival) -> None:
        connection: Connection | None = None
        try:
            connection = self._welcome_or_refuse(arrival)
        finally:
            if connection is None:
                dismiss(arrival.sock)
            with self._changed:
                self._arrivals.pop(arrival, None)
                is_wanted = not self._closed
                if connection is not None and is_wanted:
                    connection.max_frame_bytes = first_limit(self._limits)
                    self._ready.append(connection)
                    self._changed.notify_all()
        if connection is not None and not is_wanted:
            connection.close()

    def _welcome_or_refuse(self, arrival: Arrival) -> Connection | None:
        try:
            return self._welcome(arrival)
        except TimeoutError:
            reason = f"it did not finish the handshake within {self._limits.handshake_timeout:g} seconds."
            arrival.send_away()
        except HandshakeRefused as error:
            reason = str(error)
        except ssl.SSLError as error:
            reason = tls_fault(error, is_server=True)
        except OSError as error:
            reason = f"the connection ended during the handshake: {error}."
        if arrival.was_too_slow:
            reason = "too many others were shaking hands, and it was the slowest."
        if not self._closed:
            self.refuse(arrival.peer, reason)
        return None
