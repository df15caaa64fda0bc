"""The least that the documented loop can be: tensors behind a wrapper in this process, and nothing else.

`Behind` hands every public function of torch on to the tensor behind it, whose graph is torch's own, and wraps what
comes back. A model is sent by putting each parameter behind a wrapper in place, with its gradient, and fetched by taking
it out. A batch is a copy of rows. There are no workers, ids, owners, errors or records, and nothing is checked: what is
left is the price of Python being asked for each function of a step, and of four parameters that change places.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.swap import become

_make = torch.Tensor._make_wrapper_subclass
_off = torch._C.DisableTorchFunctionSubclass


class Behind(torch.Tensor):
    """A tensor of the shape of another one, which is asked in its place."""

    value: Any = None

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with _off():
            values = [value.value if type(value) is Behind else value for value in args]
            result = func(*values, **(kwargs or {}))
        return behind(result) if type(result) is torch.Tensor else result

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def behind(value: torch.Tensor) -> Behind:
    made: Behind = _make(Behind, value.shape, strides=value.stride(), dtype=value.dtype)
    made.value = value
    return made


def send(model: torch.nn.Module) -> None:
    with _off():
        for parameter in [*model.parameters()]:
            value = parameter.detach().requires_grad_()
            value.grad = parameter.grad
            become(parameter, behind(value))


def get(model: torch.nn.Module) -> None:
    with _off():
        for parameter in [*model.parameters()]:
            value: Any = parameter.value
            made = torch.nn.Parameter(value.detach())
            made.grad = value.grad
            become(parameter, made)


def rows(data: torch.Tensor, first: int, last: int) -> Behind:
    return behind(data[first:last].clone())
