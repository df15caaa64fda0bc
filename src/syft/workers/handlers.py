"""What a worker does with each message: one function per message type, all in one table."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, map_tensors, new_wrapper
from syft.core.identity import identity_of, known_identity
from syft.core.interfaces import Id, Worker
from syft.core.rooms import FilledLater
from syft.core.spec import spec_of
from syft.exceptions import (
    CannotRequestObjectAttribute,
    ComputeNotPermittedError,
    InvalidTensorForRemoteGet,
)
from syft.messaging.message import (
    AttributeMessage,
    BackwardMessage,
    CallObjectMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    Found,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
    RemoteGetMessage,
    SearchMessage,
)
from syft.operations.running import own_randomness
from syft.policy.caller import is_proved, user_of
from syft.policy.permissions import Allowed, AuditRecord, intersect
from syft.serde import mark_incompressible
from syft.tensors.pointer import PointerTensor
from syft.tensors.private import PrivateTensor, is_released_only, users_allowed
from syft.tensors.sending import private_copy
from syft.workers import graph_handlers, pipeline
from syft.workers.composed import call_unseen
from syft.workers.entry import Entry
from syft.workers.failures import tell_failures
from syft.workers.results import refuse_other_layouts

#: kind of a found object -> class of pointers to it; tensors are the default.
POINTER_KINDS: FilledLater[str, Callable[..., Any]] = FilledLater()


def without_privacy(obj: Any) -> tuple[Any, Allowed]:
    """An object and the users who may fetch it: a PrivateTensor carries them, most other objects have none."""
    if type(obj) is Wrapper and isinstance(obj.child, PrivateTensor):
        private = obj.child
        inner: Any = private.child
        if not isinstance(inner, torch.Tensor):
            inner = new_wrapper(inner)
        if private.tags or private.description:
            identity = identity_of(inner)
            identity.tags, identity.description = set(private.tags), private.description
        return inner, users_allowed(private)
    if hasattr(obj, "split_privacy"):  # a data set holds tensors, which may be private
        return obj.split_privacy()  # type: ignore[no-any-return]
    return obj, users_allowed(obj.child) if type(obj) is Wrapper else None


def wrapped(result: Any) -> Any:
    """Results of a command with every pointer in a wrapper."""
    return map_tensors(lambda t: new_wrapper(t) if isinstance(t, AbstractTensor) else t, result)


# -- objects ---------------------------------------------------------------------------------------


def keep_object(worker: Worker, message: ObjectMessage) -> None:
    refuse_other_layouts(message.object)
    released_only = is_released_only(getattr(message.object, "child", None))
    obj, privacy = without_privacy(message.object)
    allowed = intersect(message.allowed, privacy)
    obj_id = obj.id if message.id is None else message.id
    is_here = obj_id in worker._entries
    if is_here:
        worker.policy.check_send(user_of(message), obj_id, worker.changeable_by(obj_id))
        if message.user is not None and message.user != user_of(message):
            # A worker brings it on behalf of one of its users, and must not replace what it brought for another.
            worker.policy.check_send(message.user, obj_id, worker.allowed_users(obj_id))
    if isinstance(obj, torch.Tensor) and obj.requires_grad:
        obj = obj.detach()
    if type(obj) is Wrapper and isinstance(obj.child, PointerTensor):
        obj.child.owner = worker
    if type(obj_id) not in (int, str):
        raise TypeError(f"The id of an object is a number or a text; got a {type(obj_id).__name__}.")
    is_private = allowed is not None or worker._holdings is not None
    arrived = worker.policy.on_arrival(allowed, user_of(message))
    is_public = message.is_public and allowed is None
    entry = Entry(obj_id, obj, arrived, is_private=is_private, is_public=is_public)
    entry.is_released_only = released_only
    worker.store_entry(entry)
    if is_here:
        worker.add_reference(obj_id)


def give_object(worker: Worker, message: ObjectRequestMessage) -> Any:
    obj_id, _user, reason = message.request
    obj = worker.get_obj(obj_id)
    entry = worker.entry_of(obj_id)
    is_approved = pipeline.permit_get(worker, message, entry, reason)
    if entry.failure is not None:
        tell_failures((entry,))
    stays = message.keep or entry.is_owners or is_approved
    del entry  # it holds the object
    if stays:
        obj = private_copy(obj)
    else:
        worker.rm_obj(obj_id)
        if not _is_sole_reference(obj):
            obj = private_copy(obj)
    return mark_incompressible(obj) if message.is_random and type(obj) is torch.Tensor else obj


def _is_sole_reference(obj: Any) -> bool:
    """Whether a removed tensor can be handed over as it is: nobody here has it or shares its memory.

    Counted references: the caller's variable, this function's, and the argument of `getrefcount`; the storage is
    held by the tensor and by the object that `untyped_storage` returns.
    """
    return (
        type(obj) is torch.Tensor
        and sys.getrefcount(obj) <= 3
        and torch._C._storage_Use_Count(obj.untyped_storage()._cdata) <= 2
    )


def forward_object(worker: Worker, message: ForwardMessage) -> None:
    """Send an object on to another worker. What is restricted leaves only for those who may have it."""
    obj = worker.get_obj(message.id)
    allowed = worker.allowed_users(message.id)
    if allowed is not None or worker._holdings is not None:
        worker.policy.check_get(user_of(message), message.id, allowed, action="move")
    tell_failures((worker.entry_of(message.id),))
    destination = worker.get_worker(message.destination, fail_hard=True)
    worker.send_msg(ObjectMessage(obj, message.new_id, allowed, user_of(message)), destination)
    if not destination.is_in_process:
        destination.sync()  # whoever asked may use it there as soon as we have answered


def fetch_target(worker: Worker, message: RemoteGetMessage) -> Any:
    """Replace a pointer that is held here by what it points to; replies the metadata of that."""
    call = pipeline.permit(worker, message, (message.id,))
    held = worker.get_obj(message.id)
    if type(held) is not Wrapper or not isinstance(held.child, PointerTensor):
        # NB: named, not shown: it may be somebody else's data.
        raise InvalidTensorForRemoteGet(_Named(message.id, worker.id))
    pointer = held.child
    known = getattr(pointer.location, "allowed_users", None)
    # A worker that does not tell here who may have it gave it to this user alone.
    target_allowed = known(pointer.id_at_location) if known else frozenset({user_of(message) or ""})
    value = pointer.get(user=call.user)
    worker.set_obj(message.id, value, intersect(worker.allowed_users(message.id), target_allowed))
    return spec_of(value)


class _Named:
    """Stands for an object in an error message."""

    def __init__(self, obj_id: Id, worker_id: Any) -> None:
        self.text = f"Object {obj_id!r} on worker {worker_id!r}"

    def __repr__(self) -> str:
        return self.text


def delete_objects(worker: Worker, message: ForceObjectDeleteMessage) -> None:
    ids = message.id if isinstance(message.id, tuple) else (message.id,)
    user = user_of(message)
    for obj_id in ids:
        if _is_protected(worker, obj_id, user):
            worker.policy.check_send(user, obj_id, worker.changeable_by(obj_id), action="delete")
    for obj_id in ids:
        worker.force_rm_obj(obj_id)


def _is_protected(worker: Worker, obj_id: Id, user: str | None) -> bool:
    """Whether an object is removed only for those who may change it."""
    entry = worker._entries.get(obj_id)
    if entry is None:
        return False
    return bool(entry.is_private if worker._holdings is None else entry.holder != user)


def is_none(worker: Worker, message: IsNoneMessage) -> bool:
    if message.id not in worker._entries:
        pipeline.permit(worker, message)
        return True
    (entry,) = pipeline.permit(worker, message, (message.id,)).entries
    return entry.value is None


def shape_of(worker: Worker, message: GetShapeMessage) -> tuple[int, ...]:
    (entry,) = pipeline.permit(worker, message, (message.id,)).entries
    return tuple(entry.value.shape)


def read_or_write_attribute(worker: Worker, message: AttributeMessage) -> Any:
    """Attributes of tensors from a fixed list; of other objects what stands in their own `__dict__`."""
    if message.is_write:
        _write_attribute(worker, message)
        return None
    call = pipeline.permit(worker, message, (message.id,), (message.return_id,))
    obj = call.entries[0].value
    if isinstance(obj, torch.Tensor):
        read = TENSOR_ATTRIBUTES.find(message.name)
        if read is None:
            raise CannotRequestObjectAttribute(_no_attribute(message.name, "read"))
        value: Any = read(obj)
    else:
        # A copy: what an object holds inside must not be reached from outside by two ways.
        value = private_copy(_public_attributes(obj, message.name)[message.name])
    call.keep(message.return_id, value)
    return found_of(worker, message.return_id)


def _write_attribute(worker: Worker, message: AttributeMessage) -> None:
    obj = worker.get_obj(message.id)
    worker.policy.check_send(user_of(message), message.id, worker.changeable_by(message.id))
    if isinstance(obj, torch.Tensor):
        raise CannotRequestObjectAttribute(_no_attribute(message.name, "set"))
    values = _public_attributes(obj, message.name, may_be_new=True)
    target = getattr(obj, "obj", obj)
    if type(target).__module__.startswith("syft.") or hasattr(type(target), message.name):
        # What this library's own objects do must not be changed from outside, nor a method be hidden.
        raise CannotRequestObjectAttribute(
            f"The attribute {message.name!r} of a {type(target).__name__} cannot be set remotely. "
            "Send an object of your own instead."
        )
    written = worker.allowed_users(message.id)
    if isinstance(message.value, Ref):
        (entry,) = pipeline.permit(worker, message, (message.value.id,)).entries
        value = private_copy(entry.value)
        written = intersect(written, entry.allowed)
    else:
        value = private_copy(message.value)
    before = values.copy()
    values[message.name] = value
    try:
        worker.set_obj(message.id, obj, written)  # what it holds has changed
    except BaseException:
        del values[message.name]
        values.update(before)
        raise


def _public_attributes(obj: Any, name: str, may_be_new: bool = False) -> dict[str, Any]:
    target = getattr(obj, "obj", obj)
    values: dict[str, Any] | None = getattr(target, "__dict__", None)
    if values is None or name.startswith("_") or (name not in values and not may_be_new):
        raise CannotRequestObjectAttribute(
            f"{type(target).__name__} has no public attribute {name!r}. Its attributes are: "
            f"{', '.join(sorted(k for k in values or () if not k.startswith('_'))) or 'none'}."
        )
    return values


def _no_attribute(name: str, access: str) -> str:
    return (
        f"The attribute {name!r} of a tensor cannot be {access} remotely. These can be read: "
        f"{', '.join(sorted(TENSOR_ATTRIBUTES))}."
    )


#: name -> what reads it of a tensor
TENSOR_ATTRIBUTES: FilledLater[str, Callable[[torch.Tensor], Any]] = FilledLater(
    {
        "data": lambda t: t.detach(),
        "T": lambda t: t.T,
        "mT": lambda t: t.mT,
        "H": lambda t: t.H,
        "real": lambda t: t.real,
        "imag": lambda t: t.imag,
    }
)


def _no_tensors(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if not isinstance(entry.value, torch.Tensor)]


def call_object(worker: Worker, message: CallObjectMessage) -> Any:
    """Call a callable that is held here; the result inherits the restrictions of all inputs.

    The owner of this worker answers for the callables they put here. One that came by message is given restricted data
    only for somebody who may have it. For a user who may not fetch all inputs, the callable has to be made of admitted
    operations, and what it returns is told beforehand: see `call_unseen`.
    """
    obj = worker.get_obj(message.id)
    target = getattr(obj, "obj", obj)
    is_trusted = worker.entry_of(message.id).is_trusted
    if worker._holdings is not None and not is_trusted:
        # NB: nor could it be told how much memory it will take. And whose it is, may not be told what it is.
        user = user_of(message)
        worker.policy.record(AuditRecord("compute", message.id, user, False, reason="call"))
        raise ComputeNotPermittedError(
            f"The object {message.id!r} was not put on worker {worker.id!r} by its owner, and is not called there. A "
            "plan is called after plan.send(worker)."
        )
    if not callable(target):
        raise TypeError(f"The object {message.id!r} is a {type(target).__name__} and cannot be called.")
    ids = pipeline.referenced_ids((message.args, message.kwargs))
    call = pipeline.permit(worker, message, [message.id, *ids], (message.return_id,))
    if not is_trusted:
        call.check_get("call a function of their own on", call.entries[1:])
    args = pipeline.resolve_objects(worker, message.args)
    kwargs = pipeline.resolve_objects(worker, message.kwargs)
    if call.allowed is not None:
        worker.taint([*args, *kwargs.values()], call.allowed, call.entries)
    with contextlib.nullcontext() if call.allowed is None else own_randomness():
        if call.is_free or call.may_see:
            tell_failures(call.entries)
            result, failure = target(*args, **kwargs), None
        else:
            call.check_get(
                "call a function on a thing that is no tensor, and that is", _no_tensors(call.entries[1:])
            )
            result, failure = call_unseen(call, target, args, kwargs)
    call.keep(message.return_id, private_copy(result), failure)  # the callable may have kept what it returned
    return found_of(worker, message.return_id)


# -- search ----------------------------------------------------------------------------------------


def search(worker: Worker, message: SearchMessage) -> list[Found]:
    return find(worker, message.query)


def find(worker: Worker, terms: tuple[Any, ...]) -> list[Found]:
    """The objects that match all terms: an id, a tag exactly, or part of the description.

    Without terms, all that the user may find, whether they have a name or not. An empty term matches nothing.
    """
    found: list[Found] = []
    if any(str(term) == "" for term in terms):
        return found
    # The owner, who searches in the process of the worker, sees everything.
    asks = worker._holdings is not None and is_proved()
    if asks:
        worker.policy.count("searches", user_of(None))
    names = {str(term) for term in terms}
    worker.run_deletes()
    if names:
        ids = worker._findable.among(terms, names | _as_numbers(names))
    else:
        ids = list(worker._entries)
    for obj_id in ids:
        entry = worker._entries.get(obj_id)
        obj = None if entry is None else entry.value
        if entry is None or (
            names and type(obj) is torch.Tensor and known_identity(obj) is None and str(obj_id) not in names
        ):
            continue
        tags = getattr(obj, "tags", None) or ()
        description = getattr(obj, "description", None) or ""
        if not all(str(term) == str(obj_id) or term in tags or str(term) in description for term in terms):
            continue
        may_find = not asks or worker.policy.may_find(user_of(None), worker.about(obj_id))
        if may_find and worker._entries.get(obj_id) is entry:  # another thread may have taken it away
            found.append(_told(entry))
    return found


def _as_numbers(names: set[str]) -> set[Any]:
    """The ids that are numbers among texts."""
    return {int(name) for name in names if name.isascii() and name.removeprefix("-").isdigit()}


def found_of(worker: Worker, obj_id: Id) -> Found:
    """What may be told about an object that is held here."""
    return _told(worker._entries[obj_id])


def _told(entry: Entry) -> Found:
    obj = entry.value
    is_tensor = isinstance(obj, torch.Tensor)
    spec = spec_of(obj) if is_tensor else None
    return Found(
        entry.id,
        "secret" if entry.secret is not None else "tensor" if is_tensor else _kind(obj),
        spec,
        tuple(getattr(obj, "tags", None) or ()),
        getattr(obj, "description", None),
    )


def _kind(obj: Any) -> str:
    return getattr(obj, "pointer_kind", "object")


#: type of a message -> what answers it
HANDLERS: FilledLater[type, Callable[[Any, Any], Any]] = FilledLater(
    {
        Operation: pipeline.execute,
        ObjectMessage: keep_object,
        ObjectRequestMessage: give_object,
        ForwardMessage: forward_object,
        RemoteGetMessage: fetch_target,
        ForceObjectDeleteMessage: delete_objects,
        IsNoneMessage: is_none,
        GetShapeMessage: shape_of,
        AttributeMessage: read_or_write_attribute,
        CallObjectMessage: call_object,
        BackwardMessage: graph_handlers.run_backward,
        SearchMessage: search,
    }
)

#: The same for what comes often and needs neither the worker's lock nor to know who asks: (worker, message, source). The
#: source is the `syft.transport.session_lending.Lending` of the connection. These messages have a handler above, too.
WITHOUT_LOCK: dict[type, Callable[[Any, Any, Any], None]] = {}
