"""Graphs of what users compute, kept in the entries of an open worker; see NOTE [Two graphs, one of them used]."""

from __future__ import annotations

import threading
from typing import Any

import torch

from syft.core.ids import ID_PROVIDER
from syft.core.spec import spec_of
from syft.exceptions import ObjectNotFoundError
from syft.messaging.message import BackwardMessage, LeafRef
from syft.tensors.pointer import new_pointer
from syft.workers.entry import Entry

#: What the dispatcher includes and excludes outside of all modes and operations.
OUTSIDE = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()

#: One backward pass at a time has the `.grad` of leaves.
_differentiating = threading.Lock()


def tracked_value(worker: Any, ref: Any, found: list[Entry] | None) -> Any:
    """The value of a reference with its graph. Where there is none, the value alone, and the tape is invalid."""
    entry = worker._entries.get(ref.id)
    if entry is None:
        raise ObjectNotFoundError(ref.id, worker)
    if found is not None:
        found.append(entry)
    tracked = entry.tracked
    is_leaf = type(ref) is LeafRef
    if tracked is None and is_leaf and type(entry.value) is torch.Tensor:
        tracked = entry.tracked = entry.value.detach().requires_grad_()
    if tracked is None or tracked.is_leaf is not is_leaf:
        ref.tape.root().is_invalid = True
        return entry.value
    return tracked


def is_tracked(args: list[Any]) -> bool:
    """Whether an argument has a graph."""
    for value in args:  # noqa: SIM110  (a generator costs more than all of this)
        if type(value) is torch.Tensor and value.requires_grad:
            return True
    return False


def run_tracked(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a command with autograd, which torch has turned off inside the dispatcher, where its sender is."""
    with torch._C._ForceDispatchKeyGuard(*OUTSIDE):
        return function(*args, **kwargs)


def run_backward(worker: Any, message: BackwardMessage) -> Any:
    """Differentiate a graph that is kept here: pointers to the new gradients of its leaves, None where there is none.

    None instead of all if it is not here, or if anybody guards what is computed.
    """
    entries = worker._entries
    result = entries.get(message.id)
    leaves: list[Any] = [entries.get(obj_id) for obj_id in message.leaves]
    before = [None if obj_id is None else entries.get(obj_id, message) for obj_id in message.gradients]
    if worker.guards or result is None or result.tracked is None or message in before:
        return None
    for leaf, old in zip(leaves, before, strict=True):
        if leaf is None or leaf.tracked is None or not leaf.tracked.is_leaf:
            return None
        if old is not None and (old.allowed is not None or type(old.value) is not torch.Tensor):
            return None
    with _differentiating:
        try:
            for leaf, old in zip(leaves, before, strict=True):
                leaf.tracked.grad = None if old is None else old.value
            torch.autograd.backward(result.tracked)
            after = [leaf.tracked.grad for leaf in leaves]
        finally:
            for leaf in leaves:
                leaf.tracked.grad = None
    made: list[Any] = []
    for old, gradient in zip(before, after, strict=True):
        if gradient is None or (old is not None and gradient is old.value):
            made.append(None)
            continue
        obj_id = ID_PROVIDER.pop()
        entries[obj_id] = Entry(obj_id, gradient)
        made.append(new_pointer(worker, obj_id, spec_of(gradient)))
    return tuple(made)
