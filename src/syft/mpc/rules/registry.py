"""`@rule`: how an aten operation gets its meaning on a tensor type. Adding an operation is one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.nested import found_in
from syft.mpc.placing import all_placed

Rule = Callable[..., Any]
#: `interpret(cls, func, args, kwargs)`: what an aten operation gives on nodes of a tensor type.
Interpret = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


def rule(tensor_type: type[AbstractTensor], *overloads: Any) -> Callable[[Rule], Rule]:
    """Register `function(*args, **kwargs)` as the meaning of these aten overloads on `tensor_type`."""

    def register(function: Rule) -> Rule:
        def run(cls: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            return function(*args, **kwargs)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        for overload in overloads:
            tensor_type.aten_rules[overload] = run
        return function

    return register


def rule_with_func(tensor_type: type[AbstractTensor], *overloads: Any) -> Callable[[Rule], Rule]:
    """Like `rule`, for functions that serve several overloads: `function(func, *args, **kwargs)`."""

    def register(function: Rule) -> Rule:
        def run(cls: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            return function(func, *args, **kwargs)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        for overload in overloads:
            tensor_type.aten_rules[overload] = run
        return function

    return register


def on_children(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an aten operation on children: nodes interpret it, plain tensors run it."""
    node = args[0] if args else None  # as it is nearly always
    if not isinstance(node, AbstractTensor):
        node = next(found_in((args, kwargs), AbstractTensor), None)
    if node is None:
        return _on_plain(func, args, kwargs)
    return type(node).interpret(func, args, kwargs)


def _on_plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation on plain integers; the constants of rules come to the device of the others."""
    found = [tensor for tensor in found_in((args, kwargs), torch.Tensor) if tensor.device.type != "cpu"]
    if not found:
        return func(*args, **kwargs)
    args, kwargs = all_placed((args, kwargs), found[0].device)
    return func(*args, **kwargs)
