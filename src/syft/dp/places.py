"""Where numbers lie among others, compared as the numbers they are.

One duty: counting. Whole numbers beyond 2^53 are different as integers and the same as floats; so a column of integers is
compared as integers, and a bound that is not one is moved to the next that is. Imports nothing of syft.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: A column of numbers: float64, or integers of any kind.
Column = npt.NDArray[Any]
Number = int | float


def in_range(column: Column, low: Number, high: Number) -> npt.NDArray[np.bool_]:
    """Which numbers are neither below `low` nor above `high`. A NaN is not."""
    least, most = _at_least(column.dtype, low), _at_most(column.dtype, high)
    if least is None or most is None:
        return np.zeros(len(column), dtype=bool)
    return np.asarray((column >= least) & (column <= most))


def edge_places(column: Column, edges: Sequence[Number]) -> npt.NDArray[np.int64]:
    """The bin of every number that is in one. A bin has its lower edge, the last one both."""
    inside = column[in_range(column, edges[0], edges[-1])]
    starts = [start for edge in edges if (start := _at_least(column.dtype, edge)) is not None]
    places = np.searchsorted(np.array(starts, dtype=column.dtype), inside, side="right") - 1
    return np.minimum(places, len(edges) - 2)


def category_places(column: Column, categories: Sequence[Number]) -> npt.NDArray[np.int64]:
    """The place among different categories of every number that is one of them."""
    known = [(value, n) for n, c in enumerate(categories) if (value := _same(column.dtype, c)) is not None]
    if not known:
        return np.zeros(0, dtype=np.int64)
    known.sort(key=lambda pair: pair[0])
    values = np.array([value for value, _n in known], dtype=column.dtype)
    numbers = np.array([n for _value, n in known], dtype=np.int64)
    place = np.minimum(np.searchsorted(values, column), len(values) - 1)
    found: npt.NDArray[np.int64] = numbers[place][values[place] == column]
    return found


def _at_least(dtype: np.dtype[Any], bound: Number) -> Any:
    """The least number of a type that is not below a bound; None if there is none."""
    if dtype.kind == "f":
        near = float(bound)
        return near if near >= bound else math.nextafter(near, math.inf)
    limits = np.iinfo(dtype)
    if bound > limits.max:
        return None
    return dtype.type(limits.min if bound <= limits.min else math.ceil(bound))


def _at_most(dtype: np.dtype[Any], bound: Number) -> Any:
    if dtype.kind == "f":
        near = float(bound)
        return near if near <= bound else math.nextafter(near, -math.inf)
    limits = np.iinfo(dtype)
    if bound < limits.min:
        return None
    return dtype.type(limits.max if bound >= limits.max else math.floor(bound))


def _same(dtype: np.dtype[Any], value: Number) -> Any:
    """A number as one of a type; None if the type has no such number."""
    if dtype.kind == "f":
        return float(value) if float(value) == value else None
    limits = np.iinfo(dtype)
    is_whole = isinstance(value, int) or value.is_integer()
    return int(value) if is_whole and limits.min <= value <= limits.max else None
