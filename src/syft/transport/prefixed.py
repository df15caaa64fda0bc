"""Length-prefixed frames, for tcp://, tls:// and unix://.

Both ends begin with a preamble, the one that connected first:

    0   4s   magic    8B 'S' 'Y' 'T'
    4   u8   version  1
    5   u8   answer   0 welcome, 1 this port speaks TLS, 2 this port speaks another version
    6   2s   zeros

Then frames: their length (u64, little endian) and their bytes. A length with the top bit set is no length, but a word:
0 says goodbye, 1 says that the connection is ended because a frame was too long, 2 because something else was wrong. Who
goes away without a word was cut off.
"""

from __future__ import annotations

import socket
import struct

from syft.transport.base import Buffer
from syft.transport.errors import ConnectionClosed, ConnectionLost, FrameRefused, HandshakeRefused
from syft.transport.handshake import describe, receive_by, send_by
from syft.transport.inbox import KEPT_BYTES, Partial
from syft.transport.sockets import SocketConnection, announced_too_much, took_too_much
from syft.transport.stream import coalesce

MAGIC = b"\x8bSYT"
VERSION = 1
WELCOME, SPEAKS_TLS, OTHER_VERSION = range(3)
_PREAMBLE = struct.Struct("<4sBB2x")
_LENGTH = struct.Struct("<Q")
_WORD = 1 << 63
_GOODBYE, _TOO_LONG, _WRONG = range(3)


class PrefixedConnection(SocketConnection):
    """A socket whose preambles were exchanged."""

    def _transmit(self, parts: list[Buffer], total: int) -> None:
        header = _LENGTH.pack(total)
        if total < KEPT_BYTES:
            self._stream.write([b"".join([header, *parts])], self._out_pace)
        else:
            self._stream.write(coalesce([header, *parts]), self._out_pace)

    def _next(self, deadline: float | None) -> bytearray | memoryview:
        inbox = self._inbox
        if self._partial is None:
            inbox.need(8, deadline)
            (length,) = _LENGTH.unpack_from(inbox.data, inbox.start)
            if length <= KEPT_BYTES - 8 and length <= self.max_frame_bytes:
                inbox.need(8 + length, deadline)
                inbox.start += 8
                return inbox.take(length)
            if length >= _WORD:
                raise self._farewell(length - _WORD)
            if length > self.max_frame_bytes:
                raise announced_too_much(self.peer, length, self.max_frame_bytes)
            self._partial = Partial(length)
            inbox.start += 8
        inbox.fill(self._partial, deadline, on_part=self.on_part)
        frame, self._partial = self._partial.view, None
        return frame

    def _last_word(self, deadline: float | None) -> None:
        self._inbox.need(8, deadline)
        (length,) = _LENGTH.unpack_from(self._inbox.data, self._inbox.start)
        if length >= _WORD:
            raise self._farewell(length - _WORD)

    def _farewell(self, word: int) -> ConnectionClosed | ConnectionLost:
        if word == _GOODBYE:
            return ConnectionClosed(f"{self.peer} closed the connection.")
        if word == _TOO_LONG:
            return took_too_much(self.peer)
        if word == _WRONG:
            return ConnectionLost(f"{self.peer} ended the connection: it refused what was sent to it.")
        return FrameRefused(
            f"{self.peer} sent a word that this version does not know, so the connection was ended."
        )

    def _goodbye(self, fault: FrameRefused | None) -> bytes:
        word = _GOODBYE if fault is None else _TOO_LONG if fault.is_too_long else _WRONG
        return _LENGTH.pack(_WORD | word)


# -- the preambles ---------------------------------------------------------------------------------------


def preamble(answer: int = WELCOME) -> bytes:
    return _PREAMBLE.pack(MAGIC, VERSION, answer)


def greet(sock: socket.socket, peer: str, deadline: float) -> None:
    """The preambles, as the end that connected. !! HandshakeRefused."""
    send_by(sock, preamble(), deadline)
    answer = _read_preamble(sock, peer, deadline)
    if answer == SPEAKS_TLS:
        raise HandshakeRefused(f"{peer} speaks TLS at this port: connect with tls:// instead of tcp://.")
    if answer == OTHER_VERSION:
        raise HandshakeRefused(
            f"{peer} speaks another version of this protocol than version {VERSION}: use the same release at both ends."
        )
    if answer != WELCOME:
        raise HandshakeRefused(f"{peer} answered {answer} to the preamble, which this version does not know.")


def welcome(sock: socket.socket, peer: str, deadline: float) -> None:
    """The preambles, as the end that listens. A stranger is answered, too: so a TLS client can tell what it met."""
    try:
        _read_preamble(sock, peer, deadline)
    except HandshakeRefused:
        send_by(sock, preamble(OTHER_VERSION), deadline)
        raise
    send_by(sock, preamble(), deadline)


def _read_preamble(sock: socket.socket, peer: str, deadline: float) -> int:
    data = b""
    while len(data) < _PREAMBLE.size:
        more = receive_by(sock, _PREAMBLE.size - len(data), deadline)
        if not more:
            raise HandshakeRefused(
                f"{peer} closed the connection before it said what it speaks"
                + (": it is no syft transport, or was told to go." if not data else "."),
                is_definite=False,
            )
        data += more
        if not MAGIC.startswith(data[:4]):
            raise HandshakeRefused(f"{peer} {describe(data)}, not this protocol. {_cure(data)}")
    _magic, version, answer = _PREAMBLE.unpack(data)
    if version != VERSION and answer == WELCOME:
        raise HandshakeRefused(
            f"{peer} speaks version {version} of this protocol, and this end version {VERSION}: use the same release "
            "at both ends."
        )
    return int(answer)


def _cure(data: bytes) -> str:
    if data[0] in (0x15, 0x16):
        return "This is a plain connection: use tls:// at both ends or tcp:// at both."
    return "Use the same kind of address at both ends (ws:// is for WebSockets)."
