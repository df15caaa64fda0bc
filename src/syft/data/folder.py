"""`load_folder` and `read_folder`: an owner's folder of ordinary files as tagged tensors.

images.safetensors   every tensor in it, by its name
arrays.npz           every array in it, by its name
ages.npy             a numpy array (never a pickled one)
patients.csv         columns of numbers, texts and dates, with or without a line of headings
visits.parquet       such columns, with types; .arrow and .feather as well
scans/               images, in a folder for each class or all in one
patients.toml        optional, beside any of them: see `side_file`
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from syft.core.identity import identity_of
from syft.data import arrays, images, tables
from syft.data.columns import Column
from syft.data.errors import DataFileError
from syft.data.limits import MemoryLimit
from syft.data.schema import PERSON, ColumnInfo
from syft.data.side_file import About, OfferRule, dtype_of, read_side_file
from syft.tensors.private import PrivateTensor

logger = logging.getLogger("syft.workers")

OFFERS_FILE = "offers.toml"
READERS = (*tables.SUFFIXES, *arrays.READERS)
#: Whole numbers beyond this are rounded in float32.
_EXACT_IN_FLOAT32 = 2**24


@dataclass(frozen=True)
class ServedTensor:
    """A tensor of a folder, tagged as it is served.

    file      where it comes from
    name      which part of the file it is; None: it is all of it
    columns   what its columns are, where it is a table's
    missing   how many values of each column were missing; for numbers without columns, how many are NaN
    person_column   which column names the person a row is of
    """

    file: Path
    tensor: torch.Tensor
    #: The same numbers, without what `allowed` and `released_only` put around them.
    values: torch.Tensor
    name: str | None = None
    columns: tuple[ColumnInfo, ...] = ()
    missing: tuple[int, ...] = (0,)
    person_column: int | None = None


@dataclass(frozen=True)
class FolderContents:
    """What can be served of a folder, an error for each file that cannot, a line for what is left out of the rest."""

    served: tuple[ServedTensor, ...]
    problems: tuple[DataFileError, ...]
    notes: tuple[str, ...] = ()
    #: What the .toml of a file says about offering it.
    offers: tuple[tuple[Path, OfferRule], ...] = ()


@dataclass(frozen=True)
class _Part:
    """A tensor of a file, before it has its tags."""

    name: str | None
    values: torch.Tensor
    description: str | None = None
    columns: tuple[ColumnInfo, ...] = ()
    missing: tuple[int, ...] | None = None
    person_column: int | None = None


def load_folder(path: str | Path) -> list[torch.Tensor]:
    """The tensors of a folder, each tagged `#` and the name of its file. !! DataFileError for the first bad file

    What is left out of good files (a column of text, say) is a line of the log each.
    """
    contents = read_folder(path)
    for problem in contents.problems:
        raise problem
    for note in contents.notes:
        logger.warning("%s", " ".join(note.split()))
    return [one.tensor for one in contents.served]


def read_folder(
    path: str | Path, most_bytes: int | None = None, persons: Sequence[str] = ()
) -> FolderContents:
    """What can be served of a folder, and why the rest cannot. !! DataFileError if there is no such folder

    A file is served whole or left out: one whose .toml cannot be understood may be meant for nobody. `most_bytes` is how
    much memory all of it may take; without, half of the machine's. `persons` are "FILE=COLUMN", as `person_column` in the
    .toml of a file. !! ValueError

    The ids come from the names of the files, so that they are the same after a restart. Tensors with `allowed` in
    their .toml are private to those users; those with `released_only = true` may only be released, with noise.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataFileError(f"There is no folder {folder}. Pass the folder in which the data files are.")
    entries = sorted(
        entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name != OFFERS_FILE
    )
    sources = [entry for entry in entries if _is_source(entry)]
    problems = [DataFileError(text) for text in _lonely(entries, sources)]
    notes = [
        f"{entry} is no data that can be served: {', '.join(READERS)}, or a folder of images."
        for entry in entries
        if entry not in sources and entry.suffix != ".toml"
    ]
    named = _named_persons(persons, sources)
    served: list[ServedTensor] = []
    offers: list[tuple[Path, OfferRule]] = []
    limit = MemoryLimit(most_bytes)
    for source in sources:
        try:
            made, said, offer = _load(source, limit, named.get(source.name))
        except DataFileError as problem:
            problems.append(problem)
        else:
            limit.take(sum(one.values.nbytes for one in made))
            served += made
            notes += said
            offers += [] if offer is None else [(source, offer)]
    return FolderContents(tuple(served), tuple(problems), tuple(notes), tuple(offers))


def _named_persons(texts: Sequence[str], sources: Iterable[Path]) -> dict[str, str]:
    """File -> column, of what stands in --person-column. !! ValueError"""
    named = {}
    known = [source.name for source in sources]
    for text in texts:
        file, sign, column = (part.strip() for part in text.partition("="))
        if not (file and sign and column):
            raise ValueError(f"--person-column {text[:80]!r}: write FILE=COLUMN, e.g. visits.csv=patient.")
        if file not in known:
            raise ValueError(
                f"--person-column {text[:80]!r}: there is no {file[:60]!r} in the folder. It has "
                f"{', '.join(known)[:300] or 'nothing that can be served'}."
            )
        named[file] = column
    return named


def _is_source(entry: Path) -> bool:
    return images.holds_images(entry) if entry.is_dir() else entry.is_file() and entry.suffix in READERS


def _lonely(entries: Iterable[Path], sources: Iterable[Path]) -> Iterator[str]:
    names = {source.stem for source in sources}
    for entry in entries:
        if entry.suffix == ".toml" and entry.is_file() and entry.stem not in names:
            yield (
                f"{entry} describes data of the name {entry.stem!r}, and there is no such file in the folder "
                f"({', '.join(f'{entry.stem}{suffix}' for suffix in READERS)}) nor a folder of images. Mend the name, or "
                "move it elsewhere."
            )


def _load(
    source: Path, limit: MemoryLimit, person: str | None = None
) -> tuple[list[ServedTensor], list[str], OfferRule | None]:
    of: Literal["images", "table", "array"] = (
        "images" if source.is_dir() else "table" if source.suffix in tables.SUFFIXES else "array"
    )
    side_file = source.parent / f"{source.name if of == 'images' else source.stem}.toml"
    about = read_side_file(side_file, of, person)
    if of == "images":
        parts, notes = _image_parts(source, about, limit)
    elif of == "table":
        parts, notes = _table_parts(source, about, limit)
    else:
        dtype = dtype_of(side_file, about.dtype)
        parts = [
            _Part(
                name,
                value if dtype is None else value.to(dtype),
                person_column=_column_of_array(source, name, value, about.person_column),
            )
            for name, value in arrays.READERS[source.suffix](source, limit)
        ]
        notes = []
    notes += [note for part in parts if (note := _note_on_persons(source, part)) is not None]
    return [_tagged(source, part, about) for part in parts], notes, about.offer


def _column_of_array(
    file: Path, name: str | None, value: torch.Tensor, column: str | int | None
) -> int | None:
    if column is None:
        return None
    if value.ndim != 2 or not isinstance(column, int) or not 0 <= column < value.shape[1]:
        what = str(file) if name is None else f"{file}, {name[:40]!r}"
        raise DataFileError(
            f"{what} has the shape {tuple(value.shape)}, and person_column = {column!r} is the number, from "
            "0, of a column in a table of rows x columns."
        )
    return column


def _note_on_persons(file: Path, part: _Part) -> str | None:
    if part.person_column is None:
        return None
    counts = np.unique(part.values[:, part.person_column].double().numpy(), return_counts=True)[1]
    most = int(counts.max(initial=0))
    if most <= 1:
        return None
    # NB: for the owner: it is told by data, and neither users nor noise see it.
    return (
        f"{file}: one person has up to {most} rows. Statistics by group (group_count, group_sum, group_mean) bound what "
        f"one person contributes. The noise of all others is for one row of a person, unless the budget says otherwise: "
        f"syft budget set ... --records {most}."
    )


def _tagged(file: Path, part: _Part, about: About) -> ServedTensor:
    given = identity_of(part.values)
    tags = {f"#{file.stem}", *given.tags, *about.tags}
    if part.name is not None:
        tags.add(f"#{part.name}")
    description = about.description or given.description or part.description
    tensor = part.values
    if about.allowed is not None or about.released_only:
        tensor = PrivateTensor(tuple(about.allowed or ()), released_only=about.released_only).on(tensor)
    identity = identity_of(tensor)
    identity.id = stable_id(file.name, part.name)
    identity.tags = tags
    identity.description = description
    missing = part.missing if part.missing is not None else (_count_nan(part.values),)
    return ServedTensor(file, tensor, part.values, part.name, part.columns, missing, part.person_column)


def stable_id(file: str, name: str | None) -> int:
    """The id of part of a file: the same after every restart."""
    text = f"{file}\0{'' if name is None else name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 4


def _count_nan(values: torch.Tensor) -> int:
    return int(values.isnan().sum()) if values.is_floating_point() else 0


# -- tables ----------------------------------------------------------------------------------------------


def _table_parts(file: Path, about: About, limit: MemoryLimit) -> tuple[list[_Part], list[str]]:
    table = tables.read_table(file, about, limit)
    notes = list(table.notes)
    if about.layout == "columns":
        return [_column_part(column, about) for column in table.columns], notes
    dtype = dtype_of(file, about.dtype) or torch.float32
    limit.check(file, table.rows * len(table.columns) * dtype.itemsize)
    matrix = torch.empty((table.rows, len(table.columns)), dtype=dtype)
    for number, column in enumerate(table.columns):
        matrix[:, number] = torch.from_numpy(column.values)
        if dtype is torch.float32 and np.issubdtype(column.values.dtype, np.integer):
            if len(column.values) and int(np.abs(column.values).max()) > _EXACT_IN_FLOAT32:
                notes.append(
                    f"{file}: column {column.info.name[:40]!r} has whole numbers that float32 rounds. dtype = 'float64', "
                    "or layout = 'columns', keeps them."
                )
    infos = tuple(column.info for column in table.columns)
    description = f"columns: {', '.join(map(str, infos))}" if table.is_named else None
    missing = tuple(_missing(column) for column in table.columns)
    persons = [number for number, info in enumerate(infos) if info.kind == PERSON]
    return [_Part(None, matrix, description, infos, missing, persons[0] if persons else None)], notes


def _column_part(column: Column, about: About) -> _Part:
    wanted = dtype_of("", column.info.dtype)
    if about.dtype is not None and column.info.kind == "number":
        wanted = dtype_of("", about.dtype)
    values = torch.from_numpy(np.ascontiguousarray(column.values))
    if wanted is not None:
        values = values.to(wanted)
    info = column.info
    shown = ColumnInfo(info.name, info.kind, _name(values), info.categories, info.count)
    return _Part(info.name, values, f"column {shown}", (shown,), (_missing(column),))


def _missing(column: Column) -> int:
    is_float = np.issubdtype(column.values.dtype, np.floating)
    return column.missing + (int(np.isnan(column.values).sum()) if is_float else 0)


def _name(values: torch.Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


# -- images ----------------------------------------------------------------------------------------------


def _image_parts(folder: Path, about: About, limit: MemoryLimit) -> tuple[list[_Part], list[str]]:
    found = images.read_images(folder, about, limit)
    dtype = dtype_of(folder, about.dtype)
    pixels: Any = found.images
    if dtype is not None and dtype is not torch.uint8:
        limit.check(folder, pixels.numel() * dtype.itemsize)
        # As torchvision does it: colours of floating point are between 0 and 1.
        pixels = pixels.to(dtype) / 255 if dtype.is_floating_point else pixels.to(dtype)
    if found.labels is None:
        return [_Part(None, pixels, "images")], list(found.notes)
    shown = about.show_categories
    info = ColumnInfo(
        "class",
        "category",
        "int64",
        found.classes if shown == "names" else None,
        None if shown == "nothing" else len(found.classes),
    )
    return [
        _Part("images", pixels, "images"),
        _Part("labels", found.labels, f"the classes of images: {info}", (info,), (0,)),
    ], list(found.notes)
