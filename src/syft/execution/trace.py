"""Running a function once and writing down every public torch function it calls.

The mode is torch's own (`TorchFunctionMode`): it hears of every call at the level at which the user wrote it, and not
of the calls that are made inside. Tensors of the function's surroundings (parameters, buffers) are replaced by copies
on the way into every call, so that a trace changes nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from syft.core.chain import Wrapper
from syft.core.public_names import is_property_access
from syft.execution.errors import TraceError
from syft.execution.operation import PLAIN_TYPES, Size, leaves, map_structure
from syft.execution.sizes import SizeLog, _Symbolic, symbolic_size, user_line
from syft.execution.vocabulary import ALL_READS, METADATA, READS, name_of, plan_operations


@dataclass(frozen=True, slots=True)
class Handle:
    """A tensor in a trace: by its number, in the order in which the tensors were first seen."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call; tensors are Handles, numbers that depend on sizes are still symbolic."""

    name: str
    args: Any
    kwargs: Any
    results: Any
    tracks: bool
    line: str


#: Properties that are other tensors: the method or function that returns the same.
_TENSOR_PROPERTIES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "mT": ("transpose", (-2, -1)),
    "real": ("torch.real", ()),
    "imag": ("torch.imag", ()),
    "data": ("detach", ()),
    "H": ("adjoint", ()),
    "mH": ("adjoint", ()),
}

#: Calls that change how autograd goes on, and are not part of the operations.
_IGNORED = frozenset({torch._C._set_grad_enabled})

_REASONS = {
    "backward": "runs backward inside the function. Let the plan return the loss and call backward on it, or use "
    "Plan.training(model, loss_fn, optimizer, ...), which trains in one message",
    "grad": "asks for gradients inside the function. Let the plan return the loss, or use Plan.training(...)",
    "requires_grad_": "changes requires_grad inside the function. Do it before",
    "register_hook": "registers a hook, which is Python code and does not travel",
}
_READING_METHODS = {
    "__bool__": "decides by the value of a tensor (if, while, and, or, not, assert). Use torch.where, or decide before",
    "__float__": "reads a value with float(). Go on with the tensor itself",
    "__int__": "reads a value with int(). Go on with the tensor itself",
    "__index__": "uses the value of a tensor as a Python index. Index with the tensor: values[index_tensor]",
    "__complex__": "reads a value with complex(). Go on with the tensor itself",
    "__contains__": "asks whether a value is in a tensor. Use (tensor == value).any()",
    "item": "reads a value with .item(). Go on with the tensor itself",
    "tolist": "reads values with .tolist(). Go on with the tensor itself",
    "numpy": "leaves torch with .numpy(). Go on with torch functions",
    "__array__": "leaves torch for numpy. Go on with torch functions",
}


class Trace(TorchFunctionMode):
    """One traced run: what was called, and on what."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.log = SizeLog()
        self.tensors: list[Any] = []
        self.made: set[int] = set()  #: the tensors that recorded calls returned
        #: what the function asked of its inputs and results: "sizes", "rank", "dtype"
        self.reads: set[str] = set()
        self._numbers: dict[int, int] = {}
        self._copies: dict[int, torch.Tensor] = {}
        self._alive: list[Any] = []
        for tensor in inputs:
            self._number(tensor)
        self.input_count = len(inputs)

    # -- tensors -----------------------------------------------------------------------------------

    def _number(self, tensor: torch.Tensor) -> int:
        number = len(self.tensors)
        self.tensors.append(tensor)
        self._numbers[id(tensor)] = number
        return number

    def number_of(self, tensor: Any) -> int:
        """The number of a tensor; one that is new here was not made by a call."""
        found = self._numbers.get(id(tensor))
        if found is not None:
            return found
        if tensor.grad_fn is not None or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise TraceError(
                f"{user_line()} uses a tensor that was computed in a way that cannot be followed (torch.func, torch.ops, "
                "code in C++), or before the plan. Compute it with functions of torch, or pass it as an argument."
            )
        return self._number(tensor)

    def _stand_in(self, tensor: Any) -> Any:
        """What takes part in the run in place of a tensor: a copy, if the tensor is not the run's own."""
        number = self.number_of(tensor)
        if number < self.input_count or number in self.made:
            return tensor
        copied = self._copies.get(number)
        if copied is None:
            if type(tensor) is Wrapper:
                # Wherever the values are, the trace does not need them.
                copied = torch.zeros(tensor.shape, dtype=tensor.dtype)
            else:
                copied = tensor.detach().clone()
            copied.requires_grad_(tensor.requires_grad and tensor.is_leaf)
            self._copies[number] = copied
            self._numbers[id(copied)] = number
        return copied

    def _as_handle(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return Handle(self.number_of(leaf))
        if isinstance(leaf, _Symbolic) or type(leaf) in PLAIN_TYPES:
            return leaf
        if isinstance(leaf, np.generic):
            return leaf.item()
        if isinstance(leaf, np.ndarray):
            return Handle(self._constant_of(leaf))
        raise TraceError(
            f"{user_line()} passes a {type(leaf).__name__} to a torch function. A plan holds tensors, numbers, "
            "names, dtypes and slices; put the value into a tensor, or leave the argument out."
        )

    def _constant_of(self, array: Any) -> int:
        made = torch.as_tensor(array).clone()
        self._alive.append(array)
        return self._number(made)

    # -- calls -------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _IGNORED:
            return func(*args, **kwargs)
        if is_property_access(func):
            return self._property(func, args)
        name = name_of(func)
        given, given_kwargs = self._for_the_run((args, kwargs))
        if name in METADATA:
            return self._metadata(name, func, args, given, given_kwargs)
        if name == "torch.as_tensor" or name == "new_tensor":
            return self._literal(name, func, args, given, given_kwargs)
        if name in _READING_METHODS:
            raise TraceError(f"{user_line()} {_READING_METHODS[name]}.")
        if name not in plan_operations():
            self._refuse(name)
        if torch.is_autocast_enabled("cpu"):
            raise TraceError(
                f"{user_line()} runs {name} inside autocast, which a plan does not carry. Convert with `.to(dtype)`."
            )
        handles, named = map_structure(self._as_handle, (tuple(args), dict(kwargs)))
        tracks = torch.is_grad_enabled()
        if not tracks and _is_in_custom_function():
            raise TraceError(
                f"{user_line()} is part of a torch.autograd.Function, whose backward is Python code and does not travel. "
                "Write it with functions of torch, whose gradients are known."
            )
        result = func(*given, **given_kwargs)
        return self._record(name, handles, named, result, tracks)

    def _for_the_run(self, value: Any) -> Any:
        """Arguments with stand-ins for tensors; containers of other types are left to torch."""

        def step(leaf: Any) -> Any:
            return self._stand_in(leaf) if isinstance(leaf, torch.Tensor) else leaf

        return map_structure(step, value)

    def _record(self, name: str, args: Any, kwargs: Any, result: Any, tracks: bool) -> Any:
        found = leaves(result)
        if not any(isinstance(leaf, torch.Tensor) for leaf in found) and any(
            leaf is not None for leaf in found
        ):
            raise TraceError(
                f"{user_line()} asks {name} for a {type(result).__name__}, which depends on the values of tensors. A "
                "plan is the same for all values: go on with tensors."
            )

        def number(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return None
            made = self._number(leaf)
            self.made.add(made)
            return Handle(made)

        if isinstance(result, (tuple, list)):
            self.reads.add("sizes")  # how many results there are may depend on them, as with `split`
        results = map_structure(number, result)
        results = tuple(results) if isinstance(results, list) else results
        self.calls.append(Call(name, args, kwargs, results, tracks, user_line()))
        return result

    def _refuse(self, name: str) -> None:
        if name in _REASONS:
            raise TraceError(f"{user_line()} {_REASONS[name]}.")
        raise TraceError(
            f"{user_line()} calls {name}, which is not among the torch functions that workers run. Write it with "
            "functions of torch and torch.nn.functional and methods of tensors."
        )

    def _literal(self, name: str, func: Any, args: Any, given: Any, kwargs: Any) -> Any:
        """`torch.as_tensor(data)` and `x.new_tensor(data)`: as `torch.tensor(data)`."""
        if name == "new_tensor":
            self._note_read(name, args[0])
        data = args[1] if name == "new_tensor" else args[0]
        if isinstance(data, torch.Tensor):
            return data if not kwargs else self.__torch_function__(torch.Tensor.to, (), (data,), kwargs)
        result = func(*given, **kwargs)
        handles, named = map_structure(self._as_handle, ((data,), {"dtype": result.dtype}))
        return self._record("torch.tensor", handles, named, result, torch.is_grad_enabled())

    # -- what is known without values ----------------------------------------------------------------

    def _metadata(self, name: str, func: Any, args: Any, given: Any, kwargs: Any) -> Any:
        result = func(*given, **kwargs)
        bare = name.removeprefix("torch.")
        if not args or not isinstance(args[0], torch.Tensor):
            return result
        for tensor in args:
            self._note_read(bare, tensor)
        if bare == "size":
            return self._sizes(args[0], given[0], result, *given[1:], **kwargs)
        if bare in ("numel", "nelement"):
            return math.prod(self._sizes(args[0], given[0], given[0].shape))
        if bare == "__len__":
            # Python's len() makes a plain int of whatever is returned here.
            self.log.escapes.append((result, Size("dim", self.number_of(args[0]), 0)))
        return result

    def _note_read(self, name: str, tensor: Any) -> None:
        """Remember what user code learns of a tensor that may be another one in the next call."""
        if isinstance(tensor, torch.Tensor):
            number = self.number_of(tensor)
            if number < self.input_count or number in self.made:
                self.reads.update(READS.get(name, ALL_READS))

    def _sizes(self, tensor: Any, stand_in: Any, result: Any, dim: Any = None) -> Any:
        number = self.number_of(tensor)
        if dim is not None and not isinstance(result, torch.Size):
            positive = dim % max(stand_in.ndim, 1)
            return symbolic_size(result, number, positive, self.log)
        return torch.Size([symbolic_size(n, number, d, self.log) for d, n in enumerate(result)])

    def _property(self, func: Any, args: Any) -> Any:
        name = func.__self__.__name__
        tensor = args[0]
        stand_in = self._stand_in(tensor)
        if func.__name__ != "__get__":
            raise TraceError(
                f"{user_line()} sets `.{name}` of a tensor, which a plan does not carry. Use operations, e.g. "
                "`tensor.copy_(value)`."
            )
        self._note_read(name, tensor)
        result = func(stand_in, *args[1:])
        if name == "shape":
            return self._sizes(tensor, stand_in, result)
        if name == "T":
            order = tuple(reversed(range(stand_in.ndim)))
            return self._record(
                "permute", (self._as_handle(tensor), order), {}, result, torch.is_grad_enabled()
            )
        if name in _TENSOR_PROPERTIES:
            method, extra = _TENSOR_PROPERTIES[name]
            arguments = (self._as_handle(tensor), *extra)
            return self._record(method, arguments, {}, result, torch.is_grad_enabled())
        if isinstance(result, torch.Tensor):
            raise TraceError(f"{user_line()} reads `.{name}` of a tensor, which a plan does not carry.")
        return result


def _is_in_custom_function() -> bool:
    """Whether the code that runs was called by `torch.autograd.Function.apply`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "apply" and frame.f_globals.get("__name__") == "torch.autograd.function":
            return True
        frame = frame.f_back
    return False
