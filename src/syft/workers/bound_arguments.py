"""The arguments of an aten operation by name, and the ways to ask whether they go together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor

Arguments = dict[str, Any]
#: What raises ValueError or IndexError if arguments do not go together.
Check = Callable[["Bound"], None]


class Bound(dict[str, Any]):
    """The arguments of an operation by name, chains replaced by the tensors at their ends."""

    def __init__(self, packet: str, layout: Any, args: Any, kwargs: Arguments) -> None:
        """`layout` has the name of each argument, whether it is a keyword only, and its default."""
        super().__init__()
        self.packet = packet
        given = len(args)
        for position, (name, is_keyword, default) in enumerate(layout):
            value = args[position] if position < given and not is_keyword else kwargs.get(name, default)
            self[name] = at_end(value)

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(
                f"aten.{self.packet} was not run: {what}. Pass what the forward pass was given and returned."
            )

    def within(self, name: str, low: int, high: int, but: int | None = None) -> None:
        """!! IndexError unless all low <= values < high; `but` stands for no index."""
        values = self[name]
        if values is None or not has_values(values) or not values.numel():
            return
        least, most = torch.aminmax(values.detach())
        if low <= least.item() and most.item() < high:
            return
        outside = (values < low) | (values >= high)
        if but is not None:
            outside &= values != but
        if bool(outside.any()):
            raise IndexError(
                f"aten.{self.packet} was not run: {name!r} holds values that are not in [{low}, {high}). Pass indices "
                "of elements that are there."
            )

    def same_shape(self, one: str, other: str) -> None:
        self.require(
            self[one].shape == self[other].shape,
            f"{one!r} is {list(self[one].shape)} and {other!r} is {list(self[other].shape)}",
        )

    def length(self, name: str, elements: int, may_lack: bool = True) -> None:
        """None, or that many elements."""
        value = self[name]
        if value is None and may_lack:
            return
        self.require(
            value.numel() == elements, f"{name!r} has {value.numel()} elements instead of {elements}"
        )

    def dims(self, name: str, *allowed: int) -> None:
        self.require(self[name].dim() in allowed, f"{name!r} has {self[name].dim()} dimensions")


def at_end(value: Any) -> Any:
    if type(value) is torch.Tensor or not isinstance(value, torch.Tensor):
        return value
    child = getattr(value, "child", None)
    if child is None:
        return value
    while isinstance(child, AbstractTensor) and child.location is None and child.child is not None:
        child = child.child
    return child if isinstance(child, torch.Tensor) else value


def has_values(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor of this process: not a meta or fake tensor, and no pointer."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
