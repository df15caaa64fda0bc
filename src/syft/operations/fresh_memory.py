"""Functions of commands on open workers, made so that none hands out memory which others have used.

NOTE [Memory of others]
Fresh memory may have held somebody else's data: an open worker may hold private tensors, too. What torch leaves
unwritten is cleared before anybody can point to it, and operations that reach memory beside their tensors are refused.
A worker that denies by default runs none of these: they are not in its table of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.commands import KnownCommand, command_named
from syft.exceptions import UnknownCommandError

#: Operations that hand out memory which is not the caller's, by the name of their packet.
_OF_OTHERS = frozenset(
    f"aten.{packet}.{overload}"
    for packet in """resize resize_ resize_as resize_as_ _resize_output _resize_output_ _reshape_alias
    _reshape_alias_copy _nested_view_from_buffer _nested_view_from_buffer_copy _sparse_coo_tensor_unsafe
    _sparse_compressed_tensor_unsafe _sparse_csr_tensor_unsafe _sparse_csc_tensor_unsafe
    _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe""".split()
    for overload in getattr(torch.ops.aten, packet).overloads()
) | {"resize", "resize_as"}


@cache
def function_of(command: KnownCommand) -> Callable[..., Any]:
    """The function that an open worker runs for a command; one that raises if it runs none."""
    if command.name in ("aten.resize.default", "aten.resize_as.default"):
        return partial(_resized, command.function)
    if command.name in _OF_OTHERS:
        return partial(_refuse, command.name)
    if command.leaves_memory_uninitialised:
        return partial(_cleared, command.function)
    # What an overload calls: its own `__call__` does nothing else, in Python.
    return command.function._op if type(command.function) is OpOverload else command.function


def chained(names: tuple[tuple[str, int, bool], ...]) -> Callable[..., tuple[Any, ...]]:
    """A function that runs several commands, each on what the one before returned and so many arguments.

    It returns the results that are marked.
    """
    steps = [(function_of(command_named(name)), count, is_kept) for name, count, is_kept in names]

    def run(result: Any, *args: Any) -> tuple[Any, ...]:
        results, taken = [], 0
        for function, count, is_kept in steps:
            result = function(result, *args[taken : taken + count])
            taken += count
            if is_kept:
                results.append(result)
        return tuple(results)

    return run


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> Any:
    raise UnknownCommandError(name)


def _resized(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`resize` into new memory, of which the rest is zeros."""
    result = function(*args, **kwargs)
    result.view(-1)[args[0].numel() :].zero_()
    return result


def _cleared(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A new tensor without what its memory held before, the gaps between its elements included."""
    result = function(*args, **kwargs)
    if type(result) is torch.Tensor and not result.is_meta and result.layout is torch.strided:
        storage: Any = result.untyped_storage()
        storage.fill_(0)
        return result
    return result.zero_() if isinstance(result, torch.Tensor) else result
