"""`SocketConnection`: what connections over sockets have in common, whatever their frames look like on the wire.

Locks: `_sending` and `_receiving` are held by the thread that does it. A socket is closed only by who holds both, since
its number could be another file's a moment later; see `_finish`.
"""

from __future__ import annotations

import abc
import socket
import threading
import time
from collections.abc import Sequence

from syft.transport.base import Buffer, Connection, FrameLimits
from syft.transport.errors import (
    ConnectionClosed,
    ConnectionLost,
    FrameRefused,
    FrameTooLarge,
    TransportError,
    again,
)
from syft.transport.inbox import EndOfStream, Inbox, Partial
from syft.transport.stream import LOCAL_BUFFER, ByteStream, Pace

#: How long to look for the reason why a peer takes no more.
_LAST_WORD_SECONDS = 0.5


class SocketConnection(Connection):
    """Subclasses say how frames, and the goodbye, look like."""

    def __init__(self, sock: socket.socket, peer: str, limits: FrameLimits, first: bytes = b"") -> None:
        self.peer = peer
        self._limits = limits
        self.max_frame_bytes = limits.max_frame_bytes
        self._stream = ByteStream(sock, peer)
        self._in_pace, self._out_pace = Pace(limits), Pace(limits)
        self._inbox = Inbox(self._stream, self._in_pace, first)
        self._sending, self._receiving, self._finishing = threading.Lock(), threading.Lock(), threading.Lock()
        #: How the connection ended; the first end counts.
        self._end: TransportError | None = None
        #: Why nothing can be sent any more, while there may be something to receive.
        self._send_fault: TransportError | None = None
        #: A large frame that is half here.
        self._partial: Partial | None = None

    tells_when_full = True

    # -- what subclasses say -----------------------------------------------------------------------

    @abc.abstractmethod
    def _transmit(self, parts: list[Buffer], total: int) -> None:
        """Write one frame. `_sending` is held."""

    @abc.abstractmethod
    def _next(self, deadline: float | None) -> bytearray | memoryview:
        """Read one frame. `_receiving` is held. !! `ConnectionClosed` for the peer's goodbye."""

    @abc.abstractmethod
    def _last_word(self, deadline: float | None) -> None:
        """!! What `_next` raises at the peer's goodbye, if that comes next. A frame that does stays where it is."""

    @abc.abstractmethod
    def _goodbye(self, fault: FrameRefused | None) -> bytes:
        """What tells the peer that the connection ends, and whether it is to blame."""

    # -- the interface -----------------------------------------------------------------------------

    def send(self, parts: Sequence[Buffer]) -> None:
        views, total = as_bytes(parts)
        if total > self._limits.max_frame_bytes:
            raise too_large(total, self._limits)
        try:
            with self._sending:
                if self._end is not None or self._send_fault is not None:
                    self._check_sending()
                pace = self._out_pace
                pace.moved, pace.waited, pace.quiet = 0, 0.0, 0.0  # `begin`, without a call
                self._stream.on_full = self.on_full
                is_sent = False
                try:
                    self._transmit(views, total)
                    is_sent = True
                except ConnectionLost as error:
                    end = self._end or self._told_why()
                    if end is not None:
                        raise again(end) from error
                    self._send_fault = error
                    raise
                finally:
                    # Also a KeyboardInterrupt leaves half a frame behind, which nothing may follow.
                    if not is_sent and self._out_pace.moved:
                        self._send_fault = self._send_fault or ConnectionLost(
                            f"A frame to {self.peer} was cut off, so no other can follow it."
                        )
                        self._stream.shutdown()
        finally:
            self._after_sending()

    def _told_why(self) -> TransportError | None:
        """How the peer ended what cannot be sent on any more: it may have said so before it left. `_sending` is held."""
        deadline = time.monotonic() + _LAST_WORD_SECONDS
        if self._receiving.acquire(timeout=_LAST_WORD_SECONDS):
            try:
                if self._end is None and self._partial is None:
                    self._last_word(deadline)
            except (ConnectionClosed, ConnectionLost) as said:
                self._ended(said)
            except (EndOfStream, TimeoutError):
                pass
            finally:
                self._receiving.release()
        return self._end

    def _after_sending(self) -> None:
        if self._end is not None:
            self._finish()

    def _check_sending(self) -> None:
        fault = self._end or self._send_fault
        if fault is not None:
            raise again(fault)

    def receive(self, timeout: float | None = None) -> bytearray | memoryview:
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._receiving.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError(f"Another thread was receiving from {self.peer} all the time.")
        try:
            if self._end is not None:
                raise again(self._end)
            self._stream.spin_seconds = self.spin_seconds
            frame = self._next(deadline)
            pace = self._in_pace
            pace.moved, pace.waited, pace.quiet = 0, 0.0, 0.0  # `begin`, without a call
            return frame
        except EndOfStream:
            in_frame = self._partial or self._inbox.end > self._inbox.start or self._in_pace.moved
            raise self._ended(
                ConnectionLost(
                    f"{self.peer} went away without a goodbye{', in the middle of a frame' if in_frame else ''}: "
                    "its process ended or the connection was cut."
                )
            ) from None
        except (ConnectionClosed, ConnectionLost) as error:
            ended = self._ended(error)
            if ended is error:
                raise
            raise ended from error
        finally:
            self._receiving.release()
            if self._end is not None:
                self._finish()

    def _ended(self, error: TransportError) -> TransportError:
        """Note how the connection ended, tell the peer if it is to blame; what to raise."""
        if self._end is not None:
            return again(self._end)
        # NB: not the error itself, whose traceback would hold the memory of a frame that is half here.
        self._end, self._partial = again(error), None
        if isinstance(error, FrameRefused):
            self._say_goodbye(error)
        self._stream.shutdown()
        return error

    def close(self) -> None:
        if self._end is None:
            self._end = ConnectionClosed(f"The connection to {self.peer} was closed at this end.")
            self._say_goodbye(None)
            self._stream.shutdown()
        self._finish()

    @property
    def closed(self) -> bool:
        return self._end is not None or self._send_fault is not None

    @property
    def progress(self) -> int:
        return self._in_pace.moved + self._inbox.end - self._inbox.start

    # -- ending ------------------------------------------------------------------------------------

    def _say_goodbye(self, fault: FrameRefused | None) -> None:
        """Never waits: whoever closes may be in a hurry, and half a frame cannot be followed by a goodbye."""
        if self._sending.acquire(blocking=False):
            try:
                if self._send_fault is None:
                    self._stream.try_write(self._goodbye(fault))
            except ConnectionLost:
                pass
            finally:
                self._sending.release()

    def _let_go(self) -> None:
        """Give what the connection has to the system, as often as it is called. Both locks are held."""
        self._stream.close()

    def _finish(self) -> None:
        """Close the socket if nobody uses it. If somebody does, they call this when they leave."""
        with self._finishing:
            if self._receiving.acquire(blocking=False):
                try:
                    if self._sending.acquire(blocking=False):
                        try:
                            self._let_go()
                        finally:
                            self._sending.release()
                finally:
                    self._receiving.release()


def as_bytes(parts: Sequence[Buffer]) -> tuple[list[Buffer], int]:
    """The parts as rows of bytes, and their length together."""
    if isinstance(parts, (bytes, bytearray, memoryview, str)):
        raise TypeError(
            f"send() takes a list of buffers, got {type(parts).__name__}: put it in a list, send([data])."
        )
    views: list[Buffer] = []
    total = 0
    for part in parts:
        if isinstance(part, memoryview):
            if part.ndim != 1 or part.format != "B" or not part.contiguous:
                part = _flat(part)
        elif not isinstance(part, (bytes, bytearray)):
            raise TypeError(
                f"send() takes buffers (bytes, bytearray or memoryview), got {type(part).__name__} among the parts."
            )
        views.append(part)
        total += len(part)
    return views, total


def _flat(view: memoryview) -> Buffer:
    if not view.contiguous:
        raise ValueError(
            "send() got a memoryview that is not contiguous. Copy it first, e.g. with bytes(view)."
        )
    return view.cast("B") if view.nbytes else b""


def too_large(total: int, limits: FrameLimits) -> FrameTooLarge:
    return FrameTooLarge(
        f"send() got a frame of {total} bytes; the limit of this connection is {limits.max_frame_bytes} "
        "(FrameLimits.max_frame_bytes). Send it in several frames, or raise the limit at both ends."
    )


def announced_too_much(peer: str, total: int, most: int) -> FrameRefused:
    return FrameRefused(
        f"{peer} announced a frame of {total} bytes; the limit here is {most} (max_frame_bytes, or max_first_bytes "
        "until it is known who speaks), so the connection was ended.",
        is_too_long=True,
    )


def took_too_much(peer: str) -> ConnectionLost:
    return ConnectionLost(
        f"{peer} ended the connection: a frame was longer than it takes (its FrameLimits.max_frame_bytes). "
        "Send it in several frames."
    )


def tune(sock: socket.socket, is_local: bool) -> None:
    """Options that pay: no waiting for more to send, probes that find a dead peer, more room between local processes."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if is_local:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LOCAL_BUFFER)
