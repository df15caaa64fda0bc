"""`secret.to(device)`, `.cuda()` and `.cpu()`: where the shares lie, and where the secret comes when it is opened.

For torch the wrapper of a secret lies on the CPU, so torch's own methods would find nothing to do. A conversion to the
dtype and device of another tensor (`x.to(other)`, `x.to(other.device)`) moves no secret, wherever the shares of both lie:
torch and models make such conversions by themselves. Of the other tensor nothing but its dtype and device is used, so
that it may be anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.node import MISSED
from syft.mpc.sharing import AdditiveSharingTensor, secret_of

aten = torch.ops.aten
#: The device of tensors that have no values.
_NOWHERE = torch.device("meta")


def moved(tensor: Any, device: torch.device) -> Any:
    """A secret on another device; its gradient comes back to where it is now. A secret that is there is itself."""
    if device == _NOWHERE:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    if _is_at(tensor, device):
        return tensor
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Moved.apply(tensor, device)
    return _at(tensor, device)


def _is_at(tensor: Any, device: torch.device) -> bool:
    secret = secret_of(tensor.child)
    is_there = secret.device == device or secret.locations[0].device is not None
    return bool(secret.home == device and is_there)


def _at(tensor: Any, device: torch.device) -> Any:
    return tensor if _is_at(tensor, device) else new_wrapper(_chain_at(tensor.child, device))


def _chain_at(node: Any, device: torch.device) -> Any:
    if isinstance(node, AdditiveSharingTensor):
        return AdditiveSharingTensor.interpret(aten._to_copy.default, (node,), {"device": device})
    return node.like(_chain_at(node.child, device))


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, device: torch.device) -> Any:
        ctx.home = secret_of(tensor.child).home
        return new_wrapper(_chain_at(tensor.child, device))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _at(grad, ctx.home), None


def _named_device(device: Any) -> torch.device:
    """A device with its number, but "cpu:0" is the CPU. !! ValueError for a CUDA device where there is none"""
    named = torch.device("cuda" if device is None else device)
    if named.type in ("cpu", "meta"):
        return torch.device(named.type)
    if named.type != "cuda":
        raise ValueError(
            f"A secret was to be moved to {named}. Shares lie on the CPU or on a CUDA device: write 'cpu', 'cuda' or "
            "'cuda:0'."
        )
    if not torch.cuda.is_available():
        raise ValueError(
            f"A secret was to be moved to {named}, and torch finds no CUDA device on this machine. Where workers keep "
            "their shares is said by their owners: device=..., or `syft worker --device`."
        )
    return torch.device("cuda", torch.cuda.current_device() if named.index is None else named.index)


def _is_device(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) or type(value) is int


_plain_to = torch.Tensor.to
#: What `.device` of a secret is. `to` tells it from every other name of the CPU by its identity.
_OF_SECRETS = torch.device("cpu")


def to(self: Any, *args: Any, **kwargs: Any) -> Any:
    """torch's `to`; where a device is named, it moves the shares of a secret, too."""
    names_device = bool(args) and _is_device(args[0])
    device = args[0] if names_device else kwargs.get("device")
    if device is None or secret_of(self.child) is None:
        return _plain_to(self, *args, **kwargs)
    made = self if device is _OF_SECRETS else moved(self, _named_device(device))
    others = [*(args[1:] if names_device else args), None, None, None]  # dtype, non_blocking, copy
    dtype, copy = kwargs.get("dtype", others[0]), kwargs.get("copy", others[2])
    kept = {"memory_format": kwargs["memory_format"]} if kwargs.get("memory_format") is not None else {}
    if dtype is None and not copy and not kept:
        return made
    return _plain_to(made, made.dtype if dtype is None else dtype, copy=bool(copy), **kept)


def _as_other(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`tensor.to(other)`, one of them a chain: the conversion to the dtype and device of `other`."""
    other = args[1] if len(args) > 1 else None
    if not isinstance(other, torch.Tensor):
        return MISSED
    if secret_of(getattr(args[0], "child", None)) is not None:
        return args[0].to(other.dtype, *args[2:], **kwargs)
    return args[0].to(other.device, other.dtype, *args[2:], **kwargs)


def _type_as(self: Any, other: Any) -> Any:
    return self.to(other)


def _method(name: str, device_of: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(torch.Tensor, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if secret_of(self.child) is None:
            return plain(self, *args, **kwargs)
        return moved(self, _named_device(device_of(*args, **kwargs)))

    call.__name__, call.__qualname__ = name, f"Wrapper.{name}"
    call.__doc__ = f"torch's {name}; it moves the shares of a secret, too."
    return call


DEVICE_METHODS: dict[str, Any] = {
    "to": to,
    "cuda": _method("cuda", lambda device=None, *_args, **_options: device),
    "cpu": _method("cpu", lambda *_args, **_options: "cpu"),
}

for _name, _call in DEVICE_METHODS.items():
    setattr(Wrapper, _name, _call)

Wrapper.fused[_plain_to] = _as_other
Wrapper.fused[torch.Tensor.type_as] = lambda args, kwargs: _type_as(*args, **kwargs)

_plain_device: Any = vars(torch._C.TensorBase)["device"]


def _device(self: Any) -> torch.device:
    """torch's `device`. A secret's is the CPU: what models make there is public, and read without waiting for a card."""
    if secret_of(self.child) is not None:
        return _OF_SECRETS
    with torch._C.DisableTorchFunctionSubclass():
        found: torch.device = _plain_device.__get__(self)
    return found


Wrapper.device = property(_device)  # type: ignore[assignment]
