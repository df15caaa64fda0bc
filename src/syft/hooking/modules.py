"""What the hook adds to `torch.nn.Module`: a model that travels in place.

Parameters keep their identity (an optimizer made before goes on working), buffers travel too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.session import session
from syft.exceptions import ChainError
from syft.hooking.optimizers import follow_parameters


class ModuleAttribute:
    """A read-only attribute. torch.jit compiles every `property` of a module, so this is not one."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __get__(self, module: Any, owner: Any = None) -> Any:
        return self if module is None else self.read(module)


def _tensors(module: torch.nn.Module) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _is_remote(tensor: Any) -> bool:
    return type(tensor) is Wrapper and tensor.child is not None and tensor.child.is_remote


def send(self: Any, *dest: Any, force_send: bool = False, **kwargs: Any) -> Any:
    """Send parameters and buffers to a worker, in place; returns self.

    `force_send` concerns a `forward` that is a Plan: it is sent again even if the worker has it.
    """
    follow_parameters()
    for tensor in _tensors(self):
        tensor.send_(*dest, **kwargs)
    return self


def get(self: Any, **kwargs: Any) -> Any:
    """Fetch parameters, their gradients and buffers, in place; returns self. What is here stays here."""
    for tensor in _tensors(self):
        if _is_remote(tensor):
            tensor.get_(**kwargs)
    return self


def move(self: Any, dest: Any, **kwargs: Any) -> Any:
    """Move parameters, gradients and buffers from worker to worker, not through here; returns self."""
    follow_parameters()
    target = session.require_local_worker().get_worker(dest, fail_hard=True)
    if target is session.local_worker:
        return get(self, **kwargs)
    for tensor in _tensors(self):
        tensor.move_(target, **kwargs)
    return self


def end_get(self: Any) -> Any:
    """me -> alice -> bob becomes me -> alice, for every parameter and buffer; returns self."""
    for tensor in _tensors(self):
        tensor.mid_get()
        if tensor.grad is not None:
            tensor.grad.mid_get()
    return self


def copy_module(self: Any) -> Any:
    """An independent copy of the model, where it is."""
    return copy.deepcopy(self)


def _location(self: Any) -> Any:
    """The worker the model is on; None when it is here. !! if its parts are on several."""
    found = {id(t.location): t.location for t in _tensors(self)}
    if len(found) > 1:
        names = sorted(str(getattr(w, "id", "here")) for w in found.values())
        # NB: not an AttributeError, which nn.Module.__getattr__ would replace by its own.
        raise ChainError(
            f"The parts of this model are in several places ({', '.join(names)}). "
            "Ask its layers one by one, or bring it together with `.move(worker)`."
        )
    return next(iter(found.values()), None)


def _owner(self: Any) -> Any:
    """The worker the model belongs to: that of its parameters, or the local one."""
    first = next(_tensors(self), None)
    return session.local_worker if first is None else first.owner


def module_is_missing_grad(model: torch.nn.Module) -> bool:
    """Whether any parameter has no gradient yet."""
    return any(p.grad is None for p in model.parameters())


def create_grad_objects(model: torch.nn.Module) -> None:
    """Give every parameter without a gradient one of zeros, where it is."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


ADDED: dict[str, Any] = {
    "send": send,
    "send_": send,
    "get": get,
    "get_": get,
    "end_get": end_get,
    "move": move,
    "copy": copy_module,
    "location": ModuleAttribute(_location),
    "owner": ModuleAttribute(_owner),
}
