"""One column of a table: what it is, what it is served as, and what becomes of its missing values.

`decide` is the one rule for tables of texts (.csv) and of types (.parquet); `finish` makes the columns that are served.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from syft.data.errors import DataFileError
from syft.data.schema import PERSON, ColumnInfo
from syft.data.side_file import About, ColumnRule, dtype_of

#: Most categories of a column, and most different texts that are counted.
MOST_CATEGORIES = 10_000
#: Most persons of a file: codes up to this are exact in float32.
MOST_PERSONS = 2**24
#: Kinds of columns that are served as codes of their texts.
CODED = ("category", PERSON)
#: So many categories are named in an advice.
_FEW = 8
_LARGEST_INT = 2**63 - 1
_EPOCH = datetime.date(1970, 1, 1)
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Column:
    """A column as it is served: numbers, none of them missing but NaN."""

    info: ColumnInfo
    values: np.ndarray[Any, Any]
    #: How many cells had no value.
    missing: int = 0


@dataclass(frozen=True)
class Decision:
    """How a column is read. `reason`: why it is left out."""

    name: str
    kind: str
    rule: ColumnRule
    looks: str
    reason: str | None = None
    categories: tuple[str, ...] = ()


@dataclass
class Finding:
    """What a column looks like: one of `int`, `float`, `boolean`, `date`, `text`, `empty`, or another type's name."""

    looks: str
    #: The different texts in it; None: too many.
    distinct: set[str] | None = None
    #: Why it is no number: a line and its text.
    odd: str = ""
    missing: int = 0


def decide(where: str, name: str, found: Finding, about: About) -> Decision:
    """How a column is served, by what its owner says and by its looks. !! DataFileError"""
    rule = about.rule(name)
    looks = found.looks
    is_person = name == about.person_column
    kind = rule.kind or ("category" if is_person else _kind_by_looks(looks, about, rule))
    if kind not in ("number", "boolean", "category", "date"):
        side_file = str(Path(where).with_suffix(".toml"))
        if is_person:
            raise DataFileError(
                f"{where}, column {name[:40]!r} is said to be left out, and to name the person each row is of. Leave out "
                f"person_column or the kind in {side_file}."
            )
        return Decision(name, "left out", rule, looks, _why_left_out(side_file, name, found, rule))
    if is_person:
        own = about.columns.get(name)
        if own is not None and (own.kind or own.categories or own.show_categories) is not None:
            raise DataFileError(
                f"{where}, column {name[:40]!r} names the person each row is of: it is served as codes, and nobody sees "
                "which code is whose. Leave out what the .toml says of it under [columns]."
            )
        return Decision(name, PERSON, rule, looks, None, _categories(where, name, found, rule, True))
    if kind == "category":
        return Decision(name, kind, rule, looks, None, _categories(where, name, found, rule))
    fits = {"number": ("int", "float", "boolean"), "boolean": ("boolean", "int"), "date": ("date",)}[kind]
    if looks not in fits and looks != "empty" and not (kind == "date" and rule.format):
        raise DataFileError(
            f"{where}, column {name[:40]!r} is said to be a {kind}, and is {_looks(looks)}{found.odd}. Mend the cell, or "
            f"the kind in the .toml."
        )
    return Decision(name, kind, rule, looks)


def _kind_by_looks(looks: str, about: About, rule: ColumnRule) -> str:
    if rule.categories is not None:
        return "category"
    if rule.format is not None:
        return "date"
    if looks in ("int", "float"):
        return "number"
    if looks == "text":
        return about.text
    if looks == "date":
        return "left out" if rule.unit is None else "date"
    return looks


def _looks(looks: str) -> str:
    return {"int": "a whole number", "float": "a number", "boolean": "true or false", "date": "a date"}.get(
        looks, looks
    )


def _why_left_out(side_file: str, name: str, found: Finding, rule: ColumnRule) -> str:
    if rule.kind == "left out":
        return f"column {name[:40]!r} is left out, as {side_file} says."
    if found.looks == "text":
        known = found.distinct
        many = f"more than {MOST_CATEGORIES}" if known is None else str(len(known))
        # NB: one line that can be copied into the file as it stands, above its first [section].
        shown = "" if known is None or len(known) > _FEW else f", categories = {_toml_list(sorted(known))}"
        cure = (
            "Such a column cannot be served."
            if known is None
            else f"To serve it as codes, write this line at the top of {side_file}, the same at every owner: "
            f'columns.{_toml_key(name)} = {{ kind = "category"{shown} }}'
        )
        return (
            f"column {name[:40]!r} is text with {many} different values{found.odd}, and is left out. {cure}"
        )
    if found.looks == "date":
        return (
            f"column {name[:40]!r} is a date, and is left out. To serve it, write this line at the top of {side_file}: "
            f'columns.{_toml_key(name)} = {{ kind = "date", unit = "days" }} (or "seconds")'
        )
    if found.looks == "empty":
        return f"column {name[:40]!r} has no value in any row, and is left out."
    return f"column {name[:40]!r} is of the type {found.looks[:40]}, which cannot be served, and is left out."


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _toml_list(texts: list[str]) -> str:
    # NB: a string of JSON is one of TOML.
    return json.dumps(texts, ensure_ascii=False)


def _categories(
    where: str, name: str, found: Finding, rule: ColumnRule, is_person: bool = False
) -> tuple[str, ...]:
    if rule.categories is not None:
        return tuple(rule.categories)
    if found.distinct is None and is_person:
        raise DataFileError(
            f"{where}, column {name[:40]!r} names more than {MOST_PERSONS} persons. Split the file."
        )
    if found.distinct is None:
        raise DataFileError(
            f"{where}, column {name[:40]!r} has more than {MOST_CATEGORIES} different values: that is no category. Leave "
            'it out: kind = "left out".'
        )
    return tuple(sorted(found.distinct))


# -- values ----------------------------------------------------------------------------------------------


def finish(
    where: str, decision: Decision, values: np.ndarray[Any, Any], is_missing: np.ndarray[Any, Any]
) -> list[Column]:
    """The column, and with `missing = "mask"` a second one that says where it has no value. !! DataFileError"""
    rule, name = decision.rule, decision.name
    count = int(is_missing.sum())
    if count:
        values = values.copy()
        if rule.missing == "refuse":
            raise DataFileError(
                f"{where}, column {name[:40]!r} has no value in {count} of {len(values)} rows. Say in the .toml what is "
                f'meant: [columns.{name[:40]}] missing = "mask" (adds a column of ones where a value is missing), or '
                'missing = "fill" with fill = 0.'
            )
        values[is_missing] = _fill(where, decision)
    made = [Column(_info(decision, values.dtype), values, count)]
    if rule.missing == "mask":
        info = ColumnInfo(f"{name}_missing", "missing", "bool")
        made.append(Column(info, is_missing.copy()))
    wanted = dtype_of(where, rule.dtype)
    return [_converted(where, made[0], wanted, rule.dtype or ""), *made[1:]]


def _converted(where: str, column: Column, dtype: Any, name: str) -> Column:
    if dtype is None:
        return column
    # NB: torch's bfloat16 has no type in numpy: the tensor is converted when it is made.
    if name == "bfloat16" or name.startswith("float8"):
        info = column.info
        return Column(
            ColumnInfo(info.name, info.kind, name, info.categories, info.count), column.values, column.missing
        )
    made = column.values.astype(name)
    if np.issubdtype(made.dtype, np.integer) and not np.array_equal(
        made.astype(np.float64), column.values.astype(np.float64)
    ):
        raise DataFileError(
            f"{where}, column {column.info.name[:40]!r}: not every value fits into dtype {name!r}."
        )
    info = column.info
    return Column(ColumnInfo(info.name, info.kind, name, info.categories, info.count), made, column.missing)


def _info(decision: Decision, dtype: np.dtype[Any]) -> ColumnInfo:
    kind = (decision.rule.unit or "days") if decision.kind == "date" else decision.kind
    if kind != "category":
        return ColumnInfo(decision.name, kind, dtype.name)
    names, shown = decision.categories, decision.rule.show_categories
    return ColumnInfo(
        decision.name,
        kind,
        dtype.name,
        names if shown == "names" else None,
        None if shown == "nothing" else len(names),
    )


def _fill(where: str, decision: Decision) -> Any:
    """What stands in the place of a value that is missing. !! DataFileError"""
    rule = decision.rule
    fill = 0 if rule.fill is None else rule.fill
    if decision.kind in CODED:
        if rule.missing == "mask" and rule.fill is None:
            return 0
        if fill not in decision.categories:
            raise DataFileError(
                f"{where}, column {decision.name[:40]!r}: fill = {fill!r} is none of its categories."
            )
        return decision.categories.index(str(fill))
    if isinstance(fill, str):
        raise DataFileError(f"{where}, column {decision.name[:40]!r}: fill = {fill!r} is no number.")
    return fill


# -- texts -----------------------------------------------------------------------------------------------


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _whole(text: str) -> int:
    number = int(text)
    if not -_LARGEST_INT <= number <= _LARGEST_INT or "_" in text:
        raise ValueError(text)
    return number


def _number(text: str) -> float:
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise ValueError(text)
    return found


def _moment(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found


_READERS: dict[str, Callable[[str], Any]] = {
    "int": _whole,
    "float": _number,
    "boolean": _boolean,
    "date": _moment,
}


@dataclass
class TextScan:
    """Looks at the cells of a column of texts, block by block, and says what it is. Keeps no cells."""

    missing_values: frozenset[str]
    candidates: list[str] = field(default_factory=lambda: list(_READERS))
    distinct: set[str] | None = field(default_factory=set)
    most_distinct: int = MOST_CATEGORIES
    odd: str = ""
    missing: int = 0
    seen: int = 0

    def look(self, cells: Sequence[str], first_line: int) -> None:
        present = [cell for cell in map(str.strip, cells) if cell not in self.missing_values]
        self.missing += len(cells) - len(present)
        self.seen += len(present)
        if self.distinct is not None:
            self.distinct.update(present)
            if len(self.distinct) > self.most_distinct:
                self.distinct = None
        for kind in list(self.candidates):
            if not _all_read(_READERS[kind], present):
                self.candidates.remove(kind)
                if not self.candidates or (kind == "float" and self.candidates == ["boolean", "date"]):
                    self._note_odd(cells, first_line)

    def _note_odd(self, cells: Sequence[str], first_line: int) -> None:
        for number, cell in enumerate(cells):
            text = cell.strip()
            if not self.odd and text not in self.missing_values and not is_number(text):
                self.odd = f" (row {first_line + number}: {text[:40]!r} is not a number)"

    def finding(self) -> Finding:
        if not self.seen:
            return Finding("empty", set(), "", self.missing)
        looks = self.candidates[0] if self.candidates else "text"
        return Finding(looks, self.distinct, self.odd if looks == "text" else "", self.missing)


def _all_read(read: Callable[[str], Any], cells: Iterable[str]) -> bool:
    try:
        for cell in cells:
            read(cell)
    except (ValueError, OverflowError):
        return False
    return True


class TextColumn:
    """Reads the cells of a column of texts, block by block, as was decided."""

    def __init__(
        self, where: str, decision: Decision, rows: int, missing_values: frozenset[str], fractions: type
    ) -> None:
        self._where, self.decision, self._missing_values = where, decision, missing_values
        self._fractions = fractions
        self._read, dtype = self._reader()
        self.values: np.ndarray[Any, Any] = np.zeros(rows, dtype)
        self.is_missing = np.zeros(rows, np.bool_)
        self._filled = 0

    def add(self, cells: Sequence[str]) -> None:
        """!! DataFileError for a cell that is not what was decided"""
        for cell in map(str.strip, cells):
            if cell in self._missing_values:
                self.is_missing[self._filled] = True
            else:
                try:
                    self.values[self._filled] = self._read(cell)
                except (ValueError, KeyError, OverflowError):
                    raise DataFileError(
                        f"{self._where}, column {self.decision.name[:40]!r}, row {self._filled + 1}: {cell[:40]!r} is "
                        f"{self._what_it_is_not()}."
                    ) from None
            self._filled += 1

    def finished(self) -> list[Column]:
        return finish(self._where, self.decision, self.values, self.is_missing)

    def _what_it_is_not(self) -> str:
        if self.decision.kind in CODED:
            return f"none of the categories {', '.join(self.decision.categories[:20])}"
        if self.decision.kind == "date" and self.decision.rule.format:
            return f"no date of the format {self.decision.rule.format!r}"
        return f"no {self.decision.kind}"

    def _reader(self) -> tuple[Callable[[str], Any], type]:
        decision, rule = self.decision, self.decision.rule
        if decision.kind in CODED:
            codes = {text: code for code, text in enumerate(decision.categories)}
            return codes.__getitem__, np.int64
        if decision.kind == "boolean":
            return (_boolean if decision.looks == "boolean" else _zero_or_one), np.bool_
        if decision.kind == "date":
            return _date_reader(rule), np.int64
        if decision.looks == "int":
            return int, np.int64
        if decision.looks == "boolean":
            return _boolean, np.bool_
        return float, self._fractions if rule.dtype is None else np.float64


def _zero_or_one(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _date_reader(rule: ColumnRule) -> Callable[[str], int]:
    def read(text: str) -> int:
        if rule.format is None:
            moment = _moment(text)
        else:
            found = datetime.datetime.strptime(text, rule.format)
            moment = found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found
        if rule.unit == "seconds":
            return int(moment.timestamp() // 1)
        return (moment.astimezone(datetime.UTC).date() - _EPOCH).days

    return read
