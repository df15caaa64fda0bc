"""What a connection carries: frames with a fixed head.

    0   4s   magic      'S' 'Y' 'L' 1
    4   u8   kind       see `Kind`
    5   u8   flags      see the constants
    6   u16  reserved   0
    8   u64  number     of the first command in the frame, or of the command that is replied to
    16  u64  confirmed  client: the last reply that arrived; server: the last command that was executed
    24  u64  failed     server: the first command that failed and has not been told of; 0 if none
    32  u32  count      commands in the frame
    36  u32  reserved   0
    40  u64  total      bytes of the message that a chunk is part of
    48  u64  offset     where in that message the chunk begins
    56  u64  checksum   of everything else
    64  ...  payload

The payload begins at a multiple of 64, so that tensors inside can stay where they arrive. Numbers are little
endian.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from syft.exceptions import ProtocolError
from syft.transport.base import Buffer, Connection
from syft.transport.memory import allocate

MAGIC = b"SYL\x01"
HEAD_BYTES = 64
#: Payloads above this travel in chunks; a frame is a chunk, its head, and room to spare.
CHUNK_BYTES = 32 << 20
MAX_FRAME_BYTES = CHUNK_BYTES + (1 << 20)
_HEAD = struct.Struct("<4sBBHQQQIIQQQ")
_LAST = struct.Struct("<Q")
_CHECKSUM_AT = HEAD_BYTES - _LAST.size
#: What stands in its place while it is computed.
_NO_CHECKSUM = bytes(_LAST.size)

#: Below this, a CRC is as fast as anything.
_CRC_BYTES = 32_768
#: The 64-bit words of a longer payload are added up in this many columns, at the speed of memory.
_COLUMNS = 1024
_ROW_BYTES = 8 * _COLUMNS


class Kind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    WELCOME = 2
    REFUSAL = 3
    COMMANDS = 4
    REPLY = 5
    CONFIRMATION = 6
    HEARTBEAT = 7
    CHUNK = 8
    GOODBYE = 9


#: The last command of the frame waits for a reply.
WAITS = 1
#: The server is asked to confirm when it has executed the frame.
CONFIRM = 2
#: The reply is an exception.
FAILED = 4
#: The exception is that of an earlier command, `failed`; the command that waited was not run.
FAILED_EARLIER = 8
#: The last chunk: the message is whole.
LAST_CHUNK = 16
#: The frame may have been sent before, by a connection that is gone. NOTE [Lent memory] in `session_outbox`
AGAIN = 32

_KNOWN_FLAGS = WAITS | CONFIRM | FAILED | FAILED_EARLIER | LAST_CHUNK | AGAIN


class Head(NamedTuple):
    """The head of a frame."""

    kind: int
    flags: int = 0
    number: int = 0
    confirmed: int = 0
    failed: int = 0
    count: int = 0  # type: ignore[assignment]
    total: int = 0
    offset: int = 0


#: `new_head(Head, (...))` is `Head(...)`, for those who make one for every frame.
new_head = tuple.__new__


def encode(head: Head, payload: Sequence[Buffer] = (), sums: Sums | None = None) -> list[Buffer]:
    """A frame in pieces; the payload is not copied. `sums` are those of the payload, if they are known."""
    kind, flags, number, confirmed, failed, count, total, offset = head
    packed = bytearray(
        _HEAD.pack(MAGIC, kind, flags, 0, number, confirmed, failed, count, 0, total, offset, 0)
    )
    if sums is not None:
        checksum = sums.checksum(zlib.crc32(packed))
    elif sum(map(len, payload)) <= _CRC_BYTES:
        checksum = zlib.crc32(packed)  # `_checksum`, without a call
        for part in payload:
            checksum = zlib.crc32(part, checksum)
    else:
        checksum = _checksum(zlib.crc32(packed), payload)
    _LAST.pack_into(packed, _CHECKSUM_AT, checksum)
    return [packed, *payload]


def encode_all(head: Head, payload: Sequence[Buffer], sums: Sums | None = None) -> Iterable[list[Buffer]]:
    """A frame in pieces, as one or as the several that travel in its place. `sums`: only of what travels as one."""
    if sums is not None or sum(map(len, payload)) <= CHUNK_BYTES:
        return (encode(head, payload, sums),)
    return (encode(part_head, part) for part_head, part in in_chunks(head, payload, CHUNK_BYTES))


def decode(frame: Buffer, arriving: Arriving | None = None) -> tuple[Head, memoryview]:
    """The head and the payload of a frame; !! ProtocolError if it is damaged or none of ours.

    `arriving` was told of the frame while it came.
    """
    view = memoryview(frame)
    if len(view) < HEAD_BYTES:
        raise ProtocolError(f"A frame of {len(view)} bytes arrived; the head alone has {HEAD_BYTES}.")
    magic, kind, flags, reserved, number, confirmed, failed, count, also_reserved, total, offset, checksum = (
        _HEAD.unpack_from(view)
    )
    if magic != MAGIC:
        raise ProtocolError(
            f"A frame begins with {magic!r}, not with {MAGIC!r}: the other side is no worker of this version."
        )
    payload = view[HEAD_BYTES:]
    crc = zlib.crc32(_NO_CHECKSUM, zlib.crc32(view[:_CHECKSUM_AT]))
    if len(payload) <= _CRC_BYTES:  # it was not added up while it came
        found = zlib.crc32(payload, crc)
    elif arriving is not None and arriving.was_copied(frame) and not flags & AGAIN:
        found = checksum
    else:
        begun = None if arriving is None else arriving.sums_of(frame)
        found = _checksum(crc, (payload if begun is None else payload[begun.added :],), begun)
    if found != checksum:
        raise ProtocolError("A frame was damaged on the way: its checksum is wrong.")
    if reserved or also_reserved or flags & ~_KNOWN_FLAGS or kind not in _KINDS:
        raise ProtocolError(f"A frame of kind {kind} with flags {flags:#x} is not known to this version.")
    return new_head(Head, (kind, flags, number, confirmed, failed, count, total, offset)), payload


_KINDS = frozenset(int(kind) for kind in Kind)


class Sums:
    """The sums of the columns of a payload, as far as it was added."""

    __slots__ = ("_columns", "added")

    def __init__(self) -> None:
        self._columns = np.zeros(_COLUMNS, dtype="<u8")
        self.added = 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sums)
            and self.added == other.added
            and bool((self._columns == other._columns).all())
        )

    __hash__ = None  # type: ignore[assignment]

    def add(self, memory: memoryview) -> None:
        """What follows next in the payload."""
        begin = self.added % _ROW_BYTES
        self.added += len(memory)
        if begin:
            ahead = memory[: _ROW_BYTES - begin]
            self._add_row(ahead, begin)
            memory = memory[len(ahead) :]
        whole = len(memory) // _ROW_BYTES * _ROW_BYTES
        if whole:
            words = np.frombuffer(memory[:whole], dtype="<u8").reshape(-1, _COLUMNS)
            self._columns += np.add.reduce(words, axis=0)
        if whole < len(memory):
            self._add_row(memory[whole:], 0)

    def _add_row(self, memory: memoryview, begin: int) -> None:
        row = bytearray(_ROW_BYTES)
        row[begin : begin + len(memory)] = memory
        self._columns += np.frombuffer(row, dtype="<u8")

    @classmethod
    def of(cls, payload: Sequence[Buffer]) -> Sums | None:
        """Those of a whole payload that travels as one; None if it is too short or too long for that."""
        if not _CRC_BYTES < sum(map(len, payload)) <= CHUNK_BYTES:
            return None
        made = cls()
        for part in payload:
            made.add(memoryview(part).cast("B"))
        return made

    def checksum(self, crc: int) -> int:
        return zlib.crc32(self._columns.data, crc) | self.added << 32 & 0xFFFF_FFFF_0000_0000


class Arriving:
    """Adds up a large frame while it arrives; `decode` is given it with the frames of its connection.

    A frame that the processor copied within this machine is not added up: no line could damage it. One that is sent
    again is, because what it was made of may have been written to.
    """

    def __init__(self) -> None:
        self._frame: memoryview | None = None
        self._sums = Sums()
        self._copied: memoryview | None = None

    @classmethod
    def at(cls, connection: Connection) -> Arriving:
        """One that is told of the frames of a connection."""
        made = connection.on_part = cls()
        connection.on_copied = made.note_copied
        return made

    def __call__(self, frame: memoryview, filled: int) -> None:
        if len(frame) - HEAD_BYTES <= _CRC_BYTES:
            return
        if frame is not self._frame:
            self._frame, self._sums = frame, Sums()
        begin = HEAD_BYTES + self._sums.added
        rows = (filled - begin) // _ROW_BYTES
        if rows > 0:
            self._sums.add(frame[begin : begin + rows * _ROW_BYTES])

    def note_copied(self, frame: memoryview) -> None:
        self._copied = frame

    def was_copied(self, frame: Buffer) -> bool:
        """Whether this very frame came through memory. Told once."""
        known, self._copied = self._copied, None
        if known is frame:
            self._frame = None
        return known is frame

    def sums_of(self, frame: Buffer) -> Sums | None:
        """Those of how the payload of this very frame begins, once."""
        known, self._frame = self._frame, None
        return self._sums if known is frame else None


def _checksum(crc: int, payload: Sequence[Buffer], begun: Sums | None = None) -> int:
    """Finds what noise does to a frame. Against people there is TLS. `crc` is that of the head, `begun` are the sums of
    what came before.
    """
    if begun is None and sum(map(len, payload)) <= _CRC_BYTES:
        for part in payload:
            crc = zlib.crc32(part, crc)
        return crc
    sums = Sums() if begun is None else begun
    for part in payload:
        sums.add(memoryview(part).cast("B"))
    return sums.checksum(crc)


def in_chunks(head: Head, payload: Sequence[Buffer], chunk_bytes: int) -> Iterable[tuple[Head, list[Buffer]]]:
    """A frame as it is, or as several that each carry at most `chunk_bytes` of its payload."""
    total = sum(map(len, payload))
    if total <= chunk_bytes:
        yield head, list(payload)
        return
    offset = 0
    pieces: list[Buffer] = []
    room = chunk_bytes
    for part in payload:
        view = memoryview(part).cast("B")
        while len(view):
            taken = view[:room]
            pieces.append(taken)
            view, room = view[len(taken) :], room - len(taken)
            if not room:
                last = offset + chunk_bytes >= total
                yield _chunk_head(head, total, offset, last), pieces
                offset, room, pieces = offset + chunk_bytes, chunk_bytes, []
    if pieces:
        yield _chunk_head(head, total, offset, True), pieces


def _chunk_head(head: Head, total: int, offset: int, is_last: bool) -> Head:
    """Of the last chunk: the head of the whole, so that nothing else has to be said about it."""
    if is_last:
        return head._replace(flags=head.flags | LAST_CHUNK, total=total, offset=offset)
    return Head(Kind.CHUNK, number=head.number, total=total, offset=offset)


class Assembly:
    """Puts the chunks of one message together. Memory is committed as they arrive, and never beyond the limit."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._memory: memoryview | None = None
        self._total = 0
        self._filled = 0

    def take(self, head: Head, payload: memoryview) -> memoryview | None:
        """The whole payload, once its last chunk is here. A frame that is no chunk is whole by itself."""
        is_last = bool(head.flags & LAST_CHUNK)
        if head.kind != Kind.CHUNK and not is_last:
            self._memory = None
            return payload
        if self._memory is None or head.offset == 0:
            self._begin(head.total)
        if head.total != self._total or head.offset != self._filled:
            raise ProtocolError(
                f"A chunk at {head.offset} of {head.total} bytes arrived where {self._filled} of {self._total} was due."
            )
        end = self._filled + len(payload)
        if end > self._total or (is_last and end != self._total) or not len(payload):
            raise ProtocolError(f"The chunks of a message of {self._total} bytes do not add up.")
        memory = self._memory
        if memory is None:
            return None
        memory[self._filled : end] = payload
        self._filled = end
        if not is_last:
            return None
        self._memory = None
        return memory

    def _begin(self, total: int) -> None:
        if total > self._max_bytes:
            raise ProtocolError(
                f"A message of {total} bytes was announced; {self._max_bytes} are allowed. Send it in parts, or ask "
                "the owner of the worker to allow more."
            )
        # NB: what is announced costs nothing before it comes, see NOTE [Memory of large frames].
        self._memory, self._total, self._filled = allocate(total), total, 0
