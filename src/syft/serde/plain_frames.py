"""One plain tensor, or None, as most replies are: written and read without looking for what else it might be.

The bytes are those that `codec` would write without this, and what is read is what it would read. Both functions say so
of what is anything else (with None, and with `OTHER`), and never raise.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import torch

from syft.core.identity import TensorIdentity, give_identity, known_identity
from syft.core.memory import Memory
from syft.core.structs import prepared
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.torch_types import owner_for, row_major, tensor_over
from syft.serde.wire import ALIGNMENT, MAGIC, OWN_MEMORY, PREAMBLE, VERSION, BufferEntry, pack
from syft.serde.writer import INLINE_BYTES

OTHER: Any = object()
#: What is read here is no deeper than this.
_DEPTH = 4

#: Those whose elements a memoryview has a name for, and none that looks at its values first.
_DTYPES = {
    name: vars(torch)[name] for name in ("float32", "float64", "uint8", "int8", "int16", "int32", "int64")
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_NONE = b"".join(pack(None, [], None, DEFAULT_LIMITS))
_Preamble = MAGIC, VERSION, 0


class _Tensor(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="tensor", gc=False
):
    """How such a tensor looks in a frame: without flags, strides or tags."""

    dtype: str
    shape: list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]]
    data: int | bytes
    flags: Literal[0]
    strides: None = None
    identity: tuple[int, tuple[()], None] | None = None


_decoder = msgspec.msgpack.Decoder(prepared(tuple[_Tensor, list[BufferEntry]]))


class _Head(NamedTuple):
    """What comes before the memory of tensors of one dtype and shape: the bytes before and after their id."""

    before: bytes
    after: bytes
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


#: Heads that were written, by dtype, shape and strides, and heads that were read, by the length of their frames.
_WRITTEN: Memory[tuple[Any, ...], _Head] = Memory(256)
_READ: Memory[int, _Head] = Memory(256)


def _note_head(
    known: Memory[Any, _Head],
    key: Any,
    head: bytes,
    obj_id: int,
    dtype: torch.dtype,
    shape: Any,
    strides: Any,
) -> None:
    if obj_id < _LONG_ID:
        return
    before, mark, after = head.partition(_id_bytes(obj_id))
    if mark and mark not in after:
        known[key] = _Head(before, after, dtype, tuple(shape), strides)


def _id_bytes(obj_id: int) -> bytes:
    return b"\xcf" + obj_id.to_bytes(8, "big")


#: Ids from here on take nine bytes.
_LONG_ID = 1 << 32


def plain_frames(value: Any) -> list[Any] | None:
    """The pieces of a frame for a value; None if it is not as plain as that."""
    if value is None:
        return [_NONE]
    if type(value) is not torch.Tensor or value.requires_grad or value.layout is not torch.strided:
        return None
    attributes, obj_id = value.__dict__, None
    if attributes:
        known = known_identity(value)
        if len(attributes) > 1 or known is None or known.tags or known.description is not None:
            return None
        obj_id = known._id
        if type(obj_id) is not int or not 0 <= obj_id < 1 << 63:
            return None
    if value.device.type != "cpu" or value.is_neg():
        return None
    key = (value.dtype, value.shape, value.stride())
    head = _WRITTEN.get(key)
    if head is not None and obj_id is not None and obj_id >= _LONG_ID:
        memory = value.numpy().data.cast("B")
        return [b"".join((head.before, _id_bytes(obj_id), head.after)), memory]
    name, shape = _NAMES.get(value.dtype), tuple(value.shape)
    if name is None or not value.numel() or key[2] != row_major(shape):
        return None
    memory = value.numpy().data.cast("B")
    is_inline = len(memory) <= INLINE_BYTES
    fields: tuple[Any, ...] = ("tensor", name, shape, bytes(memory) if is_inline else 0, 0)
    if obj_id is not None:
        fields = (*fields, None, (obj_id, (), None))
    pieces = pack(fields, [] if is_inline else [(memory, False)], None, DEFAULT_LIMITS)
    if obj_id is not None and not is_inline:
        _note_head(_WRITTEN, key, pieces[0], obj_id, value.dtype, shape, key[2])
    return pieces


def value_of_plain_frame(frame: memoryview, worker: Any, limits: Limits) -> Any:
    """What is in a frame that is as plain as that, for the worker that reads it; `OTHER` if it is not."""
    if frame == _NONE:
        return None
    if not PREAMBLE.size < len(frame) <= limits.max_bytes:
        return OTHER
    known = _READ.get(len(frame))
    if known is not None:
        at = len(known.before)
        end = at + 9 + len(known.after)
        if end <= min(limits.max_header, limits.max_objects) and limits.max_depth >= _DEPTH:
            head = bytes(frame[:end])
            if head.startswith(known.before) and head[at] == 0xCF and head.endswith(known.after):
                found = int.from_bytes(head[at + 1 : at + 9], "big")
                return _over(frame[end:], len(frame), known.dtype, known.shape, known.strides, found, worker)
    *preamble, length, count = PREAMBLE.unpack_from(frame)
    end = PREAMBLE.size + length
    most = min(limits.max_header, limits.max_objects)
    if (
        tuple(preamble) != _Preamble
        or end > len(frame)
        or count > 1
        or length > most
        or limits.max_depth < _DEPTH
    ):
        return OTHER
    try:
        form, buffers = _decoder.decode(frame[PREAMBLE.size : end])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OTHER
    dtype = _DTYPES.get(form.dtype)
    if dtype is None or len(buffers) != count:
        return OTHER
    begin = end + (-end % ALIGNMENT)
    if count:
        (buffer,) = buffers
        if type(form.data) is not int or form.data or buffer.scheme or buffer.size != buffer.stored:
            return OTHER
        if begin + buffer.stored != len(frame):
            return OTHER
        memory = frame[begin:]
    elif type(form.data) is bytes and end == len(frame):
        memory = memoryview(form.data)
    else:
        return OTHER
    if not memory or math.prod(form.shape) * dtype.itemsize != len(memory):
        return OTHER
    strides = row_major(form.shape)
    obj_id = None if form.identity is None else form.identity[0]
    if count and obj_id is not None:
        _note_head(_READ, len(frame), bytes(frame[:begin]), obj_id, dtype, form.shape, strides)
    return _over(memory, len(frame), dtype, form.shape, strides, obj_id, worker)


def _over(
    memory: memoryview, whole: int, dtype: torch.dtype, shape: Any, strides: Any, obj_id: Any, worker: Any
) -> torch.Tensor:
    if len(memory) * OWN_MEMORY < whole:
        memory = memory.toreadonly()
    tensor = tensor_over(memory, dtype, shape, strides)
    if obj_id is not None:
        give_identity(tensor, TensorIdentity(obj_id, owner_for(worker)))
    return tensor
