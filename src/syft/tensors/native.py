"""`TorchTensor`: the methods and properties that the hook adds to every `torch.Tensor`.

`self` is a plain tensor or a Wrapper throughout. Nothing here is called by plain torch code.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.identity import identity_of, known_identity
from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.core.shapes import contiguous_spec
from syft.core.swap import become
from syft.exceptions import AlreadyFetchedError, ChainError, InvalidTensorForRemoteGet, LocalTensorError
from syft.messaging.message import RemoteGetMessage
from syft.tensors import fused, remote_call, sending, transfer  # noqa: F401  (two add what they run)
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.native_spellings import (  # noqa: F401
    NativeSpellings,
    _get_maximum_precision,
    default_pytorch_maximum_precision,
)
from syft.tensors.pointer import PointerTensor
from syft.tensors.private import PrivateTensor


class TorchTensor(NativeSpellings):
    """A collection of methods for `torch.Tensor`; never instantiated."""

    # -- identity ----------------------------------------------------------------------------------

    @property
    def id(self: Any) -> Any:
        return identity_of(self).id

    @id.setter
    def id(self: Any, value: Any) -> None:
        identity_of(self).id = value

    @property
    def owner(self: Any) -> Any:
        return identity_of(self).owner

    @owner.setter
    def owner(self: Any, value: Any) -> None:
        identity_of(self).owner = value

    @property
    def tags(self: Any) -> set[str]:
        return identity_of(self).tags  # type: ignore[no-any-return]

    @tags.setter
    def tags(self: Any, value: Any) -> None:
        identity_of(self).tags = set(value or ())

    @property
    def description(self: Any) -> str | None:
        return identity_of(self).description  # type: ignore[no-any-return]

    @description.setter
    def description(self: Any, value: str | None) -> None:
        identity_of(self).description = value

    def tag(self: Any, *tags: str) -> Any:
        """Add tags to search by; returns self."""
        identity_of(self).tags.update(tags)
        return self

    def describe(self: Any, description: str) -> Any:
        """Describe the tensor for whoever searches; returns self."""
        identity_of(self).description = description
        return self

    @property
    def is_wrapper(self: Any) -> bool:
        return type(self) is Wrapper

    @property
    def child(self: Any) -> Any:
        # A Wrapper has a `child` of its own, which is found before this one.
        raise AttributeError("A plain tensor has no child: it is the end of every chain.")

    @property
    def location(self: Any) -> Any:
        """The worker that holds the value; None when it is here."""
        return None if type(self) is not Wrapper or self.child is None else self.child.location

    @property
    def id_at_location(self: Any) -> Any:
        return None if type(self) is not Wrapper or self.child is None else self.child.id_at_location

    # -- chains ------------------------------------------------------------------------------------

    def wrap(self: Any) -> Any:
        """A chain as it is; a plain tensor has nothing to be wrapped in but itself."""
        return self

    def private_tensor(
        self: Any,
        *args: Any,
        allowed_users: Any = None,
        no_wrap: bool = False,
        released_only: bool = False,
    ) -> Any:
        """`Wrapper > PrivateTensor > ...`: only these users may fetch it or what is computed from it.

        A text is one user. `private_tensor(users)` is the same as `private_tensor(allowed_users=users)`.
        `private_tensor(released_only=True)`: on a worker nobody fetches it nor computes with it; its owner sets a budget
        (`worker.set_budget`), and statistics of it are released with noise.
        """
        if len(args) > 1 or (args and allowed_users is not None):
            raise TypeError(
                "private_tensor() takes one list of users, e.g. private_tensor(allowed_users=('ann',))."
            )
        users = args[0] if args else () if released_only and allowed_users is None else allowed_users
        if isinstance(users, str):
            users = (users,)
        if not isinstance(users, (list, tuple, set, frozenset)):
            raise TypeError(
                f"allowed_users is a {type(users).__name__}; pass a user name, or a list or tuple of user names, "
                "e.g. private_tensor(allowed_users=('alice',))."
            )
        known = known_identity(self) if type(self) is torch.Tensor else None
        tags, description = (known.tags, known.description) if known is not None else (None, None)
        private = PrivateTensor(
            allowed_users=tuple(users), released_only=released_only, tags=tags, description=description
        )
        chain = private.on(self)
        return chain.child if no_wrap else chain

    def allow(self: Any, user: Any = None) -> bool:
        """Whether a user may fetch the tensor: everybody, unless it is private."""
        node = self.child if type(self) is Wrapper else None
        return node.allow(user) if isinstance(node, PrivateTensor) else True

    # -- moving ------------------------------------------------------------------------------------

    def send(
        self: Any,
        *location: Any,
        inplace: bool = False,
        user: str | None = None,
        local_autograd: bool = False,
        requires_grad: bool | None = None,
        preinitialize_grad: bool = False,
        no_wrap: bool = False,
        garbage_collect_data: bool = True,
    ) -> Any:
        """Copy the tensor to a worker; returns a pointer. Several workers: one MultiPointerTensor.

        local_autograd        puts an AutogradTensor between the wrapper and the pointer, which collects a gradient
                              unless requires_grad=False (integers have none)
        preinitialize_grad    a tensor that requires grad has a gradient of zeros at once
        garbage_collect_data  False: the value stays there when the last reference to the pointer goes
        requires_grad         whether the pointer requires grad; True also brings every gradient that the pointer of a
                              leaf collects back to this tensor, from one worker
        """
        workers = [session.require_local_worker().get_worker(w, fail_hard=True) for w in _flat(location)]
        if not workers:
            sending.check_may_send(self, user)
            raise TypeError("send() needs the worker to send to, e.g. x.send(bob).")
        sent: Any
        if len(workers) > 1:
            # NB: no worker knows the id under which another has it.
            sent = MultiPointerTensor.of(
                [
                    transfer.send(self, w, user, preinitialize_grad, garbage_collect_data, ID_PROVIDER.pop())
                    for w in workers
                ]
            )
        else:
            is_given = inplace and requires_grad is None and not local_autograd and not no_wrap
            sent = transfer.send(
                self, workers[0], user, preinitialize_grad, garbage_collect_data, is_given=is_given
            )
        brings_back = bool(requires_grad) and self.requires_grad and len(workers) == 1
        if requires_grad is None and local_autograd and (sent.is_floating_point() or sent.is_complex()):
            requires_grad = True
        if requires_grad is not None and sent.is_leaf:
            sent.requires_grad_(requires_grad)
        if local_autograd:
            sent = transfer.with_autograd_node(sent, preinitialize_grad)
        if brings_back and sent.is_leaf:
            transfer.bring_gradients_back(sent, self)
        if no_wrap:
            return sent.child
        if not inplace:
            return sent
        become(self, sent)
        if self.requires_grad:
            self.child.belong_to(self)
        return self

    def send_(self: Any, *location: Any, **kwargs: Any) -> Any:
        """`send` in place: whoever holds this tensor holds the pointer."""
        return self.send(*location, inplace=True, **kwargs)

    def request(self: Any, reason: str = "", user: str | None = None) -> Any:
        """Ask the owner of the worker to let the value be fetched, as it is now; `.wait()` of the answer is the value."""
        if type(self) is not Wrapper or not isinstance(self.child, PointerTensor):
            raise LocalTensorError("request")
        return self.child.request(reason, user)

    def get(
        self: Any, *args: Any, inplace: bool = False, user: str | None = None, reason: str = "", **kwargs: Any
    ) -> Any:
        """Fetch the value and remove it there. One level of a pointer to a pointer at a time."""
        if type(self) is not Wrapper:
            raise LocalTensorError("get")
        if self.child is None:
            raise AlreadyFetchedError
        if isinstance(self.child, PointerTensor):
            value = transfer.fetch(self, user, reason)
        else:
            if not self.child.is_remote:
                raise LocalTensorError("get")
            value = transfer.fetch_chain(self, user=user, reason=reason, **kwargs)
        return become(self, value) if inplace else value

    def get_(self: Any, *args: Any, **kwargs: Any) -> Any:
        """`get` in place."""
        return self.get(*args, inplace=True, **kwargs)

    def move(self: Any, location: Any, user: str | None = None, requires_grad: bool | None = None) -> Any:
        """Bring the value from its worker to another one, directly; returns this tensor, which points there now.

        The id stays the same where it is free. A leaf stays a leaf; what has a history stays connected to it, and its
        gradient moves back. See NOTE [Moving what a graph needs].
        """
        target = session.require_local_worker().get_worker(location, fail_hard=True)
        if target is session.local_worker:
            moved = self.get(user=user)
        elif transfer.is_above_pointer(self):
            moved = transfer.move_below(self, target, user)
        elif type(self) is not Wrapper or not isinstance(self.child, PointerTensor):
            moved = self.send(target, user=user)
        else:
            moved = transfer.move_in_place(self, target, user)
        return moved if requires_grad is None else _with_requires_grad(moved, requires_grad)

    def move_(self: Any, location: Any, user: str | None = None) -> Any:
        """`move` that leaves nothing behind, whatever still uses the tensor."""
        target = session.require_local_worker().get_worker(location, fail_hard=True)
        if type(self) is not Wrapper or not isinstance(self.child, PointerTensor):
            return self.send(target, user=user, inplace=True)
        if self.child.location.id == target.id:
            return self
        move = transfer.move_leaf if self.is_leaf else transfer.move
        return become(self, move(self, target, user))

    def copy(self: Any) -> Any:
        """A copy where the tensor is."""
        made = self.clone()
        if type(self) is Wrapper and isinstance(self.child, PointerTensor):
            made.child.private_to = self.child.private_to
        return made

    def remote_get(self: Any, user: str | None = None) -> Any:
        """me -> alice -> bob becomes me -> alice, in place: alice fetches the value from bob. Returns self."""
        return _fetched_there(self, "remote_get", user)

    def mid_get(self: Any, user: str | None = None) -> Any:
        """The same as `remote_get`."""
        return _fetched_there(self, "mid_get", user)

    end_get = mid_get

    def remote_send(self: Any, location: Any, change_location: bool = False, user: str | None = None) -> Any:
        """me -> bob becomes me -> bob -> alice, in place: bob sends the value on and keeps a pointer to it.

        `change_location=True`: me -> alice, as `move` does. Returns this tensor.
        """
        place = _pointer(self, "remote_send").location
        target = session.require_local_worker().get_worker(location, fail_hard=True)
        if change_location:
            return transfer.move_in_place(self, target, user)
        if target.id == place.id:
            return self
        return become(self, transfer.send_on(self, target, user))

    # -- asking about remote tensors ---------------------------------------------------------------

    def attr(self: Any, attr_name: str) -> Any:
        """A pointer to an attribute of the remote tensor."""
        if attr_name == "grad":
            return self.grad
        found = _pointer(self, "attr").attr(attr_name)
        found.child.garbage_collect_data = True
        return found

    def setattr(self: Any, name: str, value: Any) -> None:
        """Set `grad` or `data` of a remote tensor."""
        if name == "grad":
            self.grad = value
        elif name == "data":
            with torch.no_grad():
                self.copy_(value)
        else:
            _pointer(self, "setattr").setattr(name, value)

    def is_none(self: Any) -> bool:
        """Whether the remote value is gone."""
        return self.child is None or _pointer(self, "is_none").is_none()

    def create_pointer(
        self: Any,
        location: Any = None,
        id_at_location: Any = None,
        register: bool = False,
        owner: Any = None,
        ptr_id: Any = None,
        garbage_collect_data: bool = True,
        shape: Any = None,
    ) -> Any:
        """A pointer to this tensor at a worker that holds it already; `register` makes its owner keep the pointer.

        Holder and owner of the pointer are by default the owner of the tensor.
        """
        holder = location if location is not None else self.owner
        pointer = PointerTensor(
            session.require_local_worker().get_worker(holder, fail_hard=True),
            self.id if id_at_location is None else id_at_location,
            self.owner if owner is None else owner,
            id=ptr_id,
            garbage_collect_data=garbage_collect_data,
            spec=sending.spec_when_sent(self) if shape is None else contiguous_spec(tuple(shape), self.dtype),
            tags=self.tags,
            description=self.description,
        )
        made = new_wrapper(pointer)
        if register:
            (owner or session.require_local_worker()).register_obj(made, pointer.id)
        return made


def _flat(locations: Any) -> list[Any]:
    flat: list[Any] = []
    for location in locations:
        flat.extend(location) if isinstance(location, (list, tuple)) else flat.append(location)
    return flat


def _pointer(tensor: Any, method: str) -> PointerTensor:
    if type(tensor) is Wrapper and isinstance(tensor.child, PointerTensor):
        return tensor.child
    if method in ("remote_get", "mid_get"):
        raise InvalidTensorForRemoteGet(tensor if type(tensor) is Wrapper else _HERE, method)
    if type(tensor) is not Wrapper:
        raise LocalTensorError(method)
    raise ChainError(
        f".{method} needs a pointer and was asked of {tensor}. Send the tensor to a worker first."
    )


class _Here:
    """Stands for a local tensor in an error, whose values are nobody's business."""

    def __repr__(self) -> str:
        return "a tensor on this machine"


_HERE = _Here()


def _fetched_there(tensor: Any, method: str, user: str | None) -> Any:
    """`tensor` after the worker it points to has replaced a pointer by its target. The local pointer stays the same."""
    pointer = _pointer(tensor, method)
    try:
        spec = pointer.ask(RemoteGetMessage(pointer.id_at_location, user))
    except InvalidTensorForRemoteGet:
        raise InvalidTensorForRemoteGet(tensor, method) from None
    if spec != pointer.spec:
        pointer._spec = spec
        tensor.data = new_wrapper(pointer)
    return tensor


def _with_requires_grad(tensor: Any, requires_grad: bool) -> Any:
    if tensor.is_leaf:
        return tensor.requires_grad_(requires_grad)
    if not requires_grad:
        raise RuntimeError(
            "move(requires_grad=False) was called on a tensor with a history, which stays connected to it. Call "
            "`.detach()` first to cut it off."
        )
    return tensor
