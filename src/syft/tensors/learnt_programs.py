"""What a backward pass that is told in one message may consist of: asked by who tells it, and by the worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.commands import KnownCommand, command_named, refuse_numbers_for_kinds
from syft.core.hook_args import base_types
from syft.core.ops import facts_of
from syft.exceptions import ProtocolError
from syft.messaging.message import Ref

#: What a worker keeps for one session.
MOST_PROGRAMS, MOST_OPERATIONS = 16, 2048
#: Numbers and names in all arguments of one pass.
_MOST_VALUES = 32_768
#: What may stand in arguments beside slots: what is the same at every worker.
_PLAIN = frozenset(base_types) - {torch.Generator, torch.device}


def checked_commands(operations: Any, outputs: Sequence[int], inputs: int) -> list[KnownCommand]:
    """The commands of a pass, each part of which was looked at. !! ProtocolError, UnknownCommandError, TypeError"""
    if type(operations) is not tuple or not 0 < len(operations) <= MOST_OPERATIONS:
        raise ProtocolError(f"A backward pass that is told at once has 1 to {MOST_OPERATIONS} operations.")
    known, values = inputs, 0
    commands = []
    for operation in operations:
        if type(operation) is not tuple or [type(part) for part in operation] != [str, tuple, dict, int]:
            raise ProtocolError(
                "An operation of a backward pass has a name, arguments and a number of results."
            )
        name, args, kwargs, results = operation
        command = command_named(name)
        if not isinstance(command.function, OpOverload) or facts_of(command.function).mutates:
            raise ProtocolError(f"{name} cannot be part of a backward pass that is told at once.")
        for value in args:
            values += _checked(value, known)
        for key, value in kwargs.items():
            values += _checked(value, 0)  # slots are among the other arguments
            if type(key) is not str:
                raise ProtocolError(f"{name} in a backward pass has an argument without a name.")
        if values > _MOST_VALUES or not 0 < results <= MOST_OPERATIONS:
            raise ProtocolError(f"{name} in a backward pass has too many arguments, or no result.")
        if command.kinds:
            refuse_numbers_for_kinds(name, command.kinds, list(args), kwargs)
        commands.append(command)
        known += results
    if len(set(outputs)) != len(outputs) or not all(inputs <= slot < known for slot in outputs):
        raise ProtocolError("A backward pass keeps results that it does not have, or one of them twice.")
    return commands


def _checked(value: Any, known: int) -> int:
    """How many values an argument has. !! ProtocolError"""
    kind = type(value)
    if kind is Ref:
        if type(value.id) is not int or not 0 <= value.id < known:
            raise ProtocolError("A backward pass uses a result before it is there.")
    elif kind in (list, tuple):
        if any(type(item) not in (int, bool) for item in value):
            raise ProtocolError("A list in a backward pass holds something else than numbers.")
        return len(value) + 1
    elif kind not in _PLAIN:
        raise ProtocolError(f"A backward pass carries numbers and names, not a {kind.__name__}.")
    return len(value) if kind is str else 1
