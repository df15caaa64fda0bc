"""Tensors, ids and what stands in arguments, to messages of `plan.proto` and back.

Names of dtypes, layouts and memory formats are looked up in the tables of `syft.serde`; a name that is not in them is
refused, so that no attribute is ever read by a name that came in a message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.execution.errors import InvalidProgramError
from syft.execution.operation import Size, Slot
from syft.execution.program import MAX_DEPTH
from syft.execution.protobuf.plan_pb2 import (
    ComplexPB,
    EntryPB,
    IdPB,
    MappingPB,
    NothingPB,
    SequencePB,
    SizePB,
    SlicePB,
    TensorPB,
    ValuePB,
)
from syft.serde import SerdeError, UnserializableError
from syft.serde.torch_types import (
    DEVICES,
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    check_shape,
    dense_memory,
    tensor_over,
)

_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_NOTHING = NothingPB()

# A program may have MAX_DEPTH containers in each other; one more level each for arguments and slices.
_MAX_DEPTH = MAX_DEPTH + 4

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("Tensors are written as they lie in memory, which on this machine is big-endian.")


# -- ids -------------------------------------------------------------------------------------------


def write_id(value: Any) -> IdPB:
    if type(value) is int:
        return IdPB(number=value)
    if type(value) is str:
        return IdPB(text=value)
    raise UnserializableError(f"An id is a number or a word; a {type(value).__name__} was found.")


def read_id(message: IdPB) -> int | str:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise SerdeError("An id in a message is neither a number nor a word.")
    return message.number if kind == "number" else message.text


# -- tensors ---------------------------------------------------------------------------------------


def write_tensor(tensor: Any) -> TensorPB:
    if type(tensor) is Wrapper:
        raise UnserializableError(
            "A tensor that is elsewhere, shared or of fixed precision was to become a Protocol Buffer, which holds "
            "plain tensors. Bring it back first, e.g. with plan.get_() and plan.float_precision_(), or use "
            "syft.serde.serialize."
        )
    dtype = _DTYPE_NAMES.get(tensor.dtype)
    if dtype is None or tensor.layout is not torch.strided or tensor.device.type == "meta":
        raise UnserializableError(
            f"A tensor of dtype {tensor.dtype}, layout {tensor.layout} and device {tensor.device} has no Protocol "
            "Buffer. Convert it to a dense tensor of a plain dtype first."
        )
    memory, _ = dense_memory(tensor.detach().contiguous(), pins=False)
    return TensorPB(
        dtype=dtype,
        shape=list(tensor.shape),
        data=bytes(memory),
        requires_grad=tensor.requires_grad,
        is_parameter=isinstance(tensor, torch.nn.Parameter),
    )


def read_tensor(message: TensorPB) -> torch.Tensor:
    dtype = read_dtype(message.dtype)
    shape = list(message.shape)
    check_shape(shape, dtype.itemsize, len(message.data))
    made = tensor_over(memoryview(message.data), dtype, shape)
    if message.is_parameter:
        return torch.nn.Parameter(made, requires_grad=message.requires_grad)
    return made.requires_grad_(message.requires_grad)


def dtype_name(dtype: torch.dtype) -> str:
    found = _DTYPE_NAMES.get(dtype)
    if found is None:
        raise UnserializableError(f"{dtype} has no name in messages.")
    return found


def read_dtype(name: str) -> torch.dtype:
    found: torch.dtype = _looked_up(DTYPES, name, "dtype")
    return found


# -- values ----------------------------------------------------------------------------------------


def write_value(value: Any, depth: int = 0) -> ValuePB:
    _check_depth(depth)
    write = _WRITERS.get(type(value))
    if write is None:
        raise UnserializableError(
            f"A {type(value).__name__} stands in the arguments of an operation, and cannot be written there."
        )
    return write(value, depth + 1)


def _write_complex(value: complex, _depth: int) -> ValuePB:
    return ValuePB(complex=ComplexPB(real=value.real, imag=value.imag))


def _write_size(size: Size, depth: int) -> ValuePB:
    return ValuePB(
        size=SizePB(op=size.op, left=write_value(size.left, depth), right=write_value(size.right, depth))
    )


def _write_slice(value: slice, depth: int) -> ValuePB:
    start, stop, step = (write_value(part, depth) for part in (value.start, value.stop, value.step))
    return ValuePB(slice=SlicePB(start=start, stop=stop, step=step))


def write_mapping(value: dict[Any, Any], depth: int = 0) -> MappingPB:
    return MappingPB(
        entries=[EntryPB(key=write_value(k, depth), value=write_value(v, depth)) for k, v in value.items()]
    )


def _sequence(items: Any, depth: int) -> SequencePB:
    return SequencePB(items=[write_value(item, depth) for item in items])


def _named(table: dict[str, Any], value: Any) -> str:
    for name, known in table.items():
        if known == value:
            return name
    raise UnserializableError(f"{value} has no name in messages.")


_WRITERS: dict[type, Callable[[Any, int], ValuePB]] = {
    type(None): lambda _v, _d: ValuePB(none=_NOTHING),
    bool: lambda v, _d: ValuePB(truth=v),
    int: lambda v, _d: ValuePB(integer=v),
    float: lambda v, _d: ValuePB(real=v),
    complex: _write_complex,
    str: lambda v, _d: ValuePB(text=v),
    type(...): lambda _v, _d: ValuePB(ellipsis=_NOTHING),
    torch.dtype: lambda v, _d: ValuePB(dtype=dtype_name(v)),
    torch.device: lambda v, _d: ValuePB(device=str(v)),
    torch.layout: lambda v, _d: ValuePB(layout=_named(LAYOUTS, v)),
    torch.memory_format: lambda v, _d: ValuePB(memory_format=_named(MEMORY_FORMATS, v)),
    Slot: lambda v, _d: ValuePB(slot=v.index),
    Size: _write_size,
    tuple: lambda v, d: ValuePB(tuple=_sequence(v, d)),
    list: lambda v, d: ValuePB(list=_sequence(v, d)),
    dict: lambda v, d: ValuePB(mapping=write_mapping(v, d)),
    slice: _write_slice,
}


def read_value(message: ValuePB, depth: int = 0) -> Any:
    _check_depth(depth)
    kind = message.WhichOneof("kind")
    if kind is None:
        raise InvalidProgramError("A value of a plan says nothing.")
    return _READERS[kind](message, depth + 1)


def _read_device(message: ValuePB, _depth: int) -> torch.device:
    kind, _, number = message.device.partition(":")
    if kind not in DEVICES or not (
        number == "" or (number.isascii() and number.isdigit() and len(number) < 4)
    ):
        raise InvalidProgramError(f"A plan names the device {message.device[:60]!r}.")
    return torch.device(message.device)


def _read_size(message: ValuePB, depth: int) -> Size:
    size = message.size
    return Size(size.op, read_value(size.left, depth), read_value(size.right, depth))


def _read_slice(message: ValuePB, depth: int) -> slice:
    parts = message.slice
    return slice(*(read_value(part, depth) for part in (parts.start, parts.stop, parts.step)))


def read_mapping(message: MappingPB, depth: int = 0) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for entry in message.entries:
        key = read_value(entry.key, depth)
        if type(key) not in (str, int, bool) or key in made:
            raise InvalidProgramError(
                f"A mapping of a plan has a {type(key).__name__} as a key, or a key twice."
            )
        made[key] = read_value(entry.value, depth)
    return made


_READERS: dict[str, Callable[[ValuePB, int], Any]] = {
    "none": lambda _m, _d: None,
    "truth": lambda m, _d: m.truth,
    "integer": lambda m, _d: m.integer,
    "real": lambda m, _d: m.real,
    "complex": lambda m, _d: complex(m.complex.real, m.complex.imag),
    "text": lambda m, _d: m.text,
    "ellipsis": lambda _m, _d: ...,
    "dtype": lambda m, _d: read_dtype(m.dtype),
    "device": _read_device,
    "layout": lambda m, _d: _looked_up(LAYOUTS, m.layout, "layout"),
    "memory_format": lambda m, _d: _looked_up(MEMORY_FORMATS, m.memory_format, "memory format"),
    "slot": lambda m, _d: Slot(m.slot),
    "size": _read_size,
    "tuple": lambda m, d: tuple([read_value(item, d) for item in m.tuple.items]),
    "list": lambda m, d: [read_value(item, d) for item in m.list.items],
    "mapping": lambda m, d: read_mapping(m.mapping, d),
    "slice": _read_slice,
}


def _looked_up(table: dict[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise SerdeError(f"A message names the {what} {name[:60]!r}, which there is not here.")
    return table[name]


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidProgramError("A value of a plan is nested too deeply.")
