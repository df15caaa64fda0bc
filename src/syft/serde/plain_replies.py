"""A reply that is one plain tensor, or None: written and read without looking for what else it might be.

The bytes are those that `codec` would write, and what is read is what `codec` would read. Both functions say `OTHER`
for what is anything else, and never raise.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec
import torch

from syft.core.identity import TensorIdentity, give_identity, known_identity
from syft.core.structs import prepared
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.torch_types import owner_for, row_major, tensor_over
from syft.serde.wire import ALIGNMENT, MAGIC, OWN_MEMORY, PREAMBLE, VERSION, BufferEntry, pack
from syft.serde.writer import INLINE_BYTES

OTHER: Any = object()

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


def plain_reply(value: Any) -> Any:
    """The pieces of a frame for a value; `OTHER` if it is not as plain as that."""
    if value is None:
        return [_NONE]
    if type(value) is not torch.Tensor:
        return OTHER
    name = _NAMES.get(value.dtype)
    shape = tuple(value.shape)
    if (
        name is None
        or value.requires_grad
        or value.layout is not torch.strided
        or value.device.type != "cpu"
        or value.is_neg()
        or not value.numel()
        or value.stride() != row_major(shape)
    ):
        return OTHER
    identity: Any = None
    if value.__dict__:
        known = known_identity(value)
        if len(value.__dict__) > 1 or known is None or known.tags or known.description is not None:
            return OTHER
        if type(known._id) is not int or not 0 <= known._id < 1 << 63:
            return OTHER
        identity = known._id, (), None
    memory = value.numpy().data.cast("B")
    fields = ("tensor", name, shape)
    if len(memory) <= INLINE_BYTES:
        fields, buffers = (*fields, bytes(memory), 0), []
    else:
        fields, buffers = (*fields, 0, 0), [(memory, False)]
    return pack(fields if identity is None else (*fields, None, identity), buffers, None, DEFAULT_LIMITS)


def value_of_plain_reply(frame: memoryview, worker: Any, limits: Limits) -> Any:
    """What is in a frame that is as plain as that, for the worker that reads it; `OTHER` if it is not."""
    if frame == _NONE:
        return None
    if not PREAMBLE.size < len(frame) <= limits.max_bytes:
        return OTHER
    *preamble, length, count = PREAMBLE.unpack_from(frame)
    end = PREAMBLE.size + length
    most = min(limits.max_header, limits.max_objects)
    if tuple(preamble) != _Preamble or end > len(frame) or count > 1 or length > most or limits.max_depth < 4:
        return OTHER
    try:
        form, buffers = _decoder.decode(frame[PREAMBLE.size : end])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OTHER
    dtype = _DTYPES.get(form.dtype)
    if dtype is None or len(buffers) != count:
        return OTHER
    if count:
        (buffer,) = buffers
        begin = end + (-end % ALIGNMENT)
        if form.data != 0 or type(form.data) is not int or buffer.scheme or buffer.size != buffer.stored:
            return OTHER
        if begin + buffer.stored != len(frame):
            return OTHER
        memory = frame[begin:]
        if len(memory) * OWN_MEMORY < len(frame):
            memory = memory.toreadonly()
    elif type(form.data) is bytes and end == len(frame):
        memory = memoryview(form.data)
    else:
        return OTHER
    if not memory or math.prod(form.shape) * dtype.itemsize != len(memory):
        return OTHER
    tensor = tensor_over(memory, dtype, form.shape)
    if form.identity is not None:
        give_identity(tensor, TensorIdentity(form.identity[0], owner_for(worker)))
    return tensor
