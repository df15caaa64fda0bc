"""Tables: .csv files, and with pyarrow .parquet, .arrow and .feather files.

A .csv file is read twice: to see what its columns are and how many rows it has, and to fill memory of that size.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from syft.data.columns import (
    CODED,
    MOST_CATEGORIES,
    MOST_PERSONS,
    Column,
    Decision,
    Finding,
    TextColumn,
    TextScan,
    decide,
    finish,
    is_number,
)
from syft.data.errors import DataFileError
from syft.data.limits import MemoryLimit
from syft.data.side_file import About

SUFFIXES = (".csv", ".parquet", ".arrow", ".feather")
_BLOCK = 4_096
_MOST_COLUMNS = 100_000
#: Of a value and of the mark that it is missing.
_CELL_BYTES = 9


@dataclass(frozen=True)
class Table:
    """The columns of a file that are served, all of one length, and a line for each that is not."""

    columns: tuple[Column, ...]
    rows: int
    notes: tuple[str, ...]
    #: Whether the file has names for its columns.
    is_named: bool = True


def read_table(file: Path, about: About, limit: MemoryLimit) -> Table:
    """The table of a file. !! DataFileError"""
    table = (_read_csv if file.suffix == ".csv" else _read_arrow)(file, about, limit)
    if not table.columns:
        raise DataFileError(f"{file} has no column that can be served: {' '.join(table.notes)}")
    return table


def _check_names(file: Path, names: list[str], about: About) -> None:
    if len(names) > _MOST_COLUMNS:
        raise DataFileError(f"{file} has {len(names)} columns; a table has {_MOST_COLUMNS} at most.")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataFileError(f"{file} has two columns of the name {twice[0][:40]!r}. Rename one of them.")
    person = about.person_column
    if isinstance(person, str) and person not in names:
        raise DataFileError(
            f"{file} has no column {person[:40]!r}, which is said to name the person each row is of (person_column). It "
            f"has {', '.join(name[:40] for name in names[:20])}."
        )
    unknown = sorted(set(about.columns) - set(names))
    if unknown:
        raise DataFileError(
            f"{file.with_suffix('.toml')} has a section [columns.{unknown[0][:40]}], and {file.name} has no such column. "
            f"It has {', '.join(name[:40] for name in names[:20])}."
        )


def _most_distinct(name: str, about: About) -> int:
    return MOST_PERSONS if name == about.person_column else MOST_CATEGORIES


# -- texts -----------------------------------------------------------------------------------------------


class _CsvFile:
    """The lines of a .csv file, in blocks, each of as many cells as the first. !! DataFileError"""

    def __init__(self, file: Path, about: About) -> None:
        self._file, self._about = file, about
        with self._lines() as lines:
            first = next(lines, None)
        if first is None:
            raise DataFileError(f"{file} is empty.")
        self._width = len(first[1])
        self.has_header = (
            not all(is_number(cell.strip()) for cell in first[1]) if about.header is None else about.header
        )
        found = [cell.strip() for cell in first[1]] if self.has_header else [""] * self._width
        self.names = [name or f"column_{number}" for number, name in enumerate(found, 1)]

    @contextmanager
    def _lines(self) -> Iterator[Iterator[tuple[int, list[str]]]]:
        try:
            with self._file.open(encoding="utf-8-sig", newline="") as text:
                rows = csv.reader(text, strict=True, delimiter=self._about.separator)
                yield ((rows.line_num, row) for row in rows if row)
        except UnicodeDecodeError as error:
            raise DataFileError(
                f"{self._file} cannot be read as text with commas: {error}. Save it as UTF-8."
            ) from error
        except (OSError, csv.Error) as error:
            raise DataFileError(f"{self._file} cannot be read as text with commas: {error}.") from error

    def blocks(self) -> Iterator[list[list[str]]]:
        with self._lines() as lines:
            if self.has_header:
                next(lines, None)
            while block := list(islice(lines, _BLOCK)):
                for number, row in block:
                    if len(row) != self._width:
                        raise DataFileError(
                            f"{self._file}, line {number} has {len(row)} columns and the first line {self._width}. Mend "
                            "the line; a text with commas in it stands in quotes."
                        )
                yield [row for _number, row in block]


def _read_csv(file: Path, about: About, limit: MemoryLimit) -> Table:
    source = _CsvFile(file, about)
    _check_names(file, source.names, about)
    absent = frozenset(about.missing_values)
    scans = [TextScan(absent, most_distinct=_most_distinct(name, about)) for name in source.names]
    rows = 0
    for block in source.blocks():
        for scan, cells in zip(scans, zip(*block, strict=True), strict=True):
            scan.look(cells, rows + 1)
        rows += len(block)
    if not rows:
        raise DataFileError(f"{file} has names for its columns and no rows.")
    decisions = [
        decide(str(file), name, scan.finding(), about) for name, scan in zip(source.names, scans, strict=True)
    ]
    limit.check(file, rows * _CELL_BYTES * sum(d.kind != "left out" for d in decisions))
    # A matrix is made of its columns at once, so they need not be rounded first.
    fractions = np.float32 if about.layout == "columns" and about.dtype is None else np.float64
    readers = {
        number: TextColumn(str(file), decision, rows, absent, fractions)
        for number, decision in enumerate(decisions)
        if decision.kind != "left out"
    }
    for block in source.blocks():
        for number, cells in enumerate(zip(*block, strict=True)):
            if number in readers:
                readers[number].add(cells)
    columns = [column for reader in readers.values() for column in reader.finished()]
    return Table(tuple(columns), rows, _notes(file, decisions, about), source.has_header)


def _notes(file: Path, decisions: list[Decision], about: About) -> tuple[str, ...]:
    notes = [f"{file}: {decision.reason}" for decision in decisions if decision.reason is not None]
    if file.suffix == ".csv" and len(decisions) == 1 and about.separator == "," and ";" in decisions[0].name:
        notes.append(
            f"{file} has one column, and semicolons in its first line: separator = ';' in the .toml?"
        )
    return tuple(notes)


# -- types -----------------------------------------------------------------------------------------------


def _read_arrow(file: Path, about: About, limit: MemoryLimit) -> Table:
    try:
        import pyarrow as arrow
    except ImportError:
        raise DataFileError(
            f"{file} needs the package pyarrow, which is not installed: pip install 'resyft[data]'."
        ) from None
    try:
        found = (_parquet if file.suffix == ".parquet" else _ipc)(file, limit)
    except DataFileError:
        raise
    except (arrow.ArrowException, OSError, MemoryError) as error:
        said = " ".join(str(error).split())[:300]
        raise DataFileError(
            f"{file} cannot be read: {said}. Was it cut off, or is it of another format?"
        ) from error
    _check_names(file, found.column_names, about)
    if not found.num_rows:
        raise DataFileError(f"{file} has no rows.")
    columns: list[Column] = []
    decisions: list[Decision] = []
    for name, column in zip(found.column_names, found.columns, strict=True):
        try:
            decision = decide(str(file), name, _finding(column, _most_distinct(name, about)), about)
            decisions.append(decision)
            if decision.kind != "left out":
                columns.extend(_from_arrow(str(file), decision, column))
        except (arrow.ArrowException, ValueError) as error:
            if isinstance(error, DataFileError):
                raise
            raise DataFileError(f"{file}, column {name[:40]!r} cannot be read: {error}.") from error
    return Table(tuple(columns), found.num_rows, _notes(file, decisions, about))


def _parquet(file: Path, limit: MemoryLimit) -> Any:
    import pyarrow.parquet as parquet

    told = parquet.read_metadata(file)
    columns = [told.schema.column(number) for number in range(told.num_columns)]
    # NB: a column of equal values is a few bytes however long it is: values count as well as bytes.
    sizes = [max(_CELL_BYTES, column.length or 0) for column in columns]
    nbytes = cells = 0
    for group in map(told.row_group, range(told.num_row_groups)):
        nbytes += group.total_byte_size
        cells += sum(group.column(number).num_values * size for number, size in enumerate(sizes))
    limit.check(file, max(nbytes, cells))
    # Texts stay what they are in the file, each of them once: a long one in every row is no more than that.
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    with parquet.ParquetFile(file, read_dictionary=texts) as opened:
        return opened.read()


def _ipc(file: Path, limit: MemoryLimit) -> Any:
    import pyarrow as arrow

    batches, nbytes = [], 0
    with arrow.memory_map(str(file)) as source, arrow.ipc.open_file(source) as opened:
        limit.check(file, file.stat().st_size)
        for number in range(opened.num_record_batches):
            batch = opened.get_batch(number)
            batch.validate(full=True)
            nbytes += max(batch.nbytes, batch.num_rows * _CELL_BYTES * batch.num_columns)
            limit.check(file, nbytes)
            batches.append(batch)
        return arrow.Table.from_batches(batches, opened.schema)


def _finding(column: Any, most_distinct: int = MOST_CATEGORIES) -> Finding:
    """What a column of Arrow's is, in the words that texts have."""
    from pyarrow import types

    kind = column.type
    if column.null_count == len(column):
        return Finding("empty", set(), "", len(column))
    distinct: set[str] | None = None
    if types.is_dictionary(kind):
        kind = kind.value_type
    if (
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_boolean(kind)
    ):
        found = column.unique()
        if len(found) <= most_distinct + 1:
            distinct = {_as_text(value) for value in found.to_pylist() if value is not None}
    tests: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("int", types.is_integer),
        ("float", lambda one: types.is_floating(one) or types.is_decimal(one)),
        ("boolean", types.is_boolean),
        ("date", lambda one: types.is_date(one) or types.is_timestamp(one)),
        ("text", lambda one: types.is_string(one) or types.is_large_string(one)),
    )
    looks = next((name for name, test in tests if test(kind)), str(kind))
    return Finding(looks, distinct, "", column.null_count)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_arrow(where: str, decision: Decision, column: Any) -> list[Column]:
    import pyarrow as arrow
    from pyarrow import types

    rule = decision.rule
    is_missing = np.asarray(column.is_null().to_numpy(), dtype=np.bool_)
    if decision.kind in CODED:
        return finish(where, decision, _codes(where, decision, column), is_missing)
    kind = column.type
    if decision.kind == "date":
        if not (types.is_date(kind) or types.is_timestamp(kind)):
            raise DataFileError(
                f"{where}, column {decision.name[:40]!r} is of the type {kind}: format is for texts in .csv files."
            )
        moments = column.cast(arrow.timestamp("s"), safe=False).cast(arrow.int64())
        seconds = _filled(moments, 0)
        return finish(where, decision, seconds if rule.unit == "seconds" else seconds // 86_400, is_missing)
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_decimal(kind) or kind == arrow.uint64():
        column = column.cast(arrow.float64(), safe=False)
    return finish(where, decision, _filled(column, False if types.is_boolean(kind) else 0), is_missing)


def _codes(where: str, decision: Decision, column: Any) -> np.ndarray[Any, Any]:
    """The codes of a column of categories, 0 where there is none; each different value is looked at once."""
    import pyarrow as arrow

    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    codes = {text: code for code, text in enumerate(decision.categories)}
    found = [0 if value is None else codes.get(_as_text(value)) for value in whole.dictionary.to_pylist()]
    places = np.asarray(whole.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
    unknown = [place for place, code in enumerate(found) if code is None]
    wrong = np.flatnonzero(np.isin(places, unknown))
    if len(wrong):
        text = _as_text(whole.dictionary[int(places[wrong[0]])].as_py())
        raise DataFileError(
            f"{where}, column {decision.name[:40]!r}, row {int(wrong[0]) + 1}: {text[:40]!r} is none of the "
            f"categories {', '.join(decision.categories[:20])}."
        )
    table = np.array([*(code or 0 for code in found), 0], np.int64)  # NB: the last one is for -1
    return table[places]


def _filled(column: Any, value: Any) -> np.ndarray[Any, Any]:
    import pyarrow as arrow

    filled = column.fill_null(arrow.scalar(value, column.type)) if column.null_count else column
    return np.array(filled.to_numpy())
