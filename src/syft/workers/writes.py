"""What a command writes into: its schema says most of it, and here stands the rest."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.commands import KnownCommand
from syft.core.nested import found_in

#: aten operations that write into arguments although their schema does not say so.
UNDECLARED_WRITERS = frozenset(
    """batch_norm _batch_norm_impl_index native_batch_norm cudnn_batch_norm miopen_batch_norm instance_norm
    batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_update_stats""".split()
)


def written_into(command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that a command may write into: all of them where that cannot be known."""
    func = command.function
    if not isinstance(func, OpOverload):
        return list(found_in((args, kwargs), torch.Tensor))
    return written_by(func, args, kwargs)


def written_by(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    positions, names = _written_arguments(func)
    written: list[Any] = [args[i] for i in positions if i < len(args)]
    if kwargs:
        written += [kwargs[name] for name in names if name in kwargs]
    if len(written) == 1 and type(written[0]) is torch.Tensor:
        return written
    return list(found_in(written, torch.Tensor))


def remeasure(worker: Any, command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> None:
    """What was written into may have grown: an `out=`, or anything that a public function was given."""
    if command.outs or not isinstance(command.function, OpOverload):
        worker.remeasure(args, kwargs)


@cache
def may_write(command: KnownCommand) -> bool:
    func = command.function
    return not isinstance(func, OpOverload) or _written_arguments(func) != ((), ())


@cache
def _written_arguments(func: OpOverload) -> tuple[tuple[int, ...], tuple[str, ...]]:
    schema = func._schema
    found = [
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        # Running statistics are written into by some operations whose schemas do not say so: by all, for all we know.
        if argument.name.startswith(_STATISTICS)
        or (argument.alias_info is not None and argument.alias_info.is_write)
    ]
    return tuple(position for position, _ in found), tuple(name for _, name in found)


#: What the arguments are called that `UNDECLARED_WRITERS` write into, and those that say whether they do.
_STATISTICS = "running_"
_WHETHER_TO_WRITE = frozenset({"training", "train", "use_input_stats"})


def count_writes(command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> None:
    """Count a new version of what was written by those who count none: a graph that kept it must not go on with it."""
    for given in _uncounted(command, args, kwargs):
        if type(given) is torch.Tensor and not given.is_inference():
            torch.autograd.graph.increment_version(given)


def _uncounted(command: KnownCommand, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    names = _names_of_arguments(command)
    if not names:
        return []
    given = dict(zip(names, args, strict=False)) | kwargs
    if any(given.get(name) is False for name in _WHETHER_TO_WRITE):
        return []
    return [value for name, value in given.items() if name.startswith(_STATISTICS)]


@cache
def _names_of_arguments(command: KnownCommand) -> tuple[str, ...]:
    """The names of the arguments of an undeclared writer; none for every other command."""
    found = UNDECLARED_WRITERS.intersection(command.name.split("."))
    if not found:
        return ()
    func: Any = command.function
    if not isinstance(func, OpOverload):
        try:
            return tuple(inspect.signature(func).parameters)
        except (TypeError, ValueError):  # a builtin, which takes what the operation takes
            func = getattr(torch.ops.aten, min(found)).default
    return tuple(argument.name for argument in func._schema.arguments)
