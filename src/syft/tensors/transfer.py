"""Sending, fetching and moving tensors, with their place in the autograd graph. What travels is `sending`'s.

A leaf stays a leaf: a parameter that is sent collects its gradient where it is. A tensor with a history
stays connected to it: the gradient of a send is a fetch, of a fetch a send, of a move a move back.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from syft.core.chain import Wrapper, alias, new_wrapper
from syft.core.identity import identity_of
from syft.core.ids import ID_PROVIDER
from syft.core.levels import step_down, step_up
from syft.core.swap import become
from syft.messaging.message import ObjectRequestMessage
from syft.tensors import kept_graphs
from syft.tensors.lone_memory import has_lone_gradient, has_lone_memory, references_of_lone_tensors
from syft.tensors.pointer import PointerTensor, take_over
from syft.tensors.private import PrivateTensor
from syft.tensors.sending import forward, put_back, send_value
from syft.tensors.stale_graphs import note_fetch


class Send(torch.autograd.Function):
    """Local tensor with a history -> pointer; the gradient comes back here."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, location: Any, user: Any, collect: bool, obj_id: Any = None
    ) -> Any:
        return new_wrapper(send_value(tensor, location, user, collect, obj_id))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return fetch(grad) if _is_remote(grad) else grad, None, None, None, None


class Get(torch.autograd.Function):
    """Pointer with a history -> its value; the gradient is sent there."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, user: Any, reason: str) -> Any:
        ctx.location = tensor.child.location
        note_fetch(ctx)
        return tensor.child.get(user=user, reason=reason)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _send_gradient(grad, ctx.location), None, None


class Move(torch.autograd.Function):
    """Pointer on one worker -> pointer on another; the gradient moves back."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, location: Any, user: Any, keep_id: bool = False) -> Any:
        ctx.origin = tensor.child.location
        return new_wrapper(forward(tensor.child, location, user, keep_id))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if not _is_remote(grad):
            return _send_gradient(grad, ctx.origin), None, None, None
        return move(grad, ctx.origin), None, None, None


def _is_remote(tensor: Any) -> bool:
    return type(tensor) is Wrapper and isinstance(tensor.child, PointerTensor)


def _send_gradient(grad: Any, location: Any) -> Any:
    if _is_remote(grad):
        return grad if grad.child.location.id == location.id else move(grad, location)
    if grad.requires_grad and torch.is_grad_enabled():
        return Send.apply(grad, location, None, True)  # type: ignore[no-untyped-call]
    return new_wrapper(send_value(grad.detach(), location, None, True, obj_id=ID_PROVIDER.pop()))


def send(
    tensor: torch.Tensor,
    location: Any,
    user: str | None = None,
    preinitialize_grad: bool = False,
    garbage_collect_data: bool = True,
    obj_id: Any = None,
    is_given: bool = False,
) -> torch.Tensor:
    """`Wrapper > PointerTensor` to a copy of `tensor` on a worker, under its own id or under `obj_id`.

    `is_given`: the caller lets go of the tensor and its gradient; what nobody else has of them is not copied.
    """
    if tensor.requires_grad and not tensor.is_leaf and torch.is_grad_enabled():
        return Send.apply(tensor, location, user, garbage_collect_data, obj_id)  # type: ignore[no-any-return, no-untyped-call]
    is_lone = is_given and has_lone_memory(tensor)
    pointer = new_wrapper(send_value(tensor, location, user, garbage_collect_data, obj_id, is_lone))
    if not tensor.requires_grad:
        return pointer
    pointer.requires_grad_()
    pointer.child.belong_to(pointer)
    _note_leaf(pointer.child)
    if isinstance(tensor, torch.nn.Parameter):
        pointer._is_param = True
    if tensor.is_leaf and tensor.grad is not None:
        if is_given and has_lone_gradient(tensor):
            pointer.grad = new_wrapper(send_value(tensor.grad, location, user, True, is_given=True))
        else:
            pointer.grad = send(tensor.grad, location, user)
    elif preinitialize_grad:
        pointer.grad = torch.zeros_like(pointer)
    return pointer


def _note_leaf(pointer: PointerTensor) -> None:
    """Let a worker of this process know whose `.grad` is that of an object, for who looks into `worker._objects`."""
    if pointer.location.is_in_process:
        entry = pointer.location._entries.get(pointer.id_at_location)
        if entry is not None:
            entry.leaf = weakref.ref(pointer)


def fetch(tensor: Any, user: str | None = None, reason: str = "") -> torch.Tensor:
    """The value of a remote tensor, with its gradient; the wrapper is empty afterwards.

    What torch itself holds (`y.grad`, data of a graph that is alive) is copied instead and stays where it is.
    """
    pointer: PointerTensor = tensor.child
    with torch._C.DisableTorchFunctionSubclass():  # what `Wrapper` would do, after a call of Python
        requires_grad = tensor.requires_grad
    tracked = requires_grad and torch.is_grad_enabled()
    if not requires_grad and is_used_by_torch(tensor):
        # A gradient, or data that a graph still needs: emptying it would break whoever reads it next.
        value = pointer.get_copy(user=user, reason=reason)
        if type(value) is not Wrapper:
            _keep_identity(value, pointer)
        return _private_again(value, pointer)  # type: ignore[no-any-return]
    if requires_grad and not tensor.is_leaf:
        kept_graphs.will_be_fetched(tensor)
    if tracked and not tensor.is_leaf:
        value = Get.apply(tensor, user, reason)  # type: ignore[no-untyped-call]
    else:
        # The gradient first: if one of the two is refused, both are still there.
        has_gradient = requires_grad and tensor.is_leaf and tensor.grad is not None
        gradient = _gradient_of(tensor, user, reason) if has_gradient else None
        # References: the wrapper's, this variable, the argument of getrefcount. Somebody else's (an alias, the
        # graph) would still need the remote value.
        is_last = pointer.garbage_collect_data and sys.getrefcount(pointer) <= 3
        value = (pointer.get_last if is_last else pointer.get)(user=user, reason=reason)
        if requires_grad:
            value.requires_grad_()
            value.grad = gradient
            tensor.grad = None
        # NB: what `isinstance(tensor, torch.nn.Parameter)` asks of a wrapper, without three calls.
        if getattr(tensor, "_is_param", False) and type(value) is torch.Tensor:
            value = _as_parameter(value)
    if type(value) is not Wrapper:
        _keep_identity(value, pointer)
    tensor.child = None
    return value if pointer.private_to is None else _private_again(value, pointer)  # type: ignore[no-any-return]


#: Tensors that are asked for together have so many bytes in all. A larger one takes longer than the way there and back.
_TOGETHER_BYTES = 8 << 20


@contextlib.contextmanager
def prefetched(tensors: list[Any], user: str | None = None, reason: str = "") -> Iterator[None]:
    """Inside, `fetch` has the values of these tensors and their gradients: each worker was asked for all of them at once.

    Only workers on a network, where each answer takes a while. They keep what they hand out until its pointer goes, so
    nothing has changed if one of them refuses.
    """
    wanted: dict[int, list[PointerTensor]] = {}
    left = _TOGETHER_BYTES
    for tensor in tensors:
        if type(tensor.child) is PointerTensor and tensor.child._location.ask_all is None:
            continue
        for one in (tensor, tensor.grad if tensor.is_leaf else None):
            pointer = without_autograd_node(one).child if type(one) is Wrapper else None
            if (
                type(pointer) is not PointerTensor
                or pointer.point_to_attr
                or not pointer.garbage_collect_data
            ):
                continue
            spec = pointer.spec
            size = math.prod(spec.shape) * spec.dtype.itemsize
            if pointer.location.ask_all is not None and size <= left:
                left -= size
                wanted.setdefault(id(pointer.location), []).append(pointer)
    try:
        for pointers in wanted.values():
            messages = [ObjectRequestMessage((p._id_at_location, user, reason), True) for p in pointers]
            for pointer, value in zip(pointers, pointers[0].location.ask_all(messages), strict=True):
                pointer._prefetched = take_over(value, pointer._speaker())
        yield
    finally:
        for pointers in wanted.values():
            for pointer in pointers:
                pointer._prefetched = None


def _private_again(value: Any, pointer: PointerTensor) -> Any:
    """A fetched value with the list of users that it was sent with."""
    if pointer.private_to is None:
        return value
    made = PrivateTensor(allowed_users=pointer.private_to).on(value)
    if value.is_leaf and value.grad is not None:
        made.grad = PrivateTensor(allowed_users=pointer.private_to).on(value.grad)
    return made


def bring_gradients_back(sent: torch.Tensor, origin: torch.Tensor) -> None:
    """Whenever the pointer has collected a gradient, `origin` has a copy of all that it has collected."""
    known = weakref.ref(origin)

    def bring(pointer: torch.Tensor) -> None:
        tensor, gradient = known(), pointer.grad
        if tensor is not None and gradient is not None:
            tensor.grad = fetch(without_autograd_node(gradient).clone())

    sent.register_post_accumulate_grad_hook(bring)  # type: ignore[no-untyped-call]


def _gradient_of(tensor: Any, user: str | None, reason: str) -> Any:
    """The gradient of a remote leaf that is about to be fetched. Where nobody can refuse it is handed over."""
    gradient, node = tensor.grad, tensor.child
    pointer = gradient.child if type(gradient) is Wrapper else None
    if (
        type(pointer) is PointerTensor
        and pointer.garbage_collect_data
        and pointer._location is node._location
        and pointer._location.is_free(pointer._id_at_location, node._id_at_location)
        # References to the pointer: of its wrapper, of the variable here, of getrefcount.
        and sys.getrefcount(pointer) <= 3
        and sys.getrefcount(gradient) <= references_of_lone_tensors()[2]
    ):
        return pointer.get_last(user=user, reason=reason)
    return _peek(gradient, user, reason)


def _peek(gradient: Any, user: str | None, reason: str) -> Any:
    """A gradient, fetched and still there."""
    gradient = without_autograd_node(gradient)
    return gradient.child.get_copy(user=user, reason=reason) if _is_remote(gradient) else gradient


def without_autograd_node(tensor: Any) -> Any:
    """A chain without the AutogradTensors at its head: they say nothing about the value."""
    from syft.tensors.autograd import AutogradTensor

    node = tensor.child if type(tensor) is Wrapper else None
    while isinstance(node, AutogradTensor):
        node = node.child
    if node is None or node is tensor.child:
        return tensor
    below: torch.Tensor = node.detach() if isinstance(node, torch.Tensor) else new_wrapper(node)
    if tensor.requires_grad and tensor.is_leaf:
        below.requires_grad_()
        below.grad = None if tensor.grad is None else without_autograd_node(tensor.grad)
    return below


class GetChain(torch.autograd.Function):
    """A remote chain with a history -> its value here; the gradient goes where the chain keeps its values."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, options: dict[str, Any]) -> Any:
        ctx.place = tensor.child.place()
        note_fetch(ctx)
        return tensor.child.get(**options)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return new_wrapper(put_back(ctx.place, grad.child if type(grad) is Wrapper else grad)), None


def fetch_chain(tensor: Any, **options: Any) -> Any:
    """The value of a chain whose values are elsewhere (shares, a type above a pointer), with its gradient.

    What torch does not follow, such as a gradient, is fetched without the AutogradTensor above it.
    """
    if not tensor.requires_grad and is_used_by_torch(tensor):
        return without_autograd_node(tensor.detach().clone().child.get(**options))
    if tensor.requires_grad and torch.is_grad_enabled() and not tensor.is_leaf:
        value = GetChain.apply(tensor, options)  # type: ignore[no-untyped-call]
    else:
        value = tensor.child.get(**options)
        if tensor.requires_grad and isinstance(value, torch.Tensor):
            value.requires_grad_()
            if tensor.is_leaf and tensor.grad is not None:
                gradient, tensor.grad = tensor.grad, None
                value.grad = fetch_chain(gradient, **options)
    tensor.child = None
    return value if tensor.requires_grad else without_autograd_node(value)


def _as_parameter(value: torch.Tensor) -> torch.nn.Parameter:
    made = torch.nn.Parameter(value.detach(), requires_grad=value.requires_grad)
    made.grad = value.grad
    return made


def _keep_identity(value: torch.Tensor, pointer: PointerTensor) -> None:
    if pointer.tags or pointer.description:
        identity = identity_of(value)
        identity.tags, identity.description = set(pointer.tags), pointer.description


def move(tensor: Any, location: Any, user: str | None = None, keep_id: bool = False) -> torch.Tensor:
    """A pointer to the same value on another worker; the value does not pass through here."""
    if tensor.child.location.id == location.id:
        return tensor  # type: ignore[no-any-return]
    if tensor.requires_grad and torch.is_grad_enabled():
        return Move.apply(tensor, location, user, keep_id)  # type: ignore[no-any-return, no-untyped-call]
    return new_wrapper(forward(tensor.child, location, user, keep_id))


def move_leaf(tensor: Any, location: Any, user: str | None = None, keep_id: bool = False) -> torch.Tensor:
    """A parameter on another worker: a leaf there, its gradient with it."""
    with torch.no_grad():
        moved = alias(move(tensor, location, user, keep_id))  # type: ignore[arg-type]
        moved.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            moved.grad = move(without_autograd_node(tensor.grad), location, user)
    if isinstance(tensor, torch.nn.Parameter):
        moved._is_param = True
    return moved


def move_in_place(tensor: Any, location: Any, user: str | None = None) -> Any:
    """The tensor itself, after its value was brought to another worker.

    NOTE [Moving what a graph needs]
    A leaf that a graph still uses collects a gradient where it is, so it stays there: the result is another tensor,
    connected to it. Every other tensor points to the new place itself. What a graph saved of it stays at the old
    worker for as long as the graph needs it, because the graph shares the old pointer.
    """
    if tensor.child.location.id == location.id:
        return tensor
    if not tensor.is_leaf:
        retains_grad = tensor.retains_grad
        moved = become(tensor, move(tensor, location, user, keep_id=True))
        if retains_grad:
            moved.retain_grad()
        return moved
    if is_used_by_torch(tensor):
        return move(tensor, location, user)
    return become(tensor, move_leaf(tensor, location, user, keep_id=True))


def is_above_pointer(tensor: Any) -> bool:
    """Whether a chain is `Wrapper > AutogradTensor > ... > PointerTensor`."""
    below = (
        without_autograd_node(tensor.detach())
        if type(tensor) is Wrapper and tensor.child is not None
        else tensor
    )
    return _is_remote(below) and not _is_remote(tensor)


def move_below(tensor: Any, location: Any, user: str | None = None) -> Any:
    """`move_in_place` for a pointer below an AutogradTensor."""
    if tensor.child.location.id == location.id:
        return tensor
    if tensor.is_leaf and not is_used_by_torch(tensor):
        moved = move_leaf(without_autograd_node(tensor), location, user, keep_id=True)
        return become(tensor, with_autograd_node(moved))
    moved = step_up(tensor.child, move(step_down(tensor), location, user, keep_id=not tensor.is_leaf))
    return moved if tensor.is_leaf else become(tensor, moved)


def is_used_by_torch(tensor: torch.Tensor) -> bool:
    """Whether torch itself holds the tensor: as somebody's gradient, or in a graph that is alive."""
    return tensor._use_count() > 1  # type: ignore[attr-defined, no-any-return]


def send_on(tensor: Any, location: Any, user: str | None = None) -> torch.Tensor:
    """me -> bob as me -> bob -> alice, under the same id at both where nobody else needs what bob has under it."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "remote_send() was called on a tensor with a history, which a pointer to a pointer cannot have. Call "
            "`.detach()` first, or `.move(worker)`, which keeps it."
        )
    pointer: PointerTensor = tensor.child
    moved = new_wrapper(forward(pointer, location, user, keep_id=True))
    # References: the wrapper's, this variable, the argument of getrefcount.
    is_free = pointer.garbage_collect_data and sys.getrefcount(pointer) <= 3 and not is_used_by_torch(tensor)
    # The worker counts both pointers to an id that stays. The first goes with `tensor`, and its count with it.
    new_id = pointer.id_at_location if is_free else ID_PROVIDER.pop()
    made = new_wrapper(send_value(moved, pointer.location, user, True, obj_id=new_id))
    if tensor.requires_grad:
        made.requires_grad_()
        if tensor.grad is not None:
            made.grad = send_on(without_autograd_node(tensor.grad), location, user)
    return made


def with_autograd_node(sent: torch.Tensor, preinitialize_grad: bool = False) -> torch.Tensor:
    """A pointer with an AutogradTensor between it and its wrapper; its gradient goes along."""
    from syft.tensors.autograd import AutogradTensor

    made = AutogradTensor(requires_grad=sent.requires_grad, preinitialize_grad=preinitialize_grad).on(sent)
    if sent.is_leaf and sent.grad is not None:
        made.grad = AutogradTensor(requires_grad=False).on(sent.grad)
    return made  # type: ignore[no-any-return]
