"""`NAME.toml` beside a file or a folder of images: what its owner says about it.

tags = ["#clinic"]
missing = "mask"                    # or "fill", with fill = 0; without: a missing value is refused
text = "category"                   # columns of text are category codes; without: they are left out
person_column = "patient"           # whom a row is of, for statistics by group; served as codes
dates = "days"                      # or "seconds"; without: they are left out
[columns.sex]
kind = "category"
categories = ["f", "m"]             # the codes 0 and 1, the same at every owner who says so
show_categories = "names"           # or "count"; without: nothing
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from syft.core.structs import prepared
from syft.data.errors import DataFileError
from syft.serde.torch_types import DTYPES

Missing = Literal["refuse", "mask", "fill"]
Shown = Literal["names", "count", "nothing"]
Rows = Literal["exact", "rounded", "hidden"]


class ColumnRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in [columns.NAME]. A field that is None is as the whole file says, or as the column looks."""

    kind: Literal["number", "boolean", "category", "date", "left out"] | None = None
    dtype: str | None = None
    unit: Literal["days", "seconds"] | None = None
    format: str | None = None
    missing: Missing | None = None
    fill: int | float | str | bool | None = None
    categories: list[str] | None = None
    show_categories: Shown | None = None


class OfferRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in [offer], or in a section of offers.toml: see `offers`."""

    name: str | None = None
    inputs: list[str] | None = None
    target: str | None = None
    description: str | None = None
    allowed: list[str] | None = None
    least_in_sum: int | None = None
    minimum_noise: float | None = None
    on_request: bool = False
    rows: Rows = "exact"


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in NAME.toml."""

    tags: list[str] = []
    description: str | None = None
    allowed: list[str] | None = None
    dtype: str | None = None
    released_only: bool = False
    #: Of a table, the name of a column; of an array, its number from 0.
    person_column: str | int | None = None
    offer: OfferRule | None = None
    # tables
    layout: Literal["matrix", "columns"] = "matrix"
    header: bool | None = None
    separator: str = ","
    missing_values: list[str] = msgspec.field(default_factory=lambda: [""])
    missing: Missing = "refuse"
    fill: int | float | None = None
    text: Literal["category", "left out"] = "left out"
    dates: Literal["days", "seconds", "left out"] = "left out"
    show_categories: Shown = "nothing"
    columns: dict[str, ColumnRule] = {}
    # images
    mode: Literal["L", "RGB"] | None = None
    size: tuple[int, int] | None = None

    def rule(self, column: str) -> ColumnRule:
        """What is said of a column, by itself or for all of them."""
        own = self.columns.get(column, _NOTHING)
        return ColumnRule(
            own.kind,
            own.dtype,
            own.unit or (None if self.dates == "left out" else self.dates),
            own.format,
            own.missing or self.missing,
            self.fill if own.fill is None else own.fill,
            own.categories,
            own.show_categories or self.show_categories,
        )


_NOTHING = ColumnRule()
_TABLE_KEYS = "layout header separator missing_values missing fill text dates columns".split()
_IMAGE_KEYS = ("mode", "size")
_PLAIN = About()


def read_side_file(file: Path, of: Literal["table", "array", "images"], person: str | None = None) -> About:
    """What the side file of a table, an array or a folder of images says; all defaults without one. !! DataFileError

    person   the column of persons, as it stands on a command line, where it counts more than in the file
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(f"{file} cannot be read: {error}.") from error
    try:
        found = msgspec.convert(tomllib.loads(text), prepared(About))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise DataFileError(
            f"{file} cannot be understood: {error}. Its keys are {', '.join(About.__struct_fields__)}, and those of "
            f"[columns.NAME] are {', '.join(ColumnRule.__struct_fields__)}."
        ) from error
    if person is not None:
        column = int(person) if of == "array" and person.isdecimal() else person
        found = msgspec.structs.replace(found, person_column=column)
    _check(file, found, of)
    return found


def _check(file: Path, found: About, of: str) -> None:
    if found.released_only and found.allowed:
        raise DataFileError(
            f"{file} has released_only = true and allowed = {found.allowed}: what may only be released is fetched by "
            "nobody. Leave one of the two out."
        )
    if found.person_column is not None:
        check_person(str(file), found.person_column, of)
    if found.person_column is not None and found.layout == "columns":
        raise DataFileError(
            f'{file}: person_column needs the table as one matrix, and layout = "columns" makes a tensor of each '
            "column. Leave one of the two out."
        )
    for name in (_TABLE_KEYS if of != "table" else []) + (list(_IMAGE_KEYS) if of != "images" else []):
        if getattr(found, name) != getattr(_PLAIN, name):
            what = "images in folders" if name in _IMAGE_KEYS else "tables (.csv, .parquet, .arrow, .feather)"
            raise DataFileError(
                f"{file}: {name} is for {what}, and the data beside it is "
                f"{of if of == 'images' else f'one {of}'}. Leave it out."
            )
    if found.missing == "fill" and found.fill is None:
        raise DataFileError(f'{file}: missing = "fill" needs the value to fill in: fill = 0.')
    if len(found.separator) != 1 or found.separator in '"\r\n':
        raise DataFileError(f"{file}: separator is one character, such as ';'; got {found.separator[:20]!r}.")
    for name, rule in found.columns.items():
        _check_rule(f"{file}, [columns.{name[:40]}]", rule, found)
    if found.size is not None and not all(1 <= side <= 1 << 16 for side in found.size):
        raise DataFileError(f"{file}: size is [height, width] in pixels; got {list(found.size)}.")
    dtype_of(file, found.dtype)


def check_person(where: str, column: str | int, of: str) -> None:
    """!! DataFileError"""
    if of == "images":
        raise DataFileError(
            f"{where}: person_column is for tables and arrays, and this is for images. Leave it out."
        )
    if isinstance(column, str) is not (of == "table"):
        how = (
            'its name: person_column = "patient"'
            if of == "table"
            else "its number, from 0: person_column = 0"
        )
        raise DataFileError(
            f"{where}: person_column is {column!r}. A column of {'a table' if of == 'table' else 'an array'} is named by "
            f"{how}."
        )


def _check_rule(where: str, rule: ColumnRule, about: About) -> None:
    dtype_of(where, rule.dtype)
    if rule.missing == "fill" and rule.fill is None and about.fill is None:
        raise DataFileError(f'{where}: missing = "fill" needs the value to fill in: fill = 0.')
    if rule.categories is not None:
        if rule.kind not in (None, "category") or not rule.categories:
            raise DataFileError(f'{where}: categories are for kind = "category", and there is one at least.')
        if len(set(rule.categories)) != len(rule.categories):
            raise DataFileError(f"{where}: a category is named twice.")
    if rule.kind == "date" and rule.unit is None and about.dates == "left out":
        raise DataFileError(f'{where}: a date is counted in unit = "days" or unit = "seconds". Say which.')
    for name, kind in (("unit", "date"), ("format", "date"), ("show_categories", "category")):
        if getattr(rule, name) is not None and rule.kind not in (kind, None):
            raise DataFileError(f"{where}: {name} is for kind = {kind!r}, and the kind is {rule.kind!r}.")


def dtype_of(where: Any, name: str | None) -> torch.dtype | None:
    """The dtype of a name. !! DataFileError"""
    if name is None:
        return None
    if name not in DTYPES:
        raise DataFileError(f"{where}: dtype {name[:40]!r} is none of {', '.join(DTYPES)}.")
    return DTYPES[name]
