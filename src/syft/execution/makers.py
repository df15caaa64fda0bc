"""Functions that make the arguments of an operation when a plan runs: from what stands in it, and the tensors so far."""

from __future__ import annotations

import operator
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from syft.execution.errors import InvalidProgramError
from syft.execution.operation import Size, Slot, leaves

Slots = list[Any]
Maker = Callable[[Slots], Any]

_CONTAINERS = (tuple, list, dict, slice)
SIZE_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "**": operator.pow,
}

#: A power of sizes beyond this is no size of anything; a stranger could otherwise keep a worker busy with one.
_MAX_EXPONENT = 64
_BEYOND_SIZES = 1 << 63


def argument_maker(value: Any) -> Maker:
    """The function that makes an argument when the plan runs."""
    if type(value) is Slot:
        return itemgetter(value.index)
    if type(value) is Size:
        return size_maker(value)
    if isinstance(value, _CONTAINERS) and any(type(leaf) in (Slot, Size) for leaf in leaves(value)):
        return _container_maker(value)
    return lambda _slots: value


def _container_maker(value: Any) -> Maker:
    if isinstance(value, slice):
        start, stop, step = (
            argument_maker(value.start),
            argument_maker(value.stop),
            argument_maker(value.step),
        )
        return lambda slots: slice(start(slots), stop(slots), step(slots))
    if isinstance(value, dict):
        by_key = {key: argument_maker(part) for key, part in value.items()}
        return lambda slots: {key: make(slots) for key, make in by_key.items()}
    makers = [argument_maker(part) for part in value]
    if isinstance(value, tuple):
        return lambda slots: tuple([make(slots) for make in makers])
    return lambda slots: [make(slots) for make in makers]


def size_maker(size: Size) -> Maker:
    if size.op == "dim":
        index, dim = size.left, size.right
        return lambda slots: slots[index].shape[dim]
    left = argument_maker(size.left)
    if size.op == "neg":
        return lambda slots: -left(slots)
    right, function = argument_maker(size.right), SIZE_FUNCTIONS[size.op]
    if size.op == "**":
        function = _bounded_power
    return lambda slots: _bounded(function(left(slots), right(slots)))


def _bounded_power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > _MAX_EXPONENT:
        raise InvalidProgramError(f"A plan raises a size to the power {exponent}.")
    return base**exponent


def _bounded(size: Any) -> Any:
    """NB: not only what is used in the end: numbers with a million digits keep a worker busy on the way."""
    if not -_BEYOND_SIZES < size < _BEYOND_SIZES:
        raise InvalidProgramError("A plan computes a size beyond 2**63, which nothing has.")
    return size
