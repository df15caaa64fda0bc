"""Batches that are one dict: which part of them the targets are.

One duty: `split_labels`. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The key of the targets, as Hugging Face's data sets and models name it.
LABELS = "labels"


def split_labels(batch: Any) -> tuple[dict[str, Any], Any]:
    """A dict batch without its "labels", and these. !! TypeError, ValueError where it has none"""
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"A training step was called with one {type(batch).__name__} and no targets. Give inputs and targets, or a "
            f"dict that has the targets under {LABELS!r}."
        )
    if LABELS not in batch:
        raise ValueError(
            f"A batch without targets is a dict that has them as {LABELS!r}, and this one has "
            f"{', '.join(map(repr, batch)) or 'nothing'}: name them so, or give inputs and targets."
        )
    return {name: part for name, part in batch.items() if name != LABELS}, batch[LABELS]
