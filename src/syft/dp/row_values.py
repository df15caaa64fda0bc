"""From what a caller has, a list, an array or a tensor, to floats: one for every row, whatever the rows are.

One duty: that no row raises, warns, or changes what another row counts as. Imports torch and numpy only.

NOTE [What is no number]
A row that no float can be made of is NaN: None, a text that is no number, a list, a complex number off the real line, an
object that fails when it is asked. An integer beyond all floats is an infinity. What the caller built, the type and the
shape of an array, is public, and may raise. But one row decides the type of an array that was made of rows: with a text
among them all are texts. So arrays that are not of plain numbers are taken row by row, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]

#: Rows that numpy converts without a surprise, as long as no integer is too large.
_PLAIN = {float, int, bool, np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_}

#: Kinds of arrays whose every value has a float: booleans, integers, floats, times.
_PLAIN_KINDS = "biufmM"


def rows_as_floats(rows: Any) -> Floats:
    """One float per row: see NOTE [What is no number]. !! ValueError for an array that is not of one dimension"""
    if isinstance(rows, torch.Tensor) or hasattr(rows, "__array__"):
        values = _of_array(rows)
        if values.ndim != 1:
            raise ValueError(f"Rows are a list of one number per person, got the shape {values.shape}.")
        return values
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise ValueError(f"Rows are a list of one number per person, got a {type(rows).__name__}.")
    return _of_list(list(rows))


def values_as_floats(values: Any) -> Floats:
    """A number, a list of lists, an array or a tensor with its shape. !! ValueError for lists that have none"""
    if isinstance(values, torch.Tensor) or hasattr(values, "__array__"):
        return _of_array(values)
    if not isinstance(values, (list, tuple)):
        return np.array(float_of(values))
    if not any(isinstance(part, (list, tuple, np.ndarray, torch.Tensor)) for part in values):
        return _of_list(list(values))
    parts = [values_as_floats(part) for part in values]
    if len({part.shape for part in parts}) != 1:
        raise ValueError(
            "Values are a number, a list of numbers, or lists of one length in a list; here are parts of the shapes "
            f"{sorted({part.shape for part in parts})[:10]}."
        )
    return np.stack(parts)


def float_of(row: Any) -> float:
    """The float that a row is; NaN if it is none. Nothing that a row does comes out of here."""
    try:
        if isinstance(row, (torch.Tensor, np.ndarray)):
            return float(_of_array(row).item())  # !! ValueError unless it is one number
        if isinstance(row, (complex, np.complexfloating)):
            return float(row.real) if row.imag == 0 else math.nan
        return float(row)
    except OverflowError:
        return (math.inf if row > 0 else -math.inf) if type(row) is int else math.nan
    except Exception:  # noqa: BLE001  (whatever it is, it comes from a row)
        return math.nan


def _of_list(rows: list[Any]) -> Floats:
    try:
        if set(map(type, rows)) <= _PLAIN:
            return np.asarray(rows, dtype=np.float64)
    except (OverflowError, TypeError):  # an integer beyond all floats, a class that has no hash
        pass
    return np.array([float_of(row) for row in rows], dtype=np.float64)


def _of_array(values: Any) -> Floats:
    if isinstance(values, torch.Tensor):
        return _of_tensor(values.detach())
    array = np.asarray(values)
    if array.dtype.kind not in _PLAIN_KINDS:
        return _of_list(array.ravel().tolist()).reshape(array.shape)
    with np.errstate(all="ignore"):  # a warning would tell of a row, too
        floats = array.astype(np.float64, copy=False)
    # NB: numpy makes the least integer of what is no time.
    return np.where(np.isnat(array), math.nan, floats) if array.dtype.kind in "mM" else floats


def _of_tensor(tensor: torch.Tensor) -> Floats:
    if tensor.is_complex():
        tensor = torch.where(tensor.imag == 0, tensor.real, math.nan)
    # NB: converted by torch, which has types that numpy does not.
    return np.asarray(tensor.to("cpu", torch.float64).resolve_neg())
