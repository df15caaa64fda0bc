"""`NumpyTensor`: the end of a chain whose values are a numpy array.

    x = NumpyTensor(numpy_tensor=np.eye(2))
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
from syft.core.nested import found_in
from syft.core.overload import overloaded, overloads_chain
from syft.exceptions import ChainError, UnsupportedOperationError


class HookedTensor(AbstractTensor):
    """A node that interprets operations itself; `verbose` makes it print which."""

    def __init__(
        self,
        owner: Any = None,
        id: Any = None,
        tags: Any = None,
        description: str | None = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(owner=owner, id=id, tags=tags, description=description, **kwargs)
        self.verbose = verbose

    def get_class_attributes(self) -> dict[str, Any]:
        return {"verbose": True} if self.verbose else {}

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        node = next(found_in((args, kwargs), HookedTensor), None)
        if node is not None and node.verbose:
            print(f"{cls.__name__} runs {func.__name__.partition('.')[0]}")
        return super().interpret(func, args, kwargs)


class NumpyTensor(HookedTensor):
    """A tensor whose child is a numpy array.

    `NumpyTensor(numpy_tensor=array)` is a chain, `Wrapper > NumpyTensor > array`; without an array it is the node, to
    be put `.on(tensor)`. The array is used as it is. Only what torch cannot look at (read-only memory, negative
    strides, foreign byte order) is copied once, and `.child` is then the copy.
    """

    def __new__(cls, numpy_tensor: Any = None, *args: Any, **kwargs: Any) -> Any:
        if numpy_tensor is None:
            return super().__new__(cls)
        return cls(None, *args, child=np.asarray(numpy_tensor), **kwargs).wrap()

    def __init__(self, numpy_tensor: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    @overloaded.method
    def transpose(self: Any, _self: Any, *dims: Any) -> Any:
        """As torch's; without dimensions it turns their order round, as numpy's."""
        return _self.transpose(*dims) if dims else _self.permute(*reversed(range(_self.dim())))

    @overloaded.method
    def dot(self: Any, _self: Any, other: Any) -> Any:
        """As numpy's: of matrices it is their product."""
        return _self.dot(other) if _self.dim() == other.dim() == 1 else _self.matmul(other)

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


def create_numpy_tensor(numpy_tensor: Any) -> torch.Tensor:
    """`Wrapper > NumpyTensor > array`."""
    made: torch.Tensor = NumpyTensor(numpy_tensor=numpy_tensor)  # type: ignore[assignment]
    return made


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
