"""Public tensors, brought to where the shares lie. The constants of rules are small, and are remembered there.

Imports torch only.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any

import torch

MOST_ELEMENTS = 1 << 16
MOST_CONSTANTS = 4096

_constants: OrderedDict[Hashable, torch.Tensor] = OrderedDict()
_keepers: list[list[torch.Tensor]] = []


def placed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A public tensor on a device. It is only read: a small one from the CPU is the same tensor for the same values."""
    if tensor.device == device:
        return tensor
    if tensor.device.type != "cpu" or tensor.numel() > MOST_ELEMENTS or type(tensor) is not torch.Tensor:
        return _kept(_copied(tensor, device))
    plain = tensor.detach().contiguous()
    key = (device, plain.dtype, plain.shape, plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    found = _constants.get(key)
    if found is None:
        found = _constants[key] = _copied(tensor.detach(), device)
        if len(_constants) > MOST_CONSTANTS:
            _constants.popitem(last=False)
    return _kept(found)


def _copied(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        return tensor.to(device)
    # A graph that is being recorded takes no copies from this side: they are made beside it, once.
    aside = torch.cuda.Stream(device)
    with torch.cuda.stream(aside):
        made = tensor.to(device)
    aside.synchronize()
    return made


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    for constants in _keepers:
        constants.append(tensor)
    return tensor


@contextlib.contextmanager
def keeping_constants() -> Iterator[list[torch.Tensor]]:
    """The constants that are used inside: a recording reads them again, so their memory must not be given back."""
    constants: list[torch.Tensor] = []
    _keepers.append(constants)
    try:
        yield constants
    finally:
        _keepers[:] = [one for one in _keepers if one is not constants]


def all_placed(value: Any, device: torch.device, kept: type | tuple[type, ...] = ()) -> Any:
    """The same for every tensor in a value made of lists, tuples and dicts; what is of a type in `kept` stays."""
    if isinstance(value, kept):
        return value
    if isinstance(value, torch.Tensor):
        return placed(value, device)
    if isinstance(value, dict):
        return {name: all_placed(one, device, kept) for name, one in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        parts = [all_placed(one, device, kept) for one in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value
