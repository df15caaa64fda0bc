"""How what parties tell each other in a run travels: bytes, a number, and tensors of masked words.

The general way of `serde` asks for strides, gradients, tags and identities, which these tensors have not: half of what a
round of small tensors cost. A message that is sent by itself, as most are, is a frame like this:

    0   4s   magic     89 'S' 'Y' 'R'
    4   u32  length of the header in bytes
    8   ...  header    MessagePack: [code, fields..., [[number of a dtype, [shape...]], ...]]
             padding   zeros up to a multiple of 64, before every tensor
             tensors   one after the other; the last one ends the frame

Imports `serde` only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import torch

from syft.core.structs import prepared
from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError
from syft.serde.limits import Limits
from syft.serde.lone_frames import READERS, WRITERS
from syft.serde.reader import Reader
from syft.serde.registry import add_codec
from syft.serde.wire import ALIGNMENT, OWN_MEMORY
from syft.serde.writer import INLINE_BYTES, Writer

#: Numbers of dtypes in frames; other tensors travel as `serde` sends any tensor.
_DTYPES = (torch.int64, torch.uint8, torch.int32, torch.int16, torch.int8)
_NUMBERS = {dtype: number for number, dtype in enumerate(_DTYPES)}


def register_party_message(cls: Any, code: str, has_tensors: bool) -> None:
    """Let a record travel whose fields are bytes and numbers, and `tensors` last if it has such."""
    names = cls.__struct_fields__[:-1] if has_tensors else cls.__struct_fields__
    kinds = [{"bytes": bytes, "int": int}[cls.__annotations__[name]] for name in names]
    get_fields, count = attrgetter(*names), len(names)

    _LONE[code] = cls, kinds, has_tensors

    def write(writer: Writer, message: Any) -> Simple:
        tensors = message.tensors if has_tensors else ()
        return code, *get_fields(message), *[_written(writer, tensor) for tensor in tensors]

    def read(reader: Reader, simple: Any) -> Any:
        fields = simple[1 : count + 1]
        if [type(field) for field in fields] != kinds or (len(simple) > count + 1 and not has_tensors):
            raise SerdeError(f"The contents of a {code} are not what they must be.")
        if not has_tensors:
            return cls(*fields)
        return cls(*fields, tuple([_read(reader, part) for part in simple[count + 1 :]]))

    def write_lone(message: Any) -> list[Any] | None:
        return _lone_frame(code, get_fields(message), message.tensors if has_tensors else ())

    add_codec(Codec(cls, code, write, read))
    WRITERS[cls] = write_lone


def _written(writer: Writer, tensor: torch.Tensor) -> Simple:
    number, size = _NUMBERS.get(tensor.dtype), tensor.nbytes
    if number is None or not size or not tensor.is_contiguous() or tensor.device.type != "cpu":
        writer.incompressible += 1
        simple = writer.write(tensor)
        writer.incompressible -= 1
        return simple
    memory = tensor.numpy().data.cast("B")
    if size <= INLINE_BYTES or writer.inline:
        return number, bytes(memory), *tensor.shape
    # Masked values and corrections are random: compressing them is in vain.
    writer.buffers.append((memory, False))
    return number, len(writer.buffers) - 1, *tensor.shape


def _read(reader: Reader, simple: Any) -> torch.Tensor:
    if (type(simple) is not list and type(simple) is not tuple) or len(simple) < 2:
        raise SerdeError("Something else was found where a frame between parties has a tensor.")
    number, data, *shape = simple
    if type(number) is str:
        found = reader.read(simple)
        if type(found) is not torch.Tensor:
            raise SerdeError("A frame between parties carries plain tensors.")
        return found
    if type(number) is not int or not 0 <= number < len(_DTYPES):
        raise SerdeError(f"A tensor has the dtype {str(number)[:60]}, which no frame between parties has.")
    for n in shape:
        if type(n) is not int or n < 1:
            raise SerdeError(f"The shape {str(shape)[:100]} is none of a tensor between parties.")
    dtype, memory = _DTYPES[number], reader.buffer(data)
    if math.prod(shape) * dtype.itemsize != len(memory):
        raise SerdeError(f"A tensor of shape {str(shape)[:100]} and dtype {dtype} has {len(memory)} bytes.")
    # NB: read-only memory belongs to a frame that holds more than this.
    return torch.frombuffer(bytearray(memory) if memory.readonly else memory, dtype=dtype).view(shape)


# -- a message by itself ----------------------------------------------------------------------------------

_MAGIC = b"\x89SYR"
_PREAMBLE = struct.Struct("<4sI")
_PADDING = bytes(ALIGNMENT)
_encoder = msgspec.msgpack.Encoder()
_Size = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]
_Described = tuple[Annotated[int, msgspec.Meta(ge=0, lt=len(_DTYPES))], list[_Size]]
_decoder = msgspec.msgpack.Decoder(prepared(tuple[str, list[int | bytes], list[_Described]]))
#: code -> class of the message, types of its plain fields, whether tensors follow
_LONE: dict[str, tuple[Any, list[type], bool]] = {}


def _lone_frame(code: str, fields: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any] | None:
    """The frame in pieces; None if a tensor is not one that travels raw."""
    described = []
    for tensor in tensors:
        number = _NUMBERS.get(tensor.dtype)
        if number is None or not tensor.nbytes or not tensor.is_contiguous() or tensor.device.type != "cpu":
            return None
        described.append((number, tensor.shape))
    header = _encoder.encode((code, fields, described))
    pieces: list[Any] = [_PREAMBLE.pack(_MAGIC, len(header)) + header]
    offset = len(pieces[0])
    for tensor in tensors:
        gap = -offset % ALIGNMENT
        if gap:
            pieces.append(_PADDING[:gap])
        pieces.append(tensor.numpy().data.cast("B"))
        offset += gap + tensor.nbytes
    return pieces


def _read_lone(frame: memoryview, limits: Limits) -> Any:
    if not _PREAMBLE.size <= len(frame) <= limits.max_bytes:
        raise SerdeError(f"A frame between parties has {len(frame)} bytes; {limits.max_bytes} are allowed.")
    _, length = _PREAMBLE.unpack_from(frame)
    offset = _PREAMBLE.size + length
    if length > min(limits.max_header, limits.max_objects):
        raise SerdeError(f"The header of a frame between parties announces {length} bytes.")
    try:
        code, fields, described = _decoder.decode(frame[_PREAMBLE.size : offset])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SerdeError(f"The header of a frame between parties cannot be read: {error}.") from error
    cls, kinds, has_tensors = _LONE.get(code, (None, [], False))
    if cls is None or [type(field) for field in fields] != kinds or (described and not has_tensors):
        raise SerdeError(f"The contents of a {code[:60]} are not what they must be.")
    tensors = []
    for number, shape in described:
        dtype, begin = _DTYPES[number], offset + -offset % ALIGNMENT
        offset = begin + math.prod(shape) * dtype.itemsize
        memory = frame[begin:offset]
        if offset > len(frame):
            break
        if memory.readonly or len(memory) * OWN_MEMORY < len(frame):
            memory = memoryview(bytearray(memory))
        tensors.append(torch.frombuffer(memory, dtype=dtype).view(shape))
    if offset != len(frame):
        raise SerdeError(f"A frame between parties describes {offset} bytes and has {len(frame)}.")
    return cls(*fields, tuple(tensors)) if has_tensors else cls(*fields)


READERS[_MAGIC] = _read_lone
