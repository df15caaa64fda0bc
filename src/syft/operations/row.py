"""`Row`: what is known of one admitted operation before it runs.

A row is data: it names an overload and says how it runs, what it writes, what it costs. Two things hold of every row and
are no columns: its output is fully written, and the shape of its output does not depend on values. `tests/gate` checks
both for every row there is. Imports `core` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import torch
from torch._ops import OpOverload

from syft.core.commands import kinds_of
from syft.core.spec import TensorSpec, extent_in_bytes

#: native: torch's kernel. checked: torch's kernel, after a look at values that it trusts. decomposed: as several rows.
Way = Literal["native", "checked", "decomposed"]

#: Names of the rules by which rows of private data are followed through an operation; see syft.dp.provenance.
ELEMENTWISE = "elementwise"
ELEMENTWISE_ON_FLOATS = "elementwise on floats"
ALONG_A_ROW = "along a row"
TIMES_PUBLIC = "times public"
OTHER_SHAPE = "other shape"
PART_OF_A_ROW = "part of a row"
BESIDE = "beside"
SLICE = "slice"
TRANSPOSE = "transpose"
PERMUTE = "permute"


class Call(dict[str, Any]):
    """The arguments of one call by their names in the schema; those that were left out have their defaults."""

    def __init__(
        self, operation: str, layout: Iterable[tuple[str, bool, Any]], args: Any, kwargs: Any
    ) -> None:
        super().__init__()
        self.operation = operation
        given = len(args)
        for position, (name, is_keyword, default) in enumerate(layout):
            self[name] = args[position] if position < given and not is_keyword else kwargs.get(name, default)

    def require(self, holds: bool, found: str) -> None:
        """!! ValueError unless it holds. `found` says what was found instead."""
        if not holds:
            cure = " Pass what its forward pass takes and returns." if "backward" in self.operation else ""
            raise ValueError(f"{self.operation} was not run: {found}.{cure}")


#: Looks at specs and public values before torch is asked; raises what the user reads.
SpecCheck = Callable[[Call], None]
#: (specs of the arguments, specs of the results, the call) -> steps, or bytes beside the results
Cost = Callable[[list[TensorSpec], list[TensorSpec], Call], int]


#: Families whose kernels go by strides.
_BY_ELEMENT = frozenset({"elementwise", "views and creation", "composites", "optimizers", "random"})


def elements(arguments: list[TensorSpec], results: list[TensorSpec], call: Call) -> int:
    """One step per element that is read or made."""
    return sum(s.shape.numel() for s in arguments) + sum(s.shape.numel() for s in results)


def nothing(arguments: list[TensorSpec], results: list[TensorSpec], call: Call) -> int:
    return 0


def copies(arguments: list[TensorSpec], results: list[TensorSpec], call: Call) -> int:
    """Kernels that want memory in order copy their arguments; an expanded one is then as large as its shape."""
    return sum(s.nbytes for s in arguments) + sum(s.nbytes for s in results)


def copies_with_gaps(arguments: list[TensorSpec], results: list[TensorSpec], call: Call) -> int:
    """The same for copies that lie as their arguments do."""
    return sum(max(s.nbytes, extent_in_bytes(s)) for s in arguments) + sum(s.nbytes for s in results)


@dataclass(frozen=True)
class Row:
    """One admitted operation.

    name      such as "aten.add.Tensor"
    row_wise  the rule by which output rows depend on input rows; None: a row may depend on all rows
    work      a bound on its steps
    extra     a bound on the bytes that it takes beside its results
    check     looks at specs and public values that torch would trust
    direct    an operation in place that writes all or nothing, and never fails because of values
    dense     its kernel may go through memory in order, although its family goes by strides
    inner     runs only as a part of a decomposed operation
    writes    names of arguments that are written in training although the schema does not say so
    """

    name: str
    family: str
    way: Way = "native"
    row_wise: str | None = None
    work: Cost = elements
    extra: Cost = nothing
    check: SpecCheck | None = None
    direct: bool = False
    inner: bool = False
    dense: bool = False
    writes: tuple[str, ...] = ()

    @property
    def packet(self) -> str:
        return self.name.split(".")[1]

    @cached_property
    def function(self) -> Any:
        namespace, packet, overload = _overload_name(self.name).split(".")
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)

    @cached_property
    def kernel(self) -> Any:
        """What `function` calls: its own `__call__` does nothing else, in Python."""
        return self.function._op if type(self.function) is OpOverload else self.function

    @cached_property
    def layout(self) -> tuple[tuple[str, bool, Any], ...]:
        """Of each argument: its name, whether it goes by keyword only, and its default."""
        return tuple(
            (a.name, a.kwarg_only, a.default_value if a.has_default_value() else None)
            for a in self.function._schema.arguments
        )

    @cached_property
    def kinds(self) -> tuple[tuple[int, str], ...]:
        """The arguments that are dtypes, layouts or memory formats."""
        return kinds_of(self.function)

    @cached_property
    def declared_writes(self) -> tuple[str, ...]:
        """The names of the arguments that the schema says are written."""
        return tuple(
            a.name
            for a in self.function._schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        )

    def written_by(self, call: Call) -> tuple[str, ...]:
        """The names of the arguments that a call writes. Running statistics are written in training only."""
        if self.writes and call.get("training"):
            return (*self.declared_writes, *self.writes)
        return self.declared_writes

    @cached_property
    def changes_metadata(self) -> bool:
        """Whether it changes the shape or the strides of an argument, such as `t_`."""
        return torch.Tag.inplace_view in self.function.tags

    @cached_property
    def is_random(self) -> bool:
        return torch.Tag.nondeterministic_seeded in self.function.tags

    @cached_property
    def trusts_memory(self) -> bool:
        """Whether its kernel may read arguments as if their elements lay one behind the other."""
        return (self.dense or self.family not in _BY_ELEMENT) and not self.is_view

    @cached_property
    def is_view(self) -> bool:
        """Whether its results share memory with its arguments."""
        returns = self.function._schema.returns
        return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)

    @cached_property
    def is_composite(self) -> bool:
        """Whether torch runs it as other operations, and may return an argument as it is."""
        function: OpOverload = self.function
        key = torch._C.DispatchKey
        return function.has_kernel_for_dispatch_key(
            key.CompositeImplicitAutograd
        ) and not function.has_kernel_for_dispatch_key(key.CPU)


def rows(family: str, names: str, in_place: bool = False, **columns: Any) -> list[Row]:
    """Rows of equal properties. "abs" stands for "aten.abs.default"; `in_place` adds "aten.abs_.default", if any."""
    made = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        made.append(Row(f"aten.{packet}.{overload or 'default'}", family, **columns))
        twin = f"aten::{packet}_.{overload}" if overload else f"aten::{packet}_"
        if in_place and twin in _names_of_torch():
            made.append(
                Row(f"aten.{packet}_.{overload or 'default'}", family, **{**columns, "row_wise": None})
            )
    return made


@cache
def _names_of_torch() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())


def _overload_name(name: str) -> str:
    """The overload that a name stands for: "torch.lstm" is the overload of `lstm` that takes one input."""
    return f"aten.{name.removeprefix('torch.')}.input" if name.startswith("torch.") else name


def is_in_torch(name: str) -> bool:
    """Whether this version of torch has an overload of that name."""
    namespace, packet, overload = _overload_name(name).split(".")
    return f"{namespace}::{packet}" + ("" if overload == "default" else f".{overload}") in _names_of_torch()
