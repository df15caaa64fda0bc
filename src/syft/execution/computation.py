"""`ComputationAction`: a torch function that a role calls."""

from __future__ import annotations

from typing import Any

from syft.execution.action import Action
from syft.execution.operation import Operation, Slot, leaves


class ComputationAction(Action, frozen=True):
    """One call of a torch function.

    name        as a user knows it: `torch.add`, or `add` for a method
    target      what the method belongs to; None for a function
    args        its arguments, without the target
    kwargs      its arguments by name
    return_ids  the ids of the placeholders of its results
    """

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    return_ids: tuple[Any, ...]


def action_of(operation: Operation) -> ComputationAction:
    """An operation of a plan as an action; its tensors are the Slots of the plan."""
    args = operation.args
    is_method = not operation.name.startswith("torch.") and bool(args) and type(args[0]) is Slot
    target, rest = (args[0], args[1:]) if is_method else (None, args)
    ids = tuple(leaf.index for leaf in leaves(operation.results) if type(leaf) is Slot)
    return ComputationAction(operation.name, target, rest, dict(operation.kwargs), ids)
