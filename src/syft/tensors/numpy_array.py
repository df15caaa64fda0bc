"""`NumpyTensor`: the end of a chain whose values are a numpy array.

    x = NumpyTensor(numpy_tensor=np.eye(2)).wrap()
    (x @ x).child.child            # a numpy array

An array and a torch tensor can look at the same memory. A node keeps both views of it: `.child` is the
array, and operations run on the tensor. Nothing is copied on the way in or out, so an operation that
writes in place writes into the array, and what numpy writes into the array the chain sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import one, register_backward_func, register_forward_func, register_type_rule
from syft.core.overload import overloads_chain
from syft.exceptions import ChainError, UnsupportedOperationError


class NumpyTensor(AbstractTensor):
    """A tensor whose child is a numpy array.

    The array is used as it is. Only what torch cannot look at (read-only memory, negative strides,
    foreign byte order) is copied once, and `.child` is then the copy.
    """

    def __init__(self, numpy_tensor: Any = None, **kwargs: Any) -> None:
        if numpy_tensor is not None:
            kwargs["child"] = np.asarray(numpy_tensor)
        super().__init__(**kwargs)

    @property
    def child(self) -> Any:
        """The values as a numpy array."""
        return self._array

    @child.setter
    def child(self, values: Any) -> None:
        self._array: Any = None
        self._view: torch.Tensor | None = None
        if values is not None:
            self._array, self._view = _both_views(values)

    @property
    def view(self) -> torch.Tensor:
        """The same memory as a torch tensor."""
        if self._view is None:
            raise ChainError(
                "This NumpyTensor has no array yet. Make it with NumpyTensor(numpy_tensor=array), or put it "
                "on a tensor with NumpyTensor().on(tensor)."
            )
        return self._view

    @property
    def spec(self) -> torch.Tensor:
        return self.view

    @overloads_chain
    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        """Lets numpy functions take the node, or a chain that holds it, without a copy."""
        return np.array(_array_of(self), dtype=dtype, copy=copy)

    @overloads_chain
    def numpy(self: Any, *, force: bool = False) -> Any:
        """The array itself."""
        return _array_of(self.detach() if force and isinstance(self, torch.Tensor) else self)

    @overloads_chain
    def tolist(self: Any) -> Any:
        """The values as nested lists of Python numbers."""
        return _node_of(self).child.tolist()


def _node_of(tensor: Any) -> NumpyTensor:
    node: NumpyTensor = tensor if isinstance(tensor, NumpyTensor) else tensor.child
    return node


def _array_of(tensor: Any) -> Any:
    """The array of a node, or of a chain that torch does not follow (numpy would lose the gradient)."""
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
        raise RuntimeError(
            "A NumpyTensor that requires grad was read as a numpy array, which has no gradient. "
            "Call `.detach()` first."
        )
    return _node_of(tensor).child


def _both_views(values: Any) -> tuple[Any, torch.Tensor]:
    """One memory as a numpy array and as a torch tensor."""
    if isinstance(values, torch.Tensor):
        return _from_tensor(values)
    if isinstance(values, np.ndarray):
        return _from_array(values)
    raise ChainError(
        f"A NumpyTensor holds a numpy array and cannot stand on a {type(values).__name__}. Make it with "
        "NumpyTensor(numpy_tensor=array), and put other types on top of it: LoggingTensor().on(x)."
    )


def _from_array(array: Any) -> tuple[Any, torch.Tensor]:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        return array, torch.from_numpy(array)
    except TypeError as error:
        raise TypeError(
            f"A NumpyTensor cannot hold an array of dtype {array.dtype}, which torch does not have. "
            "Convert it first, e.g. with `array.astype(numpy.float64)`."
        ) from error


def _from_tensor(tensor: torch.Tensor) -> tuple[Any, torch.Tensor]:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise UnsupportedOperationError(
            f"a tensor of layout {tensor.layout} on {tensor.device}",
            NumpyTensor,
            "A numpy array is dense and in main memory: call `.to_dense()` or `.cpu()` first.",
        )
    view = tensor.detach().resolve_conj().resolve_neg()
    try:
        return view.numpy(), view
    except TypeError as error:
        raise UnsupportedOperationError(
            f"a result of dtype {tensor.dtype}",
            NumpyTensor,
            "numpy does not have this dtype: compute in one that it has, e.g. with `.float()`, "
            "or leave numpy first with torch.from_numpy(x.child.child).",
        ) from error


def _step_up(tensor: Any, **attributes: Any) -> NumpyTensor:
    return NumpyTensor(child=tensor, **attributes)


register_type_rule({NumpyTensor: one})
register_forward_func({NumpyTensor: lambda node: node.view})
register_backward_func({NumpyTensor: _step_up})
