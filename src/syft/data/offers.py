"""Data sets of a folder that are offered for training: made of tensors and columns of its files.

    patients.toml     [offer]                          columns or parts of the file beside it
                      target = "sick"                  inputs: all the others, or inputs = ["age", "weight"]
    offers.toml       [scans]                          parts of any files of the folder
                      inputs = ["images.npy"]
                      target = "labels.npy"            FILE, FILE:PART or FILE:COLUMN+COLUMN
    --offer scans=images.npy,labels.npy                the same; the last one is the target

What an offer is made of has the tags #NAME and #inputs or #target, so that releases and train_privately find it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from syft.core.identity import identity_of
from syft.core.structs import prepared
from syft.data.errors import DataFileError
from syft.data.folder import OFFERS_FILE, FolderContents, ServedTensor, stable_id
from syft.data.schema import PERSON, ColumnInfo, DataSetInfo, PartInfo, told_rows
from syft.data.side_file import OfferRule
from syft.policy.permissions import Allowed, intersect
from syft.tensors.private import PrivateTensor

#: Kinds of columns that are codes: a target of them is one number a row, of dtype int64.
_CODES = ("category",)


@dataclass(frozen=True)
class Source:
    """Part of a file: all of it, a tensor of it, or columns of it."""

    file: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{'+'.join(self.names)}" if self.names else self.file


@dataclass(frozen=True)
class OfferedData:
    """A data set as it is offered: its tensors, the target last. Without `trains` it is for noise alone."""

    info: DataSetInfo
    tensors: tuple[torch.Tensor, ...]
    allowed: Allowed = None
    least_in_sum: int | None = None
    trains: bool = True
    on_request: bool = False


@dataclass(frozen=True)
class _Wanted:
    """An offer as its owner wrote it. `where` is for errors."""

    where: str
    name: str
    inputs: tuple[Source, ...]
    target: Source
    rule: OfferRule

    @property
    def files(self) -> set[str]:
        return {source.file for source in (*self.inputs, self.target)}


def with_offers(
    contents: FolderContents, folder: Path, given: Sequence[str] = ()
) -> tuple[FolderContents, tuple[OfferedData, ...]]:
    """The contents of a folder with what its offers add, and the offers. One that cannot be made is one more problem."""
    problems: list[DataFileError] = list(contents.problems)
    wanted: list[_Wanted] = []
    finds: list[Callable[[], list[_Wanted]]] = [
        partial(_from_side_file, contents, file, rule) for file, rule in contents.offers
    ]
    finds.append(lambda: _from_file(folder / OFFERS_FILE))
    for find in finds:
        try:
            wanted += find()
        except DataFileError as problem:
            problems.append(problem)
    wanted += [_from_text(text) for text in given]
    made: list[OfferedData] = []
    served, notes = list(contents.served), list(contents.notes)
    hidden = {file for one in wanted if one.rule.rows != "exact" for file in one.files}
    # NB: also where that offer cannot be made.
    hidden |= {file.name for file, rule in contents.offers if rule.rows != "exact"}
    for one in wanted:
        try:
            if any(other.info.name == one.name for other in made):
                raise DataFileError(
                    f"{one.where} offers a second data set {one.name!r}. Choose another name."
                )
            if one.rule.rows == "exact" and hidden & one.files:
                raise DataFileError(
                    f"{one.where} tells exactly how many rows there are, and another offer of "
                    f"{min(hidden & one.files)} does not. Say the same rows = ... in both."
                )
            offer, added = _made(one, contents.served)
        except DataFileError as problem:
            problems.append(problem)
            continue
        made.append(offer)
        served += added
    notes += [
        f"{folder / file}: a pointer to it would tell how many rows it has, so it is served for training in rounds "
        "alone. rows = 'exact' serves it for releases and train_privately as well."
        for file in sorted(hidden)
    ]
    shown = tuple(one for one in served if one.file.name not in hidden)
    return FolderContents(shown, tuple(problems), tuple(notes)), tuple(made)


# -- what is wanted --------------------------------------------------------------------------------------


def _from_side_file(contents: FolderContents, file: Path, rule: OfferRule) -> list[_Wanted]:
    where = f"{file.parent / file.stem}.toml, [offer]"
    parts = [one for one in contents.served if one.file == file]
    if not parts:
        return []  # the file is left out, with its reason
    target, inputs = rule.target, rule.inputs
    columns = [column.name for one in parts for column in one.columns]
    names = [one.name for one in parts if one.name is not None]
    if target is None and set(names) == {"images", "labels"}:
        target, inputs = "labels", inputs or ["images"]
    if target is None:
        raise DataFileError(
            f"{where} does not say what is to be predicted. Name a column or a part of {file.name} as target; it has "
            f"{', '.join([*dict.fromkeys(columns), *names])[:300]}."
        )
    if inputs is None:
        known = columns if columns and file.is_file() else names
        persons = {column.name for one in parts for column in one.columns if column.kind == PERSON}
        inputs = [name for name in known if name not in (target, f"{target}_missing", *persons)]
    is_table = bool(columns) and file.is_file()
    sources = (
        (Source(file.name, tuple(inputs)),)
        if is_table
        else tuple(Source(file.name, (name,)) for name in inputs)
    )
    return [_Wanted(where, rule.name or file.stem, sources, Source(file.name, (target,)), rule)]


def _from_file(file: Path) -> list[_Wanted]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(f"{file} cannot be read: {error}.") from error
    try:
        found = msgspec.convert(tomllib.loads(text), prepared(dict[str, OfferRule]))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise DataFileError(
            f"{file} cannot be understood: {error}. It has a section [NAME] for each data set, with the keys "
            f"{', '.join(OfferRule.__struct_fields__)}."
        ) from error
    wanted = []
    for name, rule in found.items():
        where = f"{file}, [{name[:40]}]"
        if not rule.inputs or rule.target is None:
            raise DataFileError(
                f'{where} needs inputs = ["FILE"] and target = "FILE", of files in the folder.'
            )
        wanted.append(
            _Wanted(where, rule.name or name, tuple(map(_source, rule.inputs)), _source(rule.target), rule)
        )
    return wanted


def _from_text(text: str) -> _Wanted:
    """`scans=images.npy,labels.npy`. !! ValueError"""
    name, sign, files = text.partition("=")
    parts = [part.strip() for part in files.split(",") if part.strip()]
    if not (name.strip() and sign and parts):
        raise ValueError(
            f"--offer {text[:80]!r}: write NAME=INPUTS,TARGET, files of the folder, e.g. scans=images.npy,labels.npy, "
            "patients=patients.csv:age+weight,patients.csv:sick, or NAME=FOLDER for a folder of images by class."
        )
    inputs: tuple[Source, ...]
    if len(parts) == 1:
        inputs, target = (Source(parts[0], ("images",)),), Source(parts[0], ("labels",))
    else:
        inputs, target = tuple(map(_source, parts[:-1])), _source(parts[-1])
    return _Wanted(f"--offer {name.strip()}", name.strip(), inputs, target, OfferRule())


def _source(text: str) -> Source:
    file, _, names = text.partition(":")
    return Source(file.strip(), tuple(name.strip() for name in names.split("+")) if names else ())


# -- what is made ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A part that was found: its values, and what they are taken from."""

    values: torch.Tensor
    columns: tuple[ColumnInfo, ...]
    origin: ServedTensor
    is_whole: bool


def _made(wanted: _Wanted, served: Sequence[ServedTensor]) -> tuple[OfferedData, list[ServedTensor]]:
    rule, where = wanted.rule, wanted.where
    if rule.least_in_sum is not None and rule.least_in_sum < 2:
        raise DataFileError(
            f"{where}: least_in_sum is a number of workers, 2 or more; got {rule.least_in_sum}."
        )
    if rule.minimum_noise is not None and not 0 < rule.minimum_noise < float("inf"):
        raise DataFileError(
            f"{where}: minimum_noise is a number of clipping bounds above 0, such as 1.0; got {rule.minimum_noise}."
        )
    parts = [_found(where, source, served) for source in wanted.inputs]
    parts.append(_as_target(_found(where, wanted.target, served)))
    lengths = {str(source): len(part.values) if part.values.ndim else 0
               for source, part in zip((*wanted.inputs, wanted.target), parts, strict=True)}  # fmt: skip
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise DataFileError(f"{where}: the parts of a data set have equally many rows, and {said}.")
    rows = next(iter(lengths.values()))
    if not rows:
        raise DataFileError(f"{where}: there are no rows to train on.")
    allowed: Allowed = None if rule.allowed is None else frozenset(rule.allowed)
    is_released_only = False
    tags: set[str] = set()
    for part in parts:
        node = getattr(part.origin.tensor, "child", None)
        if isinstance(node, PrivateTensor):
            is_released_only |= node.released_only
            allowed = (
                allowed if node.released_only else intersect(allowed, frozenset(node.allowed_users or ()))
            )
        tags |= identity_of(part.origin.tensor).tags - _ROLES
    if is_released_only and rule.rows != "exact":
        raise DataFileError(
            f"{where}: `rows` hides the number of rows, and data with released_only = true is found by pointers, which "
            "show it. Leave out rows, or offer other data."
        )
    roles = [*["inputs"] * (len(parts) - 1), "target"]
    is_exact = rule.rows == "exact"
    added = (
        []
        if not is_exact
        else [
            one
            for number, (part, role) in enumerate(zip(parts, roles, strict=True))
            if (one := _tagged(wanted.name, part, role, number)) is not None
        ]
    )
    noise = ("noise",) if is_exact else ()
    info = DataSetInfo(
        wanted.name,
        tuple(_part_info(part, role) for part, role in zip(parts, roles, strict=True)),
        told_rows(rows, rule.rows),
        rule.description or "",
        tuple(sorted({f"#{wanted.name}", *tags})),
        noise if is_released_only else ("rounds", *noise),
        rule.least_in_sum,
        rule.minimum_noise,
    )
    tensors = tuple(part.values for part in parts)
    if rule.on_request and is_released_only:
        raise DataFileError(
            f"{where}: data that may only be released is not trained on in rounds. Leave out on_request."
        )
    return OfferedData(
        info, tensors, allowed, rule.least_in_sum, not is_released_only, rule.on_request
    ), added


_ROLES = {"#inputs", "#target"}


def _part_info(part: _Found, role: str) -> PartInfo:
    dtype = str(part.values.dtype).removeprefix("torch.")
    return PartInfo(role, tuple(part.values.shape[1:]), dtype, part.columns)


def _tagged(name: str, part: _Found, role: str, number: int) -> ServedTensor | None:
    """Tag what is served already, or serve what was cut out of it."""
    origin = part.origin
    given = identity_of(origin.tensor)
    if part.is_whole:
        given.tags = {*given.tags, f"#{name}", f"#{role}"}
        return None
    tensor: Any = part.values
    node = getattr(origin.tensor, "child", None)
    if isinstance(node, PrivateTensor):
        tensor = PrivateTensor(tuple(node.allowed_users or ()), released_only=node.released_only).on(
            part.values
        )
    identity = identity_of(tensor)
    identity.id = stable_id(f"offer {name}", f"{role} {number}")
    identity.tags = {*given.tags - _ROLES, f"#{name}", f"#{role}"}
    identity.description = f"columns: {', '.join(map(str, part.columns))}"
    return ServedTensor(
        origin.file, tensor, part.values, f"{name} {role}", part.columns, (0,) * len(part.columns)
    )


def _found(where: str, source: Source, served: Iterable[ServedTensor]) -> _Found:
    """!! DataFileError"""
    of_file = [one for one in served if one.file.name == source.file and not (one.name or "").count(" ")]
    if not of_file:
        known = ", ".join(sorted({one.file.name for one in served})) or "nothing"
        raise DataFileError(
            f"{where}: {source.file[:60]!r} is not served. The folder serves {known[:300]}; see `syft data check`."
        )
    if not source.names:
        if len(of_file) > 1:
            raise DataFileError(
                f"{where}: {source.file} has several parts. Say which: "
                f"{', '.join(f'{source.file}:{one.name}' for one in of_file)[:300]}."
            )
        return _Found(of_file[0].values, of_file[0].columns, of_file[0], True)
    by_name = {one.name: one for one in of_file if one.name is not None}
    if len(source.names) == 1 and source.names[0] in by_name:
        one = by_name[source.names[0]]
        return _Found(one.values, one.columns, one, True)
    if by_name and all(name in by_name for name in source.names):  # layout = "columns"
        chosen = [by_name[name] for name in source.names]
        if any(one.values.ndim != 1 for one in chosen):
            raise DataFileError(
                f"{where}: {source} are not columns of a table, and + joins only columns. Name one file or part."
            )
        values = torch.stack([one.values.to(torch.float32) for one in chosen], 1)
        return _Found(values, tuple(one.columns[0] for one in chosen if one.columns), chosen[0], False)
    table = of_file[0]
    places = {column.name: number for number, column in enumerate(table.columns)}
    unknown = [name for name in source.names if name not in places]
    if unknown or table.name is not None:
        names = [*by_name, *(() if table.name is not None else places)]
        raise DataFileError(
            f"{where}: {source.file} has no {(unknown or source.names)[0][:40]!r}. It has {', '.join(names)[:300]}."
        )
    numbers = [places[name] for name in source.names]
    columns = tuple(table.columns[number] for number in numbers)
    return _Found(table.values[:, numbers].contiguous(), columns, table, False)


def _as_target(part: _Found) -> _Found:
    """Codes as losses of classes take them, one number a row; other columns as they are, a matrix."""
    if len(part.columns) != 1:
        return part
    if part.columns[0].kind in _CODES:
        values = part.values.reshape(len(part.values)).to(torch.int64)
    elif part.values.ndim == 1:
        values = part.values.to(torch.float32 if not part.values.is_floating_point() else part.values.dtype)
        values = values.reshape(len(values), 1)
    else:
        values = part.values
    is_same = values.shape == part.values.shape and values.dtype == part.values.dtype
    return replace(part, values=values, is_whole=part.is_whole and is_same)
