"""`BaseDataset`, and `FederatedDataset`: one data set in parts, each on a worker of its own.

    BaseDataset(data, targets)      tensors, or pointers to tensors on one worker
    dataset.federate(workers)       a FederatedDataset of parts

NOTE [Where the rows of a BaseDataset are]
`send` and `get` work in place, as they did in 2020. The rows are one of three:

    here         `data` and `targets` are tensors, or chains such as shares
    pointers     `data` and `targets` are pointers to tensors on one worker: the usual result of `send`
    held         the worker has the data set as one object, because it has a transform, which runs there, or tags or a
                 description, by which others find it; `data` and `targets` are pointers to copies made on demand
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from syft import serde
from syft.core.chain import Wrapper
from syft.core.session import session
from syft.exceptions import ChainError
from syft.execution.plan import Plan
from syft.federated.held_dataset import (
    HeldDataset,
    LazyDataset,
    Rows,
    batch_of,
    check_sender,
    length_of,
    take,
    tensors_of,
)
from syft.federated.partition import checked_parts
from syft.policy.permissions import Allowed, intersect
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS
from syft.tensors.private import is_released_only, users_allowed
from syft.tensors.sending import private_copy
from syft.workers import handlers

logger = logging.getLogger(__name__)

Transform = Callable[[Any], Any]


# -- one data set --------------------------------------------------------------------------------------------


class BaseDataset(HeldDataset):
    """Data and targets, row by row. Both may be tensors here or pointers to tensors on one worker.

    transform  a function of one item of the data, as for torch's own data sets. It is given a numpy array, which is its
               own to write into, and returns a tensor, an array or a number; a Plan and an nn.Module are given a tensor.
               It runs where the data is: on the worker if the data set was sent, and through pointers, one item at a
               time, if the data is pointers
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
        self._held: Any = None  #: a PointerDataset, see NOTE [Where the rows of a BaseDataset are]
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
        return self._data if self._held is None else self._held.data

    @property
    def targets(self) -> Any:
        return self._targets if self._held is None else self._held.targets

    @property
    def held(self) -> Any:
        """The PointerDataset behind this, if a worker holds it as one object; else None."""
        return self._held

    @property
    def transform_(self) -> Transform | None:
        """The function that items go through when they are read here, if there is one."""
        return self._transform

    def transform(self, transform: Transform) -> BaseDataset:
        """Replace the data by `transform(data)`, all rows at once; returns self. The data is here, as a plain tensor."""
        if not callable(transform):
            raise TypeError(
                f"BaseDataset.transform() was given a {type(transform).__name__}. Give a function of the whole data."
            )
        if self.location is not None or type(self._data) is Wrapper:
            place = "here" if self.location is None else f"on {self.location.id!r}"
            raise TypeError(
                f"BaseDataset.transform() works on plain tensors that are here; the data is a "
                f"{type(self.data.child).__name__} {place}. Transform it before `.send(worker)` or `.fix_prec()`, or "
                "give BaseDataset(transform=...), which runs where the data is."
            )
        changed = _as_tensor(transform(self._data))
        if len(changed) != len(self._targets):
            raise ValueError(
                f"BaseDataset.transform() made {len(changed)} rows of {len(self._targets)}. Return one row per target."
            )
        self._data = changed
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        # `dataset.transform = function` says what `BaseDataset(transform=function)` says. It must not hide the method.
        if name == "transform":
            self.set_transform(value)
        else:
            super().__setattr__(name, value)

    def set_transform(self, transform: Transform | None) -> None:
        """From now on items go through this when they are read; None: through nothing."""
        if self._held is not None:
            raise ChainError(
                f"The data set is on worker {self.location.id!r} with its transform. Fetch it with `.get()`, set the "
                "transform, and send it again."
            )
        self._transform = _checked_transform(transform)

    def __len__(self) -> int:
        return len(self._data) if self._held is None else len(self._held)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        """An item, or several of them for a slice or list. The transform sees one item at a time."""
        if self._held is not None:
            return self._held[index]
        data = self._data[index]
        if self._transform is not None:
            one = isinstance(index, int) or getattr(index, "ndim", None) == 0
            data = self._item(data) if one else torch.stack([self._item(d) for d in data])
        return data, self._targets[index]

    def _item(self, item: Any) -> Any:
        """An item of the data, transformed."""
        transform: Any = self._transform
        takes_tensors = isinstance(transform, (Plan, torch.nn.Module))
        if takes_tensors or not isinstance(item, torch.Tensor) or type(item) is Wrapper:
            return transform(item)
        # A copy: a function that writes into its argument must not write into the data set.
        return _as_tensor(transform(item.detach().cpu().numpy().copy()))

    def tensors_of_items(self) -> tuple[Any, ...] | None:
        parts = (self._data, self._targets)
        is_plain = self._held is None and self._transform is None
        return parts if is_plain and all(isinstance(part, torch.Tensor) for part in parts) else None

    def _sample_item(self) -> Any:
        data, target = (torch.zeros(part.shape[1:], dtype=part.dtype) for part in (self._data, self._targets))
        return self._item(data), target

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *getattr(self.data, "shape", (0,))[1:]))

    @property
    def location(self) -> Any:
        return getattr(self._data, "location", None) if self._held is None else self._held.location

    # -- from here to there --------------------------------------------------------------------------------

    def send(self, worker: Any, garbage_collect_data: bool = True, user: str | None = None) -> BaseDataset:
        """Put the rows on a worker, in place; returns self. See NOTE [Where the rows of a BaseDataset are].

        The tensors that this was made of stay as they are. Private ones restrict both data and targets to those who
        may have both; `user` must be one of them.
        """
        self._check_here()
        if self._transform is not None or self.tags or self.description is not None:
            self._held = self.send_whole(worker, garbage_collect_data, user)
            self._data = self._targets = None
            return self
        location = session.require_local_worker().get_worker(worker, fail_hard=True)
        opened, allowed = self.split_privacy()
        check_sender(allowed, user)
        sent = []
        for part in (opened._data, opened._targets):
            if not isinstance(part, torch.Tensor):
                raise TypeError(
                    f"BaseDataset.send() sends tensors; this data set has a {type(part).__name__}. Make a tensor of it "
                    "with torch.as_tensor(...)."
                )
            kept: Any = part if allowed is None else part.private_tensor(allowed_users=tuple(allowed))  # type: ignore[attr-defined]
            sent.append(kept.send(location, user=user, garbage_collect_data=garbage_collect_data))
        self._data, self._targets = sent
        return self

    def send_whole(self, worker: Any, garbage_collect_data: bool = True, user: str | None = None) -> Any:
        self._check_here()
        try:
            return super().send_whole(worker, garbage_collect_data, user)
        except serde.UnserializableError as error:
            if self._transform is None or isinstance(self._transform, Plan):
                raise
            raise serde.UnserializableError(
                f"BaseDataset.send() was called with a transform that is a {type(self._transform).__name__}: Python code "
                "does not travel to another machine. Give a Plan as transform, or change the rows here first, with "
                "dataset.transform = None and dataset.transform(function)."
            ) from error

    def _check_here(self) -> None:
        if self.location is not None:
            raise ChainError(
                f"The data of this data set is on worker {self.location.id!r} already. Use the data set as it is, or "
                "fetch it first with `.get()`."
            )

    def get(self, user: str | None = None, reason: str = "") -> BaseDataset:
        """Fetch data and targets if they are elsewhere, in place; returns self."""
        if self._held is not None:
            fetched = self._held.get(user=user, reason=reason)
            self._data, self._targets, self._transform = fetched._data, fetched._targets, fetched._transform
            self._held = None
            return self
        # One after the other: if the second is refused, the first is here and not lost.
        self._data = _fetched(self._data, user, reason)
        self._targets = _fetched(self._targets, user, reason)
        return self

    def _as_pointers(self) -> None:
        """If a worker holds this as one object: go on with pointers to a copy of its rows, transformed."""
        if self._held is not None:
            self._data, self._targets = self._held.batch(range(len(self._held)))
            self._held = self._transform = None

    def fix_prec(self, *args: Any, **kwargs: Any) -> BaseDataset:
        """Data and targets in fixed precision, in place, where they are; returns self."""
        self._as_pointers()
        self._data = self._data.fix_precision(*args, **kwargs)
        self._targets = self._targets.fix_precision(*args, **kwargs)
        return self

    fix_precision = fix_prec

    def float_prec(self, *args: Any, **kwargs: Any) -> BaseDataset:
        """The inverse of `fix_prec`, in place; returns self."""
        self._as_pointers()
        self._data = self._data.float_precision(*args, **kwargs)
        self._targets = self._targets.float_precision(*args, **kwargs)
        return self

    float_precision = float_prec

    def share(self, *workers: Any, **kwargs: Any) -> BaseDataset:
        """Split data and targets into secret shares, in place; returns self. Reals after `fix_prec()`."""
        self._as_pointers()
        self._data = self._data.share(*workers, **kwargs)
        self._targets = self._targets.share(*workers, **kwargs)
        return self

    def split_privacy(self) -> tuple[BaseDataset, Allowed]:
        if self._held is not None:
            return self, None
        parts: list[Any] = []
        allowed: Allowed = None
        for value in (self._data, self._targets):
            deep = users_allowed(value.child) if type(value) is Wrapper else None
            if deep is not None and is_released_only(value.child):
                raise ValueError(
                    "A BaseDataset has tensors that may only be released (released_only=True): batches of it would be "
                    "computed with. Put the tensors on the worker by themselves, with load_data."
                )
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
        named: dict[str, Any] = {"id": self._id, "tags": self.tags, "description": self.description}
        if self._held is not None:
            return BaseDataset(*self._held.batch(range(len(self._held))), **named)
        transform = None if self._transform is None else private_copy(self._transform)
        return BaseDataset(private_copy(self._data), private_copy(self._targets), transform, **named)

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


def _as_tensor(value: Any) -> Any:
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def _fetched(value: Any, user: str | None, reason: str) -> Any:
    """What is kept elsewhere, here; a secret is opened; anything else as it is."""
    is_elsewhere = type(value) is Wrapper and value.child.is_remote
    if not is_elsewhere:
        return value
    return value.get() if value.location is None else value.get(user=user, reason=reason)


def _encode(_worker: Any, dataset: BaseDataset) -> tuple[Any, ...]:
    if dataset.held is not None:
        raise serde.UnserializableError(
            f"The data set is held by worker {dataset.location.id!r} as one object. Serialise its pointer, "
            "`dataset.held`, or fetch it first with `.get()`."
        )
    return (
        dataset.data,
        dataset.targets,
        dataset.transform_,
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

    def __getitem__(self, worker_id: Any) -> Any:
        """The part on a worker, given by its id or itself."""
        key = getattr(worker_id, "id", worker_id)
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
    size = length_of(self)
    shares: list[Rows] = list(_contiguous(size, len(places)))
    if parts is not None:
        shares = checked_parts(parts, size, len(places))
    logger.info("Data sets go to %s.", ", ".join(str(place.id) for place in places))
    return FederatedDataset(
        _put(self, rows, place, lazy) for rows, place in zip(shares, places, strict=False) if len(rows)
    )


def dataset_federate(dataset: Any, workers: Sequence[Any]) -> FederatedDataset:
    """`dataset.federate(workers)` as a function."""
    return federate(dataset, workers)


def _contiguous(count: int, workers: int) -> Iterator[range]:
    size = max(1, -(-count // workers))
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def _put(dataset: Any, rows: Rows, worker: Any, lazy: bool) -> Any:
    """Some rows of a data set on a worker."""
    if lazy:
        return LazyDataset(dataset, rows).send(worker)
    if isinstance(dataset, BaseDataset) and dataset.transform_ is not None:
        part = BaseDataset(take(dataset.data, rows), take(dataset.targets, rows), dataset.transform_)
        return part.send(worker)
    if tensors_of(dataset) is not None:
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
