"""What functions take and return beside tensors: objects that hold tensors, taken apart and put together.

A program knows tuples, lists and dicts; names of classes do not travel. So an object that holds tensors (a dataclass, a
`ModelOutput`, a cache of keys and values) becomes a dict of the fields that do. Whoever made the plan remembers what the
dict was, and gets the object back; whoever was sent the plan gets the dict.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from syft.execution.errors import PlanError
from syft.execution.sizes import _Symbolic

Build = Callable[[Any], Any]

#: How deep objects are looked into, and the most objects in one value.
_DEEPEST = 12


def plain_of(value: Any) -> Any:
    """A value made of tuples, lists and dicts, with dicts in place of objects that hold tensors."""
    if type(value) is tuple and all(isinstance(item, torch.Tensor) for item in value):
        return value  # most calls by far
    return take_apart(value)[0]


def take_apart(value: Any) -> tuple[Any, Build]:
    """`plain_of` a value, and the function that makes such a value of another of the same structure."""
    return _Taking().apart(value, 0)


def _same(value: Any) -> Any:
    return value


class _Taking:
    """Takes one value apart. An object that is met inside itself is refused."""

    def __init__(self) -> None:
        self.inside: set[int] = set()

    def apart(self, value: Any, depth: int) -> tuple[Any, Build]:
        kind = type(value)
        if kind in (tuple, list):
            return self._items(value, depth, kind)
        if kind is dict:
            return self._entries(value, depth, lambda parts: parts)
        if isinstance(value, torch.Tensor) or not _holds_tensors(value, depth, set()):
            return value, _same
        if id(value) in self.inside:
            raise PlanError(
                f"A plan was given, or returns, a {kind.__name__} that holds itself. Pass its tensors."
            )
        self.inside.add(id(value))
        try:
            return self._object(value, depth, kind)
        finally:
            self.inside.discard(id(value))

    def _object(self, value: Any, depth: int, kind: type) -> tuple[Any, Build]:
        if isinstance(value, tuple):
            make = getattr(kind, "_make", kind)
            return self._items(value, depth, make)
        if isinstance(value, list):
            return self._items(value, depth, kind)
        if isinstance(value, dict):
            if dataclasses.is_dataclass(value):  # a ModelOutput is both
                return self._entries(dict(value.items()), depth, lambda parts: kind(**parts))
            return self._entries(dict(value.items()), depth, kind)
        return self._fields(value, depth)

    def _items(self, value: Any, depth: int, make: Callable[[Any], Any]) -> tuple[Any, Build]:
        taken = [self.apart(item, depth + 1) for item in value]
        plain = [part for part, _ in taken]
        builds = [build for _, build in taken]

        def build(parts: Any) -> Any:
            return make([b(p) for b, p in zip(builds, parts, strict=True)])

        return (tuple(plain) if isinstance(value, tuple) else plain), build

    def _entries(self, value: dict[Any, Any], depth: int, make: Callable[[Any], Any]) -> tuple[Any, Build]:
        taken = {key: self.apart(item, depth + 1) for key, item in value.items()}

        def build(parts: Any) -> Any:
            return make({key: b(parts[key]) for key, (_, b) in taken.items()})

        return {key: part for key, (part, _) in taken.items()}, build

    def _fields_of(self, value: Any, depth: int) -> dict[str, Any]:
        """The attributes of an object that are part of its plain form."""
        return {
            name: item
            for name, item in vars(value).items()
            if _is_number(item) or _holds_tensors(item, depth + 1, set())
        }

    def _fields(self, value: Any, depth: int) -> tuple[Any, Build]:
        """An object by its attributes: those that hold tensors, and numbers. The rest stays as it is."""
        taken = {name: self.apart(item, depth + 1) for name, item in self._fields_of(value, depth).items()}
        blank = copy.copy(value)
        for name, item in vars(value).items():
            if isinstance(item, _Symbolic):
                blank.__dict__[name] = NotCarried(f"{type(value).__name__}.{name}")
            elif name in taken:
                blank.__dict__[name] = None

        def build(parts: Any) -> Any:
            made = copy.copy(blank)
            made.__dict__.update({name: b(parts[name]) for name, (_, b) in taken.items()})
            return made

        return {name: part for name, (part, _) in taken.items()}, build


@dataclasses.dataclass(frozen=True)
class NotCarried:
    """Stands for a number in an object that a plan returns, which depends on sizes: a plan returns tensors only.

    It is no number: whoever computes with it is told its name by the TypeError.
    """

    field: str


def _is_number(value: Any) -> bool:
    """Whether a value is a number that is the same in every call, if the trace says nothing else."""
    return isinstance(value, (int, float)) and not isinstance(value, (bool, _Symbolic))


def _holds_tensors(value: Any, depth: int, seen: set[int]) -> bool:
    """Whether there is a tensor in a value, or in an attribute of it. Modules and classes are not looked into."""
    if isinstance(value, torch.Tensor):
        return True
    if depth > _DEEPEST or id(value) in seen or isinstance(value, (torch.nn.Module, type)):
        return False
    seen.add(id(value))
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, (tuple, list)):
        inner = value
    else:
        inner = getattr(value, "__dict__", {}).values() if not callable(value) else ()
    return any(_holds_tensors(item, depth + 1, seen) for item in inner)
