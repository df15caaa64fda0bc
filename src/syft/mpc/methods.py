"""What the hook adds for secret sharing: `tensor.share(...)` and its relatives, on tensors and models."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.core.session import session
from syft.core.swap import become
from syft.exceptions import CannotRequestObjectAttribute, ChainError, LocalTensorError
from syft.messaging.message import ShareMessage
from syft.mpc import authenticated, ring
from syft.mpc.fixed_methods import fix_precision, float_precision, format_there
from syft.mpc.integrity.errors import NoMacsError
from syft.mpc.made_there import is_open_there, made_there
from syft.mpc.node_methods import FIELD, check_values, field_of
from syft.mpc.offers import let_users, offer, user_names, withdraw
from syft.mpc.precision import FixedPrecisionTensor, node_above
from syft.mpc.protocols.registry import comparison
from syft.mpc.randomness import Stream, new_seed
from syft.mpc.reuse import Remembered
from syft.mpc.rules import shared_linear
from syft.mpc.shared_node import group_of
from syft.mpc.sharing import AdditiveSharingTensor, secret_of, share_integers
from syft.mpc.storage import stored
from syft.policy.caller import user_of
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.transfer import with_autograd_node
from syft.workers import handlers, object_handlers, pipeline

#: What `encrypt(protocol=...)` calls shares, and the comparison protocol that each names (None: the default one).
SHARING = {"mpc": None, "snn": "snn", "fss": "fss"}


class Share(torch.autograd.Function):
    """A tensor with a history becomes a secret; the gradient of the secret is opened for it."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, holders: Any, provider: Any, protocol: Any, user: Any) -> Any:
        return new_wrapper(_shared_node(tensor, holders, provider, protocol, user))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return opened(grad), None, None, None, None


class NodeAbove(torch.autograd.Function):
    """A pointer to fixed precision becomes fixed precision above a pointer; their gradients go together."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return new_wrapper(node_above(tensor.child))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def opened(secret: Any) -> Any:
    """What a shared chain holds, also of one that was shared there and not fetched yet: NOTE [The first get]."""
    found = secret_of(secret.child)
    if found is not None:
        found.was_shared_there = False
    return secret.get()


def share(
    self: Any,
    *owners: Any,
    field: int | None = None,
    crypto_provider: Any = None,
    requires_grad: bool = False,
    no_wrap: bool = False,
    protocol: str | None = None,
    user: str | None = None,
    dtype: Any = None,
    may_get: Any = None,
    may_compute: Any = None,
) -> Any:
    """Split the tensor into one random share per worker; nobody but all of them together can read it.

    Integers are shared as they are, reals after `fix_precision()`. Without `crypto_provider` the local worker deals the
    randomness. `protocol` names the comparison protocol (see syft.mpc.protocols.registry). A pointer is shared
    where it is: the values do not come here. `dtype` ("long", "int", "custom") and `field` are a check that the integers
    fit a ring of that size, and what `x.field` tells; the shares are int64 in every case, so nothing wraps earlier.
    `requires_grad` puts an AutogradTensor on top, which collects a gradient (integers have none).

    On workers that know their users, a secret is its owner's alone. `may_compute` names users who may compute with it
    and may not fetch it; `may_get` those who may fetch it, and what is computed from it as far as the owners of the rest
    named them, too. Then these and nobody else, the owner included only if named. See `offer`.
    """
    chosen, computing = user_names(may_get, "may_get"), user_names(may_compute, "may_compute")
    me = session.require_local_worker()
    holders = [me.get_worker(w, fail_hard=True) for w in _flat(owners)]
    provider = me if crypto_provider is None else me.get_worker(crypto_provider, fail_hard=True)
    group_of(holders, provider)
    comparison(protocol, len(holders))
    limit = field_of(dtype, field)
    if not requires_grad and not self.requires_grad and is_open_there(self):
        kept = {"crypto_provider": provider.id, "protocol": protocol, "dtype": dtype, "field": field}
        there = made_there(self, "share", *(holder.id for holder in holders), **kept)
        return there.child if no_wrap else there
    if format_there(self) is not None:
        has_history = self.requires_grad and not self.is_leaf and torch.is_grad_enabled()
        made = NodeAbove.apply(self) if has_history else new_wrapper(node_above(self.child))
        self = made if has_history else made.requires_grad_(self.requires_grad)
    head = stored(self)
    if head is not None:
        if requires_grad or limit != FIELD:
            raise ValueError(
                f"share() of a {type(head).__name__} keeps no gradients and has no field of its own. Leave "
                "requires_grad, dtype and field out."
            )
        node = head.shared_by(lambda values: _shared_integers(values, holders, provider, protocol, user))
        if chosen is not None or computing is not None:
            let_users(node, chosen, computing, user)
        return node if no_wrap else new_wrapper(node)
    if limit < FIELD:
        _check_fits(self, limit)
    if self.requires_grad and not self.is_leaf and torch.is_grad_enabled():
        shared = Share.apply(self, holders, provider, protocol, user)
    else:
        shared = new_wrapper(_shared_node(self, holders, provider, protocol, user))
        if (self.requires_grad or requires_grad) and shared.is_floating_point():
            shared.requires_grad_()
            if self.is_leaf and self.grad is not None:
                shared.grad = share(
                    self.grad,
                    *holders,
                    crypto_provider=provider,
                    protocol=protocol,
                    may_get=may_get,
                    may_compute=may_compute,
                )
    secret_of(shared.child).field = limit
    if chosen is not None or computing is not None:
        let_users(shared.child, chosen, computing, user)
    if requires_grad:
        shared = with_autograd_node(shared)
    if not me.is_client_worker:
        me.register_obj(shared)
    return shared.child if no_wrap else shared


def _check_fits(tensor: Any, field: int) -> None:
    """!! ValueError for integers outside of a field smaller than the ring, or that nobody here can look at."""
    head = tensor.child if type(tensor) is Wrapper else tensor.detach()
    values = head.child if isinstance(head, FixedPrecisionTensor) else head
    if not isinstance(values, torch.Tensor):
        raise ValueError(
            f"share(...) was asked for a field of {field} elements, and the values are elsewhere: nobody here can check "
            "that they fit. Leave dtype and field out."
        )
    if not values.is_floating_point():  # which is refused with its own sentence
        check_values(values, field)


def share_(self: Any, *owners: Any, **kwargs: Any) -> Any:
    """`share` in place: whoever holds this tensor holds the secret."""
    return become(self, share(self, *owners, **kwargs))


def _flat(owners: Any) -> list[Any]:
    return [w for o in owners for w in (o if isinstance(o, (list, tuple)) else (o,))]


def _shared_node(tensor: Any, holders: list[Any], provider: Any, protocol: Any, user: Any) -> Any:
    head = tensor.child if type(tensor) is Wrapper else tensor.detach()
    if secret_of(head) is not None:
        raise ChainError(
            "This tensor is shared already. Use it as it is, or `.get()` it first to share it anew."
        )
    if isinstance(head, FixedPrecisionTensor):
        return head.like(_shared_integers(head.child, holders, provider, protocol, user))
    if not isinstance(head, (torch.Tensor, PointerTensor)):
        raise ChainError(
            f"A {type(head).__name__} cannot be shared. Share the plain tensor, then put the type on top."
        )
    dtype = head.dtype
    if dtype.is_floating_point or dtype.is_complex:
        raise TypeError(
            f"A tensor of {dtype} cannot be shared: secrets are integers. Call fix_precision() first: "
            "x.fix_precision().share(...)."
        )
    return _shared_integers(head, holders, provider, protocol, user)


def _shared_integers(
    values: Any, holders: list[Any], provider: Any, protocol: Any, user: Any
) -> AdditiveSharingTensor:
    if isinstance(values, PointerTensor):
        if protocol == authenticated.PROTOCOL:
            raise NoMacsError(
                "share() of a pointer, where the value is,",
                "Its worker would have to be told masks by the provider. Fetch the value and share it here, or share it "
                "where it is without protocol=.",
            )
        return _share_there(values, holders, provider, protocol, user)
    return share_integers(values.to(torch.int64), holders, provider, protocol)


def _share_there(
    pointer: PointerTensor, holders: list[Any], provider: Any, protocol: Any, user: Any
) -> AdditiveSharingTensor:
    """Let the worker that has the values split them and send every holder its share."""
    ids = tuple(ID_PROVIDER.pop() for _ in holders)
    pointer.ask(ShareMessage(pointer.id_at_location, tuple(h.id for h in holders), ids, user))
    node = AdditiveSharingTensor(crypto_provider=provider, protocol=protocol)
    spec = shared_linear.shares_spec(pointer.spec)
    node.child = {h.id: new_pointer(h, i, spec) for h, i in zip(holders, ids, strict=True)}
    node.was_shared_there = True
    node._remembered = Remembered(is_lasting=True)
    return node


def split_and_send(worker: Worker, message: ShareMessage) -> None:
    """Handle a ShareMessage: shares of a restricted value go only where the user may have it."""
    from syft.messaging.message import ObjectMessage

    placed = zip(message.holders, message.ids, strict=True)
    here = [new_id for holder, new_id in placed if holder == worker.id]
    call = pipeline.permit(worker, message, (message.id,), here)
    values = worker.get_obj(message.id)
    allowed = worker.allowed_users(message.id)
    if allowed is not None or worker.policy.is_guarded:
        worker.policy.check_get(user_of(message), message.id, allowed, action="share")
    if values.is_floating_point():
        raise TypeError("A tensor of floats cannot be shared. Call fix_precision() first.")
    shares = ring.share(values.to(torch.int64).contiguous(), len(message.holders), Stream(new_seed()))
    for holder_id, new_id, part in zip(message.holders, message.ids, shares, strict=True):
        if holder_id == worker.id:
            call.keep(new_id, part)
        else:
            holder = worker.get_worker(holder_id, fail_hard=True)
            if holder.is_in_process:
                worker.send_msg(ObjectMessage(part, new_id), holder)
            else:  # there it would be ours alone; and whoever asked uses it next, by a way of their own
                worker.send_msg(ObjectMessage(part, new_id, allowed), holder)
                holder.sync()


handlers.HANDLERS[ShareMessage] = split_and_send


def _integers_of(tensor: Any) -> torch.Tensor:
    """A copy of the integers of a fixed-precision chain that a worker holds."""
    node: Any = tensor.child if type(tensor) is Wrapper else None
    is_fixed = isinstance(node, FixedPrecisionTensor) and node.is_real and not node.is_fine
    if not is_fixed or not isinstance(node.child, torch.Tensor):
        raise CannotRequestObjectAttribute(
            "The attribute 'integers' was asked of a tensor that is not in fixed precision at the worker. Send "
            "x.fix_precision()."
        )
    return node.child.detach().clone()


handlers.TENSOR_ATTRIBUTES["integers"] = _integers_of
object_handlers.TENSOR_METHODS.update(
    {"fix_precision": fix_precision, "float_precision": float_precision, "share": share}
)


# -- asking a secret --------------------------------------------------------------------------------------


def _secret(tensor: Any, method: str) -> AdditiveSharingTensor:
    found = secret_of(tensor.child) if type(tensor) is Wrapper else None
    if found is None:
        raise (
            LocalTensorError(method)
            if type(tensor) is not Wrapper
            else ChainError(f".{method} is for shared tensors. Call share(...) first.")
        )
    return found


def _over(tensor: Any, node: Any) -> Any:
    """A chain like that of `tensor` over another secret."""
    above = []
    head = tensor.child
    while not isinstance(head, AdditiveSharingTensor):
        above.append(head)
        head = head.child
    for part in reversed(above):
        node = part.like(node)
    return new_wrapper(node)


def virtual_get(self: Any, **kwargs: Any) -> Any:
    """The value without removing anything; only for workers in this process (tests, debugging)."""
    head = stored(self)
    if head is not None:
        return new_wrapper(head.virtual_get())
    if type(self) is Wrapper and secret_of(self.child) is None:
        return self.child.virtual_get(**kwargs)
    value = _secret(self, "virtual_get").virtual_get()
    return value if isinstance(self.child, AdditiveSharingTensor) else _over(self, value)


def reconstruct(self: Any) -> Any:
    """Let the holders open the secret among themselves; returns pointers to it at every holder."""
    return new_wrapper(_secret(self, "reconstruct").reconstruct())


class Refresh(torch.autograd.Function):
    """New shares of the same secret: the identity, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return _over(tensor, _secret(tensor, "refresh").refresh())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def refresh(self: Any) -> Any:
    """The same secret under new shares; gradients go through it as through the identity."""
    _secret(self, "refresh")
    return Refresh.apply(self)


def mod(self: Any, modulus: Any) -> Any:
    """self % modulus."""
    return torch.remainder(self, modulus)


def zero(self: Any, shape: Any = None) -> Any:
    """A secret of zeros with the same holders."""
    return _over(self, _secret(self, "zero").zero(shape))


class _Locations:
    """`tensor.locations` and `tensor.field` of a shared tensor."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if tensor is None:
            return self
        node = tensor.child if type(tensor) is Wrapper else None
        found = secret_of(node) or node
        if found is None or not hasattr(found, self.name):
            raise AttributeError(
                f"A tensor that is not shared has no {self.name}. Share it first: x.fix_precision().share(alice, bob)."
            )
        return getattr(found, self.name)


TENSOR_METHODS: dict[str, Any] = {
    "share": share,
    "offer": offer,
    "withdraw": withdraw,
    "share_": share_,
    "virtual_get": virtual_get,
    "reconstruct": reconstruct,
    "refresh": refresh,
    "mod": mod,
    "zero": zero,
    "locations": _Locations("locations"),
    "field": _Locations("field"),
    "crypto_provider": _Locations("crypto_provider"),
}


def share_module(self: Any, *owners: Any, **kwargs: Any) -> Any:
    """Share parameters and buffers that are in fixed precision, in place; returns self.

    `requires_grad=True`: all parameters collect gradients, also those that were frozen.
    """
    if kwargs.pop("requires_grad", False):
        self.requires_grad_(True)
    for tensor in (*self.parameters(), *self.buffers()):
        if type(tensor) is Wrapper:
            share_(tensor, *owners, **kwargs)
        elif tensor.is_floating_point():
            raise TypeError(
                "The parameters of this model are floats. Call model.fix_precision() before model.share(...)."
            )
    return self
