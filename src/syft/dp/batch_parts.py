"""Batches as models take them: one tensor, several, or tensors by name.

One duty: how many examples a batch has, which examples of it, and what a model is called with. Imports nothing of ours.

    model(x)              inputs: one tensor
    model(x, mask)        inputs: a tuple or list of tensors
    model(**batch)        inputs: a dict of tensors (or any other mapping)

Targets are a tensor, or tensors in tuples, lists and dicts, and reach the loss as they are. Dimension 0 of every tensor
is the batch: what is the same for all examples belongs into the model.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn


def check_batch(inputs: Any, targets: Any) -> int:
    """How many examples there are. !! TypeError, ValueError where a tensor has not one row for each of them"""
    if isinstance(inputs, Mapping) and not all(isinstance(name, str) for name in inputs):
        raise TypeError(
            "The inputs are a dict with a key that is no string. Name them by strings, as the model's arguments are."
        )
    if isinstance(inputs, (Mapping, tuple, list)) and not inputs:
        raise ValueError("There are no inputs: give one tensor at least, whose dimension 0 is the batch.")
    if isinstance(targets, (Mapping, tuple, list)) and not targets:
        raise ValueError("There are no targets: for a loss without targets give zeros.")
    sizes: dict[str, int] = {}
    for name, value, cure in (
        ("inputs", inputs, "Give a tensor, or a tuple, list or dict of tensors"),
        ("targets", targets, "Make them a tensor (torch.as_tensor); for a loss without targets give zeros"),
    ):
        # NB: inputs in inputs would be arguments that are lists. Models of that kind take them apart themselves.
        for path, part in _leaves(name, value, deep=name == "targets"):
            if not isinstance(part, Tensor) or not part.dim():
                kind = "number" if isinstance(part, Tensor) else type(part).__name__
                raise TypeError(
                    f"Per-sample gradients take {path} as one tensor whose dimension 0 is the batch, got a {kind}. "
                    f"{cure}."
                )
            sizes[path] = len(part)
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"There are {' and '.join(f'{size} {path}' for path, size in sizes.items())}: give one of each for each "
            "example."
        )
    return next(iter(sizes.values()))


def _leaves(path: str, value: Any, deep: bool) -> Iterator[tuple[str, Any]]:
    items: Any = None
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    if items is None:
        yield path, value
        return
    for key, part in items:
        inner = f"{path}[{key!r}]"
        if deep:
            yield from _leaves(inner, part, deep)
        else:
            yield inner, part


def each_tensor(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same tuples, lists and dicts, of what `function` makes of each tensor."""
    if isinstance(value, Mapping):
        return {key: each_tensor(function, part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [each_tensor(function, part) for part in value]
        # NB: a named tuple takes its parts one by one.
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return function(value)


def some_rows(value: Any, chosen: slice | Tensor) -> Any:
    """These examples of inputs or of targets."""
    return each_tensor(lambda part: part[chosen], value)


def arguments(inputs: Any) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """What a model is called with."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def check_arguments(model: nn.Module, inputs: Any) -> None:
    """!! TypeError where the model's forward does not take so many inputs, or not by these names"""
    args, named = arguments(inputs)
    forward: Any = model.forward
    try:
        if isinstance(forward, types.MethodType) and isinstance(forward.__func__, types.FunctionType):
            _signature(forward.__func__).bind(forward.__self__, *args, **named)
        else:
            inspect.signature(forward).bind(*args, **named)
    except TypeError as error:
        given = f"{len(args)} inputs" if args else f"inputs named {', '.join(named)}"
        raise TypeError(
            f"{type(model).__name__}.forward does not take {given} ({error}). A tuple or list of tensors is given to the "
            "model one by one, a dict by name: give what forward takes. Nothing was charged."
        ) from None
    except ValueError:  # a forward without a signature
        return


@functools.lru_cache(maxsize=256)
def _signature(function: types.FunctionType) -> inspect.Signature:
    return inspect.signature(function)


def plain(value: Any) -> Any:
    """The same, of tuples, lists and dicts of Python, which `torch.func.vmap` looks into."""
    return each_tensor(lambda part: part, value)


def batch_of_one(value: Any) -> Any:
    """One example, without its dimension of the batch, as a batch."""
    return each_tensor(lambda part: part.unsqueeze(0), value)
