"""Splitting one data set into the parts of simulated clients, alike or deliberately not.

Every function returns a list of row numbers per client, ascending; every row is in exactly one of them. Give them to
`dataset.federate(workers, parts=parts)`, or make torch Subsets of them with `subsets`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from syft.exceptions import DependencyError

Parts = list[list[int]]


def partition_iid(dataset: Any, k: int, generator: torch.Generator | None = None) -> Parts:
    """`k` parts of rows at random, of sizes that differ by one at most.

    dataset    anything with a length, or the length itself
    generator  of the random numbers; torch's global one if left out
    """
    count = dataset if isinstance(dataset, int) else len(dataset)
    _check_clients(k, count)
    return [sorted(part.tolist()) for part in torch.randperm(count, generator=generator).tensor_split(k)]


def partition_dirichlet(
    labels: Any, k: int, alpha: float, min_size: int = 1, generator: torch.Generator | None = None
) -> Parts:
    """Every class is spread over the clients in proportions drawn from a Dirichlet distribution (Hsu et al. 2019).

    alpha     small: a client has few classes; large: all have about the same
    min_size  a client that got fewer rows is given some of the largest part's, at random
    """
    classes = _as_labels(labels)
    _check_clients(k, len(classes))
    if not isinstance(alpha, Real) or not 0 < alpha < math.inf:
        raise ValueError(f"partition_dirichlet() was given alpha={alpha!r}. Give a finite number above 0.")
    if min_size * k > len(classes):
        raise ValueError(
            f"partition_dirichlet() was asked for {k} parts of at least {min_size} rows; there are {len(classes)} rows. "
            "Ask for fewer parts or a smaller min_size."
        )
    draw = _numbers(generator)
    parts: Parts = [[] for _ in range(k)]
    for value in np.unique(classes):
        rows = draw.permutation(np.flatnonzero(classes == value))
        shares = draw.dirichlet(np.full(k, float(alpha)))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for part, chosen in zip(parts, np.split(rows, cuts), strict=True):
            part.extend(chosen.tolist())
    _top_up(parts, min_size, draw)
    return [sorted(part) for part in parts]


def _top_up(parts: Parts, min_size: int, draw: np.random.Generator) -> None:
    for part in parts:
        while len(part) < min_size:
            largest = max(parts, key=len)
            part.append(largest.pop(int(draw.integers(len(largest)))))


def partition_shards(
    labels: Any, k: int, shards_per_client: int = 2, generator: torch.Generator | None = None
) -> Parts:
    """Rows sorted by label, cut into `k * shards_per_client` pieces, dealt out at random (McMahan et al. 2017).

    With few shards per client a client has few classes.
    """
    classes = _as_labels(labels)
    _check_clients(k, len(classes))
    if isinstance(shards_per_client, bool) or not isinstance(shards_per_client, int):
        raise ValueError(
            f"partition_shards() was given shards_per_client={shards_per_client!r}. Give a whole number of 1 or more."
        )
    pieces = k * shards_per_client
    if shards_per_client < 1 or pieces > len(classes):
        raise ValueError(
            f"partition_shards() was asked for {pieces} pieces ({k} clients with {shards_per_client} each) of "
            f"{len(classes)} rows. Ask for at least one piece each, and not more pieces than rows."
        )
    shards = np.array_split(np.argsort(classes, kind="stable"), pieces)
    dealt = _numbers(generator).permutation(pieces).reshape(k, shards_per_client)
    return [sorted(int(row) for number in hand for row in shards[number]) for hand in dealt]


def subsets(dataset: Any, parts: Sequence[Sequence[int]]) -> list[Subset[Any]]:
    """The parts as torch Subsets."""
    return [Subset(dataset, list(part)) for part in parts]


def checked_parts(parts: Sequence[Sequence[int]], size: int, workers: int) -> list[Sequence[int]]:
    """Parts as `federate` takes them: one per worker, of rows that are there, each once. !! ValueError"""
    if len(parts) != workers:
        raise ValueError(
            f"federate() was given {len(parts)} parts for {workers} workers. Give one each, an empty one for a worker "
            "that gets none."
        )
    owner = np.full(size, -1)
    found: list[Sequence[int]] = []
    for number, part in enumerate(parts):
        rows = _as_rows(number, part, size)
        places, times = np.unique(rows, return_counts=True)
        taken = rows[owner[rows] >= 0]
        twice = places[times > 1]
        if taken.size or twice.size:
            row = int(taken[0] if taken.size else twice[0])
            other = f"in part {owner[row]}, too" if taken.size else "there twice"
            raise ValueError(f"Row {row} of part {number} is {other}. Give each row to one worker.")
        owner[rows] = number
        found.append(part if isinstance(part, range) else rows.tolist())
    return found


def _as_rows(number: int, part: Any, size: int) -> np.ndarray:
    """A part's row numbers. !! ValueError for what is none"""
    rows = np.asarray(part)
    if not rows.size:
        return np.zeros(0, dtype=np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= size:
        raise ValueError(
            f"Part {number} is not a list of row numbers: they are whole numbers from 0 to {size - 1}, as there are "
            f"{size} rows."
        )
    return rows.astype(np.int64)


# -- looking at parts --------------------------------------------------------------------------------------


def count_labels(parts: Sequence[Sequence[int]], labels: Any) -> tuple[list[Any], np.ndarray]:
    """The classes, and how many rows of each class (column) each part (row) has."""
    classes = _as_labels(labels)
    if not len(parts):
        raise ValueError("There is no part to count labels of. Give the row numbers of one part or more.")
    rows = [_as_rows(number, part, len(classes)) for number, part in enumerate(parts)]
    values = np.unique(classes)
    column = np.searchsorted(values, classes)
    counts = np.stack([np.bincount(column[part], minlength=len(values)) for part in rows])
    return values.tolist(), counts


def label_table(parts: Sequence[Sequence[int]], labels: Any) -> str:
    """The counts as text: a line per client, a column per class."""
    values, counts = count_labels(parts, labels)
    head = ["client", *[str(value) for value in values], "rows"]
    lines = [[str(n), *[str(c) for c in row], str(row.sum())] for n, row in enumerate(counts)]
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in [head, *lines]
    )


def plot_label_distribution(parts: Sequence[Sequence[int]], labels: Any, ax: Any = None) -> Any:
    """A bar per client, made up of its classes; returns matplotlib's axes. Needs the extra `plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DependencyError("matplotlib", "'resyft[plot]'") from None
    values, counts = count_labels(parts, labels)
    if ax is None:
        # NB: not pyplot, which keeps every figure it makes.
        ax = Figure(figsize=(8, max(2.0, 0.3 * len(counts) + 1)), layout="constrained").add_subplot()
    left = np.zeros(len(counts))
    for value, column in zip(values, counts.T, strict=True):
        ax.barh(np.arange(len(counts)), column, left=left, label=str(value))
        left += column
    ax.set(xlabel="rows", ylabel="client", yticks=np.arange(len(counts)))
    ax.invert_yaxis()
    ax.legend(title="class", loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


# ------------------------------------------------------------------------------------------------------------


def _as_labels(labels: Any) -> np.ndarray:
    if getattr(labels, "location", None) is not None:
        raise TypeError(
            f"The labels are on worker {labels.location.id!r}, and how to split by them depends on their values. Split "
            "data that is here, for a simulation."
        )
    found = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if found.ndim != 1:
        raise ValueError(f"Labels are one number per row; these have the shape {found.shape}.")
    return found


def _check_clients(k: Any, count: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= count:
        raise ValueError(f"{count} rows were to be split into {k!r} parts. Ask for 1 to {count} parts.")


def _numbers(generator: torch.Generator | None) -> np.random.Generator:
    """A numpy generator (torch's has no Dirichlet) seeded from torch's."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
