"""What the hook adds to `torch.nn.Module`: a model that travels in place.

Parameters keep their identity (an optimizer made before goes on working), buffers travel too.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.nested import found_in
from syft.core.session import session
from syft.exceptions import ChainError
from syft.hooking.calls_there import call_there, parts_of
from syft.hooking.given_models import give, gives_freely, take
from syft.hooking.optimizers import follow_parameters
from syft.tensors.transfer import prefetched

logger = logging.getLogger(__name__)


class ModuleAttribute:
    """A read-only attribute. torch.jit compiles every `property` of a module, so this is not one."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __get__(self, module: Any, owner: Any = None) -> Any:
        return self if module is None else self.read(module)


def _tensors(module: torch.nn.Module) -> list[Any]:
    """The parameters of a model and its parts, and then the buffers, each once."""
    return list(_by_id(parts_of(module)).values())


def _by_id(parts: list[torch.nn.Module]) -> dict[int, Any]:
    # NB: as `module.parameters()` and `.buffers()` do, in one walk. They take longer than it takes to send the tensors.
    found: dict[int, Any] = {}
    for kept in ([part._parameters for part in parts], [part._buffers for part in parts]):
        for tensors in kept:
            for tensor in tensors.values():
                if tensor is not None:
                    found[id(tensor)] = tensor
    return found


def _plain_attributes(module: torch.nn.Module, parts: list[torch.nn.Module], seen: set[int]) -> Any:
    """The tensors that are attributes of a model and its parts, alone or in lists and dicts, and are not among `seen`."""
    found: list[tuple[str, Any]] = []
    if not any(map(_has_plain_attributes, parts)):
        return found
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in _KEPT_BY_TORCH or not isinstance(value, _MAY_HOLD_TENSORS):
                continue
            for tensor in found_in(value, torch.Tensor):
                if id(tensor) not in seen and tensor.is_leaf and tensor.layout is torch.strided:
                    seen.add(id(tensor))
                    found.append((f"{path}.{name}" if path else name, tensor))
    return found


def _has_plain_attributes(part: torch.nn.Module) -> bool:
    """Whether a module has an attribute of its own that may hold tensors."""
    own = part.__dict__
    for name in own.keys() - _KEPT_BY_TORCH:  # noqa: SIM110  (a generator costs more than all of this)
        if isinstance(own[name], _MAY_HOLD_TENSORS):
            return True
    return False


_MAY_HOLD_TENSORS = (torch.Tensor, list, tuple, dict)
#: Where torch keeps parameters, buffers, parts and hooks of a module.
_KEPT_BY_TORCH = frozenset(vars(torch.nn.Module()))


def _travelling(module: torch.nn.Module, parts: list[torch.nn.Module]) -> list[Any]:
    """All tensors of a model that travel with it."""
    found = _by_id(parts)
    return [*found.values(), *[tensor for _, tensor in _plain_attributes(module, parts, set(found))]]


def _is_remote(tensor: Any) -> bool:
    return type(tensor) is Wrapper and tensor.child is not None and tensor.child.is_remote


def send(self: Any, *dest: Any, force_send: bool = False, **kwargs: Any) -> Any:
    """Send parameters, buffers and other tensors of a model to a worker, in place; returns self.

    `force_send` concerns a `forward` that is a Plan: it is sent again even if the worker has it.
    """
    follow_parameters()
    parts = parts_of(self)
    found = _by_id(parts)
    attributes = _plain_attributes(self, parts, set(found))
    given_to = _open_worker(dest) if not kwargs else None
    with contextlib.ExitStack() as stack:
        for place in dest:
            together = getattr(place, "together", None)
            if together is not None:
                stack.enter_context(together())
        for tensor in found.values():
            if given_to is None or not give(tensor, given_to):
                tensor.send_(*dest, **kwargs)
        for name, tensor in attributes:
            if type(tensor) is not Wrapper:
                logger.info(
                    "%s.send: the tensor %r is no buffer, and travels, too", type(self).__name__, name
                )
                tensor.send_(*dest, **kwargs)
    call_there(self, parts)
    return self


def _open_worker(dest: tuple[Any, ...]) -> Any:
    """The one worker that a model is sent to, if it takes tensors as they are; else None."""
    if len(dest) != 1 or isinstance(dest[0], (list, tuple)):
        return None
    worker = session.require_local_worker().get_worker(dest[0], fail_hard=True)
    return worker if gives_freely(worker) else None


def get(self: Any, **kwargs: Any) -> Any:
    """Fetch parameters, their gradients and buffers, in place; returns self. What is here stays here."""
    parts = parts_of(self)
    remote = [tensor for tensor in _travelling(self, parts) if _is_remote(tensor)]
    if not kwargs:
        remote = take(remote)
    if remote:
        with prefetched(remote, kwargs.get("user"), kwargs.get("reason", "")):
            for tensor in remote:
                tensor.get_(**kwargs)
    call_there(self, parts)
    return self


def move(self: Any, dest: Any, **kwargs: Any) -> Any:
    """Move parameters, gradients and buffers from worker to worker, not through here; returns self."""
    follow_parameters()
    target = session.require_local_worker().get_worker(dest, fail_hard=True)
    if target is session.local_worker:
        return get(self, **kwargs)
    parts = parts_of(self)
    for tensor in _travelling(self, parts):
        if tensor.location is not target:
            tensor.move_(target, **kwargs)
    call_there(self, parts)
    return self


def end_get(self: Any) -> Any:
    """me -> alice -> bob becomes me -> alice, for every parameter and buffer; returns self."""
    for tensor in _travelling(self, parts_of(self)):
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
    first = next(iter(_tensors(self)), None)
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
