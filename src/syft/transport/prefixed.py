"""Length-prefixed frames, for tcp://, tls:// and unix://.

Both ends begin with a preamble, the one that connected first:

    0   4s   magic    8B 'S' 'Y' 'T'
    4   u8   version  2
    5   u8   answer   0 welcome, 1 this port speaks TLS, 2 this port speaks another version
    6   2s   zeros

Then frames: their length (u64, little endian) and their bytes. A length with the top bit set is no length, but a word.
Its lowest byte says which:

    0   goodbye
    1   the connection is ended because a frame was too long
    2   the connection is ended because something else was wrong
    3   there is a lane (see `lanes`), offered in the 32 bytes that follow
    4   a frame comes through the lane: its length stands in the word above the lowest byte (u27), where it begins above
        that (u27), and a 1 follows for each piece that lies there

Who goes away without a word was cut off.
"""

from __future__ import annotations

import socket
import struct

from syft.transport.base import Buffer, logger
from syft.transport.errors import ConnectionClosed, ConnectionLost, FrameRefused, HandshakeRefused
from syft.transport.handshake import describe, receive_by, send_by
from syft.transport.inbox import KEPT_BYTES, Partial
from syft.transport.lanes import (
    LEAST_BYTES,
    OFFER_BYTES,
    PIECE_BYTES,
    RING_BYTES,
    InLane,
    OutLane,
    are_there,
)
from syft.transport.sockets import SocketConnection, announced_too_much, took_too_much
from syft.transport.stream import coalesce

MAGIC = b"\x8bSYT"
VERSION = 2
WELCOME, SPEAKS_TLS, OTHER_VERSION = range(3)
_PREAMBLE = struct.Struct("<4sBB2x")
_LENGTH = struct.Struct("<Q")
_WORD = 1 << 63
_GOODBYE, _TOO_LONG, _WRONG, _LANE, _IN_LANE = range(5)
_LIES_THERE = b"\x01"
#: Where the length of a frame in a lane stands in its word, and where its beginning; both have so many bits.
_LENGTH_AT, _BEGIN_AT, _PLACE_BITS = 8, 35, 27


class PrefixedConnection(SocketConnection):
    """A socket whose preambles were exchanged."""

    #: The lanes, and the offer of ours for whoever sends next; see NOTE [Lanes].
    _in_lane: InLane | None = None
    _out_lane: OutLane | None = None
    _offer = b""
    _may_make_lane = True
    _comes_through_lane = False

    # -- sending -----------------------------------------------------------------------------------

    def _transmit(self, parts: list[Buffer], total: int) -> None:
        offer, self._offer = self._offer, b""
        lane = self._out_lane
        if total < KEPT_BYTES:
            self._stream.write([b"".join([offer, _LENGTH.pack(total), *parts])], self._out_pace)
        elif lane is not None and LEAST_BYTES <= total <= lane.room:
            header = offer + _LENGTH.pack(_WORD | _IN_LANE | total << _LENGTH_AT | lane.begin() << _BEGIN_AT)
            self._transmit_through(lane, header, parts)
        else:
            self._stream.write(coalesce([offer, _LENGTH.pack(total), *parts]), self._out_pace)

    def _transmit_through(self, lane: OutLane, header: bytes, parts: list[Buffer]) -> None:
        room = PIECE_BYTES
        for part in parts:
            view = memoryview(part)
            while view:
                piece, view = view[:room], view[room:]
                lane.write(piece)
                room -= len(piece)
                if not room:
                    self._stream.write([header + _LIES_THERE], self._out_pace)
                    header, room = b"", PIECE_BYTES
        if room < PIECE_BYTES:
            self._stream.write([header + _LIES_THERE], self._out_pace)

    # -- receiving ---------------------------------------------------------------------------------

    def _next(self, deadline: float | None) -> bytearray | memoryview:
        inbox = self._inbox
        if self._partial is None:
            length = self._next_length(deadline)
            if length <= KEPT_BYTES - 8 and length <= self.max_frame_bytes:
                if inbox.end - inbox.start < 8 + length:
                    inbox.need(8 + length, deadline)
                begin = inbox.start + 8
                inbox.start = begin + length
                return bytearray(inbox.data[begin : begin + length])
            self._comes_through_lane = length >= _WORD
            if self._comes_through_lane:
                length = self._length_in_lane(length - _WORD)
            if length > self.max_frame_bytes:
                raise announced_too_much(self.peer, length, self.max_frame_bytes)
            self._partial = Partial(length)
            inbox.start += 8
        if self._comes_through_lane:
            self._read_lane(self._partial, deadline)
        else:
            inbox.fill(self._partial, deadline, on_part=self.on_part)
        frame, self._partial = self._partial.view, None
        if self._may_make_lane and len(frame) >= LEAST_BYTES:
            self._make_lane()
        return frame

    def _next_length(self, deadline: float | None) -> int:
        """The length of the next frame, or the word in its place; offers on the way are taken."""
        inbox = self._inbox
        while True:
            if inbox.end - inbox.start < 8:
                inbox.need(8, deadline)
            (length,) = _LENGTH.unpack_from(inbox.data, inbox.start)
            if length != _WORD | _LANE or not self._may_share or self._out_lane is not None:
                return int(length)
            inbox.need(8 + OFFER_BYTES, deadline)
            inbox.start += 8
            try:
                self._out_lane = OutLane(bytes(inbox.take(OFFER_BYTES)))
            except OSError as error:
                logger.debug("%s offered a lane that cannot be used: %s", self.peer, error)
            self._in_pace.begin()

    def _length_in_lane(self, word: int) -> int:
        mask = (1 << _PLACE_BITS) - 1
        lane, length, begin = self._in_lane, word >> _LENGTH_AT & mask, word >> _BEGIN_AT
        if word & 0xFF != _IN_LANE or lane is None or not 0 < length <= RING_BYTES or begin >= RING_BYTES:
            raise self._farewell(word)
        lane.position = begin
        return length

    def _read_lane(self, partial: Partial, deadline: float | None) -> None:
        lane, inbox, size = self._in_lane, self._inbox, len(partial.view)
        while lane is not None and partial.filled < size:
            inbox.need(1, deadline)
            if inbox.data[inbox.start] != _LIES_THERE[0]:
                raise self._farewell(-1)
            inbox.start += 1
            piece = partial.view[partial.filled : partial.filled + PIECE_BYTES]
            lane.read_into(piece)
            partial.filled += len(piece)
            self._in_pace.progress(len(piece))
            lane.give_back()
        if self.on_copied is not None:
            self.on_copied(partial.view)

    @property
    def _may_share(self) -> bool:
        return self.is_local and not self.is_encrypted and are_there()

    def _make_lane(self) -> None:
        self._may_make_lane = False
        if self._may_share:
            try:
                self._in_lane = InLane()
            except OSError as error:
                logger.debug("There is no lane for %s: %s", self.peer, error)
            else:
                self._offer = _LENGTH.pack(_WORD | _LANE) + self._in_lane.offer

    def _let_go(self) -> None:
        super()._let_go()
        for lane in (self._in_lane, self._out_lane):
            if lane is not None:
                lane.close()
        self._in_lane = self._out_lane = None

    # -- the end -----------------------------------------------------------------------------------

    def _last_word(self, deadline: float | None) -> None:
        length = self._next_length(deadline)
        if length >= _WORD and (length - _WORD) & 0xFF != _IN_LANE:
            raise self._farewell(length - _WORD)

    def _farewell(self, word: int) -> ConnectionClosed | ConnectionLost:
        if word == _GOODBYE:
            return ConnectionClosed(f"{self.peer} closed the connection.")
        if word == _TOO_LONG:
            return took_too_much(self.peer)
        if word == _WRONG:
            return ConnectionLost(f"{self.peer} ended the connection: it refused what was sent to it.")
        return FrameRefused(
            f"{self.peer} sent a word that is none, or out of place, so the connection was ended."
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
