"""`collated`: rows as a collator makes them, made once, where the data is.

One duty: what an owner offers where a batch needs Python code, which does not travel. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import TensorDataset


def collated(dataset: Any, collate_fn: Callable[[list[Any]], Any]) -> Any:
    """The rows of a data set as `collate_fn` makes them of all rows together: padded to one length, as tensors.

    A collator that returns a dict (those of Hugging Face) gives a list of dicts; one that returns tensors, a
    TensorDataset.
    What it draws at random is drawn once, and not anew for each batch. !! TypeError, ValueError for what are no rows
    """
    rows = [dataset[number] for number in range(len(dataset))]
    if not rows:
        raise ValueError("collated() was given a data set without rows.")
    made = collate_fn(rows)
    is_dict = isinstance(made, Mapping)
    parts = list(made.values()) if is_dict else list(made) if isinstance(made, (list, tuple)) else []
    if not parts or not all(isinstance(p, Tensor) and p.shape[:1] == (len(rows),) for p in parts):
        raise TypeError(
            f"collated() was given a collate_fn that returned a {type(made).__name__} for {len(rows)} rows: it returns a "
            "dict, list or tuple of tensors whose dimension 0 is the rows."
        )
    if not is_dict:
        return TensorDataset(*parts)
    return [{str(name): part[number] for name, part in made.items()} for number in range(len(rows))]
