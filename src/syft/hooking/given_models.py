"""Tensors of a model that are handed over to an open worker of this process, and back, together.

NOTE [Handed over]
`model.send(bob)` gives each tensor to bob, with its gradient, and `model.get()` takes it back. Where nobody else has its
memory (`syft.tensors.lone_memory`), and nobody guards, hears or names what travels, nothing has to be copied, asked or
told: the entry is made or taken, and the decision to hand it out is written to the audit log as ever. Every other tensor
goes by a message of its own. tests/hook/test_given_models.py compares both.
"""

from __future__ import annotations

import sys
import weakref
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
    requires_grad, has_gradient = tensor.requires_grad, tensor.grad is not None
    if has_gradient and not (requires_grad and has_lone_gradient(tensor)):
        return False
    obj_id = _free_id(tensor, location)
    gradient_id = _free_id(tensor.grad, location) if has_gradient else None
    if obj_id is None or (has_gradient and gradient_id is None):
        return False
    sent = _given(tensor.detach(), location, obj_id)
    if requires_grad:
        sent.requires_grad_()
        pointer: Any = sent.child
        location._entries[obj_id].leaf = weakref.ref(pointer)
        pointer.belong_to(tensor)
        if has_gradient:
            sent.grad = _given(tensor.grad.detach(), location, gradient_id)
    become(tensor, sent)
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


def _free_id(tensor: Any, location: Any) -> Any:
    """The id under which a nameless tensor goes to a worker; None if it has a name, or its id is not free there."""
    known = known_identity(tensor)
    if known is None:
        return ID_PROVIDER.pop()
    return None if known.tags or known.description or known.id in location._entries else known.id


def _given(value: torch.Tensor, location: Any, obj_id: Any) -> Wrapper:
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
    entry = location._entries.pop(obj_id)
    value, leaf = entry.value, entry.tracked
    del entry
    if leaf is not None and leaf._use_count() > 1:
        # A loss that is still there has a graph at the worker, of no use without this object: nobody reads the leaf.
        leaf.data = leaf.new_zeros(()).expand(leaf.shape)
    pointer.garbage_collect_data = False
    if not _is_sole_reference(value):
        return private_copy(value)
    if keeps_id:
        identity_of(value).id = obj_id
    return value
