"""What is told of data: names, kinds and dtypes of columns. Never a value, unless the owner shows category names.

`DataSetInfo` describes a data set that an owner offers, and `mock_data` makes data of the same form from it alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from torch.utils.data import TensorDataset

from syft.serde import register_record
from syft.serde.torch_types import DTYPES

#: Mock numbers of whole dtypes are below this.
_MOCK_INTEGERS = 100
_MOST_MOCK_ROWS = 1_000_000
#: The kind of a column that says whom a row is of.
PERSON = "person"
_MOCK_PERSONS = 50
#: Days since 1970 up to 2029.
_MOCK_DAYS = 21_915


@dataclass(frozen=True)
class ColumnInfo:
    """A column as users see it.

    kind         number, boolean, category, days or seconds (since 1970-01-01 UTC), person: a code for whoever the row is
                 of, or missing: 1 where the column of that name has no value
    categories   the names of the codes 0, 1, ...; None: they are not shown
    count        how many categories there are; None: it is not shown
    """

    name: str
    kind: str
    dtype: str
    categories: tuple[str, ...] | None = None
    count: int | None = None

    def __str__(self) -> str:
        if self.categories is not None:
            return f"{self.name} ({', '.join(self.categories)})"
        return f"{self.name} (person)" if self.kind == PERSON else self.name


@dataclass(frozen=True)
class PartInfo:
    """One tensor of a data set: `role` is inputs or target, `shape` that of one row."""

    role: str
    shape: tuple[int, ...]
    dtype: str
    columns: tuple[ColumnInfo, ...] = ()

    def __str__(self) -> str:
        named = f" ({', '.join(map(str, self.columns))})" if self.columns else ""
        return f"{self.role} {self.dtype} {self.shape}{named}"


@dataclass(frozen=True, repr=False)
class DataSetInfo:
    """A data set that an owner offers, as users see it.

    rows           how many, as a text: "1200", "about 1000"; None: it is not told
    uses           what it is offered for: `rounds` (fit and the Trainer), `noise` (releases and train_privately, with
                   pointers that `search(["#NAME", "#inputs"])` and `search(["#NAME", "#target"])` find)
    least_in_sum   what is trained on it leaves only in secure sums of so many workers; None: as it is
    minimum_noise  what is trained on it leaves only with so much noise, in clipping bounds; None: without, too
    """

    name: str
    parts: tuple[PartInfo, ...]
    rows: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    uses: tuple[str, ...] = ("rounds",)
    least_in_sum: int | None = None
    minimum_noise: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} rows: "
        noise = (
            "" if self.minimum_noise is None else f" (noise: {self.minimum_noise:g} clipping bounds or more)"
        )
        return f"{self.name}: {rows}{' -> '.join(map(str, self.parts))}{noise}"


for _record in (ColumnInfo, PartInfo, DataSetInfo):
    register_record(_record)


def told_rows(count: int, how: str) -> str | None:
    """A number of rows as the owner lets it be told: exact, rounded to one digit, or hidden."""
    if how == "exact":
        return str(count)
    if how == "hidden":
        return None
    return "fewer than 10" if count < 10 else f"about {float(f'{count:.0e}'):.0f}"


# -- mock data -------------------------------------------------------------------------------------------


def mock_data(info: DataSetInfo, rows: int = 100) -> TensorDataset:
    """Data of the form of a data set, made of nothing but its form: two of the same form have the same mock data.

    Numbers are normally distributed, whole numbers small, codes and truth values uniform. !! ValueError
    """
    if type(rows) is not int or not 1 <= rows <= _MOST_MOCK_ROWS:
        raise ValueError(f"mock() makes 1 to {_MOST_MOCK_ROWS} rows; {rows!r} were asked for.")
    if not info.parts:
        raise ValueError(f"The owner of the data set {info.name!r} does not say what its rows look like.")
    # NB: name, rows and description of the data set count for nothing: they are not its form.
    seed = hashlib.sha256(repr(tuple(map(_form, info.parts))).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(seed[:7]))
    return TensorDataset(*(_mock_part(part, rows, generator) for part in info.parts))


def _form(part: PartInfo) -> PartInfo:
    columns = tuple(replace(column, categories=None, count=_count(column)) for column in part.columns)
    return replace(part, columns=columns)


def _count(column: ColumnInfo) -> int | None:
    return len(column.categories) if column.categories is not None else column.count


def _mock_part(part: PartInfo, rows: int, generator: torch.Generator) -> torch.Tensor:
    dtype = DTYPES[part.dtype]
    if not part.columns:
        return _mock_numbers((rows, *part.shape), dtype, generator)
    made = [_mock_column(column, rows, dtype, generator) for column in part.columns]
    return made[0].reshape(rows, *part.shape) if len(made) == 1 else torch.stack(made, 1)


def _mock_column(
    column: ColumnInfo, rows: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    below = {
        "category": _count(column) or 2,
        "boolean": 2,
        PERSON: _MOCK_PERSONS,
        "missing": 2,
        "days": _MOCK_DAYS,
        "seconds": _MOCK_DAYS * 86_400,
    }.get(column.kind)
    if below is not None:
        return torch.randint(below, (rows,), generator=generator).to(dtype)
    own = DTYPES.get(column.dtype, dtype)
    return _mock_numbers((rows,), own if own in _WHOLE else dtype, generator).to(dtype)


_WHOLE = frozenset(DTYPES[name] for name in "uint8 int8 int16 int32 int64".split())


def _mock_numbers(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    below = 2 if dtype is torch.bool else 256 if dtype is torch.uint8 else _MOCK_INTEGERS
    return torch.randint(below, shape, generator=generator).to(dtype)
