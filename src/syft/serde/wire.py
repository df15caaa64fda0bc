"""The frame: how a header and buffers lie in a row of bytes.

    0   4s   magic     89 'S' 'Y' 'F'
    4   u16  version   1
    6   u16  reserved  0
    8   u32  length of the header in bytes
    12  u32  number of buffers
    16  ...  header    MessagePack: [object, [[stored, size, scheme], ...]]
             padding   zeros up to a multiple of 64, before every buffer
             buffers   one after the other; the last one ends the frame

Numbers are little endian, in the header's buffers, too. Every buffer begins at a multiple of 64 from the
start of the frame, so tensors can lie where they arrived. Where a buffer begins is computed and never read, so
buffers cannot overlap. `stored` is its length here, `size` its length when decompressed, `scheme` 0 for none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from syft.core.structs import prepared
from syft.serde.compression import Compression, compress, decompress
from syft.serde.errors import SerdeError
from syft.serde.limits import Limits

MAGIC = b"\x89SYF"
VERSION = 1
ALIGNMENT = 64

PREAMBLE = struct.Struct("<4sHHII")
_PADDING = bytes(ALIGNMENT)
#: A buffer that fills less than this part of its frame, a half, is copied out: it would keep the frame, and who holds it
#: pays for the buffer alone.
OWN_MEMORY = 2

_Length = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class BufferEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One line of the table of buffers."""

    stored: _Length
    size: _Length
    scheme: Annotated[int, msgspec.Meta(ge=0, lt=256)]


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The structure, and the table of buffers."""

    root: Any
    buffers: list[BufferEntry]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(prepared(Header))


def pack(
    root: Any, buffers: list[tuple[memoryview, bool]], scheme: Compression | None, limits: Limits
) -> list[Any]:
    """A frame in pieces, to be sent or joined in this order."""
    entries: list[tuple[int, int, int]] = []
    pieces: list[Any] = []
    compressible_left = limits.max_decompressed
    for memory, compressible in buffers:
        size = len(memory)
        packed = None
        if scheme is not None and compressible and size <= compressible_left:
            packed = compress(memory, scheme)
        if packed is None or scheme is None:
            entries.append((size, size, 0))
            pieces.append(memory)
        else:
            compressible_left -= size
            entries.append((len(packed), size, scheme.number))
            pieces.append(packed)
    try:
        header = _encoder.encode((root, entries))
    except UnicodeEncodeError as error:
        raise SerdeError(f"A string cannot be serialised: {error}. Strings hold Unicode text.") from error
    if len(header) > limits.max_header:
        raise SerdeError(
            f"The description of the object takes {len(header)} bytes; {limits.max_header} is the most a frame "
            "may have. Put numbers into tensors, or send the parts one by one."
        )
    preamble = PREAMBLE.pack(MAGIC, VERSION, 0, len(header), len(entries))
    frames: list[Any] = []
    tail, offset = preamble + header, len(preamble) + len(header)
    for piece in pieces:
        gap = -offset % ALIGNMENT
        if gap:
            tail += _PADDING[:gap]
        if tail:
            frames.append(tail)
        frames.append(piece)
        tail, offset = b"", offset + gap + len(piece)
    if tail:
        frames.append(tail)
    return frames


def unpack(frame: memoryview, limits: Limits) -> tuple[Any, list[Callable[[], memoryview]]]:
    """The root of a frame and, for each buffer, a function that gives its memory. Everything is checked first."""
    if not PREAMBLE.size <= len(frame) <= limits.max_bytes:
        raise _wrong_length(frame, limits)
    magic, version, reserved, header_length, count = PREAMBLE.unpack_from(frame)
    header_end = PREAMBLE.size + header_length
    if (
        magic != MAGIC
        or version != VERSION
        or reserved
        or header_length > limits.max_header
        or header_end > len(frame)
    ):
        raise _wrong_preamble(frame, limits)
    raw = frame[PREAMBLE.size : header_end]
    # An object takes at least a byte, so only a long header has to be counted.
    if len(raw) > limits.max_objects:
        count_objects(raw, limits.max_objects)
    try:
        header = _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SerdeError(f"The header of a frame cannot be read: {error}.") from error
    if count != len(header.buffers):
        raise SerdeError(f"A frame announces {count} buffers and describes {len(header.buffers)}.")
    if not count and header_end == len(frame):
        return header.root, []
    return header.root, _locate(frame, header.buffers, header_end, limits)


def _wrong_length(frame: memoryview, limits: Limits) -> SerdeError:
    if len(frame) < PREAMBLE.size:
        return SerdeError(f"{len(frame)} bytes are too few for a frame, which begins with {PREAMBLE.size}.")
    return SerdeError(
        f"A frame of {len(frame)} bytes was given; {limits.max_bytes} are allowed. Pass other limits to "
        "deserialize if you trust the sender."
    )


def _wrong_preamble(frame: memoryview, limits: Limits) -> SerdeError:
    magic, version, reserved, header_length, _count = PREAMBLE.unpack_from(frame)
    if magic != MAGIC:
        return SerdeError(
            f"These bytes begin with {magic!r}, not with {MAGIC!r}: they were not made by syft.serde.serialize. "
            "Nothing else is read, pickles least of all."
        )
    if version != VERSION:
        return SerdeError(
            f"The frame is of version {version}; this library reads version {VERSION}. Update the older side."
        )
    if reserved:
        return SerdeError(f"The reserved field of the frame is {reserved}, not 0.")
    if header_length > limits.max_header:
        return SerdeError(f"The header has {header_length} bytes; {limits.max_header} are allowed.")
    return SerdeError(
        f"The frame is cut off: its header ends at {PREAMBLE.size + header_length}, and it has {len(frame)} bytes."
    )


def _locate(
    frame: memoryview, entries: list[BufferEntry], offset: int, limits: Limits
) -> list[Callable[[], memoryview]]:
    givers: list[Callable[[], memoryview]] = []
    decompressed = 0
    for entry in entries:
        begin = offset + (-offset % ALIGNMENT)
        offset = begin + entry.stored
        if offset > len(frame):
            raise SerdeError(
                f"The frame is cut off: a buffer ends at {offset}, and it has {len(frame)} bytes."
            )
        if entry.scheme:
            decompressed += entry.size
            if decompressed > limits.max_decompressed:
                raise SerdeError(
                    f"The buffers of a frame hold more than {limits.max_decompressed} bytes when decompressed. Pass "
                    "other limits to deserialize if you trust the sender."
                )
        elif entry.size != entry.stored:
            raise SerdeError(f"A buffer of {entry.stored} bytes claims {entry.size} and is not compressed.")
        givers.append(_giver(frame, frame[begin:offset], entry))
    if offset != len(frame):
        raise SerdeError(f"The frame ends at {offset}, and {len(frame)} bytes were given.")
    return givers


def _giver(frame: memoryview, stored: memoryview, entry: BufferEntry) -> Callable[[], memoryview]:
    if entry.scheme:
        return lambda: decompress(stored, entry.scheme, entry.size)
    if frame.readonly or len(stored) * OWN_MEMORY < len(frame):
        return stored.toreadonly
    return lambda: stored


#: first byte of a MessagePack value -> (bytes of its length field, fixed bytes after it) and its kind
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_FIXED |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_TEXT = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY = {0xDC: 2, 0xDD: 4}


def count_objects(raw: memoryview, limit: int) -> int:
    """How many values a MessagePack header claims to have, without making any of them. !! past the limit"""
    position, count, announced, end = 0, 0, 1, len(raw)
    while position < end:
        first = raw[position]
        position += 1
        count += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if 0x90 <= first <= 0x9F:
            announced += first & 0x0F
        elif 0xA0 <= first <= 0xBF:
            position += first & 0x1F
        elif first in _FIXED:
            position += _FIXED[first]
        elif first in _TEXT:
            width = _TEXT[first]
            position += width + int.from_bytes(raw[position : position + width], "big")
        elif first in _ARRAY:
            width = _ARRAY[first]
            announced += int.from_bytes(raw[position : position + width], "big")
            position += width
        else:
            raise SerdeError(f"The header of a frame holds the byte {first:#x} where no value begins so.")
        if announced > limit:
            break
    if max(count, announced) > limit:
        raise SerdeError(f"The header of a frame has more than {limit} values. Put numbers into tensors.")
    return count
