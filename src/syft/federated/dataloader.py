"""`FederatedDataLoader`: batches of a FederatedDataset as pointers. A batch is made on the worker that has its rows.

NOTE [Batches are copies]
As in torch's DataLoader a batch has memory of its own: what a program writes into it does not reach the data
set. Neighbouring rows are copied in one operation. For a shuffled epoch each worker is sent its order once, and
takes a batch by a piece of it.

NOTE [Lanes]
The loader serves `num_iterators` workers at a time. Each of them is a lane, a `_DataLoaderIter`: it yields the batches
of a worker, and then those of the next worker that no lane has begun. All lanes of one pass share an `_Epoch`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch.utils.data import default_collate

from syft.core.chain import Wrapper
from syft.federated.dataset import BaseDataset, FederatedDataset
from syft.federated.pointer_dataset import PointerDataset
from syft.tensors.pointer import PointerTensor

logger = logging.getLogger(__name__)

Collate = Callable[[list[Any]], Any]

#: The tensor type of each numpy type, by the name of its dtype, as programs of 2020 look it up.
numpy_type_map = {
    "float64": torch.DoubleTensor,
    "float32": torch.FloatTensor,
    "float16": torch.HalfTensor,
    "int64": torch.LongTensor,
    "int32": torch.IntTensor,
    "int16": torch.ShortTensor,
    "int8": torch.CharTensor,
    "uint8": torch.ByteTensor,
}

#: Options of torch's DataLoader about how the client reads rows. It reads none here: the workers do.
_OPTIONS_OF_READING = frozenset(
    {
        "num_workers",
        "pin_memory",
        "pin_memory_device",
        "timeout",
        "worker_init_fn",
        "multiprocessing_context",
        "prefetch_factor",
        "persistent_workers",
    }
)


class FederatedDataLoader:
    """Iterates over a FederatedDataset; a batch never mixes workers.

    federated_dataset  what to iterate over
    batch_size         rows per batch; the last batch of a worker may be smaller
    shuffle            in a new order per epoch, drawn from `generator`
    num_iterators      how many workers to serve at a time, at most their number - 1: above 1, batches come as dicts
                       {worker: batch}. A worker that has no more rows is no longer in the dicts
    drop_last          leave out a worker's last batch if it is smaller
    collate_fn         called here with the list of items of a batch, each a pair of pointers; what it does to them
                       happens on the worker. Without it, rows are taken at once, which is much faster
    iter_per_worker    dicts with a batch of every worker. The epoch ends with the first worker that has no more rows
    generator          for `shuffle`; torch's global generator if left out, so `torch.manual_seed` counts
    kwargs             `num_workers`, `pin_memory` and the other options of torch's DataLoader about how rows are read.
                       The workers read them, so these change nothing, and the log says so

    `len(loader)` is the number of batches (or dicts) it yields. `next(loader)` goes on with the pass that `iter(loader)`
    began last.
    """

    def __init__(
        self,
        federated_dataset: FederatedDataset,
        batch_size: int = 8,
        shuffle: bool = False,
        num_iterators: int = 1,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        iter_per_worker: bool = False,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(federated_dataset, FederatedDataset):
            raise TypeError(
                f"FederatedDataLoader was given a {type(federated_dataset).__name__}, which is not a FederatedDataset. "
                "Use torch.utils.data.DataLoader for data that is here, or `.federate(workers)` to distribute it."
            )
        for name, value in (("batch_size", batch_size), ("num_iterators", num_iterators)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"FederatedDataLoader was given {name}={value!r}. Give a number of at least 1."
                )
        _check_options(kwargs)
        self.federated_dataset = federated_dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.collate_fn = None if collate_fn is default_collate else collate_fn
        self.iter_per_worker = iter_per_worker
        self.generator = generator
        workers = len(federated_dataset.datasets)
        self.num_iterators = workers if iter_per_worker else max(1, min(num_iterators, workers - 1))
        self.iter_class = _DataLoaderOneWorkerIter if iter_per_worker else _DataLoaderIter
        self.iterators: list[_DataLoaderOneWorkerIter] = []
        self._pass: Iterator[Any] | None = None
        if iter_per_worker:
            self._tell_of_rows_left_out()

    @property
    def workers(self) -> list[Any]:
        """The ids of the workers, in the order they are served."""
        return self.federated_dataset.workers

    @property
    def _in_dicts(self) -> bool:
        return self.iter_per_worker or self.num_iterators > 1

    def _tell_of_rows_left_out(self) -> None:
        counts = self._counts()
        if counts and min(counts) != max(counts):
            logger.warning(
                "FederatedDataLoader(iter_per_worker=True) yields a batch of every worker at a time. The workers have "
                "%s batches, so an epoch ends after %d and leaves rows out. Leave iter_per_worker out to see them all.",
                dict(zip(self.workers, counts, strict=True)),
                min(counts),
            )

    def _batches_of(self, rows: int) -> int:
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def _counts(self) -> list[int]:
        """How many batches each worker has."""
        return [self._batches_of(len(dataset)) for dataset in self.federated_dataset.datasets.values()]

    def __len__(self) -> int:
        counts = self._counts()
        if self.iter_per_worker:
            return min(counts, default=0)
        lanes = [0] * self.num_iterators
        for count in counts:
            # The worker goes to the lane that is free first, as in `_dicts`.
            heapq.heapreplace(lanes, lanes[0] + count)
        return max(lanes)

    def __iter__(self) -> Iterator[Any]:
        epoch = _Epoch(self)
        lanes = min(self.num_iterators, len(epoch.locations))
        self.iterators = [self.iter_class(self, number, epoch) for number in range(lanes)]
        self._pass = self._dicts(self.iterators) if self._in_dicts else self._one_by_one(self.iterators)
        return self._pass

    def __next__(self) -> Any:
        if self._pass is None:
            raise TypeError(
                "next(loader) was called before iter(loader). Begin a pass with iter(loader), or write "
                "next(iter(loader))."
            )
        return next(self._pass)

    def _one_by_one(self, lanes: list[_DataLoaderOneWorkerIter]) -> Iterator[Any]:
        for lane in lanes:
            yield from lane

    def _dicts(self, lanes: list[_DataLoaderOneWorkerIter]) -> Iterator[dict[Any, Any]]:
        while True:
            batches: dict[Any, Any] = {}
            for lane in lanes:
                batch = next(lane, None)
                if batch is not None:
                    batches[lane.location] = batch
            if not batches or (self.iter_per_worker and len(batches) < len(lanes)):
                return
            yield batches


def _check_options(options: Mapping[str, Any]) -> None:
    """Say what options of torch's DataLoader do here. !! TypeError for those that would choose other rows."""
    unknown = sorted(set(options) - _OPTIONS_OF_READING)
    if unknown:
        raise TypeError(
            f"FederatedDataLoader has no option {', '.join(unknown)}. Which rows a batch has is said by batch_size, "
            "shuffle, drop_last and generator; of torch's DataLoader it also takes "
            f"{', '.join(sorted(_OPTIONS_OF_READING))}."
        )
    workers = options.get("num_workers", 0)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise ValueError(
            f"FederatedDataLoader was given num_workers={workers!r}. Give a number of at least 0."
        )
    if options:
        logger.warning(
            "FederatedDataLoader was given %s: the workers that hold the rows make the batches, in their own memory, so "
            "this changes nothing.",
            ", ".join(f"{name}={value!r}" for name, value in options.items()),
        )


# -- a pass over the data --------------------------------------------------------------------------------------


class _Epoch:
    """One pass over all workers: the batches of each, and which of them no lane has begun."""

    def __init__(self, loader: FederatedDataLoader) -> None:
        datasets = list(loader.federated_dataset.datasets.values())
        self.locations = [dataset.location for dataset in datasets]
        # All orders are drawn before the first batch, so they do not depend on how the batches are used.
        orders = [
            torch.randperm(len(d), generator=loader.generator) if loader.shuffle else None for d in datasets
        ]
        self._sources = [_source(loader, d, order) for d, order in zip(datasets, orders, strict=True)]
        self.waiting = list(range(len(datasets)))

    def begin(self, worker_idx: int) -> Iterator[Any]:
        """The batches of a worker."""
        if worker_idx not in self.waiting:
            raise IndexError(
                f"There is no worker number {worker_idx} to begin with; these have not begun: {self.waiting}."
            )
        self.waiting.remove(worker_idx)
        return self._sources[worker_idx]


def _source(loader: FederatedDataLoader, dataset: Any, order: torch.Tensor | None) -> Iterator[Any]:
    """The batches of one worker. Nothing is asked of it before the first one is."""
    take = _taker(dataset, order, loader.collate_fn)
    rows = len(dataset)
    for number in range(loader._batches_of(rows)):
        start = number * loader.batch_size
        yield take(start, min(loader.batch_size, rows - start))


class _DataLoaderOneWorkerIter:
    """The batches of one worker, given by its number."""

    def __init__(self, loader: FederatedDataLoader, worker_idx: int, epoch: _Epoch | None = None) -> None:
        self.loader = loader
        self.federated_dataset = loader.federated_dataset
        self.worker_idx = worker_idx
        self._epoch = epoch or _Epoch(loader)
        self._batches = self._epoch.begin(worker_idx)
        self._is_stopped = False

    @property
    def location(self) -> Any:
        """The worker that made the last batch."""
        return self._epoch.locations[self.worker_idx]

    def _get_batch(self) -> Any:
        batch = next(self._batches, None)
        if batch is None:
            self.stop()
        return batch

    def __next__(self) -> Any:
        return self._get_batch()

    def __iter__(self) -> Iterator[Any]:
        return self

    def stop(self) -> NoReturn:
        """End here: what `next` raises when there are no more batches."""
        self._batches, self._is_stopped = iter(()), True
        raise StopIteration


class _DataLoaderIter(_DataLoaderOneWorkerIter):
    """A lane: the batches of a worker, then of the next that no lane has begun. See NOTE [Lanes]."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.federated_dataset)

    def _get_batch(self) -> Any:
        while True:
            batch = next(self._batches, None)
            if batch is not None:
                return batch
            if self._is_stopped or not self._epoch.waiting:
                self.stop()
            self.worker_idx = self._epoch.waiting[0]
            self._batches = self._epoch.begin(self.worker_idx)


# -- how a worker makes a batch ------------------------------------------------------------------------------


def _taker(dataset: Any, order: torch.Tensor | None, collate: Collate | None) -> Callable[[int, int], Any]:
    """`take(start, count)` for one worker and one epoch."""
    if collate is not None:
        return lambda start, count: collate([dataset[row] for row in _rows(order, start, count)])
    held = dataset.held if isinstance(dataset, BaseDataset) else dataset
    if isinstance(held, PointerDataset):
        return lambda start, count: held.batch(_rows(order, start, count))
    if dataset.transform_ is not None or not (_is_pointer(dataset.data) and _is_pointer(dataset.targets)):
        return lambda start, count: dataset[_index(order, start, count)]
    return _pointer_taker(dataset, order)


def _pointer_taker(dataset: BaseDataset, order: torch.Tensor | None) -> Callable[[int, int], Any]:
    data, targets = dataset.data, dataset.targets
    if order is None:
        return lambda start, count: (
            torch.narrow_copy(data, 0, start, count),
            torch.narrow_copy(targets, 0, start, count),
        )
    there: Any = None

    def take(start: int, count: int) -> tuple[Any, Any]:
        nonlocal there
        if there is None:
            there = order.send(dataset.location)  # type: ignore[attr-defined]
        rows = there.narrow(0, start, count)
        return data.index_select(0, rows), targets.index_select(0, rows)

    return take


def _is_pointer(value: Any) -> bool:
    return type(value) is Wrapper and isinstance(value.child, PointerTensor)


def _rows(order: torch.Tensor | None, start: int, count: int) -> Any:
    return range(start, start + count) if order is None else order[start : start + count].tolist()


def _index(order: torch.Tensor | None, start: int, count: int) -> Any:
    return slice(start, start + count) if order is None else order[start : start + count].tolist()
