"""`PointerDataset`: a data set that a worker holds. Batches are made there; only their metadata comes here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from syft import serde
from syft.core import shapes
from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.core.nested import found_in
from syft.exceptions import AlreadyFetchedError
from syft.federated.dataset import BaseDataset
from syft.federated.held_dataset import HeldDataset, Rows
from syft.messaging.message import BatchMessage, GetShapeMessage
from syft.operations.running import own_randomness
from syft.policy.owner_log import tell_owner
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS
from syft.tensors.pointer import results_from_reply
from syft.workers import handlers, pipeline
from syft.workers.results import fresh_results


class PointerDataset(ObjectPointer):
    """Points to a BaseDataset or LazyDataset; made by `send_whole`, or found by a search."""

    length: int | None = None
    _is_fetched = False

    def __len__(self) -> int:
        if self.length is None:
            self.length = int(self.ask(GetShapeMessage(self.id_at_location))[0])
        return self.length

    def __bool__(self) -> bool:
        return True

    def batch(self, rows: Rows) -> Any:
        """Pointers to a batch of these rows, which the worker makes: reads, transforms, collates."""
        reply = self.ask(BatchMessage(self.id_at_location, tuple(int(row) for row in rows)))
        return handlers.wrapped(results_from_reply(reply, self.location))

    def __getitem__(self, index: Any) -> Any:
        """Pointers to an item (data, target); of a slice or list, to a batch."""
        rows = range(len(self))
        if isinstance(index, slice):
            return self.batch(rows[index])
        if isinstance(index, (list, tuple, torch.Tensor)) and getattr(index, "ndim", 1) == 1:
            return self.batch([rows[int(i)] for i in index])
        return tuple(value[0] for value in self.batch([rows[int(index)]]))

    @property
    def data(self) -> Any:
        """A pointer to all the data, transformed, in a copy of its own."""
        return self.batch(range(len(self)))[0]

    @property
    def targets(self) -> Any:
        """A pointer to all the targets, in a copy of its own."""
        return self.batch(range(len(self)))[1]

    def get(self, user: str | None = None, reason: str = "", deregister_ptr: bool = True) -> Any:
        """Fetch the data set and remove it there."""
        if self._is_fetched:
            raise AlreadyFetchedError
        fetched = super().get(user, reason, deregister_ptr)
        self._is_fetched = True
        return fetched

    def as_pointers(self) -> BaseDataset:
        """A BaseDataset of pointers to a copy of the rows, transformed, for what works on tensors only."""
        data, targets = self.batch(range(len(self)))
        return BaseDataset(data, targets)

    def fix_prec(self, *args: Any, **kwargs: Any) -> BaseDataset:
        """The rows in fixed precision, where they are, as a BaseDataset of pointers."""
        return self.as_pointers().fix_prec(*args, **kwargs)

    fix_precision = fix_prec

    def share(self, *workers: Any, **kwargs: Any) -> BaseDataset:
        """The rows split into secret shares by the worker that has them, as a BaseDataset."""
        return self.as_pointers().share(*workers, **kwargs)


def make_batch(worker: Worker, message: BatchMessage) -> Any:
    """Make and store a batch; replies ids and metadata. It may be fetched by those who may have the data set.

    To others its shapes are told from what a row of zeros becomes. A batch that fails, or has other shapes, is zeros.
    """
    call = pipeline.permit(worker, message, [message.id], name=f"The batch of {len(message.rows)} rows")
    dataset = call.entries[0].value
    if not isinstance(dataset, HeldDataset):
        raise TypeError(
            f"The object {message.id!r} is a {type(dataset).__name__}, of which there are no batches."
        )
    dataset.check_rows(message.rows)

    # The methods of the class: attributes of an object can be set by messages.
    def made() -> Any:
        with contextlib.nullcontext() if call.allowed is None else own_randomness():
            return _tuples(type(dataset).batch(dataset, message.rows))

    failure: str | None = None
    if call.is_free:
        batch = made()
    elif call.may_see:
        with own_randomness():
            sample = _tuples(type(dataset).sample(dataset))
        call.check_fits(_bytes_in(sample) * len(message.rows))
        batch = made()
    else:
        batch, failure = _batch_unseen(call, type(dataset).sample, dataset, made, len(message.rows))
    ids = []
    for value in fresh_results(batch, None):
        ids.append(ID_PROVIDER.pop())
        call.keep(ids[-1], value, failure)
    return tuple(ids), shapes.describe(batch)


def _batch_unseen(
    call: pipeline.Call, sample: Callable[[Any], Any], dataset: Any, made: Callable[[], Any], count: int
) -> tuple[Any, str | None]:
    """A batch for a user who may not see it, and why it is zeros, if it is."""
    with own_randomness():
        row = pipeline.run_discreetly(
            lambda: _tuples(sample(dataset)), "a row of zeros of the data set", False
        )
    call.check_fits(_bytes_in(row) * count)
    zeros = tree_map(lambda t: t.new_zeros((count, *t.shape[1:])), row)
    try:
        batch = tree_map(torch.Tensor.contiguous, made())
        if _layout(batch) == _layout(zeros):
            return batch, None
        failure = "its rows have other shapes than a row of zeros becomes."
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
        tell_owner(call.name, error)
        failure = f"{type(error).__name__}: {error}"
    return zeros, failure


def _layout(batch: Any) -> Any:
    return tree_map(lambda t: (tuple(t.shape), t.dtype), batch)


def _bytes_in(batch: Any) -> int:
    return sum(t.numel() * t.dtype.itemsize for t in found_in(batch, torch.Tensor))


def _tuples(batch: Any) -> Any:
    """A batch as nested tuples of tensors; !! TypeError for anything else in it."""
    if isinstance(batch, (tuple, list)):
        return tuple(_tuples(value) for value in batch)
    if isinstance(batch, torch.Tensor) and not any(found_in(batch, dict)):
        return batch
    raise TypeError(
        f"A batch on a worker consists of tensors; this one has a {type(batch).__name__}. Let the data set return "
        "tensors and numbers, in tuples."
    )


def _encode(_worker: Worker, pointer: PointerDataset) -> tuple[Any, ...]:
    return (
        pointer.location,
        pointer.id_at_location,
        pointer.length,
        tuple(pointer.tags),
        pointer.description,
    )


def _decode(_worker: Worker, parts: Any) -> PointerDataset:
    # It does not delete what it points to: see NOTE [Who deletes, on the wire].
    location, id_at_location, length, tags, description = parts
    made = PointerDataset(
        location, id_at_location, garbage_collect_data=False, tags=tags, description=description
    )
    made.length = length
    return made


serde.register(
    PointerDataset,
    "PointerDataset",
    _encode,
    _decode,
    fields=tuple[Any, int | str, int | None, tuple[str, ...], str | None],
)
POINTERS[HeldDataset.pointer_kind] = PointerDataset
handlers.POINTER_KINDS[HeldDataset.pointer_kind] = PointerDataset
handlers.HANDLERS[BatchMessage] = make_batch
