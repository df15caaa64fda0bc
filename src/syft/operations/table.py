"""The table: every row by its name. What is not here is decomposed by the client, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from syft.operations.row import Row, is_in_torch

#: The files of rows.
FAMILIES = (
    "elementwise",
    "reductions",
    "linear_algebra",
    "convolution",
    "indexing",
    "losses",
    "norms",
    "attention",
    "random",
    "optimizers",
    "views",
    "composites",
)


@cache
def all_rows() -> Mapping[str, Row]:
    """All rows that this version of torch has an overload for."""
    table: dict[str, Row] = {}
    for family in FAMILIES:
        for row in import_module(f"syft.operations.rows.{family}").ROWS:
            if row.name in table:
                raise ValueError(f"There are two rows for {row.name}. Strike one.")
            if is_in_torch(row.name):
                table[row.name] = row
    return MappingProxyType(table)


@cache
def admitted_names() -> frozenset[str]:
    """The names of the operations that a worker runs which admits only the table."""
    return frozenset(name for name, row in all_rows().items() if not row.inner)


def is_admitted(operation: str) -> bool:
    """Whether a worker that admits only the table runs an operation of that name."""
    return operation in admitted_names()
