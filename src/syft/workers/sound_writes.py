"""What a command writes into is never handed to a kernel that torch does not hold back.

NOTE [Written by ourselves]
Many kernels write a tensor as if it were contiguous, as long as they need and of the type they work with. Given an
`out` that is expanded (a million elements in four bytes), too short, or of another type, they write over the memory
that lies beside it, which is somebody else's. So no `out` of a command reaches a kernel: the operation runs without it,
and what it made is copied there by rules that are torch's own: what has another shape is resized, and only types
that `torch.can_cast` allows are cast. A tensor whose elements share memory is not written into at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core.commands import UNINITIALISED
from syft.core.nested import found_in
from syft.workers.bound_arguments import at_end, has_values

Run = Callable[[OpOverload, Any, dict[str, Any]], Any]

#: What functions that make tensors are told about them, where functions that write into tensors look at those.
_OF_NEW_TENSORS = frozenset({"dtype", "layout", "device", "pin_memory"})

#: Operations in place of which torch itself refuses a tensor that overlaps itself, or that write nothing.
_TORCH_LOOKS = frozenset(
    """copy_ fill_ zero_ as_strided_ squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ detach_""".split()
)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory: of an expanded tensor they do."""
    if tensor.is_contiguous():
        return False
    reach = 0
    for step, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if step <= reach:
            return tensor.numel() > 0
        reach += step * (size - 1)
    return False


def refuse_overlapping(what: str, written: Iterable[Any]) -> None:
    """!! ValueError if elements of a tensor that is written into share memory."""
    for tensor in written:
        end = at_end(tensor)
        if isinstance(end, torch.Tensor) and overlaps_itself(end):
            raise ValueError(
                f"{what} was not run: several elements of a tensor that it writes into share memory (its shape is "
                f"{list(end.shape)} and its strides are {list(end.stride())}). Write into a `clone()` of it."
            )


@cache
def needs_look_at_writes(function: OpOverload) -> bool:
    """Whether it writes into arguments, and torch does not look at them: `pointwise` operations do look."""
    if torch.Tag.pointwise in function.tags or function._schema.name.partition("::")[2] in _TORCH_LOOKS:
        return False
    return any(a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments)


@cache
def outs_of(function: OpOverload) -> tuple[str, ...]:
    """The names of the arguments that an operation is only given to write its results into."""
    return tuple(argument.name for argument in function._schema.arguments if argument.is_out)


@cache
def without_outs(function: OpOverload) -> tuple[OpOverload, bool] | None:
    """The overload that returns what this one writes, and whether it has to be told the type; None: there is none."""
    packet = function._overloadpacket
    wanted = [_kind(a) for a in function._schema.arguments if not a.is_out]
    maker = None
    for name in packet.overloads():  # type: ignore[no-untyped-call]
        other = getattr(packet, name)
        arguments = other._schema.arguments
        if any(a.alias_info is not None and a.alias_info.is_write for a in arguments):
            continue
        given = [_kind(a) for a in arguments]
        if given == wanted:
            return other, False
        if _not_of_new_tensors(given) == _not_of_new_tensors(wanted):
            maker = other, any(a.name == "dtype" for a in arguments)
    return maker


def _kind(argument: Any) -> tuple[str, str]:
    return argument.name, str(argument.real_type)


def _not_of_new_tensors(kinds: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [kind for kind in kinds if kind[0] not in _OF_NEW_TENSORS]


def run_into_outs(function: OpOverload, args: Any, kwargs: dict[str, Any], run: Run) -> Any:
    """Run an operation that writes into `out`s without them, by `run`, and copy its results there."""
    names = outs_of(function)
    what = str(function)
    outs = [kwargs.get(name) for name in names]
    if any(out is None for out in outs):
        raise TypeError(
            f"{what} was called without {', '.join(names)}. Pass a tensor to write into for each."
        )
    found = without_outs(function)
    if found is None:
        raise ValueError(
            f"{what} was not run: torch has no form of it that returns its result, and does not check what it writes "
            "into. Call it without an out."
        )
    functional, takes_type = found
    rest = {name: value for name, value in kwargs.items() if name not in names}
    given = list(found_in(outs, torch.Tensor))
    if any(type(out) not in (torch.Tensor, torch.nn.Parameter) for out in given):
        refuse_overlapping(what, given)  # a chain writes into what is at its end by itself
        return function(*args, **kwargs)
    if takes_type and given:
        rest.update(dtype=given[0].dtype, device=given[0].device)
    made = run(functional, args, rest)
    if functional._schema.name.partition("::")[2] in UNINITIALISED:
        made = cleared(made)
    _write(what, outs[0] if isinstance(outs[0], (list, tuple)) else outs, made)
    if not function._schema.returns:
        return None
    return outs[0] if len(outs) == 1 else tuple(outs)


def _write(what: str, outs: Any, made: Any) -> None:
    results = made if isinstance(made, (list, tuple)) else [made]
    if len(results) != len(outs):
        raise ValueError(f"{what} made {len(results)} tensors for {len(outs)} to write into. Pass as many.")
    pairs = [(out, result) for out, result in zip(outs, results, strict=True) if result is not None]
    for out, result in pairs:  # all of them before any is written
        _refuse_unfit(what, out, result)
    for out, result in pairs:
        if out.shape != result.shape:
            out.resize_(result.shape)
        out.copy_(result)


def _refuse_unfit(what: str, out: torch.Tensor, result: torch.Tensor) -> None:
    if not torch.can_cast(result.dtype, out.dtype):
        raise ValueError(
            f"{what} was not written: its result is {result.dtype} and cannot be cast to the {out.dtype} of what it is "
            f"to be written into. Pass a tensor of {result.dtype}."
        )
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise ValueError(
            f"{what} was not written: torch cannot differentiate what is written into an out. Call it without one."
        )
    if out.shape == result.shape:
        refuse_overlapping(what, [out])


def cleared(result: Any) -> Any:
    """A new tensor without what its memory held before, the gaps between its elements included."""
    if has_values(result) and result.layout is torch.strided:
        storage: Any = result.untyped_storage()
        storage.fill_(0)
        return result
    return result.zero_() if isinstance(result, torch.Tensor) else result
