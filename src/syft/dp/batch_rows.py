"""Batches that are made row by row, so that no row can have a part in another.

One duty: `collated`, a batch of what a collate_fn makes of each row alone; `emptied`, one of the same make without a
row. Imports nothing of ours.

NOTE [One row at a time]
Epsilon is about how much one row moves the sum of clipped gradients. Each row's gradient is clipped, so the others must
not change with it, and a collate_fn that sees the rows of a batch together can make them: padding to the longest of
them, a mean that is taken off, MixUp. Whether it does cannot be found out by trying. So it is given one row at a time,
a batch of one, and these are put behind each other. What does not fit together then had to be made to fit by looking at
other rows, and is an error. `default_collate` sees rows together where they are of one make: then it stacks them, and
does nothing else. (Of rows that are not, it takes over the types of some for all.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate


def collated(rows: list[Any], collate_fn: Callable[[list[Any]], Any]) -> Any:
    """A batch of at least one row: see NOTE [One row at a time]. !! TypeError, ValueError"""
    if collate_fn is default_collate:
        make = _make_of(rows[0])
        if all(_make_of(row) == make for row in rows):
            return default_collate(rows)
    return _joined([collate_fn([row]) for row in rows])


def _make_of(row: Any) -> Any:
    """All that is the same of two rows that differ in their values only."""
    if hasattr(row, "dtype") and hasattr(row, "shape"):
        return type(row), row.dtype, row.shape
    if isinstance(row, Mapping):
        return type(row), tuple((key, _make_of(value)) for key, value in row.items())
    if isinstance(row, (list, tuple)):
        return type(row), tuple(map(_make_of, row))
    return type(row)


def _joined(batches: Sequence[Any]) -> Any:
    """One batch of batches that hold one row each. !! TypeError, ValueError where they do not fit behind each other"""
    first = batches[0]
    if any(type(batch) is not type(first) for batch in batches):
        kinds = sorted({type(batch).__name__ for batch in batches})
        raise TypeError(
            f"collate_fn makes {' and '.join(kinds)} of rows, each given alone: let it make the same of every row."
        )
    if isinstance(first, Tensor):
        return _stacked(batches)
    if isinstance(first, Mapping):
        if any(batch.keys() != first.keys() for batch in batches):
            raise ValueError(
                "collate_fn makes dictionaries with other keys of other rows, each given alone: let it make the same "
                "keys of every row."
            )
        return _filled(first, {key: _joined([batch[key] for batch in batches]) for key in first})
    if _is_column(first):
        if any(len(batch) != 1 for batch in batches):
            raise ValueError(
                f"collate_fn makes a {type(first).__name__} of other than one value of one row: let it make one for "
                "each row."
            )
        return type(first)(value for batch in batches for value in batch)
    if isinstance(first, (list, tuple)):
        if any(len(batch) != len(first) for batch in batches):
            raise ValueError(
                "collate_fn makes sequences of several lengths of rows, each given alone: let it make the same of every "
                "row."
            )
        return _like(first, [_joined(part) for part in zip(*batches, strict=True)])
    _check_make(first)
    if any(batch != first for batch in batches):
        raise ValueError(
            f"collate_fn makes a {type(first).__name__} that is not the same for all rows, and not one for each: put it "
            "into a tensor of one row, torch.tensor([value])."
        )
    return first


def emptied(batch: Any) -> Any:
    """A batch of the same make, and no row."""
    if isinstance(batch, Tensor):
        return batch[:0] if batch.dim() else batch
    if isinstance(batch, Mapping):
        return _filled(batch, {key: emptied(value) for key, value in batch.items()})
    if _is_column(batch):
        return batch[:0]
    if isinstance(batch, (list, tuple)):
        return _like(batch, [emptied(value) for value in batch])
    _check_make(batch)
    return batch


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    shapes = sorted({tuple(row.shape) for row in rows})
    wrong = [shape for shape in shapes if shape[:1] != (1,)]
    if wrong:
        raise ValueError(
            f"collate_fn makes a tensor of shape {wrong[0]} of one row: its dimension 0 is the batch, and one row is one "
            "long there. Let it make one row of each row, batch first."
        )
    if len(shapes) > 1:
        raise ValueError(
            f"collate_fn, which is given each row alone, makes tensors of other shapes of other rows: {shapes[0]} and "
            f"{shapes[-1]}. Padded to the longest row of a batch, every row would depend on the others, and epsilon "
            "would not hold: pad or cut all rows to one length that is fixed beforehand."
        )
    kinds = sorted({str(row.dtype) for row in rows})
    if len(kinds) > 1:
        raise ValueError(
            f"collate_fn, which is given each row alone, makes {' and '.join(kinds)} of rows. Of one batch all would "
            "become the same, because of one: let it make the same type of every row."
        )
    return torch.cat(list(rows))


def _is_column(value: Any) -> bool:
    """Whether this is a list of plain values, one for each row, rather than a list of the parts of a batch."""
    return (
        isinstance(value, (list, tuple))
        and not hasattr(value, "_fields")
        and bool(value)
        and all(item is None or isinstance(item, (str, bytes, bool, int, float)) for item in value)
    )


def _filled(mapping: Any, values: Mapping[Any, Any]) -> Any:
    made: Any = copy.copy(mapping)  # of its own type
    for key, value in values.items():
        made[key] = value
    return made


def _like(sequence: Any, values: list[Any]) -> Any:
    return type(sequence)(*values) if hasattr(sequence, "_fields") else type(sequence)(values)


def _check_make(value: Any) -> None:
    if value is not None and not isinstance(value, (str, bytes, bool, int, float)):
        raise TypeError(
            f"A private training makes batches of single rows, and now and then one without a row, and its collate_fn "
            f"makes a {type(value).__name__}: let it make tensors in lists, tuples or dictionaries."
        )
