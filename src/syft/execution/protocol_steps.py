"""What a protocol is made of: its steps, and the list of plans that users see and change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from syft.execution.plan import Plan

_Id = int | str


class Step(Struct, frozen=True):
    """One plan of a protocol and its place.

    worker    the id of the worker, or the name that `deploy` gives to one
    is_open   it is such a name
    plan      the plan; None if it is at the worker, under `plan_id`
    """

    worker: _Id
    is_open: bool
    plan: Plan | None
    plan_id: _Id | None = None


class Plans(list[tuple[Any, Any]]):
    """The pairs of a protocol; what is done to the list is done to the protocol, or refused and not done."""

    def __init__(
        self, pairs: Iterable[tuple[Any, Any]], changed: Callable[[list[tuple[Any, Any]]], None]
    ) -> None:
        super().__init__(pairs)
        self._changed = changed

    def _change(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        wanted = list(self)
        result = method(wanted, *args, **kwargs)
        self._changed(wanted)
        super().__setitem__(slice(None), wanted)
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        self._change(list.__setitem__, index, value)

    def __delitem__(self, index: Any) -> None:
        self._change(list.__delitem__, index)

    def append(self, pair: tuple[Any, Any]) -> None:
        self._change(list.append, pair)

    def extend(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self._change(list.extend, pairs)

    def insert(self, index: Any, pair: tuple[Any, Any]) -> None:
        self._change(list.insert, index, pair)

    def pop(self, index: Any = -1) -> Any:
        return self._change(list.pop, index)

    def remove(self, pair: tuple[Any, Any]) -> None:
        self._change(list.remove, pair)

    def reverse(self) -> None:
        self._change(list.reverse)

    def clear(self) -> None:
        self._change(list.clear)
