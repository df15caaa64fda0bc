"""What a worker does with each message: one function per message type, all in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, map_tensors, new_wrapper
from syft.core.commands import command_named
from syft.core.spec import spec_of
from syft.exceptions import CannotRequestObjectAttribute
from syft.messaging.message import (
    AttributeMessage,
    CallBackwardMessage,
    CallMessage,
    CallObjectMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    Found,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    RemoteGetMessage,
    SearchMessage,
)
from syft.tensors.pointer import PointerTensor
from syft.tensors.private import PrivateTensor
from syft.tensors.transfer import private_copy
from syft.workers import executor
from syft.workers.permissions import Allowed, intersect

#: kind of a found object -> (found, location, owner) -> pointer; tensors are the default.
POINTER_KINDS: dict[str, Callable[[Any, Any, Any], Any]] = {}


def without_privacy(obj: Any) -> tuple[Any, Allowed]:
    """An object and the users who may fetch it: a PrivateTensor carries them, other objects have none."""
    if type(obj) is Wrapper and isinstance(obj.child, PrivateTensor):
        inner = obj.child.child
        allowed = frozenset(obj.child.allowed_users)
        return (inner if isinstance(inner, torch.Tensor) else new_wrapper(inner)), allowed
    return obj, None


def wrapped(result: Any) -> Any:
    """Results of a command with every pointer in a wrapper."""
    return map_tensors(lambda t: new_wrapper(t) if isinstance(t, AbstractTensor) else t, result)


# -- objects ---------------------------------------------------------------------------------------


def keep_object(worker: Any, message: ObjectMessage) -> None:
    obj, privacy = without_privacy(message.object)
    allowed = intersect(message.allowed, privacy)
    obj_id = obj.id if message.id is None else message.id
    if obj_id in worker._stored:
        worker.policy.check_send(message.user, obj_id, worker.allowed_users(obj_id))
        worker.add_reference(obj_id)
    if isinstance(obj, torch.Tensor) and obj.requires_grad:
        obj = obj.detach()
    if type(obj) is Wrapper and isinstance(obj.child, PointerTensor):
        obj.child.owner = worker
    worker.set_obj(obj_id, obj)
    worker.restrict(obj_id, allowed)


def give_object(worker: Any, message: ObjectRequestMessage) -> Any:
    obj_id, user, reason = message.request
    obj = worker.get_obj(obj_id)
    worker.policy.check_get(user, obj_id, worker.allowed_users(obj_id), reason)
    copy = private_copy(obj)
    if not message.keep:
        worker.rm_obj(obj_id)
    return copy


def forward_object(worker: Any, message: ForwardMessage) -> None:
    """Send an object on to another worker. What is restricted leaves only for those who may have it."""
    obj = worker.get_obj(message.id)
    allowed = worker.allowed_users(message.id)
    if allowed is not None:
        worker.policy.check_get(message.user, message.id, allowed, action="move")
    destination = worker.get_worker(message.destination, fail_hard=True)
    worker.send_msg(ObjectMessage(obj, message.new_id, allowed, message.user), destination)


def fetch_target(worker: Any, message: RemoteGetMessage) -> Any:
    """Replace a pointer that is held here by what it points to; replies the metadata of that."""
    held = worker.get_obj(message.id)
    if type(held) is not Wrapper or not isinstance(held.child, PointerTensor):
        from syft.exceptions import InvalidTensorForRemoteGet

        raise InvalidTensorForRemoteGet(held)
    pointer = held.child
    target_allowed = getattr(pointer.location, "allowed_users", lambda _id: None)(pointer.id_at_location)
    value = pointer.get(user=message.user)
    worker.set_obj(message.id, value)
    worker.restrict(message.id, intersect(worker.allowed_users(message.id), target_allowed))
    return spec_of(value)


def delete_objects(worker: Any, message: ForceObjectDeleteMessage) -> None:
    for obj_id in message.id if isinstance(message.id, tuple) else (message.id,):
        worker.force_rm_obj(obj_id)


def is_none(worker: Any, message: IsNoneMessage) -> bool:
    return worker._stored.get(message.id) is None


def shape_of(worker: Any, message: GetShapeMessage) -> tuple[int, ...]:
    return tuple(worker.get_obj(message.id).shape)


def read_or_write_attribute(worker: Any, message: AttributeMessage) -> Any:
    """Attributes of tensors from a fixed list; of other objects what stands in their own `__dict__`."""
    obj = worker.get_obj(message.id)
    if isinstance(obj, torch.Tensor):
        if message.is_write or message.name not in TENSOR_ATTRIBUTES:
            raise CannotRequestObjectAttribute(
                f"The attribute {message.name!r} of a tensor cannot be {'set' if message.is_write else 'read'} remotely. "
                f"These can be read: {', '.join(sorted(TENSOR_ATTRIBUTES))}."
            )
        value = TENSOR_ATTRIBUTES[message.name](obj)
    else:
        target = getattr(obj, "obj", obj)
        values = getattr(target, "__dict__", {})
        if message.name.startswith("_") or (message.name not in values and not message.is_write):
            raise CannotRequestObjectAttribute(
                f"{type(target).__name__} has no public attribute {message.name!r}. Its attributes are: "
                f"{', '.join(sorted(k for k in values if not k.startswith('_'))) or 'none'}."
            )
        if message.is_write:
            values[message.name] = executor.resolve(worker, (message.value,))[0]
            written_ids = executor.referenced_ids((message.value,))
            worker.restrict(
                message.id,
                intersect(worker.allowed_users(message.id), executor.allowed_on_all(worker, written_ids)),
            )
            return None
        value = values[message.name]
    worker.set_obj(message.return_id, value)
    worker.restrict(message.return_id, worker.allowed_users(message.id))
    return found_of(worker, message.return_id)


TENSOR_ATTRIBUTES: dict[str, Callable[[torch.Tensor], Any]] = {
    "data": lambda t: t.detach(),
    "T": lambda t: t.T,
    "mT": lambda t: t.mT,
    "H": lambda t: t.H,
    "real": lambda t: t.real,
    "imag": lambda t: t.imag,
}


def call_object(worker: Any, message: CallObjectMessage) -> Any:
    """Call what the owner of the data made callable; the result inherits the restrictions of all inputs."""
    obj = worker.get_obj(message.id)
    target = getattr(obj, "obj", obj)
    if not callable(target):
        raise TypeError(f"The object {message.id!r} is a {type(target).__name__} and cannot be called.")
    args = executor.resolve(worker, message.args)
    kwargs = dict(zip(message.kwargs, executor.resolve(worker, message.kwargs.values()), strict=True))
    allowed = executor.allowed_on_all(
        worker, [message.id, *executor.referenced_ids((message.args, message.kwargs))]
    )
    permitted = allowed is None
    result = executor.run_discreetly(lambda: target(*args, **kwargs), "the remote callable", permitted)
    worker.set_obj(message.return_id, result)
    worker.restrict(message.return_id, allowed)
    return found_of(worker, message.return_id)


# -- whole calls -----------------------------------------------------------------------------------


class CallRecord:
    """What a call needs to be differentiated later."""

    def __init__(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        self.inputs, self.outputs = inputs, outputs


def run_call(worker: Any, message: CallMessage) -> None:
    """Run a function with its own autograd graph inside; see syft.tensors.remote_call."""
    command = command_named(message.name)
    ids = executor.referenced_ids((message.args, message.kwargs))
    allowed = executor.allowed_on_all(worker, ids)
    inputs = dict.fromkeys(ids[i] for i in message.differentiable)
    leaves = {obj_id: worker.get_obj(obj_id).detach().requires_grad_() for obj_id in inputs}
    stand_in = _StoreWithLeaves(worker, leaves)
    args = executor.resolve(stand_in, message.args)
    kwargs = dict(zip(message.kwargs, executor.resolve(stand_in, message.kwargs.values()), strict=True))

    def call() -> Any:
        with torch.set_grad_enabled(bool(leaves)):
            return command.function(*args, **kwargs)

    result = executor.run_discreetly(call, message.name, allowed is None)
    outputs = executor.fresh_results(result, None)
    for output, obj_id in zip(outputs, message.return_ids, strict=True):
        worker.set_obj(obj_id, output.detach())
        worker.restrict(obj_id, allowed)
    if leaves:
        worker.set_obj(message.handle, CallRecord([leaves[ids[i]] for i in message.differentiable], outputs))
        worker.restrict(message.handle, allowed)


class _StoreWithLeaves:
    """A worker's objects, those to differentiate replaced by leaves of a new graph."""

    def __init__(self, worker: Any, leaves: dict[Any, torch.Tensor]) -> None:
        self.id = worker.id
        self._stored = {**worker._stored, **leaves} if leaves else worker._stored


def run_call_backward(worker: Any, message: CallBackwardMessage) -> None:
    record = worker.get_obj(message.handle)
    allowed = intersect(
        worker.allowed_users(message.handle),
        executor.allowed_on_all(worker, executor.referenced_ids(message.gradients)),
    )
    gradients = executor.resolve(worker, message.gradients)
    pairs = [
        (o, g) for o, g in zip(record.outputs, gradients, strict=True) if g is not None and o.requires_grad
    ]
    results = torch.autograd.grad(
        [o for o, _ in pairs],
        record.inputs,
        [g for _, g in pairs],
        retain_graph=True,
        allow_unused=True,
    )
    for value, leaf, obj_id in zip(results, record.inputs, message.return_ids, strict=True):
        worker.set_obj(obj_id, torch.zeros_like(leaf) if value is None else value)
        worker.restrict(obj_id, allowed)


# -- search ----------------------------------------------------------------------------------------


def search(worker: Any, message: SearchMessage) -> list[Found]:
    return find(worker, message.query)


def find(worker: Any, terms: tuple[Any, ...]) -> list[Found]:
    """The objects that match all terms: an id, a tag exactly, or part of the description."""
    found = []
    for obj_id, obj in list(worker._objects.items()):
        tags = getattr(obj, "tags", None) or ()
        description = getattr(obj, "description", None) or ""
        if all(str(term) == str(obj_id) or term in tags or str(term) in description for term in terms):
            found.append(found_of(worker, obj_id))
    return found


def found_of(worker: Any, obj_id: Any) -> Found:
    """What may be told about an object."""
    obj = worker._stored[obj_id]
    is_tensor = isinstance(obj, torch.Tensor)
    return Found(
        obj_id,
        "tensor" if is_tensor else _kind(obj),
        spec_of(obj) if is_tensor else None,
        tuple(getattr(obj, "tags", None) or ()),
        getattr(obj, "description", None),
    )


def _kind(obj: Any) -> str:
    return getattr(obj, "pointer_kind", "object")


HANDLERS: dict[type, Callable[[Any, Any], Any]] = {
    Operation: executor.execute,
    CallMessage: run_call,
    CallBackwardMessage: run_call_backward,
    ObjectMessage: keep_object,
    ObjectRequestMessage: give_object,
    ForwardMessage: forward_object,
    RemoteGetMessage: fetch_target,
    ForceObjectDeleteMessage: delete_objects,
    IsNoneMessage: is_none,
    GetShapeMessage: shape_of,
    AttributeMessage: read_or_write_attribute,
    CallObjectMessage: call_object,
    SearchMessage: search,
}
