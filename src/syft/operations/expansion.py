"""A decomposed operation while it is admitted: the operations that torch runs it as, which have to be in the table.

Imports `core` only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core.nested import found_in
from syft.core.spec import spec_of
from syft.exceptions import OperationNotAdmittedError
from syft.operations.row import Call, Row

#: Operations that one operation may be made of.
_MOST_STEPS = 2**14


class Expansion(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operations on meta tensors that an operation is made of, and adds up what they cost."""

    work: int
    memory: int

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be wrapped by torch, which takes as long as a small operation: nothing here is compiled."""
        return False

    def __init__(self, row: Row) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = row.name
        self.work = self.memory = self.steps = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        row = inner_row(self.name, func)
        call = Call(row.name, row.layout, args, kwargs)
        specs = [spec_of(t) for t in found_in((args, kwargs), torch.Tensor)]
        if row.check is not None:
            row.check(Call(row.name, row.layout, as_specs(args), as_specs(kwargs)))
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise ValueError(
                f"{self.name} was not run: it would take more than {_MOST_STEPS} operations. Split it."
            )
        result = func(*args, **kwargs)
        made = [spec_of(t) for t in found_in(result, torch.Tensor)]
        self.work += row.work(specs, made, call)
        self.memory += row.extra(specs, made, call)
        if not row.is_view:
            self.memory += sum(s.nbytes for s in made)
        return result


def inner_row(name: str, func: OpOverload) -> Row:
    """The row of an operation that another one is made of; !! OperationNotAdmittedError if there is none."""
    from syft.operations.table import all_rows

    row = all_rows().get(str(func))
    if row is None:
        raise OperationNotAdmittedError(
            name, f"torch runs it as several operations, and {func} is one of them."
        )
    return row


def as_specs(value: Any) -> Any:
    """Arguments with specs in the place of tensors."""
    if isinstance(value, torch.Tensor):
        return spec_of(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(as_specs(v) for v in value)
    if isinstance(value, dict):
        return {k: as_specs(v) for k, v in value.items()}
    return value
