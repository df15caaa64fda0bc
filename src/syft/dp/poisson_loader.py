"""Batches as the accountant's sampling theorem has them.

One duty: `PoissonLoader`, and to refuse the loaders it cannot take the place of. Imports `batch_rows`, `mpc.randomness`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from syft.dp.batch_rows import collated, emptied
from syft.mpc.randomness import Stream


class PoissonLoader:
    """Batches in which every row of the data set is with the same probability, independently, each time anew.

    The accountant's sampling theorem is about this, not about shuffled batches of one size. A batch has
    `rate * len(dataset)` rows on average; it may be empty, and is then trained on all the same (noise only).
    `collate_fn` is called for each row alone.
    """

    def __init__(
        self,
        dataset: Any,
        rate: float,
        collate_fn: Any = None,
        stream: Stream | None = None,
        like: DataLoader[Any] | None = None,
    ) -> None:
        """`like`: a DataLoader whose worker processes and pinned memory this one shall have."""
        if not 0 < rate <= 1:
            raise ValueError(f"A sampling rate is above 0 and at most 1, got {rate}.")
        self.dataset, self.rate = dataset, rate
        self.collate_fn = collate_fn or default_collate
        self.outstanding: int | None = None
        """The size of the batch that was handed out and not yet trained on."""
        self.drawn = 0
        """How many batches were handed out."""
        self._stream = stream or Stream()
        self._batches = _Batches(dataset, self.collate_fn)
        self._samples = _Samples(self)
        self._processes = None if like is None else self._served_by_processes(like)

    def __len__(self) -> int:
        """Steps per epoch."""
        return math.ceil(1 / self.rate - 1e-9)

    def steps_left(self) -> int:
        """Batches of an epoch that is begun now."""
        return len(self)

    def sample(self) -> Tensor:
        """The row numbers of one batch: each with probability `rate`, rounded down to a multiple of 2^-63."""
        words = self._stream.words(len(self.dataset)) & (2**63 - 1)
        return torch.nonzero(words <= int(self.rate * 2**63) - 1).flatten()

    def __iter__(self) -> Iterator[Any]:
        # The sizes of batches that were drawn and not handed out: processes work ahead.
        ahead = self._samples.sizes = deque[int]()
        made = (
            map(self._batches.__getitem__, self._samples)
            if self._processes is None
            else iter(self._processes)
        )
        for batch in made:
            self.outstanding = ahead.popleft()
            self.drawn += 1
            yield batch

    def _served_by_processes(self, like: DataLoader[Any]) -> DataLoader[Any] | None:
        """A DataLoader that makes our batches in the processes that `like` asks for, in our order."""
        if not like.num_workers and not like.pin_memory:
            return None
        return DataLoader(
            self._batches,
            batch_size=None,
            sampler=self._samples,
            collate_fn=_as_it_is,
            num_workers=like.num_workers,
            pin_memory=like.pin_memory,
            timeout=like.timeout,
            worker_init_fn=like.worker_init_fn,
            multiprocessing_context=like.multiprocessing_context,
            generator=like.generator,
            prefetch_factor=like.prefetch_factor,
            persistent_workers=like.persistent_workers,
        )


class _Batches(Dataset[Any]):
    """Row numbers -> a batch of these rows. It holds no stream: what processes are given draws nothing secret."""

    def __init__(self, dataset: Any, collate_fn: Any) -> None:
        self.dataset, self.collate_fn = dataset, collate_fn

    def __getitem__(self, rows: Tensor) -> Any:
        # NB: not a subclass, whose __getitem__ may do more.
        if type(self.dataset) is TensorDataset and self.collate_fn is default_collate:
            return [t[rows] for t in self.dataset.tensors]
        if not len(rows):
            return emptied(self.collate_fn([self.dataset[0]]))
        return collated([self.dataset[i] for i in rows.tolist()], self.collate_fn)


class _Samples(Sampler[Tensor]):
    """The batches of an epoch as row numbers; one entry is one batch."""

    def __init__(self, loader: PoissonLoader) -> None:
        self._loader = loader
        self.sizes: deque[int] = deque()
        """Where the next epoch notes how many rows its batches have."""

    def __iter__(self) -> Iterator[Tensor]:
        return self._drawn(self.sizes)

    def _drawn(self, sizes: deque[int]) -> Iterator[Tensor]:
        for _ in range(self._loader.steps_left()):
            rows = self._loader.sample()
            sizes.append(len(rows))
            yield rows

    def __len__(self) -> int:
        return len(self._loader)


def _as_it_is(batch: Any) -> Any:
    return batch


def rate_of(loader: Any) -> float:
    """The rate at which a PoissonLoader draws batches like a DataLoader's. !! TypeError, ValueError"""
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"make_private takes a torch DataLoader, got a {type(loader).__name__}: DataLoader(dataset, batch_size=...)."
        )
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        raise TypeError(
            f"make_private got a {type(loader.dataset).__name__}, whose rows come in a stream: each row must be drawn by "
            "itself. Give a data set with __len__ and __getitem__, e.g. list(dataset)."
        )
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            "make_private needs a loader with a batch_size, which is the average size of a batch, and without a "
            "batch_sampler: rows are drawn independently of each other."
        )
    size = len(loader.dataset)
    if size == 0:
        raise ValueError("make_private got a data set without rows: there is nothing to train on.")
    sampler: Any = loader.sampler
    if type(sampler) not in (SequentialSampler, RandomSampler) or len(sampler) != size:
        raise ValueError(
            f"make_private got a loader with a {type(sampler).__name__} of its own. Epsilon is computed for rows that "
            "are drawn from all of the data set with the same probability: make the loader without a sampler, and of "
            "torch.utils.data.Subset(data, rows) if only some rows are to be used."
        )
    return min(1.0, loader.batch_size / size)
