"""A model that was sent runs its forward where it is: what it makes on the way is made there.

NOTE [Calls of a sent module]
`nn.Module.__call__` calls `self._call_impl`, which runs hooks and `forward`. A module that was sent has an attribute of
that name, which runs torch's own inside `At`. Nothing else of torch changes, and modules that are here pay nothing. The
layers of torch.nn that have no parts make no tensors of their own (recurrent ones send their zero state), and are left
alone unless they were sent by themselves; so is a `Sequential` of such layers.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.nested import found_in
from syft.core.node import MISSED
from syft.core.place import PLACE
from syft.core.session import session
from syft.tensors.fused import run_layers
from syft.tensors.made_at import RUNS_CODE_OF_MODELS, At
from syft.tensors.pointer import PointerTensor

_CALL = "_call_impl"


class CallThere:
    """Calls a module at the worker where it is. It holds the module weakly: modules go with their last reference."""

    __slots__ = ("_module", "block", "location")

    def __init__(self, module: torch.nn.Module, location: Any) -> None:
        self._module = weakref.ref(module)
        self.location = location

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self._module()
        call = type(module)._call_impl
        location = self.location
        if PLACE.at is location or PLACE.is_fixed:
            return call(module, *args, **kwargs)
        if type(module) is torch.nn.Sequential and len(args) == 1 and not kwargs:
            result = run_layers(module, args[0])
            if result is not MISSED:
                return result
        if _makes_nothing(module):
            return call(module, *args, **kwargs)
        # Nothing of the caller's is sent silently: beside local arguments no local tensor is taken for a constant.
        takes_constants = not _has_local(args) and not (kwargs and _has_local(kwargs))
        with At(location, True, takes_constants):
            return call(module, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> CallThere:
        module: Any = self._module()
        return CallThere(memo.get(id(module), module), self.location)


def _makes_nothing(module: torch.nn.Module) -> bool:
    """Whether a call of a module runs layers of torch.nn alone, none of which has parts or hooks: it makes no tensors."""
    if type(module) is not torch.nn.Sequential or _GLOBAL_HOOKS[0] or _GLOBAL_HOOKS[1]:
        return False
    for part in (module, *module._modules.values()):
        # NB: looked at in every call, because layers can be replaced.
        if part is None or part._forward_hooks or part._forward_pre_hooks or not _is_layer(part):
            return False
        if part._modules and part is not module:
            return False
    return True


_GLOBAL_HOOKS = (
    torch.nn.modules.module._global_forward_hooks,
    torch.nn.modules.module._global_forward_pre_hooks,
)


def _has_local(values: Any) -> bool:
    return any(type(tensor) is not Wrapper for tensor in found_in(values, torch.Tensor))


def call_there(root: torch.nn.Module, parts: list[torch.nn.Module]) -> None:
    """Let a model, and each of its `parts` that has code of its own, run where its parameters are now."""
    for module in parts:
        if module is not root and not _has_own_code(module):
            continue
        location = _common_location(parts if module is root else parts_of(module))
        if location is None:
            module.__dict__.pop(_CALL, None)
        else:
            module.__dict__[_CALL] = CallThere(module, location)
            if not _is_layer(module):
                RUNS_CODE_OF_MODELS.add(location)


def _has_own_code(part: torch.nn.Module) -> bool:
    if not _is_layer(part):
        return True
    has_parts = bool(part._modules) and any(module is not None for module in part._modules.values())
    return has_parts and not isinstance(part, _CONTAINERS)


def parts_of(root: torch.nn.Module) -> list[torch.nn.Module]:
    """A module and its parts, each once, in the order of `root.modules()`, which takes longer than to send a tensor."""
    found: dict[torch.nn.Module, None] = {}
    _walk(root, found)
    return list(found)


def _walk(module: torch.nn.Module, found: dict[torch.nn.Module, None]) -> None:
    if module not in found:
        found[module] = None
        for part in module._modules.values():
            if part is not None:
                _walk(part, found)


def _is_layer(module: torch.nn.Module) -> bool:
    """Whether a module is one of torch.nn itself."""
    return type(module).__module__.startswith("torch.nn.modules.")


_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


def _common_location(parts: list[torch.nn.Module]) -> Any:
    """The one worker that has all parameters and buffers of these modules; None: none, several, or this machine."""
    found: Any = None
    for part in parts:
        for kept in (part._parameters, part._buffers):
            for tensor in kept.values():
                if tensor is None:
                    continue
                node = tensor.child if type(tensor) is Wrapper else None
                if not isinstance(node, PointerTensor) or (found is not None and node._location is not found):
                    return None
                found = node._location
    return None if found is session.local_worker else found
