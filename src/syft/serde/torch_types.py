"""How tensors travel, and torch's small types: sizes, dtypes, devices, layouts.

NOTE [What arrives is a clone]
A tensor arrives as `tensor.clone()` would make it: dense, with the same values, shape, dtype, `requires_grad`, and
the order of its strides. A transposed tensor stays transposed and is not copied on the way out; a slice or an
expanded tensor arrives dense, without the memory around it. It arrives in main memory, wherever it was. Two views of
one memory arrive as two tensors. No history travels, and a gradient only where `serialize` was called for a leaf: what
is sent to a worker goes without.

So a frame cannot describe a view that overlaps itself or reaches outside its buffer: there are no words for it.
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Annotated, Any

import msgspec
import numpy as np
import torch

from syft.core.identity import TensorIdentity, identity_of, known_identity
from syft.core.session import session
from syft.core.spec import TensorSpec, make_spec
from syft.serde.codec_tables import BY_TYPE, Codec, Simple
from syft.serde.errors import SerdeError, UnserializableError
from syft.serde.python_types import refuse_colliding
from syft.serde.reader import Reader
from syft.serde.registry import add_codec, checked, register
from syft.serde.writer import Writer

_FLOATS = "float16 bfloat16 float32 float64 complex32 complex64 complex128"
_NARROW = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
_INTEGERS = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64"
#: The dtypes of tensors, by the name they have in frames.
DTYPES: dict[str, torch.dtype] = {
    name: vars(torch)[name] for name in f"{_FLOATS} {_NARROW} {_INTEGERS}".split() if name in vars(torch)
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: Those whose elements a memoryview has a name for.
_PLAIN = frozenset(DTYPES[name] for name in "float32 float64 uint8 int8 int16 int32 int64".split())
LAYOUTS = {"strided": torch.strided, "sparse_coo": torch.sparse_coo, "sparse_csr": torch.sparse_csr}
MEMORY_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
DEVICES = frozenset({"cpu", "cuda", "mps", "meta", "xpu"})

REQUIRES_GRAD, PARAMETER, INCOMPRESSIBLE = 1, 2, 4
_MARK = "_syft_incompressible"
_is_dense: Any = torch.ops.aten.is_non_overlapping_and_dense

_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class TensorRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A tensor in a header, after its code."""

    dtype: str
    shape: list[_Size]
    data: int | bytes
    flags: Annotated[int, msgspec.Meta(ge=0, lt=8)] = 0
    strides: list[_Size] | None = None
    identity: Any = None
    grad: Any = None


def mark_incompressible(tensor: torch.Tensor) -> torch.Tensor:
    """Say that a tensor is random, as a secret share is, so that nobody tries to compress it; returns it."""
    tensor.__dict__[_MARK] = True
    return tensor


# -- out -------------------------------------------------------------------------------------------


def _write_tensor(writer: Writer, tensor: torch.Tensor) -> Simple:
    dtype = _NAMES.get(tensor.dtype)
    if dtype is None or tensor.layout is not torch.strided or tensor.device.type == "meta":
        raise UnserializableError(
            f"A tensor of dtype {tensor.dtype}, layout {tensor.layout} and device {tensor.device} cannot be "
            "serialised. Convert it to a dense tensor of a plain dtype first, e.g. with `.to_dense()` or `.dequantize()`."
        )
    flags = 0
    if tensor.requires_grad:
        flags = REQUIRES_GRAD
    if type(tensor) is torch.nn.Parameter:
        flags |= PARAMETER
    attributes = tensor.__dict__
    is_marked = bool(attributes) and attributes.get(_MARK, False)
    if is_marked:
        flags |= INCOMPRESSIBLE
    memory, strides = dense_memory(tensor, writer.pins)
    data = writer.buffer(memory, not is_marked)
    identity = _write_identity(writer, known_identity(tensor)) if attributes else None
    if writer.keeps_gradients and tensor.requires_grad and tensor.is_leaf and tensor.grad is not None:
        grad = writer.write(tensor.grad)
        return "tensor", dtype, tuple(tensor.shape), data, flags, strides, identity, grad
    if identity is not None:
        return "tensor", dtype, tuple(tensor.shape), data, flags, strides, identity
    if strides is not None:
        return "tensor", dtype, tuple(tensor.shape), data, flags, strides
    return "tensor", dtype, tuple(tensor.shape), data, flags


def dense_memory(tensor: torch.Tensor, pins: bool) -> tuple[memoryview, tuple[int, ...] | None]:
    """The bytes of a tensor without gaps, and their strides unless they lie in row-major order.

    With `pins` the tensor cannot grow any more, so the memory stays where it is for as long as it is looked at.
    """
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if not tensor.is_contiguous() and not _is_dense(tensor):
        tensor = tensor.clone()
    strides = tensor.stride()
    if tensor.numel() == 0:
        return memoryview(b""), None if strides == row_major(tensor.shape) else strides
    in_order = strides == row_major(tensor.shape)
    if pins and in_order and tensor.dtype in _PLAIN:
        return tensor.numpy().data.cast("B"), None
    flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    memory: memoryview = (flat.numpy() if pins else _array_over(flat)).data
    return memory, None if in_order else strides


def _array_over(flat: torch.Tensor) -> Any:
    """The memory of a tensor as a numpy array. Unlike `tensor.numpy()` it does not forbid the tensor to grow."""
    array = np.from_dlpack(flat)
    return array if array.flags.writeable else flat.numpy()


def row_major(shape: Any) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _write_identity(writer: Writer, identity: TensorIdentity | None) -> Simple:
    if identity is None or (identity._id is None and not identity.tags and identity.description is None):
        return None
    return write_identity(writer, identity)


def write_identity(writer: Writer, owned: Any) -> Simple:
    """Id, tags and description; an id that nobody has asked for yet is not made up."""
    tags = [writer.write(tag) for tag in owned.tags]
    return writer.write(owned._id), tags, writer.write(owned.description)


# -- in --------------------------------------------------------------------------------------------


def _read_tensor(reader: Reader, simple: Any) -> torch.Tensor:
    record: TensorRecord = checked(simple[1:], TensorRecord, "tensor")
    dtype = DTYPES.get(record.dtype)
    if dtype is None:
        raise SerdeError(f"A tensor has the dtype {record.dtype[:60]!r}, which no tensor here has.")
    memory = reader.buffer(record.data)
    check_shape(record.shape, dtype.itemsize, len(memory))
    if record.strides is not None:
        _check_strides(record.shape, record.strides)
    tensor = tensor_over(memory, dtype, record.shape, record.strides)
    if record.flags & PARAMETER:
        tensor = torch.nn.Parameter(tensor, requires_grad=bool(record.flags & REQUIRES_GRAD))
    elif record.flags & REQUIRES_GRAD:
        tensor.requires_grad_()
    if record.flags & INCOMPRESSIBLE:
        mark_incompressible(tensor)
    if record.identity is not None:
        identity = identity_of(tensor)
        identity._id, identity.tags, identity.description = read_identity(reader, record.identity)
        identity._owner = owner_for(reader.worker)
    if record.grad is not None:
        tensor.grad = _gradient_of(tensor, reader.read(record.grad))
    return tensor


def _gradient_of(tensor: torch.Tensor, grad: Any) -> torch.Tensor:
    fits = isinstance(grad, torch.Tensor) and grad.shape == tensor.shape and grad.dtype == tensor.dtype
    if not fits or not tensor.requires_grad:
        raise SerdeError("A tensor has a gradient that is none of its own: of another type, shape or dtype.")
    return grad  # type: ignore[no-any-return]


def tensor_over(memory: memoryview, dtype: torch.dtype, shape: Any, strides: Any = None) -> torch.Tensor:
    """A tensor that lies in `memory`, which nobody else uses; in memory of its own if that is read-only."""
    strides = row_major(shape) if strides is None else strides
    if dtype is torch.complex32:
        with warnings.catch_warnings():  # torch warns of it as experimental
            warnings.simplefilter("ignore")
            return _placed(memory, dtype, shape, strides)
    return _placed(memory, dtype, shape, strides)


def _placed(memory: memoryview, dtype: torch.dtype, shape: Any, strides: Any) -> torch.Tensor:
    if memory.readonly or not memory:
        made = torch.empty_strided(shape, strides, dtype=dtype)
        if memory:
            flat = made.as_strided((made.numel(),), (1,)).view(torch.uint8)
            _array_over(flat).data[:] = memory
            _check_bools(flat, dtype)
        return made
    # NB: the tensor holds the memoryview, so that a bytearray below cannot be resized meanwhile.
    flat = torch.frombuffer(memory, dtype=dtype)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()
    if dtype is torch.bool:
        _check_bools(flat, dtype)
    if len(shape) == 1 and strides[0] == 1:
        return flat
    # Not a view of `flat`: a parameter or a leaf must not have a base.
    return flat.set_(flat.untyped_storage(), 0, shape, strides)


def _check_bools(flat: torch.Tensor, dtype: torch.dtype) -> None:
    if dtype is torch.bool and int(flat.view(torch.uint8).max()) > 1:
        raise SerdeError("A tensor of truth values holds a byte that is neither 0 nor 1.")


def check_shape(shape: Any, itemsize: int, length: int) -> None:
    """Refuse a shape that does not fill exactly `length` bytes, or whose product overflows."""
    expected = math.prod(shape) * itemsize
    if (expected or math.prod([max(n, 1) for n in shape]) * itemsize) >= 1 << 63:
        raise SerdeError(f"The shape {str(tuple(shape))[:100]} is larger than any memory.")
    if expected != length:
        raise SerdeError(
            f"A tensor of shape {str(tuple(shape))[:100]} needs {expected} bytes and has {length}."
        )


def _check_strides(shape: list[int], strides: list[int]) -> None:
    """Refuse strides that are not those of a dense tensor, its dimensions in some order."""
    if len(shape) != len(strides):
        raise SerdeError(f"A tensor of {len(shape)} dimensions has {len(strides)} strides.")
    if 0 in shape:
        return
    expected = 1
    for stride, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride != expected:
            raise SerdeError(
                f"The strides {str(strides)[:100]} of shape {str(shape)[:100]} overlap, or leave gaps."
            )
        expected *= n


def read_identity(reader: Reader, simple: Any) -> tuple[Any, set[Any], Any]:
    obj_id, tags, description = simple
    if type(tags) is not list and type(tags) is not tuple:
        raise SerdeError("The tags of an object are not a list.")
    if not tags and description is None and type(obj_id) is int:
        return obj_id, set(), None  # as most are
    obj_id, description = reader.read(obj_id), reader.read(description)
    hash(obj_id)
    if not (description is None or type(description) is str):
        raise SerdeError("The description of an object is not a text.")
    return obj_id, set(refuse_colliding([reader.read(tag) for tag in tags])), description


def owner_for(worker: Any) -> Any:
    """Whom to name as the owner: nobody where that means the local worker."""
    return None if worker is session.local_worker else worker


# -- small types -----------------------------------------------------------------------------------


def _add_named(cls: type, code: str, table: dict[str, Any]) -> None:
    """A closed set of values, each by its name."""
    names = {value: name for name, value in table.items()}

    def encode(_worker: Any, value: Any) -> tuple[Any, ...]:
        if value not in names:
            raise UnserializableError(f"{value} cannot be serialised; one of {', '.join(table)} can.")
        return (names[value],)

    def decode(_worker: Any, parts: Any) -> Any:
        if parts[0] not in table:
            raise SerdeError(f"{parts[0][:60]!r} is not the name of a torch {code}.")
        return table[parts[0]]

    register(cls, code, encode, decode, fields=tuple[str])


def _device(_worker: Any, parts: tuple[str, int | None]) -> torch.device:
    kind, index = parts
    if kind not in DEVICES:
        raise SerdeError(f"{kind[:60]!r} is not the name of a device.")
    return torch.device(kind) if index is None else torch.device(kind, index)


def _read_spec(_worker: Any, parts: Any) -> TensorSpec:
    shape, strides, offset, dtype = parts
    if len(shape) != len(strides):
        raise SerdeError(f"A tensor of {len(shape)} dimensions has {len(strides)} strides.")
    extent = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 1)
    elements = math.prod(max(n, 1) for n in shape)
    if (
        max(extent, elements) * dtype.itemsize >= 1 << 62
        or max(strides, default=0) * dtype.itemsize >= 1 << 62
    ):
        raise SerdeError(f"The metadata of a tensor of shape {str(tuple(shape))[:100]} is that of none.")
    return make_spec(torch.Size(shape), strides, offset, dtype)


_Sizes = tuple[_Size, ...]
_ALL_DTYPES = {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, torch.dtype)}
_add_named(torch.dtype, "dtype", _ALL_DTYPES)
_add_named(torch.layout, "layout", LAYOUTS)
_add_named(torch.memory_format, "memory_format", MEMORY_FORMATS)
register(torch.Size, "Size", lambda _w, size: tuple(size), lambda _w, parts: torch.Size(parts), fields=_Sizes)
register(
    torch.device,
    "device",
    lambda _w, d: (d.type, d.index),
    _device,
    fields=tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=128)] | None],
)
register(
    TensorSpec,
    "TensorSpec",
    lambda _w, s: (tuple(s.shape), s.strides, s.offset, s.dtype),
    _read_spec,
    fields=tuple[_Sizes, _Sizes, _Size, torch.dtype],
)
add_codec(Codec(torch.Tensor, "tensor", _write_tensor, _read_tensor))
BY_TYPE[torch.nn.Parameter] = BY_TYPE[torch.Tensor]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError(
        "syft.serde sends memory as it lies, in little-endian order, and this machine has the other."
    )
