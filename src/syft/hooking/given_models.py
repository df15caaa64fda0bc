"""Tensors of a model that are handed over to an open worker of this process, and back, together.

NOTE [Handed over]
`model.send(bob)` gives each tensor to bob, with its gradient, and `model.get()` takes it back. Where nobody else has its
memory (`syft.tensors.lone_memory`), and nobody guards, hears or names what travels, nothing has to be copied, asked or
told: the entry is made or taken, and the decision to hand it out is written to the audit log as ever. Every other tensor
goes by a message of its own. tests/hook/test_given_models.py compares both.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.identity import identity_of, known_identity
from syft.core.ids import ID_PROVIDER
from syft.core.memory import CACHES
from syft.core.place import PLACE
from syft.core.session import session
from syft.core.spec import spec_of
from syft.core.swap import become
from syft.policy.caller import user_of
from syft.policy.permissions import AuditRecord, Policy
from syft.tensors.lone_memory import has_lone_gradient, has_lone_memory, references_of_lone_tensors
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.remote_leaves import note_leaf
from syft.tensors.sending import private_copy
from syft.workers.entry import Entry
from syft.workers.handlers import _is_sole_reference
from syft.workers.virtual import VirtualWorker

_SENDS, _HANDLES = VirtualWorker._send_msg, VirtualWorker._recv_msg
_disable_torch_function = torch._C.DisableTorchFunctionSubclass
_KINDS = frozenset({torch.Tensor, torch.nn.Parameter})


def gives_freely(location: Any) -> bool:
    """Whether a message about a tensor that is nobody else's does no more at a worker than to store or take it."""
    me = session.local_worker
    return (
        type(location) is VirtualWorker
        and type(me) is VirtualWorker
        and location is not me
        and type(location.policy) is Policy
        and location.policy.allows_by_default
        and CACHES.are_on
        and PLACE.at is None
        and VirtualWorker._send_msg is _SENDS
        and VirtualWorker._recv_msg is _HANDLES
        and not {"send_msg", "give_msg", "_recv_msg"} & (vars(me).keys() | vars(location).keys())
        and not (me.verbose or location.verbose or location.log_msgs or location.guards)
        and location._holdings is None
        and location.device is None
        and not location._waiting_deletes
    )


def give(tensor: Any, location: Any) -> bool:
    """Hand a tensor and its gradient over to a worker, in place; whether it was. If not, nothing has changed."""
    with _disable_torch_function():
        return _give(tensor, location)


def _give(tensor: Any, location: Any) -> bool:
    if type(tensor) not in _KINDS or not tensor.is_leaf or _has_hooks(tensor) or not has_lone_memory(tensor):
        return False
    has_gradient = tensor.grad is not None
    if has_gradient and not (has_lone_gradient(tensor) and tensor.requires_grad):
        return False
    if not _is_nameless(tensor, location) or (has_gradient and not _is_nameless(tensor.grad, location)):
        return False
    sent = _given(tensor, location)
    if tensor.requires_grad:
        sent.requires_grad_()
        note_leaf(sent.child)
        if has_gradient:
            sent.grad = _given(tensor.grad, location)
    become(tensor, sent)
    if tensor.requires_grad:
        tensor.child.belong_to(tensor)
    return True


def take(tensors: list[Any]) -> list[Any]:
    """Take tensors and their gradients back from their workers, in place; returns those that a message has to fetch."""
    left: list[Any] = []
    free: dict[Any, bool] = {}
    with _disable_torch_function():
        for tensor in tensors:
            # NB: no variable for the pointer, whose references are counted.
            location = tensor.child._location if type(tensor.child) is PointerTensor else None
            if location not in free:
                free[location] = gives_freely(location)
            if not free[location] or not _take(tensor):
                left.append(tensor)
    return left


def _take(tensor: Any) -> bool:
    pointer = tensor.child
    # References: the wrapper's, this variable, the argument of getrefcount.
    if not _is_ours(pointer) or sys.getrefcount(pointer) > 3 or not tensor.is_leaf or _has_hooks(tensor):
        return False
    requires_grad = tensor.requires_grad
    if not requires_grad and tensor._use_count() > 1:
        return False
    location, gradient = pointer._location, tensor.grad
    head: Any = None
    if gradient is not None:
        head = gradient.child if type(gradient) is Wrapper else None
        if not _is_ours(head) or head._location is not location or gradient.requires_grad:
            return False
        # The wrapper's, this variable, the argument of getrefcount; and those of a gradient that nobody else has.
        if sys.getrefcount(head) > 3 or sys.getrefcount(gradient) > references_of_lone_tensors()[2]:
            return False
    taken = None if head is None else _taken(head, False)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    value = _taken(pointer, not is_parameter)
    if is_parameter:
        value = torch.nn.Parameter(value, requires_grad)
    elif requires_grad:
        value.requires_grad_()
    if taken is not None:
        value.grad = taken
        tensor.grad = None
    tensor.child = None
    become(tensor, value)
    return True


def _has_hooks(tensor: Any) -> bool:
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def _is_nameless(tensor: Any, location: Any) -> bool:
    known = known_identity(tensor)
    return known is None or not (known.tags or known.description or known.id in location._entries)


def _given(tensor: Any, location: Any) -> Wrapper:
    known, value = known_identity(tensor), tensor.detach()
    obj_id = ID_PROVIDER.pop() if known is None else known.id
    location._entries[obj_id] = Entry(obj_id, value)
    return new_wrapper(new_pointer(location, obj_id, spec_of(value)))


def _is_ours(pointer: Any) -> bool:
    """Whether a pointer is to a nameless object that goes with it, and that everybody may have."""
    if type(pointer) is not PointerTensor or pointer._owner is not None or not pointer.garbage_collect_data:
        return False
    if pointer.point_to_attr or pointer._prefetched is not None or pointer.private_to is not None:
        return False
    if pointer._tags or pointer.description or pointer._tape is not None:
        return False
    entry = pointer._location._entries.get(pointer._id_at_location)
    if entry is None or entry.allowed is not None or entry.failure is not None or entry.is_owners:
        return False
    return not entry.references and type(entry.value) is torch.Tensor and known_identity(entry.value) is None


def _taken(pointer: Any, keeps_id: bool) -> Any:
    location, obj_id = pointer._location, pointer._id_at_location
    location.policy.record(AuditRecord("get", obj_id, user_of(None), True, ""))
    value = location._entries.pop(obj_id).value
    pointer.garbage_collect_data = False
    if not _is_sole_reference(value):
        return private_copy(value)
    if keeps_id:
        identity_of(value).id = obj_id
    return value
