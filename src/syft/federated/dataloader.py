"""`FederatedDataLoader`: batches of a FederatedDataset as pointers. A batch is made on the worker that has its rows.

NOTE [Batches are copies]
As in torch's DataLoader a batch has memory of its own: what a program writes into it does not reach the data
set. Neighbouring rows are copied in one operation. For a shuffled epoch each worker is sent its order once, and
takes a batch by a piece of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import default_collate

from syft.core.chain import Wrapper
from syft.federated.dataset import BaseDataset, FederatedDataset
from syft.federated.pointer_dataset import PointerDataset
from syft.tensors.pointer import PointerTensor

Collate = Callable[[list[Any]], Any]


class FederatedDataLoader:
    """Iterates over a FederatedDataset; a batch never mixes workers.

    federated_dataset  what to iterate over
    batch_size         rows per batch; the last batch of a worker may be smaller
    shuffle            in a new order per epoch, drawn from `generator`
    num_iterators      how many workers to serve at a time: above 1, batches come as dicts {worker: batch}
    drop_last          leave out a worker's last batch if it is smaller
    collate_fn         called here with the list of items of a batch, each a pair of pointers; what it does to them
                       happens on the worker. Without it, rows are taken at once, which is much faster
    iter_per_worker    as `num_iterators` with the number of workers
    generator          for `shuffle`; torch's global generator if left out, so `torch.manual_seed` counts

    `len(loader)` is the number of batches (or dicts) it yields. A worker that has no more rows is no longer in the
    dicts.
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
        self.federated_dataset = federated_dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.collate_fn = None if collate_fn is default_collate else collate_fn
        self.iter_per_worker = iter_per_worker
        self.generator = generator
        workers = len(federated_dataset.datasets)
        self.num_iterators = workers if iter_per_worker else min(num_iterators, max(workers, 1))
        self._in_dicts = iter_per_worker or num_iterators > 1

    @property
    def workers(self) -> list[Any]:
        """The ids of the workers, in the order they are served."""
        return self.federated_dataset.workers

    def _batches_of(self, rows: int) -> int:
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def __len__(self) -> int:
        lanes = [0] * max(self.num_iterators, 1)
        for dataset in self.federated_dataset.datasets.values():
            # The worker goes to the lane that is free first, as in `_dicts`.
            heapq.heapreplace(lanes, lanes[0] + self._batches_of(len(dataset)))
        return max(lanes)

    def __iter__(self) -> Iterator[Any]:
        datasets = self.federated_dataset.datasets.values()
        # All orders are drawn before the first batch, so they do not depend on how the batches are used.
        orders = [self._order(len(dataset)) for dataset in datasets]
        sources = [self._source(d, order) for d, order in zip(datasets, orders, strict=True)]
        if self._in_dicts:
            return self._dicts([d.location for d in datasets], sources)
        return (batch for source in sources for batch in source)

    def _order(self, rows: int) -> torch.Tensor | None:
        return torch.randperm(rows, generator=self.generator) if self.shuffle else None

    def _source(self, dataset: Any, order: torch.Tensor | None) -> Iterator[Any]:
        """The batches of one worker. Nothing is asked of it before the first one is."""
        take = _taker(dataset, order, self.collate_fn)
        rows = len(dataset)
        for number in range(self._batches_of(rows)):
            start = number * self.batch_size
            yield take(start, min(self.batch_size, rows - start))

    def _dicts(self, workers: list[Any], sources: list[Iterator[Any]]) -> Iterator[dict[Any, Any]]:
        waiting = iter(zip(workers, sources, strict=True))
        lanes: list[tuple[Any, Iterator[Any]] | None] = [
            next(waiting, None) for _ in range(self.num_iterators)
        ]
        while True:
            batches: dict[Any, Any] = {}
            for index, lane in enumerate(lanes):
                while lane is not None:
                    batch = next(lane[1], None)
                    if batch is not None:
                        batches[lane[0]] = batch
                        break
                    lane = next(waiting, None)
                lanes[index] = lane
            if not batches:
                return
            yield batches


# -- how a worker makes a batch ------------------------------------------------------------------------------


def _taker(dataset: Any, order: torch.Tensor | None, collate: Collate | None) -> Callable[[int, int], Any]:
    """`take(start, count)` for one worker and one epoch."""
    if collate is not None:
        return lambda start, count: collate([dataset[row] for row in _rows(order, start, count)])
    if isinstance(dataset, PointerDataset):
        return lambda start, count: dataset.batch(_rows(order, start, count))
    if dataset.transform is not None or not (_is_pointer(dataset.data) and _is_pointer(dataset.targets)):
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
