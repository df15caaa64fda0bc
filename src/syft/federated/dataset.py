"""Data sets that can be put on workers, and `FederatedDataset`: one data set in parts, each on a worker of its own.

    BaseDataset(data, targets)      tensors, or pointers to tensors on one worker
    LazyDataset(dataset)            rows of any torch Dataset, read when a batch is asked for
    dataset.federate(workers)       a FederatedDataset of parts

Both are `HeldDataset`s: a worker can hold them, and `send` returns a PointerDataset (see `pointer_dataset`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from syft import serde
from syft.core.chain import Wrapper
from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.exceptions import ChainError, SendNotPermittedError
from syft.federated.partition import checked_parts
from syft.messaging.message import ObjectMessage
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS
from syft.tensors.private import users_allowed
from syft.tensors.transfer import private_copy
from syft.workers import handlers
from syft.workers.permissions import Allowed, intersect

Transform = Callable[[Any], Any]
Rows = Sequence[int]


# -- batches of whatever is here ---------------------------------------------------------------------------


def batch_of(dataset: Any, rows: Rows) -> Any:
    """A batch of these rows of any data set with numbered items, as a DataLoader would collate it.

    Rows of tensors are taken at once; neighbouring ones are not copied. Other items are read one by one.
    """
    tensors = _tensors_of(dataset)
    if tensors is not None:
        return tuple(_take(t, rows) for t in tensors)
    if hasattr(dataset, "__getitems__"):
        return default_collate(dataset.__getitems__(list(rows)))
    return default_collate([dataset[row] for row in rows])


def _tensors_of(dataset: Any) -> tuple[Any, ...] | None:
    """The tensors whose rows are the items of a data set, if it is made of such."""
    if isinstance(dataset, BaseDataset):
        plain = isinstance(dataset.data, torch.Tensor) and isinstance(dataset.targets, torch.Tensor)
        return (dataset.data, dataset.targets) if plain and dataset.transform is None else None
    return dataset.tensors if type(dataset) is TensorDataset else None


def _take(tensor: Any, rows: Rows) -> Any:
    first, count = (rows[0], len(rows)) if len(rows) else (0, 0)
    if isinstance(rows, range) and rows.step == 1:
        return tensor[rows.start : rows.stop]
    if count and rows[-1] - first == count - 1 and list(rows) == list(range(first, first + count)):
        return tensor[first : first + count]
    return tensor[list(rows)] if type(tensor) is Wrapper else tensor[torch.as_tensor(rows, dtype=torch.int64)]


# -- data sets a worker can hold -----------------------------------------------------------------------------


class HeldDataset(AbstractObject, Dataset):
    """A data set with an id, an owner and tags, so that a worker can hold it and others can find it."""

    pointer_kind: ClassVar[str] = "dataset"

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not say how many rows it has.")

    @property
    def shape(self) -> torch.Size:
        """The number of rows, for whoever points to this."""
        return torch.Size((len(self),))

    def batch(self, rows: Rows) -> Any:
        """A batch of these rows, in memory of its own."""
        count = len(self)
        wrong = next((row for row in rows if not 0 <= row < count), None)
        if wrong is not None:
            raise IndexError(f"Row {wrong} was asked for; the data set has the rows 0 to {count - 1}.")
        source, numbers = self._source(rows)
        made = batch_of(source, numbers)
        return made if _tensors_of(source) is None else _copied(made)

    def _source(self, rows: Rows) -> tuple[Any, Rows]:
        """What the rows are read from, and their numbers there."""
        return self, rows

    def send(self, worker: Any, garbage_collect_data: bool = True, user: str | None = None) -> Any:
        """Put a copy on a worker; returns a PointerDataset. Transforms go along and run there.

        Private tensors inside restrict the whole data set to those who may have all of them; `user` must be one.
        """
        me = session.require_local_worker()
        location = me.get_worker(worker, fail_hard=True)
        obj, allowed = self.split_privacy()
        if allowed is not None and user not in allowed:
            raise SendNotPermittedError(
                f"The data set is private to {sorted(map(str, allowed))} and {user!r} is not among them. Name an "
                "allowed user with send(worker, user=...)."
            )
        me.send_msg(ObjectMessage(obj, self.id, allowed, user), location)
        pointer = POINTERS[self.pointer_kind](
            location,
            self.id,
            garbage_collect_data=garbage_collect_data,
            tags=self.tags,
            description=self.description,
        )
        pointer.length = len(self)  # type: ignore[attr-defined]
        return pointer

    def split_privacy(self) -> tuple[Any, Allowed]:
        """This without the private links of its tensors, and the users who may have them all (None: everybody)."""
        return self, None

    def federate(self, workers: Sequence[Any], **options: Any) -> FederatedDataset:
        """See `federate`."""
        return federate(self, workers, **options)

    @property
    def location(self) -> Any:
        """The worker that holds the rows; None when they are here."""
        return None


def _copied(batch: Any) -> Any:
    return tuple(value.clone() for value in batch)


class BaseDataset(HeldDataset):
    """Data and targets, row by row. Both may be tensors here or pointers to tensors on one worker.

    transform  a function of one item of the data, as for torch's own data sets; it runs where the data is: on the
               worker if the data set was sent, and through pointers, one item at a time, if the data is pointers
    """

    def __init__(
        self,
        data: Any,
        targets: Any,
        transform: Transform | None = None,
        owner: Any = None,
        id: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(id=id, owner=owner, tags=tags, description=description)
        # NB: underscores, so that no message can replace them (see handlers._public_attributes).
        self._data, self._targets, self._transform = data, targets, _checked_transform(transform)
        if len(data) != len(targets):
            raise ValueError(
                f"BaseDataset was given {len(data)} rows of data and {len(targets)} targets. Give one target per row."
            )
        places = [getattr(getattr(part, "location", None), "id", None) for part in (data, targets)]
        if places[0] != places[1]:
            here, there = [("here" if place is None else f"on {place!r}") for place in places]
            raise ValueError(
                f"BaseDataset was given data that is {here} and targets that are {there}. Bring them together with "
                "`.send(worker)`, `.move(worker)` or `.get()`."
            )

    @property
    def data(self) -> Any:
        return self._data

    @property
    def targets(self) -> Any:
        return self._targets

    @property
    def transform(self) -> Transform | None:
        return self._transform

    @transform.setter
    def transform(self, transform: Transform | None) -> None:
        self._transform = _checked_transform(transform)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        """An item, or several of them for a slice or list. The transform sees one item at a time."""
        data = self._data[index]
        if self._transform is not None:
            one = isinstance(index, int) or getattr(index, "ndim", None) == 0
            data = self._transform(data) if one else torch.stack([self._transform(d) for d in data])
        return data, self._targets[index]

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *getattr(self._data, "shape", (0,))[1:]))

    @property
    def location(self) -> Any:
        return getattr(self._data, "location", None)

    def send(self, worker: Any, garbage_collect_data: bool = True, user: str | None = None) -> Any:
        if self.location is not None:
            raise ChainError(
                f"The data of this data set is on worker {self.location.id!r} already. Use the data set as it is, or "
                "fetch it first with `.get()`."
            )
        return super().send(worker, garbage_collect_data, user)

    def get(self, user: str | None = None, reason: str = "") -> BaseDataset:
        """Fetch data and targets if they are elsewhere, in place; returns self."""
        if self.location is not None:
            options: dict[str, Any] = {"user": user, "reason": reason}
            self._data, self._targets = self._data.get(**options), self._targets.get(**options)
        else:
            self._data, self._targets = _opened(self._data), _opened(self._targets)
        return self

    def fix_prec(self, *args: Any, **kwargs: Any) -> BaseDataset:
        """Data and targets in fixed precision, in place, where they are; returns self."""
        self._data = self._data.fix_precision(*args, **kwargs)
        self._targets = self._targets.fix_precision(*args, **kwargs)
        return self

    fix_precision = fix_prec

    def float_prec(self) -> BaseDataset:
        """The inverse of `fix_prec`, in place; returns self."""
        self._data, self._targets = self._data.float_precision(), self._targets.float_precision()
        return self

    float_precision = float_prec

    def share(self, *workers: Any, **kwargs: Any) -> BaseDataset:
        """Split data and targets into secret shares, in place; returns self. Reals after `fix_prec()`."""
        self._data = self._data.share(*workers, **kwargs)
        self._targets = self._targets.share(*workers, **kwargs)
        return self

    def split_privacy(self) -> tuple[BaseDataset, Allowed]:
        parts: list[Any] = []
        allowed: Allowed = None
        for value in (self._data, self._targets):
            deep = users_allowed(value.child) if type(value) is Wrapper else None
            inner, own = handlers.without_privacy(value) if deep is not None else (value, None)
            parts.append(inner)
            allowed = intersect(allowed, intersect(own, deep))
        if allowed is None:
            return self, None
        data, targets = parts
        open_twin = BaseDataset(
            data, targets, self._transform, id=self.id, tags=self.tags, description=self.description
        )
        return open_twin, allowed

    def __deepcopy__(self, memo: dict[int, Any]) -> BaseDataset:
        return BaseDataset(
            private_copy(self._data),
            private_copy(self._targets),
            None if self._transform is None else private_copy(self._transform),
            id=self._id,
            tags=self.tags,
            description=self.description,
        )

    def __repr__(self) -> str:
        place = "here" if self.location is None else f"on {self.location.id!r}"
        return f"<BaseDataset of {len(self)} rows {place}>"

    __str__ = __repr__


def _checked_transform(transform: Any) -> Transform | None:
    if transform is not None and not callable(transform):
        raise TypeError(
            f"The transform of a BaseDataset is a function of one item; a {type(transform).__name__} was given."
        )
    return transform


def _opened(value: Any) -> Any:
    """A secret that is kept elsewhere, opened; anything else as it is."""
    is_elsewhere = type(value) is Wrapper and value.child.is_remote
    return value.get() if is_elsewhere else value


class LazyDataset(HeldDataset):
    """Rows of a torch Dataset that stays as it is; an item is read when a batch with it is asked for.

    A worker in this process can hold it, and the owner of a worker can put one on it. It does not travel: what
    reads the items (files, a database) is where it is.
    """

    def __init__(self, dataset: Any, rows: Rows | None = None, **identity: Any) -> None:
        super().__init__(**identity)
        self._dataset = dataset
        self._rows: Rows = range(_length(dataset)) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[self._rows[index]]

    def _source(self, rows: Rows) -> tuple[Any, Rows]:
        return self._dataset, [self._rows[row] for row in rows]

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyDataset:
        # Where the rows come from is not copied: nothing of it is in memory.
        return LazyDataset(
            self._dataset, self._rows, id=self._id, tags=self.tags, description=self.description
        )

    def __repr__(self) -> str:
        return f"<LazyDataset of {len(self)} rows of a {type(self._dataset).__name__}>"

    __str__ = __repr__


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        raise TypeError(
            f"A {type(dataset).__name__} has no length and no numbered items, so it cannot be split among workers. Give "
            "a Dataset with __len__ and __getitem__."
        ) from None


def _encode(_worker: Any, dataset: BaseDataset) -> tuple[Any, ...]:
    return (
        dataset.data,
        dataset.targets,
        dataset.transform,
        dataset.id,
        tuple(dataset.tags),
        dataset.description,
    )


def _decode(_worker: Any, parts: Any) -> BaseDataset:
    data, targets, transform, obj_id, tags, description = parts
    if isinstance(transform, ObjectPointer):
        raise serde.SerdeError(
            "A data set names a transform on another worker; its rows would be sent there."
        )
    return BaseDataset(data, targets, transform, id=obj_id, tags=tags, description=description)


serde.register(
    BaseDataset,
    "BaseDataset",
    _encode,
    _decode,
    fields=tuple[torch.Tensor, torch.Tensor, Any, int | str, tuple[str, ...], str | None],
)


# -- parts on workers ------------------------------------------------------------------------------------


class FederatedDataset:
    """Data sets on workers, one each; by the worker's id.

    datasets  BaseDatasets of pointers (found by a search, say) or PointerDatasets
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: dict[Any, Any] = {}
        for number, dataset in enumerate(datasets):
            is_dataset = isinstance(dataset, (HeldDataset, POINTERS[HeldDataset.pointer_kind]))
            location = dataset.location if is_dataset else None
            if location is None:
                raise TypeError(
                    f"Part {number} of a FederatedDataset is a {type(dataset).__name__}, not a data set on a worker. Put "
                    "one there with `BaseDataset(data, targets).send(worker)`, or split one with `.federate(workers)`."
                )
            if location.id in self.datasets:
                raise ValueError(
                    f"Two parts of a FederatedDataset are on worker {location.id!r}. Join them there, e.g. with "
                    "torch.cat, or make a FederatedDataset of each."
                )
            self.datasets[location.id] = dataset

    @property
    def workers(self) -> list[Any]:
        """The ids of the workers, in order."""
        return list(self.datasets)

    def __getitem__(self, worker: Any) -> Any:
        """The part on a worker, given by its id or itself."""
        key = getattr(worker, "id", worker)
        try:
            return self.datasets[key]
        except (KeyError, TypeError):
            raise KeyError(f"No part is on {key!r}; there is one on each of {self.workers}.") from None

    def get_dataset(self, worker: Any) -> Any:
        """Fetch the part of a worker and take it out of here."""
        dataset = self[worker]
        fetched = dataset.get()
        del self.datasets[getattr(worker, "id", worker)]
        return fetched

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets.values())

    def __repr__(self) -> str:
        parts = "".join(f"\n    {name}: {len(dataset)} rows" for name, dataset in self.datasets.items())
        return f"FederatedDataset of {len(self)} rows on {len(self.datasets)} workers{parts}"

    __str__ = __repr__


def federate(
    self: Any, workers: Sequence[Any], parts: Sequence[Rows] | None = None, lazy: bool = False
) -> FederatedDataset:
    """Split a data set among workers; returns a FederatedDataset.

    workers  the first gets the first ceil(n / k) rows, the second the next, ...; of few rows the last may get none
    parts    instead: the row numbers of each worker, e.g. from `syft.federated.partition_dirichlet`
    lazy     the workers, which must be in this process, read an item when a batch with it is asked for; otherwise
             all items are read now, a piece at a time, and sent
    """
    me = session.require_local_worker()
    places = [me.get_worker(w, fail_hard=True) for w in workers]
    if not places:
        raise ValueError("federate() was given no worker. Name at least one.")
    if getattr(self, "location", None) is not None:
        raise ChainError(
            f"The data set is on worker {self.location.id!r} already. Make a FederatedDataset of it with "
            "FederatedDataset([dataset]), or fetch it first with `.get()`."
        )
    size = _length(self)
    shares: list[Rows] = list(_contiguous(size, len(places)))
    if parts is not None:
        shares = checked_parts(parts, size, len(places))
    return FederatedDataset(
        _put(self, rows, place, lazy) for rows, place in zip(shares, places, strict=False) if len(rows)
    )


def _contiguous(count: int, workers: int) -> Iterator[range]:
    size = max(1, -(-count // workers))
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def _put(dataset: Any, rows: Rows, worker: Any, lazy: bool) -> Any:
    """Some rows of a data set on a worker."""
    if lazy:
        return LazyDataset(dataset, rows).send(worker)
    if isinstance(dataset, BaseDataset) and dataset.transform is not None:
        part = BaseDataset(_take(dataset.data, rows), _take(dataset.targets, rows), dataset.transform)
        return part.send(worker)
    if _tensors_of(dataset) is not None:
        data, targets = _pair(batch_of(dataset, rows), dataset)
        return BaseDataset(data.send(worker), targets.send(worker))
    return BaseDataset(*_send_in_pieces(dataset, rows, worker))


#: About this much of a data set that is read item by item is in this machine's memory at once.
PIECE_BYTES = 16 << 20


def _send_in_pieces(dataset: Any, rows: Rows, worker: Any) -> tuple[Any, Any]:
    first = _pair(batch_of(dataset, rows[:1]), dataset)
    size = max(1, PIECE_BYTES // max(1, sum(t.nbytes for t in first)))
    if size >= len(rows):
        data, targets = _pair(batch_of(dataset, rows), dataset)
        return data.send(worker), targets.send(worker)
    wholes = [t.send(worker).new_empty((len(rows), *t.shape[1:])) for t in first]
    for start in range(0, len(rows), size):
        piece = _pair(batch_of(dataset, rows[start : start + size]), dataset)
        for whole, tensor in zip(wholes, piece, strict=True):
            whole.narrow(0, start, len(tensor)).copy_(tensor.send(worker))
    return wholes[0], wholes[1]


def _pair(batch: Any, dataset: Any) -> tuple[Any, Any]:
    if (
        isinstance(batch, (tuple, list))
        and len(batch) == 2
        and all(isinstance(value, torch.Tensor) for value in batch)
    ):
        return batch[0], batch[1]
    raise TypeError(
        f"federate() needs items that are pairs (data, target) of tensors or numbers; those of this "
        f"{type(dataset).__name__} are not. Wrap it in a Dataset whose __getitem__ returns such a pair."
    )
