"""`load_folder` and `read_folder`: an owner's folder of ordinary files as tagged tensors.

images.safetensors   every tensor in it, by its name
ages.npy             a numpy array (never a pickled one)
patients.csv         numbers in columns, with or without a line of headings
patients.toml        optional, beside any of them: tags, description, allowed, released_only, dtype
"""

from __future__ import annotations

import csv
import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from syft import serde
from syft.core.identity import identity_of
from syft.core.structs import prepared
from syft.exceptions import SyftError
from syft.serde.errors import SerdeError
from syft.serde.torch_types import DTYPES
from syft.tensors.private import PrivateTensor

READERS = (".csv", ".npy", ".safetensors")


class DataFileError(SyftError, ValueError):
    """A file of the owner's that cannot be served."""


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in NAME.toml."""

    tags: list[str] = []
    description: str | None = None
    allowed: list[str] | None = None
    dtype: str | None = None
    released_only: bool = False


@dataclass(frozen=True)
class ServedTensor:
    """A tensor of a folder, tagged as it is served."""

    file: Path
    tensor: torch.Tensor
    #: The same numbers, without what `allowed` and `released_only` put around them.
    values: torch.Tensor


@dataclass(frozen=True)
class FolderContents:
    """What can be served of a folder, and one error for each file that cannot."""

    served: tuple[ServedTensor, ...]
    problems: tuple[DataFileError, ...]


def load_folder(path: str | Path) -> list[torch.Tensor]:
    """The tensors of a folder, each tagged `#` and the name of its file. !! DataFileError for the first bad file"""
    contents = read_folder(path)
    for problem in contents.problems:
        raise problem
    return [one.tensor for one in contents.served]


def read_folder(path: str | Path) -> FolderContents:
    """What can be served of a folder, and why the rest cannot. !! DataFileError if there is no such folder

    A file is served whole or left out: one whose .toml cannot be understood may be meant for nobody.

    The ids come from the names of the files, so that they are the same after a restart. Tensors with `allowed` in
    their .toml are private to those users; those with `released_only = true` may only be released, with noise.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataFileError(f"There is no folder {folder}. Pass the folder in which the data files are.")
    files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
    stems = {file.stem for file in files if file.suffix in READERS}
    problems = [
        DataFileError(
            f"{file} describes data of the name {file.stem!r}, and there is no such file in the folder "
            f"({', '.join(f'{file.stem}{suffix}' for suffix in READERS)}). Mend the name, or move it elsewhere."
        )
        for file in files
        if file.suffix == ".toml" and file.stem not in stems
    ]
    served: list[ServedTensor] = []
    for file in files:
        if file.suffix in READERS:
            try:
                served.extend(list(_load_file(file)))
            except DataFileError as problem:
                problems.append(problem)
    return FolderContents(tuple(served), tuple(problems))


def _load_file(file: Path) -> Iterator[ServedTensor]:
    about = _about(file.with_suffix(".toml"))
    dtype = _dtype(about, file)
    for name, value, description in _read(file, dtype):
        given = identity_of(value)
        tags = {f"#{file.stem}", *given.tags, *about.tags}
        if name is not None:
            tags.add(f"#{name}")
        tensor = values = value if dtype is None else value.to(dtype)
        if about.allowed is not None or about.released_only:
            tensor = PrivateTensor(tuple(about.allowed or ()), released_only=about.released_only).on(tensor)
        identity = identity_of(tensor)
        identity.id = _stable_id(file.name, name)
        identity.tags = tags
        identity.description = about.description or given.description or description
        yield ServedTensor(file, tensor, values)


def _stable_id(file: str, name: str | None) -> int:
    text = f"{file}\0{'' if name is None else name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 4


def _about(file: Path) -> _About:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return _About()
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(f"{file} cannot be read: {error}.") from error
    try:
        found = msgspec.convert(tomllib.loads(text), prepared(_About))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise DataFileError(
            f"{file} cannot be understood: {error}. Its keys are {', '.join(_About.__struct_fields__)}."
        ) from error
    if found.released_only and found.allowed:
        raise DataFileError(
            f"{file} has released_only = true and allowed = {found.allowed}: what may only be released is fetched by "
            "nobody. Leave one of the two out."
        )
    return found


def _dtype(about: _About, file: Path) -> torch.dtype | None:
    if about.dtype is None:
        return None
    if about.dtype not in DTYPES:
        raise DataFileError(
            f"{file.with_suffix('.toml')}: dtype {about.dtype[:40]!r} is none of {', '.join(DTYPES)}."
        )
    return DTYPES[about.dtype]


#: The name within the file, the tensor, and what the file itself says about it.
_Read = tuple[str | None, torch.Tensor, str | None]


def _read(file: Path, dtype: torch.dtype | None) -> list[_Read]:
    if file.suffix == ".csv":
        return [_read_csv(file, dtype)]
    if file.suffix == ".npy":
        return [_read_npy(file)]
    try:
        tensors, _metadata = serde.load(file)
    except (SerdeError, OSError) as error:
        raise DataFileError(f"{file} cannot be served: {error}") from error
    is_one = len(tensors) == 1
    return [(None if is_one else name, tensor, None) for name, tensor in sorted(tensors.items())]


def _read_npy(file: Path) -> _Read:
    try:
        with file.open("rb") as stream:
            array: Any = np.lib.format.read_array(stream, allow_pickle=False)
        return None, torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape)), None
    except (OSError, EOFError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise DataFileError(
            f"{file} cannot be served: {error}. It has to be one array of numbers, saved with numpy.save."
        ) from error


def _read_csv(file: Path, dtype: torch.dtype | None) -> _Read:
    """Numbers become float32, as torch's own do, unless the .toml says otherwise."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            lines = [(number, row) for number, row in enumerate(csv.reader(text, strict=True), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataFileError(f"{file} cannot be read as text with commas: {error}.") from error
    if not lines:
        raise DataFileError(f"{file} is empty.")
    headings = lines[0][1]
    description = None
    if not all(_is_number(cell) for cell in headings):
        description = f"columns: {', '.join(cell.strip() for cell in headings)}"
        lines = lines[1:]
    for number, row in lines:
        if len(row) != len(headings):
            raise DataFileError(
                f"{file}, line {number} has {len(row)} columns and the first line {len(headings)}."
            )
        for column, cell in enumerate(row):
            if not _is_number(cell):
                raise DataFileError(
                    f"{file}, line {number}, column {headings[column].strip()[:40]!r}: {cell[:40]!r} is not a number. "
                    "Replace texts by numbers and leave no cell empty (nan stands for a missing number)."
                )
    values = np.array([[float(cell) for cell in row] for _number, row in lines], dtype=np.float64)
    made = torch.from_numpy(values.reshape(len(lines), len(headings)))
    return None, made.to(dtype or torch.float32), description


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
