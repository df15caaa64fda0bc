"""inproc://name: two threads of one process. Frames are copied once, so that sender and receiver share nothing."""

from __future__ import annotations

import itertools
import math
import ssl
import threading
import time
from collections import deque
from collections.abc import Sequence

from syft.transport.address import split
from syft.transport.base import Buffer, Connection, FrameLimits, Listener, first_limit
from syft.transport.errors import (
    CannotConnect,
    CannotListen,
    ConnectionClosed,
    ConnectionLost,
    TransportError,
    again,
)
from syft.transport.handshake import client_context
from syft.transport.memory import joined
from syft.transport.sockets import announced_too_much, as_bytes, too_large, took_too_much

#: What one direction holds before a sender has to wait; one frame always fits.
_MOST_FRAMES = 1024
_MOST_BYTES = 1 << 26

_listeners: dict[str, InprocListener] = {}
_naming = threading.Lock()
_numbers = itertools.count(1)


class _Direction:
    """Frames under way from one end to the other."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.frames: deque[bytearray | memoryview] = deque()
        self.bytes = 0

    def is_full_for(self, count: int) -> bool:
        return len(self.frames) >= _MOST_FRAMES or (bool(self.frames) and self.bytes + count > _MOST_BYTES)


class InprocConnection(Connection):
    """One end: the direction it writes to and the one it reads from."""

    is_local = True

    def __init__(self, peer: str, limits: FrameLimits, outgoing: _Direction, incoming: _Direction) -> None:
        self.peer = peer
        self._limits, self._out, self._in = limits, outgoing, incoming
        self.max_frame_bytes = limits.max_frame_bytes
        self._other = self
        #: How it ended at this end, which counts at once; and at the other, after the frames that came before.
        self._end: TransportError | None = None
        self._end_there: TransportError | None = None

    def send(self, parts: Sequence[Buffer]) -> None:
        views, total = as_bytes(parts)
        if total > self._limits.max_frame_bytes:
            raise too_large(total, self._limits)
        self._check_open()
        if total > self._other.max_frame_bytes:
            raise self._refused_there(total)
        frame = joined(views, total)
        out, quiet = self._out, 0.0
        with out.changed:
            while out.is_full_for(total) and not self.closed:
                started, seen = time.monotonic(), len(out.frames)
                out.changed.wait(max(0.0, self._limits.stall_timeout - quiet))
                quiet = quiet + time.monotonic() - started if len(out.frames) == seen else 0.0
                if quiet >= self._limits.stall_timeout:
                    break
            else:
                self._check_open()
                out.frames.append(frame)
                out.bytes += total
                out.changed.notify_all()
                return
        error = ConnectionLost(
            f"{self.peer} was given up: it took no frame for {quiet:.3g} seconds (stall_timeout)."
        )
        self._finish(error, ConnectionLost(f"{self.peer} gave the connection up: nobody received here."))
        raise error

    def receive(self, timeout: float | None = None) -> bytearray | memoryview:
        incoming = self._in
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with incoming.changed:
            while True:
                if self._end is not None:
                    raise again(self._end)
                if incoming.frames:
                    frame = incoming.frames.popleft()
                    incoming.bytes -= len(frame)
                    incoming.changed.notify_all()
                    return frame
                if self._end_there is not None:
                    raise again(self._end_there)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"No frame came from {self.peer} in the time given.")
                incoming.changed.wait(None if left == math.inf else left)

    def close(self) -> None:
        self._finish(
            ConnectionClosed(f"The connection to {self.peer} was closed at this end."),
            ConnectionClosed(f"{self._other.peer} closed the connection."),
        )

    @property
    def closed(self) -> bool:
        return self._end is not None or self._end_there is not None

    def _check_open(self) -> None:
        end = self._end or self._end_there
        if end is not None:
            raise again(end)

    def _refused_there(self, total: int) -> ConnectionLost:
        """The receiver's limit is smaller: as with sockets, it is the receiver who ends the connection."""
        here = took_too_much(self.peer)
        there = announced_too_much(self._other.peer, total, self._other.max_frame_bytes)
        self._finish(here, there)
        return here

    def _finish(self, here: TransportError, there: TransportError) -> None:
        self._end = self._end or here
        self._other._end_there = self._other._end_there or there
        for direction in (self._out, self._in):
            with direction.changed:
                direction.changed.notify_all()


class InprocListener(Listener):
    """Known by its name to this process."""

    def __init__(self, name: str, limits: FrameLimits) -> None:
        self.address = f"inproc://{name}"
        self._name, self._limits = name, limits
        self._changed = threading.Condition()
        self._ready: deque[Connection] = deque()
        self._closed = False

    def accept(self, timeout: float | None = None) -> Connection:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready or self._closed, timeout):
                raise TimeoutError(f"Nobody connected to {self.address} within {timeout:g} seconds.")
            if self._closed:
                raise ConnectionClosed(f"The listener at {self.address} is closed.")
            return self._ready.popleft()

    def close(self) -> None:
        with _naming:
            if _listeners.get(self._name) is self:
                del _listeners[self._name]
        with self._changed:
            self._closed = True
            left = list(self._ready)
            self._ready.clear()
            self._changed.notify_all()
        for connection in left:
            connection.close()

    def join(self, limits: FrameLimits) -> Connection:
        """The other end of a new connection."""
        to_listener, from_listener = _Direction(), _Direction()
        ours = InprocConnection(self.address, limits, to_listener, from_listener)
        theirs = InprocConnection(
            f"{self.address}#{next(_numbers)}", self._limits, from_listener, to_listener
        )
        ours._other, theirs._other = theirs, ours
        theirs.max_frame_bytes = first_limit(self._limits)
        with self._changed:
            if self._closed or len(self._ready) >= self._limits.max_waiting:
                raise CannotConnect(
                    f"{self.address} takes no connection: "
                    + ("it is closed." if self._closed else "too many wait to be accepted already.")
                )
            self._ready.append(theirs)
            self._changed.notify_all()
        return ours


def connect(address: str, *, tls: ssl.SSLContext | None, timeout: float, limits: FrameLimits) -> Connection:
    client_context(address, tls, is_encrypted=False)
    with _naming:
        listener = _listeners.get(_name(address))
    if listener is None:
        raise CannotConnect(f"Nobody listens at {address} in this process. Call listen({address!r}) first.")
    return listener.join(limits)


def listen(address: str, *, tls: ssl.SSLContext | None, limits: FrameLimits) -> Listener:
    client_context(address, tls, is_encrypted=False)
    name = _name(address)
    with _naming:
        if name in _listeners:
            raise CannotListen(f"listen({address!r}): somebody listens there already. Choose another name.")
        _listeners[name] = listener = InprocListener(name, limits)
    return listener


def _name(address: str) -> str:
    _scheme, name = split(address)
    if not name.isprintable() or len(name) > 200:
        raise ValueError(
            f"The name in {address[:220]!r} has to be printable and at most 200 characters long."
        )
    return name
