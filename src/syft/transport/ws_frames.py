"""WebSocket frames (RFC 6455, section 5) as frames of ours: one binary message each. The opening handshake is in `ws.py`.

The library's own connections copy every byte several times. Here large messages are masked on their way out a piece at a
time, and read to where they stay and unmasked there; see `bench/transport.py`. Messages that come in fragments are
taken, none are sent. Compression is not spoken.

A ping goes out when nothing came for a while, so that what lies between the two ends keeps the connection. It is sent
and answered within `receive`, so a missing answer says nothing: how long to wait for a peer is decided above.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import deque

from syft.transport.base import Buffer, FrameLimits
from syft.transport.errors import ConnectionClosed, ConnectionLost, FrameRefused
from syft.transport.inbox import KEPT_BYTES, Partial
from syft.transport.sockets import SocketConnection, announced_too_much, took_too_much
from syft.transport.stream import coalesce

try:
    from websockets.speedups import apply_mask
except ImportError:  # a system the library has no compiled part for
    from websockets.utils import apply_mask

_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_PIECE_BYTES = 1 << 18
_PING_SECONDS = 20.0
#: Answers to pings that the peer does not take are dropped beyond this.
_MOST_CONTROL_BYTES = 4096


class WebsocketConnection(SocketConnection):
    """A socket whose opening handshake is done. `first` is what was read after it. Clients mask, servers do not."""

    def __init__(
        self, sock: socket.socket, peer: str, limits: FrameLimits, first: bytes = b"", *, is_client: bool
    ) -> None:
        super().__init__(sock, peer, limits, first)
        self._is_client = is_client
        self._partial_key = b""
        self._partial_is_final = True
        #: The beginning of a message that comes in fragments.
        self._message: bytearray | None = None
        #: Control frames for whoever holds `_sending` next; and, under that lock, what could not be written of them.
        self._controls: deque[bytes] = deque(maxlen=8)
        self._unwritten = bytearray()
        self._stream.on_idle, self._stream.idle_seconds = self._ping, _PING_SECONDS

    # -- sending -----------------------------------------------------------------------------------

    def _transmit(self, parts: list[Buffer], total: int) -> None:
        if self._unwritten:
            self._stream.write([bytes(self._unwritten)], self._out_pace)
            self._unwritten.clear()
        if total < KEPT_BYTES:
            self._stream.write([self._frame(_BINARY, b"".join(parts))], self._out_pace)
        elif not self._is_client:
            self._stream.write(coalesce([_header(_BINARY, total, b""), *parts]), self._out_pace)
        else:
            self._transmit_masked(parts, total)

    def _transmit_masked(self, parts: list[Buffer], total: int) -> None:
        key = os.urandom(4)
        head, position = _header(_BINARY, total, key), 0
        for part in coalesce(parts):
            view = memoryview(part)
            for begin in range(0, len(view), _PIECE_BYTES):
                piece = view[begin : begin + _PIECE_BYTES]
                masked = apply_mask(piece, _turned(key, position))
                self._stream.write([head, masked] if head else [masked], self._out_pace)
                head = b""
                position += len(piece)

    def _frame(self, opcode: int, payload: bytes) -> bytes:
        """A small frame."""
        if not self._is_client:
            return _header(opcode, len(payload), b"") + payload
        key = os.urandom(4)
        return _header(opcode, len(payload), key) + apply_mask(payload, key)

    def _after_sending(self) -> None:
        self._flush_controls()
        super()._after_sending()

    def _control(self, opcode: int, payload: bytes = b"") -> None:
        """Send a control frame without ever waiting: who receives must go on receiving."""
        self._controls.append(self._frame(opcode, payload))
        self._flush_controls()

    def _flush_controls(self) -> None:
        while self._controls and self._end is None and self._sending.acquire(blocking=False):
            try:
                while self._controls:
                    control = self._controls.popleft()
                    if len(self._unwritten) < _MOST_CONTROL_BYTES:
                        self._unwritten += control
                if self._send_fault is None:
                    del self._unwritten[: self._stream.try_write(bytes(self._unwritten))]
            except ConnectionLost as error:
                self._send_fault = error
            finally:
                self._sending.release()
        if self._end is not None:
            self._finish()

    def _ping(self) -> None:
        self._control(_PING)

    def _goodbye(self, fault: FrameRefused | None) -> bytes:
        code, reason = (1000, "") if fault is None else (1009 if fault.is_too_long else 1002, "refused")
        return bytes(self._unwritten) + self._frame(_CLOSE, struct.pack("!H", code) + reason.encode())

    # -- receiving ---------------------------------------------------------------------------------

    def _next(self, deadline: float | None) -> bytearray | memoryview:
        while True:
            payload = self._payload(deadline)
            if payload is None:  # a control frame
                if self._message is None:
                    self._in_pace.begin()
                self._check_deadline(deadline)
            elif self._message is None and self._partial_is_final:
                return payload
            else:
                message = bytearray() if self._message is None else self._message
                message += payload
                self._message = None if self._partial_is_final else message
                if self._partial_is_final:
                    return message
                self._in_pace.progress(len(payload) or 1)
                self._check_deadline(deadline)

    def _payload(self, deadline: float | None) -> bytearray | memoryview | None:
        """The payload of the next data frame, unmasked; None for a control frame."""
        inbox = self._inbox
        if self._partial is None:
            size, opcode, length = self._head(deadline)
            key = (
                bytes(inbox.data[inbox.start + size - 4 : inbox.start + size]) if not self._is_client else b""
            )
            if opcode >= _CLOSE or size + length <= KEPT_BYTES:
                inbox.need(size + length, deadline)
                is_final = inbox.data[inbox.start] >= _FINAL
                inbox.start += size
                payload = inbox.take(length)
                if key and length:
                    payload = bytearray(apply_mask(payload, key))
                if opcode >= _CLOSE:
                    self._answer(opcode, bytes(payload))
                    return None
                self._partial_is_final = is_final
                return payload
            self._partial = Partial(length)
            self._partial_is_final = inbox.data[inbox.start] >= _FINAL
            self._partial_key = key
            inbox.start += size
        is_whole = self._partial_is_final and self._message is None
        inbox.fill(
            self._partial,
            deadline,
            None if self._is_client else self._unmask,
            self.on_part if is_whole else None,
        )
        view, self._partial = self._partial.view, None
        return view

    def _unmask(self, piece: memoryview, position: int) -> None:
        piece[:] = apply_mask(piece, _turned(self._partial_key, position))

    def _head(self, deadline: float | None) -> tuple[int, int, int]:
        """(bytes of the header, opcode, bytes of the payload) of a frame that may be taken; nothing is used up."""
        inbox = self._inbox
        inbox.need(2, deadline)
        first, second = inbox.data[inbox.start], inbox.data[inbox.start + 1]
        opcode, length = first & 0x0F, second & 0x7F
        if first & 0x70 or opcode not in (_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise FrameRefused(
                f"{self.peer} sent bytes that are no WebSocket frame, so the connection was ended."
            )
        if bool(second & _MASKED) == self._is_client:
            raise FrameRefused(
                f"{self.peer} sent a frame that is {'masked' if self._is_client else 'not masked'}, which a "
                f"{'server' if self._is_client else 'client'} must not, so the connection was ended."
            )
        if opcode >= _CLOSE and (length > 125 or first < _FINAL):
            raise FrameRefused(
                f"{self.peer} sent a control frame that is too long, so the connection was ended."
            )
        if opcode == _TEXT:
            raise FrameRefused(
                f"{self.peer} sent text; only binary messages are taken, so the connection was ended."
            )
        if opcode in (_CONTINUED, _BINARY) and (opcode == _CONTINUED) != (self._message is not None):
            raise FrameRefused(f"{self.peer} sent fragments out of order, so the connection was ended.")
        size = 2 if self._is_client else 6
        if length >= 126:
            wide = 2 if length == 126 else 8
            size += wide
            inbox.need(size, deadline)
            length = int.from_bytes(inbox.data[inbox.start + 2 : inbox.start + 2 + wide], "big")
        else:
            inbox.need(size, deadline)
        total = length + len(self._message or b"")
        if total > self.max_frame_bytes and opcode < _CLOSE:
            raise announced_too_much(self.peer, total, self.max_frame_bytes)
        return size, opcode, length

    def _answer(self, opcode: int, payload: bytes) -> None:
        """Do what a control frame asks for."""
        if opcode == _PING:
            self._control(_PONG, payload)
        elif opcode == _CLOSE:
            self._control(_CLOSE, payload[:2])
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
            if code in (1000, 1001, 1005):
                raise ConnectionClosed(f"{self.peer} closed the connection.")
            if code == 1009:
                raise took_too_much(self.peer)
            reason = payload[2:].decode("utf-8", "replace")
            raise ConnectionLost(f"{self.peer} ended the connection (code {code}, {reason!r}).")

    def _last_word(self, deadline: float | None) -> None:
        while self._head(deadline)[1] >= _CLOSE:
            self._payload(deadline)

    def _check_deadline(self, deadline: float | None) -> None:
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"No whole frame came from {self.peer} in the time given.")


def _header(opcode: int, length: int, key: bytes) -> bytes:
    first, masked = _FINAL | opcode, _MASKED if key else 0
    if length < 126:
        return struct.pack("!BB", first, masked | length) + key
    if length < 65536:
        return struct.pack("!BBH", first, masked | 126, length) + key
    return struct.pack("!BBQ", first, masked | 127, length) + key


def _turned(key: bytes, position: int) -> bytes:
    """The key as it begins at a position of the payload."""
    turn = position % 4
    return key[turn:] + key[:turn]
