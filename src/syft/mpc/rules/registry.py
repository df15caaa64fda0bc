"""`@rule`: how an aten operation gets its meaning on a tensor type. Adding an operation is one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor

Rule = Callable[..., Any]


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
    head = next((type(a) for a in _leaves((args, kwargs)) if isinstance(a, AbstractTensor)), None)
    if head is None:
        return func(*args, **kwargs)
    return head.interpret(func, args, kwargs)


def _leaves(value: Any) -> Any:
    if isinstance(value, (AbstractTensor, torch.Tensor)):
        yield value
    elif isinstance(value, dict):
        yield from _leaves(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
