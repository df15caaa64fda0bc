"""Local tensors in a call on pointers: which are constants that go along, and the error for all others."""

from __future__ import annotations

import sys
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.nested import found_in
from syft.core.place import PLACE
from syft.core.public_names import public_name
from syft.exceptions import TensorsNotCollocatedException


def refuse_local_tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """!! TensorsNotCollocatedException if a public call on pointers has a local tensor that is no constant."""
    tensors = list(found_in((args, kwargs), torch.Tensor))
    local = next((t for t in tensors if type(t) is not Wrapper), None)
    if local is not None and not _is_constant_of_torch(tensors) and not _is_constant_of_model(tensors):
        remote = next(t for t in tensors if type(t) is Wrapper)
        name = public_name(func)
        cure = _cure_in_model(remote) if PLACE.takes_constants else ""
        if local is tensors[0]:
            raise TensorsNotCollocatedException(local, remote.child, name, cure)
        raise TensorsNotCollocatedException(remote.child, local, name, cure)


def _is_constant_of_torch(tensors: list[Any]) -> bool:
    """Whether the local tensors are constants that torch made, not tensors of the user.

    Some functions of torch (`torch.masked.var`) are Python code that makes such constants on the way. A
    constant is a single number; torch.masked also counts elements, in a tensor of one number over and over.
    """
    local = [t for t in tensors if type(t) is not Wrapper]
    if any(t.requires_grad for t in local):
        return False
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("syft."):
        frame = frame.f_back
    caller = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    if caller.startswith("torch.masked."):
        return all(t.ndim == 0 or bool((t == t.flatten()[:1]).all()) for t in local)
    return caller.startswith("torch.") and all(t.ndim == 0 for t in local)


#: Elements of a local tensor that is sent along when the forward of a sent model uses it.
_MOST_OF_A_CONSTANT = 63


def _is_constant_of_model(tensors: list[Any]) -> bool:
    """Whether the local tensors are small ones that a model uses which runs where the pointers are.

    The caller's own tensors are not among them: see NOTE [Calls of a sent module] in syft.hooking.calls_there.
    """
    return PLACE.takes_constants and all(
        t.child is not None and t.child.location is PLACE.at
        if type(t) is Wrapper
        else type(t) is torch.Tensor and not t.requires_grad and t.numel() <= _MOST_OF_A_CONSTANT
        for t in tensors
    )


def _cure_in_model(remote: Any) -> str:
    """What to do about a local tensor inside a model that runs at a worker."""
    return (
        f"Inside a model that was sent, local tensors of at most {_MOST_OF_A_CONSTANT} elements that need no gradient "
        "are sent along. Make it a buffer (register_buffer) or an attribute of the model, or make it inside forward; or "
        f"send it with `.send({getattr(remote.child.location, 'id', 'the worker')})`."
    )
