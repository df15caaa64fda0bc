"""Arrays of numbers: .npy, .npz and .safetensors files. Nothing is ever unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from syft import serde
from syft.data.errors import DataFileError
from syft.data.limits import MemoryLimit
from syft.serde.errors import SerdeError

#: The name within the file, and the tensor.
Arrays = list[tuple[str | None, torch.Tensor]]
_MOST_ARRAYS = 10_000
_FAULTS = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    MemoryError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
)


def read_npy(file: Path, limit: MemoryLimit) -> Arrays:
    """!! DataFileError"""
    try:
        with file.open("rb") as stream:
            return [(None, _array(file, stream, file.stat().st_size, limit))]
    except _FAULTS as error:
        raise _refusal(file, error, "It has to be one array of numbers, saved with numpy.save.") from error


def read_npz(file: Path, limit: MemoryLimit) -> Arrays:
    """!! DataFileError"""
    found: Arrays = []
    try:
        with zipfile.ZipFile(file) as opened:
            members = sorted(opened.infolist(), key=lambda one: one.filename)
            if not 1 <= len(members) <= _MOST_ARRAYS:
                raise ValueError(f"it holds {len(members)} arrays; 1 to {_MOST_ARRAYS} can be served")
            limit.check(file, sum(member.file_size for member in members))
            for member in members:
                with opened.open(member) as stream:
                    found.append(
                        (member.filename.removesuffix(".npy"), _array(file, stream, member.file_size, limit))
                    )
    except (*_FAULTS, zipfile.BadZipFile, zlib.error) as error:
        raise _refusal(file, error, "It has to hold arrays of numbers, saved with numpy.savez.") from error
    return [(None, found[0][1])] if len(found) == 1 else found


def read_safetensors(file: Path, limit: MemoryLimit) -> Arrays:
    """!! DataFileError"""
    try:
        limit.check(file, file.stat().st_size)
        tensors, _metadata = serde.load(file)
    except (SerdeError, OSError) as error:
        raise DataFileError(f"{file} cannot be served: {error}") from error
    is_one = len(tensors) == 1
    return [(None if is_one else name, tensor) for name, tensor in sorted(tensors.items())]


READERS: dict[str, Callable[[Path, MemoryLimit], Arrays]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".safetensors": read_safetensors,
}


def _array(file: Path, stream: IO[bytes], nbytes: int, limit: MemoryLimit) -> torch.Tensor:
    """The array in a stream of so many bytes, of which the head is looked at first. !! ValueError"""
    version = np.lib.format.read_magic(stream)
    read_head: Any = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_head is None:
        raise ValueError(f"its format is version {version}, and 1.0 and 2.0 are read")
    shape, is_fortran, dtype = read_head(stream)
    if dtype.hasobject or dtype.kind not in "biufc":
        raise ValueError(f"its dtype is {dtype}, which is no number")
    needed = math.prod(shape) * dtype.itemsize
    if needed > nbytes:
        raise ValueError(f"its head says {needed} bytes of numbers, and the file has {nbytes} bytes")
    limit.check(file, needed)
    content = stream.read(needed)
    if len(content) != needed:
        raise ValueError(f"it ends after {len(content)} of {needed} bytes of numbers")
    order: Any = "F" if is_fortran else "C"
    values = np.frombuffer(bytearray(content), dtype).reshape(shape, order=order)
    native = np.ascontiguousarray(values.astype(dtype.newbyteorder("="), copy=False))
    return torch.from_numpy(native.reshape(shape))


def _refusal(file: Path, error: Exception, cure: str) -> DataFileError:
    if isinstance(error, DataFileError):
        return error
    return DataFileError(f"{file} cannot be served: {error}. {cure}")
