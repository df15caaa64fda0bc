"""The gradients of leaves that were sent to workers of this process.

Gradients are kept by torch beside the pointer, here. A program that looks into `worker._objects` expects `.grad` at the
tensor there: `gradient_at` finds it.
"""

from __future__ import annotations

import weakref
from typing import Any

from syft.tensors.pointer import PointerTensor

#: (id of the worker, id of the object there) -> the pointer to it.
_leaves: weakref.WeakValueDictionary[tuple[Any, Any], PointerTensor] = weakref.WeakValueDictionary()


def note_leaf(pointer: PointerTensor) -> None:
    """Remember, weakly, a pointer whose wrapper collects a gradient."""
    if pointer.location.is_in_process:
        _leaves[pointer.location.id, pointer.id_at_location] = pointer


def gradient_at(worker_id: Any, obj_id: Any) -> PointerTensor | None:
    """The pointer to the gradient of an object that is at the same worker; None if it has none."""
    leaf = _leaves.get((worker_id, obj_id))
    gradient = None if leaf is None else leaf.grad
    node = None if gradient is None else gradient.child
    is_there = isinstance(node, PointerTensor) and node.location.id == worker_id
    return node if is_there else None
