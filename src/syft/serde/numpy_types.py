"""How numpy's arrays and scalars travel: numbers, truth values, dates, text and bytes; never objects."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import numpy as np

from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError, UnserializableError
from syft.serde.reader import Reader
from syft.serde.registry import add_codec, checked, register
from syft.serde.torch_types import check_shape
from syft.serde.writer import Writer

_PLAIN = {name: np.dtype(name) for name in "|b1 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 <f2 <f4 <f8 <c8 <c16".split()}
#: Text and bytes of a fixed length, dates and durations of a unit.
_WITH_LENGTH = re.compile(r"<U[0-9]{1,7}|\|S[0-9]{1,7}|<[mM]8(\[(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_MAX_DIMENSIONS = 64


class ArrayRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An array in a header, after its code."""

    dtype: str
    shape: list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]]
    data: int | bytes
    is_fortran: bool


def _dtype_name(dtype: Any) -> str:
    name: str = dtype.newbyteorder("<").str
    if name not in _PLAIN and not _WITH_LENGTH.fullmatch(name):
        raise UnserializableError(
            f"A numpy array of dtype {dtype} cannot be serialised. Convert it to numbers, text or dates first; "
            "send Python objects as a list."
        )
    return name


def _dtype_named(name: str) -> Any:
    found = _PLAIN.get(name)
    if found is None and not _WITH_LENGTH.fullmatch(name):
        raise SerdeError(f"{name[:60]!r} is not the dtype of an array that can travel.")
    return np.dtype(name) if found is None else found


def _write_array(writer: Writer, array: Any) -> Simple:
    name = _dtype_name(array.dtype)
    array = array.astype(name, copy=False)
    is_fortran = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    rows = np.ascontiguousarray(array.T if is_fortran else array)
    memory = rows.reshape(-1).view(np.uint8).data if rows.nbytes else memoryview(b"")
    return "ndarray", name, array.shape, writer.buffer(memory), is_fortran


def _read_array(reader: Reader, simple: Any) -> Any:
    record: ArrayRecord = checked(simple[1:], ArrayRecord, "ndarray")
    dtype = _dtype_named(record.dtype)
    memory = reader.buffer(record.data)
    if len(record.shape) > _MAX_DIMENSIONS:
        raise SerdeError(f"An array has {len(record.shape)} dimensions; numpy has at most {_MAX_DIMENSIONS}.")
    check_shape(record.shape, dtype.itemsize, len(memory))
    if not len(memory):
        return np.empty(record.shape, dtype, order="F" if record.is_fortran else "C")
    flat = np.frombuffer(memory, np.uint8)
    if memory.readonly or flat.ctypes.data % dtype.alignment:
        flat = flat.copy()
    _check_values(flat, dtype)
    return flat.view(dtype).reshape(record.shape, order="F" if record.is_fortran else "C")


def _check_values(memory: Any, dtype: Any) -> None:
    if dtype.kind == "b" and memory.max() > 1:
        raise SerdeError("An array of truth values holds a byte that is neither 0 nor 1.")
    if dtype.kind == "U" and memory.view(np.uint32).max() > 0x10FFFF:
        raise SerdeError("An array of text holds a number that is no character.")


def _write_scalar(writer: Writer, scalar: Any) -> Simple:
    return "numpy", _write_array(writer, np.asarray(scalar))


def _read_scalar(reader: Reader, simple: Any) -> Any:
    (inner,) = simple[1:]
    if not isinstance(inner, (list, tuple)) or not inner or inner[0] != "ndarray":
        raise SerdeError("A numpy scalar is not made of an array.")
    array = _read_array(reader, inner)
    if array.ndim:
        raise SerdeError(f"A numpy scalar has {array.ndim} dimensions.")
    return array[()]


add_codec(Codec(np.ndarray, "ndarray", _write_array, _read_array))
add_codec(Codec(np.generic, "numpy", _write_scalar, _read_scalar), subclasses=True)
register(
    np.dtype,
    "numpy.dtype",
    lambda _w, dtype: (_dtype_name(dtype),),
    lambda _w, parts: _dtype_named(parts[0]),
    fields=tuple[str],
    subclasses=True,
)
