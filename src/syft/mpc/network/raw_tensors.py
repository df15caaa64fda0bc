"""How what parties tell each other in a run travels: bytes, a number, and tensors of masked words.

The general way of `serde` asks for strides, gradients, tags and identities, which these tensors have not: half of what a
round of small tensors cost. Imports `serde` only.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import torch

from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError
from syft.serde.reader import Reader
from syft.serde.registry import add_codec
from syft.serde.writer import INLINE_BYTES, Writer

#: Numbers of dtypes in frames; other tensors travel as `serde` sends any tensor.
_DTYPES = (torch.int64, torch.uint8, torch.int32, torch.int16, torch.int8)
_NUMBERS = {dtype: number for number, dtype in enumerate(_DTYPES)}


def register_party_message(cls: Any, code: str, has_tensors: bool) -> None:
    """Let a record travel whose fields are bytes and numbers, and `tensors` last if it has such."""
    names = cls.__struct_fields__[:-1] if has_tensors else cls.__struct_fields__
    kinds = [{"bytes": bytes, "int": int}[cls.__annotations__[name]] for name in names]
    get_fields, count = attrgetter(*names), len(names)

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

    add_codec(Codec(cls, code, write, read))


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
