"""`NativeSpellings`: names that programs of 2020 use on every tensor, each in terms of the names of `TorchTensor`."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.core.abstract import run_public_command
from syft.core.chain import Wrapper
from syft.exceptions import NoRemoteValueError


class NativeSpellings:
    """Old names for `torch.Tensor`; `self` is a plain tensor or a Wrapper throughout."""

    # -- whether a remote value goes with its pointer ------------------------------------------------

    @property
    def garbage_collect_data(self: Any) -> bool:
        """Whether the remote value goes when the last reference to this pointer goes."""
        return bool(_remote_node(self, "garbage_collect_data").get_garbage_collect_data())

    @garbage_collect_data.setter
    def garbage_collect_data(self: Any, value: bool) -> None:
        _remote_node(self, "garbage_collect_data").set_garbage_collect_data(value)

    gc = garbage_collection = garbage_collect_data

    @property
    def disable_gc(self: Any) -> Any:
        """Reading it keeps the remote value from now on; returns this tensor."""
        _remote_node(self, "disable_gc").set_garbage_collect_data(False)
        return self

    def set_garbage_collect_data(self: Any, value: bool) -> None:
        """Choose whether the remote value goes with the last reference to it."""
        _remote_node(self, "set_garbage_collect_data").set_garbage_collect_data(value)

    def get_garbage_collect_data(self: Any) -> bool:
        """Whether the remote value goes with the last reference to it."""
        return bool(_remote_node(self, "get_garbage_collect_data").get_garbage_collect_data())

    # -- chains --------------------------------------------------------------------------------------

    def has_child(self: Any) -> bool:
        """Whether the tensor is a chain."""
        return type(self) is Wrapper and self.child is not None

    def get_class_attributes(self: Any) -> dict[str, Any]:
        """What a node of a chain is rebuilt with; a tensor has nothing but its values."""
        return {}

    def _is_parameter(self: Any) -> bool:
        """Whether the tensor is a parameter of a model."""
        return isinstance(self, torch.nn.Parameter)

    def combine(self: Any, *pointers: Any) -> Any:
        """This pointer and pointers on other workers as one MultiPointerTensor."""
        from syft.tensors.multi_pointer import combine_pointers

        return combine_pointers(self, *pointers)

    def torch_type(self: Any) -> str:
        """The name of the class of a plain tensor of this dtype, e.g. 'torch.FloatTensor'."""
        return str(torch.empty(0, dtype=self.dtype).type())

    def numpy_tensor(self: Any) -> Any:
        """`Wrapper > NumpyTensor > array` over the same memory."""
        from syft.tensors.numpy_array import create_numpy_tensor

        return create_numpy_tensor(self.detach().numpy())

    @classmethod
    def handle_func_command(cls, command: Any) -> Any:
        """Run the public torch function named in `command` (name, self, args, kwargs) on plain tensors and chains."""
        return run_public_command(cls, command)

    @staticmethod
    def torch(module: Any) -> None:
        """No function of torch is different on plain tensors."""

    def _requires_large_precision(
        self: Any, max_precision: int, base: int, precision_fractional: int
    ) -> bool:
        """Whether a value, encoded, has more bits than `max_precision`."""
        if self.numel() == 0:
            return False
        bits = math.log2(base) * precision_fractional
        largest = float(self.detach().abs().max())
        return largest > 0 and math.log2(largest) + bits > max_precision


def default_pytorch_maximum_precision() -> int:
    """How many bits an integer of torch has beside its sign."""
    return 63


def _get_maximum_precision() -> int:
    return default_pytorch_maximum_precision()


#: What torch's own class has under a name that was ours in 2020.
for _name in ("shape", "data", "grad", "clone"):
    setattr(NativeSpellings, _name, getattr(torch.Tensor, _name))


def _remote_node(tensor: Any, name: str) -> Any:
    """The head of a chain that ends on other machines."""
    if type(tensor) is not Wrapper:
        raise NoRemoteValueError(name, "a tensor on this machine")
    if tensor.child is None:
        raise NoRemoteValueError(name, "an empty wrapper")
    if not tensor.child.is_remote:
        raise NoRemoteValueError(name, f"a {type(tensor.child).__name__} chain on this machine")
    return tensor.child
