"""The records that a plan is made of: `Slot`, `Size`, `Operation`. Pure data, no behaviour.

A running plan is a row of numbered slots. An `Operation` names a public torch function; where it takes a tensor
there stands the `Slot` it is in, where it takes a size of a tensor there may stand a `Size`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct

from syft.execution import protobuf


class Slot(Struct, frozen=True, gc=False):
    """The place of a tensor in a running plan."""

    index: int


class Size(Struct, frozen=True):
    """A number that depends on the sizes of tensors, worked out anew at every run.

    op     "dim": the size of the dimension `right` of the tensor in slot `left`;
           an operator of `SIZE_OPERATORS`: of `left` and `right`, which are numbers or Sizes
    """

    op: str
    left: Any
    right: Any


class Operation(Struct, frozen=True):
    """One call of a torch function.

    name     as a user knows it: `torch.add`, `add` (a method), `torch.nn.functional.relu`
    args     None, numbers, names, dtypes, slices, ..., `Slot`s and `Size`s, in tuples, lists and dicts
    kwargs   the same by name
    results  where the results go: a Slot, None for what is no tensor, or a tuple of those
    tracks   False inside `torch.no_grad()`
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any
    tracks: bool = True

    # The names that operations of plans have in programs of 2020.

    @property
    def cmd_name(self) -> str:
        return self.name

    @property
    def cmd_owner(self) -> None:
        return None

    @property
    def cmd_args(self) -> tuple[Any, ...]:
        return self.args

    @property
    def cmd_kwargs(self) -> dict[str, Any]:
        return self.kwargs

    @property
    def return_ids(self) -> tuple[int, ...]:
        return tuple(slot.index for slot in slots_in(self.results))

    @staticmethod
    def bufferize(worker: Any, operation: Operation) -> Any:
        """The operation as a Protocol Buffer (`OperationPB`)."""
        return protobuf.bufferize(worker, operation)

    @staticmethod
    def unbufferize(worker: Any, message: Any) -> Operation:
        """The operation of an `OperationPB`; one that names no function a plan may name !! UnknownCommandError."""
        made: Operation = protobuf.unbufferize(worker, message, Operation)
        return made


#: What may stand in the arguments of an operation beside slots, sizes and containers.
PLAIN_TYPES: frozenset[type] = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        type(...),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    }
)

#: The operators of Sizes and how many operands they have.
SIZE_OPERATORS: dict[str, int] = {"+": 2, "-": 2, "*": 2, "//": 2, "%": 2, "/": 2, "**": 2, "neg": 1}


def map_structure(step: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `step` applied to everything in it that is no container. torch's named tuples become tuples."""
    if isinstance(value, tuple):
        return tuple([map_structure(step, v) for v in value])
    if isinstance(value, list):
        return [map_structure(step, v) for v in value]
    if isinstance(value, dict):
        return {k: map_structure(step, v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(map_structure(step, v) for v in (value.start, value.stop, value.step)))
    return step(value)


def leaves(value: Any) -> list[Any]:
    """Everything in a structure that is no container, in order."""
    found: list[Any] = []
    map_structure(found.append, value)
    return found


def slots_in(value: Any) -> list[Slot]:
    """The slots that a structure names, in order; those whose sizes it names are not among them."""
    return [leaf for leaf in leaves(value) if type(leaf) is Slot]


def sizes_in(value: Any) -> list[Size]:
    """The Sizes of a structure that are the size of one dimension."""
    found: list[Size] = []

    def look(leaf: Any) -> None:
        if type(leaf) is Size:
            if leaf.op == "dim":
                found.append(leaf)
            else:
                look(leaf.left)
                look(leaf.right)

    map_structure(look, value)
    return found
