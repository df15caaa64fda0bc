"""Arguments of a command as its message carries them: pointers to the worker become references to what it holds."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.exceptions import TensorsNotCollocatedException
from syft.messaging.message import Ref
from syft.tensors.pointer import PointerTensor


def as_refs(value: Any, location: Any) -> Any:
    """Arguments of a command as a message carries them."""
    node = value.child if type(value) is Wrapper else value
    if isinstance(node, PointerTensor):
        if node.location is not location and node.location.id != location.id:
            raise TensorsNotCollocatedException(node, _At(location), "a remote command")
        return Ref(node.id_at_location)
    if isinstance(value, torch.Tensor):
        raise TensorsNotCollocatedException(value, _At(location), "a remote command")
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(as_refs(v, location) for v in value)
    if isinstance(value, dict):
        return {k: as_refs(v, location) for k, v in value.items()}
    return value


class _At:
    """A tensor that would be at a worker, for error messages."""

    def __init__(self, location: Any) -> None:
        self.location = location
