"""What travels of a tensor, and the messages it travels by: from here to a worker, and from one worker to another.

The autograd graph has no part in this: `transfer` has.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.identity import identity_of, known_identity
from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.core.spec import TensorSpec, is_dense_layout, make_spec, spec_of
from syft.exceptions import (
    PermissionDeniedError,
    SendNotPermittedError,
    UnsupportedOperationError,
    WorkerNotFoundException,
)
from syft.messaging.message import ForwardMessage, IsNoneMessage, ObjectMessage
from syft.tensors.pointer import PointerTensor
from syft.tensors.private import users_allowed


def private_copy(obj: Any) -> Any:
    """An object as if it had travelled: nothing of it is shared with the original."""
    if type(obj) is Wrapper and obj.location is not None:  # type: ignore[attr-defined]
        return obj  # a pointer travels as itself
    if isinstance(obj, torch.Tensor):
        made = obj.detach().clone()
        known = known_identity(obj) if type(obj) is not Wrapper else obj.child
        if known is not None and (known.tags or known.description):
            identity = identity_of(made)
            identity.tags, identity.description = set(known.tags), known.description
        return made
    return copy.deepcopy(obj)


def spec_when_sent(tensor: torch.Tensor) -> TensorSpec:
    """The metadata a tensor has after it has been copied to a worker."""
    marked = _number_format(tensor.child) if type(tensor) is Wrapper else None
    if tensor.is_contiguous() or (0 not in tensor.shape and is_dense_layout(tensor.shape, tensor.stride())):
        return make_spec(tensor.shape, tensor.stride(), 0, tensor.dtype, marked)
    made = spec_of(torch.empty_like(spec_of(tensor).meta()))
    return make_spec(made.shape, made.strides, made.offset, made.dtype, marked) if marked else made


def _number_format(node: Any) -> tuple[int, int] | None:
    """The format of a chain with fixed precision in it, or of what a pointer to such a chain points to."""
    while isinstance(node, AbstractTensor):
        if node.number_format is not None:
            return node.number_format
        if isinstance(node, PointerTensor):
            return node.spec.number_format
        node = node.child
    return None


def check_may_send(tensor: Any, user: str | None) -> frozenset[Any] | None:
    """The users a tensor is private to, None for everybody. !! SendNotPermittedError if `user` is not among them"""
    allowed = users_allowed(tensor.child if type(tensor) is Wrapper else None)
    if allowed is not None and user not in allowed:
        raise SendNotPermittedError(
            f"The tensor is private to {sorted(map(str, allowed))} and {user!r} is not among them. Name an allowed "
            "user with send(worker, user=...)."
        )
    return allowed


def send_value(
    tensor: torch.Tensor,
    location: Any,
    user: str | None,
    garbage_collect_data: bool,
    obj_id: Any = None,
    is_given: bool = False,
) -> PointerTensor:
    """Copy a tensor (or hand over a pointer) to a worker; returns the pointer to it.

    `is_given`: nobody but the caller has it, who lets go of it: it is not copied where it does not travel.
    """
    if tensor.layout is not torch.strided:
        raise UnsupportedOperationError(
            f"sending a tensor of layout {tensor.layout}",
            PointerTensor,
            "Call `.to_dense()` before sending it.",
        )
    identity = identity_of(tensor)
    head = tensor.child if type(tensor) is Wrapper else None
    allowed = check_may_send(tensor, user)
    sent: Any = tensor.detach()
    if isinstance(head, PointerTensor):
        sent = _pointer_to_hand_over(head, location)
    elif identity.tags or identity.description:
        sent_identity = identity_of(sent)
        sent_identity.tags, sent_identity.description = set(identity.tags), identity.description
    remote_id = identity.id if obj_id is None else obj_id
    me = session.require_local_worker()
    try:
        carry = me.give_msg if is_given else me.send_msg
        carry(ObjectMessage(sent, remote_id, allowed, user), location)
    except BaseException:
        if isinstance(head, PointerTensor):
            sent.child.garbage_collect_data = False  # it has not arrived: the duty stays here
        raise
    if isinstance(head, PointerTensor):
        head.garbage_collect_data = False
    pointer = PointerTensor(
        location,
        remote_id,
        garbage_collect_data=garbage_collect_data,
        spec=spec_when_sent(tensor),
        tags=identity.tags,
        description=identity.description,
    )
    if allowed is not None:
        pointer.private_to = tuple(sorted(allowed, key=str))
    return pointer


def put_back(place: Any, value: Any) -> Any:
    """A value of here at the worker, or among the workers, of a `place()`."""
    if isinstance(place, PointerTensor):
        return send_value(value, place.location, None, True, obj_id=ID_PROVIDER.pop())
    return place.put_back(value)


def forward(
    pointer: PointerTensor, destination: Any, user: str | None = None, keep_id: bool = False
) -> PointerTensor:
    """The worker of a pointer sends the value on to another worker, not through here.

    A worker on a network that was not introduced to the other cannot do that, nor for somebody who has no name that
    the other knows. Then the value comes here and is sent on, if the user may have it. `keep_id`: under the same
    id, unless the other has an object of that id already.
    """
    old_id = pointer.id_at_location
    new_id = old_id if keep_id and _is_free_at(destination, pointer) else ID_PROVIDER.pop()
    if pointer.location.is_nameless:
        return _relay(pointer, destination, new_id, user)
    try:
        pointer.ask(ForwardMessage(old_id, destination.id, new_id, user))
    except WorkerNotFoundException:
        if pointer.location.is_in_process:
            raise
        return _relay(pointer, destination, new_id, user)
    made = PointerTensor(
        destination,
        new_id,
        pointer._owner,
        spec=pointer._spec,
        tags=pointer.tags,
        description=pointer.description,
    )
    made.private_to = pointer.private_to
    return made


def _is_free_at(worker: Any, pointer: PointerTensor) -> bool:
    """Whether a worker holds nothing under the id of an object of another."""
    try:
        return bool(pointer._speaker().send_msg(IsNoneMessage(pointer.id_at_location), worker))
    except PermissionDeniedError:
        return False  # somebody else's object


def _relay(pointer: PointerTensor, destination: Any, new_id: Any, user: str | None) -> PointerTensor:
    value = pointer._fetch(user, f"move to {destination.id}", keep=True)
    made = send_value(value, destination, user, True, obj_id=new_id)
    made.private_to = pointer.private_to
    return made


def _pointer_to_hand_over(head: PointerTensor, location: Any) -> torch.Tensor:
    """The pointer that a worker is sent; the duty to delete goes along."""
    return new_wrapper(
        PointerTensor(
            head.location,
            head.id_at_location,
            location,
            id=head.id,
            garbage_collect_data=head.garbage_collect_data,
            spec=head.spec,
            tags=head.tags,
            description=head.description,
        )
    )
