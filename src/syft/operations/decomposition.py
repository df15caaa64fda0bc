"""Running an operation that is not in the table as several that are: for clients of workers that admit only the table.

torch has decompositions of most operations: those that autograd uses itself, and those for compilers. A decomposition is
called with the caller's own arguments (pointers), and its operations come back through the dispatcher one by one.
Imports `core`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from syft.exceptions import OperationNotAdmittedError
from syft.operations.table import is_admitted


def decompose(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """The result of an operation that is run as others; NotImplemented if torch does not say as which.

    The operations that it is run as may have to be decomposed, too.
    """
    kwargs = kwargs or {}
    python = _python_decomposition(func)
    if python is not None and not any(a.is_out for a in func._schema.arguments):
        return python(*args, **kwargs)
    if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func.decompose(*args, **kwargs)
    twin = _functional_twin(func)
    if twin is not None:
        return args[0].copy_(twin(*args, **kwargs))
    return _without_out(func, args, kwargs)


def _without_out(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`maximum(a, b, out=c)` as `c.copy_(maximum(a, b))`, where c has the shape of the result."""
    outs = [a.name for a in func._schema.arguments if a.is_out]
    functional = _functional_overload(func)
    if functional is None or len(outs) != 1 or not isinstance(kwargs.get(outs[0]), torch.Tensor):
        return NotImplemented
    rest = dict(kwargs)
    out: torch.Tensor = rest.pop(outs[0])
    made = functional(*args, **rest)
    if made.shape != out.shape:
        raise OperationNotAdmittedError(
            str(func),
            f"It would resize an out= of shape {tuple(out.shape)} to {tuple(made.shape)}.",
            "Leave out= away.",
        )
    return out.copy_(made)


def refusal(func: OpOverload) -> OperationNotAdmittedError:
    """What a user reads of an operation that is neither in the table nor decomposed."""
    if torch.Tag.dynamic_output_shape in func.tags:
        return OperationNotAdmittedError(
            str(func),
            "Its result has as many elements as values say, so its shape cannot be told without them.",
            "Keep all elements and weigh them: `torch.where`, `masked_fill`, weights of 0 and 1, or `nonzero_static` "
            "with a size.",
        )
    return OperationNotAdmittedError(str(func), "torch has no way to run it as operations that are.")


def is_decomposable(func: OpOverload) -> bool:
    """Whether `decompose` has a way to run an operation."""
    composite = func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    has_twin = _functional_twin(func) is not None or _functional_overload(func) is not None
    return _python_decomposition(func) is not None or composite or has_twin


@cache
def _python_decomposition(func: OpOverload) -> Any:
    from torch._decomp import decomposition_table

    return decomposition_table.get(func)


@cache
def _functional_twin(func: OpOverload) -> OpOverload | None:
    """Of an operation in place, the one that returns what it writes, if the table has that."""
    name = str(func)
    namespace, packet, overload = name.split(".")
    twin = f"{namespace}.{packet.removesuffix('_')}.{overload}"
    if not packet.endswith("_") or not is_admitted(twin):
        return None
    return getattr(getattr(torch.ops.aten, packet.removesuffix("_")), overload)  # type: ignore[no-any-return]


@cache
def _functional_overload(func: OpOverload) -> OpOverload | None:
    """Of an operation that takes an `out`, the overload that takes all but that."""
    wanted = [(a.name, str(a.real_type)) for a in func._schema.arguments if not a.is_out]
    if len(wanted) == len(func._schema.arguments):
        return None
    packet = func._overloadpacket
    for name in packet.overloads():  # type: ignore[no-untyped-call]
        other = getattr(packet, name)
        if [(a.name, str(a.real_type)) for a in other._schema.arguments] == wanted:
            return other  # type: ignore[no-any-return]
    return None
