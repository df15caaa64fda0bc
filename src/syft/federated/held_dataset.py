"""Data sets that a worker can hold, and batches of their rows. Imports nothing of this room.

HeldDataset          what all of them share: an id, tags, batches, `send_whole`
LazyDataset(dataset) rows of any torch Dataset, read when a batch is asked for
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, TensorDataset, default_collate

from syft.core.chain import Wrapper
from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.exceptions import SendNotPermittedError
from syft.messaging.message import ObjectMessage
from syft.policy.permissions import Allowed
from syft.tensors.object_wrapper import POINTERS

Rows = Sequence[int]


# -- batches of whatever is here ---------------------------------------------------------------------------


def batch_of(dataset: Any, rows: Rows) -> Any:
    """A batch of these rows of any data set with numbered items, as a DataLoader would collate it.

    Rows of tensors are taken at once; neighbouring ones are not copied. Other items are read one by one.
    """
    tensors = tensors_of(dataset)
    if tensors is not None:
        return tuple(take(t, rows) for t in tensors)
    if hasattr(dataset, "__getitems__"):
        return default_collate(dataset.__getitems__(list(rows)))
    return default_collate([dataset[row] for row in rows])


def tensors_of(dataset: Any) -> tuple[Any, ...] | None:
    """The tensors whose rows are the items of a data set, if it is made of such."""
    if isinstance(dataset, HeldDataset):
        return dataset.tensors_of_items()
    return dataset.tensors if type(dataset) is TensorDataset else None


def take(tensor: Any, rows: Rows) -> Any:
    """These rows of a tensor; neighbouring ones as a view."""
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
        raise NotImplementedError(
            f"{type(self).__name__} has no __len__. Define one that returns the number of rows."
        )

    @property
    def shape(self) -> torch.Size:
        """The number of rows, for whoever points to this."""
        return torch.Size((len(self),))

    def tensors_of_items(self) -> tuple[Any, ...] | None:
        """The tensors whose rows are the items as they are; None if items are made one by one."""
        return None

    def sample(self) -> Any:
        """A batch of one row with zeros in the place of all values: it tells what batches look like.

        It is made without a look at any row. (Of a LazyDataset, which has nothing but rows, the first one tells.)
        """
        tensors = self.tensors_of_items()
        if tensors is None:
            return default_collate([self._sample_item()])
        return tuple(torch.zeros((1, *t.shape[1:]), dtype=t.dtype) for t in tensors)

    def _sample_item(self) -> Any:
        """An item of zeros."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its rows look like.")

    def check_rows(self, rows: Rows) -> None:
        """!! IndexError for a row that there is not"""
        count = len(self)
        wrong = next((row for row in rows if not 0 <= row < count), None)
        if wrong is not None:
            raise IndexError(f"Row {wrong} was asked for; the data set has the rows 0 to {count - 1}.")

    def batch(self, rows: Rows) -> Any:
        """A batch of these rows, in memory of its own."""
        self.check_rows(rows)
        source, numbers = self._source(rows)
        made = batch_of(source, numbers)
        return made if tensors_of(source) is None else tuple(value.clone() for value in made)

    def _source(self, rows: Rows) -> tuple[Any, Rows]:
        """What the rows are read from, and their numbers there."""
        return self, rows

    def send_whole(self, worker: Any, garbage_collect_data: bool = True, user: str | None = None) -> Any:
        """Put a copy on a worker, as one object; returns a PointerDataset. Transforms go along and run there.

        Private tensors inside restrict the whole data set to those who may have all of them; `user` must be one.
        """
        me = session.require_local_worker()
        location = me.get_worker(worker, fail_hard=True)
        obj, allowed = self.split_privacy()
        check_sender(allowed, user)
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

    @property
    def location(self) -> Any:
        """The worker that holds the rows; None when they are here."""
        return None


def check_sender(allowed: Allowed, user: str | None) -> None:
    """!! SendNotPermittedError if a private data set would be sent by somebody else"""
    if allowed is not None and user not in allowed:
        raise SendNotPermittedError(
            f"The data set is private to {sorted(map(str, allowed))} and {user!r} is not among them. Name an "
            "allowed user with send(worker, user=...)."
        )


class LazyDataset(HeldDataset):
    """Rows of a torch Dataset that stays as it is; an item is read when a batch with it is asked for.

    A worker in this process can hold it, and the owner of a worker can put one on it. It does not travel: what
    reads the items (files, a database) is where it is.
    """

    def __init__(self, dataset: Any, rows: Rows | None = None, **identity: Any) -> None:
        super().__init__(**identity)
        self._dataset = dataset
        self._rows: Rows = range(length_of(dataset)) if rows is None else rows
        self._zeros: Any = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[self._rows[index]]

    def _source(self, rows: Rows) -> tuple[Any, Rows]:
        return self._dataset, [self._rows[row] for row in rows]

    def _sample_item(self) -> Any:
        if self._zeros is None:
            self._zeros = tree_map(_zero, self[0])
        return self._zeros

    #: There are no tensors here to be turned into pointers, so the worker holds it as one object.
    send = HeldDataset.send_whole

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyDataset:
        # Where the rows come from is not copied: nothing of it is in memory.
        return LazyDataset(
            self._dataset, self._rows, id=self._id, tags=self.tags, description=self.description
        )

    def __repr__(self) -> str:
        return f"<LazyDataset of {len(self)} rows of a {type(self._dataset).__name__}>"

    __str__ = __repr__


def _zero(part: Any) -> Any:
    return torch.zeros_like(part) if isinstance(part, torch.Tensor) else 0 * part


def length_of(dataset: Any) -> int:
    """!! TypeError for what has no length"""
    try:
        return len(dataset)
    except TypeError:
        raise TypeError(
            f"A {type(dataset).__name__} has no length and no numbered items, so it cannot be split among workers. Give "
            "a Dataset with __len__ and __getitem__."
        ) from None
